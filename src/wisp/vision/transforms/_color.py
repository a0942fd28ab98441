"""Colours of Pillow images and of tensors [..., channels, height, width] (bytes, or floats from 0 to 1)."""

import math

import wisp
from wisp.vision._pil import is_pil
from wisp.vision.transforms._convert import channels_of, check_image

_GRAY = (0.2989, 0.587, 0.114)


def _bound(img):
    return 1.0 if img.is_floating_point() else 255.0


def _blend(one, other, ratio):
    bound, ratio = _bound(one), float(ratio)
    mixed = (ratio * one + (1.0 - ratio) * other).clamp(0, bound)
    return mixed.to(one.dtype)


def _enhance(name, img, factor):
    from PIL import ImageEnhance

    return getattr(ImageEnhance, name)(img).enhance(factor)


def _factor(value, name, what):
    if value < 0:
        raise ValueError(f"{what}: {name} ({value}) is not non-negative.")


def _gray(img):
    red, green, blue = img.unbind(-3)
    return (_GRAY[0] * red + _GRAY[1] * green + _GRAY[2] * blue).to(img.dtype).unsqueeze(-3)


def _is_color(img, what):
    check_image(img, what)
    channels = channels_of(img)
    if channels not in (1, 3):
        raise TypeError(f"{what}: Input image tensor permitted channel values are 1 or 3, but found {channels}")
    return channels == 3


def rgb_to_grayscale(img, num_output_channels=1):
    """The image without colours, in one channel or in three equal ones."""
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    if is_pil(img):
        return to_grayscale(img, num_output_channels)
    gray = _gray(img) if _is_color(img, "rgb_to_grayscale") else img.clone()
    return gray.expand(*gray.shape[:-3], 3, *gray.shape[-2:]).clone() if num_output_channels == 3 else gray


def to_grayscale(img, num_output_channels=1):
    """A Pillow image without colours."""
    if not is_pil(img):
        raise TypeError("Input should be PIL Image")
    gray = img.convert("L")
    if num_output_channels == 1:
        return gray
    if num_output_channels == 3:
        from PIL import Image

        return Image.merge("RGB", (gray, gray, gray))
    raise ValueError("num_output_channels should be either 1 or 3")


def adjust_brightness(img, brightness_factor):
    """0 is black, 1 the image, 2 twice as bright.

    >>> import wisp
    >>> from wisp.vision.transforms.functional import adjust_brightness
    >>> adjust_brightness(wisp.full((3, 1, 1), 100, dtype=wisp.uint8), 2).flatten()
    tensor([200, 200, 200], dtype=torch.uint8)
    """
    _factor(brightness_factor, "brightness_factor", "adjust_brightness")
    if is_pil(img):
        return _enhance("Brightness", img, brightness_factor)
    check_image(img, "adjust_brightness")
    return _blend(img, wisp.zeros_like(img), brightness_factor)


def adjust_contrast(img, contrast_factor):
    """0 is gray, 1 the image, 2 twice the contrast."""
    _factor(contrast_factor, "contrast_factor", "adjust_contrast")
    if is_pil(img):
        return _enhance("Contrast", img, contrast_factor)
    gray = _gray(img) if _is_color(img, "adjust_contrast") else img
    dtype = img.dtype if img.is_floating_point() else wisp.float32
    return _blend(img, gray.to(dtype).mean((-3, -2, -1), keepdim=True), contrast_factor)


def adjust_saturation(img, saturation_factor):
    """0 is without colours, 1 the image, 2 twice the colours."""
    _factor(saturation_factor, "saturation_factor", "adjust_saturation")
    if is_pil(img):
        return _enhance("Color", img, saturation_factor)
    return _blend(img, _gray(img), saturation_factor) if _is_color(img, "adjust_saturation") else img


def _to_hsv(img):
    red, green, blue = img.unbind(-3)
    high, low = img.amax(-3), img.amin(-3)
    same = high == low
    spread = high - low
    one = wisp.ones_like(high)
    saturation = spread / wisp.where(same, one, high)
    divisor = wisp.where(same, one, spread)
    to_red, to_green, to_blue = (high - red) / divisor, (high - green) / divisor, (high - blue) / divisor
    hue = (
        (high == red) * (to_blue - to_green)
        + ((high == green) & (high != red)) * (2.0 + to_red - to_blue)
        + ((high != green) & (high != red)) * (4.0 + to_green - to_red)
    )
    return wisp.stack((wisp.fmod(hue / 6.0 + 1.0, 1.0), saturation, high), -3)


def _from_hsv(img):
    hue, saturation, value = img.unbind(-3)
    sector = wisp.floor(hue * 6.0)
    rest = hue * 6.0 - sector
    sector = sector.to(wisp.int64) % 6
    low = (value * (1.0 - saturation)).clamp(0.0, 1.0)
    falling = (value * (1.0 - saturation * rest)).clamp(0.0, 1.0)
    rising = (value * (1.0 - saturation * (1.0 - rest))).clamp(0.0, 1.0)
    table = wisp.stack(
        (
            wisp.stack((value, falling, low, low, rising, value), -3),
            wisp.stack((rising, value, value, falling, low, low), -3),
            wisp.stack((low, low, rising, value, value, falling), -3),
        ),
        -4,
    )
    index = sector.unsqueeze(-3).unsqueeze(-4)
    return table.gather(-3, index.expand(*index.shape[:-4], 3, 1, *index.shape[-2:])).squeeze(-3)


