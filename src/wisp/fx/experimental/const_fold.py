"""What a graph computes from its module's attributes alone is computed once."""

import re

import wisp
from wisp import nn
from wisp.fx._symbolic_trace import symbolic_trace
from wisp.fx.graph import Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import map_arg

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A module whose constant part is in `const_subgraph_module`; its first call runs that, and keeps the results as parameters."""

    def __init__(self, root, graph, const_subgraph=None, fx_const_folded_attrs_name=None, device_for_folded_attrs="cpu"):
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name or []
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args, **kwargs):
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self):
        """Compute the constant part; done once."""
        if self.const_subgraph_module is None or self.has_folding_been_run:
            return
        self.has_folding_been_run = True
        for name, value in zip(self.fx_const_folded_attrs_name, self.const_subgraph_module()):
            if not isinstance(value, wisp.Tensor):
                value = wisp.tensor(value, device=self.device_for_folded_attrs)
            setattr(self, name, nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad))


def get_unique_attr_name_in_module(mod_traced, name):
    """The name as one that Python takes and that no attribute of the module has yet.

    >>> get_unique_attr_name_in_module(wisp.nn.Linear(1, 1), "weight"), get_unique_attr_name_in_module(wisp.nn.Linear(1, 1), "0.a")
    ('weight_1', '_0_a')
    """
    name = re.sub(r"\W+", "_", name)
    name = f"_{name}" if name[:1].isdigit() else name
    found, number = name, 0
    while hasattr(mod_traced, found):
        number += 1
        found = f"{name}_{number}"
    return found


def _impure(node, module):
    inner = module.get_submodule(node.target) if node.op == "call_module" else None
    return node.is_impure() or (isinstance(inner, GraphModule) and any(_changes(n, inner) for n in inner.graph.nodes))


def _changes(node, module):
    return node.op not in ("placeholder", "output") and _impure(node, module)


def split_const_subgraphs(module, skip_folding_node_fn=None, device_for_folded_attrs="cpu"):
    """The module with the steps that need no input taken out and computed once; `skip_folding_node_fn(node)` keeps a step.

    >>> class Scaled(wisp.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = wisp.nn.Parameter(wisp.ones(2))
    ...     def forward(self, x):
    ...         return x * self.weight.exp().sum()
    >>> [node.op for node in split_const_subgraphs(Scaled()).graph.nodes]
    ['placeholder', 'get_attr', 'call_function', 'output']
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = set()
    for node in traced.graph.nodes:
        known = all(used in constant for used in node.all_input_nodes)
        kept = skip_folding_node_fn is not None and skip_folding_node_fn(node)
        if known and not kept and node.op not in ("placeholder", "output") and not _impure(node, traced):
            constant.add(node)
    if all(node.op == "get_attr" for node in constant):
        return FoldedGraphModule(traced, traced.graph, device_for_folded_attrs=device_for_folded_attrs)
    first, rest, inside, outside, results, names = Graph(), Graph(), {}, {}, [], []
    rest.set_codegen(traced.graph._codegen)
    folded = [n for n in traced.graph.nodes if n in constant and n.op != "get_attr" and any(user not in constant for user in n.users)]
    for node in traced.graph.nodes:
        if node in constant:
            inside[node] = first.node_copy(node, inside.__getitem__)
        if node in folded:
            name = "_FX_CONST_FOLDED_ATTRS" + (f"_{len(names)}" if len(folded) > 1 else "")
            while hasattr(traced, name):
                name += "_"
            outside[node] = rest.create_node("get_attr", name)
            outside[node].meta = dict(node.meta)
            results.append(inside[node])
            names.append(name)
        elif node.op == "output":
            rest.output(map_arg(node.args[0], outside.__getitem__), node.type).meta = dict(node.meta)
        elif node not in constant or any(user not in constant for user in node.users):
            outside[node] = rest.node_copy(node, outside.__getitem__)
    first.output(tuple(results))
    root = nn.Module()
    root.__dict__.update(traced._attributes())
    root._parameters, root._modules = dict(traced._parameters), dict(traced._modules)
    for name in names:  # filled by run_folding
        root._parameters[name] = None
    return FoldedGraphModule(root, rest, first, names, device_for_folded_attrs)
