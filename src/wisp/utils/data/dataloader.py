"""DataLoader: batches of a dataset, in this process or from worker processes."""

import itertools
import multiprocessing
import os
import queue
import threading
import typing
import warnings

import wisp
from wisp.utils.data._base_iterator import _BaseDataLoaderIter, _IterableDatasetFetcher, _MapDatasetFetcher
from wisp.utils.data._collate import default_collate, default_convert
from wisp.utils.data._fetch import collated_fetch, make_fetch, stream_batches
from wisp.utils.data._seeding import Seeds
from wisp.utils.data._worker_info import get_worker_info
from wisp.utils.data.dataset import Dataset, IterableDataset  # noqa: F401
from wisp.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, new_seed

T_co = typing.TypeVar("T_co", covariant=True)
__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


def _pinned(data, device=None):
    """The data with its tensors in pinned memory; an object with a `pin_memory` method of its own does that itself."""
    from wisp.utils import _pytree

    def pin(leaf):
        return leaf.pin_memory() if isinstance(leaf, wisp.Tensor) or hasattr(leaf, "pin_memory") else leaf

    return pin(data) if hasattr(data, "pin_memory") else _pytree.tree_map(pin, data)


class _PinThread:
    """Takes batches from the workers and pins them in a thread of its own, two batches ahead."""

    def __init__(self, batches, pin=_pinned):
        self._ready, self._stop = queue.Queue(2), threading.Event()
        self.number = None
        threading.Thread(target=self._run, args=(batches, pin, self._ready, self._stop), daemon=True, name="wisp-pin").start()

    @staticmethod
    def _run(batches, pin, ready, stop):
        def put(item):
            while not stop.is_set():
                try:
                    return ready.put(item, timeout=0.2)
                except queue.Full:
                    pass

        try:
            while not stop.is_set():
                put((pin(next(batches)), getattr(batches, "number", None), None))
        except BaseException as error:
            put((None, None, error))

    def __iter__(self):
        return self

    def __next__(self):
        batch, self.number, error = self._ready.get()
        if error is not None:
            self._ready.put((None, None, StopIteration()))  # whoever asks again
            raise error
        return batch

    def __del__(self):
        self._stop.set()


_WHOLE = 1 << 24  # indices of an epoch that are drawn at once


class _InStream:
    """An iterator that runs with random states of its own, begun from (seed, key): what it draws can be repeated."""

    def __init__(self, make, seed, key):
        self._seeds = Seeds(seed, stream=key)
        with self._seeds:
            self._iterator = iter(make())

    def __iter__(self):
        return self

    def __next__(self):
        with self._seeds:
            return next(self._iterator)


