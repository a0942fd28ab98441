"""Keypoints as places in heat maps of regions, and back."""

import wisp
from wisp.nn import functional as F


def to_heatmap(keypoints, rois, size):
    """The place of each keypoint [K, points, 3] in the map of its region, as one number, and whether it is visible and inside."""
    corner, scale = rois[:, None, :2], size / (rois[:, None, 2:] - rois[:, None, :2])
    place = ((keypoints[..., :2] - corner) * scale).floor().long()
    place = wisp.where(keypoints[..., :2] == rois[:, None, 2:], size - 1, place)
    valid = ((place >= 0) & (place < size)).all(-1) & (keypoints[..., 2] > 0)
    return (place[..., 1] * size + place[..., 0]) * valid, valid


def loss(logits, proposals, gt_keypoints, matched):
    """The loss of the places of the visible keypoints."""
    size = logits.shape[-1]
    found = [to_heatmap(own[places], boxes, size) for own, boxes, places in zip(gt_keypoints, proposals, matched)]
    targets, valid = wisp.cat([part[0].flatten() for part in found]), wisp.cat([part[1].flatten() for part in found])
    valid = wisp.where(valid)[0]
    if logits.numel() == 0 or len(valid) == 0:
        return logits.sum() * 0
    return F.cross_entropy(logits.reshape(-1, size * size)[valid], targets[valid])


def inference(logits, boxes):
    """Per image: keypoints [K, points, 3] at the tops of the maps, brought to the sizes of the boxes, and their scores."""
    result = []
    for maps, own in zip(logits.split([len(part) for part in boxes]), boxes):
        points, scores = [], []
        for heat, box in zip(maps, own):
            width, height = (box[2:] - box[:2]).clamp(min=1).tolist()
            across, down = max(1, int(-(-width // 1))), max(1, int(-(-height // 1)))
            resized = F.interpolate(heat[None], size=(down, across), mode="bicubic", align_corners=False)[0]
            top = resized.flatten(1).argmax(1)
            x, y = (top % across + 0.5) * (width / across) + box[0], (top // across + 0.5) * (height / down) + box[1]
            points.append(wisp.stack((x, y, wisp.ones_like(x)), 1))
            scores.append(resized.flatten(1).gather(1, top[:, None])[:, 0])
        count = logits.shape[1]
        result.append((wisp.stack(points), wisp.stack(scores)) if points else (logits.new_zeros(0, count, 3), logits.new_zeros(0, count)))
    return result
