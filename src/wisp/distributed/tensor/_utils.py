"""Which part of a tensor a process holds."""

from wisp.distributed.tensor.placement_types import Shard


def compute_local_shape_and_global_offset(global_shape, mesh, placements):
    """The shape of this process's part, and where it begins in the whole."""
    shape, offset = list(global_shape), [0] * len(global_shape)
    for axis, placement in enumerate(placements):
        if isinstance(placement, Shard):
            begin, end = placement.rows(shape[placement.dim], mesh.size(axis), mesh.get_local_rank(axis))
            offset[placement.dim] += begin
            shape[placement.dim] = end - begin
    return tuple(shape), tuple(offset)
