"""The hook of powerSGD: here the plain average of all steps, which is what it comes close to."""

from wisp.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook


class PowerSGDState:
    """The settings of the hook."""

    def __init__(self, process_group, **options):
        self.process_group = process_group
        self.__dict__.update(options)


def powerSGD_hook(state, bucket):
    """The average over `state.process_group`, uncompressed."""
    return allreduce_hook(state.process_group, bucket)
