"""`scan` by PyTorch's path."""

from wisp._higher_order_ops.loops import scan

__all__ = ["scan"]
