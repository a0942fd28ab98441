"""nn.functional's functions that PyTorch also has at its root, with other arguments there."""

from wisp import _core
from wisp._composites.reduce import functions_of

_REDUCTIONS = ("none", "mean", "sum")
_ops = _core._operators["nn.functional"]


def _functional():
    from wisp.nn import functional  # only when used: importing wisp does not import wisp.nn

    return functional


def prelu(input, weight):
    """leaky_relu with a learnt slope: one for all, or one per channel."""
    return _functional().prelu(input, weight)


def celu_(input, alpha=1.0):
    """celu, in place."""
    return _ops["celu"](input, alpha, True)


def selu_(input):
    """selu, in place."""
    return _ops["selu"](input, True)


def threshold_(input, threshold, value):
    """threshold, in place."""
    return _ops["threshold"](input, threshold, value, True)


def alpha_dropout(input, p, train):
    """Dropout that keeps mean and variance of what selu gives."""
    return _functional().alpha_dropout(input, p, train)


def alpha_dropout_(input, p, train):
    """alpha_dropout, in place."""
    return _functional().alpha_dropout(input, p, train, True)


def feature_alpha_dropout(input, p, train):
    """alpha_dropout of whole channels."""
    return _functional().feature_alpha_dropout(input, p, train)


def feature_alpha_dropout_(input, p, train):
    """feature_alpha_dropout, in place."""
    return _functional().feature_alpha_dropout(input, p, train, True)


def feature_dropout(input, p, train):
    """Dropout of whole channels."""
    return _functional()._dropout._feature_dropout(input, p, train, False)


def feature_dropout_(input, p, train):
    """feature_dropout, in place."""
    return _functional()._dropout._feature_dropout(input, p, train, True)


def native_dropout(input, p, train=True):
    """Dropout and the mask of what was kept."""
    if train is False or p == 0:
        return input.clone(), _core.ones_like(input, dtype=_core.bool)
    mask = _core.dropout(_core.ones(input.shape, dtype=_core.float32, device=input.device), p, True)
    return input * mask.to(input.dtype), mask != 0


def instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=False):
    """Normalises each channel of each sample by its own statistics."""
    return _functional().instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def embedding_bag(
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=0,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Reduced bags of rows, each index's bag, the sizes of the bags, and an empty tensor."""
    settings = {"scale_grad_by_freq": scale_grad_by_freq, "include_last_offset": include_last_offset, "padding_idx": padding_idx}
    mode = ("sum", "mean", "max")[mode]
    result = _functional().embedding_bag(indices, weight, offsets, mode=mode, per_sample_weights=per_sample_weights, **settings)
    ends = offsets
    if not include_last_offset:
        ends = _core.cat([offsets, _core.tensor([indices.numel()], dtype=offsets.dtype, device=offsets.device)])
    sizes = ends[1:] - ends[:-1]
    bags = _core.repeat_interleave(_core.arange(sizes.numel(), device=sizes.device), sizes)
    return result, bags, sizes, _core.zeros(0, dtype=_core.int64, device=sizes.device)


def embedding_renorm_(input, indices, max_norm, norm_type):
    """Scales the rows of `input` that `indices` names down to a norm of at most `max_norm`, in place."""
    _functional()._sparse._renormalize(input, indices, max_norm, norm_type)
    return input


def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=1):
    """The binary cross entropy of logits."""
    return _functional().binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=_REDUCTIONS[reduction])


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=1):
    """1 - cosine for similar pairs, max(0, cosine - margin) for others."""
    return _functional().cosine_embedding_loss(input1, input2, target, margin, reduction=_REDUCTIONS[reduction])


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    """The connectionist temporal classification loss."""
    return _functional().ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, _REDUCTIONS[reduction], zero_infinity)


def hinge_embedding_loss(input, target, margin=1.0, reduction=1):
    """`input` where target is 1, max(0, margin - input) where it is -1."""
    return _functional().hinge_embedding_loss(input, target, margin, reduction=_REDUCTIONS[reduction])


def kl_div(input, target, reduction=1, *, log_target=False):
    """The Kullback-Leibler divergence of `target` from log-probabilities."""
    losses = _functional().kl_div(input, target, reduction="none", log_target=log_target)
    return losses if reduction == 0 else losses.mean() if reduction == 1 else losses.sum()


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction=1):
    """max(0, margin - target * (input1 - input2)), of shapes that can be broadcast."""
    import wisp

    a, b, sign = wisp.broadcast_tensors(input1, input2, target)
    return _functional().margin_ranking_loss(a, b, sign, margin, reduction=_REDUCTIONS[reduction])


def poisson_nll_loss(input, target, log_input, full, eps, reduction):
    """The negative log likelihood of counts under Poisson laws."""
    return _functional().poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_REDUCTIONS[reduction])


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction=1):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin)."""
    return _functional().triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_REDUCTIONS[reduction])


def affine_grid_generator(theta, size, align_corners):
    """The places in the input that an affine map gives every place of the output: `nn.functional.affine_grid`, with all its arguments."""
    return _functional().affine_grid(theta, size, align_corners)


def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """A convolution, or a transposed one, over as many dimensions as the weight has beyond two.

    >>> import wisp
    >>> x, weight = wisp.ones(1, 1, 4), wisp.ones(1, 1, 3)
    >>> wisp.convolution(x, weight, None, [1], [0], [1], False, [0], 1)
    tensor([[[3., 3.]]])
    """
    dims = weight.dim() - 2
    if dims not in (1, 2, 3):
        raise RuntimeError(f"convolution: expected a weight of 3, 4 or 5 dimensions, got {weight.dim()}")
    if transposed:
        return _ops[f"conv_transpose{dims}d"](input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _ops[f"conv{dims}d"](input, weight, bias, stride, padding, dilation, groups)


FUNCTIONS = functions_of(globals())
METHODS = [prelu]
