"""Transforms with several random choices: colours, turning, perspective, erasing."""

import math
import numbers

import wisp
from wisp.vision.transforms._base import Transform, integer, span, uniform
from wisp.vision.transforms._convert import size_of
from wisp.vision.transforms._geometry import InterpolationMode, interpolation_of


class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    >>> import wisp
    >>> from wisp.vision import transforms
    >>> transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)(wisp.rand(3, 4, 4)).shape
    torch.Size([3, 4, 4])
    """

    _shown = ("brightness", "contrast", "saturation", "hue")

    def __init__(self, brightness=0, contrast=0, saturation=0, hue=0):
        super().__init__()
        self.brightness = self._range(brightness, "brightness")
        self.contrast = self._range(contrast, "contrast")
        self.saturation = self._range(saturation, "saturation")
        self.hue = self._range(hue, "hue", 0.0, (-0.5, 0.5), clip=False)

    @staticmethod
    def _range(value, name, center=1.0, bound=(0.0, float("inf")), clip=True):
        found = span(value, name, center, bound)
        if clip:
            found[0] = max(found[0], 0.0)
        if not bound[0] <= found[0] <= found[1] <= bound[1]:
            raise ValueError(f"{name} values should be between {bound}, but got {found}.")
        return None if found[0] == found[1] == center else tuple(found)

    @staticmethod
    def get_params(brightness, contrast, saturation, hue):
        """A random order and the four factors."""
        order = wisp.randperm(4)
        return (order, *(None if limits is None else uniform(*limits) for limits in (brightness, contrast, saturation, hue)))

    def params(self, img):
        return self.get_params(self.brightness, self.contrast, self.saturation, self.hue)

    def apply(self, img, order, *factors):
        functions = (self._f.adjust_brightness, self._f.adjust_contrast, self._f.adjust_saturation, self._f.adjust_hue)
        for index in order.tolist():
            if factors[index] is not None:
                img = functions[index](img, factors[index])
        return img


class RandomRotation(Transform):
    """Turned by a random angle."""

    _shown = ("degrees", "interpolation", "expand", "fill")

    def __init__(self, degrees, interpolation=InterpolationMode.NEAREST, expand=False, center=None, fill=0):
        super().__init__()
        self.degrees = span(degrees, "degrees")
        self.interpolation, self.expand, self.center, self.fill = interpolation_of(interpolation), expand, center, fill

    @staticmethod
    def get_params(degrees):
        """A random angle."""
        return uniform(degrees[0], degrees[1])

    def params(self, img):
        return (self.get_params(self.degrees),)

    def apply(self, img, angle):
        return self._f.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)


class RandomAffine(Transform):
    """Turned, moved, scaled and sheared at random."""

    _shown = ("degrees", "translate", "scale", "shear")

    def __init__(self, degrees, translate=None, scale=None, shear=None, interpolation=InterpolationMode.NEAREST, fill=0, center=None):
        super().__init__()
        self.degrees = span(degrees, "degrees")
        if translate is not None and not all(0.0 <= value <= 1.0 for value in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and any(value <= 0 for value in scale):
            raise ValueError("scale values should be positive")
        self.translate, self.scale = translate, scale
        if shear is not None:
            shear = [-shear, shear] if isinstance(shear, numbers.Number) else [float(value) for value in shear]
            if len(shear) not in (2, 4):
                raise ValueError(f"shear must be a number or have 2 or 4 values, got {len(shear)}")
        self.shear = shear
        self.interpolation, self.fill, self.center = interpolation_of(interpolation), fill, center

    @staticmethod
    def get_params(degrees, translate, scale_ranges, shears, img_size):
        """Angle, translation, scale and shear for an image of (width, height)."""
        angle = uniform(degrees[0], degrees[1])
        moved = (0, 0) if translate is None else tuple(round(uniform(-part * size, part * size)) for part, size in zip(translate, img_size))
        scale = 1.0 if scale_ranges is None else uniform(*scale_ranges)
        shear = (0.0, 0.0)
        if shears is not None:
            shear = (uniform(shears[0], shears[1]), uniform(shears[2], shears[3]) if len(shears) == 4 else 0.0)
        return angle, moved, scale, shear

    def params(self, img):
        return self.get_params(self.degrees, self.translate, self.scale, self.shear, size_of(img)[::-1])

    def apply(self, img, angle, translate, scale, shear):
        return self._f.affine(img, angle, translate, scale, shear, self.interpolation, self.fill, self.center)


class RandomPerspective(Transform):
    """Seen from a random direction, with the probability `p`."""

    _shown = ("p",)

    def __init__(self, distortion_scale=0.5, p=0.5, interpolation=InterpolationMode.BILINEAR, fill=0):
        super().__init__()
        self.distortion_scale, self.p, self.interpolation, self.fill = distortion_scale, p, interpolation_of(interpolation), fill

    @staticmethod
    def get_params(width, height, distortion_scale):
        """The corners, and where they move to."""
        across, down = int(distortion_scale * (width // 2)) + 1, int(distortion_scale * (height // 2)) + 1
        ends = [
            [integer(across), integer(down)],
            [width - 1 - integer(across), integer(down)],
            [width - 1 - integer(across), height - 1 - integer(down)],
            [integer(across), height - 1 - integer(down)],
        ]
        return [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], ends

    def params(self, img):
        if wisp.rand(1) >= self.p:
            return (None, None)
        height, width = size_of(img)
        return self.get_params(width, height, self.distortion_scale)

    def apply(self, img, start, end):
        return img if start is None else self._f.perspective(img, start, end, self.interpolation, self.fill)


class RandomErasing(Transform):
    """A random rectangle of a tensor filled with `value`, with the probability `p`; "random" fills it with noise."""

    _shown = ("p", "scale", "ratio", "value", "inplace")

    def __init__(self, p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0, inplace=False):
        super().__init__()
        if not isinstance(value, (numbers.Number, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError("Scale should be between 0 and 1")
        if not 0 <= p <= 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p, self.scale, self.ratio, self.value, self.inplace = p, scale, ratio, value, inplace

    @staticmethod
    def get_params(img, scale, ratio, value=None):
        """top, left, height, width and the filling."""
        channels, rows, columns = img.shape[-3:]
        low, high = math.log(ratio[0]), math.log(ratio[1])
        for _ in range(10):
            area = rows * columns * uniform(*scale)
            shape = math.exp(uniform(low, high))
            height, width = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if not (height < rows and width < columns):
                continue
            if value is None:
                filling = wisp.empty(channels, height, width, dtype=wisp.float32).normal_()
            else:
                filling = wisp.tensor(value)[:, None, None]
            return integer(rows - height + 1), integer(columns - width + 1), height, width, filling
        return 0, 0, rows, columns, img

    def params(self, img):
        if wisp.rand(1) >= self.p:
            return (None,)
        value = (
            [float(self.value)]
            if isinstance(self.value, numbers.Number)
            else None
            if isinstance(self.value, str)
            else [float(part) for part in self.value]
        )
        if value is not None and len(value) not in (1, img.shape[-3]):
            raise ValueError(f"If value is a sequence, it should have either a single value or {img.shape[-3]} (number of input channels)")
        return self.get_params(img, self.scale, self.ratio, value)

    def apply(self, img, *place):
        return img if place[0] is None else self._f.erase(img, *place, self.inplace)


class ElasticTransform(Transform):
    """Warped at random, as if printed on rubber."""

    _shown = ("alpha", "sigma", "interpolation", "fill")

    def __init__(self, alpha=50.0, sigma=5.0, interpolation=InterpolationMode.BILINEAR, fill=0):
        super().__init__()
        self.alpha = [float(alpha)] * 2 if isinstance(alpha, numbers.Number) else [float(value) for value in alpha]
        self.sigma = [float(sigma)] * 2 if isinstance(sigma, numbers.Number) else [float(value) for value in sigma]
        self.interpolation, self.fill = interpolation_of(interpolation), fill

    @staticmethod
    def get_params(alpha, sigma, size):
        """A random smooth displacement [1, height, width, 2] for an image of (height, width)."""
        from wisp.vision.transforms import functional

        parts = []
        for strength, width, length in zip(alpha, sigma, (size[1], size[0])):
            noise = wisp.rand(1, 1, *size) * 2 - 1
            if width > 0.0:
                kernel = int(8 * width + 1)
                noise = functional.gaussian_blur(noise, [kernel + (kernel % 2 == 0)] * 2, [width, width])
            parts.append(noise * strength / length)
        return wisp.cat(parts, 1).permute(0, 2, 3, 1)

    def params(self, img):
        return (self.get_params(self.alpha, self.sigma, size_of(img)),)

    def apply(self, img, displacement):
        return self._f.elastic_transform(img, displacement, self.interpolation, self.fill)
