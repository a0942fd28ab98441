"""Transforms of whole samples: images with labels, boxes and masks, in any nesting of tuples, lists and dicts."""

import inspect as _inspect

import wisp
from wisp.utils import _pytree
from wisp.vision import tv_tensors
from wisp.vision._pil import is_pil
from wisp.vision.transforms import autoaugment as _autoaugment
from wisp.vision.transforms import transforms as _v1
from wisp.vision.transforms._base import Transform as _V1Transform
from wisp.vision.transforms._base import uniform as _uniform
from wisp.vision.transforms._convert import size_of as _size_of
from wisp.vision.transforms.autoaugment import AutoAugmentPolicy  # noqa: F401
from wisp.vision.transforms.transforms import InterpolationMode
from wisp.vision.transforms.v2 import functional
from wisp.vision.transforms.v2._mix import CutMix, MixUp  # noqa: F401


def _is_image(value):
    return is_pil(value) or isinstance(value, (tv_tensors.Image, tv_tensors.Video))


class Transform(_V1Transform):
    """The base of the transforms of samples; one of one's own overrides `make_params` and `transform`.

    >>> import wisp
    >>> from wisp.vision.transforms import v2
    >>> image, label = v2.CenterCrop(4)(wisp.rand(3, 8, 8), 7)
    >>> image.shape, label
    (torch.Size([3, 4, 4]), 7)
    """

    _f = functional
    _transformed_types = (wisp.Tensor,)

    def make_params(self, flat_inputs):
        """The random choices, as a dictionary."""
        image = next((value for value in flat_inputs if _is_image(value)), None)
        if image is None:
            image = next((value for value in flat_inputs if isinstance(value, wisp.Tensor)), None)
        return {"params": self.params(image)}

    _get_params = make_params

    def transform(self, inpt, params):
        """The work on one part of the sample."""
        return self.apply(inpt, *params["params"])

    def _transform(self, inpt, params):
        return self.transform(inpt, params)

    def _call_kernel(self, function, inpt, *args, **kwargs):
        return function(inpt, *args, **kwargs)

    def forward(self, *inputs):
        flat, spec = _pytree.tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        images = any(_is_image(value) for value in flat)
        pure = next((index for index, value in enumerate(flat) if tv_tensors.is_pure_tensor(value)), None)
        chosen = [
            _is_image(value) or isinstance(value, tv_tensors.TVTensor) or (not images and index == pure) for index, value in enumerate(flat)
        ]
        make = self._get_params if type(self)._get_params is not Transform._get_params else self.make_params
        params = make([value for value, taken in zip(flat, chosen) if taken])
        return _pytree.tree_unflatten([self._transform(value, params) if taken else value for value, taken in zip(flat, chosen)], spec)


class Compose(Transform):
    """Several transforms, one after the other."""

    def __init__(self, transforms):
        super().__init__()
        if not isinstance(transforms, (list, tuple, wisp.nn.ModuleList)):
            raise TypeError("Argument transforms should be a sequence of callables")
        if not transforms:
            raise ValueError("Pass at least one transform")
        self.transforms = transforms

    def forward(self, *inputs):
        several = len(inputs) > 1
        value = inputs if several else inputs[0]
        for transform in self.transforms:
            value = transform(*value) if several else transform(value)
        return value

    def __repr__(self):
        return "Compose(\n" + "".join(f"      {transform}\n" for transform in self.transforms) + ")"


def _renew(name, old):
    """The v2 form of a v1 transform: the same choices and work, on samples."""
    return type(name, (Transform, old), {"__doc__": old.__doc__, "__module__": __name__, "_f": functional})


_OWN = {"Compose", "RandomApply", "RandomChoice", "RandomOrder", "ToTensor", "InterpolationMode", "Scale", "RandomSizedCrop", "Lambda"}
for _name, _old in [(name, getattr(_v1, name)) for name in _v1.__all__] + [(n, getattr(_autoaugment, n)) for n in _autoaugment.__all__]:
    if _name not in _OWN and _inspect.isclass(_old) and issubclass(_old, _V1Transform):
        globals()[_name] = _renew(_name, _old)
