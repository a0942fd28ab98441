"""The older names of `wisp.amp`, with the device fixed to CUDA."""

import functools as _functools
import warnings as _warnings

from wisp import amp as _amp

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = _functools.partial(_amp.custom_fwd, device_type="cuda")
custom_bwd = _functools.partial(_amp.custom_bwd, device_type="cuda")


class autocast(_amp.autocast):
    """`wisp.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_amp.GradScaler):
    """`wisp.amp.GradScaler("cuda", ...)`."""

    def __init__(self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        _warnings.warn(
            "`torch.cuda.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cuda', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
