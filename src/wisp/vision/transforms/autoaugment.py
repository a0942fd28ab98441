"""Learnt and random policies of augmentation: AutoAugment, RandAugment, TrivialAugmentWide, AugMix."""

import enum
import math

import wisp
from wisp.vision._pil import is_pil
from wisp.vision.transforms._base import Transform, integer
from wisp.vision.transforms._convert import channels_of, size_of
from wisp.vision.transforms._geometry import InterpolationMode, interpolation_of

__all__ = ["AugMix", "AutoAugment", "AutoAugmentPolicy", "RandAugment", "TrivialAugmentWide"]


class AutoAugmentPolicy(enum.Enum):
    """The data on which a policy was learnt."""

    IMAGENET, CIFAR10, SVHN = "imagenet", "cifar10", "svhn"


# The published policies: pairs of operation, probability, magnitude ("-" where the operation has none).
_POLICIES = {
    "imagenet": """
        Posterize .4 8 Rotate .6 9; Solarize .6 5 AutoContrast .6 -; Equalize .8 - Equalize .6 -; Posterize .6 7 Posterize .6 6;
        Equalize .4 - Solarize .2 4; Equalize .4 - Rotate .8 8; Solarize .6 3 Equalize .6 -; Posterize .8 5 Equalize 1 -;
        Rotate .2 3 Solarize .6 8; Equalize .6 - Posterize .4 6; Rotate .8 8 Color .4 0; Rotate .4 9 Equalize .6 -;
        Equalize 0 - Equalize .8 -; Invert .6 - Equalize 1 -; Color .6 4 Contrast 1 8; Rotate .8 8 Color 1 2;
        Color .8 8 Solarize .8 7; Sharpness .4 7 Invert .6 -; ShearX .6 5 Equalize 1 -; Color .4 0 Equalize .6 -;
        Equalize .4 - Solarize .2 4; Solarize .6 5 AutoContrast .6 -; Invert .6 - Equalize 1 -; Color .6 4 Contrast 1 8;
        Equalize .8 - Equalize .6 -""",
    "cifar10": """
        Invert .1 - Contrast .2 6; Rotate .7 2 TranslateX .3 9; Sharpness .8 1 Sharpness .9 3; ShearY .5 8 TranslateY .7 9;
        AutoContrast .5 - Equalize .9 -; ShearY .2 7 Posterize .3 7; Color .4 3 Brightness .6 7; Sharpness .3 9 Brightness .7 9;
        Equalize .6 - Equalize .5 -; Contrast .6 7 Sharpness .6 5; Color .7 7 TranslateX .5 8; Equalize .3 - AutoContrast .4 -;
        TranslateY .4 3 Sharpness .2 6; Brightness .9 6 Color .2 8; Solarize .5 2 Invert 0 -; Equalize .2 - AutoContrast .6 -;
        Equalize .2 - Equalize .6 -; Color .9 9 Equalize .6 -; AutoContrast .8 - Solarize .2 8; Brightness .1 3 Color .7 0;
        Solarize .4 5 AutoContrast .9 -; TranslateY .9 9 TranslateY .7 9; AutoContrast .9 - Solarize .8 3; Equalize .8 - Invert .1 -;
        TranslateY .7 9 AutoContrast .9 -""",
    "svhn": """
        ShearX .9 4 Invert .2 -; ShearY .9 8 Invert .7 -; Equalize .6 - Solarize .6 6; Invert .9 - Equalize .6 -;
        Equalize .6 - Rotate .9 3; ShearX .9 4 AutoContrast .8 -; ShearY .9 8 Invert .4 -; ShearY .9 5 Solarize .2 6;
        Invert .9 - AutoContrast .8 -; Equalize .6 - Rotate .9 3; ShearX .9 4 Solarize .3 3; ShearY .8 8 Invert .7 -;
        Equalize .9 - TranslateY .6 6; Invert .9 - Equalize .6 -; Contrast .3 3 Rotate .8 4; Invert .8 - TranslateY 0 2;
        ShearY .7 6 Solarize .4 8; Invert .6 - Rotate .8 4; ShearY .3 7 TranslateX .9 3; ShearX .1 6 Invert .6 -;
        Solarize .7 2 TranslateY .6 7; ShearY .8 4 Invert .8 -; ShearX .7 9 TranslateY .8 3; ShearY .8 5 AutoContrast .7 -;
        ShearX .7 2 Invert .1 -""",
}


