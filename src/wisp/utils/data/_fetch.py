"""From indices to a batch: the same function in the main process and in workers."""

import numpy

import wisp
from wisp.utils.data._collate import collate_tensor_fn, default_collate, default_collate_fn_map
from wisp.utils.data.dataset import StackDataset, Subset, TensorDataset


def _collated(dataset):
    """A function from a tensor of indices to a finished batch, for datasets that can do this at once, or None."""
    kind = type(dataset)
    if (
        isinstance(dataset, TensorDataset)
        and kind.__getitem__ is TensorDataset.__getitem__
        and kind.__getitems__ is TensorDataset.__getitems__
    ):
        return dataset._collated
    if isinstance(dataset, Subset) and kind.__getitem__ is Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
        inner = _collated(dataset.dataset)
        if inner is not None:
            indices = wisp.from_numpy(numpy.array(dataset.indices, dtype=numpy.int64))
            return lambda chosen: inner(indices.index_select(0, chosen))
    return None


def collated_fetch(dataset, collate):
    """Like `_collated`, if the samples would be put together in the default way."""
    if collate is default_collate and default_collate_fn_map[wisp.Tensor] is collate_tensor_fn:
        return _collated(dataset)
    return None


def _many(dataset):
    """The dataset's `__getitems__`, unless it only asks for one sample after the other: then each gets its own seed."""
    get = getattr(dataset, "__getitems__", None)
    if not callable(get):
        return None
    if type(dataset) is Subset and _many(dataset.dataset) is None:
        return None
    if type(dataset) is StackDataset and all(_many(part) is None for part in dataset._parts()):
        return None
    return get


def make_fetch(dataset, collate, batched, seeds):
    """A function from a list of indices (or one index, if not `batched`) to a batch. With `seeds` the random generators are seeded
    before each sample; what is drawn while joining samples follows from the last one's seed."""
    if seeds is None:
        return _plain_fetch(dataset, collate, batched)
    seed = seeds.seed_key
    if not batched:
        return lambda index: collate(dataset[index]) if seed(index) else None
    get = _many(dataset)
    if get is not None:

        def fetch(indices):
            seed(tuple(indices))
            return collate(get(indices))
    else:

        def fetch(indices):
            return collate([dataset[i] for i in indices if seed(i)])

    return _in_rows(dataset, collate, fetch)


def _plain_fetch(dataset, collate, batched):
    """The same with the generators as they are."""
    if not batched:
        return lambda index: collate(dataset[index])
    get = _many(dataset)
    fetch = (lambda indices: collate([dataset[i] for i in indices])) if get is None else lambda indices: collate(get(indices))
    return _in_rows(dataset, collate, fetch)


def _in_rows(dataset, collate, fetch):
    """`fetch`, or what gets the rows of tensors at once where the dataset is made of tensors."""
    at_once = collated_fetch(dataset, collate)
    if at_once is None:
        return fetch

    def fetch_rows(indices):
        try:
            rows = wisp.tensor(indices)
        except (TypeError, ValueError, RuntimeError):
            return fetch(indices)
        # Negative indices and the like are for __getitem__ to judge.
        plain = rows.dtype == wisp.int64 and rows.dim() == 1 and rows.numel() > 0 and rows.min() >= 0
        return at_once(rows) if plain else fetch(indices)

    return fetch_rows


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
