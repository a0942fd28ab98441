"""DataPipes: datasets that are put together from small steps, `pipe.map(f).shuffle().batch(4)`."""

import enum
import functools
import inspect
import random
import warnings

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
            step = functools.partial(type(self).functions[name], self)
            step.__doc__ = type(self).functions[name].__doc__
            return step
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


class _Iterator:
    """The iterator of a stream, as long as it is the one that was made last."""

    def __init__(self, pipe, number, inner):
        self._pipe, self._number, self._inner = pipe, number, inner

    def __iter__(self):
        return self

    def __next__(self):
        pipe = self._pipe
        if pipe._valid_iterator_id != self._number:
            raise RuntimeError(
                "This iterator has been invalidated because another iterator has been created from the same IterDataPipe: "
                f"{pipe!r}. A stream is read by one at a time: use `.fork()` for several, or one after the other."
            )
        pipe._reading += 1
        try:
            return next(self._inner)
        finally:
            pipe._reading -= 1

    def __getattr__(self, name):
        return getattr(self._inner, name)


def _single(make):
    """An `__iter__` whose iterators end the ones before."""

    @functools.wraps(make)
    def __iter__(self):
        if self._reading:  # super().__iter__() of an iterator under way
            return make(self)
        self._reading += 1
        try:
            number = self._begin()
            inner = make(self)
        finally:
            self._reading -= 1
        return _Iterator(self, number, inner)

    return __iter__


class IterDataPipe(_Steps, IterableDataset):
    """A stream of samples, as a step after others.

    >>> from wisp.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(5)).map(lambda x: x * x).filter(lambda x: x % 2 == 0).batch(2))
    [[0, 4], [16]]
    """

    functions = {}
    _valid_iterator_id, _reading = None, 0  # the number of the iterator that may be read, and whether it is right now

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__iter__" in vars(cls):
            cls.__iter__ = _single(vars(cls)["__iter__"])

    def _begin(self):
        """The number of a new iterator."""
        self._valid_iterator_id = 0 if self._valid_iterator_id is None else self._valid_iterator_id + 1
        self.reset()
        return self._valid_iterator_id

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


def length_of(pipe, *before):
    """The lengths of the pipes before one, without which it has none."""
    try:
        return [len(step) for step in before]
    except TypeError:
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length") from None


def check_pipes(pipes, kind):
    """What joins pipes wants at least one, and nothing else."""
    if not pipes:
        raise ValueError("Expected at least one DataPipe, but got nothing")
    if not all(isinstance(pipe, kind) for pipe in pipes):
        raise TypeError(f"Expected all inputs to be `{kind.__name__}`, got {[type(pipe).__name__ for pipe in pipes]}")


def check_function(function):
    """Warn of a function that cannot go to a worker which is spawned."""
    if not callable(function):
        raise TypeError(f"A callable function is expected, but {type(function)} is provided.")
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if getattr(function, "__name__", "") == "<lambda>":
        what = "Lambda"
    elif code.co_flags & inspect.CO_NESTED if code is not None else "<locals>" in getattr(function, "__qualname__", ""):
        what = "Local"
    else:
        return
    warnings.warn(
        f"{what} function is not supported by pickle, please use regular python function or functools.partial instead.", stacklevel=4
    )


def check_columns(function, columns):
    """A function that gets columns of a sample must take as many arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of a built-in function nothing is known
        return
    name = getattr(function, "__name__", repr(function))
    count = len(columns) if isinstance(columns, (list, tuple)) else 1
    wanted = [p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if named:
        raise ValueError(f"The function {name} takes the keyword-only parameters {named} without default, which `input_col` cannot give.")
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        most = count
    else:
        most = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    if len(wanted) > count:
        raise ValueError(f"The function {name} takes {len(wanted)} non-default parameters, but {count} are required.")
    if most < count:
        raise ValueError(f"The function {name} takes {most} parameters, but {count} are required.")


def _before(pipe):
    """The pipes that a pipe holds."""
    for value in list(vars(pipe).values()):
        for item in value if isinstance(value, (list, tuple)) else [value]:
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


def traverse(pipe, _above=()):
    """A pipe and those before it: {number of a pipe: (pipe, the same of those before it)}."""
    above = (*_above, id(pipe))
    return {
        id(pipe): (pipe, {key: value for step in _before(pipe) if id(step) not in above for key, value in traverse(step, above).items()})
    }


def get_all_graph_pipes(graph):
    """The pipes of a graph that `traverse` made, each once."""
    found = {}
    for number, (pipe, before) in graph.items():
        found[number] = pipe
        found.update((id(step), step) for step in get_all_graph_pipes(before))
    return list(found.values())


def _steps(pipe):
    yield from get_all_graph_pipes(traverse(pipe))


class SHARDING_PRIORITIES(enum.IntEnum):
    """Who shares samples out: ranks first, then workers."""

    DEFAULT, DISTRIBUTED, MULTIPROCESSING = 1, 2, 3


def apply_sharding(pipe, num_of_instances, instance_id, sharding_group=SHARDING_PRIORITIES.DEFAULT):
    """Tell the steps of a pipe that share samples out who takes which."""

    def told(graph, above):
        for step, before in graph.values():
            own = hasattr(type(step), "apply_sharding")
            if own and above is not None:
                raise RuntimeError(
                    "Sharding twice on a single pipeline is likely unintended and will cause data loss. Sharding already applied to "
                    f"{above} while trying to apply to {step}"
                )
            if own and len(inspect.signature(step.apply_sharding).parameters) < 3:
                step.apply_sharding(num_of_instances, instance_id)
            elif own:
                step.apply_sharding(num_of_instances, instance_id, sharding_group=sharding_group)
            told(before, step if own else above)

    told(traverse(pipe), None)
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
