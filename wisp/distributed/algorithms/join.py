"""Processes with different numbers of batches; a group of one has no such."""
import contextlib

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process does while others still have batches."""

    def main_hook(self):
        """At each step of the others."""

    def post_hook(self, is_last_joiner):
        """At the end."""


class Joinable:
    """A class that takes part in `Join`."""


class Join(contextlib.nullcontext):
    """A context in which processes may have different numbers of batches."""

    def __init__(self, joinables=(), enable=True, throw_on_early_termination=False, **options):
        super().__init__()
        from wisp import distributed
        if enable and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise NotImplementedError("Join: processes with different numbers of batches are not supported; give each rank as many "
                                      "(DistributedSampler does)")
