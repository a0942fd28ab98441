"""Faster R-CNN."""

from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import MEAN, STD, Weights, publish, weights_of
from wisp.vision.models.detection import backbone_utils
from wisp.vision.models.detection._utils import overwrite_eps
from wisp.vision.models.detection.anchor_utils import AnchorGenerator
from wisp.vision.models.detection.generalized_rcnn import GeneralizedRCNN
from wisp.vision.models.detection.roi_heads import RoIHeads
from wisp.vision.models.detection.rpn import RegionProposalNetwork, RPNHead
from wisp.vision.models.detection.transform import GeneralizedRCNNTransform
from wisp.vision.models.mobilenet import mobilenet_v3_large
from wisp.vision.models.resnet import resnet50
from wisp.vision.ops import Conv2dNormActivation, FrozenBatchNorm2d, MultiScaleRoIAlign

__all__ = ["FasterRCNN"]


def _default_anchorgen():
    return AnchorGenerator(((32,), (64,), (128,), (256,), (512,)), ((0.5, 1.0, 2.0),) * 5)


class FasterRCNN(GeneralizedRCNN):
    """Faster R-CNN on a backbone with `out_channels`, whose result is a tensor or levels by name.

    In training the model is called with images [C, H, W] in [0, 1] and targets {"boxes", "labels"} and returns losses, otherwise a dict of
    boxes, labels and scores for each image. Class 0 is the background.

    >>> import wisp
    >>> from wisp.vision.models.detection import FasterRCNN
    >>> from wisp.vision.models.detection.backbone_utils import resnet_fpn_backbone
    >>> model = FasterRCNN(resnet_fpn_backbone(backbone_name="resnet18", weights=None), 3, min_size=64, max_size=64)
    >>> target = {"boxes": wisp.tensor([[4.0, 4.0, 40.0, 40.0]]), "labels": wisp.tensor([2])}
    >>> sorted(model([wisp.rand(3, 64, 64)], [target]))
    ['loss_box_reg', 'loss_classifier', 'loss_objectness', 'loss_rpn_box_reg']
    >>> sorted(model.eval()([wisp.rand(3, 64, 64)])[0])
    ['boxes', 'labels', 'scores']
    """

    def __init__(
        self,
        backbone,
        num_classes=None,
        min_size=800,
        max_size=1333,
        image_mean=None,
        image_std=None,
        rpn_anchor_generator=None,
        rpn_head=None,
        rpn_pre_nms_top_n_train=2000,
        rpn_pre_nms_top_n_test=1000,
        rpn_post_nms_top_n_train=2000,
        rpn_post_nms_top_n_test=1000,
        rpn_nms_thresh=0.7,
        rpn_fg_iou_thresh=0.7,
        rpn_bg_iou_thresh=0.3,
        rpn_batch_size_per_image=256,
        rpn_positive_fraction=0.5,
        rpn_score_thresh=0.0,
        box_roi_pool=None,
        box_head=None,
        box_predictor=None,
        box_score_thresh=0.05,
        box_nms_thresh=0.5,
        box_detections_per_img=100,
        box_fg_iou_thresh=0.5,
        box_bg_iou_thresh=0.5,
        box_batch_size_per_image=512,
        box_positive_fraction=0.25,
        bbox_reg_weights=None,
        **kwargs,
    ):
        if not hasattr(backbone, "out_channels"):
            raise ValueError(
                "backbone should contain an attribute out_channels specifying the number of output channels (assumed to be "
                "the same for all the levels)"
            )
        if num_classes is not None and box_predictor is not None:
            raise ValueError("num_classes should be None when box_predictor is specified")
        if num_classes is None and box_predictor is None:
            raise ValueError("num_classes should not be None when box_predictor is not specified")
        channels = backbone.out_channels
        anchors = rpn_anchor_generator or _default_anchorgen()
        rpn = RegionProposalNetwork(
            anchors,
            rpn_head or RPNHead(channels, anchors.num_anchors_per_location()[0]),
            rpn_fg_iou_thresh,
            rpn_bg_iou_thresh,
            rpn_batch_size_per_image,
            rpn_positive_fraction,
            {"training": rpn_pre_nms_top_n_train, "testing": rpn_pre_nms_top_n_test},
            {"training": rpn_post_nms_top_n_train, "testing": rpn_post_nms_top_n_test},
            rpn_nms_thresh,
            rpn_score_thresh,
        )
        pool = box_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 7, 2)
        heads = RoIHeads(
            pool,
            box_head or TwoMLPHead(channels * pool.output_size[0] ** 2, 1024),
            box_predictor or FastRCNNPredictor(1024, num_classes),
            box_fg_iou_thresh,
            box_bg_iou_thresh,
            box_batch_size_per_image,
            box_positive_fraction,
            bbox_reg_weights,
            box_score_thresh,
            box_nms_thresh,
            box_detections_per_img,
        )
        transform = GeneralizedRCNNTransform(min_size, max_size, image_mean or list(MEAN), image_std or list(STD), **kwargs)
        super().__init__(backbone, rpn, heads, transform)


class TwoMLPHead(nn.Module):
    """Two linear layers."""

    def __init__(self, in_channels, representation_size):
        super().__init__()
        self.fc6, self.fc7 = nn.Linear(in_channels, representation_size), nn.Linear(representation_size, representation_size)

    def forward(self, x):
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(1)))))


class FastRCNNConvFCHead(nn.Sequential):
    """Convolutions, then linear layers."""

    def __init__(self, input_size, conv_layers, fc_layers, norm_layer=None):
        channels, height, width = input_size
        layers = []
        for count in conv_layers:
            layers.append(Conv2dNormActivation(channels, count, norm_layer=norm_layer))
            channels = count
        layers.append(nn.Flatten())
        size = channels * height * width
        for count in fc_layers:
            layers += [nn.Linear(size, count), nn.ReLU(inplace=True)]
            size = count
        super().__init__(*layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)


class FastRCNNPredictor(nn.Module):
    """The logits of the classes, and a box for each."""

    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.cls_score, self.bbox_pred = nn.Linear(in_channels, num_classes), nn.Linear(in_channels, num_classes * 4)

    def forward(self, x):
        x = x.flatten(1)
        return self.cls_score(x), self.bbox_pred(x)


def _norm(trained):
    return FrozenBatchNorm2d if trained else nn.BatchNorm2d


def on_resnet50(make, num_classes=91, weights_backbone=None, trainable_backbone_layers=None, trained=False, **options):
    """A model on ResNet-50 with a pyramid; `trained` says that weights of the whole model will be loaded."""
    options.pop("pretrained_backbone", None)
    trained = trained or weights_backbone is not None
    layers = backbone_utils.trainable(trained, trainable_backbone_layers, 5, 3)
    backbone = backbone_utils.resnet_fpn(resnet50(weights=weights_backbone, norm_layer=_norm(trained)), layers)
    model = make(backbone, num_classes=num_classes, **options)
    if trained:
        overwrite_eps(model, 0.0)
    return model


def _first(**options):
    return on_resnet50(FasterRCNN, **options)


def _v2(num_classes=91, weights_backbone=None, trainable_backbone_layers=None, trained=False, make=FasterRCNN, **options):
    layers = backbone_utils.trainable(trained or weights_backbone is not None, trainable_backbone_layers, 5, 3)
    backbone = backbone_utils.resnet_fpn(resnet50(weights=weights_backbone), layers, norm_layer=nn.BatchNorm2d)
    return make(backbone, num_classes=num_classes, **{**v2_heads(backbone), **options})


def v2_heads(backbone):
    """The heads of the second versions."""
    anchors = _default_anchorgen()
    head = RPNHead(backbone.out_channels, anchors.num_anchors_per_location()[0], conv_depth=2)
    return {
        "rpn_anchor_generator": anchors,
        "rpn_head": head,
        "box_head": FastRCNNConvFCHead((backbone.out_channels, 7, 7), [256] * 4, [1024], nn.BatchNorm2d),
    }


def _mobile(num_classes=91, weights_backbone=None, trainable_backbone_layers=None, trained=False, **options):
    trained = trained or weights_backbone is not None
    layers = backbone_utils.trainable(trained, trainable_backbone_layers, 6, 3)
    backbone = backbone_utils.mobilenet_fpn(mobilenet_v3_large(weights=weights_backbone, norm_layer=_norm(trained)), layers)
    anchors = AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
    return FasterRCNN(backbone, num_classes, rpn_anchor_generator=anchors, **{"rpn_score_thresh": 0.05, **options})


_TRAINED = {"num_classes": 91, "trained": True}
_SMALL = {"min_size": 320, "max_size": 640, "rpn_pre_nms_top_n_test": 150, "rpn_post_nms_top_n_test": 150}
for _title, _file, _make, _fixed in (
    ("FasterRCNN_ResNet50_FPN", "fasterrcnn_resnet50_fpn_coco-258fb6c6.pth", _first, {}),
    ("FasterRCNN_ResNet50_FPN_V2", "fasterrcnn_resnet50_fpn_v2_coco-dd69338a.pth", _v2, {}),
    ("FasterRCNN_MobileNet_V3_Large_FPN", "fasterrcnn_mobilenet_v3_large_fpn-fb6a3cc7.pth", _mobile, {}),
    ("FasterRCNN_MobileNet_V3_Large_320_FPN", "fasterrcnn_mobilenet_v3_large_320_fpn-907ea3f9.pth", _mobile, _SMALL),
):
    publish(globals(), _title.lower(), weights_of(_title, COCO_V1=Weights(_file)), _make, fitting=_TRAINED, **_fixed)
