"""Datasets: what has `__getitem__` and a length, or can be iterated."""

import bisect
import itertools
import math
import warnings

import wisp


class Dataset:
    """A map from keys to samples. A subclass has `__getitem__`, usually `__len__`, and may have `__getitems__`, which
    takes a list of keys and returns a list of samples at once.

    >>> from wisp.utils.data import Dataset
    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, i):
    ...         return i * i
    >>> Squares()[3], len(Squares() + Squares())
    (9, 8)
    """

    def __class_getitem__(cls, item):
        return cls

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """A stream of samples. A subclass has `__iter__`; with several workers it must divide the stream itself (see
    `get_worker_info`).

    >>> from wisp.utils.data import DataLoader, IterableDataset
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> [batch.tolist() for batch in DataLoader(Count(), batch_size=2)]
    [[0, 1], [2]]
    """

    def __getitem__(self, index):
        raise NotImplementedError("an IterableDataset has no __getitem__: iterate over it")

    def __add__(self, other):
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Rows of tensors: sample i is the tuple of the i-th rows.

    >>> import wisp
    >>> from wisp.utils.data import TensorDataset
    >>> TensorDataset(wisp.arange(3), wisp.zeros(3))[2]
    (tensor(2), tensor(0.))
    """

    def __init__(self, *tensors, data_tensor=None, target_tensor=None):
        # Two names of the first releases of PyTorch.
        tensors += tuple(tensor for tensor in (data_tensor, target_tensor) if tensor is not None)
        if not tensors:
            raise ValueError("TensorDataset: expected at least one tensor")
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __getitems__(self, indices):
        columns = [tensor[indices].unbind(0) for tensor in self.tensors]
        return list(zip(*columns))

    def __len__(self):
        return self.tensors[0].size(0)

    def _collated(self, indices):
        """The rows at a tensor of indices, as `default_collate` would put them together."""
        return [
            tensor.index_select(0, indices if indices.device == tensor.device else indices.to(tensor.device)) for tensor in self.tensors
        ]


class StackDataset(Dataset):
    """Datasets side by side: sample i is the tuple (or dict) of their i-th samples.

    >>> from wisp.utils.data import StackDataset
    >>> StackDataset(number=range(3), name="abc")[1]
    {'number': 1, 'name': 'b'}
    """

    def __init__(self, *args, **kwargs):
        if args and kwargs:
            raise ValueError(
                "Supported either ``tuple``- (via ``args``) or ``dict``- (via ``kwargs``) like input/output, but both types are given."
            )
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets = args or kwargs
        sizes = [len(dataset) for dataset in self._parts()]
        if any(size != sizes[0] for size in sizes):
            raise ValueError("Size mismatch between datasets")
        self._length = sizes[0]

    def _parts(self):
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else list(self.datasets)

    def _joined(self, values):
        return dict(zip(self.datasets, values)) if isinstance(self.datasets, dict) else tuple(values)

    def __getitem__(self, index):
        return self._joined(dataset[index] for dataset in self._parts())

    def __getitems__(self, indices):
        columns = []
        for dataset in self._parts():
            get = getattr(dataset, "__getitems__", None)
            column = get(indices) if callable(get) else [dataset[i] for i in indices]
            if len(column) != len(indices):
                raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(column)}")
            columns.append(column)
        return [self._joined(values) for values in zip(*columns)]

    def __len__(self):
        return self._length


class ConcatDataset(Dataset):
    """Datasets one after the other.

    >>> from wisp.utils.data import ConcatDataset
    >>> list(ConcatDataset(["ab", "cde"])[i] for i in (0, 2, -1))
    ['a', 'c', 'e']
    """

    @staticmethod
    def cumsum(sequence):
        return list(itertools.accumulate(len(dataset) for dataset in sequence))

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


class ChainDataset(IterableDataset):
    """Streams one after the other.

    >>> from wisp.utils.data import ChainDataset, IterableDataset
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets):
        self.datasets = datasets

    def __iter__(self):
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError("ChainDataset only supports IterableDataset")
            yield from dataset

    def __len__(self):
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset):
    """The samples of a dataset at given indices.

    >>> from wisp.utils.data import Subset
    >>> part = Subset("abcdef", [1, 3, 5])
    >>> part[2], len(part)
    ('f', 3)
    """

    def __init__(self, dataset, indices):
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{kind.__name__} overrides __getitem__ but not __getitems__, which loaders call for a whole batch: override both"
            )
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        chosen = [self.indices[i] for i in indices]
        get = getattr(self.dataset, "__getitems__", None)
        return get(chosen) if callable(get) else [self.dataset[i] for i in chosen]

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Split a dataset at random into subsets of given lengths, or of given fractions that sum to 1.

    >>> import wisp
    >>> from wisp.utils.data import random_split
    >>> train, test = random_split(range(10), [0.8, 0.2], generator=wisp.Generator().manual_seed(0))
    >>> len(train), len(test)
    (8, 2)
    """
    lengths = list(lengths)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        fractions = lengths
        for i, fraction in enumerate(fractions):
            if fraction < 0 or fraction > 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        lengths = [math.floor(len(dataset) * fraction) for fraction in fractions]
        for i in range(len(dataset) - sum(lengths)):
            lengths[i % len(lengths)] += 1
        for i, length in enumerate(lengths):
            if length == 0:
                warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2)
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = wisp.randperm(sum(lengths), generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - length : end]) for length, end in zip(lengths, ends)]
