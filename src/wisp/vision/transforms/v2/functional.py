"""The image functions for everything that a sample may hold: images, videos, masks, boxes."""

import functools

import wisp
from wisp.vision import tv_tensors
from wisp.vision.transforms import functional as _v1
from wisp.vision.transforms._convert import pair, size_of
from wisp.vision.transforms._geometry import InterpolationMode, _sides, output_size  # noqa: F401
from wisp.vision.transforms.functional import (  # noqa: F401
    convert_image_dtype,
    get_dimensions,
    get_image_num_channels,
    get_image_size,
    pil_to_tensor,
    to_pil_image,
    to_tensor,
)

_COLOURS = """
    adjust_brightness adjust_contrast adjust_gamma adjust_hue adjust_saturation adjust_sharpness autocontrast equalize invert
    posterize rgb_to_grayscale solarize gaussian_blur normalize erase to_grayscale""".split()
_SHAPES = """
    affine center_crop crop elastic_transform hflip pad perspective resize resized_crop rotate vflip five_crop ten_crop""".split()


def _boxes_as(boxes, format):
    """The numbers of the boxes in another format."""
    return (
        boxes.as_subclass(wisp.Tensor)
        if boxes.format == format
        else convert_bounding_box_format(boxes, new_format=format).as_subclass(wisp.Tensor)
    )


def convert_bounding_box_format(inpt, old_format=None, new_format=None, inplace=False):
    """Boxes in another format.

    >>> from wisp.vision import tv_tensors
    >>> from wisp.vision.transforms.v2 import functional as F
    >>> boxes = tv_tensors.BoundingBoxes([[1, 2, 3, 5]], format="XYXY", canvas_size=(8, 8))
    >>> F.convert_bounding_box_format(boxes, new_format="XYWH").tolist()
    [[1, 2, 2, 3]]
    """
    named = lambda value: tv_tensors.BoundingBoxFormat[value.upper()] if isinstance(value, str) else value
    old, new = named(old_format if old_format is not None else getattr(inpt, "format", None)), named(new_format)
    if old is None or new is None:
        raise TypeError("convert_bounding_box_format: old_format (for plain tensors) and new_format must be given")
    data = inpt.as_subclass(wisp.Tensor) if isinstance(inpt, tv_tensors.TVTensor) else inpt
    if old is not new:
        a, b, c, d = data.unbind(-1)
        half = (lambda v: v / 2) if data.is_floating_point() else (lambda v: wisp.div(v, 2, rounding_mode="floor"))
        if old.value == "XYWH":
            a, b, c, d = a, b, a + c, b + d
        elif old.value == "CXCYWH":
            left, top = a - half(c), b - half(d)
            a, b, c, d = left, top, left + c, top + d
        if new.value == "XYWH":
            c, d = c - a, d - b
        elif new.value == "CXCYWH":
            a, b, c, d = half(a + c), half(b + d), c - a, d - b
        data = wisp.stack((a, b, c, d), -1)
    return tv_tensors.wrap(data, like=inpt, format=new) if isinstance(inpt, tv_tensors.BoundingBoxes) else data


def _again(boxes, corners, canvas):
    """Corners as boxes of the same format within a canvas."""
    made = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=canvas)
    return clamp_bounding_boxes(convert_bounding_box_format(made, new_format=boxes.format))


def clamp_bounding_boxes(inpt, format=None, canvas_size=None):
    """Boxes cut off at the edges of the image."""
    if not isinstance(inpt, tv_tensors.BoundingBoxes):
        inpt = tv_tensors.BoundingBoxes(inpt, format=format, canvas_size=canvas_size)
    height, width = inpt.canvas_size
    a, b, c, d = _boxes_as(inpt, tv_tensors.BoundingBoxFormat.XYXY).unbind(-1)
    corners = wisp.stack((a.clamp(0, width), b.clamp(0, height), c.clamp(0, width), d.clamp(0, height)), -1)
    made = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=inpt.canvas_size)
    return convert_bounding_box_format(made, new_format=inpt.format)


def _hflip_boxes(boxes, corners):
    width = boxes.canvas_size[1]
    return wisp.stack((width - corners[..., 2], corners[..., 1], width - corners[..., 0], corners[..., 3]), -1), boxes.canvas_size


def _vflip_boxes(boxes, corners):
    height = boxes.canvas_size[0]
    return wisp.stack((corners[..., 0], height - corners[..., 3], corners[..., 2], height - corners[..., 1]), -1), boxes.canvas_size


def _resize_boxes(boxes, corners, size, interpolation=None, max_size=None, antialias=True):
    height, width = boxes.canvas_size
    target = output_size(height, width, size, max_size)
    across, down = target[1] / width, target[0] / height
    return (corners * wisp.tensor([across, down, across, down])).to(corners.dtype), target


