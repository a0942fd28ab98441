"""Steps that compute the same are made once."""

import copy

import wisp
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import _draws, _writes
from wisp.fx.passes.infra.pass_base import PassBase, PassResult
from wisp.utils._pytree import tree_flatten

__all__ = ["CSEPass", "get_CSE_banned_ops"]


def get_CSE_banned_ops():
    """The operators whose calls are never joined: those that draw random numbers. What writes to its arguments never is.

    >>> wisp.ops.aten.rand_like in get_CSE_banned_ops()
    True
    """
    names = [name for name, operator in wisp._core._operators[""].items() if "draws" in operator._facts and not name.startswith("_")]
    return {packet for name in names if (packet := getattr(wisp.ops.aten, name, None)) is not None}


class CSEPass(PassBase):
    """Lets users of a step use an earlier one with the same function and arguments; `banned_ops` are left as they are.

    >>> traced = wisp.fx.symbolic_trace(lambda x: x.cos() + wisp.sin(x) + wisp.sin(x))
    >>> len(traced.graph.nodes) - len(CSEPass()(traced).graph_module.graph.nodes)
    1
    """

    def __init__(self, banned_ops=None):
        self.banned_ops = set() if banned_ops is None else set(banned_ops)

    def call(self, graph_module):
        """A module of the steps that differ, and whether there were others."""
        made = GraphModule(graph_module, copy.deepcopy(graph_module.graph), type(graph_module).__name__)
        known, changed = {}, False
        for node in list(made.graph.nodes):
            target = getattr(node.target, "overloadpacket", node.target)
            if node.op != "call_function" or target in self.banned_ops or _writes(node.target) or _draws(node.target):
                continue
            leaves, spec = tree_flatten((tuple(node.args), dict(node.kwargs)))
            key = (node.target, str(spec), tuple((type(leaf), leaf) for leaf in leaves))
            try:
                before = known.setdefault(key, node)
            except TypeError:  # an argument that cannot be looked up
                continue
            if before is not node:
                node.replace_all_uses_with(before)
                made.graph.erase_node(node)
                changed = True
        made.recompile()
        return PassResult(made, changed)