class DataLoader:
    """Iterates over batches of a dataset.

    `shuffle` or a `sampler` (or `batch_sampler`) sets the order, `collate_fn` joins samples into a batch,
    `num_workers` processes load ahead `prefetch_factor` batches each. `state_dict()` in the middle of an epoch and
    `load_state_dict()` later go on with the next batch.

    In workers the global generators of Wisp, NumPy and Python's `random` are started from (seed of the epoch, index) before each
    sample, so random transforms give the same numbers for any number of them, unless `worker_init_fn` seeds or uses a generator
    itself. Without workers samples draw from the program's own generators, as in PyTorch; `sample_seeds=True` has the numbers of
    workers there too. The seed of each epoch is drawn from `generator`, or from the default one (`wisp.manual_seed`).

    >>> import wisp
    >>> from wisp.utils.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(wisp.arange(5)), batch_size=2)
    >>> for (x,) in loader:
    ...     print(x)
    tensor([0, 1])
    tensor([2, 3])
    tensor([4])
    """

    __initialized = False  # under the name that programs and subclasses know it by
    _workers = None  # a subclass may make itself without our __init__

    def __class_getitem__(cls, item):
        return cls

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
        sample_seeds=None,
    ):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing."
                "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            if shuffle is not None and hasattr(dataset, "register_datapipe_as_function"):
                from wisp.utils.data.datapipes.datapipe import with_shuffle

                dataset, shuffle = with_shuffle(dataset, shuffle), None
            if shuffle not in (False, None):
                raise ValueError(f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}")
            if sampler is not None:
                raise ValueError(f"DataLoader with IterableDataset: expected unspecified sampler option, but got sampler={sampler}")
            if batch_sampler is not None:
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified batch_sampler option, but got batch_sampler={batch_sampler}"
                )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if iterable:  # which has no indices; libraries look at the samplers all the same
            sampler = _InfiniteConstantSampler()
        elif sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.num_workers, self.sample_seeds = dataset, num_workers, sample_seeds
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory, self.pin_memory_device, self.timeout = pin_memory, pin_memory_device, timeout
        self.worker_init_fn, self.batch_size, self.drop_last = worker_init_fn, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.in_order = in_order
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn if collate_fn is not None else default_collate if batched else default_convert
        self.persistent_workers, self.multiprocessing_context = persistent_workers, multiprocessing_context
        self._workers = self._told_length = None
        self._position = None  # of the latest iteration
        self._resume = None
        self.__initialized = True
        self.check_worker_number_rationality()

    def __setattr__(self, name, value):
        if name in _FIXED and self.__initialized:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self):
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None and self.num_workers == 0:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
                f"but got num_workers={self.num_workers}"
            )
        if isinstance(context, str) and context not in multiprocessing.get_all_start_methods():
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{multiprocessing.get_all_start_methods()}, but got multiprocessing_context={context!r}"
            )
        if not isinstance(context, (str, type(None), multiprocessing.context.BaseContext)):
            raise TypeError(
                "multiprocessing_context option should be a valid context object or a string specifying the "
                f"start method, but got multiprocessing_context={context}"
            )
        self._context = multiprocessing.get_context(context) if isinstance(context, str) else context

    def _worker_context(self):
        """The way to start workers: the one that was asked for, here or for all of the program, or else the quickest."""
        if self._context is not None:
            return self._context
        chosen = multiprocessing.get_start_method(allow_none=True)
        return multiprocessing.get_context(chosen or ("fork" if "fork" in multiprocessing.get_all_start_methods() else None))

    @property
    def _iterable(self):  # of the dataset, not kept: loaders that are built on this class have an `__init__` of their own
        return isinstance(self.dataset, IterableDataset)

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self):
        if not self._iterable:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        length = len(self.dataset)
        if self.batch_size is not None:
            length = length // self.batch_size if self.drop_last else -(-length // self.batch_size)
        self._told_length = length
        return length

    # ------------------------------------------------------------ going on in the middle of an epoch
    def _samplers(self):
        """The samplers that may have a state, by name."""
        found = {"sampler": self.sampler, "batch_sampler": self.batch_sampler}
        inner = getattr(self.batch_sampler, "sampler", None)
        if inner is not self.sampler:
            found["inner"] = inner
        return {name: sampler for name, sampler in found.items() if sampler is not None}

    def _sampler_states(self):
        """The states of samplers before an epoch: their own, their generator's, or the number of the epoch."""
        states = {}
        for name, sampler in self._samplers().items():
            if callable(getattr(sampler, "state_dict", None)):
                states[name] = {"own": sampler.state_dict()}
            else:
                states[name] = state = {}
                if isinstance(getattr(sampler, "generator", None), wisp.Generator):
                    state["generator"] = sampler.generator._state()
                if isinstance(getattr(sampler, "epoch", None), int) and hasattr(sampler, "set_epoch"):
                    state["epoch"] = sampler.epoch
        if self.generator is not None:
            states["loader"] = {"generator": self.generator._state()}
        return {name: state for name, state in states.items() if state}

    def _restore_samplers(self, states):
        for name, state in states.items():
            sampler = self if name == "loader" else self._samplers().get(name)
            if "own" in state and callable(getattr(sampler, "load_state_dict", None)):
                sampler.load_state_dict(state["own"])
            if "generator" in state and isinstance(getattr(sampler, "generator", None), wisp.Generator):
                sampler.generator._set_state(*state["generator"])
            if "epoch" in state and hasattr(sampler, "set_epoch"):
                sampler.set_epoch(state["epoch"])

    def state_dict(self):
        """Where the latest iteration stands: enough to go on with the batch after the last one taken.

        >>> from wisp.utils.data import DataLoader
        >>> loader = DataLoader(range(6), batch_size=2)
        >>> first = next(iter(loader))
        >>> state = loader.state_dict()
        >>> other = DataLoader(range(6), batch_size=2)
        >>> other.load_state_dict(state)
        >>> [batch.tolist() for batch in other]
        [[2, 3], [4, 5]]
        """
        if self._position is None:  # between epochs: before the first, or after the end of one
            return dict(self._resume) if self._resume else {"seed": None, "batches": 0}
        return self._position.state()

    def load_state_dict(self, state_dict):
        """The next iteration goes on where `state_dict` was taken."""
        self._resume = dict(state_dict)
        self._position = None

    # ------------------------------------------------------------ iteration
    @property
    def _iterator(self):
        """What programs end persistent workers by, or what a subclass has put there."""
        return _Kept(self) if self._workers is not None else self.__dict__.get("_iterator")

    @_iterator.setter
    def _iterator(self, value):
        workers, self._workers, self.__dict__["_iterator"] = self._workers, None, value
        if workers is not None:
            workers.close()

    def __iter__(self):
        resume, self._resume = self._resume, None
        if resume and resume["seed"] is not None:
            self._restore_samplers(resume.get("samplers", {}))
            states = self._sampler_states()
            if self.generator is not None:
                new_seed(self.generator)  # it goes on as it did then
            position = _Position(resume["seed"], resume["batches"], states, set(resume.get("ahead", ())))
        else:
            states = self._sampler_states()
            position = _Position(new_seed(self.generator), 0, states, set())
        self._position = position
        return _iterator(self, position)

    def _order(self, seed):
        """The whole order of an epoch as a tensor, if the sampler is one of ours."""
        sampler = self.sampler if self.batch_sampler is None else self.batch_sampler.sampler
        if type(sampler) is RandomSampler and sampler.num_samples <= _WHOLE:
            return sampler.order(seed if sampler.generator is None else None)  # as a batch sampler around it would have it
        if type(sampler) is RandomSampler:
            return None
        return wisp.arange(len(sampler)) if type(sampler) is SequentialSampler else None

    def _index_batches(self, seed):
        """Lists of indices (or single indices, without batching)."""
        batches = self.batch_sampler
        ours = batches is None or type(batches) is BatchSampler
        order = self._order(seed) if ours else None
        if order is None and (self.sample_seeds or self.num_workers > 0):
            return _InStream(lambda: self.sampler if batches is None else batches, seed, "sampler")
        if order is None:
            return iter(self.sampler if batches is None else batches)
        order = order.tolist()
        return iter(order if batches is None else BatchSampler(order, batches.batch_size, batches.drop_last))

    def _batches(self, position):
        """An iterator over the batches of an epoch, from a position on."""
        seed, skip, collate = position.seed, position.batches, self.collate_fn
        if self._iterable:
            if self.num_workers > 0:
                from wisp.utils.data._workers import WorkerBatches

                batches = WorkerBatches(self, seed, ((number, None) for number in itertools.count()))
            elif self.sample_seeds:
                batches = _InStream(lambda: map(collate, stream_batches(self.dataset, self.batch_size, self.drop_last)), seed, 0)
            else:
                batches = map(collate, stream_batches(self.dataset, self.batch_size, self.drop_last))
            for _ in range(skip):
                next(batches, None)
            return batches
        if self.num_workers > 0:
            from wisp.utils.data._workers import WorkerBatches

            tasks = itertools.islice(enumerate(self._index_batches(seed)), skip, None)
            return WorkerBatches(self, seed, (task for task in tasks if task[0] not in position.ahead))
        if type(self.batch_sampler) is BatchSampler:
            fetch = collated_fetch(self.dataset, collate)
            order = None if fetch is None else self._order(seed)
            if order is not None:
                return self._slices(fetch, order, skip)
        return _HereBatches(self, seed, itertools.islice(self._index_batches(seed), skip, None))

    def _slices(self, fetch, order, skip):
        size, end = self.batch_sampler.batch_size, order.size(0)
        end -= end % size if self.batch_sampler.drop_last else 0
        for start in range(skip * size, end, size):
            yield fetch(order[start : start + size])

    def check_worker_number_rationality(self):
        """Warn if there are more workers than processors."""
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if self.num_workers > available:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested "
                f"max number of worker in current system is {available}. Please be aware that excessive worker creation might get "
                "DataLoader running slow or even freeze, lower the worker number to avoid potential slowness/freeze if necessary.",
                stacklevel=3,
            )


