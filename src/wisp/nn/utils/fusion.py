"""Fusing batch normalisation into the layer before it, for inference."""

import copy

import wisp
from wisp.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A convolution that computes `bn(conv(x))`; both must be in evaluation mode.

    >>> import wisp
    >>> conv, bn = wisp.nn.Conv2d(3, 4, 3).eval(), wisp.nn.BatchNorm2d(4).eval()
    >>> x = wisp.randn(1, 3, 5, 5)
    >>> wisp.allclose(wisp.nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5)
    True
    """
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """Weight and bias of the fused convolution."""
    bias = wisp.zeros_like(bn_rm) if conv_b is None else conv_b
    scale = wisp.rsqrt(bn_rv + bn_eps) * (1 if bn_w is None else bn_w)
    shift = 0 if bn_b is None else bn_b
    shape = [1, -1] if transpose else [-1, 1]
    weight = conv_w * scale.reshape(shape + [1] * (conv_w.dim() - 2)).to(conv_w.dtype)
    bias = ((bias - bn_rm) * scale + shift).to(conv_w.dtype if conv_b is None else conv_b.dtype)
    return (
        Parameter(weight.detach(), conv_w.requires_grad),
        Parameter(bias.detach(), conv_w.requires_grad if conv_b is None else conv_b.requires_grad),
    )


def fuse_linear_bn_eval(linear, bn):
    """A Linear that computes `bn(linear(x))`; both must be in evaluation mode."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """Weight and bias of the fused Linear."""
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
