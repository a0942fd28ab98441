"""A named range of the user's own, in a profile."""

import functools

from wisp import _core

__all__ = ["record_function"]


class record_function:
    """Names what happens inside, in a profile; a context manager or a decorator.

    >>> from wisp.profiler import profile
    >>> with profile() as prof:
    ...     with record_function("sum it"):
    ...         y = wisp.ones(3).sum()
    >>> "sum it" in [event.name for event in prof.events()]
    True
    """

    def __init__(self, name, args=None):
        self.name, self.args = str(name), args
        self._event = -1

    def __enter__(self):
        self._event = _core._profiler_enter(self.name)
        return self

    def __exit__(self, *_):
        _core._profiler_exit(self._event)

    def __call__(self, function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return wrapped
