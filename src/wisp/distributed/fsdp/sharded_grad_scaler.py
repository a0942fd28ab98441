"""The scaler of FullyShardedDataParallel."""

from wisp.amp import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """`wisp.amp.GradScaler`, which by itself lets all ranks skip a step when one of them finds an infinity in its parts.

    >>> from wisp.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    >>> ShardedGradScaler("cpu", init_scale=4.0).get_scale()
    4.0
    """

    def __init__(
        self,
        device="cuda",
        init_scale=2.0**16,
        backoff_factor=0.5,
        growth_factor=2.0,
        growth_interval=2000,
        enabled=True,
        process_group=None,
    ):
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
