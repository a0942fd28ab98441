"""The region proposal network: where in the image something might be."""

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models.detection._utils import BalancedPositiveNegativeSampler, BoxCoder, Matcher
from wisp.vision.models.detection.anchor_utils import AnchorGenerator
from wisp.vision.ops import Conv2dNormActivation
from wisp.vision.ops import boxes as box_ops

__all__ = ["AnchorGenerator", "RPNHead", "RegionProposalNetwork"]


class RPNHead(nn.Module):
    """For each anchor of each place: how much it looks like something, and how its box should move."""

    _version = 2

    def __init__(self, in_channels, num_anchors, conv_depth=1):
        super().__init__()
        self.conv = nn.Sequential(*(Conv2dNormActivation(in_channels, in_channels, 3, norm_layer=None) for _ in range(conv_depth)))
        self.cls_logits, self.bbox_pred = nn.Conv2d(in_channels, num_anchors, 1), nn.Conv2d(in_channels, num_anchors * 4, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:  # files from when there was one convolution
            for part in ("weight", "bias"):
                if f"{prefix}conv.{part}" in state_dict:
                    state_dict[f"{prefix}conv.0.0.{part}"] = state_dict.pop(f"{prefix}conv.{part}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x):
        hidden = [self.conv(features) for features in x]
        return [self.cls_logits(features) for features in hidden], [self.bbox_pred(features) for features in hidden]


def flattened(levels, per_anchor):
    """Predictions [N, anchors * per_anchor, H, W] of the levels as [N, all anchors, per_anchor]."""
    return wisp.cat(
        [
            level.reshape(len(level), -1, per_anchor, *level.shape[-2:]).permute(0, 3, 4, 1, 2).reshape(len(level), -1, per_anchor)
            for level in levels
        ],
        1,
    )


class RegionProposalNetwork(nn.Module):
    """Proposes boxes: those that the head finds most like something, without those that overlap better ones.

    `pre_nms_top_n` and `post_nms_top_n` are {"training": n, "testing": n}."""

    def __init__(
        self,
        anchor_generator,
        head,
        fg_iou_thresh,
        bg_iou_thresh,
        batch_size_per_image,
        positive_fraction,
        pre_nms_top_n,
        post_nms_top_n,
        nms_thresh,
        score_thresh=0.0,
    ):
        super().__init__()
        self.anchor_generator, self.head, self.box_coder = anchor_generator, head, BoxCoder((1.0, 1.0, 1.0, 1.0))
        self.proposal_matcher = Matcher(fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True)
        self.fg_bg_sampler = BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self._pre_nms_top_n, self._post_nms_top_n = pre_nms_top_n, post_nms_top_n
        self.nms_thresh, self.score_thresh, self.min_size = nms_thresh, score_thresh, 1e-3

    def pre_nms_top_n(self):
        return self._pre_nms_top_n["training" if self.training else "testing"]

    def post_nms_top_n(self):
        return self._post_nms_top_n["training" if self.training else "testing"]

    def assign_targets_to_anchors(self, anchors, targets):
        labels, matched = [], []
        for own, target in zip(anchors, targets):
            boxes = target["boxes"]
            if boxes.numel() == 0:
                matched.append(wisp.zeros_like(own))
                labels.append(own.new_zeros(len(own)))
                continue
            matches = self.proposal_matcher(box_ops.box_iou(boxes, own))
            matched.append(boxes[matches.clamp(min=0)])
            label = (matches >= 0).to(wisp.float32)
            labels.append(label.masked_fill(matches == Matcher.BETWEEN_THRESHOLDS, -1.0))
        return labels, matched

    def filter_proposals(self, proposals, objectness, image_shapes, num_anchors_per_level):
        objectness = objectness.detach().reshape(len(proposals), -1)
        numbers = wisp.cat([objectness.new_full((count,), level, dtype=wisp.int64) for level, count in enumerate(num_anchors_per_level)])
        best, offset = [], 0
        for level in objectness.split(num_anchors_per_level, 1):
            best.append(level.topk(min(self.pre_nms_top_n(), level.shape[1]), 1).indices + offset)
            offset += level.shape[1]
        best = wisp.cat(best, 1)
        scores = objectness.gather(1, best).sigmoid()
        found = [], []
        for boxes, score, places, shape in zip(proposals, scores, best, image_shapes):
            boxes, level = box_ops.clip_boxes_to_image(boxes[places], shape), numbers[places]
            for keep in (box_ops.remove_small_boxes(boxes, self.min_size), None):
                keep = wisp.where(score >= self.score_thresh)[0] if keep is None else keep
                boxes, score, level = boxes[keep], score[keep], level[keep]
            keep = box_ops.batched_nms(boxes, score, level, self.nms_thresh)[: self.post_nms_top_n()]
            found[0].append(boxes[keep])
            found[1].append(score[keep])
        return found

    def compute_loss(self, objectness, pred_bbox_deltas, labels, regression_targets):
        positive, negative = (wisp.where(wisp.cat(mask))[0] for mask in self.fg_bg_sampler(labels))
        sampled = wisp.cat((positive, negative))
        objectness, labels, targets = objectness.flatten(), wisp.cat(labels), wisp.cat(list(regression_targets))
        box_loss = F.smooth_l1_loss(pred_bbox_deltas[positive], targets[positive], beta=1 / 9, reduction="sum") / sampled.numel()
        return F.binary_cross_entropy_with_logits(objectness[sampled], labels[sampled]), box_loss

    def forward(self, images, features, targets=None):
        features = list(features.values())
        objectness, deltas = self.head(features)
        anchors = self.anchor_generator(images, features)
        counts = [level[0].numel() for level in objectness]
        objectness, deltas = flattened(objectness, 1).reshape(-1, 1), flattened(deltas, 4).reshape(-1, 4)
        proposals = self.box_coder.decode(deltas.detach(), anchors).reshape(len(anchors), -1, 4)
        boxes, _ = self.filter_proposals(proposals, objectness, images.image_sizes, counts)
        if not self.training:
            return boxes, {}
        if targets is None:
            raise ValueError("targets should not be None")
        labels, matched = self.assign_targets_to_anchors(anchors, targets)
        losses = self.compute_loss(objectness, deltas, labels, self.box_coder.encode(matched, anchors))
        return boxes, {"loss_objectness": losses[0], "loss_rpn_box_reg": losses[1]}
