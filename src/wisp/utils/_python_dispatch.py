"""`TorchDispatchMode`: Wisp's calls are seen one level higher, as those of `torch.overrides.TorchFunctionMode`."""

from wisp.overrides import TorchFunctionMode

__all__ = ["TorchDispatchMode"]


class TorchDispatchMode(TorchFunctionMode):
    """A context whose `__torch_dispatch__(func, types, args, kwargs)` sees the operators that are called; `func` is the public function."""

    def __init__(self, _dispatch_key=None):
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.__torch_dispatch__(func, types, args, kwargs or {})

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def is_traceable_wrapper_subclass(t):
    """False: no class of tensor is made of others in a way that could be traced."""
    return False


def is_in_torch_dispatch_mode(include_infra_modes=True):
    """Whether a mode is active."""
    from wisp.overrides import _local

    return bool(_local.modes)


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    """Not available."""
    raise NotImplementedError("transform_subclass: Wisp has no wrapper subclasses")
