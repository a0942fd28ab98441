"""Python's multiprocessing, with tensors that travel as shared memory.

>>> import wisp
>>> from wisp import multiprocessing as mp
>>> x = wisp.zeros(3).share_memory_()
>>> p = mp.get_context("fork").Process(target=x.fill_, args=(7.0,))
>>> p.start(); p.join()
>>> x
tensor([7., 7., 7.])
"""

import multiprocessing as _multiprocessing
from multiprocessing import *  # noqa: F403
from multiprocessing import context as _context
from multiprocessing import pool  # noqa: F401

from wisp import _reference
from wisp.multiprocessing import queues, shared
from wisp.multiprocessing.queues import Pipe
from wisp.multiprocessing.spawn import (  # noqa: F401
    ENV_VAR_PARALLEL_START,
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

shared.register()


class _Sharing:
    """What the contexts do differently from Python's: queues and pipes that carry shared memory."""

    def Queue(self, maxsize=0):
        """A queue between processes."""
        return queues.Queue(maxsize, ctx=self.get_context())

    def JoinableQueue(self, maxsize=0):
        """A queue with `task_done` and `join`."""
        return queues.JoinableQueue(maxsize, ctx=self.get_context())

    def SimpleQueue(self):
        """A locked pipe."""
        return queues.SimpleQueue(ctx=self.get_context())

    def Pipe(self, duplex=True):
        """Two connected ends."""
        return Pipe(duplex)

    def get_context(self, method=None):
        """The context of another start method, or this one."""
        return self if method is None else get_context(method)


_contexts = {
    method: type(type(context).__name__, (_Sharing, type(context)), {})()
    for method, context in ((name, _multiprocessing.get_context(name)) for name in _multiprocessing.get_all_start_methods())
}


def get_context(method=None):
    """The context of a start method ("spawn", "fork", "forkserver"): an object with all the names of this module.

    >>> from wisp import multiprocessing as mp
    >>> mp.get_context("spawn").get_start_method()
    'spawn'
    """
    if method is None:
        method = _multiprocessing.get_start_method()
    if method not in _contexts:
        raise ValueError(f"cannot find context for {method!r}; this system has {sorted(_contexts)}")
    return _contexts[method]


def _of_default_context(name):
    def call(*args, **kwargs):
        return getattr(get_context(), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = getattr(_context.BaseContext, name).__doc__ or f"`{name}` of the default context."
    return call


Queue = _of_default_context("Queue")
JoinableQueue = _of_default_context("JoinableQueue")
SimpleQueue = _of_default_context("SimpleQueue")
Pool = _of_default_context("Pool")

_strategy = "file_descriptor"


def get_all_sharing_strategies():
    """The names that `set_sharing_strategy` takes."""
    return {"file_descriptor", "file_system"}


def get_sharing_strategy():
    """The name of the current strategy.

    >>> from wisp import multiprocessing as mp
    >>> mp.get_sharing_strategy()
    'file_descriptor'
    """
    return _strategy


def set_sharing_strategy(new_strategy):
    """Memory is always shared through descriptors of nameless files, which can't leak. People choose "file_system" when
    the number of open files gets too small; here it raises that limit as far as the system allows.

    >>> from wisp import multiprocessing as mp
    >>> mp.set_sharing_strategy("file_descriptor")
    """
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(f"unknown sharing strategy {new_strategy!r}; expected one of {sorted(get_all_sharing_strategies())}")
    if new_strategy == "file_system":
        shared.raise_file_limit()
    _strategy = new_strategy


__all__ = [
    *_multiprocessing.__all__,
    "Pipe",
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "pool",
    "queues",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

_reference.attach(__name__, globals())


_THREAD = "/proc/thread-self/comm"  # what tools such as top show; the kernel keeps 15 bytes


def _set_thread_name(name):
    """Call the running thread so, for the system's tools."""
    with open(_THREAD, "wb") as file:
        file.write(name.encode()[:15])


def _get_thread_name():
    """What the system's tools call the running thread."""
    with open(_THREAD, "rb") as file:
        return file.read().rstrip(b"\n").decode()
