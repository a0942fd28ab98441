"""`torch.compiler`: functions and modules whose operators are noted, fused and run together.

`compile` makes them; the rest asks about compiled regions, leaves them or watches them. docs/compile.md tells how it works.
"""

import functools as _functools
import sys as _sys

from wisp import _core, _reference
from wisp.compiler._compile import BACKENDS as _BACKENDS
from wisp.compiler._compile import OptimizedModule, compile, disable  # noqa: F401
from wisp.compiler._compile import runs_compiled as _runs_compiled
from wisp.compiler._explain import Explanation, explain  # noqa: F401
from wisp.compiler._stance import set_stance  # noqa: F401

__all__ = """
    Explanation OptimizedModule allow_in_graph assume_constant_result compile cudagraph_mark_step_begin disable explain is_compiling
    is_dynamo_compiling is_exporting list_backends nested_compile_region reset set_stance statistics substitute_in_graph""".split()


def is_compiling():
    """Whether the code that asks runs in a compiled region, where operators are noted.

    >>> import wisp
    >>> wisp.compiler.is_compiling(), wisp.compile(wisp.compiler.is_compiling)()
    (False, True)
    """
    return _runs_compiled(_sys._getframe())


def is_dynamo_compiling():
    """The same as `is_compiling`."""
    return _runs_compiled(_sys._getframe())


def is_exporting():
    """False: nothing is exported."""
    return False


def allow_in_graph(fn):
    """The function as it is: all functions may be called in a compiled region."""
    return fn


def assume_constant_result(fn):
    """The function as it is: it is called each time."""
    return fn


def substitute_in_graph(original_fn, **options):
    """A decorator that returns the function as it is: the original one is called."""
    return lambda f: f


def nested_compile_region(fn=None, **options):
    """The function as it is: a region within a region is the outer one."""
    return fn if fn is not None else _functools.partial(nested_compile_region, **options)


def reset():
    """Run what is noted. There is nothing to forget: no code is kept that new shapes or values would make wrong."""
    _core._run_noted()


def cudagraph_mark_step_begin():
    """Nothing to mark."""


def list_backends(exclude_tags=("debug", "experimental")):
    """The names that `compile` takes for `backend`.

    >>> import wisp
    >>> wisp.compiler.list_backends()
    ['cudagraphs', 'inductor']
    """
    return sorted(name for name, notes in _BACKENDS.items() if notes or "debug" not in (exclude_tags or ()))


def statistics():
    """Counts since the start: operators noted and never made, runs of the tape, programs, bytes they moved and would have moved;
    launches on a GPU that were kept back, how many of them went as graphs, and the graphs.

    >>> import wisp
    >>> sorted(wisp.compiler.statistics())[:6]
    ['bytes', 'bytes_one_by_one', 'graphs', 'launches_kept', 'launches_replayed', 'never_made']
    """
    return _core._noted_counts()


_reference.attach(__name__, globals())
