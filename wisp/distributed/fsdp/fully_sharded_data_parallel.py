"""The longer name of `wisp.distributed.fsdp`."""
from wisp.distributed.fsdp import *  # noqa: F403
