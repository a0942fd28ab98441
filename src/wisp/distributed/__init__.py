"""Many processes that act as one program, with PyTorch's API on MPI (`pip install wisp[mpi]`): groups, collectives, messages.

Start the processes with `wisp launch -n 4 train.py`, `mpiexec -n 4 python train.py` or `wisp.multiprocessing.spawn`. A world of one
process needs no MPI. A rank that is missing, gone, or about to do something else than the others is named in an error, with what each
did last.
"""

from wisp import _reference
from wisp.distributed import _extras, _groups, collectives, device_mesh, objects, stores
from wisp.distributed._extras import *  # noqa: F403
from wisp.distributed._groups import *  # noqa: F403
from wisp.distributed._traffic import Traffic, count_traffic
from wisp.distributed._work import DistBackendError, DistError, DistNetworkError, DistStoreError, Work
from wisp.distributed.collectives import *  # noqa: F403
from wisp.distributed.device_mesh import *  # noqa: F403
from wisp.distributed.objects import *  # noqa: F403
from wisp.distributed.stores import *  # noqa: F403

_all_gather_base, _reduce_scatter_base = collectives._all_gather_base, collectives._reduce_scatter_base

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "Traffic", "Work", "count_traffic"]
__all__ += _extras.__all__
__all__ += _groups.__all__
__all__ += collectives.__all__
__all__ += device_mesh.__all__
__all__ += objects.__all__
__all__ += stores.__all__


def __getattr__(name):
    if name in ("nn", "run", "launch", "algorithms", "elastic", "optim", "tensor", "fsdp", "checkpoint", "ray"):
        import importlib

        return importlib.import_module("wisp.distributed." + name)
    if name == "_get_default_timeout":
        return lambda backend: _groups.default_pg_timeout
    if name == "_coalescing_manager":
        return _extras._coalescing_manager
    if name == "GradBucket":
        from wisp.nn.parallel.distributed import GradBucket

        return GradBucket
    if name in ("ProcessGroupGloo", "ProcessGroupNCCL"):
        from wisp._C import _distributed_c10d

        return getattr(_distributed_c10d, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
