"""Data loading, checkpointing and other helpers."""
import importlib

_SUBMODULES = ("checkpoint", "data", "dlpack", "hooks", "model_zoo", "_pytree")


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
