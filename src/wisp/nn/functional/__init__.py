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

# Sentences that docstrings of programs put in, by PyTorch's names.
tf32_notes = {"tf32_note": "On GPUs that have it, TensorFloat32 is used where `backends.cuda.matmul.allow_tf32` allows it."}
sparse_support_notes = {"sparse_beta_warning": "A sparse argument is taken where its layout has a product; any other is refused."}
reproducibility_notes = {
    "forward_reproducibility_note": "The result is the same in every run.",
    "backward_reproducibility_note": "The gradient is the same in every run.",
    "cudnn_reproducibility_note": "cuDNN may take other algorithms in another run; `backends.cudnn.deterministic = True` forbids it.",
}

# Loaded when first used: the modules of attention import this package, and the rest is rare. By the module it is in.
_HOMES = {
    "nn.modules.attention": "multi_head_attention_forward _canonical_mask _in_projection _in_projection_packed _none_or_dtype",
    "overrides": "handle_torch_function has_torch_function has_torch_function_unary has_torch_function_variadic",
    "_jit_internal": "BroadcastingList1 BroadcastingList2 BroadcastingList3 boolean_dispatch",
    "nn": "grad",
    "_composites.rare": "conv_tbc grouped_mm native_channel_shuffle",
    "nn.functional._scaled": "ScalingType SwizzleType scaled_grouped_mm scaled_mm",
}
_LAZY = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name):
    if name == "_Reduction":
        return _importlib.import_module("wisp.nn._reduction")
    if name in _LAZY:
        return getattr(_importlib.import_module("wisp." + _LAZY[name]), name)
    raise AttributeError(f"module 'wisp.nn.functional' has no attribute {name!r}")


_reference.attach(__name__, globals())
