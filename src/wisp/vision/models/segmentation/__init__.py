"""Models that give a class to every pixel: FCN and DeepLabV3 on ResNet."""

from collections import OrderedDict

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import Weights, publish, weights_of
from wisp.vision.models._utils import IntermediateLayerGetter
from wisp.vision.models.resnet import resnet50, resnet101

__all__ = ["DeepLabV3", "FCN"]


class _SimpleSegmentationModel(nn.Module):
    """A backbone, a head, and a second head in the middle for training; the result is {"out": ..., "aux": ...}."""

    def __init__(self, backbone, classifier, aux_classifier=None):
        super().__init__()
        self.backbone, self.classifier, self.aux_classifier = backbone, classifier, aux_classifier

    def forward(self, x):
        size, features = x.shape[-2:], self.backbone(x)
        result = OrderedDict(out=F.interpolate(self.classifier(features["out"]), size=size, mode="bilinear", align_corners=False))
        if self.aux_classifier is not None:
            result["aux"] = F.interpolate(self.aux_classifier(features["aux"]), size=size, mode="bilinear", align_corners=False)
        return result


class FCN(_SimpleSegmentationModel):
    """A fully convolutional network."""


class DeepLabV3(_SimpleSegmentationModel):
    """DeepLabV3: features of several dilations."""


class FCNHead(nn.Sequential):
    """Two convolutions."""

    def __init__(self, in_channels, channels):
        inner = in_channels // 4
        super().__init__(
            nn.Conv2d(in_channels, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(inner, channels, 1),
        )


def _unit(inner, out, kernel, **options):
    return [nn.Conv2d(inner, out, kernel, bias=False, **options), nn.BatchNorm2d(out), nn.ReLU()]


class _Pooling(nn.Sequential):
    def __init__(self, inner, out):
        super().__init__(nn.AdaptiveAvgPool2d(1), *_unit(inner, out, 1))

    def forward(self, x):
        size = x.shape[-2:]
        for module in self:
            x = module(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    """The same features at several dilations, joined."""

    def __init__(self, in_channels, atrous_rates=(12, 24, 36), out_channels=256):
        super().__init__()
        dilated = [nn.Sequential(*_unit(in_channels, out_channels, 3, padding=rate, dilation=rate)) for rate in atrous_rates]
        self.convs = nn.ModuleList([nn.Sequential(*_unit(in_channels, out_channels, 1)), *dilated, _Pooling(in_channels, out_channels)])
        self.project = nn.Sequential(*_unit(len(self.convs) * out_channels, out_channels, 1), nn.Dropout(0.5))

    def forward(self, x):
        return self.project(wisp.cat([module(x) for module in self.convs], 1))


class DeepLabHead(nn.Sequential):
    """ASPP and two convolutions."""

    def __init__(self, in_channels, num_classes, atrous_rates=(12, 24, 36)):
        super().__init__(ASPP(in_channels, atrous_rates), *_unit(256, 256, 3, padding=1), nn.Conv2d(256, num_classes, 1))


def _on(resnet, kind, head, num_classes=21, aux_loss=None, weights_backbone=None, pretrained_backbone=False):
    backbone = resnet(weights=weights_backbone, replace_stride_with_dilation=[False, True, True])
    layers = {"layer4": "out", **({"layer3": "aux"} if aux_loss else {})}
    return kind(IntermediateLayerGetter(backbone, layers), head(2048, num_classes), FCNHead(1024, num_classes) if aux_loss else None)


for _title, _file, _kind, _head, _resnet in (
    ("FCN_ResNet50", "fcn_resnet50_coco-1167a1af.pth", FCN, FCNHead, resnet50),
    ("FCN_ResNet101", "fcn_resnet101_coco-7ecb50ca.pth", FCN, FCNHead, resnet101),
    ("DeepLabV3_ResNet50", "deeplabv3_resnet50_coco-cd0a2569.pth", DeepLabV3, DeepLabHead, resnet50),
    ("DeepLabV3_ResNet101", "deeplabv3_resnet101_coco-586e9e4e.pth", DeepLabV3, DeepLabHead, resnet101),
):
    _weights = weights_of(_title, COCO_WITH_VOC_LABELS_V1=Weights(_file, 520, 520))
    publish(globals(), _title.lower(), _weights, _on, _resnet, _kind, _head, fitting={"aux_loss": True})
