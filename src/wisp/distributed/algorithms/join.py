"""Join: ranks with different numbers of batches. Who has none left takes part in the others' collectives with nothing to add."""

import abc
import dataclasses
import warnings

import wisp
from wisp import distributed

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process does while others still have batches."""

    def main_hook(self):
        """At each step of the others: answer the collectives of one."""

    def post_hook(self, is_last_joiner):
        """When no process has batches left; the last ones to finish have seen all steps."""


def make_hook(main, post=None):
    """A hook of two functions."""
    hook = JoinHook()
    hook.main_hook = main
    if post is not None:
        hook.post_hook = post
    return hook


class Joinable(abc.ABC):
    """A class that takes part in `Join`: it has `join_hook(**options)`, `join_device`, `join_process_group`, and calls
    `Join.notify_join_context(self)` before the collectives of a step."""

    _join_config = None

    @classmethod
    def __subclasshook__(cls, other):
        if cls is not Joinable:
            return NotImplemented
        return all(hasattr(other, name) for name in ("join_hook", "join_device", "join_process_group"))

    @abc.abstractmethod
    def join_hook(self, **kwargs):
        """The hook of this object."""

    @property
    @abc.abstractmethod
    def join_device(self):
        """The device of its collectives."""

    @property
    @abc.abstractmethod
    def join_process_group(self):
        """The group of its collectives."""


@dataclasses.dataclass
class _Config:
    throw: bool
    first: bool


def _sum(value, group):
    total = wisp.tensor([value])
    distributed.all_reduce(total, group=group)
    return int(total)


class Join:
    """A block in which ranks may have different numbers of batches, for DistributedDataParallel and ZeroRedundancyOptimizer.

    Gradients are divided by the number of ranks, as before; `divide_by_initial_world_size=False` divides by those that still have
    batches. `throw_on_early_termination=True` raises an error in all ranks when one has no more.

    >>> import wisp
    >>> from wisp.distributed.algorithms import Join
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> model = wisp.nn.parallel.DistributedDataParallel(wisp.nn.Linear(1, 1))
    >>> with Join([model]):
    ...     for batch in wisp.ones(3, 1, 1):
    ...         model(batch).sum().backward()
    >>> model.module.bias.grad
    tensor([3.])
    >>> wisp.distributed.destroy_process_group()
    """

    def __init__(self, joinables, enable=True, throw_on_early_termination=False, **kwargs):
        self._joinables = list(joinables)
        if not self._joinables:
            raise ValueError("The join context manager requires at least one joinable")
        for one in self._joinables:
            if not isinstance(one, Joinable):
                raise TypeError(f"Join: {type(one).__name__} is no Joinable (DistributedDataParallel and ZeroRedundancyOptimizer are)")
        self._group = self._joinables[0].join_process_group
        if any(one.join_process_group is not self._group for one in self._joinables):
            raise ValueError("Using join context manager with multiple process groups is not supported")
        self._enable, self._throw = enable, throw_on_early_termination
        self._hooks = [one.join_hook(**kwargs) for one in self._joinables] if enable else []

    def __enter__(self):
        for number, one in enumerate(self._joinables):
            one._join_config = _Config(self._throw, number == 0) if self._enable else None

    def __exit__(self, kind, error, trace):
        for one in self._joinables:
            one._join_config = None
        if not self._enable or kind is not None:
            return
        last, steps = True, 0
        while _sum(0, self._group):
            if self._throw:
                _sum(1, self._group)
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
            for hook in self._hooks:
                hook.main_hook()
            last, steps = False, steps + 1
            if steps == 1000:
                warnings.warn(
                    "Join: another rank has 1000 batches more than this one; a DistributedSampler would give all as many", stacklevel=2
                )
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable):
        """A process with a batch begins a step; called by the first object of the context, before its collectives."""
        config = joinable._join_config
        if config is None or not config.first:
            return None
        _sum(1, joinable.join_process_group)
        if config.throw and _sum(0, joinable.join_process_group):
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return None
