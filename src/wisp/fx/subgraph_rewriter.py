"""Finds a pattern of steps in a graph and puts other steps in its place."""

from collections import namedtuple

from wisp.fx._symbolic_trace import symbolic_trace
from wisp.fx.graph import Graph
from wisp.fx.node import Node

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Match = namedtuple("Match", ["anchor", "nodes_map"])
ReplacedPatterns = namedtuple("ReplacedPatterns", ["anchor", "nodes_map", "replacements"])


def _graph_of(pattern):
    return pattern if isinstance(pattern, Graph) else getattr(pattern, "graph", None) or symbolic_trace(pattern).graph


def _same(pattern, found, known):
    """Whether a value of the graph is what the pattern says; fills `known` with what stands for the pattern's nodes."""
    if isinstance(pattern, Node):
        if pattern in known:
            return known[pattern] is found or (not isinstance(found, Node) and known[pattern] == found)
        if pattern.op == "placeholder":
            known[pattern] = found
            return True
        if not isinstance(found, Node) or found.op != pattern.op or found.target != pattern.target:
            return False
        known[pattern] = found
        return (
            len(pattern.args) == len(found.args)
            and set(pattern.kwargs) == set(found.kwargs)
            and all(_same(a, b, known) for a, b in zip(pattern.args, found.args))
            and all(_same(pattern.kwargs[key], found.kwargs[key], known) for key in pattern.kwargs)
        )
    if isinstance(pattern, (tuple, list)):
        return isinstance(found, (tuple, list)) and len(pattern) == len(found) and all(_same(a, b, known) for a, b in zip(pattern, found))
    return type(pattern) is type(found) and pattern == found


def replace_pattern(gm, pattern, replacement):
    """Replace what does the same as `pattern` (a function or module) by `replacement`; returns the places.

    >>> import wisp.fx
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x) * 2)
    >>> len(wisp.fx.replace_pattern(traced, lambda x: wisp.relu(x), lambda x: wisp.neg(x)))
    1
    >>> traced(wisp.ones(1))
    tensor([-2.])
    """
    graph, pattern, other = gm.graph, _graph_of(pattern), _graph_of(replacement)
    anchor = pattern.output_node().args[0]
    inputs = [node for node in pattern.nodes if node.op == "placeholder"]
    new_inputs = [node for node in other.nodes if node.op == "placeholder"]
    matches, taken = [], set()
    for node in list(graph.nodes):
        known = {}
        if node in taken or not _same(anchor, node, known):
            continue
        inner = {known[n] for n in pattern.nodes if n.op not in ("placeholder", "output") and n in known}
        if inner & taken or any(user not in inner for n in inner if n is not node for user in n.users):
            continue
        taken |= inner
        matches.append((node, known, inner))
    for node, known, inner in matches:
        values = {new: known[old] for new, old in zip(new_inputs, inputs) if old in known}
        with graph.inserting_before(node):
            result = graph.graph_copy(other, values)
        node.replace_all_uses_with(result, lambda user, made=set(values.values()), inner=inner: user not in made or user in inner)
        for old in reversed([n for n in graph.nodes if n in inner]):
            if not old.users:
                graph.erase_node(old)
    gm.recompile()
    return [Match(node, known) for node, known, _ in matches]


def replace_pattern_with_filters(gm, pattern, replacement, match_filters=None, ignore_literals=False):
    """As `replace_pattern`; filters are not supported."""
    if match_filters:
        raise NotImplementedError("replace_pattern_with_filters: match_filters are not supported; change the graph's nodes instead")
    return [ReplacedPatterns(match.anchor, match.nodes_map, []) for match in replace_pattern(gm, pattern, replacement)]
