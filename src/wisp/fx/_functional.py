"""Calls of `torch.nn.functional` as graphs of PyTorch's have them: what has a default by its name, written out."""

import functools
import inspect

import wisp
from wisp.nn import functional as F

# operators in PyTorch, whose calls are noted as the program writes them; the others are functions in Python there
_AS_WRITTEN = set(
    """
    adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear logsigmoid native_channel_shuffle
    one_hot pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rrelu_ scaled_dot_product_attention selu_ softplus softshrink
    threshold_""".split()
)


@functools.lru_cache(1024)
def _signatures(function):
    from wisp.fx.operator_schemas import get_signature_for_torch_op

    name = getattr(function, "__name__", "")
    known = getattr(F, name, None)
    if name in _AS_WRITTEN or (known is not function and getattr(known, "__wrapped__", None) is not function):
        return ()
    try:
        return get_signature_for_torch_op(function) or (inspect.signature(inspect.unwrap(getattr(function, "_unseen", function))),)
    except (TypeError, ValueError):
        return ()


def arranged(function, args, kwargs):
    """The arguments of a call of a function of `torch.nn.functional`; those of other functions as they are."""
    if isinstance(function, wisp._core.Tensor) or not callable(function):
        return args, kwargs
    for signature in _signatures(function):
        parameters = signature.parameters.values()
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in parameters):
            continue
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            continue
        bound.apply_defaults()
        first = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        return tuple(bound.arguments[name] for name in first), {k: v for k, v in bound.arguments.items() if k not in first}
    return args, kwargs
