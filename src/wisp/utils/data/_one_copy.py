"""One copy of a dataset for all workers.

Arrays and tensors are pages that forked workers share already, and go through shared memory to spawned ones. Python's
objects are another matter: reading one changes its reference count, so the pages of a long list are copied into every
worker bit by bit. While workers are started, long lists of plain values are therefore replaced by `PackedList`, whose
elements lie in one array.
"""

import contextlib
import io
import marshal
import mmap
import os
import pickle
from collections.abc import Sequence
from multiprocessing import context, reduction
from multiprocessing.reduction import ForkingPickler

import numpy

from wisp.multiprocessing import shared

LONG = 100_000  # shorter lists cost a few megabytes at most
_OUT_OF_BAND = 1 << 16


class PackedList(Sequence):
    """A read-only list of plain values (numbers, strings, tuples, lists, dicts, …) in two arrays.

    >>> from wisp.utils.data._one_copy import PackedList
    >>> words = PackedList(["one", "two", ("three", 3)])
    >>> words[1], words[-1], list(words[:2])
    ('two', ('three', 3), ['one', 'two'])
    """

    def __init__(self, values):
        self._numbers = None
        kinds = set(map(type, values))
        if kinds in ({int}, {float}):
            numbers = numpy.array(values)
            if numbers.dtype.kind in "if":  # not beyond 64 bits
                self._numbers = numbers
                return
        parts = [marshal.dumps(value) for value in values]
        self._ends = numpy.cumsum(numpy.fromiter(map(len, parts), numpy.int64, len(parts)))
        self._data = numpy.frombuffer(b"".join(parts), numpy.uint8)

    def __len__(self):
        return len(self._ends if self._numbers is None else self._numbers)

    def __array__(self, dtype=None, copy=None):
        return numpy.array(list(self) if self._numbers is None else self._numbers, dtype=dtype)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if self._numbers is not None:
            return self._numbers[index].item()
        end = self._ends[index]
        start = self._ends[index - 1] if index % len(self) else 0
        return marshal.loads(self._data[start:end])

    def __eq__(self, other):
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    __hash__ = None

    def __add__(self, other):
        return list(self) + list(other)

    def __repr__(self):
        return f"PackedList of {len(self)} values"


def _long_lists(dataset, seen):
    """(attributes of an object, name) of each long list in a dataset and in what it is made of."""
    from wisp.utils.data.dataset import Dataset

    attributes = getattr(dataset, "__dict__", None)
    if attributes is None or id(dataset) in seen:
        return
    seen.add(id(dataset))
    for name, value in attributes.items():
        if type(value) is list and len(value) >= LONG:
            yield attributes, name
        elif isinstance(value, Dataset):
            yield from _long_lists(value, seen)
        elif isinstance(value, (list, tuple)) and len(value) < 1000:
            for part in value:
                if isinstance(part, Dataset):
                    yield from _long_lists(part, seen)


def packed_lists(dataset):
    """[(attributes, name, packed)] for each long list of plain values."""
    found = []
    for attributes, name in _long_lists(dataset, set()):
        with contextlib.suppress(ValueError):  # something that marshal does not know: stays a list
            found.append((attributes, name, PackedList(attributes[name])))
    return found


@contextlib.contextmanager
def exchanged(packed):
    """The packed lists in place of the originals: what a process that is started meanwhile gets to see."""
    originals = [(attributes, name, attributes[name]) for attributes, name, _ in packed]
    try:
        for attributes, name, value in packed:
            attributes[name] = value
        yield
    finally:
        for attributes, name, value in originals:
            attributes[name] = value


class Shipment:
    """A dataset on its way to processes that are not forked: pickled for each, with the memory of its arrays in one
    file that all of them map (copy on write). Tensors are shared as always."""

    def __init__(self, dataset):
        self.dataset, self._file, self._size = dataset, None, 0

    def __reduce__(self):
        context.assert_spawning(self)
        stream, buffers = io.BytesIO(), []

        def out_of_band(buffer):
            if buffer.raw().nbytes < _OUT_OF_BAND:
                return True
            buffers.append(buffer.raw())
            return False

        ForkingPickler(stream, 5, True, out_of_band).dump(self.dataset)
        sizes = [buffer.nbytes for buffer in buffers]
        if buffers and self._file is None:
            self._file, self._size = shared.new_file(sum(sizes)), sum(sizes)
            with mmap.mmap(self._file, self._size) as memory:
                start = 0
                for buffer in buffers:
                    memory[start : start + buffer.nbytes] = buffer
                    start += buffer.nbytes
        file = reduction.DupFd(self._file) if buffers else None
        return _unpack, (stream.getvalue(), file, sizes)

    def close(self):
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _unpack(data, file, sizes):
    buffers = []
    if file is not None:
        descriptor = file.detach()
        memory = memoryview(mmap.mmap(descriptor, sum(sizes), access=mmap.ACCESS_COPY))
        os.close(descriptor)
        start = 0
        for size in sizes:
            buffers.append(memory[start : start + size])
            start += size
    return pickle.loads(data, buffers=buffers)
