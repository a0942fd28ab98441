"""Finds the places of a graph that do what a pattern graph does."""

import dataclasses
import itertools

import wisp
from wisp.fx.node import Node
from wisp.fx.operator_schemas import normalize_function
from wisp.fx.passes.utils.fuser_utils import validate_partition

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclasses.dataclass
class InternalMatch:
    """A place: `nodes_map` says what stands for each node of the pattern."""

    anchors: list
    nodes_map: dict = dataclasses.field(default_factory=dict)
    placeholder_nodes: list = dataclasses.field(default_factory=list)
    returning_nodes: list = dataclasses.field(default_factory=list)
    name_node_map: dict = dataclasses.field(default_factory=dict)


def _full_arguments(node):
    """The arguments of an operator's call by name, with those that were left out."""
    if node.op != "call_function" or not hasattr(node.target, "overloadpacket"):
        return None
    try:
        found = normalize_function(node.target, node.args, node.kwargs, normalize_to_only_use_kwargs=True)
    except RuntimeError:  # one of several forms
        return None
    return found and found.kwargs


def _attribute(node):
    owner = node.graph.owning_module
    for part in node.target.split("."):
        owner = getattr(owner, part)
    return owner


class SubgraphMatcher:
    """Looks for the graph `pattern`. Inner steps of a place are used inside of it only; places do not overlap unless told.

    >>> pattern = wisp.fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(x))).graph
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(x)) + 1)
    >>> len(SubgraphMatcher(pattern).match(traced.graph))
    1
    """

    def __init__(self, pattern, match_output=False, match_placeholder=False, remove_overlapping_matches=True, ignore_literals=False):
        self.pattern, self.match_output, self.match_placeholder = pattern, match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        output = pattern.output_node()
        self.pattern_returning_nodes = output.all_input_nodes
        if match_output:
            self.pattern_anchors = [output]
        else:
            self.pattern_anchors = [n for n in self.pattern_returning_nodes if len(n.users) == 1]

    def _same_target(self, pattern, found):
        if pattern.op == "placeholder" and not self.match_placeholder:
            return True
        if pattern.op != found.op:
            return False
        if pattern.op in ("placeholder", "output"):
            return True
        if pattern.op == "get_attr" and None not in (pattern.graph.owning_module, found.graph.owning_module):
            left, right = _attribute(pattern), _attribute(found)
            return isinstance(right, wisp.Tensor) if isinstance(left, wisp.Tensor) else type(left) is type(right) and left == right
        return pattern.target == found.target

    def _same(self, pattern, found, known):
        """Whether a value of the graph is what the pattern says; fills `known` with what stands for the pattern's nodes."""
        if isinstance(pattern, Node):
            return self._same_node(pattern, found, known)
        if self._same_size(pattern, found):
            return True
        if isinstance(pattern, (tuple, list)):
            alike = isinstance(found, (tuple, list)) and len(pattern) == len(found)
            return alike and all(self._same(a, b, known) for a, b in zip(pattern, found))
        if isinstance(pattern, dict):
            alike = isinstance(found, dict) and list(pattern) == list(found)
            return alike and all(self._same(pattern[key], found[key], known) for key in pattern)
        if isinstance(pattern, slice):
            parts = ((pattern.start, found.start), (pattern.stop, found.stop), (pattern.step, found.step)) if type(found) is slice else None
            return parts is not None and all(self._same(a, b, known) for a, b in parts)
        return not isinstance(found, Node) and (self.ignore_literals or (type(pattern) is type(found) and pattern == found))

    def _same_size(self, pattern, found):
        """Whether a number and a list of it stand for the same: the sizes of windows."""
        number, listed = (pattern, found) if isinstance(pattern, int) else (found, pattern)
        return type(number) is int and isinstance(listed, (list, tuple)) and len(listed) > 0 and all(item == number for item in listed)

    def _same_node(self, pattern, found, known):
        if pattern in known:
            return known[pattern] is found or (not isinstance(found, Node) and known[pattern] == found)
        if not isinstance(found, Node):
            if pattern.op != "placeholder" or self.match_placeholder:
                return False
            known[pattern] = found
            return True
        if any(found is other for node, other in known.items() if node.op != "placeholder" and pattern.op != "placeholder"):
            return False
        if not self._same_target(pattern, found):
            return False
        known[pattern] = found
        if pattern.op == "placeholder":
            return True
        left, right = _full_arguments(pattern), _full_arguments(found)
        if left is not None and right is not None:
            return left.keys() == right.keys() and all(self._same(left[name], right[name], known) for name in left)
        alike = len(pattern.args) == len(found.args) and set(pattern.kwargs) == set(found.kwargs)
        return (
            alike
            and all(self._same(a, b, known) for a, b in zip(pattern.args, found.args))
            and all(self._same(pattern.kwargs[key], found.kwargs[key], known) for key in pattern.kwargs)
        )

    def _closed(self, known):
        """Whether steps inside are used inside alone."""
        free = {*self.pattern_returning_nodes, *self.pattern_placeholder_nodes}
        inner = {found for found in known.values() if isinstance(found, Node)}
        return all(user in inner for node, found in known.items() if node not in free and node.op != "output" for user in found.users)

    def match(self, graph, node_name_match=""):
        """The places, in the graph's order."""
        candidates = [[node for node in graph.nodes if self._same_target(anchor, node)] for anchor in self.pattern_anchors]
        matches, taken = [], set()
        for anchors in itertools.product(*candidates):
            known = {}
            if not all(self._same(pattern, found, known) for pattern, found in zip(self.pattern_anchors, anchors)):
                continue
            if not self._closed(known):
                continue
            inner = {found for node, found in known.items() if node.op not in ("placeholder", "output", "get_attr")}
            if not validate_partition(inner):  # what it takes in comes from what it gives out: nothing could stand in its place
                continue
            if node_name_match and not any(node_name_match in node.name for node in inner):
                continue
            if self.remove_overlapping_matches and inner & taken:
                continue
            taken |= inner
            placeholders = [known[node] for node in self.pattern_placeholder_nodes if node in known]
            returned = [known[node] for node in self.pattern_returning_nodes if node in known]
            matches.append(InternalMatch(list(anchors), known, placeholders, returned))
        return matches
