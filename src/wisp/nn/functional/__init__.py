"""Functions of neural networks: activations, losses, convolution, pooling, normalisation, attention."""

import importlib as _importlib

from wisp import _core, _reference

globals().update(_core._operators["nn.functional"])

# Families written in Python; each file's `__all__` is exported.
for _family in ("_activation", "_ctc", "_distance", "_dropout", "_loss", "_normalization", "_sparse"):
    _module = _importlib.import_module("wisp.nn.functional." + _family)
    globals().update({name: getattr(_module, name) for name in _module.__all__})
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}


_OF_ATTENTION = ("multi_head_attention_forward", "_canonical_mask", "_in_projection", "_in_projection_packed", "_none_or_dtype")


def __getattr__(name):
    if name in _OF_ATTENTION:  # lazily: the modules import this package first
        return getattr(_importlib.import_module("wisp.nn.modules.attention"), name)
    if name in ("handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
        return getattr(_importlib.import_module("wisp.overrides"), name)
    if name in ("BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "boolean_dispatch"):
        return getattr(_importlib.import_module("wisp._jit_internal"), name)
    if name in ("conv_tbc", "grouped_mm", "native_channel_shuffle"):
        from wisp._composites import rare

        return getattr(rare, name)
    raise AttributeError(f"module 'wisp.nn.functional' has no attribute {name!r}")


_reference.attach(__name__, globals())
