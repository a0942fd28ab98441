"""Splits a graph into submodules by tags on its steps."""

import operator
from dataclasses import dataclass, field

from wisp import nn
from wisp.fx.graph import Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import map_arg
from wisp.fx.passes.tools_common import CALLABLE_NODE_OPS, is_node_output_tensor
from wisp.fx.passes.utils.common import lift_subgraph_as_module

__all__ = ["Component", "getattr_recursive", "move_non_tensor_nodes_on_boundary", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj, name):
    """The attribute at a dotted name, or None.

    >>> getattr_recursive(wisp.nn.Sequential(wisp.nn.Linear(2, 3)), "0.out_features")
    3
    """
    for part in name.split("."):
        obj = obj._modules.get(part) if isinstance(obj, nn.ModuleList) else getattr(obj, part, None)
        if obj is None:
            return None
    return obj


def setattr_recursive(obj, attr, value):
    """Set the attribute at a dotted name."""
    *owners, name = attr.split(".")
    for part in owners:
        obj = getattr(obj, part)
    setattr(obj, name, value)


@dataclass
class Component:
    """A part of a graph: `orig_inputs` are what it takes in and `orig_outputs` what others use of it, in the old graph."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list = field(default_factory=list)
    orig_inputs: list = field(default_factory=list)
    orig_outputs: list = field(default_factory=list)
    getattr_maps: dict = field(default_factory=dict)
    constructor_args: list = field(default_factory=list)
    gm: object = None

    def here(self, node, made):
        """What stands for a node of the old graph in this part; `made` are its own steps."""
        if node in made:
            return made[node]
        if node.op == "get_attr":
            if node not in self.getattr_maps:
                self.getattr_maps[node] = self.graph.get_attr(node.target, type_expr=node.type)
                self.getattr_maps[node].meta = dict(node.meta)
            return self.getattr_maps[node]
        if node not in self.orig_inputs:
            self.orig_inputs.append(node)
            self.input_placeholders.append(self.graph.placeholder(node.name, type_expr=node.type))
            self.input_placeholders[-1].meta = dict(node.meta)
        return self.input_placeholders[self.orig_inputs.index(node)]


def _fill(gm, tags):
    """The parts by tag, with all their steps, and where each step is."""
    parts = {tag: Component(Graph(), order, str(tag)) for order, tag in enumerate(tags)}
    made, home = {tag: {} for tag in tags}, {}
    for node in gm.graph.nodes:
        if node.op not in CALLABLE_NODE_OPS:
            continue
        if not hasattr(node, "tag"):
            raise AssertionError(f"Node does not have tag: {node.format_node()}")
        part = home[node] = parts[node.tag]
        for used in node.all_input_nodes:
            if used in home and home[used].order > part.order:
                raise AssertionError(f"split_by_tags: {node} of {part.name} uses {used} of {home[used].name}, which comes after it")
        mine = made[node.tag]
        mine[node] = part.graph.node_copy(node, lambda used, part=part, mine=mine: part.here(used, mine))
        mine[node].tag = node.tag
    return parts, made, home


def split_by_tags(gm, tags, return_fqn_mapping=False, return_tuple=False, GraphModuleCls=GraphModule):
    """A module with a submodule for each tag, in this order; every call of the graph must have one of them as its `tag`.

    With `return_fqn_mapping` also the new names of its modules and attributes by their old ones. With `return_tuple` submodules
    return a tuple even of one result.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x + 1))
    >>> for node, tag in zip(list(traced.graph.nodes)[1:3], ("first", "second")):
    ...     node.tag = tag
    >>> [name for name, _ in split_by_tags(traced, ["first", "second"]).named_children()]
    ['first', 'second']
    """
    parts, made, home = _fill(gm, tags)
    output = gm.graph.output_node()
    wanted = {node: None for part in parts.values() for node in part.orig_inputs}
    wanted.update(dict.fromkeys(output.all_input_nodes))
    for node in wanted:
        if node in home:
            home[node].orig_outputs.append(node)
    graph, values, names, attributes = Graph(), {}, {}, {}
    for node in gm.graph.nodes:
        if node.op == "placeholder" or (node.op == "get_attr" and node in output.all_input_nodes):
            values[node] = graph.node_copy(node)
            if node.op == "get_attr":
                attributes[node.target] = getattr_recursive(gm, node.target)
    for tag, part in parts.items():
        results = tuple(made[tag][node] for node in part.orig_outputs)
        single = len(results) == 1 and not return_tuple
        part.graph.output(results[0] if single else results)
        part.gm, moved = lift_subgraph_as_module(gm, part.graph, part.name)
        names.update(moved)
        attributes[part.name] = part.gm
        call = graph.call_module(part.name, tuple(values[node] for node in part.orig_inputs))
        for i, node in enumerate(part.orig_outputs):
            values[node] = call if single else graph.call_function(operator.getitem, (call, i))
    graph.output(map_arg(output.args[0], values.__getitem__), output.type)
    graph.set_codegen(gm.graph._codegen)
    result = GraphModuleCls(attributes, graph)
    for name in ("_in_spec", "_out_spec"):
        if hasattr(gm, name):
            object.__setattr__(result, name, getattr(gm, name))
    return (result, names) if return_fqn_mapping else result


def move_non_tensor_nodes_on_boundary(subgraphs):
    """Move steps that make no tensor from an accelerator's part into the one part that uses what they make; `subgraphs` change.

    With a step goes what uses it. One that several other parts use stays.
    """
    home = {node: part for part in subgraphs for node in part.nodes}

    def users(node):
        return [user for user in node.users if user in home]

    for part in subgraphs:
        if not part.is_acc:
            continue
        waiting = [node for node in part.nodes if not is_node_output_tensor(node)]
        while waiting:
            node = waiting.pop(0)
            others = {id(home[user]): home[user] for user in users(node) if home[user] is not part}
            if home[node] is not part or len(others) != 1:
                continue
            (target,) = others.values()
            moved, below = {}, [node]
            while below:
                one = below.pop()
                if one not in moved and home[one] is not target:
                    moved[one] = None
                    below += users(one)
            if any(home[one] is not part for one in moved):
                continue
            for one in moved:
                part.nodes.remove(one)
                target.nodes.append(one)
                home[one] = target
            waiting += [used for used in node.all_input_nodes if home.get(used) is part and not is_node_output_tensor(used)]
