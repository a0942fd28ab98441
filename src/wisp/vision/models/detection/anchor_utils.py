"""Anchors: boxes of several sizes and shapes around each place of the feature maps."""

import wisp
from wisp import nn

__all__ = ["AnchorGenerator"]


class AnchorGenerator(nn.Module):
    """Anchors of images: for each level of features `sizes` in pixels, and `aspect_ratios` of height to width.

    >>> import wisp
    >>> from wisp.vision.models.detection.anchor_utils import AnchorGenerator
    >>> AnchorGenerator(((32,),), ((0.5, 1.0),)).cell_anchors[0]
    tensor([[-23., -11.,  23.,  11.],
            [-16., -16.,  16.,  16.]])
    """

    def __init__(self, sizes=((128, 256, 512),), aspect_ratios=((0.5, 1.0, 2.0),)):
        super().__init__()
        if not isinstance(sizes[0], (list, tuple)):
            sizes = tuple((size,) for size in sizes)
        if not isinstance(aspect_ratios[0], (list, tuple)):
            aspect_ratios = (aspect_ratios,) * len(sizes)
        self.sizes, self.aspect_ratios = sizes, aspect_ratios
        self.cell_anchors = [self.generate_anchors(*pair) for pair in zip(sizes, aspect_ratios)]

    def generate_anchors(self, scales, aspect_ratios, dtype=None, device="cpu"):
        ratios = wisp.as_tensor(aspect_ratios, dtype=dtype or wisp.float32, device=device).sqrt()
        scales = wisp.as_tensor(scales, dtype=ratios.dtype, device=device)
        heights, widths = (ratios[:, None] * scales).flatten(), (1 / ratios[:, None] * scales).flatten()
        return (wisp.stack((-widths, -heights, widths, heights), 1) / 2).round()

    def num_anchors_per_location(self):
        return [len(sizes) * len(ratios) for sizes, ratios in zip(self.sizes, self.aspect_ratios)]

    def grid_anchors(self, grid_sizes, strides):
        if not len(grid_sizes) == len(strides) == len(self.cell_anchors):
            raise ValueError(
                "Anchors should be Tuple[Tuple[int]] because each feature map could potentially have different sizes and "
                f"aspect ratios. There needs to be a match between the number of feature maps passed ({len(grid_sizes)}) "
                f"and the number of sizes / aspect ratios specified ({len(self.cell_anchors)})."
            )
        anchors = []
        for (height, width), (down, across), base in zip(grid_sizes, strides, self.cell_anchors):
            rows, columns = wisp.arange(height, device=base.device) * down, wisp.arange(width, device=base.device) * across
            y, x = wisp.meshgrid(rows, columns, indexing="ij")
            shifts = wisp.stack((x, y, x, y), -1).reshape(-1, 1, 4)
            anchors.append((shifts + base).reshape(-1, 4))
        return anchors

    def forward(self, image_list, feature_maps):
        like, size = feature_maps[0], image_list.tensors.shape[-2:]
        self.cell_anchors = [anchors.to(dtype=like.dtype, device=like.device) for anchors in self.cell_anchors]
        grids = [tuple(features.shape[-2:]) for features in feature_maps]
        strides = [(size[0] // height, size[1] // width) for height, width in grids]
        anchors = wisp.cat(self.grid_anchors(grids, strides))
        return [anchors for _ in image_list.image_sizes]
