"""A step of a traced graph: an input, an attribute, a call, or the output."""

from wisp.fx.immutable_collections import immutable_dict, immutable_list

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

_side_effects = set()


def has_side_effect(fn):
    """Mark a function whose calls stay in the graph even if nobody uses the result."""
    _side_effects.add(fn)
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
            user.replace_input_with(self, replace_with)
        return changed

    def is_impure(self, impure_random=True):
        """Whether the step must stay although nobody uses its result."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _side_effects
        if self.op == "call_method":
            return str(self.target).endswith("_") and not str(self.target).endswith("__")
        return False

    def format_node(self, placeholder_names=None, maybe_return_typename=None, *, include_tensor_metadata=False):
        """One line of text about the node."""
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : [num_users={len(self.users)}] = get_attr[target={self.target}]"
        if self.op == "output":
            return f"return {self.args[0]}"
        target = self._pretty_target()
        return (
            f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]"
            f"(args = {_shown(self.args)}, kwargs = {_shown(self.kwargs)})"
        )

    def _pretty_target(self):
        if isinstance(self.target, str):
            return self.target
        from wisp.fx.graph import qualified_name

        return qualified_name(self.target)

    def __repr__(self):
        return self.name

    def __lt__(self, other):
        return self.graph._position(self) < self.graph._position(other)


def _shown(value):
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_shown, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    return repr(value)
