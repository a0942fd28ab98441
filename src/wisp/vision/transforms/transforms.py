"""The transforms: what a dataset does to each image."""

import math
import numbers
import warnings

import wisp
from wisp.vision.transforms._base import Maybe, Transform, integer, uniform
from wisp.vision.transforms._convert import channels_of, pair, size_of
from wisp.vision.transforms._geometry import InterpolationMode, interpolation_of
from wisp.vision.transforms._random import ColorJitter, ElasticTransform, RandomAffine, RandomErasing, RandomPerspective, RandomRotation  # noqa: F401

__all__ = """
    CenterCrop ColorJitter Compose ConvertImageDtype ElasticTransform FiveCrop GaussianBlur Grayscale InterpolationMode Lambda
    LinearTransformation Normalize PILToTensor Pad RandomAdjustSharpness RandomAffine RandomApply RandomAutocontrast RandomChoice
    RandomCrop RandomEqualize RandomErasing RandomGrayscale RandomHorizontalFlip RandomInvert RandomOrder RandomPerspective
    RandomPosterize RandomResizedCrop RandomRotation RandomSizedCrop RandomSolarize RandomVerticalFlip Resize Scale TenCrop
    ToPILImage ToTensor""".split()


class Compose:
    """Several transforms, one after the other.

    >>> import numpy
    >>> from wisp.vision import transforms
    >>> both = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,), (0.5,))])
    >>> both(numpy.zeros((2, 2), numpy.uint8)).min()
    tensor(-1.)
    """

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, img):
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self):
        return "\n    ".join([f"{type(self).__name__}(", *map(str, self.transforms)]) + "\n)"


class ToTensor(Transform):
    """A Pillow image or array [height, width, channels] as a float tensor [channels, height, width] from 0 to 1."""

    def __init__(self):
        super().__init__()

    def forward(self, pic):
        return self._f.to_tensor(pic)


class PILToTensor(Transform):
    """A Pillow image as a tensor [channels, height, width] of its own numbers."""

    def apply(self, pic):
        return self._f.pil_to_tensor(pic)


class ConvertImageDtype(Transform):
    """The tensor in another dtype, its numbers scaled to the new range."""

    _shown = ("dtype",)

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def apply(self, image):
        return self._f.convert_image_dtype(image, self.dtype)


class ToPILImage(Transform):
    """A tensor [channels, height, width] or array [height, width, channels] as a Pillow image."""

    _shown = ("mode",)

    def __init__(self, mode=None):
        super().__init__()
        self.mode = mode

    def apply(self, pic):
        return self._f.to_pil_image(pic, self.mode)


class Normalize(Transform):
    """(tensor - mean) / std for each channel.

    >>> import wisp
    >>> from wisp.vision import transforms
    >>> transforms.Normalize([0.5], [0.5])(wisp.ones(1, 1, 1))
    tensor([[[1.]]])
    """

    _shown = ("mean", "std")

    def __init__(self, mean, std, inplace=False):
        super().__init__()
        self.mean, self.std, self.inplace = mean, std, inplace

    def apply(self, tensor):
        return self._f.normalize(tensor, self.mean, self.std, self.inplace)


class Resize(Transform):
    """The image in another size: (height, width), or the smaller edge's length.

    >>> import wisp
    >>> from wisp.vision import transforms
    >>> transforms.Resize(4)(wisp.rand(3, 8, 16)).shape
    torch.Size([3, 4, 8])
    """

    _shown = ("size", "interpolation", "max_size", "antialias")

    def __init__(self, size, interpolation=InterpolationMode.BILINEAR, max_size=None, antialias=True):
        super().__init__()
        if size is not None and not isinstance(size, (int, list, tuple)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, (list, tuple)) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size, self.interpolation, self.max_size, self.antialias = size, interpolation_of(interpolation), max_size, antialias

    def apply(self, img):
        return self._f.resize(img, self.size, self.interpolation, self.max_size, self.antialias)


class CenterCrop(Transform):
    """The middle of the image."""

    _shown = ("size",)

    def __init__(self, size):
        super().__init__()
        self.size = pair(size, "CenterCrop")

    def apply(self, img):
        return self._f.center_crop(img, self.size)


class Pad(Transform):
    """The image with a border."""

    _shown = ("padding", "fill", "padding_mode")

    def __init__(self, padding, fill=0, padding_mode="constant"):
        super().__init__()
        if not isinstance(padding, (int, tuple, list)):
            raise TypeError(f"Got inappropriate padding arg {padding!r}")
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        if not isinstance(padding, int) and len(padding) not in (1, 2, 4):
            raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple")
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def apply(self, img):
        return self._f.pad(img, self.padding, self.fill, self.padding_mode)


class Lambda(Transform):
    """A function of one's own as a transform."""

    def __init__(self, lambd, *types):
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        super().__init__()
        self.lambd, self.types = lambd, types

    def apply(self, img):
        return self.lambd(img)


