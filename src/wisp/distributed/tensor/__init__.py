"""Tensors that lie in parts on several processes."""

from wisp import _reference
from wisp.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: F401
from wisp.distributed.tensor._dtensor import DTensor, DTensorParameter, distribute_module, distribute_tensor  # noqa: F401
from wisp.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard  # noqa: F401

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "init_device_mesh",
]

_reference.attach(__name__, globals())
