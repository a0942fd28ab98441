"""The accelerator of this machine, whichever it is: CUDA, or none."""

import wisp as _wisp
from wisp.accelerator import memory
from wisp.accelerator.memory import *  # noqa: F403

__all__ = """
    current_accelerator current_device_idx current_device_index current_stream device_count device_index is_available memory set_device_idx
    set_device_index synchronize""".split()
__all__ += memory.__all__


def is_available():
    """Whether there is an accelerator.

    >>> import wisp
    >>> device = wisp.accelerator.current_accelerator().type if wisp.accelerator.is_available() else "cpu"
    """
    return _wisp.cuda.is_available()


def device_count():
    """How many accelerators there are."""
    return _wisp.cuda.device_count()


def current_accelerator(check_available=False):
    """The device of the accelerator without a number, or None where there is none."""
    return _wisp.device("cuda") if is_available() else None


def _require(name):
    if not is_available():
        raise RuntimeError(f"accelerator.{name}: this machine has no accelerator that Wisp can use (see `wisp doctor`)")


def current_device_index():
    """The number of the current device."""
    _require("current_device_index")
    return _wisp.cuda.current_device()


def set_device_index(device, /):
    """Make a device the current one."""
    _require("set_device_index")
    _wisp.cuda.set_device(device)


class device_index:
    """Makes a device the current one within the block, if it is told one.

    >>> import wisp
    >>> with wisp.accelerator.device_index(None):
    ...     x = wisp.ones(2)
    """

    def __init__(self, device, /):
        self.idx, self.prev_idx = device, -1

    def __enter__(self):
        if self.idx is not None:
            self.prev_idx = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *exc_info):
        if self.idx is not None:
            set_device_index(self.prev_idx)


current_device_idx, set_device_idx = current_device_index, set_device_index


def current_stream(device=None, /):
    """The current stream of a device."""
    _require("current_stream")
    return _wisp.cuda.current_stream(device)


def synchronize(device=None, /):
    """Wait until the device has done all its work."""
    if is_available():
        _wisp.cuda.synchronize(device)