def _crop_boxes(boxes, corners, top, left, height, width):
    return corners - wisp.tensor([left, top, left, top], dtype=corners.dtype), (height, width)


def _pad_boxes(boxes, corners, padding, fill=0, padding_mode="constant"):
    left, top, right, bottom = _sides(padding)
    height, width = boxes.canvas_size
    return corners + wisp.tensor([left, top, left, top], dtype=corners.dtype), (height + top + bottom, width + left + right)


def _center_crop_boxes(boxes, corners, output_size):
    height, width = pair(output_size, "center_crop")
    rows, columns = boxes.canvas_size
    return _crop_boxes(boxes, corners, round((rows - height) / 2.0), round((columns - width) / 2.0), height, width)


def _resized_crop_boxes(boxes, corners, top, left, height, width, size, interpolation=None, antialias=True):
    moved, canvas = _crop_boxes(boxes, corners, top, left, height, width)
    return _resize_boxes(_again(boxes, moved, canvas), moved, size)


_BOXES = {
    "hflip": _hflip_boxes,
    "vflip": _vflip_boxes,
    "resize": _resize_boxes,
    "crop": _crop_boxes,
    "pad": _pad_boxes,
    "center_crop": _center_crop_boxes,
    "resized_crop": _resized_crop_boxes,
}


def _shape_function(name):
    plain = getattr(_v1, name)
    modes = name in ("affine", "perspective", "resize", "resized_crop", "rotate", "elastic_transform")

    @functools.wraps(plain)
    def function(inpt, *args, **kwargs):
        if isinstance(inpt, tv_tensors.BoundingBoxes):
            if name not in _BOXES:
                raise NotImplementedError(f"{name}: boxes cannot be transformed by it in Wisp so far; images and masks can")
            corners, canvas = _BOXES[name](inpt, _boxes_as(inpt, tv_tensors.BoundingBoxFormat.XYXY), *args, **kwargs)
            return _again(inpt, corners, canvas)
        if not isinstance(inpt, tv_tensors.TVTensor):
            return plain(inpt, *args, **kwargs)
        if isinstance(inpt, tv_tensors.Mask) and modes:
            args = [InterpolationMode.NEAREST if isinstance(value, InterpolationMode) else value for value in args]
            if not any(isinstance(value, InterpolationMode) for value in args):
                kwargs["interpolation"] = InterpolationMode.NEAREST
        result = plain(inpt.as_subclass(wisp.Tensor), *args, **kwargs)
        again = lambda value: tv_tensors.wrap(value, like=inpt)
        return tuple(map(again, result)) if isinstance(result, tuple) else again(result)

    return function


def _colour_function(name):
    plain = getattr(_v1, name)

    @functools.wraps(plain)
    def function(inpt, *args, **kwargs):
        if isinstance(inpt, (tv_tensors.BoundingBoxes, tv_tensors.Mask)):
            return inpt
        if isinstance(inpt, tv_tensors.TVTensor):
            return tv_tensors.wrap(plain(inpt.as_subclass(wisp.Tensor), *args, **kwargs), like=inpt)
        return plain(inpt, *args, **kwargs)

    return function


globals().update({name: _shape_function(name) for name in _SHAPES})
globals().update({name: _colour_function(name) for name in _COLOURS})
horizontal_flip, vertical_flip, elastic = globals()["hflip"], globals()["vflip"], globals()["elastic_transform"]


def to_image(inpt):
    """A Pillow image, an array [height, width, channels] or a tensor as a tv_tensors.Image."""
    import numpy

    if isinstance(inpt, numpy.ndarray):
        array = inpt[:, :, None] if inpt.ndim == 2 else inpt
        inpt = wisp.from_numpy(numpy.ascontiguousarray(array.transpose(2, 0, 1)))
    return tv_tensors.Image(inpt)


def to_dtype(inpt, dtype=None, scale=False):
    """The tensor in another dtype; with `scale`, from one full range to the other."""
    dtype = dtype or wisp.float32
    if not isinstance(inpt, tv_tensors.TVTensor):
        return convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)
    plain = inpt.as_subclass(wisp.Tensor)
    scaled = scale and isinstance(inpt, (tv_tensors.Image, tv_tensors.Video))
    return tv_tensors.wrap(convert_image_dtype(plain, dtype) if scaled else plain.to(dtype), like=inpt)


to_dtype_image = to_dtype
get_size = lambda inpt: list(size_of(inpt))
get_num_channels = get_image_num_channels


def __getattr__(name):
    for suffix in ("_image", "_mask", "_bounding_boxes", "_video"):
        if name.endswith(suffix) and name[: -len(suffix)] in globals():
            return globals()[name[: -len(suffix)]]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
