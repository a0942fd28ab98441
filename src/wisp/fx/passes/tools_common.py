"""What passes that give parts of a graph to an accelerator have in common: names of targets, orders of steps, groups that stay together."""

import heapq

import wisp
from wisp.fx.graph import Graph

__all__ = [
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}
Tensors = tuple[wisp.Tensor] | list[wisp.Tensor]
TensorOrTensors = wisp.Tensor | Tensors
NodeList, NodeSet, Names = list, set, list[str]


def get_acc_ops_name(k):
    """The dotted name of a class or function, under PyTorch's names for Wisp's; a string is one already.

    >>> get_acc_ops_name(wisp.nn.Linear)
    'torch.nn.modules.linear.Linear'
    """
    if isinstance(k, str):
        return k
    module = k.__module__ or ""
    if "acc_ops" in module:
        return f"acc_ops.{k.__name__}"
    if module == "wisp" or module.startswith("wisp."):
        module = "torch" + module.removeprefix("wisp")
    return f"{module.replace('torch._ops', 'torch.ops')}.{k.__name__}"


def get_node_target(submodules, node):
    """What a call calls, as text: the class of its module, the name of its function or of its method.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x) + x.sum())
    >>> [get_node_target({}, node) for node in traced.graph.nodes if node.op in CALLABLE_NODE_OPS]
    ['torch.relu', 'sum', '_operator.add']
    """
    from wisp.fx._text import qualified_name

    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(
            f"get_node_target: expected a step that calls something ({', '.join(sorted(CALLABLE_NODE_OPS))}), got {node.op}"
        )
    if node.op == "call_method":
        return node.target
    if node.op == "call_module":
        module = submodules[node.target]
        return get_acc_ops_name(getattr(module, "_base_class_origin", type(module)))
    return f"acc_ops.{node.target.__name__}" if "acc_ops" in (node.target.__module__ or "") else qualified_name(node.target)


def is_node_output_tensor(node):
    """Whether a step makes a tensor: `ShapeProp` must have run."""
    kind = node.meta.get("type")
    return isinstance(kind, type) and issubclass(kind, wisp.Tensor)


def _in_order(nodes):
    """The nodes, each behind what it uses of them, else in the order given."""
    position, waiting = {node: i for i, node in enumerate(nodes)}, {}
    for node in position:
        waiting[node] = sum(used in position for used in node.all_input_nodes)
    ready, result = [i for node, i in position.items() if not waiting[node]], []
    heapq.heapify(ready)
    nodes = list(position)
    while ready:
        result.append(nodes[heapq.heappop(ready)])
        for user in result[-1].users:
            if user in waiting:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, position[user])
    return result, [node for node in nodes if waiting[node]]


def stable_topological_sort(gm):
    """The module with its steps behind what they use, otherwise in the order they had; changed in place."""
    order, left = _in_order(gm.graph.nodes)
    if left:
        raise AssertionError(f"Input graph has cycles, unable to add {left}")
    graph, made = Graph(), {}
    for node in order:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm


def legalize_graph(gm):
    """As `stable_topological_sort`: the module with its steps behind what they use.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x + 1))
    >>> first, second = [node for node in traced.graph.nodes if node.op == "call_function"]
    >>> second.append(first)
    >>> [node.name for node in legalize_graph(traced).graph.nodes]
    ['x', 'add', 'relu', 'output']
    """
    try:
        return stable_topological_sort(gm)
    except AssertionError as error:
        raise RuntimeError(str(error)) from None


class FxNetAccFusionsFinder:
    """Groups the steps `acc_nodes` that hand each other values that are no tensors: calling it returns {node: its group}.

    A group that would need a step that is not among them takes its steps out of `acc_nodes`.
    """

    def __init__(self, module, acc_nodes):
        self.module, self.acc_nodes = module, acc_nodes

    def __call__(self):
        result = {}
        order = {node: i for i, node in enumerate(self.module.graph.nodes)}
        for start in sorted(self.acc_nodes, key=order.__getitem__):
            if start in result or start not in self.acc_nodes or not _loose(start):
                continue
            group = _group(start, order)
            if group <= self.acc_nodes:
                result.update(dict.fromkeys(group, group))
            else:
                self.acc_nodes -= group
        return result


def _loose(node):
    """Whether a call returns something else than tensors whose shapes are known."""
    return node.op in CALLABLE_NODE_OPS and "tensor_meta" not in node.meta


def _group(start, order):
    """The calls connected to `start` by values that are no tensors, and those on paths between them."""
    group, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        beside = [used for used in node.all_input_nodes if _loose(used)]
        if _loose(node):
            beside += [user for user in node.users if user.op in CALLABLE_NODE_OPS]
        between = _between(group | set(beside), order)
        waiting += [other for other in between if other not in group]
        group |= between
    return group


def _between(group, order):
    """The group with every call that lies on a path from one of its steps to another."""
    first, last = min(map(order.__getitem__, group)), max(map(order.__getitem__, group))
    nodes = [node for node in list(order)[first : last + 1] if node.op in CALLABLE_NODE_OPS]
    below, above = set(group), set(group)
    for node in nodes:
        if any(used in below for used in node.all_input_nodes):
            below.add(node)
    for node in reversed(nodes):
        if any(user in above for user in node.users):
            above.add(node)
    return group | (below & above)
