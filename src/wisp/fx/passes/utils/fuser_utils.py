"""Takes groups of steps out of a graph, each into a submodule that does what they did."""

from operator import getitem as _getitem

from wisp.fx.graph import Graph
from wisp.fx.passes.tools_common import _in_order, stable_topological_sort
from wisp.fx.passes.utils.common import lift_subgraph_as_module

__all__ = ["erase_nodes", "fuse_as_graphmodule", "fuse_by_partitions", "insert_subgm", "topo_sort", "validate_partition"]


def topo_sort(nodes):
    """The nodes, each behind what it uses of them, else in the order given.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x) + 1)
    >>> topo_sort(list(traced.graph.nodes)[::-1])
    [x, relu, add, output]
    """
    order, left = _in_order(nodes)
    if left:
        raise AssertionError(f"topo_sort: these steps use each other in a circle: {left}")
    return order


def validate_partition(partition):
    """Whether steps can be one: nothing outside takes from them what comes back to them.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(wisp.abs(x))))
    >>> _, first, second, third, _ = traced.graph.nodes
    >>> validate_partition([first, second]), validate_partition([first, third])
    (True, False)
    """
    inside = set(partition)
    waiting = [user for node in inside for user in node.users if user not in inside]
    seen = set(waiting)
    while waiting:
        for user in waiting.pop().users:
            if user in inside:
                return False
            if user not in seen:
                seen.add(user)
                waiting.append(user)
    return True


def fuse_as_graphmodule(gm, nodes, module_name, partition_lookup_table=None, *, always_return_tuple=False):
    """A module that does what `nodes`, in an order that can be run, do in `gm`; what they take in, and what others take of them.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(x)) + x)
    >>> _, first, second, _, _ = traced.graph.nodes
    >>> module, taken, given = fuse_as_graphmodule(traced, [first, second], "Fused")
    >>> taken, given, module(wisp.tensor([-2.0]))
    ((x,), (relu,), tensor([2.]))
    """
    inside = dict.fromkeys(nodes)
    for node in nodes:
        if node.graph.owning_module is not gm or node._erased:
            raise AssertionError(f"fuse_as_graphmodule: {node} is no step of the graph of {type(gm).__name__}")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    graph, taken, made = Graph(), {}, {}

    def here(node):
        if node in inside:
            return made[node]
        if node not in taken:
            taken[node] = graph.placeholder(node.name, type_expr=node.type)
            taken[node].meta = dict(node.meta)
        return taken[node]

    placed = [used for node in nodes for used in node.all_input_nodes if used not in inside]
    for used in placed:  # inputs stand before steps
        here(used)
    for node in nodes:
        made[node] = graph.node_copy(node, here)
    given = tuple(node for node in nodes if any(user not in inside for user in node.users))
    results = tuple(made[node] for node in given)
    graph.output(results if always_return_tuple or len(results) != 1 else results[0])
    graph.lint()
    return lift_subgraph_as_module(gm, graph, class_name=module_name)[0], tuple(taken), given


def insert_subgm(gm, sub_gm, orig_inputs, orig_outputs, insertion_point=None):
    """The module with a call of `sub_gm` behind `insertion_point` (the last of `orig_outputs`), which now stands for `orig_outputs`."""
    name, output = type(sub_gm).__name__, sub_gm.graph.output_node().args[0]
    gm.add_submodule(name, sub_gm)
    if insertion_point is None:
        insertion_point = next((node for node in reversed(gm.graph.nodes) if node in orig_outputs), None)
        if insertion_point is None:
            raise AssertionError("insert_subgm: without outputs, give an insertion_point: the last step that the module stands for")
    with gm.graph.inserting_after(insertion_point):
        call = gm.graph.call_module(name, orig_inputs)
    if len(orig_outputs) == 1 and not isinstance(output, tuple):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    after = call
    for i, old in enumerate(orig_outputs):
        with gm.graph.inserting_after(after):
            after = gm.graph.call_function(_getitem, (call, i))
        old.replace_all_uses_with(after, propagate_meta=True)
    if orig_outputs:
        call.meta["val"] = tuple(old.meta.get("val") for old in orig_outputs)
    return gm


def erase_nodes(gm, nodes):
    """Erase steps, the last first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(gm, partitions, prefix="fused_", always_return_tuple=False):
    """The module with each group of steps (a dictionary or list) in a submodule `prefix` + its number; changed in place.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(wisp.neg(x)) + x)
    >>> _, first, second, _, _ = traced.graph.nodes
    >>> fuse_by_partitions(traced, [[first, second]]).graph.nodes[1].target
    'fused_0'
    """
    for number, partition in enumerate(partitions):
        nodes = topo_sort(list(partition))
        made, taken, given = fuse_as_graphmodule(gm, nodes, f"{prefix}{number}", partition, always_return_tuple=always_return_tuple)
        insert_subgm(gm, made, taken, given, nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
