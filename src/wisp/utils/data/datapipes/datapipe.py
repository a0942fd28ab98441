"""DataPipes: datasets that are put together from small steps, `pipe.map(f).shuffle().batch(4)`."""

import functools
import random

from wisp.utils.data._worker_info import get_worker_info
from wisp.utils.data.dataset import Dataset, IterableDataset

__all__ = ["DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe"]


class _Steps:
    """Steps by their short names, which `functional_datapipe` enters; each is a method of every pipe of its kind."""

    @classmethod
    def register_function(cls, function_name, function):
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = function

    register_datapipe_as_function = register_function

    def __getattr__(self, name):
        if name in type(self).functions:
            return functools.partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __dir__(self):
        return [*super().__dir__(), *type(self).functions]

    def __repr__(self):
        return type(self).__name__

    def reset(self):
        """Called before each iteration; pipes with a state of their own begin anew here."""


class IterDataPipe(_Steps, IterableDataset):
    """A stream of samples, as a step after others.

    >>> from wisp.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(5)).map(lambda x: x * x).filter(lambda x: x % 2 == 0).batch(2))
    [[0, 4], [16]]
    """

    functions = {}

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __iter__")


class DFIterDataPipe(IterDataPipe):
    """A stream of data frames.

    >>> from wisp.utils.data import DFIterDataPipe, IterDataPipe
    >>> issubclass(DFIterDataPipe, IterDataPipe)
    True
    """


class MapDataPipe(_Steps, Dataset):
    """Samples by index, as a step after others.

    >>> from wisp.utils.data.datapipes.map import SequenceWrapper
    >>> pipe = SequenceWrapper([3, 4, 5]).map(lambda x: x + 1)
    >>> pipe[1], len(pipe)
    (5, 3)
    """

    functions = {}


class _Wrapped:
    """A pipe that pickles itself; PyTorch's keeps the bytes."""

    def __init__(self, datapipe):
        self._datapipe = datapipe

    def __iter__(self):
        return iter(self._datapipe)

    def __getitem__(self, index):
        return self._datapipe[index]

    def __len__(self):
        return len(self._datapipe)


class _IterDataPipeSerializationWrapper(_Wrapped, IterDataPipe):
    """A pipe that is iterated, on its way to a worker."""


class _MapDataPipeSerializationWrapper(_Wrapped, MapDataPipe):
    """A pipe that is indexed, on its way to a worker."""


def _before(pipe):
    """The pipes that a pipe holds."""
    for value in vars(pipe).values():
        for item in value if isinstance(value, (list, tuple)) else [getattr(value, "datapipe", value)]:
            if isinstance(item, _Steps):
                yield item


def with_shuffle(pipe, shuffle):
    """Switch the steps of a pipe that shuffle on or off; a pipe without one gets one if it is asked for."""
    found, pending = False, [pipe]
    while pending:
        step = pending.pop()
        if hasattr(type(step), "set_shuffle"):
            step.set_shuffle(shuffle)
            found = True
        pending += _before(step)
    return pipe if found or not shuffle else pipe.shuffle()


def traverse(pipe):
    """A pipe and those before it: {number of a pipe: (pipe, the same of those before it)}."""
    return {id(pipe): (pipe, {key: value for step in _before(pipe) for key, value in traverse(step).items()})}


def _steps(pipe):
    yield pipe
    for step in _before(pipe):
        yield from _steps(step)


def apply_sharding(pipe, num_of_instances, instance_id, sharding_group=None):
    """Tell the steps of a pipe that share samples out who takes which."""
    for step in _steps(pipe):
        if hasattr(type(step), "apply_sharding"):
            step.apply_sharding(num_of_instances, instance_id, sharding_group)
    return pipe


def apply_shuffle_seed(pipe, rng):
    """Give the steps of a pipe that shuffle seeds from a generator."""
    import wisp

    for step in _steps(pipe):
        if hasattr(type(step), "set_seed"):
            step.set_seed(int(wisp.randint(0, 2**62, (), generator=rng)))
    return pipe


def shared_seed():
    """A seed that all workers of a loader draw alike."""
    import wisp

    worker = get_worker_info()
    return int(wisp.randint(0, 2**62, ())) if worker is None else worker.seed - worker.id


class Shuffling:
    """What a step that shuffles is told: whether to, and the seed of its next iteration."""

    _enabled, _seed = True, None

    def set_shuffle(self, shuffle=True):
        self._enabled = shuffle
        return self

    def set_seed(self, seed):
        self._seed = seed
        return self

    def _generator(self):
        """Random numbers for one iteration, which all workers draw alike."""
        seed, self._seed = self._seed, None
        return random.Random(shared_seed() if seed is None else seed)


class DataChunk(list):
    """A batch: a list of samples.

    >>> from wisp.utils.data import DataChunk
    >>> DataChunk([1, 2]).as_str()
    '[1, 2]'
    """

    def __init__(self, items):
        super().__init__(items)

    def as_str(self, indent=""):
        return indent + "[" + ", ".join(str(item) for item in self) + "]"

    def raw_iterator(self):
        return iter(self)
