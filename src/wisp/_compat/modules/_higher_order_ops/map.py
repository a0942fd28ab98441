"""`map` by PyTorch's path."""

from wisp._higher_order_ops.loops import map

__all__ = ["map"]