RandomApply, RandomChoice, RandomOrder, ToTensor, Lambda = _v1.RandomApply, _v1.RandomChoice, _v1.RandomOrder, _v1.ToTensor, _v1.Lambda
ConvertDtype = ConvertImageDtype = globals()["ConvertImageDtype"]
RGB = type(
    "RGB",
    (Transform,),
    {
        "__doc__": "Three channels.",
        "apply": lambda self, img: functional.rgb_to_grayscale(img, 3) if functional.get_image_num_channels(img) == 1 else img,
    },
)


class Identity(Transform):
    """The sample as it is."""

    def forward(self, *inputs):
        return inputs if len(inputs) > 1 else inputs[0]


class ToImage(Transform):
    """Pillow images, arrays and tensors as tv_tensors.Image."""

    def forward(self, *inputs):
        import numpy

        flat, spec = _pytree.tree_flatten(inputs if len(inputs) > 1 else inputs[0])
        pure = next((i for i, v in enumerate(flat) if tv_tensors.is_pure_tensor(v) or isinstance(v, numpy.ndarray)), None)
        found = any(_is_image(value) for value in flat)
        return _pytree.tree_unflatten(
            [functional.to_image(value) if is_pil(value) or (not found and index == pure) else value for index, value in enumerate(flat)],
            spec,
        )


class ToPureTensor(Transform):
    """Plain tensors of what were images, boxes and masks."""

    def apply(self, inpt):
        return inpt.as_subclass(wisp.Tensor) if isinstance(inpt, tv_tensors.TVTensor) else inpt


class ToDtype(Transform):
    """The images in another dtype; with `scale`, from one full range to the other.

    >>> import wisp
    >>> from wisp.vision.transforms import v2
    >>> v2.ToDtype(wisp.float32, scale=True)(wisp.full((1, 1, 1), 255, dtype=wisp.uint8)).item()
    1.0
    """

    _shown = ("dtype", "scale")

    def __init__(self, dtype, scale=False):
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def apply(self, inpt):
        dtype = self.dtype
        if isinstance(dtype, dict):
            dtype = dtype.get(type(inpt), dtype.get("others"))
            if dtype is None:
                return inpt
        elif isinstance(inpt, (tv_tensors.BoundingBoxes, tv_tensors.Mask)):
            return inpt
        return inpt if is_pil(inpt) else functional.to_dtype(inpt, dtype, self.scale)


class GaussianNoise(Transform):
    """Noise added to float images."""

    _shown = ("mean", "sigma", "clip")

    def __init__(self, mean=0.0, sigma=0.1, clip=True):
        super().__init__()
        self.mean, self.sigma, self.clip = mean, sigma, clip

    def apply(self, img):
        if not isinstance(img, wisp.Tensor) or not img.is_floating_point() or isinstance(img, (tv_tensors.BoundingBoxes, tv_tensors.Mask)):
            return img
        noisy = img + self.mean + wisp.randn_like(img) * self.sigma
        noisy = noisy.clamp(0, 1) if self.clip else noisy
        return tv_tensors.wrap(noisy, like=img) if isinstance(img, tv_tensors.TVTensor) else noisy


class RandomZoomOut(Transform):
    """The image small within a larger canvas, with the probability `p`."""

    _shown = ("side_range", "p", "fill")

    def __init__(self, fill=0, side_range=(1.0, 4.0), p=0.5):
        super().__init__()
        self.fill, self.side_range, self.p = fill, side_range, p

    def params(self, img):
        if wisp.rand(1) >= self.p:
            return (None,)
        height, width = _size_of(img)
        factor = _uniform(*self.side_range)
        rows, columns = int(height * factor), int(width * factor)
        left, top = int((columns - width) * _uniform(0, 1)), int((rows - height) * _uniform(0, 1))
        return ([left, top, columns - width - left, rows - height - top],)

    def apply(self, inpt, padding):
        return inpt if padding is None else functional.pad(inpt, padding, self.fill)


class ScaleJitter(Transform):
    """Resized by a random factor of `target_size`."""

    _shown = ("target_size", "scale_range")

    def __init__(self, target_size, scale_range=(0.1, 2.0), interpolation=InterpolationMode.BILINEAR, antialias=True):
        super().__init__()
        self.target_size, self.scale_range, self.interpolation, self.antialias = target_size, scale_range, interpolation, antialias

    def params(self, img):
        height, width = _size_of(img)
        factor = _uniform(*self.scale_range) * min(self.target_size[0] / height, self.target_size[1] / width)
        return ([int(height * factor), int(width * factor)],)

    def apply(self, inpt, size):
        return functional.resize(inpt, size, self.interpolation, antialias=self.antialias)


