"""Between Pillow images, arrays and tensors, and between dtypes."""

import numbers

import numpy

import wisp
from wisp.vision._pil import image_module, is_pil

# Pillow's modes whose numbers are not bytes
_WIDE = {"I": numpy.int32, "I;16": numpy.uint16, "F": numpy.float32}


def check_image(img, what):
    """Refuse what is neither an image nor a tensor."""
    if not isinstance(img, wisp.Tensor) and not is_pil(img):
        raise TypeError(f"{what}: img should be PIL Image or Tensor. Got {type(img)}")


def _array_of(pic):
    array = numpy.array(pic, _WIDE.get(pic.mode, numpy.uint8), copy=True)
    return 255 * array if pic.mode == "1" else array


def pil_to_tensor(pic):
    """The image as a tensor [channels, height, width] of its own numbers."""
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    array = numpy.array(pic, copy=True)
    array = array.astype(numpy.uint8) if array.dtype == numpy.bool_ else array
    return wisp.from_numpy(array[:, :, None] if array.ndim == 2 else array).permute(2, 0, 1).contiguous()


def to_tensor(pic):
    """An image or array [height, width, channels] as a float tensor [channels, height, width]; bytes become 0 to 1.

    >>> import numpy
    >>> from wisp.vision.transforms.functional import to_tensor
    >>> to_tensor(numpy.full((2, 2, 1), 255, numpy.uint8)).max()
    tensor(1.)
    """
    if isinstance(pic, numpy.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = pic
    elif is_pil(pic):
        array = _array_of(pic)
    else:
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    array = array[:, :, None] if array.ndim == 2 else array
    result = wisp.from_numpy(numpy.ascontiguousarray(array.transpose(2, 0, 1)))
    if result.dtype == wisp.uint8:
        return result.to(wisp.get_default_dtype()).div_(255)
    return result


def to_pil_image(pic, mode=None):
    """A tensor [channels, height, width] or an array [height, width, channels] as a Pillow image; floats are 0 to 1."""
    Image = image_module("to_pil_image")
    if isinstance(pic, wisp.Tensor):
        if pic.dim() not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.dim()} dimensions.")
        pic = pic.detach().cpu()
        pic = pic.unsqueeze(0) if pic.dim() == 2 else pic
        if pic.shape[0] > 4:
            raise ValueError(f"pic should not have > 4 channels. Got {pic.shape[0]} channels.")
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        array = pic.numpy().transpose(1, 2, 0)
    elif isinstance(pic, numpy.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        array = pic[:, :, None] if pic.ndim == 2 else pic
        if array.shape[2] > 4:
            raise ValueError(f"pic should not have > 4 channels. Got {array.shape[2]} channels.")
    else:
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    channels, kind = array.shape[2], array.dtype
    if channels == 1:
        array = numpy.ascontiguousarray(array[:, :, 0])
        expected = {"uint8": "L", "int16": "I;16", "uint16": "I;16", "int32": "I", "float32": "F", "bool": "L"}.get(kind.name)
        if expected is None:
            raise TypeError(f"Input type {kind} is not supported")
        if mode is not None and mode != expected and not (mode == "1" and expected == "L"):
            raise ValueError(f"Incorrect mode ({mode}) supplied for input type {kind}. Should be {expected}")
        if kind == numpy.bool_:
            array = array.astype(numpy.uint8) * 255
        return Image.fromarray(array) if mode != "1" else Image.fromarray(array).convert("1")
    allowed = {2: ("LA",), 3: ("RGB", "YCbCr", "HSV", "LAB"), 4: ("RGBA", "CMYK", "RGBX")}[channels]
    if mode is not None and mode not in allowed:
        raise ValueError(f"Only modes {list(allowed)} are supported for {channels}D inputs")
    if kind != numpy.uint8:
        raise TypeError(f"Input type {kind} is not supported")
    array, mode = numpy.ascontiguousarray(array), mode or allowed[0]
    return Image.frombytes(mode, (array.shape[1], array.shape[0]), array.tobytes())


def _largest(dtype):
    return 1 if dtype.is_floating_point else (1 if dtype == wisp.bool else wisp.iinfo(dtype).max)


def convert_image_dtype(image, dtype=None):
    """The tensor in another dtype, its numbers scaled from one full range to the other (0 to 1 for floats).

    >>> import wisp
    >>> from wisp.vision.transforms.functional import convert_image_dtype
    >>> convert_image_dtype(wisp.tensor([0.0, 1.0]), wisp.uint8)
    tensor([  0, 255], dtype=torch.uint8)
    """
    dtype = dtype or wisp.get_default_dtype()
    if not isinstance(image, wisp.Tensor):
        raise TypeError(f"Input img should be Tensor Image, got {type(image)}")
    if image.dtype == dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        if dtype == wisp.int64 or (dtype == wisp.int32 and image.dtype == wisp.float32):
            raise RuntimeError(f"The cast from {image.dtype} to {dtype} cannot be performed safely.")
        return image.mul(_largest(dtype) + 1.0 - 1e-3).to(dtype)
    top = _largest(image.dtype)
    if dtype.is_floating_point:
        return image.to(dtype) / top
    target = _largest(dtype)
    if top > target:
        return (image // ((top + 1) // (target + 1))).to(dtype)
    return image.to(dtype) * ((target + 1) // (top + 1))


def size_of(img):
    """(height, width) of an image."""
    if is_pil(img):
        return img.size[1], img.size[0]
    if hasattr(img, "canvas_size"):
        return img.canvas_size
    check_image(img, "get_image_size")
    if img.dim() < 2:
        raise TypeError(f"Tensor is not an image: expected at least 2 dimensions, got {img.dim()}")
    return img.shape[-2], img.shape[-1]


def channels_of(img):
    """The number of channels of an image."""
    if is_pil(img):
        return len(img.getbands())
    check_image(img, "get_image_num_channels")
    return 1 if img.dim() == 2 else img.shape[-3]


def pair(value, what):
    """A size as (height, width)."""
    if isinstance(value, numbers.Number):
        return int(value), int(value)
    value = [int(part) for part in value]
    if len(value) == 1:
        return value[0], value[0]
    if len(value) != 2:
        raise ValueError(f"{what}: please provide only two dimensions (h, w) for size, got {value}")
    return tuple(value)
