"""Autocast under the name of its module."""

from wisp.cuda.amp import autocast, custom_bwd, custom_fwd

__all__ = ["autocast", "custom_bwd", "custom_fwd"]
