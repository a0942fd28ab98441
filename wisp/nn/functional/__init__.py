"""Functions of neural networks: activations, losses, convolution, pooling, normalisation, attention."""
import importlib as _importlib

from wisp import _core

globals().update(_core._operators["nn.functional"])

# Families written in Python; each file's `__all__` is exported.
for _family in ():
    _module = _importlib.import_module("wisp.nn.functional." + _family)
    globals().update({name: getattr(_module, name) for name in _module.__all__})