class _Kept:
    """The workers that a loader keeps between epochs, as the iterator that PyTorch's loader keeps for them."""

    def __init__(self, loader):
        self._loader, self._workers = loader, list(loader._workers.processes)

    def _shutdown_workers(self):
        self._loader._iterator = None


class _Position:
    """How far an iteration has come: `batches` in a row, and the numbers of those that were handed out ahead of them."""

    def __init__(self, seed, batches, samplers, ahead):
        self.seed, self.batches, self.samplers, self.ahead = seed, batches, samplers, ahead

    def state(self):
        state = {"seed": self.seed, "batches": self.batches}
        if self.samplers:
            state["samplers"] = self.samplers
        if self.ahead:
            state["ahead"] = sorted(self.ahead)
        return state

    def passed(self, number):
        self.ahead.add(number)
        while self.batches in self.ahead:
            self.ahead.remove(self.batches)
            self.batches += 1


class _HereBatches:
    """Batches loaded in this process. With `sample_seeds` the caller's random states are put aside while samples are made."""

    def __init__(self, loader, seed, index_batches):
        self._seeds, self._indices = Seeds(seed) if loader.sample_seeds else None, index_batches
        self._fetch = make_fetch(loader.dataset, loader.collate_fn, loader._auto_collation, self._seeds)

    def __next__(self):
        indices = next(self._indices)
        try:
            if self._seeds is None:
                return self._fetch(indices)
            with self._seeds:
                return self._fetch(indices)
        except StopIteration as error:  # would look like the end of the epoch
            raise RuntimeError(f"the dataset or collate_fn raised StopIteration for {indices}") from error


