"""What all models share: the register of their names, published weights, first weights."""

import enum
import functools
import os
import sys
import urllib.error
import warnings

import wisp
from wisp import nn

_MODELS = {}
_ADDRESS = "https://download.pytorch.org/models/"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Weights:
    """Where published weights are, and the transforms that their model expects.

    >>> Weights("resnet18-f37072fd.pth").url
    'https://download.pytorch.org/models/resnet18-f37072fd.pth'
    """

    def __init__(self, file, crop=224, resize=256, meta=None):
        self.url, self.crop, self.resize = _ADDRESS + file, crop, resize
        self.meta = {"categories": None, **(meta or {})}

    def transforms(self):
        """The transforms of an image for this model."""
        from wisp.vision import transforms as T

        return T.Compose(
            [
                T.Resize(self.resize),
                T.CenterCrop(self.crop),
                T.Lambda(lambda image: image if isinstance(image, wisp.Tensor) else T.functional.pil_to_tensor(image)),
                T.ConvertImageDtype(wisp.float32),
                T.Normalize(MEAN, STD),
            ]
        )


class WeightsEnum(enum.Enum):
    """The published weights of a model, as `ResNet18_Weights.IMAGENET1K_V1`.

    >>> from wisp.vision.models import ResNet18_Weights
    >>> ResNet18_Weights.DEFAULT.url
    'https://download.pytorch.org/models/resnet18-f37072fd.pth'
    """

    url = property(lambda self: self.value.url)
    meta = property(lambda self: self.value.meta)
    transforms = property(lambda self: self.value.transforms)

    def get_state_dict(self, progress=True, check_hash=False, **options):
        """The weights: from PyTorch's or Wisp's cache, or downloaded; where that fails, the error says where to put the file."""
        name = os.path.basename(self.url)
        from wisp import hub

        folder = os.path.join(hub.get_dir(), "checkpoints")
        theirs = os.path.join(os.environ.get("TORCH_HOME", os.path.expanduser("~/.cache/torch")), "hub", "checkpoints")
        for place in (folder, theirs):
            path = os.path.join(place, name)
            if os.path.isfile(path):
                return wisp.load(path, map_location="cpu")
        try:
            return hub.load_state_dict_from_url(self.url, progress=progress, check_hash=check_hash)
        except (urllib.error.URLError, OSError) as error:
            raise RuntimeError(
                f"the weights {self} could not be downloaded from {self.url} ({error}); get the file elsewhere and put "
                f"it at {os.path.join(folder, name)}, or ask for weights=None"
            ) from error


def weights_of(name, default=None, **files):
    """The class `Name_Weights` with a member for each file; the default is the last, or the one named."""
    made = {key: value if isinstance(value, Weights) else Weights(value) for key, value in files.items()}
    if made:
        made["DEFAULT"] = made[default or list(made)[-1]]
    kind = WeightsEnum(f"{name}_Weights", made, module=sys._getframe(1).f_globals["__name__"])
    kind.__doc__ = f"The published weights of {name}: `{name}_Weights.DEFAULT`, or another of its members."
    return kind


def _chosen(kind, weights, what):
    """The member of a weights class that was asked for, or None."""
    if weights is None or weights is False:
        return None
    if isinstance(weights, kind):
        return weights
    if weights is True:
        return kind.IMAGENET1K_V1 if "IMAGENET1K_V1" in kind.__members__ else kind.DEFAULT
    if isinstance(weights, str):
        name = weights.split(".")[-1]
        if name in kind.__members__:
            return kind[name]
    raise ValueError(f"{what}: there are no weights {weights!r}; known: {', '.join(kind.__members__) or 'none'}, or None")


def model(weights=None, old=False, fitting=None):
    """A decorator for the functions that make models: registers the name, and loads published weights that are asked for.

    The function gets the remaining keyword arguments; `fitting` are those that the published weights need.
    """

    def decorate(function):
        name = function.__name__

        @functools.wraps(function)
        def build(*args, weights=None, progress=True, **options):
            if args:  # weights was called pretrained, and came first
                if len(args) > 2:
                    raise TypeError(f"{name}() takes at most 2 positional arguments (weights, progress), got {len(args)}")
                weights = args[0]
            if "pretrained" in options:
                asked = options.pop("pretrained")
                warnings.warn("The parameter 'pretrained' is deprecated, please use 'weights' instead.")
                weights = weights if asked is False else asked if weights is None else weights
            member = _chosen(kind, weights, name)
            if member is None:
                return function(**options)
            classes = (fitting or {}).get("num_classes", 1000)
            if "num_classes" in options and options["num_classes"] != classes and kind is not None:
                raise ValueError(f"The parameter 'num_classes' expected value {classes} but got {options['num_classes']} instead.")
            made = function(**{**(fitting or {}), **options})
            made.load_state_dict(member.get_state_dict(progress))
            return made

        kind = weights if weights is not None else WeightsEnum(f"{name}_Weights", {}, module=function.__module__)
        build.weights = kind
        _MODELS[name] = build
        return build

    return decorate


def publish(namespace, name, kind, make, *given, fitting=None, **fixed):
    """Put a model and the class of its weights among a module's names: `name(**options)` is make(*given, **fixed, **options)."""

    def build(**options):
        return make(*given, **{**fixed, **options})

    build.__name__ = build.__qualname__ = name
    build.__module__ = namespace["__name__"]
    build.__doc__ = f"The model {name}."
    namespace[kind.__name__], namespace[name] = kind, model(kind, fitting=fitting)(build)
    namespace["__all__"] += [kind.__name__, name]


def _normal(name):
    return name.lower().replace("-", "_")


def get_model_builder(name):
    """The function that makes the model of a name."""
    from wisp.vision import models  # noqa: F401

    found = _MODELS.get(_normal(name))
    if found is None:
        import difflib

        near = difflib.get_close_matches(_normal(name), _MODELS, 3)
        raise ValueError(f"Unknown model {name}" + (f"; closest: {', '.join(near)}" if near else ""))
    return found


def get_model(name, **config):
    """A model by its name.

    >>> from wisp.vision.models import get_model
    >>> sum(p.numel() for p in get_model("squeezenet1_0").parameters())
    1248424
    """
    return get_model_builder(name)(**config)


def get_model_weights(name):
    """The weights class of a model, by the model's name or by the function that makes it."""
    return (name if callable(name) else get_model_builder(name)).weights


def get_weight(name):
    """Weights by their full name: "ResNet50_Weights.IMAGENET1K_V2"."""
    kind, _, member = name.partition(".")
    for build in _MODELS.values():
        if build.weights.__name__ == kind and member in build.weights.__members__:
            return build.weights[member]
    raise ValueError(f"Couldn't find the weight {name}")


def list_models(module=None, include=None, exclude=None):
    """The names of all models; `include` and `exclude` are patterns such as "resnet*"."""
    import fnmatch

    names = [name for name, build in _MODELS.items() if module is None or build.__module__.startswith(module.__name__)]
    patterns = lambda value: [value] if isinstance(value, str) else list(value or ())
    if include:
        names = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns(include))]
    return sorted(name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns(exclude)))


def make_divisible(value, divisor=8, min_value=None):
    """The nearest multiple of `divisor`, not less than nine tenths of the value."""
    result = max(min_value or divisor, int(value + divisor / 2) // divisor * divisor)
    return result + divisor if result < 0.9 * value else result


def initialize(network, linear):
    """The first weights of the quick convolutional models; `linear(weight)` fills those of linear layers."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            linear(module.weight)
            nn.init.zeros_(module.bias)
