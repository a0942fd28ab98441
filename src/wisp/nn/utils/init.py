"""Making modules without initialising their parameters."""

import inspect

from wisp.nn.modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls, *args, **kwargs):
    """A module whose parameters and buffers are uninitialized, for those about to load them anyway.

    >>> import wisp
    >>> tuple(wisp.nn.utils.skip_init(wisp.nn.Linear, 5, 1).weight.shape)
    (1, 5)
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    module = module_cls(*args, **kwargs)
    return module.to_empty(device=kwargs.get("device", "cpu"))
