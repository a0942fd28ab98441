"""Lets operators write to an operand that nobody needs any more."""

import wisp
from wisp._ops import OpOverload, _function
from wisp.fx.interpreter import Interpreter
from wisp.fx.node import Node
from wisp.utils._pytree import tree_leaves

__all__ = ["reinplace"]


class _Storages(Interpreter):
    """Runs a graph and keeps what every step returned."""

    def __init__(self, module):
        super().__init__(module, garbage_collect_values=False)
        self.values, self.same = {}, {}

    def run_node(self, n):
        self.values[n] = super().run_node(n)
        return self.values[n]

    def of(self, node):
        """The memory that the results of a step lie in, as it will be."""
        found = set()
        for leaf in tree_leaves(self.values.get(node)):
            if isinstance(leaf, wisp.Tensor):
                place = leaf.untyped_storage().data_ptr()
                while place in self.same:
                    place = self.same[place]
                found.add(place)
        return found


def _in_place(target):
    """The form of an operator that writes to its first operand, or None."""
    if not isinstance(target, OpOverload) or target.namespace != "aten" or target.overloadpacket.__name__.endswith("_"):
        return None
    name = target.overloadpacket.__name__ + "_"
    return None if _function(name) is None else getattr(getattr(wisp.ops.aten, name), target._overloadname)


def _fits(operand, result):
    """Whether the result can be written over the operand."""
    tensors = isinstance(operand, wisp.Tensor) and isinstance(result, wisp.Tensor)
    if not tensors or operand.shape != result.shape or operand.dtype != result.dtype:
        return False
    return all(stride or size <= 1 for size, stride in zip(operand.shape, operand.stride()))


def reinplace(gm, *sample_args):
    """The graph of operators (`make_fx`) with those that can do so writing to their first operand; changed in place.

    An operand is written to if it is no input and no attribute, nothing later looks at its memory, and the result has its shape and
    dtype. The graph is run on `sample_args` to find which values share memory.

    >>> from wisp.fx.experimental.proxy_tensor import make_fx
    >>> traced = make_fx(lambda x: x.clone().add(1))(wisp.ones(2))
    >>> print(reinplace(traced, wisp.ones(2)).code.strip())
    def forward(self, x_1):
        clone = torch.ops.aten.clone.default(x_1);  x_1 = None
        add = torch.ops.aten.add_.Tensor(clone, 1);  add = None
        return clone
    """
    memory, nodes = _Storages(gm), list(gm.graph.nodes)
    with wisp.no_grad():
        memory.run(*(arg.detach().clone() if isinstance(arg, wisp.Tensor) else arg for arg in sample_args))
    kept = set().union(*(memory.of(node) for node in nodes if node.op in ("placeholder", "get_attr")))
    for i, node in enumerate(nodes):
        form = _in_place(node.target) if node.op == "call_function" else None
        operand = node.args[0] if node.args else None
        if form is None or not isinstance(operand, Node) or not _fits(memory.values[operand], memory.values[node]):
            continue
        place = memory.of(operand)
        later = {used for user in nodes[i + 1 :] for used in user.all_input_nodes}
        beside = [other for other in node.all_input_nodes if other is not operand]
        # a result that lies in the operand's memory is a view of it: t_ would change the operand
        if place & (kept | memory.of(node)) or any(place & memory.of(other) for other in (later - {node}).union(beside)):
            continue
        for old in memory.of(node):
            memory.same[old] = min(place)
        node.target = form
        node.replace_all_uses_with(operand)
    gm.recompile()
    return gm
