"""Boxes as offsets from others, matching of boxes, and choosing some of them for the loss."""

import math

import wisp

__all__ = ["BalancedPositiveNegativeSampler", "BoxCoder", "Matcher"]


class BoxCoder:
    """Boxes as offsets from reference boxes: of the centres in parts of the sides, and logarithms of the sides.

    >>> import wisp
    >>> from wisp.vision.models.detection._utils import BoxCoder
    >>> coder, reference = BoxCoder((1.0, 1.0, 1.0, 1.0)), wisp.tensor([[0.0, 0.0, 4.0, 4.0]])
    >>> coder.encode_single(wisp.tensor([[1.0, 1.0, 5.0, 5.0]]), reference)
    tensor([[0.2500, 0.2500, 0.0000, 0.0000]])
    """

    def __init__(self, weights, bbox_xform_clip=math.log(1000.0 / 16)):
        self.weights, self.bbox_xform_clip = weights, bbox_xform_clip

    def encode(self, reference_boxes, proposals):
        counts = [len(part) for part in reference_boxes]
        return self.encode_single(wisp.cat(list(reference_boxes)), wisp.cat(list(proposals))).split(counts)

    def encode_single(self, reference_boxes, proposals):
        (centre, size), (other, scale) = _centres(reference_boxes), _centres(proposals)
        return wisp.cat(((centre - other) / scale, (size / scale).log()), 1) * proposals.new_tensor(self.weights)

    def decode(self, rel_codes, boxes):
        return self.decode_single(rel_codes, wisp.cat(list(boxes))).unflatten(1, (rel_codes.shape[-1] // 4, 4))

    def decode_single(self, rel_codes, boxes):
        centre, size = _centres(boxes.to(rel_codes.dtype))
        codes = rel_codes.unflatten(1, (rel_codes.shape[-1] // 4, 4)) / rel_codes.new_tensor(self.weights)
        centre = codes[..., :2] * size[:, None] + centre[:, None]
        half = codes[..., 2:].clamp(max=self.bbox_xform_clip).exp() * size[:, None] / 2
        return wisp.cat((centre - half, centre + half), -1).flatten(1)


def _centres(boxes):
    size = boxes[:, 2:] - boxes[:, :2]
    return boxes[:, :2] + 0.5 * size, size


class Matcher:
    """For each prediction the number of the true box that it overlaps most: -1 below `low_threshold`, -2 between the thresholds.

    With `allow_low_quality_matches` every true box keeps the predictions that overlap it most, however little."""

    BELOW_LOW_THRESHOLD, BETWEEN_THRESHOLDS = -1, -2

    def __init__(self, high_threshold, low_threshold, allow_low_quality_matches=False):
        if low_threshold > high_threshold:
            raise ValueError("low_threshold should be <= high_threshold")
        self.high_threshold, self.low_threshold = high_threshold, low_threshold
        self.allow_low_quality_matches = allow_low_quality_matches

    def __call__(self, match_quality_matrix):
        if match_quality_matrix.numel() == 0:
            raise ValueError(
                f"No {'ground-truth' if match_quality_matrix.shape[0] == 0 else 'proposal'} boxes available for one of the "
                "images during training"
            )
        best, matches = match_quality_matrix.max(0)
        result = matches.masked_fill(best < self.low_threshold, -1)
        result = result.masked_fill((best >= self.low_threshold) & (best < self.high_threshold), -2)
        if self.allow_low_quality_matches:
            highest = match_quality_matrix.amax(1, keepdim=True)
            kept = (match_quality_matrix == highest).any(0)
            result = wisp.where(kept, matches, result)
        return result


class BalancedPositiveNegativeSampler:
    """Random masks of at most `batch_size_per_image` boxes per image, a part of them positive (label >= 1, negative ones have 0)."""

    def __init__(self, batch_size_per_image, positive_fraction):
        self.batch_size_per_image, self.positive_fraction = batch_size_per_image, positive_fraction

    def __call__(self, matched_idxs):
        masks = [], []
        for labels in matched_idxs:
            positive, negative = wisp.where(labels >= 1)[0], wisp.where(labels == 0)[0]
            count = min(len(positive), int(self.batch_size_per_image * self.positive_fraction))
            for places, wanted, found in ((positive, count, masks[0]), (negative, self.batch_size_per_image - count, masks[1])):
                chosen = places[wisp.randperm(len(places), device=places.device)[:wanted]]
                found.append(wisp.zeros_like(labels, dtype=wisp.uint8).index_fill(0, chosen, 1))
        return masks


def overwrite_eps(model, eps):
    """Another epsilon for frozen norms, as published weights want it."""
    from wisp.vision.ops import FrozenBatchNorm2d

    for module in model.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.eps = eps


def check_targets(targets, needs=("boxes", "labels")):
    """Raise errors about targets of training that are wrong."""
    if targets is None:
        raise AssertionError("targets should not be none when in training mode")
    for target in targets:
        missing = [name for name in needs if name not in target]
        if missing:
            raise AssertionError(f"every target needs {', '.join(missing)}")
        boxes = target["boxes"]
        if not isinstance(boxes, wisp.Tensor):
            raise AssertionError(f"Expected target boxes to be of type Tensor, got {type(boxes)}.")
        if boxes.dim() != 2 or boxes.shape[-1] != 4:
            raise AssertionError(f"Expected target boxes to be a tensor of shape [N, 4], got {tuple(boxes.shape)}.")
        if target["labels"].dtype != wisp.int64:
            raise TypeError(f"target labels must of int64 type, instead got {target['labels'].dtype}")


def check_boxes(targets):
    for index, target in enumerate(targets):
        boxes = target["boxes"]
        degenerate = boxes[:, 2:] <= boxes[:, :2]
        if bool(degenerate.any()):
            box = boxes[wisp.where(degenerate.any(1))[0][0]].tolist()
            raise AssertionError(
                f"All bounding boxes should have positive height and width. Found invalid box {box} for target at index {index}."
            )


def seen(model, images, targets):
    """What every detector begins with: the images' first sizes, images and targets transformed and checked, features by name."""
    if model.training:
        check_targets(targets)
    sizes = [tuple(image.shape[-2:]) for image in images]
    images, targets = model.transform(images, targets)
    if targets is not None:
        check_boxes(targets)
    features = model.backbone(images.tensors)
    return sizes, images, targets, {"0": features} if isinstance(features, wisp.Tensor) else features
