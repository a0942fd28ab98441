"""Sharing memory with other libraries through DLPack."""
import wisp

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor):
    """A DLPack capsule of a tensor's memory."""
    return tensor.__dlpack__()


def from_dlpack(ext_tensor):
    """A tensor on the memory of anything that speaks DLPack."""
    return wisp.from_dlpack(ext_tensor)
