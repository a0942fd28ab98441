"""Tensors that say what they hold: images, masks, boxes. The v2 transforms treat each as it must be."""

import enum

import wisp
from wisp._tensor import _disabled_torch_function_impl

__all__ = ["BoundingBoxFormat", "BoundingBoxes", "Image", "Mask", "TVTensor", "Video", "is_pure_tensor", "wrap"]


class TVTensor(wisp.Tensor):
    """The base of the classes here; operators return plain tensors."""

    __torch_function__ = _disabled_torch_function_impl

    @staticmethod
    def __new__(cls, data, *, dtype=None, device=None, requires_grad=None):
        from wisp.vision._pil import is_pil

        if is_pil(data):
            from wisp.vision.transforms.functional import pil_to_tensor

            data = pil_to_tensor(data)
        result = wisp.as_tensor(data, dtype=dtype, device=device).as_subclass(cls)
        return result if requires_grad is None else result.requires_grad_(requires_grad)


class Image(TVTensor):
    """An image, [..., channels, height, width].

    >>> import wisp
    >>> from wisp.vision import tv_tensors
    >>> tv_tensors.Image(wisp.ones(4, 5)).shape
    torch.Size([1, 4, 5])
    """

    @staticmethod
    def __new__(cls, data, **options):
        result = TVTensor.__new__(cls, data, **options)
        if result.dim() < 2:
            raise ValueError(f"Image: expected at least 2 dimensions, got {result.dim()}")
        return result.unsqueeze(0).as_subclass(cls) if result.dim() == 2 else result


class Video(TVTensor):
    """A video, [..., time, channels, height, width]."""


class Mask(TVTensor):
    """A mask of the image's size."""


class BoundingBoxFormat(enum.Enum):
    """Corners, corner and size, or centre and size."""

    XYXY, XYWH, CXCYWH = "XYXY", "XYWH", "CXCYWH"


class BoundingBoxes(TVTensor):
    """Boxes [N, 4] in an image of `canvas_size` (height, width).

    >>> from wisp.vision.tv_tensors import BoundingBoxes
    >>> BoundingBoxes([[0, 0, 4, 4]], format="XYXY", canvas_size=(8, 8)).canvas_size
    (8, 8)
    """

    @staticmethod
    def __new__(cls, data, *, format, canvas_size, **options):
        result = TVTensor.__new__(cls, data, **options)
        result = result.unsqueeze(0).as_subclass(cls) if result.dim() == 1 else result
        result.format = BoundingBoxFormat[format.upper()] if isinstance(format, str) else format
        result.canvas_size = tuple(canvas_size)
        return result


def is_pure_tensor(value):
    """Whether the value is a tensor that is none of the classes here."""
    return isinstance(value, wisp.Tensor) and not isinstance(value, TVTensor)


def wrap(wrappee, *, like, **kwargs):
    """The tensor in the class of `like`."""
    if isinstance(like, BoundingBoxes):
        return BoundingBoxes(wrappee, format=kwargs.get("format", like.format), canvas_size=kwargs.get("canvas_size", like.canvas_size))
    return wrappee.as_subclass(type(like))
