"""The mixin of lazy layers, which learn the size of their input from the first call."""

from wisp.nn.parameter import MaterializedBuffer, is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Makes a layer lazy: its parameters are uninitialized until `initialize_parameters` sees the first input.

    After the first call the module becomes an instance of `cls_to_become`, as if it had been made with the sizes.

    >>> import wisp
    >>> layer = wisp.nn.LazyLinear(3)
    >>> _ = layer(wisp.zeros(5, 2))
    >>> layer
    Linear(in_features=2, out_features=3, bias=True)
    """

    cls_to_become = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args, **kwargs):
        """Give the parameters their shapes; called with the arguments of the first forward."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self):
        """Whether some parameter or buffer still waits for its shape."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))

    def _infer_parameters(self, module, args, kwargs=None):
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
        for name, buffer in module._buffers.items():
            if isinstance(buffer, MaterializedBuffer):
                module._buffers[name] = buffer.data
        module._initialize_hook.remove()
        del module._initialize_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become
