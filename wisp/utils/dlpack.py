"""Sharing memory with other libraries through DLPack."""
from wisp import _core

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor):
    """A DLPack capsule of a tensor's memory."""
    return tensor.__dlpack__()


def from_dlpack(ext_tensor):
    """A tensor on the memory of anything that speaks DLPack (or on a DLPack capsule).

    >>> import numpy, wisp
    >>> array = numpy.arange(3.0)
    >>> tensor = wisp.from_dlpack(array)
    >>> array[0] = 7
    >>> tensor
    tensor([7., 1., 2.], dtype=torch.float64)
    """
    if hasattr(ext_tensor, "__dlpack__"):
        ext_tensor = ext_tensor.__dlpack__()
    return _core._from_dlpack(ext_tensor)
