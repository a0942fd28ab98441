"""Boxes, and layers of vision models."""

from wisp import _reference
from wisp.vision.ops import boxes, layers, losses
from wisp.vision.ops.boxes import *  # noqa: F403
from wisp.vision.ops.deform_conv import DeformConv2d, deform_conv2d
from wisp.vision.ops.feature_pyramid_network import FeaturePyramidNetwork
from wisp.vision.ops.layers import *  # noqa: F403
from wisp.vision.ops.losses import *  # noqa: F403
from wisp.vision.ops.poolers import MultiScaleRoIAlign

ConvNormActivation = layers.Conv2dNormActivation
__all__ = ["ConvNormActivation", "DeformConv2d", "FeaturePyramidNetwork", "MultiScaleRoIAlign", "deform_conv2d"]
__all__ += boxes.__all__
__all__ += layers.__all__
__all__ += losses.__all__

_reference.attach(__name__, globals())
