"""Sharded checkpoints as safetensors files: not written or read; whole models are, by `wisp.utils.safetensors`."""

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


class _Absent:
    def __init__(self, *args, **kwargs):
        raise NotImplementedError(
            f"{type(self).__name__}: sharded checkpoints are written by FileSystemWriter; a whole model is written "
            "as safetensors by the safetensors library or wisp.utils.safetensors"
        )


class HuggingFaceStorageReader(_Absent):
    """Not available: raises NotImplementedError."""


class HuggingFaceStorageWriter(_Absent):
    """Not available: raises NotImplementedError."""
