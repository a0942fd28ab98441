"""`torch.fx`: Wisp traces no graphs. What libraries touch at import is here; what would need a graph says so."""

__all__ = ["Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "symbolic_trace", "wrap"]
_TEXT = "Wisp has no symbolic tracing: change the model in Python, or use module hooks (register_forward_hook)"


def wrap(fn_or_name):
    """The function as it is; a name is remembered nowhere.

    >>> import wisp
    >>> wisp.fx.wrap(abs) is abs
    True
    """
    return fn_or_name


def symbolic_trace(root, concrete_args=None):
    """Not available: raises NotImplementedError with what to do instead."""
    raise NotImplementedError(f"fx.symbolic_trace: {_TEXT}")


class _NoGraph:
    """A class that exists for `isinstance` and subclassing, and cannot be made."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(f"fx.{type(self).__name__}: {_TEXT}")


class Graph(_NoGraph):
    """No graphs are made."""


class GraphModule(_NoGraph):
    """No graphs are made."""


class Node(_NoGraph):
    """No graphs are made."""


class Proxy(_NoGraph):
    """No graphs are made."""


class Tracer(_NoGraph):
    """No graphs are made."""


class Interpreter(_NoGraph):
    """No graphs are made."""


class Transformer(_NoGraph):
    """No graphs are made."""
