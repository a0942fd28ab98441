"""Steps of streams: map, filter, batch, shuffle, zip, fork and the rest."""

import collections
import copy as _copy
import fnmatch
import os
import warnings

import wisp
from wisp.utils.data._collate import default_collate
from wisp.utils.data._worker_info import get_worker_info
from wisp.utils.data.datapipes._decorator import functional_datapipe
from wisp.utils.data.datapipes.datapipe import (
    SHARDING_PRIORITIES,
    DataChunk,
    IterDataPipe,
    Shuffling,
    check_columns,
    check_function,
    check_pipes,
    length_of,
)
from wisp.utils.data.sampler import SequentialSampler

__all__ = """
    Batcher Collator Concater Demultiplexer FileLister FileOpener Filter Forker Grouper IterableWrapper Mapper Multiplexer Sampler
    ShardingFilter Shuffler StreamReader UnBatcher Zipper""".split()


__path__ = []  # PyTorch has its kinds of pipes in files below, whose names are tables (`wisp._compat.inner`)


class IterableWrapper(IterDataPipe):
    """The stream of an iterable, which is copied for each iteration unless told otherwise."""

    def __init__(self, iterable, deepcopy=True):
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self):
        try:
            yield from _copy.deepcopy(self.iterable) if self.deepcopy else self.iterable
        except TypeError:
            if not self.deepcopy:
                raise
            yield from self.iterable

    def __len__(self):
        return len(self.iterable)


class _After(IterDataPipe):
    """A step after another, as long as it."""

    def __init__(self, datapipe):
        self.datapipe = datapipe

    def __len__(self):
        return length_of(self, self.datapipe)[0]


def _picked(sample, columns):
    if columns is None:
        return (sample,)
    return tuple(sample[column] for column in columns) if isinstance(columns, (list, tuple)) else (sample[columns],)


@functional_datapipe("map")
class Mapper(_After):
    """A function of each sample, or of its columns `input_col`; the result goes to `output_col`."""

    def __init__(self, datapipe, fn, input_col=None, output_col=None):
        super().__init__(datapipe)
        check_function(fn)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) > 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            output_col = output_col[0]
        if input_col is not None:
            check_columns(fn, input_col)
        self.fn, self.input_col, self.output_col = fn, input_col, output_col

    def __iter__(self):
        for sample in self.datapipe:
            result = self.fn(*_picked(sample, self.input_col))
            yield result if self.input_col is None else self._put(sample, result)

    def _put(self, sample, result):
        if self.output_col == -1:
            return (*sample, result) if isinstance(sample, tuple) else [*sample, result]
        changed = list(sample) if isinstance(sample, tuple) else _copy.copy(sample)
        columns = self.input_col if isinstance(self.input_col, (list, tuple)) else [self.input_col]
        changed[columns[0] if self.output_col is None else self.output_col] = result
        if self.output_col is None:
            for column in sorted(columns[1:], reverse=True) if not isinstance(sample, dict) else columns[1:]:
                del changed[column]
        return tuple(changed) if isinstance(sample, tuple) else changed


@functional_datapipe("collate")
class Collator(Mapper):
    """Batches of samples as tensors."""

    def __init__(self, datapipe, conversion=default_collate, collate_fn=None):
        super().__init__(datapipe, collate_fn or (conversion if callable(conversion) else default_collate))


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The samples, or columns of them, for which a function is true."""

    def __init__(self, datapipe, filter_fn, input_col=None):
        check_function(filter_fn)
        if input_col is not None:
            check_columns(filter_fn, input_col)
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self):
        for sample in self.datapipe:
            keep = self.filter_fn(*_picked(sample, self.input_col))
            if not isinstance(keep, (bool, wisp.Tensor)) and type(keep).__name__ != "bool_":
                raise ValueError(f"Boolean output is required for `filter_fn` of FilterIterDataPipe, got {type(keep)}")
            if keep:
                yield sample


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of `batch_size` samples."""

    def __init__(self, datapipe, batch_size, drop_last=False, wrapper_class=DataChunk):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __iter__(self):
        batch = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self):
        (count,) = length_of(self, self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe):
    """The samples of batches; -1 goes down through all levels."""

    def __init__(self, datapipe, unbatch_level=1):
        if unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def _opened(self, sample, level):
        if level == 0 or level < 0 and not isinstance(sample, list):
            yield sample
            return
        if not isinstance(sample, list):
            raise IndexError(f"unbatch_level {self.unbatch_level} exceeds the depth of the DataPipe")
        for item in sample:
            yield from self._opened(item, level - 1)

    def __iter__(self):
        for sample in self.datapipe:
            yield from self._opened(sample, self.unbatch_level)


