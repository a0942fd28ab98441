"""Transforms of images, as `torchvision.transforms` has them; the newer ones for images with boxes and masks are in `v2`."""

import importlib as _importlib

from wisp import _reference
from wisp.vision.transforms import autoaugment as _autoaugment
from wisp.vision.transforms import functional, transforms  # noqa: F401
from wisp.vision.transforms.autoaugment import *  # noqa: F403
from wisp.vision.transforms.transforms import *  # noqa: F403

__all__ = [*transforms.__all__, *_autoaugment.__all__]


def __getattr__(name):
    if name == "v2":
        return _importlib.import_module(f"{__name__}.v2")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
