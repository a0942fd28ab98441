"""Regions of feature pyramids: each box is taken from the level that fits its size."""

import math

import wisp
from wisp import nn
from wisp.vision.ops.layers import roi_align

__all__ = ["MultiScaleRoIAlign"]


class MultiScaleRoIAlign(nn.Module):
    """`roi_align` on the levels of a feature pyramid: boxes [K, 4] per image give [K in all, channels, *output_size].

    >>> import wisp
    >>> from wisp.vision.ops import MultiScaleRoIAlign
    >>> pool = MultiScaleRoIAlign(["a", "b"], 3, 2)
    >>> levels = {"a": wisp.rand(1, 5, 64, 64), "b": wisp.rand(1, 5, 32, 32)}
    >>> pool(levels, [wisp.tensor([[10.0, 10.0, 50.0, 60.0]])], [(512, 512)]).shape
    torch.Size([1, 5, 3, 3])
    """

    def __init__(self, featmap_names, output_size, sampling_ratio, *, canonical_scale=224, canonical_level=4):
        super().__init__()
        self.featmap_names, self.sampling_ratio = featmap_names, sampling_ratio
        self.output_size = (output_size,) * 2 if isinstance(output_size, int) else tuple(output_size)
        self.canonical_scale, self.canonical_level = canonical_scale, canonical_level

    def forward(self, x, boxes, image_shapes):
        levels = [value for name, value in x.items() if name in self.featmap_names]
        whole = [max(shape[axis] for shape in image_shapes) for axis in (0, 1)]
        scales = [2.0 ** round(math.log2(level.shape[-2] / whole[0])) for level in levels]
        numbers = wisp.cat([boxes[0].new_full((len(part), 1), index) for index, part in enumerate(boxes)])
        rois = wisp.cat((numbers, wisp.cat(list(boxes))), 1)
        if len(levels) == 1:
            return roi_align(levels[0], rois, self.output_size, scales[0], self.sampling_ratio)
        sides = ((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2])).sqrt()
        fitting = wisp.floor(self.canonical_level + wisp.log2(sides / self.canonical_scale) + 1e-6)
        first, last = round(-math.log2(scales[0])), round(-math.log2(scales[-1]))
        fitting = (fitting.clamp(first, last) - first).long()
        result = levels[0].new_zeros(len(rois), levels[0].shape[1], *self.output_size)
        for number, (level, scale) in enumerate(zip(levels, scales)):
            chosen = wisp.where(fitting == number)[0]
            part = roi_align(level, rois[chosen], self.output_size, scale, self.sampling_ratio)
            result = result.index_copy(0, chosen, part.to(result.dtype))
        return result

    def __repr__(self):
        return (
            f"{type(self).__name__}(featmap_names={self.featmap_names}, output_size={self.output_size}, "
            f"sampling_ratio={self.sampling_ratio})"
        )
