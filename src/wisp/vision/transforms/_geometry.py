"""Sizes, places and shapes of Pillow images and of tensors [..., channels, height, width]."""

import enum
import math
import numbers

import wisp
from wisp.nn import functional as nnf
from wisp.vision._pil import is_pil
from wisp.vision.transforms._convert import check_image, pair, size_of


class InterpolationMode(enum.Enum):
    """How numbers between pixels are found."""

    NEAREST, NEAREST_EXACT, BILINEAR, BICUBIC = "nearest", "nearest-exact", "bilinear", "bicubic"
    BOX, HAMMING, LANCZOS = "box", "hamming", "lanczos"


_PILLOW = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def interpolation_of(value):
    """An InterpolationMode, from one, from its name, or from Pillow's number."""
    if isinstance(value, InterpolationMode):
        return value
    if isinstance(value, str):
        return InterpolationMode(value.lower())
    if isinstance(value, int):
        return next(InterpolationMode(name) for name, number in _PILLOW.items() if number == value)
    raise TypeError(f"Argument interpolation should be a InterpolationMode or a corresponding Pillow integer constant, got {type(value)}")


def _as_batch(img, kinds=(wisp.float32, wisp.float64)):
    """The tensor with four dimensions and a dtype to compute in; and a function that undoes both."""
    shape, dtype = img.shape, img.dtype
    flat = img.reshape(-1, *((1, *shape) if img.dim() == 2 else shape[-3:]))
    flat = flat if dtype in kinds else flat.to(wisp.float32)

    def back(result):
        if dtype not in kinds and not dtype.is_floating_point:
            result = result.round()
            if dtype == wisp.uint8:
                result = result.clamp(0, 255)
        lead = () if len(shape) == 2 else shape[:-2]
        return result.to(dtype).reshape(*lead, *result.shape[-2:])

    return flat, back


def output_size(height, width, size, max_size=None):
    """The size to resize to: as given, or the smaller edge's with the proportions kept."""
    if size is None:
        scale = max_size / max(height, width)
        return max(1, int(height * scale)), max(1, int(width * scale))
    if isinstance(size, numbers.Number) or len(size) == 1:
        wanted = int(size if isinstance(size, numbers.Number) else size[0])
        short, long = min(height, width), max(height, width)
        new_short, new_long = wanted, int(wanted * long / short)
        if max_size is not None:
            if max_size <= wanted:
                raise ValueError(
                    f"max_size = {max_size} must be strictly greater than the requested size for the smaller edge size = {size}"
                )
            if new_long > max_size:
                new_short, new_long = int(max_size * new_short / new_long), max_size
        return (new_long, new_short) if width <= height else (new_short, new_long)
    if max_size is not None:
        raise ValueError("max_size should only be passed if size specifies the length of the smaller edge, i.e. size should be an int")
    if len(size) != 2:
        raise ValueError("Size must be an int or a 1 or 2 element tuple/list")
    return int(size[0]), int(size[1])


