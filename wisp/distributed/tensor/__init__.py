"""Tensors that lie in parts on several processes: there are none in a group of one."""
from wisp.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: F401
from wisp.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard  # noqa: F401

_TEXT = "Wisp does not cut tensors over processes so far"


class DTensor:
    """No tensor is one."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"DTensor: {_TEXT}")

    @staticmethod
    def from_local(*args, **kwargs):
        """Not available."""
        raise NotImplementedError(f"DTensor.from_local: {_TEXT}")


def distribute_tensor(tensor, *args, **kwargs):
    """Not available."""
    raise NotImplementedError(f"distribute_tensor: {_TEXT}")


def distribute_module(module, *args, **kwargs):
    """Not available."""
    raise NotImplementedError(f"distribute_module: {_TEXT}")
