"""Models cut over processes: `fully_shard`, and the older wrapper `FullyShardedDataParallel`."""

from wisp import _reference
from wisp.distributed.fsdp import _fully_shard, fully_sharded_data_parallel, wrap  # noqa: F401
from wisp.distributed.fsdp._fully_shard import *  # noqa: F403
from wisp.distributed.fsdp._policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from wisp.distributed.fsdp.fully_sharded_data_parallel import *  # noqa: F403

__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy"]
__all__ += _fully_shard.__all__
__all__ += fully_sharded_data_parallel.__all__

_reference.attach(__name__, globals())
