"""Where the parts of a tensor lie along a dimension of a mesh."""

import dataclasses


class Placement:
    """How a tensor lies along one dimension of a mesh: `Shard(dim)`, `Replicate()` or `Partial()`."""

    def is_shard(self, dim=None):
        """Whether it is cut (along that dimension)."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self):
        """Whether every rank has all of it."""
        return isinstance(self, Replicate)

    def is_partial(self):
        """Whether the ranks' parts are yet to be added."""
        return isinstance(self, Partial)


@dataclasses.dataclass(frozen=True)
class Shard(Placement):
    """Cut along a dimension, as `Tensor.chunk` cuts: parts of ceil(size / ranks), the last ones smaller or empty."""

    dim: int

    def rows(self, size, ranks, rank):
        """(begin, end) of a rank's part of a dimension."""
        part = -(-size // ranks)
        return min(rank * part, size), min((rank + 1) * part, size)

    @staticmethod
    def local_shard_size_and_offset(curr_local_size, num_chunks, rank):
        """(length, begin) of a rank's part of a dimension of that size."""
        begin, end = Shard(0).rows(curr_local_size, num_chunks, rank)
        return end - begin, begin


@dataclasses.dataclass(frozen=True)
class Replicate(Placement):
    """The same everywhere."""


@dataclasses.dataclass(frozen=True)
class Partial(Placement):
    """Each rank has a summand (or what `reduce_op` says)."""

    reduce_op: str = "sum"


class _StridedShard(Shard):
    """A shard of a shard; none is made."""
