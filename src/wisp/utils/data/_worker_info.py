"""What a loader's worker process knows about itself."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class WorkerInfo:
    """A worker's id, the number of workers, its seed and its dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


_current = None


def get_worker_info():
    """In a worker process: its id, the number of workers, its seed and its dataset; None in the main process.

    >>> from wisp.utils.data import get_worker_info
    >>> get_worker_info() is None
    True
    """
    return _current


def set_worker_info(info):
    global _current
    _current = info


def _generate_state(base_seed, worker_id):
    """Four words for NumPy's generator in a worker, which follow from both numbers."""
    import numpy

    return numpy.random.SeedSequence([base_seed, worker_id]).generate_state(4).tolist()
