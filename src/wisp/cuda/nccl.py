"""NCCL, NVIDIA's library for collectives between GPUs, as programs ask about it; `wisp.distributed` uses it."""

__all__ = ["is_available", "version"]


def version():
    """The version of the library, such as (2, 27, 3)."""
    from wisp.distributed import _nccl

    return _nccl.version()


def is_available(tensors):
    """Whether NCCL could take these tensors: dense, contiguous, each on a GPU of its own."""
    from wisp.distributed import _nccl

    devices = {tensor.device for tensor in tensors}
    good = all(tensor.is_cuda and tensor.is_contiguous() for tensor in tensors)
    return good and len(devices) == len(tensors) and _nccl.find() is not None
