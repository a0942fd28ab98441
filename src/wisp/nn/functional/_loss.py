"""Losses that are formulas over other operators; the hot ones are in the core."""

import math
import warnings

import wisp
from wisp import _core
from wisp._composites._autocast import in_float32
from wisp._composites._samples import by_samples
from wisp.nn.functional._distance import pairwise_distance

__all__ = """
    cosine_embedding_loss gaussian_nll_loss hinge_embedding_loss kl_div linear_cross_entropy margin_ranking_loss multi_margin_loss
    multilabel_margin_loss multilabel_soft_margin_loss poisson_nll_loss soft_margin_loss triplet_margin_loss
    triplet_margin_with_distance_loss""".split()

_ops = _core._operators["nn.functional"]


def _reduction(reduction, size_average=None, reduce=None):
    """The reduction's name, also from PyTorch's older pair of flags."""
    if size_average is not None or reduce is not None:
        summed = True if reduce is None else reduce
        averaged = True if size_average is None else size_average
        reduction = "none" if not summed else "mean" if averaged else "sum"
        warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.", stacklevel=3)
    return reduction


def _reduced(losses, reduction):
    if reduction == "none":
        return losses
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    raise ValueError(f"{reduction} is not a valid value for reduction")


def linear_cross_entropy(
    input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None, label_smoothing=0.0, options=None
):
    """cross_entropy of a linear layer's output; a weight (C, d1, …, in_features) gives logits (N, C, d1, …).

    `options`, PyTorch's ways of cutting the work into chunks, is accepted and not needed.
    """
    if input.dim() not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    if input.shape[-1] != linear_weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {linear_weight.shape[-1]}, respectively"
        )
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, (N, "
            f"{input.shape[-1]}), got unbatched input with shape {tuple(input.shape)}"
        )
    outputs = linear_weight.shape[:-1]
    if linear_bias is not None and linear_bias.shape != outputs:
        raise RuntimeError(f"expected linear_bias shape to be {tuple(outputs)}, got linear_bias shape {tuple(linear_bias.shape)}")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = _ops["linear"](input, linear_weight.reshape(-1, linear_weight.shape[-1]), bias)
    logits = logits.reshape(*input.shape[:-1], *outputs)
    return _ops["cross_entropy"](
        logits,
        target,
        weight,
        reduction=reduction,
        label_smoothing=label_smoothing,
        ignore_index=-100 if ignore_index is None else ignore_index,
    )


@in_float32
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """The Kullback-Leibler divergence of `target` from log-probabilities `input`."""
    reduction = _reduction(reduction, size_average, reduce)
    if reduction == "mean" and size_average is None and reduce is None:
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release.",
            stacklevel=3,
        )
    losses = target.exp() * (target - input) if log_target else wisp.xlogy(target, target) - target * input
    if reduction == "batchmean":
        total = losses.sum()
        return total / input.shape[0] if input.dim() else total
    return _reduced(losses, reduction)


@in_float32
def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    """The negative log likelihood of counts `target` under a Poisson law of (log) rate `input`."""
    reduction = _reduction(reduction, size_average, reduce)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:  # Stirling's approximation of log(target!)
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        losses = losses + stirling.masked_fill(target <= 1, 0)
    return _reduced(losses, reduction)


@by_samples
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """The negative log likelihood of `target` under normal laws of mean `input` and variance `var`."""
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * wisp.ones_like(input)
    elif (var < 0).any():
        raise ValueError("var has negative entry/entries")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.dim() != var.dim() or sum(n for m, n in zip(input.shape, var.shape) if m != n) != 1:
            raise ValueError("var is of incorrect size")  # at most one dimension may be broadcast
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    var = var.clone()
    with wisp.no_grad():
        var.clamp_(min=eps)
    losses = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return _reduced(losses, reduction)


@in_float32
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """`input` where target is 1, max(0, margin - input) where it is -1."""
    zero = wisp.zeros_like(input)
    losses = wisp.where(target != 1, (margin - input).clamp_min(0), zero) + wisp.where(target != -1, input, zero)
    return _reduced(losses, _reduction(reduction, size_average, reduce))


