"""`torch.overrides`: classes cannot replace Wisp's functions by `__torch_function__`, so nothing is ever overridden."""

__all__ = ["TorchFunctionMode", "get_default_nowrap_functions", "handle_torch_function", "has_torch_function", "is_tensor_like",
           "is_tensor_method_or_property", "wrap_torch_function"]


def has_torch_function(relevant_args):
    """False: no argument overrides a function."""
    return False


def has_torch_function_unary(tensor):
    """False: no argument overrides a function."""
    return False


has_torch_function_variadic = has_torch_function_unary


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Call the function itself."""
    return public_api(*args, **kwargs)


def is_tensor_like(inp):
    """Whether the object is a tensor."""
    import wisp
    return isinstance(inp, wisp.Tensor)


def is_tensor_method_or_property(func):
    """Whether the function is a method of tensors."""
    import wisp
    return getattr(wisp.Tensor, getattr(func, "__name__", ""), None) is func


def wrap_torch_function(dispatcher):
    """A decorator that returns the function as it is."""
    return lambda f: f


def get_default_nowrap_functions():
    """The empty set."""
    return set()


class TorchFunctionMode:
    """A context that would see every call; here it may be subclassed, and sees none."""

    def __enter__(self):
        raise NotImplementedError(f"{type(self).__name__}: Wisp's functions cannot be intercepted by a TorchFunctionMode")

    def __exit__(self, *details):
        return False


BaseTorchFunctionMode = TorchFunctionMode
