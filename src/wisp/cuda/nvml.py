"""What the driver's management library (NVML) tells about a GPU: load, temperature, power, clock and the processes on it."""

import ctypes
import os

from wisp import _core

_cuda = _core._operators["_cuda"]

__all__ = ["clock_rate", "list_gpu_processes", "memory_usage", "power_draw", "temperature", "utilization"]

_MORE_ROOM = 7  # NVML's answer to a list that is too short


class _Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instance", ctypes.c_uint), ("compute", ctypes.c_uint)]


_library = None


def _open():
    global _library
    if _library is None:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise ModuleNotFoundError(f"NVML, a part of NVIDIA's driver, cannot be opened: {error}") from None
        _check(library.nvmlInit_v2(), "nvmlInit")
        _library = library
    return _library


def _check(code, what):
    if code:
        raise RuntimeError(f"{what} failed with NVML's error {code}")


def _handle(device):
    """NVML counts all devices of the machine, CUDA those that CUDA_VISIBLE_DEVICES names."""
    from wisp.cuda import _index

    library, index = _open(), _index(device)
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = named[index] if index < len(named) else str(index)
    handle = ctypes.c_void_p()
    if name.isdigit():
        _check(library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle)), "nvmlDeviceGetHandleByIndex")
    else:
        _check(library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)), "nvmlDeviceGetHandleByUUID")
    return handle


def _number(device, function, *args):
    value, handle = ctypes.c_uint(), _handle(device)
    _check(getattr(_open(), function)(handle, *args, ctypes.byref(value)), function)
    return value.value


def _rates(device):
    rates, handle = _Rates(), _handle(device)
    _check(_open().nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates)), "nvmlDeviceGetUtilizationRates")
    return rates


def utilization(device=None):
    """The share of the last moments, in percent, in which a kernel ran on the GPU."""
    return _rates(device).gpu


def memory_usage(device=None):
    """The share of the last moments, in percent, in which the GPU's memory was read or written."""
    return _rates(device).memory


def temperature(device=None):
    """The temperature of the GPU in degrees Celsius."""
    return _number(device, "nvmlDeviceGetTemperature", ctypes.c_uint(0))


def power_draw(device=None):
    """The power that the GPU draws, in milliwatts."""
    return _number(device, "nvmlDeviceGetPowerUsage")


def clock_rate(device=None):
    """The clock of the GPU's processors in MHz."""
    return _number(device, "nvmlDeviceGetClockInfo", ctypes.c_uint(1))


def list_gpu_processes(device=None):
    """The processes that compute on the GPU and the memory that each holds, as a text."""
    from wisp.cuda import _index

    library, handle, room = _open(), _handle(device), 16
    while True:
        count, found = ctypes.c_uint(room), (_Process * room)()
        code = library.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found)
        if code != _MORE_ROOM:
            break
        room = count.value + 16  # others may start meanwhile
    _check(code, "nvmlDeviceGetComputeRunningProcesses")
    lines = [f"GPU:{_index(device)}"]
    lines += [f"process {one.pid:>10d} uses {one.bytes / 2**20:>12.3f} MB GPU memory" for one in found[: count.value]]
    return "\n".join(lines if count.value else [*lines, "no processes are running"])
