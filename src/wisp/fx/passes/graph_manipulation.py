"""Small changes of graphs, and the bytes that their steps need."""

import math
from typing import NamedTuple

from wisp.fx.passes.shape_prop import ShapeProp

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


def replace_target_nodes_with(fx_module, old_op, old_target, new_op, new_target):
    """Let every step of one op and target have another; call `recompile` afterwards.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x))
    >>> replace_target_nodes_with(traced, "call_function", wisp.relu, "call_function", wisp.neg)
    >>> traced(wisp.ones(1))
    tensor([-1.])
    """
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            node.op, node.target = new_op, new_target
    fx_module.recompile()


class size_bytes(NamedTuple):
    """The bytes of a step's result, and with those of the parameters of the module that it calls."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module, args=None):
    """Set `size_bytes` on every step; `args` are example inputs, without which `ShapeProp` must have run."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op != "output":
            node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node):
    """What `ShapeProp` noted of a step's result."""
    known = node.meta.get("tensor_meta")
    if not known:
        raise RuntimeError(f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run.")
    return known


def get_size_of_node(fx_module, node):
    """The bytes of a step.

    >>> traced = wisp.fx.symbolic_trace(wisp.nn.Sequential(wisp.nn.Linear(2, 3)))
    >>> get_size_of_all_nodes(traced, [wisp.ones(1, 2)])
    >>> traced.graph.nodes[1].size_bytes
    size_bytes(output_size=12, total_size=48)
    """
    known = get_tensor_meta(node)
    made = math.prod(known.shape)
    held = sum(p.numel() for p in fx_module.get_submodule(node.target).parameters()) if node.op == "call_module" else 0
    return size_bytes(known.dtype.itemsize * made, known.dtype.itemsize * (made + held))
