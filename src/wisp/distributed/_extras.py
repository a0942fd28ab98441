"""Less used names of `torch.distributed`: groups by enumeration, collectives over lists, what backends can do, debug levels."""

import contextlib
import enum
import os
import sys

from wisp.distributed import _groups, collectives
from wisp.distributed._work import DistError, Work
from wisp.distributed.collectives import ReduceOp

__all__ = """
    DebugLevel GroupName QueueEmptyError all_gather_coalesced all_gather_single all_reduce_coalesced breakpoint get_backend_config
    get_debug_level get_pg_count is_backend_available new_subgroups_by_enumeration record_comm reduce_scatter_single set_debug_level
    set_debug_level_from_env split_group supports_complex""".split()

GroupName = str


class QueueEmptyError(DistError):
    """A queue of messages without any."""


class DebugLevel(enum.Enum):
    """How much is checked and told; Wisp compares the calls of all ranks at any level."""

    OFF, INFO, DETAIL = 0, 1, 2


_level = DebugLevel.OFF


def get_debug_level():
    """The level that was set.

    >>> import wisp
    >>> wisp.distributed.get_debug_level().name
    'OFF'
    """
    return _level


def set_debug_level(level):
    """Set the level that `get_debug_level` tells."""
    global _level
    _level = DebugLevel(level)


def set_debug_level_from_env():
    """Set the level to what TORCH_DISTRIBUTED_DEBUG says: OFF, INFO or DETAIL."""
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise RuntimeError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, got {name!r}")
    set_debug_level(DebugLevel[name])


def is_backend_available(backend):
    """Whether a backend of this name can be used.

    >>> import wisp
    >>> wisp.distributed.is_backend_available("no such backend")
    False
    """
    check = getattr(_groups, f"is_{str(backend).lower()}_available", None)
    return bool(check()) if check is not None else False


def get_backend_config(group=None):
    """Which backend serves which devices, such as "cpu:mpi".

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> wisp.distributed.get_backend_config()
    'cpu:mpi'
    >>> wisp.distributed.destroy_process_group()
    """
    name = _groups.get_backend(group)
    return name if ":" in name else ",".join(f"{device}:{name}" for device in (["cuda"] if name == "nccl" else ["cpu"]))


def get_pg_count():
    """How many groups were made in this process."""
    return _groups._count


def supports_complex(reduceOp):
    """Whether complex numbers can be reduced so: they can be added and averaged.

    >>> import wisp
    >>> wisp.distributed.supports_complex(wisp.distributed.ReduceOp.MAX)
    False
    """
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    """Groups with the given ranks: (this rank's or None, all). All processes call it.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> mine, groups = wisp.distributed.new_subgroups_by_enumeration([[0]])
    >>> mine is groups[0], mine.size()
    (True, 1)
    >>> wisp.distributed.destroy_process_group()
    """
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(seen)) != len(seen):
        raise ValueError(f"new_subgroups_by_enumeration: a rank is in two groups: {ranks_per_subgroup_list}")
    groups = [_groups.new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    here = _groups.get_rank()
    return next((made for ranks, made in zip(ranks_per_subgroup_list, groups) if here in ranks), None), groups


def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None, backend=None):
    """The part of a group that this rank is in, or None: `split_ranks` lists the parts as numbers within the group.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> wisp.distributed.split_group(split_ranks=[[0]]).size()
    1
    >>> wisp.distributed.destroy_process_group()
    """
    if not split_ranks:
        raise ValueError("split_group: split_ranks cannot be None or empty")
    ranks = _groups.get_process_group_ranks(parent_pg)
    parts = [[ranks[number] for number in sorted(part)] for part in split_ranks]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)[0]


def all_gather_single(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all processes, one after the other, in one tensor."""
    return collectives.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


def reduce_scatter_single(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """This process's part of the reduction of all processes' tensors."""
    return collectives.reduce_scatter_tensor(output, input, op, group, async_op)


class _All:
    """Several operations as one."""

    def __init__(self, works):
        self.works = [work for work in works if work is not None]

    def wait(self, timeout=None):
        return all([work.wait() if timeout is None else work.wait(timeout) for work in self.works])

    def is_completed(self):
        return all(work.is_completed() for work in self.works)


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    """Each tensor of the list becomes the reduction of all processes' tensors.

    >>> import wisp
    >>> wisp.distributed.init_process_group("mpi", rank=0, world_size=1)
    >>> parts = [wisp.ones(2), wisp.ones(1)]
    >>> wisp.distributed.all_reduce_coalesced(parts)
    >>> wisp.distributed.destroy_process_group()
    """
    works = [collectives.all_reduce(tensor, op, group, async_op) for tensor in ([tensors] if hasattr(tensors, "shape") else tensors)]
    return _All(works) if async_op else None


class _coalescing_manager:
    """Collectives that PyTorch would join to one: here each begins when it is called, and all have ended at the end of the block, or
    after `wait` where `async_ops` is true."""

    def __init__(self, group=None, device=None, async_ops=False):
        self._works, self._later = [], async_ops

    def __enter__(self):
        self._before, Work._kept = Work._kept, self._works
        return self

    def __exit__(self, *exc_info):
        Work._kept = self._before
        if exc_info[0] is None and not self._later:
            self.wait()

    def wait(self):
        """Wait for what was begun in the block."""
        while self._works:
            self._works.pop(0).wait()


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    """The lists get the tensors of all processes: `output_tensor_lists[rank][i]` is tensor i of a rank."""
    for parts in output_tensor_lists:
        if len(parts) != len(input_tensor_list):
            raise ValueError(f"all_gather_coalesced: {len(input_tensor_list)} tensors, and a list of {len(parts)} for the results")
    works = [
        collectives.all_gather([parts[i] for parts in output_tensor_lists], tensor, group, async_op)
        for i, tensor in enumerate(input_tensor_list)
    ]
    return _All(works) if async_op else None


def record_comm(name):
    """A context whose collectives have a name of their own in the profiler."""
    from wisp.profiler import record_function

    return record_function(name) if name else contextlib.nullcontext()


_skipped = {}


def breakpoint(rank=0, skip=0, timeout_s=3600):
    """Stop in the debugger on one rank while the others wait; `skip` lets the first times pass."""
    import pdb

    place = sys._getframe(1).f_code, sys._getframe(1).f_lineno
    _skipped[place] = _skipped.get(place, 0) + 1
    if _skipped[place] <= skip:
        return
    if _groups.get_rank() == rank:
        pdb.Pdb().set_trace(sys._getframe(1))
    collectives.barrier()
