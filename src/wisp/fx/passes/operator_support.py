"""Which steps of a graph a back end can run."""

import abc

from wisp.fx.node import Node
from wisp.fx.passes.shape_prop import TensorMetadata
from wisp.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OpSupports", "OperatorSupport", "OperatorSupportBase", "any_chain", "chain", "create_op_support"]


class OperatorSupportBase(abc.ABC):
    """Says of each step whether it is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules, node):
        """Whether a step is supported; `submodules` are the modules of the graph's module by name."""


class OperatorSupport(OperatorSupportBase):
    """Supports the targets that `support_dict` names (`get_node_target`), with None for any dtypes.

    Otherwise a pair says which dtypes may come in: a sequence with a list of dtypes or None for each positional argument, and a
    dictionary of such lists for keyword arguments. `ShapeProp` must have run for that.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x) + 1)
    >>> support = OperatorSupport({"torch.relu": None})
    >>> [node.name for node in traced.graph.nodes if not support.is_node_supported({}, node)]
    ['add']
    """

    def __init__(self, support_dict=None):
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules, node):
        """Whether the target is known, and its arguments have dtypes that it may have."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        if self._support_dict[target] is None:
            return True
        by_place, by_name = self._support_dict[target]
        given = [*zip(node.args, by_place), *((node.kwargs[name], dtypes) for name, dtypes in by_name.items() if name in node.kwargs)]
        return all(_dtype(arg) in dtypes for arg, dtypes in given if dtypes is not None and isinstance(arg, Node))


def _dtype(node):
    known = node.meta.get("tensor_meta")
    return known.dtype if isinstance(known, TensorMetadata) else node.meta["type"]


class _Asked(OperatorSupportBase):
    def __init__(self, ask):
        self.ask = ask

    def is_node_supported(self, submodules, node):
        return self.ask(submodules, node)


def create_op_support(is_node_supported):
    """The support that a function of the submodules and a step says.

    >>> create_op_support(lambda submodules, node: node.name == "add").is_node_supported({}, wisp.fx.Graph().placeholder("x"))
    False
    """
    return _Asked(is_node_supported)


def chain(*op_support):
    """Supports what all of these support."""
    return _Asked(lambda submodules, node: all(one.is_node_supported(submodules, node) for one in op_support))


def any_chain(*op_support):
    """Supports what any of these supports."""
    return _Asked(lambda submodules, node: any(one.is_node_supported(submodules, node) for one in op_support))


class OpSupports:
    """Rules to put together with `chain` and `any_chain`."""

    @classmethod
    def decline_if_input_dtype(cls, dtype):
        """Not the steps that take a value of this dtype."""
        return _Asked(lambda submodules, node: all(_dtype(used) != dtype for used in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set):
        """Not the steps of these names."""
        return _Asked(lambda submodules, node: node.name not in disallow_set)
