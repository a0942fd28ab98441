"""Operators written in Python over others, a file per family.

A family's `FUNCTIONS` become wisp.name, `METHODS` Tensor.name, `INPLACE` Tensor.name_ (the out-of-place form, then copied
into self).
"""

import importlib
import types

from wisp import _core

_FAMILIES = (
    "reduce",
    "shape",
    "copies",
    "measure",
    "signal",
    "objects",
    "foreach",
    "matmul",
    "linear",
    "misc",
    "neural",
    "sparse",
    "rare",
    "private",
)


def _inplace(function):
    def method(self, *args, **kwargs):
        return _core._assign(self, function(self.clone() if self.requires_grad else self, *args, **kwargs))

    method.__name__ = function.__name__ + "_"
    method.__doc__ = f"Like `{function.__name__}`, but the tensor itself is changed."
    return method


def _method(function):
    """The same function with its first parameter called `self`, as methods have it.

    A wrapper that shows this signature would need `inspect`, whose import alone takes a twentieth of the package's.
    """
    code, name = function.__code__, function.__code__.co_varnames[0]
    if name == "self" or name in code.co_cellvars:
        return function
    method = types.FunctionType(
        code.replace(co_varnames=("self",) + code.co_varnames[1:]),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    method.__kwdefaults__, method.__doc__ = function.__kwdefaults__, function.__doc__
    return method


def install(namespace):
    """Put every family's names into the package and the Tensor type."""
    methods = {}
    for family in _FAMILIES:
        module = importlib.import_module("wisp._composites." + family)
        namespace.update({f.__name__: f for f in getattr(module, "FUNCTIONS", ())})
        methods.update({f.__name__: _method(f) for f in getattr(module, "METHODS", ())})
        methods.update({f.__name__ + "_": _inplace(f) for f in getattr(module, "INPLACE", ())})
    _core._extend_tensor(methods)
