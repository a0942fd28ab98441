"""Parts of a graph as modules of their own."""

from wisp import nn
from wisp.fx.graph_module import GraphModule

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(nn.Module):
    """A module that holds others, and does nothing."""

    def __init__(self, d):
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(gm, subgraph, comp_name="", class_name="GraphModule"):
    """A module of a graph whose steps were copied from the one of `gm`, and where each attribute that it uses is now.

    >>> traced = wisp.fx.symbolic_trace(wisp.nn.Sequential(wisp.nn.ReLU(), wisp.nn.Tanh()))
    >>> graph = wisp.fx.Graph()
    >>> _ = graph.output(graph.call_module("1", (graph.placeholder("x"),)))
    >>> lift_subgraph_as_module(traced, graph, "part")[1]
    {'1': 'part.1'}
    """
    places = {node.target: f"{comp_name}.{node.target}" for node in subgraph.nodes if node.op in ("call_module", "get_attr")}
    training = gm.training
    made = GraphModule(gm, subgraph, class_name)  # takes what the steps name
    made.training, made.meta = training, {}
    return made, places


def compare_graphs(left, right):
    """Whether two graphs have the same inputs, steps and outputs.

    >>> first, second = (wisp.fx.symbolic_trace(lambda x: x + 1).graph for _ in range(2))
    >>> compare_graphs(first, second)
    True
    """
    from wisp.fx.passes.utils.matcher_utils import SubgraphMatcher

    return bool(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right))
