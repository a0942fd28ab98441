"""`TorchDispatchMode`: Wisp's calls are seen one level higher, as those of `torch.overrides.TorchFunctionMode`."""

from wisp.overrides import TorchFunctionMode

__all__ = ["TorchDispatchMode"]


class TorchDispatchMode(TorchFunctionMode):
    """A context whose `__torch_dispatch__(func, types, args, kwargs)` sees the operators that are called; `func` is the public function."""

    _under_way = None  # what was called, while this mode looks for the operators in it

    def __init__(self, _dispatch_key=None):
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        from wisp._ops import OpOverload, overload_of

        kwargs = kwargs or {}
        if isinstance(func, OpOverload):
            return self.__torch_dispatch__(func, types, args, kwargs)
        if not hasattr(func, "_facts"):  # written in Python: what it calls is seen
            if self._under_way is func:  # it asks a second time before it does anything
                return func(*args, **kwargs)
            before, self._under_way = self._under_way, func
            try:
                with self:
                    return getattr(func, "_unseen", func)(*args, **kwargs)
            finally:
                self._under_way = before
        if "shape_only" in func._facts:
            return func(*args, **kwargs)
        out = kwargs.get("out")
        overload, args, kwargs = overload_of(func, args, {k: v for k, v in kwargs.items() if k != "out"})
        result = self.__torch_dispatch__(overload, types, args, kwargs)
        return result if out is None else out.copy_(result)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def is_traceable_wrapper_subclass(t):
    """Whether a tensor's class says what it is made of (`__tensor_flatten__`) and how to make another (`__tensor_unflatten__`)."""
    from wisp import Tensor

    return isinstance(t, Tensor) and type(t) is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def _get_current_dispatch_mode():
    """The mode that was entered last, or None."""
    from wisp.overrides import _local

    return next((mode for mode in reversed(_local.modes) if isinstance(mode, TorchDispatchMode)), None)


def _get_current_dispatch_mode_stack():
    """The modes that are active, the outermost first."""
    from wisp.overrides import _local

    return [mode for mode in _local.modes if isinstance(mode, TorchDispatchMode)]


class _disable_current_modes:
    """A context without the modes that are active."""

    def __enter__(self):
        from wisp.overrides import DisableTorchFunction

        self._off = DisableTorchFunction()
        self._off.__enter__()
        return _get_current_dispatch_mode_stack()

    def __exit__(self, *details):
        self._off.__exit__(*details)


def return_and_correct_aliasing(func, args, kwargs, out):
    """For the end of a `__torch_dispatch__`: what an operator in place or with `out=` returns is the tensor that it was given."""
    name = func.overloadpacket.__name__
    if name.endswith("_") and not name.endswith("__"):
        return args[0]
    return kwargs.get("out", out) if kwargs else out


def is_in_torch_dispatch_mode(include_infra_modes=True):
    """Whether a mode is active."""
    from wisp.overrides import _local

    return bool(_local.modes)


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    """A tensor of the same class made of `callback(name, part)` of its parts."""
    names, context = t.__tensor_flatten__()
    parts = {name: callback(name, getattr(t, name)) for name in names}
    outer_size = t.size() if outer_size is None else outer_size
    outer_stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(parts, context, outer_size, outer_stride)
