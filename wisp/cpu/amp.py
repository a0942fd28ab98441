"""The older name of `wisp.amp.autocast("cpu")`."""
import wisp
from wisp import amp as _amp

__all__ = ["autocast"]


class autocast(_amp.autocast):
    """`wisp.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cpu", dtype=dtype or wisp.bfloat16, enabled=enabled, cache_enabled=cache_enabled)
