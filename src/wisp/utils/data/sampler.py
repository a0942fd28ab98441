"""Samplers: the order in which a loader visits a dataset."""

import itertools

import wisp


def new_seed(generator=None):
    """A fresh seed, drawn from a generator (by default the global one)."""
    return int(wisp.randint(0, 2**62, (), dtype=wisp.int64, generator=generator).item())


class Sampler:
    """An iterable of indices, or of lists of them.

    >>> from wisp.utils.data import DataLoader, Sampler
    >>> class Backwards(Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> [batch.tolist() for batch in DataLoader(range(3), sampler=Backwards())]
    [[2], [1], [0]]
    """

    def __init__(self, data_source=None):
        pass

    def __class_getitem__(cls, item):
        return cls

    def __iter__(self):
        raise NotImplementedError


class SequentialSampler(Sampler):
    """0, 1, 2, …

    >>> from wisp.utils.data import SequentialSampler
    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


_AT_ONCE = 1 << 20  # more indices than that are drawn in pieces


class RandomSampler(Sampler):
    """A random order, with or without replacement; `num_samples` indices.

    >>> from wisp.utils.data import RandomSampler
    >>> sorted(RandomSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self._num_samples = data_source, replacement, num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={self.num_samples}")

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def order(self, seed=None):
        """The indices of one epoch, as a tensor; a `seed` makes the same order each time."""
        generator = self.generator
        if seed is not None or generator is None:
            generator = wisp.Generator()
            generator.manual_seed(new_seed() if seed is None else seed)
        n = len(self.data_source)
        if self.replacement:
            return wisp.randint(0, n, (self.num_samples,), dtype=wisp.int64, generator=generator)
        rounds = [wisp.randperm(n, generator=generator) for _ in range(-(-self.num_samples // n) if n else 0)]
        if not rounds:
            return wisp.empty(0, dtype=wisp.int64)
        return (rounds[0] if len(rounds) == 1 else wisp.cat(rounds))[: self.num_samples]

    def __iter__(self):
        # A generator: numbers are drawn when the first index is asked for.
        yield from self.order().tolist() if self.num_samples <= _AT_ONCE else self._piecewise()

    def _piecewise(self):
        """Indices as they are asked for: of a number of samples that would not fit into memory at once."""
        generator, n, left = self.generator, len(self.data_source), self.num_samples
        if generator is None:
            generator = wisp.Generator()
            generator.manual_seed(new_seed())
        while left > 0 and n > 0:
            if self.replacement:
                piece = wisp.randint(0, n, (min(left, _AT_ONCE // 256),), dtype=wisp.int64, generator=generator)
            else:
                piece = wisp.randperm(n, generator=generator)[:left]
            left -= len(piece)
            yield from piece.tolist()

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given indices in a random order.

    >>> from wisp.utils.data import SubsetRandomSampler
    >>> sorted(SubsetRandomSampler([7, 5]))
    [5, 7]
    """

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in wisp.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices 0 … len(weights) - 1, each drawn with a probability in proportion to its weight.

    >>> from wisp.utils.data import WeightedRandomSampler
    >>> list(WeightedRandomSampler([0, 1], num_samples=3))
    [1, 1, 1]
    """

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        if not isinstance(num_samples, int) or isinstance(num_samples, bool) or num_samples <= 0:
            raise ValueError(f"num_samples should be a positive integer value, but got num_samples={num_samples}")
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        weights = wisp.as_tensor(weights, dtype=wisp.float64)
        if weights.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(weights.shape)}")
        self.weights, self.num_samples, self.replacement = weights, num_samples, replacement
        self.generator = generator

    def __iter__(self):
        yield from wisp.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` indices of another sampler; the last one may be shorter, or left out (`drop_last`).

    >>> from wisp.utils.data import BatchSampler
    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler, batch_size, drop_last):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        full, rest = divmod(len(self.sampler), self.batch_size)
        return full + (rest > 0 and not self.drop_last)
