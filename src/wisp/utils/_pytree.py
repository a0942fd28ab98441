"""Nested values: dicts, lists, tuples and namedtuples as trees of leaves."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any

__all__ = """
    Context GetAttrKey KeyEntry KeyPath MappingKey SUPPORTED_NODES SequenceKey keystr register_constant register_dataclass
    tree_flatten_with_path tree_leaves_with_path tree_map_with_path PyTree LeafSpec TreeSpec register_pytree_node tree_all
    tree_all_only tree_any tree_any_only tree_flatten tree_iter tree_leaves tree_map tree_map_ tree_map_only tree_map_only_
    tree_structure tree_unflatten treespec_pprint""".split()

PyTree = Any


@dataclasses.dataclass(frozen=True)
class _Node:
    flatten: Callable  # value -> (children, context)
    unflatten: Callable  # (children, context) -> value

    flatten_fn = property(lambda self: self.flatten)
    unflatten_fn = property(lambda self: self.unflatten)


def _flatten_dict(value):
    return list(value.values()), list(value.keys())


_NODES = {
    tuple: _Node(lambda value: (list(value), None), lambda children, _: tuple(children)),
    list: _Node(lambda value: (list(value), None), lambda children, _: list(children)),
    dict: _Node(_flatten_dict, lambda children, keys: dict(zip(keys, children))),
    OrderedDict: _Node(_flatten_dict, lambda children, keys: OrderedDict(zip(keys, children))),
    defaultdict: _Node(
        lambda value: (list(value.values()), (value.default_factory, list(value))),
        lambda children, context: defaultdict(context[0], zip(context[1], children)),
    ),
    deque: _Node(lambda value: (list(value), value.maxlen), lambda children, maxlen: deque(children, maxlen)),
}
_NAMEDTUPLE = _Node(lambda value: (list(value), type(value)), lambda children, kind: kind(*children))
_NAMED_RESULT = _Node(_NAMEDTUPLE.flatten, lambda children, kind: kind(children))  # of an operator: x.max(1)


def register_pytree_node(cls, flatten_fn, unflatten_fn, **_):
    """Treat instances of `cls` as nodes: `flatten_fn(x) -> (children, context)`, `unflatten_fn(children, context)`."""
    if cls in _NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _NODES[cls] = _Node(flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Treat instances of a dataclass as nodes."""
    names = field_names or [field.name for field in dataclasses.fields(cls) if field.init and field.name not in (drop_field_names or ())]
    register_pytree_node(
        cls, lambda value: ([getattr(value, name) for name in names], names), lambda children, names: cls(**dict(zip(names, children)))
    )


def register_constant(cls):
    """Treat instances of `cls` as nodes without leaves."""
    register_pytree_node(cls, lambda value: ([], value), lambda children, value: value)


def _node(value):
    node = _NODES.get(type(value))
    if node is None and isinstance(value, tuple) and hasattr(type(value), "_fields"):
        return _named(type(value))
    return node


def _named(kind):
    return _NAMED_RESULT if hasattr(kind, "n_fields") else _NAMEDTUPLE


@dataclasses.dataclass(frozen=True)
class TreeSpec:
    """The structure of a nested value, without its leaves. `type` is None for a leaf."""

    type: Any
    context: Any
    children_specs: list

    @property
    def num_leaves(self):
        return 1 if self.type is None else sum(spec.num_leaves for spec in self.children_specs)

    @property
    def num_children(self):
        return len(self.children_specs)

    def is_leaf(self):
        return self.type is None

    def unflatten(self, leaves):
        return tree_unflatten(leaves, self)

    def __repr__(self):
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


def LeafSpec():
    return TreeSpec(None, None, [])


def tree_flatten(tree, is_leaf=None):
    """-> the leaves of a nested value in order, and its structure."""
    leaves = []

    def walk(value):
        node = None if is_leaf is not None and is_leaf(value) else _node(value)
        if node is None:
            leaves.append(value)
            return LeafSpec()
        children, context = node.flatten(value)
        return TreeSpec(type(value), context, [walk(child) for child in children])

    return leaves, walk(tree)


def tree_unflatten(leaves, treespec):
    """The inverse of `tree_flatten`."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to "
            f"a pytree that holds {treespec.num_leaves} items ({treespec})."
        )
    remaining = iter(leaves)

    def build(spec):
        if spec.type is None:
            return next(remaining)
        node = _NODES.get(spec.type) or _named(spec.type)
        return node.unflatten([build(child) for child in spec.children_specs], spec.context)

    return build(treespec)


def tree_iter(tree, is_leaf=None):
    """The leaves, one by one."""
    node = None if is_leaf is not None and is_leaf(tree) else _node(tree)
    if node is None:
        yield tree
    else:
        for child in node.flatten(tree)[0]:
            yield from tree_iter(child, is_leaf)


def tree_leaves(tree, is_leaf=None):
    return list(tree_iter(tree, is_leaf))


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """The same structure with `func` of each leaf (and of the leaves at its place in further trees)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves] + [_flatten_up_to(spec, rest) for rest in rests]
    return tree_unflatten([func(*values) for values in zip(*columns)], spec)


