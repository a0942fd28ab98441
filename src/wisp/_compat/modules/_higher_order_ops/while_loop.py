"""`while_loop` by PyTorch's path."""

from wisp._higher_order_ops.loops import while_loop

__all__ = ["while_loop"]
