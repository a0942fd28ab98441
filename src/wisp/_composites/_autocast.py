"""Autocast for operators written in Python: those that PyTorch computes in float32 are marked with `in_float32`."""

import functools

from wisp import _core


def cast(value, device_type, dtype):
    """Floating-point tensors of the device, also inside of lists and dicts, in another dtype; doubles stay."""
    if isinstance(value, _core.Tensor):
        eligible = value.is_floating_point() and value.dtype != _core.float64 and value.device.type == device_type
        return value.to(dtype) if eligible else value
    if isinstance(value, dict):
        return {cast(k, device_type, dtype): cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [cast(v, device_type, dtype) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def in_float32(function):
    """Decorate a function of tensors: under autocast they come in float32, and autocast is off inside."""

    @functools.wraps(function)
    def decorated(*args, **kwargs):
        for gpu, device_type in ((False, "cpu"), (True, "cuda")):
            if not _core._autocast_enabled(gpu):
                continue
            if any(isinstance(a, _core.Tensor) and a.device.type == device_type for a in (*args, *kwargs.values())):
                lower = _core._autocast_dtype(gpu)
                _core._set_autocast(gpu, False, lower)
                try:
                    return function(*cast(args, device_type, _core.float32), **cast(kwargs, device_type, _core.float32))
                finally:
                    _core._set_autocast(gpu, True, lower)
        return function(*args, **kwargs)

    return decorated