def _read(text):
    policies = []
    for line in text.split(";"):
        words = line.split()
        policies.append([(words[i], float(words[i + 1]), None if words[i + 2] == "-" else int(words[i + 2])) for i in (0, 3)])
    return policies


class _Augment(Transform):
    """What the policies share: the operations, and how strong they are."""

    def _operate(self, img, name, magnitude):
        f, interpolation, fill = self._f, self.interpolation, self._filling(img)
        if name in ("ShearX", "ShearY"):
            degrees = math.degrees(math.atan(magnitude))
            shear = [degrees, 0.0] if name == "ShearX" else [0.0, degrees]
            return f.affine(img, 0.0, [0, 0], 1.0, shear, interpolation, fill, [0, 0])
        if name in ("TranslateX", "TranslateY"):
            move = [int(magnitude), 0] if name == "TranslateX" else [0, int(magnitude)]
            return f.affine(img, 0.0, move, 1.0, [0.0, 0.0], interpolation, fill)
        if name == "Rotate":
            return f.rotate(img, magnitude, interpolation, fill=fill)
        if name in ("Brightness", "Color", "Contrast", "Sharpness"):
            function = {
                "Brightness": f.adjust_brightness,
                "Color": f.adjust_saturation,
                "Contrast": f.adjust_contrast,
                "Sharpness": f.adjust_sharpness,
            }[name]
            return function(img, 1.0 + magnitude)
        if name == "Posterize":
            return f.posterize(img, int(magnitude))
        if name == "Solarize":
            return f.solarize(img, magnitude)
        return {"AutoContrast": f.autocontrast, "Equalize": f.equalize, "Invert": f.invert, "Identity": lambda value: value}[name](img)

    def _filling(self, img):
        if self.fill is None or is_pil(img):
            return self.fill
        return [float(self.fill)] * channels_of(img) if isinstance(self.fill, (int, float)) else [float(v) for v in self.fill]

    def apply(self, img, *params):
        return self._augment(img)


def _space(bins, size, shear=0.3, move=(150.0 / 331.0, 150.0 / 331.0), turn=30.0, colour=0.9, posterize=4.0, identity=True, invert=False):
    """Operation -> (its magnitudes, whether the sign is random). `move` is a part of the size, or of pixels where it is above 1."""
    height, width = size
    far = [part if part > 1 else part * length for part, length in zip(move, (width, height))]
    line = wisp.linspace
    space = {"Identity": (wisp.tensor(0.0), False)} if identity else {}
    space.update(
        {
            "ShearX": (line(0.0, shear, bins), True),
            "ShearY": (line(0.0, shear, bins), True),
            "TranslateX": (line(0.0, far[0], bins), True),
            "TranslateY": (line(0.0, far[1], bins), True),
            "Rotate": (line(0.0, turn, bins), True),
            "Brightness": (line(0.0, colour, bins), True),
            "Color": (line(0.0, colour, bins), True),
            "Contrast": (line(0.0, colour, bins), True),
            "Sharpness": (line(0.0, colour, bins), True),
            "Posterize": (8 - (wisp.arange(bins) / ((bins - 1) / posterize)).round().int(), False),
            "Solarize": (line(255.0, 0.0, bins), False),
            "AutoContrast": (wisp.tensor(0.0), False),
            "Equalize": (wisp.tensor(0.0), False),
        }
    )
    if invert:
        space["Invert"] = (wisp.tensor(0.0), False)
    return space


def _solarized(name, magnitude, img):
    # thresholds are given for bytes
    return magnitude / 255.0 if name == "Solarize" and isinstance(img, wisp.Tensor) and img.is_floating_point() else magnitude


