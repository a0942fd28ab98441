"""Splits a graph into submodules by a function that says which part each step is in."""

import operator

from wisp import nn
from wisp.fx.graph import Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import map_arg

__all__ = ["Partition", "split_module", "split_module_simple"]


class Partition:
    """A part of a graph while it is split: names of its steps, of what it takes in and gives out, and of the parts it needs."""

    def __init__(self, name):
        self.name, self.submod_name = name, f"submod_{name}"
        self.node_names, self.inputs, self.outputs = [], {}, {}
        self.dependencies, self.dependents = {}, {}
        self.graph, self.environment, self.targets = Graph(), {}, {}

    def __repr__(self):
        return (
            f"name: {self.name},\n nodes: {self.node_names},\n inputs: {self.inputs},\n outputs: {self.outputs},\n"
            f" partitions depended on: {self.dependencies},\n partition dependents: {self.dependents}"
        )


def _attribute(module, path):
    for part in path.split("."):
        if not hasattr(module, part):
            raise AttributeError(f"Node target {path} not found!")
        module = getattr(module, part)
    return module


class _Split:
    """The parts of a module's graph, and which each step is in."""

    def __init__(self, m, callback, affix):
        self.module, self.parts, self.home = m, {}, {}
        self.nodes = {node.name: node for node in m.graph.nodes}
        for node in m.graph.nodes:
            if node.op not in ("placeholder", "get_attr", "output"):
                name = str(callback(node)) if affix is None else f"{affix}_{callback(node)}"
                self.home[node] = self.parts.setdefault(name, Partition(name))
                self.home[node].node_names.append(node.name)
        for node in m.graph.nodes:
            for used in node.all_input_nodes:
                self.note(used, self.home.get(used), self.home.get(node))

    def note(self, node, made, used):
        """One part makes what another uses; None is the module itself."""
        if made is used:
            return
        if made is not None:
            made.outputs.setdefault(node.name)
        if used is not None:
            used.inputs.setdefault(node.name)
        if made is not None and used is not None:
            made.dependents.setdefault(used.name)
            used.dependencies.setdefault(made.name)

    def order(self):
        """The parts, each behind those it needs, else as they were found."""
        result, left = {}, dict(self.parts)
        while left:
            ready = next((name for name, part in left.items() if all(needed in result for needed in part.dependencies)), None)
            if ready is None:
                raise RuntimeError("cycle exists between partitions!")
            result[ready] = left.pop(ready)
        return list(result.values())

    def fill(self, part, keep_names, keep_input_names, qualname_map, tuple_return):
        """The graph of a part."""
        inside = {}  # attributes that are modules are read inside
        for name in part.inputs:
            node = self.nodes[name]
            value = _attribute(self.module, node.target) if node.op == "get_attr" else None
            if isinstance(value, nn.Module):
                inside[name] = part.targets[node.target] = value
        part.inputs = {name: None for name in part.inputs if name not in inside}
        for number, name in enumerate([*part.inputs, *inside]):
            node = self.nodes[name]
            if name in inside:
                made = part.graph.get_attr(node.target)
            else:
                made = part.graph.placeholder(name if keep_input_names else f"arg_{number}", type_expr=node.type)
            made.meta, part.environment[node] = dict(node.meta), made
        for name in part.node_names:
            node = self.nodes[name]
            target = node.target
            if node.op == "call_module":
                target = node.target.replace(".", "_")
                part.targets[target] = _attribute(self.module, node.target)
                if qualname_map is not None:
                    qualname_map[f"{part.submod_name}.{target}"] = node.target
            args, kwargs = (map_arg(values, part.environment.__getitem__) for values in (node.args, node.kwargs))
            made = part.graph.create_node(node.op, target, args, kwargs, name if keep_names else None, node.type)
            made.meta, part.environment[node] = dict(node.meta), made
        results = tuple(part.environment[self.nodes[name]] for name in part.outputs)
        part.graph.output(results[0] if len(results) == 1 and not tuple_return else results)


def split_module(
    m,
    root_m,
    split_callback,
    qualname_map=None,
    keep_original_order=False,
    keep_original_node_name=False,
    keep_original_input_name=True,
    *,
    partition_affix=None,
    tuple_return=False,
):
    """A module that calls `submod_0`, `submod_1`, …, one for each value that `split_callback(node)` returns.

    Inputs, attributes and the output are not asked for. `root_m` is not used. A dictionary `qualname_map` is filled with the old
    names of modules by their new ones. `keep_original_order` calls the parts in the order of their first steps, as they are.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x + 1) * 2)
    >>> split = split_module(traced, None, lambda node: 0 if node.name == "add" else 1)
    >>> print(split.code.strip())
    def forward(self, x):
        submod_0 = self.submod_0(x);  x = None
        submod_1 = self.submod_1(submod_0);  submod_0 = None
        return submod_1
    """
    split = _Split(m, split_callback, partition_affix)
    order = split.order()
    graph, values, attributes = Graph(), {}, {}

    def outside(node):
        """Inputs and attributes, in the module itself."""
        made = (
            graph.node_copy(node)
            if keep_original_node_name or node.op == "get_attr"
            else graph.create_node(node.op, node.target, node.args, type_expr=node.type)
        )
        made.meta, values[node.name] = dict(node.meta), made
        if node.op == "get_attr":
            attributes[node.target] = _attribute(m, node.target)

    for part in order:
        split.fill(part, keep_original_node_name, keep_original_input_name, qualname_map, tuple_return)
    wanted = {name for part in order for name in part.inputs} | {node.name for node in m.graph.output_node().all_input_nodes}
    for node in m.graph.nodes:
        if node.op == "placeholder" or (node.op == "get_attr" and node.name in wanted and not keep_original_order):
            outside(node)
    for part in split.parts.values() if keep_original_order else order:
        attributes[part.submod_name] = GraphModule(part.targets, part.graph)
        for name in part.inputs:  # attributes, where they are first used
            if name not in values:
                outside(split.nodes[name])
        call = graph.call_module(part.submod_name, tuple(values[name] for name in part.inputs))
        if len(part.outputs) == 1 and not tuple_return:
            values[next(iter(part.outputs))] = call
            continue
        for i, name in enumerate(part.outputs):
            values[name] = graph.call_function(operator.getitem, (call, i))
    for node in m.graph.output_node().all_input_nodes:
        if node.name not in values:
            outside(node)
    graph.output(map_arg(m.graph.output_node().args[0], lambda node: values[node.name]))
    made = GraphModule(attributes, graph)
    made.meta["partition_names"] = {part.submod_name for part in order}
    return made


def split_module_simple(m, node_to_partition, *, partition_affix=None):
    """As `split_module`, with a dictionary that has the number of every call's part.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x + 1))
    >>> calls = [node for node in traced.graph.nodes if node.op == "call_function"]
    >>> [name for name, _ in split_module_simple(traced, dict(zip(calls, (0, 1)))).named_children()]
    ['submod_0', 'submod_1']
    """
    return split_module(m, None, node_to_partition.__getitem__, partition_affix=partition_affix)
