"""The iterator of PyTorch's loader as libraries subclass it (torchdata's StatefulDataLoader), with the parts that theirs use.

Wisp's own loader has iterators of its own (`dataloader.py`), which count as instances of it.
"""

import abc
import os

import wisp
from wisp.utils.data.dataset import IterableDataset


class _MapDatasetFetcher:
    """From an index, or a list of them, to a batch."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        self.dataset, self.auto_collation, self.collate_fn, self.drop_last = dataset, auto_collation, collate_fn, drop_last

    def fetch(self, possibly_batched_index):
        """The batch."""
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        if getattr(self.dataset, "__getitems__", None):
            return self.collate_fn(self.dataset.__getitems__(possibly_batched_index))
        return self.collate_fn([self.dataset[index] for index in possibly_batched_index])


class _IterableDatasetFetcher(_MapDatasetFetcher):
    """The next samples of an iterable dataset, as many as there are indices."""

    def __init__(self, dataset, auto_collation, collate_fn, drop_last):
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter, self.ended = iter(dataset), False

    def fetch(self, possibly_batched_index):
        """The batch; StopIteration at the end."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        samples = []
        for _ in possibly_batched_index:
            try:
                samples.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(possibly_batched_index)):
            raise StopIteration
        return self.collate_fn(samples)


class _BaseDataLoaderIter(metaclass=abc.ABCMeta):  # noqa: B024
    """What an iterator of a loader has and does, but for `_next_data`, which makes a batch."""

    def __init__(self, loader):
        self._dataset = loader.dataset
        self._dataset_kind = getattr(loader, "_dataset_kind", int(isinstance(loader.dataset, IterableDataset)))
        self._shared_seed, self._pg = None, None
        self._IterableDataset_len_called = getattr(loader, "_IterableDataset_len_called", None)
        self._auto_collation, self._drop_last = loader._auto_collation, loader.drop_last
        self._index_sampler = loader.batch_sampler if self._auto_collation else loader.sampler
        self._num_workers, self._world_size, self._rank = loader.num_workers, *_world()
        self._pin_memory = bool(loader.pin_memory) and wisp.cuda.is_available()
        self._pin_memory_device = getattr(loader, "pin_memory_device", None) or None
        self._timeout, self._collate_fn, self._persistent_workers = loader.timeout, loader.collate_fn, loader.persistent_workers
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = int(wisp.empty((), dtype=wisp.int64).random_(generator=loader.generator))
        self._num_yielded, self._profile_name = 0, f"enumerate(DataLoader)#{type(self).__name__}.__next__"

    def __iter__(self):
        return self

    def _reset(self, loader, first_iter=False):
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = getattr(loader, "_IterableDataset_len_called", None)

    def _next_index(self):
        return next(self._sampler_iter)

    def _next_data(self):
        raise NotImplementedError

    def __next__(self):
        if self._sampler_iter is None:
            self._reset(None)
        data = self._next_data()
        self._num_yielded += 1
        return data

    def __len__(self):
        return len(self._index_sampler)

    def __getstate__(self):
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


def _world():
    from wisp import distributed

    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


class ManagerWatchdog:
    """In a worker: whether the process that started it still runs."""

    def __init__(self):
        self.manager_pid, self.manager_dead = os.getppid(), False

    def is_alive(self):
        """Whether it does."""
        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


class _IterableDatasetStopIteration:
    """A worker's word that its part of an iterable dataset is at its end."""

    def __init__(self, worker_id):
        self.worker_id = worker_id


class _ResumeIteration:
    """The word to a worker that begins the next epoch."""

    def __init__(self, seed=None):
        self.seed = seed
