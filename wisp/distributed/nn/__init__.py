"""Collectives with gradients; in a group of one process each is the identity."""
from wisp.distributed.nn import functional  # noqa: F401
from wisp.distributed.nn.functional import all_gather, all_reduce, all_to_all, broadcast, gather, reduce, reduce_scatter, scatter

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "functional", "gather", "reduce", "reduce_scatter", "scatter"]