def resize(img, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
    """The image in another size: (height, width), or the smaller edge's length.

    >>> import wisp
    >>> from wisp.vision.transforms.functional import resize
    >>> resize(wisp.rand(3, 10, 20), 5).shape
    torch.Size([3, 5, 10])
    """
    check_image(img, "resize")
    mode = interpolation_of(interpolation).value
    target = output_size(*size_of(img), size, max_size)
    if target == tuple(size_of(img)):
        return img
    if is_pil(img):
        return img.resize(target[::-1], _PILLOW[mode])
    if mode not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError("This Interpolation mode is unsupported with Tensor input")
    flat, back = _as_batch(img)
    if mode.startswith("nearest"):
        return back(nnf.interpolate(flat, size=target, mode=mode))
    return back(nnf.interpolate(flat, size=target, mode=mode, align_corners=False, antialias=bool(antialias)))


def _sides(padding):
    """left, top, right, bottom."""
    if isinstance(padding, numbers.Number):
        return (int(padding),) * 4
    padding = [int(value) for value in padding]
    if len(padding) == 1:
        return tuple(padding * 4)
    if len(padding) == 2:
        return padding[0], padding[1], padding[0], padding[1]
    if len(padding) == 4:
        return tuple(padding)
    raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")


def _reflected(count, before, after, symmetric):
    """Which index to take at each place of a line that is reflected at its ends."""
    places = range(-before, count + after)
    if count == 1:
        return [0 for _ in places]
    period = 2 * count if symmetric else 2 * (count - 1)
    found = [place % period for place in places]
    return [place if place < count else period - place - (1 if symmetric else 0) for place in found]


def pad(img, padding, fill=0, padding_mode="constant"):
    """The image with a border: constant, the edge repeated, or a reflection (with the edge: symmetric).

    >>> import wisp
    >>> from wisp.vision.transforms.functional import pad
    >>> pad(wisp.ones(1, 2, 2), [1, 0]).tolist()
    [[[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]]]
    """
    check_image(img, "pad")
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    left, top, right, bottom = _sides(padding)
    if is_pil(img):
        if padding_mode == "constant":
            from PIL import Image, ImageOps

            colour = (
                fill
                if isinstance(fill, (int, str))
                else tuple(int(value) for value in fill)
                if isinstance(fill, (tuple, list))
                else int(fill)
            )
            if isinstance(colour, tuple) and len(colour) == 1:
                colour = colour * len(img.getbands())
            if isinstance(colour, int) and len(img.getbands()) > 1:
                colour = (colour,) * len(img.getbands())
            if min(left, top, right, bottom) < 0:
                grown = Image.new(img.mode, (img.size[0] + left + right, img.size[1] + top + bottom), colour)
                grown.paste(img, (left, top))
                return grown
            if img.mode == "P":
                palette = img.getpalette()
                img = ImageOps.expand(img, border=(left, top, right, bottom), fill=colour)
                img.putpalette(palette)
                return img
            return ImageOps.expand(img, border=(left, top, right, bottom), fill=colour)
        import numpy
        from PIL import Image

        array = numpy.asarray(img)
        widths = ((top, bottom), (left, right)) + ((0, 0),) * (array.ndim - 2)
        return Image.fromarray(numpy.pad(array, widths, padding_mode))
    if padding_mode == "constant":
        if isinstance(fill, (tuple, list)) and len(fill) > 1:
            flat = img.new_empty(*img.shape[:-2], img.shape[-2] + top + bottom, img.shape[-1] + left + right)
            flat[...] = wisp.tensor(fill, dtype=img.dtype).reshape(-1, 1, 1)
            flat[..., top : top + img.shape[-2], left : left + img.shape[-1]] = img
            return flat
        fill = fill[0] if isinstance(fill, (tuple, list)) else fill
        return nnf.pad(img, (left, right, top, bottom), value=fill or 0)
    height, width = img.shape[-2:]
    if padding_mode == "edge":
        rows = [min(max(place, 0), height - 1) for place in range(-top, height + bottom)]
        columns = [min(max(place, 0), width - 1) for place in range(-left, width + right)]
    else:
        rows = _reflected(height, top, bottom, padding_mode == "symmetric")
        columns = _reflected(width, left, right, padding_mode == "symmetric")
    return img.index_select(-2, wisp.tensor(rows, device=img.device)).index_select(-1, wisp.tensor(columns, device=img.device))


def crop(img, top, left, height, width):
    """A part of the image; what lies outside of it is zero."""
    check_image(img, "crop")
    if is_pil(img):
        return img.crop((left, top, left + width, top + height))
    rows, columns = img.shape[-2:]
    if left < 0 or top < 0 or left + width > columns or top + height > rows:
        inside = img[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
        return nnf.pad(
            inside,
            (
                max(min(-left, width), 0),
                max(min(left + width - columns, width), 0),
                max(min(-top, height), 0),
                max(min(top + height - rows, height), 0),
            ),
        )
    return img[..., top : top + height, left : left + width]


def center_crop(img, output_size):
    """The middle of the image, with a border of zeros where it is too small."""
    height, width = pair(output_size, "center_crop")
    rows, columns = size_of(img)
    if width > columns or height > rows:
        img = pad(
            img,
            [
                max((width - columns) // 2, 0),
                max((height - rows) // 2, 0),
                max((width - columns + 1) // 2, 0),
                max((height - rows + 1) // 2, 0),
            ],
        )
        rows, columns = size_of(img)
    return crop(img, round((rows - height) / 2.0), round((columns - width) / 2.0), height, width)


def resized_crop(img, top, left, height, width, size, interpolation=InterpolationMode.BILINEAR, antialias=True):
    """A part of the image, brought to a size."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def hflip(img):
    """The image with left and right exchanged."""
    check_image(img, "hflip")
    return img.transpose(0) if is_pil(img) else img.flip(-1)


def vflip(img):
    """The image upside down."""
    check_image(img, "vflip")
    return img.transpose(1) if is_pil(img) else img.flip(-2)


def five_crop(img, size):
    """The four corners and the middle."""
    height, width = pair(size, "five_crop")
    rows, columns = size_of(img)
    if width > columns or height > rows:
        raise ValueError(f"Requested crop size {(height, width)} is bigger than input size {(rows, columns)}")
    return (
        crop(img, 0, 0, height, width),
        crop(img, 0, columns - width, height, width),
        crop(img, rows - height, 0, height, width),
        crop(img, rows - height, columns - width, height, width),
        center_crop(img, [height, width]),
    )


def ten_crop(img, size, vertical_flip=False):
    """`five_crop` of the image and of the flipped image."""
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def _sample(img, grid, mode, fill):
    """The image at the places of a grid [1, height, width, 2] in -1 to 1; `fill` outside of it."""
    mode = interpolation_of(mode).value
    if mode not in ("nearest", "bilinear"):
        raise ValueError(f"This Interpolation mode is unsupported with Tensor input: {mode}")
    flat, back = _as_batch(img)
    grid = grid.to(flat.device, flat.dtype).expand(flat.shape[0], *grid.shape[1:])
    if fill is None or (isinstance(fill, numbers.Number) and fill == 0):
        return back(nnf.grid_sample(flat, grid, mode=mode, padding_mode="zeros", align_corners=False))
    colours = [fill] if isinstance(fill, numbers.Number) else list(fill)
    colour = wisp.tensor([float(value) for value in colours], dtype=flat.dtype, device=flat.device).reshape(1, -1, 1, 1)
    inside = nnf.grid_sample(wisp.ones_like(flat[:, :1]), grid, mode=mode, padding_mode="zeros", align_corners=False)
    result = nnf.grid_sample(flat, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if mode == "nearest":
        return back(wisp.where(inside < 0.5, colour.expand_as(result), result))
    return back(result * inside + (1.0 - inside) * colour)


def inverse_affine_matrix(center, angle, translate, scale, shear):
    """The six numbers that say where each pixel of the result comes from; angles in degrees."""
    turn, along, across = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(turn - across) / math.cos(across)
    b = -math.cos(turn - across) * math.tan(along) / math.cos(across) - math.sin(turn)
    c = math.sin(turn - across) / math.cos(across)
    d = -math.sin(turn - across) * math.tan(along) / math.cos(across) + math.cos(turn)
    matrix = [value / scale for value in (d, -b, 0.0, -c, a, 0.0)]
    matrix[2] += matrix[0] * (-center[0] - translate[0]) + matrix[1] * (-center[1] - translate[1]) + center[0]
    matrix[5] += matrix[3] * (-center[0] - translate[0]) + matrix[4] * (-center[1] - translate[1]) + center[1]
    return matrix


def _affine_grid(matrix, width, height, new_width, new_height):
    """The places that an affine matrix about the image's centre gives, in grid_sample's numbers."""
    theta = wisp.tensor(matrix, dtype=wisp.float64).reshape(2, 3)
    x = wisp.arange(new_width, dtype=wisp.float64) + (0.5 - new_width * 0.5)
    y = wisp.arange(new_height, dtype=wisp.float64) + (0.5 - new_height * 0.5)
    x, y = x.expand(new_height, new_width), y.unsqueeze(1).expand(new_height, new_width)
    columns = (theta[0, 0] * x + theta[0, 1] * y + theta[0, 2]) / (0.5 * width)
    rows = (theta[1, 0] * x + theta[1, 1] * y + theta[1, 2]) / (0.5 * height)
    return wisp.stack((columns, rows), -1).unsqueeze(0)


def _whole(values, shift):
    """How many whole pixels the values span, when counted from the image's corner as Pillow does."""
    cut = lambda value: math.trunc(value / 1e-4) * 1e-4
    return int(math.ceil(cut(max(values) + shift)) - math.floor(cut(min(values) + shift)))


def _pil_fill(img, fill):
    if fill is None:
        fill = 0
    count = len(img.getbands())
    if isinstance(fill, numbers.Number):
        fill = [fill] * count
    fill = [value if img.mode == "F" else int(value) for value in fill]
    return fill[0] if count == 1 else tuple(fill if len(fill) == count else fill * count)


def rotate(img, angle, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=None):
    """The image turned by `angle` degrees, against the clock."""
    check_image(img, "rotate")
    mode = interpolation_of(interpolation)
    if is_pil(img):
        return img.rotate(angle, _PILLOW[mode.value], expand, center, fillcolor=_pil_fill(img, fill))
    height, width = img.shape[-2:]
    middle = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    matrix = inverse_affine_matrix(middle, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    new_width, new_height = width, height
    if expand:
        a, b, _, c, d, _ = matrix
        xs = [a * x + b * y for x in (-0.5 * width, 0.5 * width) for y in (-0.5 * height, 0.5 * height)]
        ys = [c * x + d * y for x in (-0.5 * width, 0.5 * width) for y in (-0.5 * height, 0.5 * height)]
        new_width, new_height = _whole(xs, 0.5 * width), _whole(ys, 0.5 * height)
    return _sample(img, _affine_grid(matrix, width, height, new_width, new_height), mode, fill)


def affine(img, angle, translate, scale, shear, interpolation=InterpolationMode.NEAREST, fill=None, center=None):
    """The image turned, moved, scaled and sheared, about its centre."""
    check_image(img, "affine")
    mode = interpolation_of(interpolation)
    if scale <= 0.0:
        raise ValueError("Argument scale should be positive")
    shear = [float(shear), 0.0] if isinstance(shear, numbers.Number) else list(shear)
    shear = shear * 2 if len(shear) == 1 else shear
    if len(shear) != 2 or len(translate) != 2:
        raise ValueError(f"affine: translate and shear must have two values, got {translate} and {shear}")
    height, width = size_of(img)
    if is_pil(img):
        middle = [width * 0.5, height * 0.5] if center is None else center
        matrix = inverse_affine_matrix(middle, angle, translate, scale, shear)
        from PIL import Image

        return img.transform((width, height), Image.Transform.AFFINE, matrix, _PILLOW[mode.value], fillcolor=_pil_fill(img, fill))
    middle = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    matrix = inverse_affine_matrix(middle, angle, [float(value) for value in translate], scale, shear)
    return _sample(img, _affine_grid(matrix, width, height, width, height), mode, fill)


def perspective_coefficients(startpoints, endpoints):
    """The eight numbers of the projection that takes the end points to the start points."""
    rows = []
    for (x, y), (u, v) in zip(endpoints, startpoints):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    target = wisp.tensor(startpoints, dtype=wisp.float64).reshape(8)
    return wisp.linalg.solve(wisp.tensor(rows, dtype=wisp.float64), target).float().tolist()


def perspective(img, startpoints, endpoints, interpolation=InterpolationMode.BILINEAR, fill=None):
    """The image as seen when its corners `startpoints` are moved to `endpoints`."""
    check_image(img, "perspective")
    mode = interpolation_of(interpolation)
    a, b, c, d, e, f, g, h = numbers_ = perspective_coefficients(startpoints, endpoints)
    height, width = size_of(img)
    if is_pil(img):
        from PIL import Image

        return img.transform((width, height), Image.Transform.PERSPECTIVE, numbers_, _PILLOW[mode.value], fillcolor=_pil_fill(img, fill))
    x = (wisp.arange(width, dtype=wisp.float64) + 0.5).expand(height, width)
    y = (wisp.arange(height, dtype=wisp.float64) + 0.5).unsqueeze(1).expand(height, width)
    depth = g * x + h * y + 1.0
    grid = wisp.stack(((a * x + b * y + c) / (0.5 * width) / depth - 1.0, (d * x + e * y + f) / (0.5 * height) / depth - 1.0), -1)
    return _sample(img, grid.unsqueeze(0), mode, fill)


def _gaussian(size, sigma):
    half = (size - 1) * 0.5
    values = wisp.exp(-0.5 * (wisp.linspace(-half, half, size) / sigma) ** 2)
    return values / values.sum()


def gaussian_blur(img, kernel_size, sigma=None):
    """The image blurred by a Gaussian of `kernel_size` pixels (width, height)."""
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if any(size % 2 == 0 or size < 1 for size in sizes):
        raise ValueError(f"kernel_size should have odd and positive integers. Got {kernel_size}")
    if sigma is None:
        sigma = [size * 0.15 + 0.35 for size in sizes]
    sigma = [float(sigma)] * 2 if isinstance(sigma, numbers.Number) else [float(value) for value in sigma]
    sigma = sigma * 2 if len(sigma) == 1 else sigma
    if any(value <= 0.0 for value in sigma):
        raise ValueError(f"sigma should have positive values. Got {sigma}")
    if is_pil(img):
        from wisp.vision.transforms._convert import pil_to_tensor, to_pil_image

        return to_pil_image(gaussian_blur(pil_to_tensor(img), sizes, sigma), img.mode)
    check_image(img, "gaussian_blur")
    flat, back = _as_batch(img)
    channels = flat.shape[1]
    kernel = wisp.outer(_gaussian(sizes[1], sigma[1]), _gaussian(sizes[0], sigma[0])).to(flat.device, flat.dtype)
    padded = nnf.pad(flat, (sizes[0] // 2, sizes[0] // 2, sizes[1] // 2, sizes[1] // 2), mode="reflect")
    return back(nnf.conv2d(padded, kernel.expand(channels, 1, *kernel.shape), groups=channels))


def elastic_transform(img, displacement, interpolation=InterpolationMode.BILINEAR, fill=None):
    """The image with each pixel taken from a place moved by `displacement` [1, height, width, 2]."""
    check_image(img, "elastic_transform")
    if is_pil(img):
        from wisp.vision.transforms._convert import pil_to_tensor, to_pil_image

        return to_pil_image(elastic_transform(pil_to_tensor(img), displacement, interpolation, fill), img.mode)
    height, width = img.shape[-2:]
    identity = _affine_grid([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], width, height, width, height)
    return _sample(img, identity.to(displacement.device) + displacement.to(wisp.float64), interpolation, fill)
