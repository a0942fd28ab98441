"""Sharing memory with other libraries through DLPack."""

import enum

from wisp import _core

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(enum.IntEnum):
    """The numbers that DLPack has for kinds of devices; Wisp's tensors are on the first two.

    >>> import wisp
    >>> wisp.ones(2).__dlpack_device__()[0] == DLDeviceType.kDLCPU
    True
    """

    kDLCPU, kDLCUDA, kDLCUDAHost, kDLOpenCL = 1, 2, 3, 4
    kDLVulkan, kDLMetal, kDLVPI, kDLROCM, kDLROCMHost, kDLExtDev, kDLCUDAManaged = 7, 8, 9, 10, 11, 12, 13
    kDLOneAPI, kDLWebGPU, kDLHexagon, kDLMAIA = 14, 15, 16, 17


def to_dlpack(tensor):
    """A DLPack capsule of a tensor's memory."""
    return tensor.__dlpack__()


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """A tensor on the memory of anything that speaks DLPack (or on a DLPack capsule).

    >>> import numpy, wisp
    >>> array = numpy.arange(3.0)
    >>> tensor = wisp.from_dlpack(array)
    >>> array[0] = 7
    >>> tensor
    tensor([7., 1., 2.], dtype=torch.float64)
    """
    if device is not None or copy is True:
        tensor = from_dlpack(ext_tensor)
        return tensor.clone() if device is None else tensor.to(device, copy=bool(copy))
    if hasattr(ext_tensor, "__dlpack__"):
        kind, index = ext_tensor.__dlpack_device__() if hasattr(ext_tensor, "__dlpack_device__") else (1, 0)
        if kind == 2:  # on a GPU: its work is done before ours goes on
            from wisp.cuda import current_stream

            ext_tensor = ext_tensor.__dlpack__(stream=current_stream(index).cuda_stream or 1)
        else:
            ext_tensor = ext_tensor.__dlpack__()
    return _core._from_dlpack(ext_tensor)
