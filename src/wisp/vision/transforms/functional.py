"""Image functions that the transforms call, for Pillow images and tensors alike."""

import wisp
from wisp.vision._pil import is_pil
from wisp.vision.transforms._color import (  # noqa: F401
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    invert,
    posterize,
    rgb_to_grayscale,
    solarize,
    to_grayscale,
)
from wisp.vision.transforms._convert import channels_of, convert_image_dtype, pil_to_tensor, size_of, to_pil_image, to_tensor  # noqa: F401
from wisp.vision.transforms._geometry import (  # noqa: F401
    InterpolationMode,
    affine,
    center_crop,
    crop,
    elastic_transform,
    five_crop,
    gaussian_blur,
    hflip,
    pad,
    perspective,
    resize,
    resized_crop,
    rotate,
    ten_crop,
    vflip,
)


def get_dimensions(img):
    """[channels, height, width]."""
    return [channels_of(img), *size_of(img)]


def get_image_size(img):
    """[width, height]."""
    height, width = size_of(img)
    return [width, height]


def get_image_num_channels(img):
    """The number of channels."""
    return channels_of(img)


def _column(values, tensor):
    values = wisp.as_tensor(values, dtype=tensor.dtype, device=tensor.device)
    return values.reshape(-1, 1, 1) if values.dim() == 1 else values


def normalize(tensor, mean, std, inplace=False):
    """(tensor - mean) / std, for each channel.

    >>> import wisp
    >>> from wisp.vision.transforms.functional import normalize
    >>> normalize(wisp.ones(1, 1, 2), [0.5], [0.25])
    tensor([[[2., 2.]]])
    """
    if not isinstance(tensor, wisp.Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.dim() < 3:
        raise ValueError(f"Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = {tensor.size()}")
    mean, std = _column(mean, tensor), _column(std, tensor)
    if (std == 0).any():
        raise ValueError(f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by zero.")
    return tensor.sub_(mean).div_(std) if inplace else (tensor - mean) / std


def erase(img, i, j, h, w, v, inplace=False):
    """The image with the rectangle at row `i`, column `j` filled with `v`."""
    if is_pil(img):
        import numpy
        from PIL import Image

        array = numpy.array(img)
        array[i : i + h, j : j + w] = v
        return Image.fromarray(array)
    if not isinstance(img, wisp.Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(img)}")
    result = img if inplace else img.clone()
    result[..., i : i + h, j : j + w] = v
    return result


# private names that some programs use
_interpolation_modes_from_int = {
    0: InterpolationMode.NEAREST,
    1: InterpolationMode.LANCZOS,
    2: InterpolationMode.BILINEAR,
    3: InterpolationMode.BICUBIC,
    4: InterpolationMode.BOX,
    5: InterpolationMode.HAMMING,
}.get
_is_pil_image = is_pil
