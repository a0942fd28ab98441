"""The older names of `wisp.amp`, with the device fixed to the CPU."""

import warnings as _warnings

import wisp
from wisp import amp as _amp

__all__ = ["GradScaler", "autocast"]


class autocast(_amp.autocast):
    """`wisp.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        _warnings.warn(
            "`torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", dtype=dtype or wisp.bfloat16, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_amp.GradScaler):
    """`wisp.amp.GradScaler("cpu", ...)`."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        _warnings.warn(
            "`torch.cpu.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cpu', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
