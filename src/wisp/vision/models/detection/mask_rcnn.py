"""Mask R-CNN: Faster R-CNN with a mask for each box."""

from collections import OrderedDict

from wisp import nn
from wisp.vision.models._api import Weights, publish, weights_of
from wisp.vision.models.detection.faster_rcnn import _TRAINED, FasterRCNN, _v2, on_resnet50
from wisp.vision.ops import Conv2dNormActivation, MultiScaleRoIAlign

__all__ = ["MaskRCNN"]


class MaskRCNN(FasterRCNN):
    """Faster R-CNN that also gives masks [N, 1, H, W]; targets have "masks" [N, H, W] too."""

    def __init__(self, backbone, num_classes=None, *args, mask_roi_pool=None, mask_head=None, mask_predictor=None, **options):
        if num_classes is not None and mask_predictor is not None:
            raise ValueError("num_classes should be None when mask_predictor is specified")
        super().__init__(backbone, num_classes, *args, **options)
        self.roi_heads.mask_roi_pool = mask_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 14, 2)
        self.roi_heads.mask_head = mask_head or MaskRCNNHeads(backbone.out_channels, (256,) * 4, 1)
        self.roi_heads.mask_predictor = mask_predictor or MaskRCNNPredictor(256, 256, num_classes)


class MaskRCNNHeads(nn.Sequential):
    """Convolutions of the regions."""

    _version = 2

    def __init__(self, in_channels, layers, dilation, norm_layer=None):
        widths = (in_channels, *layers)
        super().__init__(
            *(Conv2dNormActivation(a, b, 3, 1, dilation, norm_layer=norm_layer, dilation=dilation) for a, b in zip(widths, widths[1:]))
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:  # older files number the convolutions from one
            for place in range(len(self)):
                for part in ("weight", "bias"):
                    old = f"{prefix}mask_fcn{place + 1}.{part}"
                    if old in state_dict:
                        state_dict[f"{prefix}{place}.0.{part}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class MaskRCNNPredictor(nn.Sequential):
    """The masks of all classes, at twice the size."""

    def __init__(self, in_channels, dim_reduced, num_classes):
        super().__init__(
            OrderedDict(
                conv5_mask=nn.ConvTranspose2d(in_channels, dim_reduced, 2, 2),
                relu=nn.ReLU(inplace=True),
                mask_fcn_logits=nn.Conv2d(dim_reduced, num_classes, 1),
            )
        )
        for name, parameter in self.named_parameters():
            if "weight" in name:
                nn.init.kaiming_normal_(parameter, mode="fan_out", nonlinearity="relu")


def _second(**options):
    def make(backbone, **given):
        head = MaskRCNNHeads(backbone.out_channels, (256,) * 4, 1, nn.BatchNorm2d)
        return MaskRCNN(backbone, **{"mask_head": head, **given})

    return _v2(make=make, **options)


_kind = weights_of("MaskRCNN_ResNet50_FPN", COCO_V1=Weights("maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth"))
publish(globals(), "maskrcnn_resnet50_fpn", _kind, on_resnet50, MaskRCNN, fitting=_TRAINED)
_kind = weights_of("MaskRCNN_ResNet50_FPN_V2", COCO_V1=Weights("maskrcnn_resnet50_fpn_v2_coco-73cbd019.pth"))
publish(globals(), "maskrcnn_resnet50_fpn_v2", _kind, _second, fitting=_TRAINED)
