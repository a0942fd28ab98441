"""Control flow as functions: `cond`, `while_loop`, `scan`, `associative_scan` and `map`, which run as Python here."""

from wisp._higher_order_ops.associative_scan import associative_scan
from wisp._higher_order_ops.cond import cond  # the function hides the module of its name, as in PyTorch
from wisp._higher_order_ops.map import map
from wisp._higher_order_ops.scan import scan
from wisp._higher_order_ops.while_loop import while_loop

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
