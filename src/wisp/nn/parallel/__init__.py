"""Data parallelism within a process (`DataParallel`) and between processes (`DistributedDataParallel`)."""

import wisp.nn.parallel.parallel_apply  # modules too, as in PyTorch; imported first, so that their names stay those of the functions
import wisp.nn.parallel.replicate  # noqa: F401
from wisp import _reference
from wisp.nn.parallel.data_parallel import DataParallel, data_parallel
from wisp.nn.parallel.distributed import DistributedDataParallel
from wisp.nn.parallel.scatter_gather import gather, parallel_apply, replicate, scatter, scatter_kwargs

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter", "scatter_kwargs"]

_reference.attach(__name__, globals())
