"""The CPU as a device, with the functions that `torch.cuda` has."""

import contextlib as _contextlib
import os as _os
import platform as _platform

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


def get_capabilities():
    """What the processor can do, by the names of its instruction sets.

    >>> wisp.cpu.get_capabilities()["num_logical_cores"] > 0
    True
    """
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith(("flags", "Features"))), [])
    return {**dict.fromkeys((flag.replace("avx512", "avx512_").replace("__", "_") for flag in flags[2:]), True), **_machine()}


def _machine():
    return {"architecture": _platform.machine(), "num_logical_cores": _os.cpu_count()}


def _init_amx():
    """False: nothing to begin."""
    return False


def _is_amx_tile_supported():
    return bool(get_capabilities().get("amx_tile"))


def _is_vnni_supported():
    return bool(get_capabilities().get("avx512_vnni"))


def stream(stream):
    """A context that changes nothing."""
    return _contextlib.nullcontext()
