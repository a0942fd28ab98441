"""The hook of powerSGD; in a group of one process, the gradients as they are."""
from wisp.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook as powerSGD_hook  # noqa: F401


class PowerSGDState:
    """The settings of the hook."""

    def __init__(self, process_group, **options):
        self.process_group = process_group
        self.__dict__.update(options)
