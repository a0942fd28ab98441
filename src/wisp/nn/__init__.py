"""Neural networks: modules, parameters, functions, initialisation."""

import importlib

from wisp import _reference
from wisp.nn import functional, init, modules, parameter, utils
from wisp.nn.modules import *  # noqa: F403
from wisp.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    *modules.__all__,
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "factory_kwargs",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
]

# Loaded when first used: a module, or a name and the module it is in.
_LAZY = {"attention": "attention", "grad": "grad", "parallel": "parallel", "DataParallel": "parallel"}


def __getattr__(name):
    if name in _LAZY:
        try:
            module = importlib.import_module(f"wisp.nn.{_LAZY[name]}")
        except ModuleNotFoundError as error:
            raise AttributeError(f"module 'wisp.nn' has no attribute '{name}': {error}") from None
        return module if name == _LAZY[name] else getattr(module, name)
    raise AttributeError(f"module 'wisp.nn' has no attribute '{name}'")


def factory_kwargs(kwargs):
    """The arguments for making tensors (device, dtype, memory_format) out of a layer's keyword arguments.

    >>> import wisp
    >>> wisp.nn.factory_kwargs({"device": "cpu"})
    {'device': 'cpu'}
    """
    known = {"device", "dtype", "memory_format"}
    given = {} if kwargs is None else dict(kwargs)
    unexpected = given.keys() - known - {"factory_kwargs"}
    if unexpected:
        raise TypeError(f"unexpected kwargs {unexpected}")
    result = dict(given.pop("factory_kwargs", {}))
    for name in known:
        if name in given:
            if name in result:
                raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            result[name] = given[name]
    return result


_reference.attach(__name__, globals())
