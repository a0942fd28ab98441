"""The CPU as a device, with the functions that `torch.cuda` has."""

import contextlib as _contextlib

from wisp.cpu import amp  # noqa: F401


def is_available():
    """True."""
    return True


def device_count():
    """1: all processors are one device."""
    return 1


def current_device():
    """The name of the device: "cpu"."""
    return "cpu"


def set_device(device):
    """Nothing to choose: there is one."""


def is_initialized():
    """True."""
    return True


def synchronize(device=None):
    """Nothing to wait for: an operator returns when it is done."""


def current_stream(device=None):
    """None: there are no streams."""
    return None


def stream(stream):
    """A context that changes nothing."""
    return _contextlib.nullcontext()
