"""Switches of the package that PyTorch programs set: determinism, precision of products, default device."""

import warnings as _warnings

from wisp import _core

_state = {"deterministic": False, "warn_only": False, "precision": "highest", "warn_always": False, "fill": True}


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Ask for algorithms that give the same result every time: Wisp's always do. What `empty` makes is filled then, with NaN or the largest
    number, unless `utils.deterministic.fill_uninitialized_memory` is off."""
    for name, value in (("'mode' (position 1)", mode), ("'warn_only'", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(f"_set_deterministic_algorithms(): argument {name} must be bool, not {type(value).__name__}")
    _state["deterministic"], _state["warn_only"] = mode, warn_only
    _core._operators[""]["_fill_new_memory"](mode and _state["fill"])
    _core._operators[""]["_undetermined"]((1 if warn_only else 2) if mode else 0)


def _fill_uninitialized_memory(on=None):
    """Whether deterministic mode fills new memory; with an argument, sets it."""
    if on is not None:
        if not isinstance(on, bool):
            raise RuntimeError(f"expected a bool, but got {type(on).__name__}")
        _state["fill"] = on
        _core._operators[""]["_fill_new_memory"](on and _state["deterministic"])
    return _state["fill"]


def are_deterministic_algorithms_enabled():
    """Whether `use_deterministic_algorithms(True)` was called."""
    return _state["deterministic"]


def is_deterministic_algorithms_warn_only_enabled():
    """Whether deterministic algorithms were asked for with `warn_only`."""
    return _state["warn_only"]


def set_deterministic_debug_mode(debug_mode):
    """0 or "default", 1 or "warn", 2 or "error": how to treat operators that are not deterministic."""
    modes = {"default": 0, "warn": 1, "error": 2}
    if isinstance(debug_mode, str):
        if debug_mode not in modes:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}")
        debug_mode = modes[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode():
    """The mode of `set_deterministic_debug_mode` as a number."""
    return (1 if _state["warn_only"] else 2) if _state["deterministic"] else 0


def set_float32_matmul_precision(precision):
    """ "highest", or "high" and "medium", which let float32 products on a GPU use TF32; on the CPU all three are exact."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"float32 matmul precision must be one of 'highest', 'high' or 'medium', got {precision!r}")
    _state["precision"] = precision
    _core._operators["_cuda"]["allow_tf32"](precision != "highest")


def get_float32_matmul_precision():
    """The value of `set_float32_matmul_precision`."""
    return _state["precision"]


def get_default_device():
    """The device on which tensors are made when none is named."""
    return _core.device(_core._default_device())


def set_default_device(device):
    """Choose the device on which tensors are made when none is named; None is the CPU."""
    _core._set_default_device(None if device is None else _core.device(device))


def set_default_tensor_type(t, /):
    """Choose the default dtype by the name of a tensor type: "torch.DoubleTensor" or `DoubleTensor`."""
    from wisp._tensor.legacy import TYPES

    name = t if isinstance(t, str) else f"{getattr(t, '__module__', '')}.{getattr(t, '__name__', str(t))}"
    found = TYPES.get(name.split(".")[-1])
    if found is None:
        raise TypeError(f"invalid type object: {t!r}: expected the type of a floating-point tensor, such as torch.DoubleTensor")
    _warnings.warn(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
        "torch.set_default_device() as alternatives.",
        stacklevel=2,
    )
    _core.set_default_dtype(found.dtype)
    set_default_device("cuda" if ".cuda." in name else "cpu")


def set_flush_denormal(mode):
    """Ask for denormal numbers to be taken for zero; returns False: Wisp keeps them."""
    return False


def set_warn_always(b, /):
    """Whether a warning is shown every time and not only once."""
    _state["warn_always"] = bool(b)
    _core._operators[""]["_warn_always"](bool(b))
    if b:
        _warnings.simplefilter("always")


def is_warn_always_enabled():
    """The value of `set_warn_always`."""
    return _state["warn_always"]


def typename(obj, /):
    """The name of a tensor's type, or of the type of any object with its module."""
    if isinstance(obj, _core.Tensor):
        return obj.type()
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(kind, "__module__", None)
    name = kind.__qualname__
    return name if module in (None, "builtins") else f"{module}.{name}"


def is_storage(obj, /):
    """Whether the object is a storage."""
    from wisp import storage

    return storage.is_storage(obj)


def _is_buffer(obj):
    """Whether the object shows its memory and is none of NumPy's, whose dtype is known."""
    try:
        return type(obj).__module__ != "numpy" and memoryview(obj) is not None
    except TypeError:
        return False


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=None):
    """A tensor of any array-like object, which shares its memory where that is possible and `copy` is not True."""
    if isinstance(obj, _core.Tensor):
        result = obj
    elif type(obj).__name__ == "PyCapsule" or (hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__")):
        from wisp.utils.dlpack import from_dlpack

        result = from_dlpack(obj)
    elif type(obj).__module__ == "numpy" and hasattr(obj, "ndim") and obj.ndim:
        result = _core.from_numpy(obj)
    elif _is_buffer(obj):
        result = _core.frombuffer(obj, dtype=dtype or _core.get_default_dtype())
    else:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        return _core.tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    given = result
    if device is not None and result.device != (device := _core.empty(0, device=device).device):
        if copy is False:
            raise ValueError(f"can't alias tensor from device '{result.device}' to '{device}'.")
        result = result.to(device)
    if dtype is not None and result.dtype != dtype:
        if copy is False:
            raise ValueError(f"can't alias tensor with dtype '{result.dtype}' into dtype '{dtype}'.")
        result = result.to(dtype)
    if copy and result is given:
        result = result.clone()
    if requires_grad is not None and requires_grad != result.requires_grad:
        result = result.requires_grad_() if requires_grad else result.detach()
    return result


def get_device(input, /):
    """The number of the tensor's device; -1 for the CPU."""
    return input.get_device()


def is_signed(input, /):
    """Whether the tensor's dtype has negative numbers."""
    return input.is_signed()


def is_inference(input, /):
    """Whether the tensor was made in inference mode."""
    return input.is_inference()


def detach_(input):
    """Cut the tensor off from its history, in place."""
    return input.detach_()


def _inplace_function(name):
    def function(input, *args, **kwargs):
        return getattr(input, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`Tensor.{name}` as a function."
    return function


conj_physical_, gcd_, lcm_, ldexp_, xlogy_ = map(_inplace_function, ("conj_physical_", "gcd_", "lcm_", "ldexp_", "xlogy_"))

__all__ = [name for name, value in list(globals().items()) if callable(value) and not name.startswith("_")]
