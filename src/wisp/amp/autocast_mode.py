"""Autocast: a region in which products run in a lower precision and losses in float32.

    >>> import wisp
    >>> a = wisp.rand(4, 4)
    >>> with wisp.autocast("cpu", dtype=wisp.bfloat16):
    ...     c = a @ a
    >>> c.dtype
    torch.bfloat16

Which operators are cast, and how, is said where they are registered, as PyTorch has it for the CPU and for CUDA. Losses written
in Python are marked where they are defined (`in_float32`). Everything else takes what it is given.
"""

import functools
import warnings

from wisp import _core
from wisp._composites._autocast import cast

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type):
    """Whether there is an autocast for this kind of device."""
    if device_type in ("cpu", "cuda"):
        return True
    try:
        _core.device(device_type)
    except RuntimeError:
        raise RuntimeError(f"Invalid device string: '{device_type}'") from None
    return False


def is_autocast_enabled(device_type="cuda"):
    """Whether autocast is on in this thread; without a device PyTorch asks about CUDA."""
    return is_autocast_available(device_type) and _core._autocast_enabled(device_type == "cuda")


def set_autocast_enabled(device_type, enabled=None):
    """Switch autocast on or off in this thread; without a device, for CUDA."""
    device_type, enabled = ("cuda", device_type) if enabled is None else (device_type, enabled)
    gpu = device_type == "cuda"
    _core._set_autocast(gpu, bool(enabled), _core._autocast_dtype(gpu))


def get_autocast_dtype(device_type):
    """The lower precision that autocast uses on a kind of device."""
    return _core._autocast_dtype(device_type == "cuda")


def set_autocast_dtype(device_type, dtype):
    """Choose the lower precision that autocast uses on a kind of device."""
    gpu = device_type == "cuda"
    _core._set_autocast(gpu, _core._autocast_enabled(gpu), dtype)


def is_autocast_cpu_enabled():
    """Whether autocast is on for the CPU."""
    return _core._autocast_enabled(False)


def set_autocast_cpu_enabled(enabled):
    """Switch autocast for the CPU."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype():
    """The lower precision of autocast on the CPU."""
    return _core._autocast_dtype(False)


def get_autocast_gpu_dtype():
    """The lower precision of autocast on CUDA."""
    return _core._autocast_dtype(True)


def set_autocast_cpu_dtype(dtype):
    """Choose the lower precision of autocast on the CPU."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype):
    """Choose the lower precision of autocast on CUDA."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled():
    """Whether casts of weights are kept until the outermost region ends."""
    return _core._autocast_cache()


def set_autocast_cache_enabled(enabled):
    """Choose whether casts of weights are kept until the outermost region ends."""
    _core._autocast_cache(bool(enabled))


def clear_autocast_cache():
    """Drop the casts that are kept."""
    _core._clear_autocast_cache()


def autocast_increment_nesting():
    """Note that a region begins; returns how many are open."""
    return _core._autocast_nest(1)


def autocast_decrement_nesting():
    """Note that a region ends; returns how many are open."""
    return _core._autocast_nest(-1)


class autocast:
    """Run what is inside in mixed precision: a context manager, and a decorator.

    Without a GPU `device_type` "cuda" changes nothing, with a warning.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if device_type == "cpu" and enabled and self.fast_dtype not in (_core.bfloat16, _core.float16, _core.float32):
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                "CPU Autocast only supports dtype of torch.bfloat16, torch.float16 currently.",
                stacklevel=2,
            )
            enabled = False
        if device_type == "cuda" and enabled and not _core._operators["_cuda"]["device_count"]():
            warnings.warn("User provided device_type of 'cuda', but CUDA is not available. Disabling", stacklevel=2)
            enabled = False
        self._enabled, self._cache_enabled = bool(enabled), cache_enabled
        self._before = []

    def __enter__(self):
        gpu = self.device == "cuda"
        self._before.append((_core._autocast_enabled(gpu), _core._autocast_dtype(gpu), _core._autocast_cache(self._cache_enabled)))
        _core._set_autocast(gpu, self._enabled, self.fast_dtype)
        _core._autocast_nest(1)
        return self

    def __exit__(self, kind, error, traceback):
        enabled, dtype, cache = self._before.pop()
        _core._autocast_nest(-1)
        _core._set_autocast(self.device == "cuda", enabled, dtype)
        _core._autocast_cache(cache)
        return False

    def __call__(self, func):
        if isinstance(func, type):
            raise TypeError("autocast decorates functions, not classes")
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}: use `with torch.autocast(...)`, or decorate one"
            )

        @functools.wraps(func)
        def decorated(*args, **kwargs):
            with self:
                return func(*args, **kwargs)

        return decorated


_cast = cast


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorate a Function's `forward`: it runs in the autocast state of the call, or with its inputs cast and
    autocast off.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args, **kwargs):
        args[0]._dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        args[0]._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*cast(args, device_type, cast_inputs), **cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd=None, *, device_type):
    """Decorate a Function's `backward`: it runs in the autocast state that its forward had."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated
