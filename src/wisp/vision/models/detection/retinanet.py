"""RetinaNet: boxes and classes from the pyramid at once, with the focal loss."""

import math

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import MEAN, STD, Weights, publish, weights_of
from wisp.vision.models.detection import backbone_utils
from wisp.vision.models.detection._utils import BoxCoder, Matcher, overwrite_eps, seen
from wisp.vision.models.detection.anchor_utils import AnchorGenerator
from wisp.vision.models.detection.faster_rcnn import _norm
from wisp.vision.models.detection.rpn import flattened
from wisp.vision.models.detection.transform import GeneralizedRCNNTransform
from wisp.vision.models.resnet import resnet50
from wisp.vision.ops import Conv2dNormActivation, generalized_box_iou_loss, sigmoid_focal_loss
from wisp.vision.ops import boxes as box_ops
from wisp.vision.ops.feature_pyramid_network import LastLevelP6P7

__all__ = ["RetinaNet"]


def _default_anchorgen():
    sizes = tuple((x, int(x * 2 ** (1 / 3)), int(x * 2 ** (2 / 3))) for x in (32, 64, 128, 256, 512))
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * 5)


class _Head(nn.Module):
    """Four convolutions and a last one, on all levels."""

    _version = 2
    last = None

    def __init__(self, in_channels, out_channels, norm_layer, bias=0.0):
        super().__init__()
        self.conv = nn.Sequential(*(Conv2dNormActivation(in_channels, in_channels, norm_layer=norm_layer) for _ in range(4)))
        setattr(self, self.last, nn.Conv2d(in_channels, out_channels, 3, 1, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.constant_(getattr(self, self.last).bias, bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:  # files from when convolutions and activations were numbered in a row
            for place in range(4):
                for part in ("weight", "bias"):
                    old = f"{prefix}conv.{2 * place}.{part}"
                    if old in state_dict:
                        state_dict[f"{prefix}conv.{place}.0.{part}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _levels(self, x):
        return [getattr(self, self.last)(self.conv(features)) for features in x]


class RetinaNetClassificationHead(_Head):
    """The logits of the classes for each anchor."""

    last = "cls_logits"

    def __init__(self, in_channels, num_anchors, num_classes, prior_probability=0.01, norm_layer=None):
        super().__init__(in_channels, num_anchors * num_classes, norm_layer, -math.log((1 - prior_probability) / prior_probability))
        self.num_classes, self.num_anchors = num_classes, num_anchors

    def compute_loss(self, targets, head_outputs, matched_idxs):
        losses = []
        for target, logits, matches in zip(targets, head_outputs["cls_logits"], matched_idxs):
            foreground = wisp.where(matches >= 0)[0]
            wanted = wisp.zeros_like(logits)
            wanted[foreground, target["labels"][matches[foreground]]] = 1.0
            valid = wisp.where(matches != Matcher.BETWEEN_THRESHOLDS)[0]
            losses.append(sigmoid_focal_loss(logits[valid], wanted[valid], reduction="sum") / max(1, len(foreground)))
        return sum(losses) / len(targets)

    def forward(self, x):
        return flattened(self._levels(x), self.num_classes)


class RetinaNetRegressionHead(_Head):
    """How the box of each anchor moves."""

    last = "bbox_reg"
    _loss_type = "l1"

    def __init__(self, in_channels, num_anchors, norm_layer=None):
        super().__init__(in_channels, num_anchors * 4, norm_layer)
        self.box_coder = BoxCoder((1.0, 1.0, 1.0, 1.0))

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        losses = []
        for target, moves, own, matches in zip(targets, head_outputs["bbox_regression"], anchors, matched_idxs):
            foreground = wisp.where(matches >= 0)[0]
            boxes = target["boxes"][matches[foreground]]
            if self._loss_type == "giou":
                predicted = self.box_coder.decode_single(moves[foreground], own[foreground])
                loss = generalized_box_iou_loss(predicted, boxes, reduction="sum", eps=1e-7)
            else:
                loss = F.l1_loss(moves[foreground], self.box_coder.encode_single(boxes, own[foreground]), reduction="sum")
            losses.append(loss / max(1, len(foreground)))
        return sum(losses) / max(1, len(targets))

    def forward(self, x):
        return flattened(self._levels(x), 4)


class RetinaNetHead(nn.Module):
    """Both heads."""

    def __init__(self, in_channels, num_anchors, num_classes, norm_layer=None):
        super().__init__()
        self.classification_head = RetinaNetClassificationHead(in_channels, num_anchors, num_classes, norm_layer=norm_layer)
        self.regression_head = RetinaNetRegressionHead(in_channels, num_anchors, norm_layer=norm_layer)

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        return {
            "classification": self.classification_head.compute_loss(targets, head_outputs, matched_idxs),
            "bbox_regression": self.regression_head.compute_loss(targets, head_outputs, anchors, matched_idxs),
        }

    def forward(self, x):
        return {"cls_logits": self.classification_head(x), "bbox_regression": self.regression_head(x)}


class RetinaNet(nn.Module):
    """RetinaNet on a backbone; called as `FasterRCNN` is, but class 0 is an ordinary one.

    >>> import wisp
    >>> from wisp.vision.models.detection import RetinaNet
    >>> from wisp.vision.models.detection.backbone_utils import resnet_fpn_backbone
    >>> model = RetinaNet(resnet_fpn_backbone(backbone_name="resnet18", weights=None), 3, min_size=64, max_size=64).eval()
    >>> sorted(model([wisp.rand(3, 64, 64)])[0])
    ['boxes', 'labels', 'scores']
    """

    def __init__(
        self,
        backbone,
        num_classes,
        min_size=800,
        max_size=1333,
        image_mean=None,
        image_std=None,
        anchor_generator=None,
        head=None,
        proposal_matcher=None,
        score_thresh=0.05,
        nms_thresh=0.5,
        detections_per_img=300,
        fg_iou_thresh=0.5,
        bg_iou_thresh=0.4,
        topk_candidates=1000,
        **kwargs,
    ):
        super().__init__()
        if not hasattr(backbone, "out_channels"):
            raise ValueError(
                "backbone should contain an attribute out_channels specifying the number of output channels (assumed to be "
                "the same for all the levels)"
            )
        self.backbone, self.anchor_generator = backbone, anchor_generator or _default_anchorgen()
        self.head = head or RetinaNetHead(backbone.out_channels, self.anchor_generator.num_anchors_per_location()[0], num_classes)
        self.proposal_matcher = proposal_matcher or Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        self.box_coder = BoxCoder((1.0, 1.0, 1.0, 1.0))
        self.transform = GeneralizedRCNNTransform(min_size, max_size, image_mean or list(MEAN), image_std or list(STD), **kwargs)
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img
        self.topk_candidates = topk_candidates

    def compute_loss(self, targets, head_outputs, anchors):
        matched = []
        for own, target in zip(anchors, targets):
            if target["boxes"].numel() == 0:
                matched.append(wisp.full((len(own),), -1, dtype=wisp.int64, device=own.device))
            else:
                matched.append(self.proposal_matcher(box_ops.box_iou(target["boxes"], own)))
        return self.head.compute_loss(targets, head_outputs, anchors, matched)

    def postprocess_detections(self, head_outputs, anchors, counts, image_shapes):
        """The best detections of each image, level by level."""
        result = []
        for index, shape in enumerate(image_shapes):
            found = [], [], []
            levels = (head_outputs["cls_logits"][index], head_outputs["bbox_regression"][index], anchors[index])
            for logits, moves, own in zip(*(part.split(counts) for part in levels)):
                classes, scores = logits.shape[-1], logits.sigmoid().flatten()
                keep = wisp.where(scores > self.score_thresh)[0]
                scores, order = scores[keep].topk(min(len(keep), self.topk_candidates))
                keep = keep[order]
                places = keep // classes
                boxes = self.box_coder.decode_single(moves[places], own[places])
                for part, values in zip(found, (box_ops.clip_boxes_to_image(boxes, shape), scores, keep % classes)):
                    part.append(values)
            boxes, scores, labels = (wisp.cat(part) for part in found)
            keep = box_ops.batched_nms(boxes, scores, labels, self.nms_thresh)[: self.detections_per_img]
            result.append({"boxes": boxes[keep], "scores": scores[keep], "labels": labels[keep]})
        return result

    def forward(self, images, targets=None):
        sizes, images, targets, features = seen(self, images, targets)
        features = list(features.values())
        outputs, anchors = self.head(features), self.anchor_generator(images, features)
        if self.training:
            return self.compute_loss(targets, outputs, anchors)
        per_place = self.anchor_generator.num_anchors_per_location()
        counts = [level.shape[-2] * level.shape[-1] * count for level, count in zip(features, per_place)]
        found = self.postprocess_detections(outputs, anchors, counts, images.image_sizes)
        return self.transform.postprocess(found, images.image_sizes, sizes)


def _first(num_classes=91, weights_backbone=None, trainable_backbone_layers=None, trained=False, **options):
    trained = trained or weights_backbone is not None
    layers = backbone_utils.trainable(trained, trainable_backbone_layers, 5, 3)
    backbone = backbone_utils.resnet_fpn(
        resnet50(weights=weights_backbone, norm_layer=_norm(trained)), layers, (2, 3, 4), LastLevelP6P7(256, 256)
    )
    model = RetinaNet(backbone, num_classes, **options)
    if trained:
        overwrite_eps(model, 0.0)
    return model


def _second(num_classes=91, weights_backbone=None, trainable_backbone_layers=None, trained=False, **options):
    layers = backbone_utils.trainable(trained or weights_backbone is not None, trainable_backbone_layers, 5, 3)
    backbone = backbone_utils.resnet_fpn(resnet50(weights=weights_backbone), layers, (2, 3, 4), LastLevelP6P7(2048, 256))
    anchors = _default_anchorgen()
    head = RetinaNetHead(backbone.out_channels, anchors.num_anchors_per_location()[0], num_classes, lambda width: nn.GroupNorm(32, width))
    head.regression_head._loss_type = "giou"
    return RetinaNet(backbone, num_classes, anchor_generator=anchors, head=head, **options)


publish(
    globals(),
    "retinanet_resnet50_fpn",
    weights_of("RetinaNet_ResNet50_FPN", COCO_V1=Weights("retinanet_resnet50_fpn_coco-eeacb38b.pth")),
    _first,
    fitting={"num_classes": 91, "trained": True},
)
publish(
    globals(),
    "retinanet_resnet50_fpn_v2",
    weights_of("RetinaNet_ResNet50_FPN_V2", COCO_V1=Weights("retinanet_resnet50_fpn_v2_coco-5905b1c5.pth")),
    _second,
    fitting={"num_classes": 91, "trained": True},
)