def _flatten_up_to(spec, tree):
    if spec.type is None:
        return [tree]
    node = _node(tree)
    if node is None or type(tree) is not spec.type:
        raise ValueError(f"Node type mismatch; expected {spec.type}, but got {type(tree)}.")
    children, context = node.flatten(tree)
    if len(children) != len(spec.children_specs) or context != spec.context:
        if isinstance(context, list) and isinstance(spec.context, list) and set(context) == set(spec.context):
            children = [tree[key] for key in spec.context]  # a dict in another order
        else:
            raise ValueError(f"Node structure mismatch; expected {spec}, but got {tree_structure(tree)}.")
    return [leaf for part, child in zip(spec.children_specs, children) for leaf in _flatten_up_to(part, child)]


def tree_map_(func, tree, *rests, is_leaf=None):
    """Call `func` for each leaf, and return the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(types, func):
    check = types if callable(types) and not isinstance(types, type) else lambda leaf: isinstance(leaf, types)
    return lambda leaf: func(leaf) if check(leaf) else leaf


def tree_map_only(type_or_types_or_pred, func, tree, is_leaf=None):
    """As `tree_map`, for leaves of given types; others stay."""
    return tree_map(_only(type_or_types_or_pred, func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred, func, tree, is_leaf=None):
    return tree_map_(_only(type_or_types_or_pred, func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(type_or_types, pred, tree, is_leaf=None):
    return all(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(type_or_types, pred, tree, is_leaf=None):
    return any(pred(leaf) for leaf in tree_iter(tree, is_leaf) if isinstance(leaf, type_or_types))


def treespec_pprint(treespec):
    """The structure as text, with * for a leaf."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


class _Star:
    def __repr__(self):
        return "*"


# --- paths of leaves, and the table itself ---------------------------------------------------------------------------------

Context = Any
SUPPORTED_NODES = _NODES
_dict_flatten = _flatten_dict


def _dict_unflatten(values, context):
    return dict(zip(context, values))


def _dict_flatten_with_keys(value):
    values, keys = _flatten_dict(value)
    return [(MappingKey(key), item) for key, item in zip(keys, values)], keys


def _get_node_type(tree):
    return namedtuple if _node(tree) in (_NAMEDTUPLE, _NAMED_RESULT) else type(tree)


_NODES[namedtuple] = _NAMEDTUPLE


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A step of a path: an index."""

    idx: int

    def __str__(self):
        return f"[{self.idx!r}]"

    def get(self, sequence):
        """What lies there."""
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A step of a path: a key."""

    key: Any

    def __str__(self):
        return f"[{self.key!r}]"

    def get(self, mapping):
        """What lies there."""
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """A step of a path: an attribute."""

    name: str

    def __str__(self):
        return f".{self.name}"

    def get(self, obj):
        """What lies there."""
        return getattr(obj, self.name)


KeyEntry, KeyPath = Any, tuple


def keystr(kp):
    """A path as text.

    >>> from wisp.utils._pytree import keystr, tree_leaves_with_path
    >>> [keystr(path) for path, leaf in tree_leaves_with_path({"a": [1, 2]})]
    ["['a'][0]", "['a'][1]"]
    """
    return "".join(map(str, kp))


def tree_leaves_with_path(tree, is_leaf=None):
    """The leaves with their paths."""
    found = []

    def walk(value, path):
        node = None if is_leaf is not None and is_leaf(value) else _node(value)
        if node is None:
            found.append((path, value))
            return
        children = node.flatten(value)[0]
        if isinstance(value, dict):
            keys = [MappingKey(key) for key in value]
        elif hasattr(value, "_fields"):
            keys = [GetAttrKey(name) for name in value._fields]
        elif dataclasses.is_dataclass(value):
            keys = [GetAttrKey(name) for name in node.flatten(value)[1] or ()]
        else:
            keys = [SequenceKey(i) for i in range(len(children))]
        for key, child in zip(keys, children):
            walk(child, (*path, key))

    walk(tree, ())
    return found


def tree_flatten_with_path(tree, is_leaf=None):
    """The leaves with their paths, and the structure."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """Apply `func(path, leaf, ...)` to the leaves."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [_flatten_up_to(spec, rest) for rest in rests]
    return tree_unflatten([func(path, leaf, *more) for (path, leaf), *more in zip(pairs, *others)], spec)
