"""Patterns whose last result is a dictionary that names some of their steps."""

from wisp.fx.graph_module import GraphModule
from wisp.fx.node import Node
from wisp.fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm):
    """The module without its last result, and that result: names of nodes."""
    output = gm.graph.output_node()
    results = output.args[0]
    names = results[-1] if isinstance(results, (tuple, list)) and results else results
    if not isinstance(names, dict) or not all(isinstance(value, Node) for value in names.values()):
        raise RuntimeError(f"expected the last result of the pattern to be a dictionary of named values, got {results}")
    names = dict(names)
    output.args = (tuple(results[:-1]) if len(results) != 2 else results[0],)
    gm.recompile()
    return gm, names


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """As `SubgraphMatcher`; matches have a `name_node_map` from the names of the pattern's last result to nodes.

    >>> pattern = wisp.fx.symbolic_trace(lambda x: (wisp.relu(x), {"input": x}))
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x + 1))
    >>> SubgraphMatcherWithNameNodeMap(pattern).match(traced.graph)[0].name_node_map
    {'input': add}
    """

    def __init__(self, pattern_gm, match_output=False, match_placeholder=False, remove_overlapping_matches=True, ignore_literals=False):
        copied = GraphModule(pattern_gm, pattern_gm.graph.__deepcopy__())
        copied, self.name_node_map = _split_to_graph_and_name_node_map(copied)
        super().__init__(copied.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph, node_name_match=""):
        """The places, with their named nodes."""
        found = super().match(graph, node_name_match)
        for one in found:
            one.name_node_map = {name: one.nodes_map[node] for name, node in self.name_node_map.items()}
        return found
