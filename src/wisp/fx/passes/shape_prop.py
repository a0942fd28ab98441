"""Notes the shape and dtype of every step's result."""

from typing import NamedTuple

import wisp
from wisp.fx.interpreter import Interpreter
from wisp.fx.node import map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a step's result."""

    shape: tuple
    dtype: object
    requires_grad: bool
    stride: tuple
    memory_format: object
    is_quantized: bool
    qparams: dict


def _extract_tensor_metadata(t):
    if not isinstance(t, wisp.Tensor):
        return t
    formats = (wisp.contiguous_format, *{4: (wisp.channels_last,), 5: (wisp.channels_last_3d,)}.get(t.dim(), ()))
    found = next((kind for kind in formats if t.is_contiguous(memory_format=kind)), None)
    return TensorMetadata(t.shape, t.dtype, t.requires_grad, t.stride(), found, False, {})


class ShapeProp(Interpreter):
    """Runs a graph on example inputs and leaves `node.meta["tensor_meta"]` and `node.meta["type"]`.

    >>> import wisp.fx
    >>> from wisp.fx.passes.shape_prop import ShapeProp
    >>> traced = wisp.fx.symbolic_trace(wisp.nn.Sequential(wisp.nn.Linear(2, 3)))
    >>> _ = ShapeProp(traced).propagate(wisp.ones(4, 2))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
    [(4, 2), (4, 3), (4, 3)]
    """

    def __init__(self, gm, fake_mode=None):
        super().__init__(gm)

    def run_node(self, n):
        """Run the step and note its result."""
        result = super().run_node(n)
        meta = map_aggregate(result, _extract_tensor_metadata)
        if isinstance(result, (wisp.Tensor, tuple, list)):
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args):
        """Run the graph."""
        return super().run(*args)
