"""Types of steps whose functions and layers say what they return."""

import inspect

import wisp
from wisp.fx.interpreter import Transformer

__all__ = ["AnnotateTypesWithSchema"]


def _returned(function):
    """The type that a function says it returns, or None."""
    if hasattr(function, "_facts"):
        line = (function.__doc__ or "").partition("\n")[0]
        return wisp.Tensor if line.endswith("-> Tensor") else None
    try:
        found = inspect.signature(inspect.unwrap(function)).return_annotation
    except (TypeError, ValueError):
        return None
    return None if found in (inspect.Signature.empty, None) else found


class AnnotateTypesWithSchema(Transformer):
    """`AnnotateTypesWithSchema(module).transform()` notes the types that operators and functions return, those of layers and those of
    attributes, each unless its option is false.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x))
    >>> AnnotateTypesWithSchema(traced).transform().graph.nodes[1].type
    <class 'torch.Tensor'>
    """

    def __init__(self, module, annotate_functionals=True, annotate_modules=True, annotate_get_attrs=True):
        super().__init__(module)
        self.annotate_functionals, self.annotate_modules = annotate_functionals, annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    def _noted(self, made, kind):
        made.node.type = made.node.type or kind
        return made

    def call_function(self, target, args, kwargs):
        """The call, with its type."""
        made = super().call_function(target, args, kwargs)
        return (
            self._noted(made, _returned(target)) if self.annotate_functionals and getattr(target, "__module__", "") != "_operator" else made
        )

    def call_module(self, target, args, kwargs):
        """The call, with its type."""
        made = super().call_module(target, args, kwargs)
        return self._noted(made, _returned(self.fetch_attr(target).forward)) if self.annotate_modules else made

    def get_attr(self, target, args, kwargs):
        """The read, with its type."""
        made = super().get_attr(target, args, kwargs)
        return self._noted(made, type(self.fetch_attr(target))) if self.annotate_get_attrs else made