class AutoAugment(_Augment):
    """One of the 25 pairs of operations that were learnt on ImageNet, CIFAR-10 or SVHN.

    >>> import wisp
    >>> from wisp.vision import transforms
    >>> transforms.AutoAugment()(wisp.zeros(3, 8, 8, dtype=wisp.uint8)).shape
    torch.Size([3, 8, 8])
    """

    _shown = ("policy", "fill")

    def __init__(self, policy=AutoAugmentPolicy.IMAGENET, interpolation=InterpolationMode.NEAREST, fill=None):
        super().__init__()
        self.policy, self.interpolation, self.fill = AutoAugmentPolicy(policy), interpolation_of(interpolation), fill
        self.policies = _read(_POLICIES[self.policy.value])

    def _augment(self, img):
        space = _space(10, size_of(img), identity=False, invert=True)
        for name, probability, step in self.policies[integer(len(self.policies))]:
            chance, sign = float(wisp.rand(1)), integer(2)
            if chance <= probability:
                magnitudes, signed = space[name]
                magnitude = float(magnitudes[step]) if step is not None else 0.0
                img = self._operate(img, name, _solarized(name, -magnitude if signed and sign == 0 else magnitude, img))
        return img


class RandAugment(_Augment):
    """`num_ops` operations chosen at random, all of the same strength."""

    _shown = ("num_ops", "magnitude", "num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_ops=2, magnitude=9, num_magnitude_bins=31, interpolation=InterpolationMode.NEAREST, fill=None):
        super().__init__()
        self.num_ops, self.magnitude, self.num_magnitude_bins = num_ops, magnitude, num_magnitude_bins
        self.interpolation, self.fill = interpolation_of(interpolation), fill

    def _augment(self, img):
        space = _space(self.num_magnitude_bins, size_of(img))
        for _ in range(self.num_ops):
            name = list(space)[integer(len(space))]
            magnitudes, signed = space[name]
            magnitude = float(magnitudes[self.magnitude]) if magnitudes.dim() else 0.0
            img = self._operate(img, name, _solarized(name, -magnitude if signed and integer(2) else magnitude, img))
        return img


class TrivialAugmentWide(_Augment):
    """One operation of random strength."""

    _shown = ("num_magnitude_bins", "interpolation", "fill")

    def __init__(self, num_magnitude_bins=31, interpolation=InterpolationMode.NEAREST, fill=None):
        super().__init__()
        self.num_magnitude_bins, self.interpolation, self.fill = num_magnitude_bins, interpolation_of(interpolation), fill

    def _augment(self, img):
        space = _space(self.num_magnitude_bins, size_of(img), shear=0.99, move=(32.0, 32.0), turn=135.0, colour=0.99, posterize=6.0)
        name = list(space)[integer(len(space))]
        magnitudes, signed = space[name]
        magnitude = float(magnitudes[integer(len(magnitudes))]) if magnitudes.dim() else 0.0
        return self._operate(img, name, _solarized(name, -magnitude if signed and integer(2) else magnitude, img))


class AugMix(_Augment):
    """The image mixed with several chains of random operations."""

    _shown = ("severity", "mixture_width", "chain_depth", "alpha", "all_ops")

    def __init__(
        self, severity=3, mixture_width=3, chain_depth=-1, alpha=1.0, all_ops=True, interpolation=InterpolationMode.BILINEAR, fill=None
    ):
        super().__init__()
        if not 1 <= severity <= 10:
            raise ValueError(f"The severity must be between [1, 10]. Got {severity} instead.")
        self.severity, self.mixture_width, self.chain_depth, self.alpha, self.all_ops = severity, mixture_width, chain_depth, alpha, all_ops
        self.interpolation, self.fill = interpolation_of(interpolation), fill

    def _augment(self, img):
        if is_pil(img):
            return self._f.to_pil_image(self._augment(self._f.pil_to_tensor(img)), img.mode)
        space = _space(10, size_of(img), move=(1 / 3, 1 / 3), identity=False)
        if not self.all_ops:
            space = {name: value for name, value in space.items() if name not in ("Brightness", "Color", "Contrast", "Sharpness")}
        kept = wisp.distributions.Beta(self.alpha, self.alpha).sample().item()
        weights = wisp.distributions.Dirichlet(wisp.full((self.mixture_width,), self.alpha)).sample().tolist()
        mixed = kept * img.float()
        for weight in weights:
            part = img
            for _ in range(self.chain_depth if self.chain_depth > 0 else 1 + integer(3)):
                name = list(space)[integer(len(space))]
                magnitudes, signed = space[name]
                magnitude = float(magnitudes[integer(self.severity)]) if magnitudes.dim() else 0.0
                part = self._operate(part, name, _solarized(name, -magnitude if signed and integer(2) else magnitude, part))
            mixed = mixed + (1.0 - kept) * weight * part.float()
        return mixed.to(img.dtype)
