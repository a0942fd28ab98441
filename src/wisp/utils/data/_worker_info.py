"""What a loader's worker process knows about itself."""

import dataclasses
import sys
from typing import Any


@dataclasses.dataclass(frozen=True)
class WorkerInfo:
    """A worker's id, the number of workers, its seed, its dataset and generators of its own, begun from the seed."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None


@dataclasses.dataclass
class _RNG:
    """The generators of a worker: of Python's `random`, of Wisp and of NumPy."""

    random_generator: Any
    torch_generator: Any
    numpy_generator: Any


def info_of(id, num_workers, seed, dataset):
    """What a worker tells about itself."""
    import random

    import numpy

    import wisp

    rng = _RNG(random.Random(seed), wisp.Generator().manual_seed(seed), numpy.random.default_rng(seed))
    return WorkerInfo(id, num_workers, seed, dataset, rng)


_current = None


def get_worker_info():
    """In a worker process: its id, the number of workers, its seed and its dataset; None in the main process.

    >>> from wisp.utils.data import get_worker_info
    >>> get_worker_info() is None
    True
    """
    if _current is None:  # a worker of a library's own loader tells by PyTorch's name
        return getattr(sys.modules.get("wisp.utils.data._utils.worker"), "_worker_info", None)
    return _current


def set_worker_info(info):
    global _current
    _current = info


def _generate_state(base_seed, worker_id):
    """Four words for NumPy's generator in a worker, which follow from both numbers."""
    import numpy

    return numpy.random.SeedSequence([worker_id, base_seed]).generate_state(4).tolist()
