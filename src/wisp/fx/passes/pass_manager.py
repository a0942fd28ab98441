"""Runs functions that change an object, each with the result of the one before, in an order that keeps their constraints."""

import functools
import inspect
import logging

from wisp.fx.passes.infra import pass_manager
from wisp.fx.passes.infra.pass_manager import this_before_that_pass_constraint

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "log_hook",
    "loop_pass",
    "these_before_those_pass_constraint",
    "this_before_that_pass_constraint",
]
logger = logging.getLogger(__name__)


def inplace_wrapper(fn):
    """The function, returning the object that it changes.

    >>> inplace_wrapper(list.sort)([2, 1])
    [1, 2]
    """

    @functools.wraps(fn)
    def wrapped(gm, *args, **kwargs):
        fn(gm, *args, **kwargs)
        return gm

    return wrapped


def log_hook(fn, level=logging.INFO):
    """The function, with what it returns in the log."""

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        result = fn(*args, **kwargs)
        logger.log(level, "Ran pass %s\t Return value: %s", fn, result)
        return result

    return wrapped


def loop_pass(base_pass, n_iter=None, predicate=None):
    """The pass applied `n_iter` times, or while `predicate` of its result holds.

    >>> loop_pass(lambda x: x * 2, n_iter=3)(1), loop_pass(lambda x: x * 2, predicate=lambda x: x < 10)(1)
    (8, 16)
    """
    if (n_iter is None) == (predicate is None):
        raise AssertionError("loop_pass: give either n_iter or predicate")

    @functools.wraps(base_pass)
    def looped(source):
        result, count = source, 0
        while predicate(result) if n_iter is None else count < n_iter:
            result, count = base_pass(result), count + 1
        return result

    return looped


def these_before_those_pass_constraint(these, those):
    """A constraint for passes that are wrapped: no pass around `these` stands after one around `those`.

    >>> these_before_those_pass_constraint(list.sort, list.reverse)(inplace_wrapper(list.reverse), inplace_wrapper(list.sort))
    False
    """
    return lambda first, second: not (inspect.unwrap(first) == those and inspect.unwrap(second) == these)


class PassManager(pass_manager.PassManager):
    """Calls `passes` one after another, each with what the one before returned; `constraints` say which may stand before which.

    >>> PassManager([lambda x: x + 1, lambda x: x * 2])(3)
    8
    """

    def __init__(self, passes=None, constraints=None):
        super().__init__(passes, constraints)

    @classmethod
    def build_from_passlist(cls, passes):
        """A manager of these passes without constraints."""
        return cls(passes)

    def remove_pass(self, _passes):
        """Take out the passes of these names."""
        self.passes = [one for one in self.passes if one.__name__ not in _passes]
        self._validated = False

    def replace_pass(self, _target, _replacement):
        """Put another pass in the place of the one with the name of `_target`."""
        self.passes = [_replacement if one.__name__ == _target.__name__ else one for one in self.passes]
        self._validated = False

    def validate(self):
        """Raise RuntimeError where a pass stands before one that must come first."""
        if not self._validated:
            self.validate_constraints()

    def __call__(self, source):
        self.validate()
        for one in self.passes:
            source = one(source)
        return source
