"""Grids of pictures, saving them, and drawing on them."""

import builtins
import math

import wisp
from wisp import _reference
from wisp.vision._pil import image_module

__all__ = ["draw_bounding_boxes", "draw_keypoints", "draw_segmentation_masks", "flow_to_image", "make_grid", "save_image"]


@wisp.no_grad()
def make_grid(tensor, nrow=8, padding=2, normalize=False, value_range=None, scale_each=False, pad_value=0.0, range=None):
    """Pictures [N, C, H, W] (or a list of them) side by side in one picture, `nrow` in a row.

    >>> import wisp
    >>> from wisp.vision.utils import make_grid
    >>> make_grid(wisp.ones(4, 1, 6, 6), nrow=2).shape
    torch.Size([3, 18, 18])
    """
    if not isinstance(tensor, wisp.Tensor):
        if not isinstance(tensor, (list, tuple)) or not all(isinstance(part, wisp.Tensor) for part in tensor):
            raise TypeError(f"tensor or list of tensors expected, got {type(tensor)}")
        tensor = wisp.stack(list(tensor))
    value_range = range if value_range is None else value_range
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = (tensor.expand(3, -1, -1) if tensor.shape[0] == 1 else tensor).unsqueeze(0)
    if tensor.dim() == 4 and tensor.shape[1] == 1:
        tensor = tensor.expand(-1, 3, -1, -1)
    if normalize:
        tensor = tensor.clone()

        def spread(picture):
            low, high = value_range if value_range is not None else (float(picture.min()), float(picture.max()))
            picture.clamp_(low, high).sub_(low).div_(max(high - low, 1e-5))

        for picture in tensor if scale_each else [tensor]:
            spread(picture)
    if tensor.shape[0] == 1:
        return tensor.squeeze(0)
    count, channels, height, width = tensor.shape
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    height, width = height + padding, width + padding
    grid = tensor.new_full((channels, height * rows + padding, width * columns + padding), pad_value)
    for index in builtins.range(count):
        top, left = index // columns * height + padding, index % columns * width + padding
        grid[:, top : top + height - padding, left : left + width - padding] = tensor[index]
    return grid


@wisp.no_grad()
def save_image(tensor, fp, format=None, **kwargs):
    """Save pictures as one file; more than one become a grid (its arguments are make_grid's)."""
    Image = image_module("save_image")
    grid = make_grid(tensor, **kwargs)
    array = grid.mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to("cpu", wisp.uint8).numpy()
    Image.fromarray(array).save(fp, format=format)


def _colours(colors, count):
    if colors is None:
        palette = [2**25 - 1, 2**15 - 1, 2**21 - 1]
        return [tuple((index * part) % 255 for part in palette) for index in builtins.range(count)]
    if isinstance(colors, list):
        if len(colors) < count:
            raise ValueError(f"Number of colors ({len(colors)}) must be larger than the number of objects ({count})")
        colours = colors
    else:
        colours = [colors] * count
    from PIL import ImageColor

    return [ImageColor.getrgb(colour) if isinstance(colour, str) else tuple(colour) for colour in colours]


def _drawable(image, what):
    if not isinstance(image, wisp.Tensor):
        raise TypeError(f"{what}: Tensor expected, got {type(image)}")
    if image.dim() != 3 or image.shape[0] not in (1, 3):
        raise ValueError(f"{what}: expected a picture [3, H, W] or [1, H, W], got {list(image.shape)}")
    if not (image.dtype == wisp.uint8 or image.is_floating_point()):
        raise ValueError(f"{what}: the image dtype must be uint8 or float, got {image.dtype}")
    image_module(what)
    from wisp.vision.transforms.functional import convert_image_dtype

    picture = image.expand(3, -1, -1) if image.shape[0] == 1 else image
    return convert_image_dtype(picture, wisp.uint8)


def _drawn(picture, original):
    from wisp.vision.transforms.functional import convert_image_dtype, pil_to_tensor

    return convert_image_dtype(pil_to_tensor(picture), original.dtype)


