"""Losses of pairs of boxes."""

from wisp.vision.ops import boxes as _boxes

__all__ = ["complete_box_iou_loss", "distance_box_iou_loss", "generalized_box_iou_loss"]


def _loss(function, boxes1, boxes2, reduction):
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"Invalid Value for arg 'reduction': '{reduction}'. Supported reduction modes: 'none', 'mean', 'sum'")
    # of all pairs, each box with its own
    loss = 1 - function(boxes1[..., None, :], boxes2[..., None, :]).squeeze(-1).squeeze(-1)
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean() if loss.numel() else 0.0 * loss.sum()


def generalized_box_iou_loss(boxes1, boxes2, reduction="none", eps=1e-7):
    """1 - generalized_box_iou of each pair."""
    return _loss(_boxes.generalized_box_iou, boxes1, boxes2, reduction)


def distance_box_iou_loss(boxes1, boxes2, reduction="none", eps=1e-7):
    """1 - distance_box_iou of each pair."""
    return _loss(lambda a, b: _boxes.distance_box_iou(a, b, eps), boxes1, boxes2, reduction)


def complete_box_iou_loss(boxes1, boxes2, reduction="none", eps=1e-7):
    """1 - complete_box_iou of each pair."""
    return _loss(lambda a, b: _boxes.complete_box_iou(a, b, eps), boxes1, boxes2, reduction)
