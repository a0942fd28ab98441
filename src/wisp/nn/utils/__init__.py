"""Tools for training: clipping, parameter vectors, weight normalisation, parametrizations, sequences, pruning."""

import importlib

from wisp import _reference
from wisp.nn.utils import rnn
from wisp.nn.utils.clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from wisp.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from wisp.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from wisp.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grads_with_norm_",
    "clip_grad_value_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]

# The rest needs the modules, which need this package: loaded when first used.
_HOMES = {
    **dict.fromkeys(("parametrizations", "parametrize", "prune", "stateless", "fusion", "memory_format", "init")),
    **dict.fromkeys(("fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"), "fusion"),
    **dict.fromkeys(("convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"), "memory_format"),
    "skip_init": "init",
}


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'wisp.nn.utils' has no attribute '{name}'")
    home = importlib.import_module(f"wisp.nn.utils.{_HOMES[name] or name}")
    return getattr(home, name) if _HOMES[name] else home


_reference.attach(__name__, globals())
