"""`torch.distributed` by its inner module."""

from pickle import Pickler as _pickler  # noqa: F401 (libraries write their messages with them)
from pickle import Unpickler as _unpickler  # noqa: F401


def is_xccl_available():
    """False: collectives are MPI's."""
    return False


def _get_default_group():
    import wisp.distributed as distributed

    if not distributed.is_initialized():
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return distributed.group.WORLD


def _get_global_rank(group, rank):
    import wisp.distributed as distributed

    return distributed.get_global_rank(group, rank)


def _rank_not_in_group(group):
    import wisp.distributed as distributed

    return group is not None and distributed.get_rank(group) < 0


def __getattr__(name):
    import wisp.distributed as distributed

    if name == "_pg_map":  # the groups there are, with backend and store
        return {group: (group.name(), None) for group in distributed._groups.live}
    return getattr(distributed, name)


def _resolve_process_group(group_name):
    """The group of a name: the one of all ranks, unless a group is given itself."""
    return group_name if not isinstance(group_name, str) else _get_default_group()
