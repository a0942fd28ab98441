"""Types of the steps that take an item of a value whose type is known."""

import operator
import typing

__all__ = ["annotate_getitem_nodes"]


def annotate_getitem_nodes(graph):
    """Give items of lists, tuples and named tuples the types that those are annotated with.

    >>> graph = wisp.fx.Graph()
    >>> item = graph.call_function(operator.getitem, (graph.placeholder("x", tuple[int, str]), 1))
    >>> annotate_getitem_nodes(graph)
    >>> item.type
    <class 'str'>
    """
    for node in graph.nodes:
        if node.op == "call_function" and node.target is operator.getitem and getattr(node.args[0], "type", None):
            found = _item(node.args[0].type, node.args[1])
            node.type = node.type if found is None else found


def _item(kind, index):
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return inner[0]
    if origin is tuple:
        if len(inner) == 2 and inner[1] is Ellipsis:
            return inner[0]
        if index >= len(inner):
            raise AssertionError(f"annotate_getitem_nodes: there is no item {index} in {kind}")
        return inner[index]
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return typing.get_type_hints(kind).get(kind._fields[index])
    return None
