"""Calls of a graph in one form: arguments by name, and Python's operators for the functions that they are."""

import operator

import wisp
from wisp.fx.experimental.schema_type_annotation import AnnotateTypesWithSchema
from wisp.fx.interpreter import Transformer
from wisp.fx.node import Node, map_aggregate
from wisp.fx.operator_schemas import create_type_hint

__all__ = ["NormalizeArgs", "NormalizeOperators"]


class NormalizeArgs(Transformer):
    """`NormalizeArgs(module).transform()` gives the arguments of functions and layers by name, with those that were left out; with
    `normalize_to_only_use_kwargs=False` those that were given by place stay there. Types that `ShapeProp` noted tell forms apart.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.add(x, 3))
    >>> NormalizeArgs(traced).transform().graph.nodes[1].kwargs
    {'input': x, 'other': 3, 'alpha': 1}
    """

    def __init__(self, module, normalize_to_only_use_kwargs=True):
        super().__init__(module)
        self.node_map, self.normalize_to_only_use_kwargs = {}, normalize_to_only_use_kwargs

    def run_node(self, n):
        """Make the step with its arguments by name."""

        def kind(value):
            return value.meta.get("type") if isinstance(value, Node) else type(value)

        args, kwargs = self.fetch_args_kwargs_from_env(n)
        found = None
        if n.op in ("call_function", "call_module"):
            arg_types = tuple(create_type_hint(one) for one in map_aggregate(n.args, kind))
            kwarg_types = {name: kind(value) for name, value in n.kwargs.items()}
            found = n.normalized_arguments(self.module, arg_types, kwarg_types, self.normalize_to_only_use_kwargs)
        if found is None:
            made = super().run_node(n)
        else:
            self._current = n
            new = wisp.fx.Node(self.new_graph, "", n.op, n.target, found.args, found.kwargs)
            args, kwargs = self.fetch_args_kwargs_from_env(new)
            new._set((), {})
            made = self.tracer.create_proxy(n.op, n.target, args, kwargs)
        if n.op != "output":
            self.node_map[made] = n
            made.node.type = n.type
        return made


class NormalizeOperators(AnnotateTypesWithSchema):
    """`NormalizeOperators(module).transform()` has `operator.add` for `torch.add` and the like, where nothing but two values is given.

    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.add(x, 3))
    >>> NormalizeOperators(traced).transform().graph.nodes[1].target
    <built-in function add>
    """

    binary_magic_method_remap = {
        wisp.add: operator.add,
        wisp.mul: operator.mul,
        wisp.sub: operator.sub,
        wisp.div: operator.truediv,
        wisp.floor_divide: operator.floordiv,
        wisp.remainder: operator.mod,
        wisp.eq: operator.eq,
        wisp.ne: operator.ne,
        wisp.lt: operator.lt,
        wisp.le: operator.le,
        wisp.gt: operator.gt,
        wisp.ge: operator.ge,
    }

    def call_function(self, target, args, kwargs):
        """The call, in Python's form if it has one."""
        if len(args) == 2 and not kwargs:
            target = self.binary_magic_method_remap.get(target, target)
        return super().call_function(target, args, kwargs)
