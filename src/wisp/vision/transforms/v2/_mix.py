"""Transforms of a whole batch: two images become one, and so do their labels."""

import math

import wisp
from wisp.utils import _pytree


class _Mix(wisp.nn.Module):
    def __init__(self, *, alpha=1.0, num_classes=None, labels_getter="default"):
        super().__init__()
        self.alpha, self.num_classes, self.labels_getter = float(alpha), num_classes, labels_getter

    def forward(self, *inputs):
        sample = inputs if len(inputs) > 1 else inputs[0]
        flat, spec = _pytree.tree_flatten(sample)
        labels = self.labels_getter(sample) if callable(self.labels_getter) else None
        if labels is None:
            labels = next(
                (
                    v
                    for v in flat
                    if isinstance(v, wisp.Tensor) and (v.dim() == 1 and not v.is_floating_point() or v.dim() == 2 and v.is_floating_point())
                ),
                None,
            )
        images = next((v for v in flat if isinstance(v, wisp.Tensor) and v.dim() == 4), None)
        name = type(self).__name__
        if images is None or labels is None:
            raise ValueError(f"{name}: expected a batch of images [N, C, H, W] and labels [N]")
        if labels.dim() == 1 and self.num_classes is None:
            raise ValueError(f"{name}: num_classes must be given where labels are numbers of classes")
        share = float(wisp.distributions.Beta(self.alpha, self.alpha).sample())
        mixed, share = self.mix(images, share)
        one_hot = wisp.nn.functional.one_hot(labels, self.num_classes).to(wisp.float32) if labels.dim() == 1 else labels.float()
        target = one_hot * share + one_hot.roll(1, 0) * (1.0 - share)
        return _pytree.tree_unflatten([mixed if v is images else target if v is labels else v for v in flat], spec)


class MixUp(_Mix):
    """Each image of a batch mixed with its neighbour.

    >>> import wisp
    >>> from wisp.vision.transforms import v2
    >>> images, labels = v2.MixUp(num_classes=3)(wisp.rand(4, 3, 8, 8), wisp.tensor([0, 1, 2, 0]))
    >>> images.shape, labels.shape
    (torch.Size([4, 3, 8, 8]), torch.Size([4, 3]))
    """

    def mix(self, images, share):
        return images * share + images.roll(1, 0) * (1.0 - share), share


class CutMix(_Mix):
    """A rectangle of each image of a batch replaced by its neighbour's."""

    def mix(self, images, share):
        height, width = images.shape[-2:]
        row, column = int(wisp.randint(height, ())), int(wisp.randint(width, ()))
        half = 0.5 * math.sqrt(1.0 - share)
        down, across = int(half * height), int(half * width)
        top, bottom = max(row - down, 0), min(row + down, height)
        left, right = max(column - across, 0), min(column + across, width)
        mixed = images.clone()
        mixed[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
        return mixed, 1.0 - (bottom - top) * (right - left) / (height * width)
