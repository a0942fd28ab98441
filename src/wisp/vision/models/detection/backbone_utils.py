"""Backbones of detection models: ResNets and MobileNets with a feature pyramid."""

from wisp import nn
from wisp.vision.models import mobilenet, resnet
from wisp.vision.models._utils import IntermediateLayerGetter
from wisp.vision.ops import FrozenBatchNorm2d
from wisp.vision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

__all__ = ["BackboneWithFPN", "mobilenet_backbone", "resnet_fpn_backbone"]


class BackboneWithFPN(nn.Module):
    """The levels of a backbone that are named in `return_layers`, through a feature pyramid."""

    def __init__(self, backbone, return_layers, in_channels_list, out_channels, extra_blocks=None, norm_layer=None):
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers)
        self.fpn = FeaturePyramidNetwork(in_channels_list, out_channels, extra_blocks or LastLevelMaxPool(), norm_layer)
        self.out_channels = out_channels

    def forward(self, x):
        return self.fpn(self.body(x))


def trainable(trained, wanted, largest, default):
    """How many layers are trained: all of a network that starts from nothing."""
    if not trained:
        return largest
    wanted = default if wanted is None else wanted
    if not 0 <= wanted <= largest:
        raise ValueError(f"Trainable layers should be in the range [0,{largest}], got {wanted} ")
    return wanted


def resnet_fpn(backbone, trainable_layers, returned_layers=(1, 2, 3, 4), extra_blocks=None, norm_layer=None):
    """The pyramid of a ResNet, of which only the last `trainable_layers` of five parts are trained."""
    if not 0 <= trainable_layers <= 5:
        raise ValueError(f"Trainable layers should be in the range [0,5], got {trainable_layers}")
    kept = ["layer4", "layer3", "layer2", "layer1", "conv1", *(["bn1"] if trainable_layers == 5 else [])]
    kept = kept[: trainable_layers + (trainable_layers == 5)]
    for name, parameter in backbone.named_parameters():
        if not name.startswith(tuple(kept)) or not kept:
            parameter.requires_grad_(False)
    first = backbone.inplanes // 8
    return BackboneWithFPN(
        backbone,
        {f"layer{layer}": str(place) for place, layer in enumerate(returned_layers)},
        [first * 2 ** (layer - 1) for layer in returned_layers],
        256,
        extra_blocks,
        norm_layer,
    )


def resnet_fpn_backbone(
    *, backbone_name, weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=3, returned_layers=None, extra_blocks=None
):
    """A ResNet with a feature pyramid.

    >>> import wisp
    >>> from wisp.vision.models.detection.backbone_utils import resnet_fpn_backbone
    >>> backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None)
    >>> {name: tuple(level.shape[-2:]) for name, level in backbone(wisp.rand(1, 3, 64, 64)).items()}
    {'0': (16, 16), '1': (8, 8), '2': (4, 4), '3': (2, 2), 'pool': (1, 1)}
    """
    made = getattr(resnet, backbone_name)(weights=weights, norm_layer=norm_layer)
    return resnet_fpn(made, trainable_layers, returned_layers or (1, 2, 3, 4), extra_blocks)


def mobilenet_fpn(backbone, trainable_layers, returned_layers=None, extra_blocks=None, norm_layer=None):
    """The pyramid of a MobileNet."""
    features = backbone.features
    stages = [0, *(place for place, block in enumerate(features) if getattr(block, "_is_cn", False)), len(features) - 1]
    if not 0 <= trainable_layers <= len(stages):
        raise ValueError(f"Trainable layers should be in the range [0,{len(stages)}], got {trainable_layers} ")
    frozen = len(features) if trainable_layers == 0 else stages[len(stages) - trainable_layers]
    for block in list(features)[:frozen]:
        block.requires_grad_(False)
    returned = returned_layers or [len(stages) - 2, len(stages) - 1]
    return BackboneWithFPN(
        features,
        {str(stages[layer]): str(place) for place, layer in enumerate(returned)},
        [features[stages[layer]].out_channels for layer in returned],
        256,
        extra_blocks,
        norm_layer,
    )


def mobilenet_backbone(
    *, backbone_name, fpn, weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=2, returned_layers=None, extra_blocks=None
):
    """A MobileNet with a feature pyramid."""
    if not fpn:
        raise NotImplementedError("mobilenet_backbone(fpn=False): use the `features` of the model, and give them `out_channels`")
    made = getattr(mobilenet, backbone_name)(weights=weights, norm_layer=norm_layer)
    return mobilenet_fpn(made, trainable_layers, returned_layers, extra_blocks)