@in_float32
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cosine where target is 1, max(0, cosine - margin) where it is -1."""
    reduction = _reduction(reduction, size_average, reduce)
    if target.dim() not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if not input1.dim() == input2.dim() == target.dim() + 1:
        raise RuntimeError(
            f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    eps, dim = 1e-12, target.dim()
    product = (input1 * input2).sum(dim)
    cosine = product / (((input1 * input1).sum(dim) + eps) * ((input2 * input2).sum(dim) + eps)).sqrt()
    zero = wisp.zeros_like(cosine)
    losses = wisp.where(target == 1, 1 - cosine, zero) + wisp.where(target == -1, (cosine - margin).clamp_min(0), zero)
    return _reduced(losses, reduction)


@in_float32
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, margin - target * (input1 - input2))."""
    reduction = _reduction(reduction, size_average, reduce)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


@in_float32
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target * input))."""
    reduction = _reduction(reduction, size_average, reduce)
    return _core._whole("SoftMarginLossBackward0", lambda x: _reduced((-target * x).exp().log1p(), reduction), input)


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over the classes of the binary cross entropy with logits."""
    reduction = _reduction(reduction, size_average, reduce)
    losses = -(target * _ops["logsigmoid"](input) + (1 - target) * _ops["logsigmoid"](-input))
    if weight is not None:
        losses = losses * weight
    return _reduced(losses.sum(-1) / input.shape[-1], reduction)


@by_samples
@in_float32
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over the other classes of max(0, margin - x[target] + x[class]) ** p."""
    reduction = _reduction(reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    if input.dim() > 2 or input.dim() and input.shape[-1] == 0:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    x = input if input.dim() == 2 else input.reshape(1, -1)
    y = target.reshape(-1)
    if y.numel() != x.shape[0]:
        raise RuntimeError(f"inconsistent target size, expected {x.shape[0]} but got {list(target.shape)}")
    if y.numel() and (int(y.min()) < 0 or int(y.max()) >= x.shape[1]):
        raise RuntimeError("target out of range")
    index = y.unsqueeze(1)

    def formula(input):
        x = input if input.dim() == 2 else input.reshape(1, -1)
        losses = (margin - x.gather(1, index) + x).relu()  # no slope at the hinge, as in PyTorch
        if p == 2:
            losses = losses * losses
        if weight is not None:
            losses = losses * weight[y].unsqueeze(1)
        losses = losses.masked_fill(wisp.arange(x.shape[1], device=x.device) == index, 0).sum(1) / x.shape[1]
        return _reduced(losses if target.dim() else losses.squeeze(0), reduction)

    return _core._whole("MultiMarginLossBackward0", formula, input)


@in_float32
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """Sums max(0, 1 - x[label] + x[class]) over labels and classes that are none; labels end at the first -1."""
    reduction = _reduction(reduction, size_average, reduce)
    if input.dim() not in (0, 1, 2) or input.dim() == 2 and input.shape[1] == 0:
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    if input.shape != target.shape:
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    y = target if target.dim() == 2 else target.reshape(1, -1)
    listed = (y < 0).cumsum(1) == 0
    index = wisp.where(listed, y, wisp.zeros_like(y))
    is_label = wisp.zeros_like(y).scatter_add(1, index, listed.to(y.dtype)) > 0
    counted = listed.unsqueeze(2) & ~is_label.unsqueeze(1)

    def formula(input):
        x = input if input.dim() == 2 else input.reshape(1, -1)
        losses = (1 - x.gather(1, index).unsqueeze(2) + x.unsqueeze(1)).relu()
        losses = wisp.where(counted, losses, wisp.zeros_like(losses)).sum((1, 2)) / x.shape[1]
        return _reduced(losses if input.dim() == 2 else losses.squeeze(0), reduction)

    return _core._whole("MultilabelMarginLossBackward0", formula, input)


@in_float32
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin)."""
    reduction = _reduction(reduction, size_average, reduce)
    return _triplet(anchor, positive, negative, lambda a, b: pairwise_distance(a, b, p, eps), margin, swap, reduction)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """triplet_margin_loss with any distance."""
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor "
            f"{anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = wisp.minimum(far, distance(positive, negative))
    return _reduced((margin + near - far).clamp_min(0), reduction)