@functional_datapipe("shuffle")
class Shuffler(Shuffling, _After):
    """The samples in random order, as far as a buffer reaches."""

    def __init__(self, datapipe, *, buffer_size=10000, unbatch_level=0):
        super().__init__(datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level))
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.buffer_size = buffer_size

    def __iter__(self):
        if not self._enabled:
            yield from self.datapipe
            return
        generator, buffer = self._generator(), []
        for sample in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
            else:
                place = generator.randrange(len(buffer))
                buffer[place], sample = sample, buffer[place]
                yield sample
        generator.shuffle(buffer)
        yield from buffer


@functional_datapipe("sharding_filter")
class ShardingFilter(IterDataPipe):
    """Every n-th sample: with workers, each has its own part of the stream."""

    def __init__(self, source_datapipe, sharding_group_filter=None):
        self.source_datapipe, self.sharding_group_filter = source_datapipe, sharding_group_filter
        self.groups = {}  # who takes which part, by who shares out

    def is_shardable(self):
        return True

    def apply_sharding(self, num_of_instances, instance_id, sharding_group=SHARDING_PRIORITIES.DEFAULT):
        if instance_id >= num_of_instances:
            raise ValueError(f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})")
        default = SHARDING_PRIORITIES.DEFAULT
        if self.groups and (sharding_group == default) != (default in self.groups):
            raise RuntimeError("ShardingFilter cannot mix DEFAULT and non DEFAULT groups")
        self.groups[sharding_group] = num_of_instances, instance_id

    def _share(self):
        count, number = 1, 0
        for group in sorted(self.groups, reverse=True):
            if self.sharding_group_filter is None or group == self.sharding_group_filter:
                number += count * self.groups[group][1]
                count *= self.groups[group][0]
        worker = get_worker_info()
        return (count, number) if worker is None else (count * worker.num_workers, number * worker.num_workers + worker.id)

    def __iter__(self):
        count, number = self._share()
        for place, sample in enumerate(self.source_datapipe):
            if place % count == number:
                yield sample

    def __len__(self):
        count, number = self._share()
        (whole,) = length_of(self, self.source_datapipe)
        return whole // count + (number < whole % count)


@functional_datapipe("concat")
class Concater(IterDataPipe):
    """One stream after the other."""

    def __init__(self, *datapipes):
        check_pipes(datapipes, IterDataPipe)
        self.datapipes = datapipes

    def __iter__(self):
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self):
        return sum(length_of(self, *self.datapipes))


@functional_datapipe("zip")
class Zipper(Concater):
    """Tuples of a sample of each stream, until the first ends."""

    def __iter__(self):
        yield from zip(*self.datapipes)

    def __len__(self):
        return min(length_of(self, *self.datapipes))


@functional_datapipe("mux")
class Multiplexer(Concater):
    """A sample of each stream in turn, until the first ends."""

    def __iter__(self):
        for samples in zip(*self.datapipes):
            yield from samples

    def __len__(self):
        return min(length_of(self, *self.datapipes)) * len(self.datapipes)


class _Shared(IterDataPipe):
    """One stream that several pipes read, each at its own pace; what one has read waits for the others."""

    def __init__(self, datapipe, num_instances, buffer_size, name):
        if num_instances < 1:
            raise ValueError(f"Expected `num_instances` larger than 0, but {num_instances} is found")
        if buffer_size < 0:
            warnings.warn(
                f"Unlimited buffer size is set for `{name}`, please be aware of OOM (Out of Memory) risks", UserWarning, stacklevel=4
            )
        self.main_datapipe, self.num_instances, self.buffer_size = datapipe, num_instances, buffer_size
        self._source, self._waiting, self._ended = None, [collections.deque() for _ in range(num_instances)], False

    def __getstate__(self):  # where it is in the stream stays here
        fresh = {"_source": None, "_waiting": [collections.deque() for _ in self._waiting], "_ended": False}
        return {**self.__dict__, **fresh}

    def _exhausted(self):
        return self._ended and not any(self._waiting)

    def reset(self):
        self._source, self._ended = None, False
        for waiting in self._waiting:
            waiting.clear()

    def _next(self, number):
        if self._source is None and not self._ended:
            self._source = iter(self.main_datapipe)
        while not self._waiting[number]:
            if self._ended:
                raise StopIteration
            try:
                sample = next(self._source)
            except StopIteration:
                self._ended, self._source = True, None
                raise
            self._route(sample)
            if self.buffer_size >= 0 and max(map(len, self._waiting)) > max(self.buffer_size, 1):
                raise BufferError(
                    f"DataPipe buffer overflow: more than {self.buffer_size} samples wait for a slower branch; use a larger "
                    "buffer_size, or -1"
                )
        return self._waiting[number].popleft()


