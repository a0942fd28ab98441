"""Boxes as rows of four numbers: x and y of the first corner, x and y of the second."""

import math

import wisp

__all__ = """
    batched_nms box_area box_convert box_iou clip_boxes_to_image complete_box_iou distance_box_iou generalized_box_iou
    masks_to_boxes nms remove_small_boxes""".split()


def _wide(values):
    return (
        values
        if values.is_floating_point() and values.dtype not in (wisp.float16, wisp.bfloat16)
        else values.float()
        if values.is_floating_point()
        else values.long()
    )


def box_area(boxes):
    """The areas of boxes [N, 4].

    >>> import wisp
    >>> from wisp.vision.ops import box_area
    >>> box_area(wisp.tensor([[0., 0., 2., 3.]]))
    tensor([6.])
    """
    boxes = _wide(boxes)
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _box_inter_union(one, other):
    """Intersections and unions of all pairs [N, M]."""
    low = wisp.maximum(one[..., :, None, :2], other[..., None, :, :2])
    high = wisp.minimum(one[..., :, None, 2:], other[..., None, :, 2:])
    inter = _wide(high - low).clamp(min=0).prod(-1)
    return inter, box_area(one)[..., :, None] + box_area(other)[..., None, :] - inter


def box_iou(boxes1, boxes2, fmt="xyxy"):
    """Intersection over union of all pairs: [N, 4] and [M, 4] give [N, M].

    >>> import wisp
    >>> from wisp.vision.ops import box_iou
    >>> box_iou(wisp.tensor([[0., 0., 2., 2.]]), wisp.tensor([[1., 0., 3., 2.]]))
    tensor([[0.3333]])
    """
    inter, union = _box_inter_union(box_convert(boxes1, fmt, "xyxy"), box_convert(boxes2, fmt, "xyxy"))
    return inter / union


def _hull(one, other):
    """Widths and heights of the boxes around all pairs."""
    low = wisp.minimum(one[..., :, None, :2], other[..., None, :, :2])
    high = wisp.maximum(one[..., :, None, 2:], other[..., None, :, 2:])
    return _wide(high - low).clamp(min=0)


def generalized_box_iou(boxes1, boxes2):
    """Intersection over union, less the empty part of the box around both."""
    inter, union = _box_inter_union(boxes1, boxes2)
    around = _hull(boxes1, boxes2).prod(-1)
    return inter / union - (around - union) / around


def distance_box_iou(boxes1, boxes2, eps=1e-7):
    """Intersection over union, less the squared distance of the centres in parts of the box around both."""
    inter, union = _box_inter_union(boxes1, boxes2)
    diagonal = _hull(boxes1, boxes2).square().sum(-1) + eps
    centre = lambda boxes: (boxes[..., :2] + boxes[..., 2:]) / 2
    apart = (centre(boxes1)[..., :, None, :] - centre(boxes2)[..., None, :, :]).square().sum(-1)
    return inter / union - apart / diagonal


def complete_box_iou(boxes1, boxes2, eps=1e-7):
    """`distance_box_iou`, less a term for different shapes."""
    inter, union = _box_inter_union(boxes1, boxes2)
    iou = inter / union
    shape = lambda boxes: wisp.atan((boxes[..., 2] - boxes[..., 0]) / (boxes[..., 3] - boxes[..., 1]))
    differ = (4 / math.pi**2) * (shape(boxes1)[..., :, None] - shape(boxes2)[..., None, :]).square()
    with wisp.no_grad():
        weight = differ / (1 - iou + differ + eps)
    return distance_box_iou(boxes1, boxes2, eps) - weight * differ


def nms(boxes, scores, iou_threshold):
    """Which boxes stay when those that overlap a better one by more than the threshold are left out; best first.

    >>> import wisp
    >>> from wisp.vision.ops import nms
    >>> nms(wisp.tensor([[0., 0., 2., 2.], [0., 0., 2., 1.9], [5., 5., 6., 6.]]), wisp.tensor([0.8, 0.9, 0.1]), 0.5)
    tensor([1, 2])
    """
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {list(boxes.shape)}")
    if scores.dim() != 1 or len(scores) != len(boxes):
        raise RuntimeError(f"nms: expected one score per box, got {len(boxes)} boxes and scores {list(scores.shape)}")
    import numpy

    corners = boxes.detach().cpu().double().numpy()
    order = scores.detach().cpu().sort(descending=True, stable=True).indices.numpy()
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    keep = []
    while len(order):
        first, rest = order[0], order[1:]
        keep.append(int(first))
        low = numpy.maximum(corners[first, :2], corners[rest, :2])
        high = numpy.minimum(corners[first, 2:], corners[rest, 2:])
        inter = numpy.clip(high - low, 0, None).prod(1)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            overlap = inter / (areas[first] + areas[rest] - inter)
        order = rest[~(overlap > iou_threshold)]
    return wisp.tensor(keep, dtype=wisp.int64, device=boxes.device)


def batched_nms(boxes, scores, idxs, iou_threshold):
    """`nms` within each class of `idxs`."""
    if boxes.numel() == 0:
        return wisp.empty(0, dtype=wisp.int64, device=boxes.device)
    # far apart by class, so that no box meets one of another class
    offsets = idxs.to(boxes) * (boxes.max() + 1)
    return nms(boxes + offsets[:, None], scores, iou_threshold)


def remove_small_boxes(boxes, min_size):
    """The numbers of the boxes whose sides are at least `min_size`."""
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return wisp.where((width >= min_size) & (height >= min_size))[0]


def clip_boxes_to_image(boxes, size):
    """The boxes cut off at the edges of an image of (height, width)."""
    height, width = size
    across, down = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return wisp.stack((across, down), -1).reshape(boxes.shape)


def box_convert(boxes, in_fmt, out_fmt):
    """Boxes in another format: "xyxy", "xywh", "cxcywh".

    >>> import wisp
    >>> from wisp.vision.ops import box_convert
    >>> box_convert(wisp.tensor([[1., 2., 3., 5.]]), "xyxy", "cxcywh")
    tensor([[2.0000, 3.5000, 2.0000, 3.0000]])
    """
    known = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in known or out_fmt not in known:
        raise ValueError(f"Unsupported Bounding Box Conversions for given in_fmt {in_fmt} and out_fmt {out_fmt}")
    if in_fmt == out_fmt:
        return boxes.clone()
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "xywh":
        a, b, c, d = a, b, a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if out_fmt == "xywh":
        c, d = c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return wisp.stack((a, b, c, d), -1)


def masks_to_boxes(masks):
    """The boxes around the masks [N, H, W]."""
    if masks.numel() == 0:
        return wisp.zeros(0, 4, device=masks.device)
    boxes = wisp.zeros(masks.shape[0], 4, device=masks.device)
    for index, mask in enumerate(masks):
        rows, columns = wisp.where(mask != 0)
        boxes[index] = wisp.stack((columns.min(), rows.min(), columns.max(), rows.max())).float()
    return boxes
