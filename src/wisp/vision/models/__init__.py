"""The classic models, with torchvision's names, arguments and state_dict keys."""

import sys as _sys

from wisp import _reference
from wisp.vision.models import (  # noqa: F401
    alexnet,
    convnext,
    densenet,
    efficientnet,
    googlenet,
    inception,
    mobilenet,
    regnet,
    resnet,
    shufflenetv2,
    squeezenet,
    swin_transformer,
    unet,
    vgg,
    vision_transformer,
)
from wisp.vision.models._api import Weights, WeightsEnum, get_model, get_model_builder, get_model_weights, get_weight, list_models  # noqa: F401

__all__ = ["get_model", "get_model_builder", "get_model_weights", "get_weight", "list_models"]
for _module in (
    *(alexnet, vgg, resnet, squeezenet, densenet, mobilenet, efficientnet),
    *(vision_transformer, convnext, googlenet, inception, regnet, shufflenetv2, unet, swin_transformer),
):
    for _name in _module.__all__:
        globals()[_name] = getattr(_module, _name)
        if not _module.__name__.endswith(".unet"):  # not torchvision's: `from torchvision.models import *` must not hide a program's own
            __all__.append(_name)
# a function and its module share a name (alexnet, densenet, ...): the function is the attribute, as in torchvision
for _old, _new in (("mobilenetv2", "mobilenet"), ("mobilenetv3", "mobilenet"), ("mnasnet", "shufflenetv2")):
    _sys.modules[f"{__name__}.{_old}"] = globals()[_old] = _sys.modules[f"{__name__}.{_new}"]


def __getattr__(name):
    if name in ("detection", "segmentation", "feature_extraction", "video"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