class _Forked(_Shared):
    def __init__(self, datapipe, num_instances, buffer_size, copy_fn):
        super().__init__(datapipe, num_instances, buffer_size, "fork")
        self.copy_fn = copy_fn

    def _route(self, sample):
        for waiting in self._waiting:
            waiting.append(sample if self.copy_fn is None else self.copy_fn(sample))

    def __len__(self):
        return length_of(self, self.main_datapipe)[0]


class _Demultiplexed(_Shared):
    def __init__(self, datapipe, num_instances, classifier_fn, drop_none, buffer_size):
        check_function(classifier_fn)
        super().__init__(datapipe, num_instances, buffer_size, "demux")
        self.classifier_fn, self.drop_none = classifier_fn, drop_none

    def _route(self, sample):
        number = self.classifier_fn(sample)
        if number is None and self.drop_none:
            return
        if number is None or not 0 <= number < self.num_instances:
            raise ValueError(f"Output of the classification fn should be between 0 and {self.num_instances - 1}. {number} is returned.")
        self._waiting[number].append(sample)


class _ChildDataPipe(IterDataPipe):
    """One of the pipes that read a shared stream."""

    def __init__(self, main_datapipe, instance_id):
        self.main_datapipe, self.instance_id = main_datapipe, instance_id

    def _begin(self):
        main = self.main_datapipe
        if main._valid_iterator_id is None:
            main._valid_iterator_id = 0
        elif main._valid_iterator_id == self._valid_iterator_id:  # the first to begin again restarts the stream for all
            main._valid_iterator_id += 1
            if not main._exhausted():
                warnings.warn(
                    "Some child DataPipes are not exhausted when __iter__ is called. We are resetting the buffer and each child DataPipe "
                    "will read from the start again.",
                    UserWarning,
                    stacklevel=4,
                )
            main.reset()
        self._valid_iterator_id = main._valid_iterator_id
        return self._valid_iterator_id

    def __iter__(self):
        main, number = self.main_datapipe, self._valid_iterator_id
        while True:
            if main._valid_iterator_id != number:
                raise RuntimeError(
                    "This iterator has been invalidated, because another branch of the same DataPipe was started again: each reads from "
                    "the beginning then"
                )
            try:
                sample = main._next(self.instance_id)
            except StopIteration:
                return
            yield sample

    def __len__(self):
        return length_of(self, self.main_datapipe)[0]


@functional_datapipe("fork")
class Forker(IterDataPipe):
    """Several pipes with the same samples: `a, b = pipe.fork(2)`."""

    def __new__(cls, datapipe, num_instances, buffer_size=1000, copy=None):
        if num_instances == 1:
            return datapipe
        copies = {None: None, "shallow": _copy.copy, "deep": _copy.deepcopy}
        if copy not in copies:
            raise ValueError(f"Unknown copy method `{copy}`; expected None, 'shallow' or 'deep'")
        main = _Forked(datapipe, num_instances, buffer_size, copies[copy])
        return [_ChildDataPipe(main, number) for number in range(num_instances)]


@functional_datapipe("demux")
class Demultiplexer(IterDataPipe):
    """Several pipes, each with the samples that a function numbers so."""

    def __new__(cls, datapipe, num_instances, classifier_fn, drop_none=False, buffer_size=1000):
        main = _Demultiplexed(datapipe, num_instances, classifier_fn, drop_none, buffer_size)
        return [_ChildDataPipe(main, number) for number in range(num_instances)]


