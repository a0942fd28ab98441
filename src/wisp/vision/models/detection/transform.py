"""What happens to images before a detection model, and to its results afterwards: norms, sizes, batches."""

import math
import random

import wisp
from wisp import nn
from wisp.nn import functional as F

__all__ = ["GeneralizedRCNNTransform", "ImageList"]


class ImageList:
    """Images of different sizes in one tensor, and their sizes."""

    def __init__(self, tensors, image_sizes):
        self.tensors, self.image_sizes = tensors, image_sizes

    def to(self, device):
        return ImageList(self.tensors.to(device), self.image_sizes)


class GeneralizedRCNNTransform(nn.Module):
    """Normalises images, brings the shorter side to `min_size` (the longer to at most `max_size`) and makes a batch of them."""

    def __init__(self, min_size, max_size, image_mean, image_std, size_divisible=32, fixed_size=None, **options):
        super().__init__()
        self.min_size = tuple(min_size) if isinstance(min_size, (list, tuple)) else (min_size,)
        self.max_size, self.image_mean, self.image_std = max_size, image_mean, image_std
        self.size_divisible, self.fixed_size = size_divisible, fixed_size
        self._skip_resize = options.pop("_skip_resize", False)

    def forward(self, images, targets=None):
        images = list(images)
        targets = None if targets is None else [dict(target) for target in targets]
        for index, image in enumerate(images):
            if image.dim() != 3:
                raise ValueError(f"images is expected to be a list of 3d tensors of shape [C, H, W], got {tuple(image.shape)}")
            images[index], target = self.resize(self.normalize(image), None if targets is None else targets[index])
            if targets is not None:
                targets[index] = target
        return ImageList(self.batch_images(images), [tuple(image.shape[-2:]) for image in images]), targets

    def normalize(self, image):
        if not image.is_floating_point():
            raise TypeError(f"Expected input images to be of floating type (in range [0, 1]), but found type {image.dtype} instead")
        mean, std = (
            wisp.as_tensor(part, dtype=image.dtype, device=image.device)[:, None, None] for part in (self.image_mean, self.image_std)
        )
        return (image - mean) / std

    def resize(self, image, target=None):
        before = image.shape[-2:]
        if self._skip_resize and self.training:
            return image, target
        wanted = random.choice(self.min_size) if self.training else self.min_size[-1]
        if self.fixed_size is not None:
            how = {"size": (self.fixed_size[1], self.fixed_size[0])}
        else:
            scale = min(wanted / min(before), self.max_size / max(before))
            how = {"size": tuple(math.floor(side * scale) for side in before)}
        image = F.interpolate(image[None], mode="bilinear", align_corners=False, **how)[0]
        if target is None:
            return image, target
        target["boxes"] = resize_boxes(target["boxes"], before, image.shape[-2:])
        if "masks" in target:
            target["masks"] = F.interpolate(target["masks"][:, None].float(), **how)[:, 0].byte()
        if "keypoints" in target:
            target["keypoints"] = resize_keypoints(target["keypoints"], before, image.shape[-2:])
        return image, target

    def batch_images(self, images):
        size = [max(image.shape[axis] for image in images) for axis in range(3)]
        size[1:] = (math.ceil(side / self.size_divisible) * self.size_divisible for side in size[1:])
        return wisp.stack([F.pad(image, (0, size[2] - image.shape[2], 0, size[1] - image.shape[1])) for image in images])

    def postprocess(self, result, image_shapes, original_image_sizes):
        if self.training:
            return result
        for found, shape, original in zip(result, image_shapes, original_image_sizes):
            found["boxes"] = resize_boxes(found["boxes"], shape, original)
            if "masks" in found:
                found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], original)
            if "keypoints" in found:
                found["keypoints"] = resize_keypoints(found["keypoints"], shape, original)
        return result

    def __repr__(self):
        resize = f"\n    Resize(min_size={self.min_size}, max_size={self.max_size}, mode='bilinear')"
        return f"{type(self).__name__}(\n    Normalize(mean={self.image_mean}, std={self.image_std}){resize}\n)"


def resize_boxes(boxes, original_size, new_size):
    """Boxes of an image that became another size."""
    down, across = (new / old for new, old in zip(new_size, original_size))
    return boxes * boxes.new_tensor([across, down, across, down])


def resize_keypoints(keypoints, original_size, new_size):
    down, across = (new / old for new, old in zip(new_size, original_size))
    return keypoints * keypoints.new_tensor([across, down, 1.0])


def paste_masks_in_image(masks, boxes, img_shape, padding=1):
    """Masks [N, 1, M, M] of boxes as masks of the whole image [N, 1, H, W]."""
    height, width = img_shape
    if len(masks) == 0:
        return masks.new_empty(0, 1, height, width)
    size = masks.shape[-1]
    masks = F.pad(masks, (padding,) * 4)
    centre, half = (boxes[:, :2] + boxes[:, 2:]) * 0.5, (boxes[:, 2:] - boxes[:, :2]) * 0.5 * ((size + 2 * padding) / size)
    corners = wisp.cat((centre - half, centre + half), 1).long().tolist()
    pasted = []
    for mask, (left, top, right, bottom) in zip(masks, corners):
        size = max(bottom - top + 1, 1), max(right - left + 1, 1)
        mask = F.interpolate(mask[None], size=size, mode="bilinear", align_corners=False)[0, 0]
        whole = masks.new_zeros(height, width)
        x0, x1, y0, y1 = max(left, 0), min(right + 1, width), max(top, 0), min(bottom + 1, height)
        if x1 > x0 and y1 > y0:
            whole[y0:y1, x0:x1] = mask[y0 - top : y1 - top, x0 - left : x1 - left]
        pasted.append(whole)
    return wisp.stack(pasted)[:, None]
