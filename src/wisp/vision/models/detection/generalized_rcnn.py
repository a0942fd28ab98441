"""The frame of the models with regions: transform, backbone, proposals, heads."""

from wisp import nn
from wisp.vision.models.detection._utils import seen

__all__ = ["GeneralizedRCNN"]


class GeneralizedRCNN(nn.Module):
    """Images in; losses by name in training, otherwise for each image boxes, labels, scores and what further heads find."""

    def __init__(self, backbone, rpn, roi_heads, transform):
        super().__init__()
        self.transform, self.backbone, self.rpn, self.roi_heads = transform, backbone, rpn, roi_heads

    def forward(self, images, targets=None):
        sizes, images, targets, features = seen(self, images, targets)
        proposals, losses = self.rpn(images, features, targets)
        detections, head_losses = self.roi_heads(features, proposals, images.image_sizes, targets)
        detections = self.transform.postprocess(detections, images.image_sizes, sizes)
        return {**head_losses, **losses} if self.training else detections