class RandomResize(Transform):
    """The smaller edge resized to a random length."""

    _shown = ("min_size", "max_size")

    def __init__(self, min_size, max_size, interpolation=InterpolationMode.BILINEAR, antialias=True):
        super().__init__()
        self.min_size, self.max_size, self.interpolation, self.antialias = min_size, max_size, interpolation, antialias

    def params(self, img):
        return (int(wisp.randint(self.min_size, self.max_size, ())),)

    def apply(self, inpt, size):
        return functional.resize(inpt, [size], self.interpolation, antialias=self.antialias)


class RandomPhotometricDistort(Transform):
    """Brightness, contrast, saturation and hue, each changed with the probability `p`."""

    _shown = ("brightness", "contrast", "saturation", "hue", "p")

    def __init__(self, brightness=(0.875, 1.125), contrast=(0.5, 1.5), saturation=(0.5, 1.5), hue=(-0.05, 0.05), p=0.5):
        super().__init__()
        self.brightness, self.contrast, self.saturation, self.hue, self.p = brightness, contrast, saturation, hue, p

    def params(self, img):
        return tuple(
            _uniform(*limits) if wisp.rand(1) < self.p else None for limits in (self.brightness, self.contrast, self.saturation, self.hue)
        )

    def apply(self, img, *factors):
        functions = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation, functional.adjust_hue)
        for function, factor in zip(functions, factors):
            img = img if factor is None else function(img, factor)
        return img


class ConvertBoundingBoxFormat(Transform):
    """The boxes of the sample in another format."""

    _shown = ("format",)

    def __init__(self, format):
        super().__init__()
        self.format = format

    def apply(self, inpt):
        boxes = isinstance(inpt, tv_tensors.BoundingBoxes)
        return functional.convert_bounding_box_format(inpt, new_format=self.format) if boxes else inpt


class ClampBoundingBoxes(Transform):
    """The boxes of the sample cut off at the image's edges."""

    def apply(self, inpt):
        return functional.clamp_bounding_boxes(inpt) if isinstance(inpt, tv_tensors.BoundingBoxes) else inpt


class SanitizeBoundingBoxes(Transform):
    """Boxes that are too small or outside of the image left out, with their labels and masks."""

    _shown = ("min_size", "labels_getter")

    def __init__(self, min_size=1.0, min_area=1.0, labels_getter="default"):
        super().__init__()
        self.min_size, self.min_area, self.labels_getter = min_size, min_area, labels_getter

    def forward(self, *inputs):
        sample = inputs if len(inputs) > 1 else inputs[0]
        flat, spec = _pytree.tree_flatten(sample)
        boxes = next((value for value in flat if isinstance(value, tv_tensors.BoundingBoxes)), None)
        if boxes is None:
            return sample
        corners = functional._boxes_as(boxes, tv_tensors.BoundingBoxFormat.XYXY)
        height, width = boxes.canvas_size
        sides = corners[:, 2:] - corners[:, :2]
        good = (
            (sides >= self.min_size).all(1)
            & (sides.prod(1) >= self.min_area)
            & (corners >= 0).all(1)
            & (corners[:, 0::2] <= width).all(1)
            & (corners[:, 1::2] <= height).all(1)
        )
        if callable(self.labels_getter):
            labels = self.labels_getter(sample)
            labels = labels if isinstance(labels, (tuple, list)) else (labels,)
        elif self.labels_getter is None:
            labels = ()
        else:
            target = next((part for part in _walk(sample) if isinstance(part, dict) and "labels" in part), {})
            labels = (target.get("labels"),)
        made = []
        for value in flat:
            if isinstance(value, tv_tensors.BoundingBoxes):
                value = tv_tensors.wrap(value.as_subclass(wisp.Tensor)[good], like=value)
            elif isinstance(value, tv_tensors.Mask) and value.shape[0] == len(good):
                value = tv_tensors.wrap(value.as_subclass(wisp.Tensor)[good], like=value)
            elif any(value is label for label in labels if label is not None):
                value = value[good]
            made.append(value)
        return _pytree.tree_unflatten(made, spec)


def _walk(value):
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ():
        yield from _walk(part)


def query_size(flat_inputs):
    """(height, width) of the first image."""
    return next(tuple(_size_of(value)) for value in flat_inputs if _is_image(value) or isinstance(value, wisp.Tensor))
