"""Matrix products with the same right side as one product."""

import itertools
import operator

import wisp
from wisp.fx._symbolic_trace import symbolic_trace
from wisp.fx.passes.tools_common import legalize_graph

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(result, inputs):
    """The rows of a product by the tensors that were put together for it."""
    return wisp.split(result, [x.shape[0] for x in inputs])


def may_depend_on(a, b, search_depth=6):
    """Whether a step uses another, or one that does; further up than `search_depth` steps it is taken to."""
    if a is b or search_depth == 0:
        return True
    return any(may_depend_on(used, b, search_depth - 1) for used in a.all_input_nodes)


def are_nodes_independent(nodes):
    """Whether none of the steps uses another."""
    return not any(may_depend_on(a, b) or may_depend_on(b, a) for a, b in itertools.combinations(nodes, 2))


def merge_matmul(in_mod):
    """The module traced, with the calls of `torch.matmul` by one right side as a single one of their left sides, row below row.

    >>> class Twice(wisp.nn.Module):
    ...     def forward(self, x, y, z):
    ...         return wisp.matmul(x, z), wisp.matmul(y, z)
    >>> len(merge_matmul(Twice()).graph.find_nodes(op="call_function", target=wisp.matmul))
    1
    """
    gm, by_right = symbolic_trace(in_mod), {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is wisp.matmul and len(node.args) == 2:
            right = node.args[1]
            by_right.setdefault(right.target if right.op == "get_attr" else right, []).append(node)
    for products in by_right.values():
        if len(products) < 2 or not are_nodes_independent(products):
            continue
        left, right = [node.args[0] for node in products], products[0].args[1]
        joined = gm.graph.call_function(wisp.cat, (left,))
        parts = gm.graph.call_function(split_result_tensors, (gm.graph.call_function(wisp.matmul, (joined, right)), left))
        for i, node in enumerate(products):
            node.replace_all_uses_with(gm.graph.call_function(operator.getitem, (parts, i)))
            gm.graph.erase_node(node)
        legalize_graph(gm)  # what was added stands at the end
    gm.recompile()
    gm.graph.lint()
    return gm
