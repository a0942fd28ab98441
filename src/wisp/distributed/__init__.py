"""Many processes that act as one program, with PyTorch's API on MPI (`pip install wisp[mpi]`): groups, collectives, messages.

Start the processes with `wisp launch -n 4 train.py`, `mpiexec -n 4 python train.py` or `wisp.multiprocessing.spawn`. A world of one
process needs no MPI. A rank that is missing, gone, or about to do something else than the others is named in an error, with what each
did last.
"""

from wisp.distributed import collectives as _collectives
from wisp.distributed._extras import *  # noqa: F403
from wisp.distributed._extras import __all__ as _extra_names
from wisp.distributed._groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
)
from wisp.distributed._traffic import Traffic, count_traffic
from wisp.distributed._work import DistBackendError, DistError, DistNetworkError, DistStoreError, Work
from wisp.distributed.collectives import (
    ReduceOp,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_op,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from wisp.distributed.objects import (
    P2POp,
    all_gather_object,
    batch_isend_irecv,
    broadcast_object_list,
    gather_object,
    irecv,
    isend,
    recv,
    recv_object_list,
    scatter_object_list,
    send,
    send_object_list,
)

_all_gather_base, _reduce_scatter_base = _collectives._all_gather_base, _collectives._reduce_scatter_base

__all__ = [
    "Backend",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "GroupMember",
    "P2POp",
    "ProcessGroup",
    "ReduceOp",
    "Traffic",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "count_traffic",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "irecv",
    "is_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    *_extra_names,
]


def __getattr__(name):
    if name in ("nn", "run", "launch", "algorithms", "elastic", "optim", "tensor", "device_mesh", "fsdp", "checkpoint", "ray"):
        import importlib

        return importlib.import_module("wisp.distributed." + name)
    if name in ("DeviceMesh", "init_device_mesh"):
        from wisp.distributed import device_mesh

        return getattr(device_mesh, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
