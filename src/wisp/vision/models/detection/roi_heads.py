"""What is in the proposed regions: class and box, a mask, keypoints."""

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models.detection import _keypoints
from wisp.vision.models.detection._utils import BalancedPositiveNegativeSampler, BoxCoder, Matcher
from wisp.vision.ops import boxes as box_ops
from wisp.vision.ops import roi_align

__all__ = ["RoIHeads", "fastrcnn_loss", "maskrcnn_inference", "maskrcnn_loss"]


def fastrcnn_loss(class_logits, box_regression, labels, regression_targets):
    """The losses of the classes and of the boxes of those that are something."""
    labels, targets = wisp.cat(labels), wisp.cat(list(regression_targets))
    positive = wisp.where(labels > 0)[0]
    predicted = box_regression.unflatten(1, (box_regression.shape[1] // 4, 4))[positive, labels[positive]]
    box_loss = F.smooth_l1_loss(predicted, targets[positive], beta=1 / 9, reduction="sum") / labels.numel()
    return F.cross_entropy(class_logits, labels), box_loss


def maskrcnn_inference(x, labels):
    """The masks of the predicted classes, per image, as probabilities [K, 1, M, M]."""
    counts, labels = [len(part) for part in labels], wisp.cat(labels)
    chosen = x.sigmoid()[wisp.arange(len(x), device=x.device), labels][:, None]
    return chosen.split(counts)


def maskrcnn_loss(mask_logits, proposals, gt_masks, gt_labels, mask_matched_idxs):
    """The loss of the masks of the true classes."""
    size = mask_logits.shape[-1]
    labels = wisp.cat([own[places] for own, places in zip(gt_labels, mask_matched_idxs)])
    targets = []
    for masks, boxes, places in zip(gt_masks, proposals, mask_matched_idxs):
        rois = wisp.cat((places[:, None].to(boxes), boxes), 1)
        targets.append(roi_align(masks[:, None].to(boxes), rois, (size, size), 1.0)[:, 0])
    targets = wisp.cat(targets)
    if targets.numel() == 0:
        return mask_logits.sum() * 0
    return F.binary_cross_entropy_with_logits(mask_logits[wisp.arange(len(labels), device=labels.device), labels], targets)


class RoIHeads(nn.Module):
    """Pools the regions of proposals and predicts classes and boxes, and with further heads masks or keypoints."""

    def __init__(
        self,
        box_roi_pool,
        box_head,
        box_predictor,
        fg_iou_thresh,
        bg_iou_thresh,
        batch_size_per_image,
        positive_fraction,
        bbox_reg_weights,
        score_thresh,
        nms_thresh,
        detections_per_img,
        mask_roi_pool=None,
        mask_head=None,
        mask_predictor=None,
        keypoint_roi_pool=None,
        keypoint_head=None,
        keypoint_predictor=None,
    ):
        super().__init__()
        self.proposal_matcher = Matcher(fg_iou_thresh, bg_iou_thresh)
        self.fg_bg_sampler = BalancedPositiveNegativeSampler(batch_size_per_image, positive_fraction)
        self.box_coder = BoxCoder(bbox_reg_weights or (10.0, 10.0, 5.0, 5.0))
        self.box_roi_pool, self.box_head, self.box_predictor = box_roi_pool, box_head, box_predictor
        self.score_thresh, self.nms_thresh, self.detections_per_img = score_thresh, nms_thresh, detections_per_img
        self.mask_roi_pool, self.mask_head, self.mask_predictor = mask_roi_pool, mask_head, mask_predictor
        self.keypoint_roi_pool, self.keypoint_head, self.keypoint_predictor = keypoint_roi_pool, keypoint_head, keypoint_predictor

    def has_mask(self):
        return None not in (self.mask_roi_pool, self.mask_head, self.mask_predictor)

    def has_keypoint(self):
        return None not in (self.keypoint_roi_pool, self.keypoint_head, self.keypoint_predictor)

    def select_training_samples(self, proposals, targets):
        proposals = [wisp.cat((own, target["boxes"].to(own.dtype))) for own, target in zip(proposals, targets)]
        matched, labels = [], []
        for own, target in zip(proposals, targets):
            if target["boxes"].numel() == 0:
                matched.append(wisp.zeros(len(own), dtype=wisp.int64, device=own.device))
                labels.append(matched[-1].clone())
                continue
            matches = self.proposal_matcher(box_ops.box_iou(target["boxes"].to(own.dtype), own))
            matched.append(matches.clamp(min=0))
            label = target["labels"][matched[-1]].masked_fill(matches == Matcher.BELOW_LOW_THRESHOLD, 0)
            labels.append(label.masked_fill(matches == Matcher.BETWEEN_THRESHOLDS, -1))
        boxes = []
        for index, (positive, negative) in enumerate(zip(*self.fg_bg_sampler(labels))):
            chosen = wisp.where(positive | negative)[0]
            proposals[index], labels[index], matched[index] = proposals[index][chosen], labels[index][chosen], matched[index][chosen]
            own = targets[index]["boxes"].to(proposals[index].dtype)
            boxes.append((own if own.numel() else own.new_zeros(1, 4))[matched[index]])
        return proposals, matched, labels, self.box_coder.encode(boxes, proposals)

    def postprocess_detections(self, class_logits, box_regression, proposals, image_shapes):
        counts = [len(part) for part in proposals]
        boxes, scores = self.box_coder.decode(box_regression, proposals).split(counts), class_logits.softmax(-1).split(counts)
        found = []
        for own, score, shape in zip(boxes, scores, image_shapes):
            label = wisp.arange(score.shape[1], device=score.device).expand_as(score)[:, 1:].reshape(-1)  # the first is the background
            own, score = box_ops.clip_boxes_to_image(own, shape)[:, 1:].reshape(-1, 4), score[:, 1:].reshape(-1)
            keep = wisp.where(score > self.score_thresh)[0]
            own, score, label = own[keep], score[keep], label[keep]
            keep = box_ops.remove_small_boxes(own, 1e-2)
            own, score, label = own[keep], score[keep], label[keep]
            keep = box_ops.batched_nms(own, score, label, self.nms_thresh)[: self.detections_per_img]
            found.append({"boxes": own[keep], "labels": label[keep], "scores": score[keep]})
        return found

    def forward(self, features, proposals, image_shapes, targets=None):
        if self.training:
            proposals, matched, labels, regression_targets = self.select_training_samples(proposals, targets)
        hidden = self.box_head(self.box_roi_pool(features, proposals, image_shapes))
        class_logits, box_regression = self.box_predictor(hidden)
        losses, result = {}, []
        if self.training:
            losses["loss_classifier"], losses["loss_box_reg"] = fastrcnn_loss(class_logits, box_regression, labels, regression_targets)
            positive = [wisp.where(label > 0)[0] for label in labels]
            regions = [own[places] for own, places in zip(proposals, positive)]
            matched = [own[places] for own, places in zip(matched, positive)]
        else:
            result = self.postprocess_detections(class_logits, box_regression, proposals, image_shapes)
            regions = [found["boxes"] for found in result]
        if self.has_mask():
            logits = self.mask_predictor(self.mask_head(self.mask_roi_pool(features, regions, image_shapes)))
            if self.training:
                losses["loss_mask"] = maskrcnn_loss(
                    logits, regions, [target["masks"] for target in targets], [target["labels"] for target in targets], matched
                )
            else:
                for found, masks in zip(result, maskrcnn_inference(logits, [found["labels"] for found in result])):
                    found["masks"] = masks
        if self.has_keypoint():
            logits = self.keypoint_predictor(self.keypoint_head(self.keypoint_roi_pool(features, regions, image_shapes)))
            if self.training:
                losses["loss_keypoint"] = _keypoints.loss(logits, regions, [target["keypoints"] for target in targets], matched)
            else:
                for found, (points, scores) in zip(result, _keypoints.inference(logits, regions)):
                    found["keypoints"], found["keypoints_scores"] = points, scores
        return result, losses
