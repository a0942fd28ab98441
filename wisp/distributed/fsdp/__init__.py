"""Sharded data parallelism: the names of it, which raise an error where they are used."""
import enum

from wisp.nn import Module as _Module

_TEXT = "Wisp does not cut models over processes so far: use nn.parallel.DistributedDataParallel, which keeps the whole model in each"


class FullyShardedDataParallel(_Module):
    """Not available: raises NotImplementedError."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"FullyShardedDataParallel: {_TEXT}")


class FSDPModule:
    """No module is one."""


def fully_shard(*args, **kwargs):
    """Not available: raises NotImplementedError."""
    raise NotImplementedError(f"fully_shard: {_TEXT}")


class ShardingStrategy(enum.Enum):
    """How parameters would be cut."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD = 1, 2, 3, 4


class BackwardPrefetch(enum.Enum):
    """When the next parameters would be fetched."""

    BACKWARD_PRE, BACKWARD_POST = 1, 2


class StateDictType(enum.Enum):
    """The form of a state_dict."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = 1, 2, 3


class _Options:
    def __init__(self, *args, **options):
        self.__dict__.update(options)


class MixedPrecision(_Options):
    """Settings."""


class CPUOffload(_Options):
    """Settings."""


class FullStateDictConfig(_Options):
    """Settings."""
