"""`fully_shard` by its older path."""


def __getattr__(name):
    import wisp.distributed.fsdp as fsdp

    return getattr(fsdp, name)