def adjust_hue(img, hue_factor):
    """Turn the wheel of colours by -0.5 to 0.5 of a full turn."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if is_pil(img):
        if img.mode in ("L", "1", "I", "F"):
            return img
        from PIL import Image

        hue, saturation, value = img.convert("HSV").split()
        shift = int(hue_factor * 255) % 256
        hue = hue.point([(number + shift) % 256 for number in range(256)])
        return Image.merge("HSV", (hue, saturation, value)).convert(img.mode)
    if not _is_color(img, "adjust_hue"):
        return img
    from wisp.vision.transforms._convert import convert_image_dtype

    hue, saturation, value = _to_hsv(convert_image_dtype(img, wisp.float32)).unbind(-3)
    return convert_image_dtype(_from_hsv(wisp.stack(((hue + hue_factor) % 1.0, saturation, value), -3)), img.dtype)


def adjust_gamma(img, gamma, gain=1):
    """gain * image ** gamma."""
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    if is_pil(img):
        mode = img.mode
        table = [min(255, int((255 + 1 - 1e-3) * gain * math.pow(value / 255.0, gamma))) for value in range(256)]
        img = img.convert("RGB")
        return img.point(table * 3).convert(mode)
    check_image(img, "adjust_gamma")
    from wisp.vision.transforms._convert import convert_image_dtype

    result = img if img.is_floating_point() else convert_image_dtype(img, wisp.float32)
    return convert_image_dtype((gain * result**gamma).clamp(0, 1), img.dtype)


def invert(img):
    """The negative."""
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.invert(img)
    check_image(img, "invert")
    return (1.0 if img.is_floating_point() else 255) - img


def posterize(img, bits):
    """Keep the highest bits of each byte."""
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.posterize(img, bits)
    if img.dtype != wisp.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    return img & (256 - (1 << (8 - bits)))


def solarize(img, threshold):
    """The negative of all numbers from the threshold on."""
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.solarize(img, threshold)
    check_image(img, "solarize")
    if threshold > _bound(img):
        raise TypeError("Threshold should be less than bound of img.")
    return wisp.where(img >= threshold, invert(img), img)


def adjust_sharpness(img, sharpness_factor):
    """0 is blurred, 1 the image, 2 twice as sharp."""
    _factor(sharpness_factor, "sharpness_factor", "adjust_sharpness")
    if is_pil(img):
        return _enhance("Sharpness", img, sharpness_factor)
    check_image(img, "adjust_sharpness")
    if img.shape[-1] <= 2 or img.shape[-2] <= 2:
        return img
    dtype = img.dtype if img.is_floating_point() else wisp.float32
    kernel = wisp.ones(3, 3, dtype=dtype, device=img.device)
    kernel[1, 1] = 5.0
    channels = channels_of(img)
    weight = (kernel / 13.0).expand(channels, 1, 3, 3)
    flat = img.to(dtype).reshape(-1, channels, *img.shape[-2:])
    middle = wisp.nn.functional.conv2d(flat, weight, groups=channels)
    if not img.is_floating_point():
        middle = middle.round()
    blurred = flat.clone()
    blurred[..., 1:-1, 1:-1] = middle
    return _blend(img, blurred.reshape(img.shape), sharpness_factor)


def autocontrast(img):
    """Stretch each channel to the full range."""
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.autocontrast(img)
    check_image(img, "autocontrast")
    bound = _bound(img)
    dtype = img.dtype if img.is_floating_point() else wisp.float32
    low, high = img.amin((-2, -1), keepdim=True).to(dtype), img.amax((-2, -1), keepdim=True).to(dtype)
    flat = low == high
    scale = wisp.where(flat, wisp.ones_like(low), bound / wisp.where(flat, wisp.ones_like(low), high - low))
    return ((img.to(dtype) - wisp.where(flat, wisp.zeros_like(low), low)) * scale).clamp(0, bound).to(img.dtype)


def _equalized(channel):
    counts = wisp.bincount(channel.flatten().long(), minlength=256)
    used = counts[counts != 0]
    step = wisp.div(used[:-1].sum(), 255, rounding_mode="floor")
    if step == 0:
        return channel
    table = wisp.div(counts.cumsum(0) + step // 2, step, rounding_mode="floor")
    table = wisp.nn.functional.pad(table, (1, 0))[:-1].clamp(0, 255)
    return table[channel.long()].to(wisp.uint8)


def equalize(img):
    """Make all brightnesses of each channel about equally frequent."""
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.equalize(img)
    if img.dtype != wisp.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    flat = img.reshape(-1, *img.shape[-2:])
    return wisp.stack([_equalized(channel) for channel in flat]).reshape(img.shape)
