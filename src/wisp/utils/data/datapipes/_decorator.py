"""Decorators of DataPipes: a short name as a method, and whether the order of samples is determined."""

import contextlib
import functools

from wisp.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

__all__ = [
    "argument_validation",
    "functional_datapipe",
    "guaranteed_datapipes_determinism",
    "non_deterministic",
    "runtime_validation",
    "runtime_validation_disabled",
]
_determined = False
_validating = True


class functional_datapipe:
    """Give a DataPipe a short name, by which it is a method of the others.

    >>> from wisp.utils.data import IterDataPipe, functional_datapipe
    >>> from wisp.utils.data.datapipes.iter import IterableWrapper
    >>> @functional_datapipe("twice_each")
    ... class Twice(IterDataPipe):
    ...     def __init__(self, source):
    ...         self.source = source
    ...     def __iter__(self):
    ...         for sample in self.source:
    ...             yield sample
    ...             yield sample
    >>> list(IterableWrapper([1, 2]).twice_each())
    [1, 1, 2, 2]
    """

    def __init__(self, name, enable_df_api_tracing=False):
        self.name = name

    def __call__(self, cls):
        kind = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe if issubclass(cls, MapDataPipe) else None
        if kind is None:
            raise TypeError(f"functional_datapipe decorates subclasses of IterDataPipe or MapDataPipe, got {cls.__name__}")
        kind.register_function(self.name, cls)
        return cls


@contextlib.contextmanager
def _switched(name, value):
    before = globals()[name]
    globals()[name] = value
    try:
        yield
    finally:
        globals()[name] = before


def guaranteed_datapipes_determinism():
    """A context in which DataPipes whose order is not determined are refused.

    >>> from wisp.utils.data import IterDataPipe, guaranteed_datapipes_determinism, non_deterministic
    >>> pipe = non_deterministic(type("Any", (IterDataPipe,), {}))
    >>> with guaranteed_datapipes_determinism():
    ...     pipe()
    Traceback (most recent call last):
    TypeError: Any is non-deterministic with the arguments; turn off guaranteed_datapipes_determinism
    """
    return _switched("_determined", True)


def runtime_validation_disabled():
    """A context in which samples are not checked against annotations; Wisp checks none.

    >>> from wisp.utils.data import runtime_validation_disabled
    >>> with runtime_validation_disabled():
    ...     pass
    """
    return _switched("_validating", False)


class non_deterministic:
    """Mark a DataPipe whose order is not determined, or is not when a function of its arguments says so.

    >>> from wisp.utils.data import IterDataPipe, non_deterministic
    >>> @non_deterministic
    ... class Stream(IterDataPipe):
    ...     def __iter__(self):
    ...         return iter([1, 2])
    >>> list(Stream())
    [1, 2]
    """

    def __init__(self, arg):
        self.cls = arg if isinstance(arg, type) else None
        self.decide = None if isinstance(arg, type) else arg

    def __call__(self, *args, **kwargs):
        if self.cls is None:
            self.cls = args[0]
            return functools.wraps(self.cls, updated=())(functools.partial(self._make))
        return self._make(*args, **kwargs)

    def _make(self, *args, **kwargs):
        if _determined and (self.decide is None or self.decide(*args, **kwargs)):
            raise TypeError(f"{self.cls.__name__} is non-deterministic with the arguments; turn off guaranteed_datapipes_determinism")
        return self.cls(*args, **kwargs)


def argument_validation(f):
    """The function as it is: annotations of DataPipes are not checked.

    >>> from wisp.utils.data import argument_validation
    >>> argument_validation(abs) is abs
    True
    """
    return f


runtime_validation = argument_validation
