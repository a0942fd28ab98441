"""`torch.compiler` for programs that use it: Wisp runs eagerly, so there is nothing to compile, reset or disable."""

import contextlib as _contextlib

from wisp import _reference
from wisp._composites.settings import compile  # noqa: F401

__all__ = """
    allow_in_graph assume_constant_result compile cudagraph_mark_step_begin disable is_compiling is_dynamo_compiling is_exporting
    list_backends reset set_stance substitute_in_graph""".split()


def is_compiling():
    """False: code runs eagerly."""
    return False


def is_dynamo_compiling():
    """False: code runs eagerly."""
    return False


def is_exporting():
    """False: nothing is exported."""
    return False


def disable(fn=None, recursive=True, *, reason=None):
    """The function as it is; also as a decorator with arguments.

    >>> import wisp
    >>> @wisp.compiler.disable
    ... def double(x):
    ...     return x * 2
    >>> double(2)
    4
    """
    return fn if fn is not None else lambda f: f


def allow_in_graph(fn):
    """The function as it is."""
    return fn


def assume_constant_result(fn):
    """The function as it is."""
    return fn


def substitute_in_graph(original_fn, **options):
    """A decorator that returns the function as it is."""
    return lambda f: f


def reset():
    """Nothing to forget."""


def cudagraph_mark_step_begin():
    """Nothing to mark."""


def list_backends(exclude_tags=("debug", "experimental")):
    """No backends: []."""
    return []


def set_stance(stance="default", **options):
    """A context that changes nothing."""
    return _contextlib.nullcontext()


_reference.attach(__name__, globals())
