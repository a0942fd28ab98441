"""Groups the steps of a graph by the function or layer that they come from."""

from dataclasses import dataclass, field
from typing import Any

from wisp.fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The steps of one call of `source`: what they take in without attributes, which of them others use, and their attributes."""

    nodes: list
    source: Any
    input_nodes: list = field(default_factory=list)
    output_nodes: list = field(default_factory=list)
    params: list = field(default_factory=list)


def _source(node, wanted):
    """The source of a step among those wanted, with a name of the call; or None."""
    stack = node.meta.get("source_fn_stack")
    if stack is not None:
        name, source = stack[-1]
        return (source, name) if source in wanted else None
    if node.meta.get("torch_fn") is not None:
        name, function = node.meta["torch_fn"]
        function = function.split(".")[1]
        if function in wanted:
            return function, name
    if node.op == "call_function" and node.meta.get("nn_module_stack"):
        name, layer = list(node.meta["nn_module_stack"].values())[-1]
        for source in wanted:
            if source == layer or (isinstance(source, type) and _is(layer, source)):
                return source, name
    return None


def _is(layer, source):
    from wisp.fx.passes.tools_common import get_acc_ops_name

    return issubclass(layer, source) if isinstance(layer, type) else layer == get_acc_ops_name(source)


def get_source_partitions(graph, wanted_sources, filter_fn=None):
    """The groups of steps by source: functions and classes of layers. A group for which `filter_fn` is false of a step is left out.

    Steps know their sources in graphs of `torch.export`, and in those of `symbolic_trace` the layers that were traced through.

    >>> class Inside(wisp.fx.Tracer):
    ...     def is_leaf_module(self, m, module_qualified_name):
    ...         return False
    >>> graph = Inside().trace(wisp.nn.Sequential(wisp.nn.Linear(2, 2), wisp.nn.ReLU()))
    >>> [part.nodes for part in get_source_partitions(graph, [wisp.nn.ReLU])[wisp.nn.ReLU]]
    [[relu]]
    """
    groups = {}
    for node in graph.nodes:
        found = _source(node, wanted_sources)
        if found is not None:
            groups.setdefault(found[0], {}).setdefault(found[1], []).append(node)
    result = {}
    for source, calls in groups.items():
        result[source] = [_partition(nodes, source) for nodes in calls.values() if filter_fn is None or all(map(filter_fn, nodes))]
    return result


def _partition(nodes, source):
    inside = set(nodes)
    taken = {arg: None for node in nodes for arg in node.args if isinstance(arg, Node) and arg not in inside and arg.op != "get_attr"}
    given = [node for node in nodes if node.op != "get_attr" and any(user not in inside for user in node.users)]
    return SourcePartition(nodes, source, list(taken), given, [node for node in nodes if node.op == "get_attr"])


def check_subgraphs_connected(subgraph1, subgraph2):
    """Whether a step of the second group uses one of the first."""
    return any(user in subgraph2.nodes for node in subgraph1.nodes for user in node.users)
