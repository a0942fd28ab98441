"""`cond` under the path and the inner name that PyTorch has for it."""

from wisp._higher_order_ops.loops import cond

cond_op = cond
