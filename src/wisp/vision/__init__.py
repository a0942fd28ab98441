"""Images: datasets, transforms, models and helpers, as `torchvision` has them.

>>> from wisp.vision import datasets, transforms
>>> data = datasets.FakeData(2, (3, 8, 8), transform=transforms.ToTensor())    # doctest: +SKIP
"""

import importlib as _importlib

from wisp import _reference

__version__ = "0.28.0"
_SUBMODULES = ("datasets", "io", "models", "ops", "transforms", "tv_tensors", "utils")
_backend = "PIL"


def get_image_backend():
    """The library that reads image files: "PIL"."""
    return _backend


def set_image_backend(backend):
    """Choose the library that reads image files; there is one, "PIL"."""
    if backend != "PIL":
        raise ValueError(f"Invalid backend '{backend}'. Options are 'PIL'")


def disable_beta_transforms_warning():
    """Nothing to disable."""


def _is_tracing():
    """Whether `jit.trace` runs; DETR asks torchvision."""
    from wisp import jit

    return jit.is_tracing()


def __getattr__(name):
    if name in _SUBMODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *_SUBMODULES])


_reference.attach(__name__, globals())