@functional_datapipe("groupby")
class Grouper(IterDataPipe):
    """Lists of samples with the same key, at most `group_size` of them."""

    def __init__(
        self,
        datapipe,
        group_key_fn,
        *,
        keep_key=False,
        buffer_size=10000,
        group_size=None,
        guaranteed_group_size=None,
        drop_remaining=False,
    ):
        check_function(group_key_fn)
        self.datapipe, self.group_key_fn, self.keep_key, self.buffer_size = datapipe, group_key_fn, keep_key, buffer_size
        self.group_size, self.drop_remaining = group_size, drop_remaining
        self.guaranteed_group_size = group_size if guaranteed_group_size is None else guaranteed_group_size
        if group_size is not None and not 0 < group_size <= buffer_size:
            raise AssertionError("group_size must be larger than 0 and at most buffer_size")

    def _group(self, key, samples):
        samples = DataChunk(samples)
        return (key, samples) if self.keep_key else samples

    def __iter__(self):
        groups, count = collections.OrderedDict(), 0
        for sample in self.datapipe:
            key = self.group_key_fn(sample)
            groups.setdefault(key, []).append(sample)
            count += 1
            if self.group_size is not None and len(groups[key]) == self.group_size:
                count -= self.group_size
                yield self._group(key, groups.pop(key))
            elif count == self.buffer_size:  # the largest group makes room
                key = max(groups, key=lambda other: len(groups[other]))
                if self.guaranteed_group_size is not None and len(groups[key]) < self.guaranteed_group_size and not self.drop_remaining:
                    raise RuntimeError(f"Failed to group items: {len(groups[key])} samples of {key!r} fill the buffer; enlarge buffer_size")
                samples = groups.pop(key)
                count -= len(samples)
                if self.guaranteed_group_size is None or len(samples) >= self.guaranteed_group_size:
                    yield self._group(key, samples)
        for key, samples in groups.items():
            if not self.drop_remaining or self.guaranteed_group_size is not None and len(samples) >= self.guaranteed_group_size:
                yield self._group(key, samples)


class Sampler(IterDataPipe):
    """The samples that a sampler over the stream gives."""

    def __init__(self, datapipe, sampler=SequentialSampler, sampler_args=None, sampler_kwargs=None):
        if not hasattr(type(datapipe), "__len__"):
            raise AssertionError("Sampler class requires input datapipe implemented `__len__`")
        self.datapipe = datapipe
        self.sampler = sampler(*(sampler_args or ()), **{"data_source": datapipe, **(sampler_kwargs or {})})

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)


@functional_datapipe("list_files")
class FileLister(IterDataPipe):
    """The paths of the files in folders."""

    def __init__(self, root=".", masks="", *, recursive=False, abspath=False, non_deterministic=False, length=-1):
        self.roots = [root] if isinstance(root, str) else root
        self.masks, self.recursive, self.abspath, self.length = [masks] if isinstance(masks, str) else masks, recursive, abspath, length

    def __iter__(self):
        for root in self.roots:
            if os.path.isfile(root):
                if any(not mask or fnmatch.fnmatch(os.path.basename(root), mask) for mask in self.masks):
                    yield os.path.abspath(root) if self.abspath else root
                continue
            for folder, folders, files in os.walk(root):
                folders.sort()
                if not self.recursive:
                    folders.clear()
                for name in sorted(files):
                    if any(not mask or fnmatch.fnmatch(name, mask) for mask in self.masks):
                        path = os.path.join(folder, name)
                        yield os.path.abspath(path) if self.abspath else path

    def __len__(self):
        if self.length < 0:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length")
        return self.length


@functional_datapipe("open_files")
class FileOpener(_After):
    """(path, open file) of each path."""

    def __init__(self, datapipe, mode="r", encoding=None, length=-1):
        super().__init__(datapipe)
        self.mode, self.encoding = mode, encoding

    def __iter__(self):
        for path in self.datapipe:
            yield path, open(path, "rb" if self.mode == "b" else self.mode, encoding=self.encoding)


@functional_datapipe("read_from_stream")
class StreamReader(IterDataPipe):
    """(path, bytes) of open files, whole or in chunks."""

    def __init__(self, datapipe, chunk=None):
        self.datapipe, self.chunk = datapipe, chunk

    def __iter__(self):
        for path, stream in self.datapipe:
            while True:
                part = stream.read(-1 if self.chunk is None else self.chunk)
                if not part:
                    break
                yield path, part
            stream.close()
