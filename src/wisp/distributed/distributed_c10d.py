"""`torch.distributed` by its inner module."""


def is_xccl_available():
    """False: collectives are MPI's."""
    return False


def _get_default_group():
    import wisp.distributed as distributed

    if not distributed.is_initialized():
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return distributed.group.WORLD


def __getattr__(name):
    import wisp.distributed as distributed

    return getattr(distributed, name)
