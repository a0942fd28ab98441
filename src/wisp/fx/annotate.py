"""Types of traced values, said while a program is traced."""

from wisp.fx.proxy import Proxy

__all__ = ["annotate"]


def annotate(val, type):
    """Say what type a value has: the step that makes it is told. Outside of tracing nothing happens.

    >>> annotate(3, int)
    3
    """
    if isinstance(val, Proxy):
        if val.node.type:
            raise RuntimeError(f"Tried to annotate a value that already had a type on it! Existing type is {val.node.type}, new is {type}.")
        val.node.type = type
    return val
