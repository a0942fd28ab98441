"""Boxes, and layers of vision models."""

from wisp.vision.ops.boxes import (
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    complete_box_iou,
    distance_box_iou,
    generalized_box_iou,
    masks_to_boxes,
    nms,
    remove_small_boxes,
)
from wisp.vision.ops.feature_pyramid_network import FeaturePyramidNetwork
from wisp.vision.ops.layers import (
    MLP,
    Conv2dNormActivation,
    DropBlock2d,
    FrozenBatchNorm2d,
    Permute,
    RoIAlign,
    RoIPool,
    SqueezeExcitation,
    StochasticDepth,
    drop_block2d,
    roi_align,
    roi_pool,
    sigmoid_focal_loss,
    stochastic_depth,
)
from wisp.vision.ops.losses import complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss
from wisp.vision.ops.poolers import MultiScaleRoIAlign

ConvNormActivation = Conv2dNormActivation
__all__ = [
    "Conv2dNormActivation",
    "ConvNormActivation",
    "DropBlock2d",
    "FeaturePyramidNetwork",
    "FrozenBatchNorm2d",
    "MLP",
    "MultiScaleRoIAlign",
    "Permute",
    "RoIAlign",
    "RoIPool",
    "SqueezeExcitation",
    "StochasticDepth",
    "batched_nms",
    "box_area",
    "box_convert",
    "box_iou",
    "clip_boxes_to_image",
    "complete_box_iou",
    "complete_box_iou_loss",
    "distance_box_iou",
    "distance_box_iou_loss",
    "drop_block2d",
    "generalized_box_iou",
    "generalized_box_iou_loss",
    "masks_to_boxes",
    "nms",
    "remove_small_boxes",
    "roi_align",
    "roi_pool",
    "sigmoid_focal_loss",
    "stochastic_depth",
]
