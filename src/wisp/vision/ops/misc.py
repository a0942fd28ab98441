"""The old place of some layers."""

from wisp.vision.ops.layers import MLP, Conv2dNormActivation, FrozenBatchNorm2d, Permute, SqueezeExcitation  # noqa: F401

ConvNormActivation = Conv2dNormActivation
