"""Data loading, checkpointing and other helpers."""
import importlib

_SUBMODULES = ("benchmark", "checkpoint", "collect_env", "data", "dlpack", "hooks", "model_zoo", "safetensors", "tensorboard", "_pytree")


def __getattr__(name):
    if name in _SUBMODULES:
        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