class RandomApply(Transform):
    """The transforms, all or none, with the probability `p`."""

    def __init__(self, transforms, p=0.5):
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, *inputs):
        value = inputs if len(inputs) > 1 else inputs[0]
        if self.p < wisp.rand(1):
            return value
        for transform in self.transforms:
            value = transform(*value) if isinstance(value, tuple) and len(inputs) > 1 else transform(value)
        return value

    def __repr__(self):
        return "\n    ".join([f"{type(self).__name__}(", f"p={self.p}", *map(str, self.transforms)]) + "\n)"


class RandomOrder(Transform):
    """The transforms in a random order."""

    def __init__(self, transforms):
        super().__init__()
        self.transforms = transforms

    def forward(self, img):
        for index in wisp.randperm(len(self.transforms)).tolist():
            img = self.transforms[index](img)
        return img


class RandomChoice(Transform):
    """One of the transforms."""

    def __init__(self, transforms, p=None):
        super().__init__()
        if p is not None and len(p) != len(transforms):
            raise ValueError(f"Length of p doesn't match the number of transforms: {len(p)} != {len(transforms)}")
        self.transforms, self.p = transforms, p

    def forward(self, *inputs):
        weights = wisp.tensor([1.0] * len(self.transforms) if self.p is None else [float(value) for value in self.p])
        return self.transforms[int(wisp.multinomial(weights, 1))](*inputs)


class RandomCrop(Transform):
    """A part of the image at a random place.

    >>> import wisp
    >>> from wisp.vision import transforms
    >>> transforms.RandomCrop(32, padding=4)(wisp.rand(3, 32, 32)).shape
    torch.Size([3, 32, 32])
    """

    _shown = ("size", "padding")

    def __init__(self, size, padding=None, pad_if_needed=False, fill=0, padding_mode="constant"):
        super().__init__()
        self.size = pair(size, "RandomCrop")
        self.padding, self.pad_if_needed, self.fill, self.padding_mode = padding, pad_if_needed, fill, padding_mode

    @staticmethod
    def get_params(img, output_size):
        """top, left, height, width of a random part."""
        rows, columns = size_of(img)
        height, width = output_size
        if rows < height or columns < width:
            raise ValueError(f"Required crop size {(height, width)} is larger than input image size {(rows, columns)}")
        if (rows, columns) == (height, width):
            return 0, 0, rows, columns
        return integer(rows - height + 1), integer(columns - width + 1), height, width

    def _padded(self, img):
        if self.padding is not None:
            img = self._f.pad(img, self.padding, self.fill, self.padding_mode)
        if self.pad_if_needed:
            rows, columns = size_of(img)
            if columns < self.size[1]:
                img = self._f.pad(img, [self.size[1] - columns, 0], self.fill, self.padding_mode)
            if rows < self.size[0]:
                img = self._f.pad(img, [0, self.size[0] - rows], self.fill, self.padding_mode)
        return img

    def params(self, img):
        return self.get_params(self._padded(img), self.size)

    def apply(self, img, top, left, height, width):
        return self._f.crop(self._padded(img), top, left, height, width)

    def forward(self, img):
        img = self._padded(img)
        return self._f.crop(img, *self.get_params(img, self.size))


class RandomHorizontalFlip(Maybe):
    """Left and right exchanged, with the probability `p`."""

    def change(self, img):
        return self._f.hflip(img)


class RandomVerticalFlip(Maybe):
    """Upside down, with the probability `p`."""

    def change(self, img):
        return self._f.vflip(img)


class RandomResizedCrop(Transform):
    """A part of the image of random size and shape, brought to one size.

    >>> import wisp
    >>> from wisp.vision import transforms
    >>> transforms.RandomResizedCrop(8)(wisp.rand(3, 32, 32)).shape
    torch.Size([3, 8, 8])
    """

    _shown = ("size", "scale", "ratio", "interpolation", "antialias")

    def __init__(self, size, scale=(0.08, 1.0), ratio=(3.0 / 4.0, 4.0 / 3.0), interpolation=InterpolationMode.BILINEAR, antialias=True):
        super().__init__()
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            warnings.warn("Scale and ratio should be of kind (min, max)")
        self.size, self.scale, self.ratio = pair(size, "RandomResizedCrop"), scale, ratio
        self.interpolation, self.antialias = interpolation_of(interpolation), antialias

    @staticmethod
    def get_params(img, scale, ratio):
        """top, left, height, width of a part of random size and shape."""
        rows, columns = size_of(img)
        low, high = math.log(ratio[0]), math.log(ratio[1])
        for _ in range(10):
            area = rows * columns * uniform(*scale)
            shape = math.exp(uniform(low, high))
            width, height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < width <= columns and 0 < height <= rows:
                return integer(rows - height + 1), integer(columns - width + 1), height, width
        shape = columns / rows
        if shape < min(ratio):
            width, height = columns, round(columns / min(ratio))
        elif shape > max(ratio):
            width, height = round(rows * max(ratio)), rows
        else:
            width, height = columns, rows
        return (rows - height) // 2, (columns - width) // 2, height, width

    def params(self, img):
        return self.get_params(img, self.scale, self.ratio)

    def apply(self, img, top, left, height, width):
        return self._f.resized_crop(img, top, left, height, width, self.size, self.interpolation, antialias=self.antialias)


