"""Groups the steps of a graph that a back end supports into few parts, each of which can be run as one."""

import operator

from wisp.fx._text import qualified_name
from wisp.fx.passes.utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """A part of a graph: `nodes` is a dictionary whose keys are its steps."""

    def __init__(self, id=None, nodes=None, node_orders=None):
        nodes = list(nodes or ())
        orders = [None] * len(nodes) if node_orders is None else list(node_orders)
        if len(nodes) != len(orders):
            raise AssertionError("Partition: nodes and node_orders must have the same length")
        self.id, self.nodes = id, dict(zip(nodes, orders))

    def __repr__(self):
        return str(self.nodes)

    def add_node(self, node, node_order=None):
        """Add a step."""
        self.nodes[node] = node_order

    def remove_node(self, node):
        """Take a step out."""
        del self.nodes[node]

    def size(self):
        """The number of steps."""
        return len(self.nodes)


class _Groups:
    """Sets of steps as bits of integers, and what can be reached from them: whether two can be one is a matter of a few operations."""

    def __init__(self, graph):
        self.nodes = list(graph.nodes)
        self.bit = {node: 1 << i for i, node in enumerate(self.nodes)}
        self.below = {}  # behind a step, all that use its result, and so on
        for node in reversed(self.nodes):
            self.below[node] = 0
            for user in node.users:
                self.below[node] |= self.bit[user] | self.below[user]
        self.groups = []  # [steps, their users, what is behind them], all as bits; the last of the graph first

    def add(self, node):
        """A group of one step."""
        users = 0
        for user in node.users:
            users |= self.bit[user]
        self.groups.append([self.bit[node], users, self.below[node]])
        return self.groups[-1]

    def members(self, bits):
        """The steps that are in a group, in order."""
        while bits:
            lowest = bits & -bits
            yield self.nodes[lowest.bit_length() - 1]
            bits ^= lowest

    def behind(self, steps, users):
        """All that what leaves these steps gets to, where a group is entered or left as a whole."""
        reached = 0
        for user in self.members(users & ~steps):
            reached |= self.bit[user] | self.below[user]
        waiting, found = [group for group in self.groups if not group[0] & steps], True
        while found and not reached & steps:
            found = [group for group in waiting if group[0] & reached]
            waiting = [group for group in waiting if not group[0] & reached]
            for group in found:
                reached |= group[0] | group[2]
        return reached

    def merge(self, one, other):
        """Make one group of two if nothing that leaves it comes back; whether that was so."""
        steps, users = one[0] | other[0], one[1] | other[1]
        if self.behind(steps, users) & steps:
            return False
        one[:] = steps, users, one[2] | other[2]
        self.groups.remove(other)
        return True


class CapabilityBasedPartitioner:
    """Finds parts of `graph_module` whose steps `operator_support` supports, as large as they can be without circles between them.

    A part of one step alone, other than those named in `allowed_single_node_partition_ops`, is left out unless
    `allows_single_node_partition`; operators named in `non_compute_ops` ("torch.ops.aten.view") do not count.
    `skip_horizontal_fusion` keeps parts apart that exchange no values.

    >>> from wisp.fx.passes.operator_support import create_op_support
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x + 1).sum() + 2)
    >>> support = create_op_support(lambda modules, node: node.op == "call_function")
    >>> [list(part.nodes) for part in CapabilityBasedPartitioner(traced, support).propose_partitions()]
    [[add, relu]]
    """

    def __init__(
        self,
        graph_module,
        operator_support,
        allows_single_node_partition=False,
        non_compute_ops=None,
        allowed_single_node_partition_ops=None,
        skip_horizontal_fusion=False,
    ):
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self):
        """The parts, the last of the graph first."""
        modules, groups = dict(self.graph_module.named_modules()), _Groups(self.graph_module.graph)
        for node in reversed(groups.nodes):
            if self.operator_support.is_node_supported(modules, node):
                self._place(node, groups)
        home = {node: group for group in map(tuple, groups.groups) for node in groups.members(group[0])}
        _keep_items_with_tuples(groups.nodes, home)
        order = {node: number for number, node in enumerate(reversed(groups.nodes))}
        made = {tuple(group): Partition(id) for id, group in enumerate(groups.groups)}
        for node in groups.nodes:
            if home.get(node) is not None:
                made[home[node]].add_node(node, order[node])
        return [part for part in made.values() if part.size() and (self.allows_single_node_partition or self._worth(part))]

    def _place(self, node, groups):
        """Put a step into a group of its own, and that together with those it can be one with."""
        others = list(groups.groups)
        mine = groups.add(node)
        near = mine[1]
        for other in others:
            if self.skip_horizontal_fusion and not other[0] & near:
                continue
            if groups.merge(other, mine):
                mine = other

    def _worth(self, part):
        names = [qualified_name(node.target) for node in part.nodes if node.op == "call_function"]
        free = {"torch.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        return sum((name not in free) + (name in self.allowed_single_node_partition_ops) for name in names) > 1

    def fuse_partitions(self, partitions, prefix="fused_"):
        """The module with each of these parts in a submodule."""
        return fuse_by_partitions(self.graph_module, [partition.nodes for partition in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions):
        """Take steps that compute nothing (`non_compute_ops`) out of the parts where they stand at a border."""
        for partition in partitions:
            order = sorted(partition.nodes, key=lambda node: -partition.nodes[node])  # as in the graph
            free = {n for n in order if n.op == "call_function" and qualified_name(n.target) in self.non_compute_ops}
            first, last = set(), set()  # those that nothing of the part that computes stands before, or behind
            for node in order:
                if node in free and all(used not in partition.nodes or used in first for used in node.all_input_nodes):
                    first.add(node)
            for node in reversed(order):
                if node in free and all(user not in partition.nodes or user in last for user in node.users):
                    last.add(node)
            for node in first | last:
                partition.remove_node(node)

    def partition_and_fuse(self, prefix="fused_"):
        """Find the parts and put each into a submodule."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)


def _keep_items_with_tuples(nodes, home):
    """The steps that take a tuple apart are where it is made; there, or nowhere."""
    for node in nodes:
        if node.users and all(user.op == "call_function" and user.target is operator.getitem for user in node.users):
            for user in node.users:
                home[user] = home.get(node)
