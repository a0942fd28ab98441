"""`torch.fx`: write down what a module does as a graph of steps, change the graph, and run it as a module again."""

from wisp import _reference
from wisp.fx import graph, graph_module, immutable_collections, interpreter, node, proxy, subgraph_rewriter  # noqa: F401
from wisp.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from wisp.fx.graph import CodeGen, Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.interpreter import Interpreter, Transformer
from wisp.fx.node import Node, has_side_effect, map_arg
from wisp.fx.proxy import Proxy
from wisp.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "PH",
    "Proxy",
    "ProxyableClassMeta",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]

_reference.attach(__name__, globals())