class FiveCrop(Transform):
    """The four corners and the middle: a tuple of images."""

    _shown = ("size",)

    def __init__(self, size):
        super().__init__()
        self.size = pair(size, "FiveCrop")

    def apply(self, img):
        return self._f.five_crop(img, self.size)


class TenCrop(FiveCrop):
    """The five crops of the image and of the flipped image."""

    _shown = ("size", "vertical_flip")

    def __init__(self, size, vertical_flip=False):
        super().__init__(size)
        self.vertical_flip = vertical_flip

    def apply(self, img):
        return self._f.ten_crop(img, self.size, self.vertical_flip)


class LinearTransformation(Transform):
    """The flattened image, less the mean vector, times a matrix (as in whitening)."""

    def __init__(self, transformation_matrix, mean_vector):
        super().__init__()
        rows, columns = transformation_matrix.shape
        if rows != columns or mean_vector.shape[0] != rows:
            raise ValueError(
                f"transformation_matrix should be square and of the mean_vector's length. Got {rows} x {columns} and {mean_vector.shape[0]}"
            )
        self.transformation_matrix, self.mean_vector = transformation_matrix, mean_vector

    def apply(self, tensor):
        size = tensor.shape[-3] * tensor.shape[-2] * tensor.shape[-1]
        if size != self.transformation_matrix.shape[0]:
            raise ValueError(
                f"Input tensor and transformation matrix have incompatible shape. {size} != {self.transformation_matrix.shape[0]}"
            )
        if tensor.device != self.mean_vector.device:
            raise ValueError(
                f"Input tensor should be on the same device as transformation matrix and mean vector. Got {tensor.device} "
                f"vs {self.mean_vector.device}"
            )
        return ((tensor.reshape(-1, size) - self.mean_vector) @ self.transformation_matrix).reshape(tensor.shape)


class Grayscale(Transform):
    """The image without colours."""

    _shown = ("num_output_channels",)

    def __init__(self, num_output_channels=1):
        super().__init__()
        self.num_output_channels = num_output_channels

    def apply(self, img):
        return self._f.rgb_to_grayscale(img, self.num_output_channels)


class RandomGrayscale(Maybe):
    """Without colours, with the probability `p`; as many channels as before."""

    def __init__(self, p=0.1):
        super().__init__(p)

    def change(self, img):
        return self._f.rgb_to_grayscale(img, channels_of(img))


class GaussianBlur(Transform):
    """Blurred by a Gaussian of random width."""

    _shown = ("kernel_size", "sigma")

    def __init__(self, kernel_size, sigma=(0.1, 2.0)):
        super().__init__()
        self.kernel_size = pair(kernel_size, "GaussianBlur")
        if any(size <= 0 or size % 2 == 0 for size in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        self.sigma = (float(sigma), float(sigma)) if isinstance(sigma, numbers.Number) else tuple(sigma)
        if not 0.0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError("sigma values should be positive and of the form (min, max).")

    @staticmethod
    def get_params(sigma_min, sigma_max):
        """A random width."""
        return uniform(sigma_min, sigma_max)

    def params(self, img):
        return (self.get_params(*self.sigma),)

    def apply(self, img, sigma):
        return self._f.gaussian_blur(img, list(self.kernel_size), [sigma, sigma])


class RandomInvert(Maybe):
    """The negative, with the probability `p`."""

    def change(self, img):
        return self._f.invert(img)


class RandomPosterize(Maybe):
    """Only the highest bits kept, with the probability `p`."""

    _shown = ("bits", "p")

    def __init__(self, bits, p=0.5):
        super().__init__(p)
        self.bits = bits

    def change(self, img):
        return self._f.posterize(img, self.bits)


class RandomSolarize(Maybe):
    """The negative of all numbers from the threshold on, with the probability `p`."""

    _shown = ("threshold", "p")

    def __init__(self, threshold, p=0.5):
        super().__init__(p)
        self.threshold = threshold

    def change(self, img):
        return self._f.solarize(img, self.threshold)


class RandomAdjustSharpness(Maybe):
    """Sharper or softer, with the probability `p`."""

    _shown = ("sharpness_factor", "p")

    def __init__(self, sharpness_factor, p=0.5):
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def change(self, img):
        return self._f.adjust_sharpness(img, self.sharpness_factor)


class RandomAutocontrast(Maybe):
    """Stretched to the full range, with the probability `p`."""

    def change(self, img):
        return self._f.autocontrast(img)


class RandomEqualize(Maybe):
    """All brightnesses about equally frequent, with the probability `p`."""

    def change(self, img):
        return self._f.equalize(img)


# the names of torchvision 0.1
Scale, RandomSizedCrop = Resize, RandomResizedCrop
