"""DataLoader: batches of a dataset, in this process or from worker processes."""
import multiprocessing
import warnings

import wisp
from wisp.utils.data._collate import default_collate, default_convert
from wisp.utils.data.dataset import IterableDataset, Subset, TensorDataset
from wisp.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler, new_seed


def _collated_fetch(dataset):
    """A function from a tensor of indices to a finished batch, for datasets that can do this at once, or None."""
    kind = type(dataset)
    if isinstance(dataset, TensorDataset) and kind.__getitem__ is TensorDataset.__getitem__:
        return dataset._collated
    if isinstance(dataset, Subset) and kind.__getitem__ is Subset.__getitem__ \
            and kind.__getitems__ is Subset.__getitems__:
        inner = _collated_fetch(dataset.dataset)
        if inner is not None:
            indices = wisp.as_tensor(dataset.indices, dtype=wisp.int64)
            return lambda chosen: inner(indices.index_select(0, chosen))
    return None


def fetch_samples(dataset, indices):
    """A list of samples."""
    get = getattr(dataset, "__getitems__", None)
    return get(indices) if callable(get) else [dataset[i] for i in indices]


def _pinned(batch):
    from wisp.utils import _pytree
    return _pytree.tree_map(lambda leaf: leaf.pin_memory() if isinstance(leaf, wisp.Tensor) else leaf, batch)


class DataLoader:
    """Iterates over batches of a dataset.

    `shuffle` or a `sampler` (or `batch_sampler`) sets the order, `collate_fn` joins samples into a batch,
    `num_workers` processes load ahead `prefetch_factor` batches each. `state_dict()` in the middle of an epoch and
    `load_state_dict()` later go on with the next batch.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=False,
                 pin_memory_device="", in_order=True):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing."
                             "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None.")
        if prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        iterable = isinstance(dataset, IterableDataset)
        if iterable:
            if shuffle not in (False, None):
                raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle option, "
                                 f"but got shuffle={shuffle}")
            if sampler is not None:
                raise ValueError("DataLoader with IterableDataset: expected unspecified sampler option, "
                                 f"but got sampler={sampler}")
            if batch_sampler is not None:
                raise ValueError("DataLoader with IterableDataset: expected unspecified batch_sampler option, "
                                 f"but got batch_sampler={batch_sampler}")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                                 "and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None and not iterable:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is None and batch_size is not None and not iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        if iterable and batch_size is not None and (not isinstance(batch_size, int) or batch_size <= 0):
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        self.in_order = in_order
        batched = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = multiprocessing_context
        self._workers = None
        self._iterable = iterable
        self._position = None  # [seed of the epoch, batches taken from it]
        self._resume = None

    @property
    def multiprocessing_context(self):
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None and self.num_workers == 0:
            raise ValueError("multiprocessing_context can only be used with multi-process loading (num_workers > 0), "
                             f"but got num_workers={self.num_workers}")
        self._context = multiprocessing.get_context(context) if isinstance(context, str) else context

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    def __len__(self):
        if not self._iterable:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    # ------------------------------------------------------------ going on in the middle of an epoch
    def state_dict(self):
        """Where the latest iteration stands: enough to go on with the batch after the last one taken."""
        seed, batches = self._position or (None, 0)
        state = {"seed": seed, "batches": batches}
        if hasattr(self.sampler, "state_dict"):
            state["sampler"] = self.sampler.state_dict()
        return state

    def load_state_dict(self, state_dict):
        """The next iteration goes on where `state_dict` was taken."""
        self._resume = dict(state_dict)
        if "sampler" in state_dict and hasattr(self.sampler, "load_state_dict"):
            self.sampler.load_state_dict(state_dict["sampler"])

    # ------------------------------------------------------------ iteration
    def __iter__(self):
        resume, self._resume = self._resume, None
        source = self.sampler.generator if type(self.sampler) is RandomSampler else self.generator
        seed = resume["seed"] if resume and resume["seed"] is not None else new_seed(source)
        skip = resume["batches"] if resume else 0
        self._position = position = [seed, skip]
        if self.num_workers > 0:
            from wisp.utils.data._workers import iterate
            batches = iterate(self, seed, skip)
        else:
            batches = self._iterate_here(seed, skip)
        if self.pin_memory and wisp.cuda.is_available():
            batches = map(_pinned, batches)
        return _counted(batches, position)

    def _iterate_here(self, seed, skip):
        collate = self.collate_fn
        if self._iterable:
            return self._iterate_stream(skip)
        if collate is default_collate and type(self.batch_sampler) is BatchSampler:
            fetch = _collated_fetch(self.dataset)
            if fetch is not None:
                order = self._order(seed)
                if order is not None:
                    return self._iterate_slices(fetch, order, skip)
        return self._iterate_indices(self._index_batches(seed, skip))

    def _order(self, seed):
        """The whole order of an epoch as a tensor, if the sampler is one of ours."""
        sampler = self.sampler if self.batch_sampler is None else self.batch_sampler.sampler
        if type(sampler) is RandomSampler:
            return sampler.order(seed)
        return wisp.arange(len(sampler)) if type(sampler) is SequentialSampler else None

    def _index_batches(self, seed, skip):
        """Lists of indices (or single indices, without batching), from batch number `skip` on."""
        ours = self.batch_sampler is None or type(self.batch_sampler) is BatchSampler
        order = self._order(seed) if ours else None
        if order is None:
            indices = iter(self.sampler if self.batch_sampler is None else self.batch_sampler)
        elif self.batch_sampler is None:
            indices = iter(order.tolist())
        else:
            indices = iter(BatchSampler(order.tolist(), self.batch_sampler.batch_size, self.batch_sampler.drop_last))
        for _ in range(skip):
            next(indices, None)
        return indices

    def _iterate_slices(self, fetch, order, skip):
        size, end = self.batch_sampler.batch_size, order.size(0)
        end -= end % size if self.batch_sampler.drop_last else 0
        for start in range(skip * size, end, size):
            yield fetch(order[start:start + size])

    def _iterate_indices(self, index_batches):
        dataset, collate = self.dataset, self.collate_fn
        if self.batch_sampler is None:
            for index in index_batches:
                yield collate(dataset[index])
        elif callable(getattr(dataset, "__getitems__", None)):
            for indices in index_batches:
                yield collate(dataset.__getitems__(indices))
        else:
            for indices in index_batches:
                yield collate([dataset[i] for i in indices])

    def _iterate_stream(self, skip):
        for number, batch in enumerate(stream_batches(self.dataset, self.batch_size, self.drop_last)):
            if number >= skip:
                yield self.collate_fn(batch)

    def check_worker_number_rationality(self):
        """Warn if there are more workers than processors."""
        import os
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if self.num_workers > available:
            warnings.warn(f"This DataLoader will create {self.num_workers} worker processes in total. Our suggested "
                          f"max number of worker in current system is {available}.", stacklevel=2)


def stream_batches(dataset, batch_size, drop_last):
    """Lists of samples of an iterable dataset; single samples if `batch_size` is None."""
    if batch_size is None:
        yield from dataset
        return
    batch = []
    for sample in dataset:
        batch.append(sample)
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch and not drop_last:
        yield batch


def _counted(batches, position):
    for batch in batches:
        position[1] += 1
        yield batch
    position[:] = None, 0  # a state taken now means: begin a new epoch
