"""Keypoint R-CNN: Faster R-CNN with the keypoints of persons."""

from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import Weights, publish, weights_of
from wisp.vision.models.detection.faster_rcnn import FasterRCNN, on_resnet50
from wisp.vision.ops import MultiScaleRoIAlign

__all__ = ["KeypointRCNN"]


class KeypointRCNN(FasterRCNN):
    """Faster R-CNN that also gives keypoints [N, K, 3]; targets have "keypoints" [N, K, 3] (x, y, visible) too."""

    def __init__(
        self,
        backbone,
        num_classes=None,
        *args,
        keypoint_roi_pool=None,
        keypoint_head=None,
        keypoint_predictor=None,
        num_keypoints=None,
        **options,
    ):
        if num_keypoints is not None and keypoint_predictor is not None:
            raise ValueError("num_keypoints should be None when keypoint_predictor is specified")
        options.setdefault("min_size", (640, 672, 704, 736, 768, 800))
        super().__init__(backbone, num_classes, *args, **options)
        self.roi_heads.keypoint_roi_pool = keypoint_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 14, 2)
        self.roi_heads.keypoint_head = keypoint_head or KeypointRCNNHeads(backbone.out_channels, (512,) * 8)
        self.roi_heads.keypoint_predictor = keypoint_predictor or KeypointRCNNPredictor(512, 17 if num_keypoints is None else num_keypoints)


class KeypointRCNNHeads(nn.Sequential):
    """Convolutions of the regions."""

    def __init__(self, in_channels, layers):
        widths = (in_channels, *layers)
        super().__init__(*(part for a, b in zip(widths, widths[1:]) for part in (nn.Conv2d(a, b, 3, 1, 1), nn.ReLU(inplace=True))))
        for module in self:
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)


class KeypointRCNNPredictor(nn.Module):
    """A heat map for each keypoint."""

    def __init__(self, in_channels, num_keypoints):
        super().__init__()
        self.kps_score_lowres = nn.ConvTranspose2d(in_channels, num_keypoints, 4, 2, 1)
        nn.init.kaiming_normal_(self.kps_score_lowres.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.kps_score_lowres.bias)
        self.up_scale, self.out_channels = 2, num_keypoints

    def forward(self, x):
        return F.interpolate(self.kps_score_lowres(x), scale_factor=2.0, mode="bilinear", align_corners=False, recompute_scale_factor=False)


publish(
    globals(),
    "keypointrcnn_resnet50_fpn",
    weights_of(
        "KeypointRCNN_ResNet50_FPN",
        "COCO_V1",
        COCO_LEGACY=Weights("keypointrcnn_resnet50_fpn_coco-9f466800.pth"),
        COCO_V1=Weights("keypointrcnn_resnet50_fpn_coco-fc266e95.pth"),
    ),
    on_resnet50,
    KeypointRCNN,
    fitting={"num_classes": 2, "num_keypoints": 17, "trained": True},
    num_classes=2,
)