class _Iterator:
    """What `iter(loader)` gives."""

    def __init__(self, loader, position):
        self._loader, self._position = loader, position
        self._pin = loader.pin_memory and wisp.cuda.is_available()
        if loader.pin_memory and not self._pin:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.", stacklevel=3
            )
        self._out_of_order = loader.num_workers > 0 and not loader.in_order and not loader._iterable
        self._batches = self._made_by = loader._batches(position)
        if self._pin and loader.num_workers > 0:
            self._batches, self._pin = _PinThread(self._batches), False

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._loader)

    def __next__(self):
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._loader._position is self._position:
                self._loader._position = None  # a state taken now means: begin a new epoch
            raise
        if self._out_of_order:
            self._position.passed(self._batches.number)
        else:
            self._position.batches += 1
            told = self._loader._told_length
            if told is not None and self._position.batches > told:
                self._warn_of_length(told)
        return _pinned(batch) if self._pin else batch

    def _warn_of_length(self, told):
        text = (
            f"Length of IterableDataset {self._loader.dataset} was reported to be {told} (when accessing len(dataloader)), but "
            f"{self._position.batches} samples have been fetched. "
        )
        if self._loader.num_workers > 0:
            text += (
                "For multiprocessing data-loading, this could be caused by not properly configuring the IterableDataset replica at each "
                "worker (see get_worker_info)."
            )
        warnings.warn(text, stacklevel=3)


def _foreign_batches(loader):
    """The batches of an object that only has the inner attributes of PyTorch's loader, as fastai's has; made in this process."""
    kind, sampler = loader._dataset_kind, iter(loader._index_sampler)
    items = iter(loader.dataset) if kind == _DatasetKind.Iterable else None
    for index in sampler:
        try:
            if not loader._auto_collation:
                data = next(items) if items is not None else loader.dataset[index]
            elif items is None:
                data = [loader.dataset[i] for i in index]
            else:
                data = [item for _, item in zip(index, items)]
                if not data or (loader.drop_last and len(data) < len(index)):
                    return
        except StopIteration:
            return
        yield loader.collate_fn(data)


class _OfLoader(_Iterator):
    def __new__(cls, loader, *position):
        return super().__new__(cls) if position else _foreign_batches(loader)


class _SingleProcessDataLoaderIter(_OfLoader):
    """The batches that this process makes itself."""


class _MultiProcessingDataLoaderIter(_OfLoader):
    """The batches that workers make."""

    _workers_status = property(lambda self: [True] * self._loader.num_workers)
    _workers = property(lambda self: list(self._processes_of()), doc="The processes.")

    def _processes_of(self):
        workers = getattr(self._made_by, "workers", None)
        return workers.processes if workers is not None else ()

    def _shutdown_workers(self):
        """Nothing to do: workers end with the iterator, or are kept by the loader."""


def _iterator(loader, position):
    return (_MultiProcessingDataLoaderIter if loader.num_workers else _SingleProcessDataLoaderIter)(loader, position)


_BaseDataLoaderIter.register(_Iterator)


class _DatasetKind:
    """The two kinds of dataset."""

    Map, Iterable = 0, 1

    @staticmethod
    def create_fetcher(kind, dataset, auto_collation, collate_fn, drop_last):
        """What makes batches of indices, as libraries with iterators of their own ask for it."""
        one = _MapDatasetFetcher if kind == _DatasetKind.Map else _IterableDatasetFetcher
        return one(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler:
    """None again and again: what stands for the indices of an iterable dataset."""

    def __iter__(self):
        while True:
            yield None


_collate_fn_t = _worker_init_fn_t = typing.Callable


def _sharding_worker_init_fn(worker_init_fn, world_size, rank_id, worker_id):
    """In a worker: take its part of a chain of pipes among all workers of all ranks."""
    from wisp.utils.data.datapipes.datapipe import apply_sharding

    info = get_worker_info()
    apply_sharding(info.dataset, world_size * info.num_workers, rank_id * info.num_workers + worker_id)
    if worker_init_fn is not None:
        worker_init_fn(worker_id)
