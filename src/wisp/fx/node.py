"""A step of a traced graph: an input, an attribute, a call, or the output."""

import typing
from collections.abc import Callable

from wisp.fx.immutable_collections import immutable_dict, immutable_list

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = typing.Union[Callable[..., typing.Any], str]  # noqa: UP007
Argument = typing.Any
_side_effectful_functions = set()  # besides the operators that draw random numbers or write to their arguments


def _writes(function):
    """Whether a call changes its arguments, or another value that somebody sees."""
    import operator

    import wisp

    name = getattr(function, "__name__", "")
    return (
        function in (operator.setitem, wisp._assert)
        or function in _side_effectful_functions
        or getattr(function, "overloadpacket", None) in _side_effectful_functions
        or getattr(function, "namespace", None) == "profiler"
        or (name.rpartition(".")[0] or name).endswith("_")
        and not name.endswith("__")
    )


def _draws(function):
    """Whether a function draws random numbers."""
    import wisp

    name = getattr(function, "__name__", "").partition(".")[0]
    operator = wisp._core._operators[""].get(name)
    return "draws" in getattr(operator, "_facts", ())


def has_side_effect(fn):
    """Mark a function whose calls stay in the graph even if nobody uses the result."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a, fn):
    """Apply `fn` to everything in nested lists, tuples, dictionaries and slices.

    >>> import wisp.fx
    >>> wisp.fx.node.map_aggregate((1, [2, {"a": 3}]), lambda v: v * 10)
    (10, [20, {'a': 30}])
    """
    if isinstance(a, tuple):
        parts = [map_aggregate(item, fn) for item in a]
        return type(a)(*parts) if hasattr(a, "_fields") and hasattr(a, "_make") else tuple(parts)
    if isinstance(a, list):
        return immutable_list(map_aggregate(item, fn) for item in a)
    if isinstance(a, dict):
        return immutable_dict((key, map_aggregate(item, fn)) for key, item in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a, fn):
    """Apply `fn` to every Node in nested lists, tuples, dictionaries and slices."""
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


class Node:
    """One step of a `Graph`. `op` is "placeholder", "get_attr", "call_function", "call_method", "call_module" or "output"."""

    def __init__(self, graph, name, op, target, args, kwargs, return_type=None):
        wanted = "Callable" if op == "call_function" else "str"
        if not (callable(target) if op == "call_function" else isinstance(target, str)):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a {wanted} is expected")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users, self.meta, self._input_nodes = {}, {}, {}
        self._erased = False
        self._prev = self._next = self
        self._args, self._kwargs = (), {}
        self._set(args, kwargs)

    def _set(self, args, kwargs):
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._input_nodes = {}

        def use(node):
            self._input_nodes.setdefault(node)
            node.users.setdefault(self)
            return node

        self._args = map_arg(tuple(args), use)
        self._kwargs = map_arg(dict(kwargs), use)

    @property
    def args(self):
        """The positional arguments, with nodes where values come from other steps."""
        return self._args

    @args.setter
    def args(self, value):
        self._set(value, self._kwargs)

    @property
    def kwargs(self):
        """The keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value):
        self._set(self._args, value)

    @property
    def all_input_nodes(self):
        """The nodes that this one uses."""
        return list(self._input_nodes)

    @property
    def next(self):
        """The step after this one."""
        return self._next

    @property
    def prev(self):
        """The step before this one."""
        return self._prev

    @property
    def stack_trace(self):
        """Where the program made this step, if that is known."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, value):
        self.meta["stack_trace"] = value

    def update_arg(self, idx, arg):
        """Replace one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx, arg):
        """Insert a positional argument."""
        args = list(self.args)
        args.insert(idx, arg)
        self.args = tuple(args)

    def update_kwarg(self, key, arg):
        """Replace one keyword argument."""
        self.kwargs = {**self.kwargs, key: arg}

    def _remove(self):
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x):
        """Move another node to the place before this one."""
        if x is self:
            return
        x._remove()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x):
        """Move another node to the place after this one."""
        self._next.prepend(x)

    def replace_input_with(self, old_input, new_input):
        """Use another node wherever this one uses `old_input`."""
        self._set(
            map_arg(self.args, lambda n: new_input if n is old_input else n),
            map_arg(self.kwargs, lambda n: new_input if n is old_input else n),
        )

    def replace_all_uses_with(self, replace_with, delete_user_cb=lambda user: True, *, propagate_meta=False):
        """Let all users of this node use another; returns those that were changed."""
        changed = [user for user in self.users if delete_user_cb(user)]
        if propagate_meta:
            replace_with.meta = dict(self.meta)
        for user in changed:
            for hook in getattr(self.graph.owning_module, "_replace_hooks", ()):
                hook(old=self, new=replace_with.name, user=user)
            user.replace_input_with(self, replace_with)
        return changed

    def is_impure(self, impure_random=True):
        """Whether the step must stay although nobody uses its result."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return "out" in self.kwargs or _writes(self.target) or (impure_random and _draws(self.target))
        if self.op == "call_module":
            owner = self.graph.owning_module
            return owner is not None and getattr(owner.get_submodule(self.target), "_is_impure", False)
        if self.op == "call_method":
            return str(self.target).endswith("_") and not str(self.target).endswith("__")
        return False

    def normalized_arguments(self, root, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False):
        """The arguments of a call by the names of its signature, with those that were left out, or None where that is not known."""
        from wisp.fx.operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs)
        if self.op == "call_module":
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def format_node(self, placeholder_names=None, maybe_return_typename=None, *, include_tensor_metadata=False):
        """One line of text about the node."""
        from wisp.fx._text import type_name

        kind = "" if self.type is None else f"{repr(self.type) if isinstance(self.type, str) else type_name(self.type)} "
        users = f"%{self.name} : {kind}[num_users={len(self.users)}] = "
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"%{self.name}")
            return f"{users}placeholder[target={self.target}]" + (f"(default={self.args[0]})" if self.args else "")
        if self.op == "get_attr":
            return f"{users}get_attr[target={self.target}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        return f"{users}{self.op}[target={self._pretty_target()}](args = {_format_arg(self.args)}, kwargs = {_format_arg(self.kwargs)})"

    def _pretty_target(self):
        if isinstance(self.target, str):
            return self.target
        from wisp.fx._text import qualified_name

        module = getattr(self.target, "__module__", "")
        if module in ("builtins", "_operator"):
            return f"{module.strip('_')}.{self.target.__name__}"
        return qualified_name(self.target)

    def __repr__(self):
        return self.name

    def __lt__(self, other):
        return self.graph._position(self) < self.graph._position(other)


def _format_arg(value, max_list_len=float("inf")):
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return f"{type(value).__name__}({', '.join(f'{n}={_format_arg(v)}' for n, v in zip(value._fields, value))})"
        return "(" + ", ".join(map(_format_arg, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_arg, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_format_arg(item)}" for key, item in value.items()) + "}"
    return str(value)
