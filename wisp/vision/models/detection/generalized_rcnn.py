"""The frame of the models with regions: transform, backbone, proposals, heads."""
from collections import OrderedDict

import wisp
from wisp import nn
from wisp.vision.models.detection._utils import check_boxes, check_targets

__all__ = ["GeneralizedRCNN"]


class GeneralizedRCNN(nn.Module):
    """Images in; losses by name in training, otherwise for each image boxes, labels, scores and what further heads find."""

    def __init__(self, backbone, rpn, roi_heads, transform):
        super().__init__()
        self.transform, self.backbone, self.rpn, self.roi_heads = transform, backbone, rpn, roi_heads

    def forward(self, images, targets=None):
        if self.training:
            check_targets(targets)
        sizes = [tuple(image.shape[-2:]) for image in images]
        images, targets = self.transform(images, targets)
        if targets is not None:
            check_boxes(targets)
        features = self.backbone(images.tensors)
        if isinstance(features, wisp.Tensor):
            features = OrderedDict([("0", features)])
        proposals, losses = self.rpn(images, features, targets)
        detections, head_losses = self.roi_heads(features, proposals, images.image_sizes, targets)
        detections = self.transform.postprocess(detections, images.image_sizes, sizes)
        return {**head_losses, **losses} if self.training else detections
