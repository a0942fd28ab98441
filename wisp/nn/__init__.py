"""Neural networks: modules, parameters, functions, initialisation."""
import importlib

from wisp.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from wisp.nn.modules import *  # noqa: F403
from wisp.nn import functional, init, modules, parameter, utils

__all__ = [*modules.__all__, "Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "functional",
           "init", "modules", "parameter", "utils"]

# Loaded when first used.
_LAZY_MODULES = ("attention", "parallel")


def __getattr__(name):
    if name in _LAZY_MODULES:
        return importlib.import_module(f"wisp.nn.{name}")
    if name in ("DataParallel",):
        return getattr(importlib.import_module("wisp.nn.parallel"), name)
    raise AttributeError(f"module 'wisp.nn' has no attribute '{name}'")
