"""Activations that are not rows of the core's pointwise table."""

import math

import wisp
from wisp import _core
from wisp._composites.neural import celu_, selu_, threshold_

__all__ = ["celu_", "elu_", "glu", "gumbel_softmax", "hardtanh_", "leaky_relu_", "prelu", "relu_", "rrelu", "rrelu_", "selu_", "threshold_"]

_ops = _core._operators["nn.functional"]


def relu_(input):
    """relu, in place."""
    return _ops["relu"](input, True)


def elu_(input, alpha=1.0):
    """elu, in place."""
    return _ops["elu"](input, alpha, True)


def leaky_relu_(input, negative_slope=0.01):
    """leaky_relu, in place."""
    return _ops["leaky_relu"](input, negative_slope, True)


def hardtanh_(input, min_val=-1.0, max_val=1.0):
    """hardtanh, in place."""
    return _ops["hardtanh"](input, min_val, max_val, True)


def glu(input, dim=-1):
    """The first half of `input` along `dim`, times the sigmoid of the second.

    >>> import wisp
    >>> wisp.nn.functional.glu(wisp.tensor([3.0, 0.0]))
    tensor([1.5000])
    """
    if input.dim() == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    size = input.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim % input.dim()} is size {size}")
    half = size // 2
    return _core._whole("GluBackward0", lambda x: x.narrow(dim, 0, half) * x.narrow(dim, half, half).sigmoid(), input)


def prelu(input, weight):
    """leaky_relu with a learnt slope: one for all, or one per channel (dimension 1)."""
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    if weight.numel() != 1:
        if input.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.dim() > 1 else 1
        if weight.numel() != channels:
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}."
            )
        weight = weight.reshape(-1, *[1] * (input.dim() - 2))
    else:
        weight = weight.reshape(())
    if input.dtype != weight.dtype and not wisp.is_autocast_enabled(input.device.type):
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}")
    return _core._prelu_kernel(input, weight)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """leaky_relu whose slope is drawn anew for each element in training, and is the middle of the range otherwise."""
    for bound, name in ((lower, "lower"), (upper, "upper")):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu: {name} bound must be finite, got {bound}")
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower} and {upper}")
    if not training:
        slope = (lower + upper) / 2
        if inplace:
            return _ops["leaky_relu"](input, slope, True)
        return _core._whole("RreluWithNoiseBackward0", _ops["leaky_relu"], input, slope)
    slope = wisp.empty_like(input, requires_grad=False).uniform_(lower, upper)
    result = _core._whole("RreluWithNoiseBackward0", lambda x: _core._prelu_kernel(x, slope), input.clone() if inplace else input)
    return _core._assign(input, result) if inplace else result


def rrelu_(input, lower=1.0 / 8, upper=1.0 / 3, training=False):
    """rrelu, in place."""
    return rrelu(input, lower, upper, training, True)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample from the Gumbel-softmax distribution; with `hard` one-hot, with the gradient of the soft sample."""
    noise = -wisp.empty_like(logits, requires_grad=False).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = wisp.zeros_like(logits, requires_grad=False).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft
