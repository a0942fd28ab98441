"""Steps of datasets that are read by index."""

import copy

from wisp.utils.data.datapipes._decorator import functional_datapipe
from wisp.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, MapDataPipe, Shuffling, check_function, check_pipes

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]


class SequenceWrapper(MapDataPipe):
    """The samples of a list or dict, which is copied unless told otherwise."""

    def __init__(self, sequence, deepcopy=True):
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index):
        return self.sequence[index]

    def __len__(self):
        return len(self.sequence)


def _same(sample):
    return sample


@functional_datapipe("map")
class Mapper(MapDataPipe):
    """A function of each sample."""

    def __init__(self, datapipe, fn=_same):
        check_function(fn)
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index):
        return self.fn(self.datapipe[index])

    def __len__(self):
        return len(self.datapipe)


class Shuffler(Shuffling, IterDataPipe):
    """A stream of all samples in random order."""

    def __init__(self, datapipe, *, indices=None):
        self.datapipe, self.indices = datapipe, list(range(len(datapipe))) if indices is None else indices

    def __iter__(self):
        order = list(self.indices)
        if self._enabled:
            self._generator().shuffle(order)
        for index in order:
            yield self.datapipe[index]

    def __len__(self):
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", Shuffler)  # of datasets by index, though it gives a stream


@functional_datapipe("batch")
class Batcher(MapDataPipe):
    """Lists of `batch_size` samples."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=DataChunk):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __getitem__(self, index):
        if not 0 <= index < len(self):
            raise IndexError(f"Index {index} is out of bound.")
        stop = min((index + 1) * self.batch_size, len(self.datapipe))
        return self.wrapper_class([self.datapipe[i] for i in range(index * self.batch_size, stop)])

    def __len__(self):
        count = len(self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("concat")
class Concater(MapDataPipe):
    """One dataset after the other."""

    def __init__(self, *datapipes):
        check_pipes(datapipes, MapDataPipe)
        self.datapipes = datapipes

    def __getitem__(self, index):
        for pipe in self.datapipes:
            if index < len(pipe):
                return pipe[index]
            index -= len(pipe)
        raise IndexError(f"Index {index} is out of range.")

    def __len__(self):
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(Concater):
    """Tuples of the samples with the same index."""

    def __getitem__(self, index):
        return tuple(pipe[index] for pipe in self.datapipes)

    def __len__(self):
        return min(map(len, self.datapipes))