@wisp.no_grad()
def draw_bounding_boxes(
    image, boxes, labels=None, colors=None, fill=False, width=1, font=None, font_size=None, label_colors=None, fill_labels=False
):
    """The picture with boxes [N, 4] (corners) and labels drawn on it."""
    from wisp.vision.transforms.functional import to_pil_image

    picture = _drawable(image, "draw_bounding_boxes")
    if boxes.numel() == 0:
        return image
    if (boxes[:, 0] > boxes[:, 2]).any() or (boxes[:, 1] > boxes[:, 3]).any():
        raise ValueError("Boxes need to be in (xmin, ymin, xmax, ymax) format. Use torchvision.ops.box_convert to convert them")
    if labels is not None and len(labels) != len(boxes):
        raise ValueError(f"The number of boxes ({len(boxes)}) and labels ({len(labels)}) mismatch. Please specify labels for each box.")
    from PIL import ImageDraw, ImageFont

    drawn = to_pil_image(picture)
    draw = ImageDraw.Draw(drawn, "RGBA") if fill else ImageDraw.Draw(drawn)
    letters = ImageFont.truetype(font, font_size or 10) if font else ImageFont.load_default()
    colours = _colours(colors, len(boxes))
    for box, colour, label in zip(boxes.to(wisp.int64).tolist(), colours, labels or [None] * len(boxes)):
        draw.rectangle(box, width=width, outline=colour, fill=(*colour[:3], 100) if fill else None)
        if label is not None:
            draw.text((box[0] + width + 1, box[1] + width + 1), label, fill=colour, font=letters)
    return _drawn(drawn, image)


@wisp.no_grad()
def draw_segmentation_masks(image, masks, alpha=0.8, colors=None):
    """The picture with boolean masks [N, H, W] laid over it in colours."""
    picture = _drawable(image, "draw_segmentation_masks")
    masks = masks[None] if masks.dim() == 2 else masks
    if masks.dtype != wisp.bool or masks.shape[-2:] != picture.shape[-2:]:
        raise ValueError(f"The masks must be of dtype bool and of the image's size, got {masks.dtype} {list(masks.shape)}")
    from wisp.vision.transforms.functional import convert_image_dtype

    over = picture.clone()
    for mask, colour in zip(masks, _colours(colors, len(masks))):
        over[:, mask] = wisp.tensor(colour[:3], dtype=wisp.uint8)[:, None]
    over[:, masks.sum(0) > 1] = 0  # where masks overlap, no colour is the right one
    mixed = picture.float() * (1 - alpha) + over.float() * alpha
    return convert_image_dtype(mixed.to(wisp.uint8), image.dtype)


@wisp.no_grad()
def draw_keypoints(image, keypoints, connectivity=None, colors=None, radius=2, width=3, visibility=None):
    """The picture with points [instances, points, 2] and lines between them."""
    from wisp.vision.transforms.functional import to_pil_image

    picture = _drawable(image, "draw_keypoints")
    if keypoints.dim() != 3:
        raise ValueError("keypoints must be of shape (num_instances, K, 2)")
    from PIL import ImageDraw

    drawn = to_pil_image(picture)
    draw = ImageDraw.Draw(drawn)
    seen = wisp.ones(keypoints.shape[:2]) if visibility is None else visibility
    colour = _colours(colors if colors is not None else "red", 1)[0]
    for points, shown in zip(keypoints.tolist(), seen.tolist()):
        for (x, y), visible in zip((point[:2] for point in points), shown):
            if visible:
                draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)
        for start, end in connectivity or ():
            if shown[start] and shown[end]:
                draw.line([tuple(points[start][:2]), tuple(points[end][:2])], width=width)
    return _drawn(drawn, image)


def flow_to_image(flow):
    """An optical flow [2, H, W] as colours: the hue is the direction, the strength the speed."""
    single = flow.dim() == 3
    flow = flow.unsqueeze(0) if single else flow
    speed = flow.square().sum(1).sqrt()
    speed = speed / (speed.amax((1, 2), keepdim=True) + 1e-6)
    from wisp.vision.transforms._color import _from_hsv

    hue = (wisp.atan2(-flow[:, 1], -flow[:, 0]) / math.pi + 1) / 2
    made = (_from_hsv(wisp.stack((hue % 1.0, speed, wisp.ones_like(speed)), 1)) * 255).to(wisp.uint8)
    return made[0] if single else made


def _generate_color_palette(num_objects):
    return _colours(None, num_objects)


_reference.attach(__name__, globals())
