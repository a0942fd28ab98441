"""Finds a pattern of steps in a graph and puts other steps in its place."""

import copy
from collections import namedtuple

from wisp import nn
from wisp.fx._symbolic_trace import symbolic_trace
from wisp.fx.graph import Graph
from wisp.fx.node import Node

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Match = namedtuple("Match", ["anchor", "nodes_map"])
ReplacedPatterns = namedtuple("ReplacedPatterns", ["anchor", "nodes_map", "replacements"])


def _graph_of(pattern):
    return pattern if isinstance(pattern, Graph) else getattr(pattern, "graph", None) or symbolic_trace(pattern).graph


def _take_attributes(gm, other):
    """Modules and tensors that the new steps name come from the replacement, and those that no step names go."""
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            *owners, name = node.target.split(".")
            here, there = gm, other
            for owner in owners:
                there = getattr(there, owner, None)
                if not hasattr(here, owner):
                    here.add_module(owner, nn.Module())
                here = getattr(here, owner)
            if not hasattr(here, name) and hasattr(there, name):
                setattr(here, name, copy.deepcopy(getattr(there, name)))
    gm.delete_all_unused_submodules()


def replace_pattern(gm, pattern, replacement):
    """Replace what does the same as `pattern` (a function or module) by `replacement`; returns the places.

    >>> import wisp.fx
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x) * 2)
    >>> len(wisp.fx.replace_pattern(traced, lambda x: wisp.relu(x), lambda x: wisp.neg(x)))
    1
    >>> traced(wisp.ones(1))
    tensor([-2.])
    """
    return [Match(found.anchor, found.nodes_map) for found in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm, pattern, replacement=None, match_filters=None, ignore_literals=False, replacement_callback=None, node_name_match=""
):
    """As `replace_pattern`, where all `match_filters(match, graph, pattern_graph)` agree; literals of the pattern may be any.

    `replacement_callback(match, graph, pattern_graph)` makes the graph that replaces one place.

    >>> import wisp.fx
    >>> traced = wisp.fx.symbolic_trace(lambda x: (x + 1) * (x + 2))
    >>> only_two = lambda match, graph, pattern: 2 in match.anchors[0].args
    >>> len(replace_pattern_with_filters(traced, lambda x, y: x + y, lambda x, y: x - y, [only_two]))
    1
    >>> traced(wisp.ones(1))
    tensor([-2.])
    """
    from wisp.fx.passes.utils.matcher_utils import SubgraphMatcher

    if (replacement is None) == (replacement_callback is None):
        raise AssertionError("replace_pattern_with_filters: give either a replacement or a replacement_callback")
    graph, pattern_graph = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(pattern_graph, remove_overlapping_matches=True, ignore_literals=ignore_literals)
    fixed = None if replacement is None else _graph_of(replacement)
    matches = [
        match
        for match in matcher.match(graph, node_name_match)
        if all(agrees(match, graph, pattern_graph) for agrees in match_filters or ())
    ]
    changed, replaced = {}, []  # what stands for steps that earlier replacements took away
    for match in matches:
        other = fixed or _graph_of(replacement_callback(match, graph, pattern_graph))
        inputs = [node for node in other.nodes if node.op == "placeholder"]
        if len(inputs) != len(match.placeholder_nodes):
            raise AssertionError(
                f"the pattern has {len(match.placeholder_nodes)} inputs and its replacement {len(inputs)}: they must be the same"
            )
        values = {}
        for new, old in zip(inputs, match.placeholder_nodes):
            while isinstance(old, Node) and old in changed:
                old = changed[old]
            values[new] = old
        given = dict(values)
        inner = {found for node, found in match.nodes_map.items() if node.op not in ("placeholder", "output")}
        order = {node: i for i, node in enumerate(graph.nodes)}
        users = [user for node in match.returning_nodes for user in node.users if user not in inner]
        if users:
            place = graph.inserting_before(min(users, key=order.__getitem__))
        else:
            place = graph.inserting_after(max(inner, key=order.__getitem__))
        with place:
            result = graph.graph_copy(other, values)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(results) != len(match.returning_nodes):
            raise AssertionError(
                f"the pattern has {len(match.returning_nodes)} results and its replacement {len(results)}: they must be the same"
            )
        for old, new in zip(match.returning_nodes, results):
            old.replace_all_uses_with(new)
            changed[old] = new
        for old in reversed([node for node in graph.nodes if node in inner]):
            if not old.users:
                graph.erase_node(old)
        made = [node for new, node in values.items() if new not in given]
        replaced.append(ReplacedPatterns(match.anchors[0], match.nodes_map, made))
    gm.recompile()
    if isinstance(replacement, nn.Module):
        _take_attributes(gm, replacement)
    return replaced
