"""Nested values: dicts, lists, tuples and namedtuples as trees of leaves."""

import dataclasses
import enum
import functools
import importlib
import json
import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from typing import Any

from wisp._core import Size

__all__ = """
    Context GetAttrKey KeyEntry KeyPath MappingKey SUPPORTED_NODES SequenceKey key_get keystr register_constant register_dataclass
    tree_flatten_with_path tree_leaves_with_path tree_map_with_path PyTree LeafSpec TreeSpec register_pytree_node tree_all
    tree_all_only tree_any tree_any_only tree_flatten tree_iter tree_leaves tree_map tree_map_ tree_map_only tree_map_only_
    tree_structure tree_unflatten treespec_dict treespec_dumps treespec_leaf treespec_list treespec_loads treespec_pprint
    treespec_tuple is_namedtuple is_namedtuple_class is_namedtuple_instance is_structseq is_structseq_class
    is_structseq_instance""".split()

PyTree = Any


@dataclasses.dataclass(frozen=True)
class _Node:
    flatten: Callable  # value -> (children, context)
    unflatten: Callable  # (children, context) -> value
    keys: Callable | None = None  # value -> ([(key, child)], context)
    name: str | None = None  # in texts of structures, and there the context:
    dump: Callable | None = None
    load: Callable | None = None

    flatten_fn = property(lambda self: self.flatten)
    unflatten_fn = property(lambda self: self.unflatten)
    flatten_with_keys_fn = property(lambda self: self.keys)


NodeDef = _Node


def _flatten_dict(value):
    return list(value.values()), list(value.keys())


def _full_name(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def _named_kind(name):
    module, _, rest = name.partition(".")
    value = importlib.import_module(module)
    for part in rest.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            module = f"{module}.{part}"
            value = importlib.import_module(module)
    return value


_NODES = {
    tuple: _Node(lambda value: (list(value), None), lambda children, _: tuple(children), name="builtins.tuple"),
    Size: _Node(lambda value: (list(value), None), lambda children, _: tuple(children), name="torch.Size"),  # put together, a tuple
    list: _Node(lambda value: (list(value), None), lambda children, _: list(children), name="builtins.list"),
    dict: _Node(_flatten_dict, lambda children, keys: dict(zip(keys, children)), name="builtins.dict"),
    OrderedDict: _Node(_flatten_dict, lambda children, keys: OrderedDict(zip(keys, children)), name="collections.OrderedDict"),
    defaultdict: _Node(
        lambda value: (list(value.values()), [value.default_factory, list(value)]),
        lambda children, context: defaultdict(context[0], zip(context[1], children)),
        name="collections.defaultdict",
        dump=lambda context: [_full_name(context[0]), context[1]],
        load=lambda told: [_named_kind(told[0]), told[1]],
    ),
    deque: _Node(lambda value: (list(value), value.maxlen), lambda children, maxlen: deque(children, maxlen), name="collections.deque"),
    namedtuple: _Node(
        lambda value: (list(value), type(value)),
        lambda children, kind: kind(*children),
        name="collections.namedtuple",
        dump=lambda kind: _named_name(kind),
        load=lambda name: _NAMED_CLASSES[name],
    ),
}
_NAMED_RESULT = _Node(lambda value: (list(value), type(value)), lambda children, kind: kind(children))  # of an operator: x.max(1)
_NAMED_CLASSES, _NAMES_OF = {}, {}  # of namedtuples in texts, both ways


def register_pytree_node(
    cls,
    flatten_fn,
    unflatten_fn,
    *,
    serialized_type_name=None,
    to_dumpable_context=None,
    from_dumpable_context=None,
    flatten_with_keys_fn=None,
):
    """Treat instances of `cls` as nodes: `flatten_fn(x) -> (children, context)`, `unflatten_fn(children, context)`."""
    if cls in _NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    _NODES[cls] = _Node(flatten_fn, unflatten_fn, flatten_with_keys_fn, serialized_type_name, to_dumpable_context, from_dumpable_context)


def _register_pytree_node(cls, flatten_fn, unflatten_fn, **options):
    warnings.warn(
        "torch.utils._pytree._register_pytree_node is deprecated. Please use torch.utils._pytree.register_pytree_node instead.",
        FutureWarning,
        stacklevel=2,
    )
    if cls in _NODES:
        warnings.warn(f"{cls} is already registered as pytree node. Overwriting the previous registration.", stacklevel=2)
        _deregister_pytree_node(cls)
    options.pop("to_str_fn", None), options.pop("maybe_from_str_fn", None)
    register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def _private_register_pytree_node(cls, flatten_fn, unflatten_fn, **options):
    if cls not in _NODES:
        register_pytree_node(cls, flatten_fn, unflatten_fn, **options)


def _deregister_pytree_node(cls):
    """Undo `register_pytree_node`."""
    del _NODES[cls]


def _register_namedtuple(cls, *, serialized_type_name):
    """Give a class of namedtuples the name that it has in the text of a structure."""
    _NAMED_CLASSES[serialized_type_name], _NAMES_OF[cls] = cls, serialized_type_name


def _named_name(kind):
    if kind not in _NAMES_OF:
        raise NotImplementedError(f"Can't serialize TreeSpec of namedtuple class {kind}. Please register using `_register_namedtuple`.")
    return _NAMES_OF[kind]


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """Treat instances of a dataclass as nodes; of another class, with the names of its fields."""
    drop = list(drop_field_names or ())
    if not dataclasses.is_dataclass(cls):
        if field_names is None:
            raise ValueError("field_names must be specified with a list of all fields used to initialize the class, which is no dataclass.")
        names = list(field_names)
    else:
        known = [field.name for field in dataclasses.fields(cls) if field.init]
        names = [name for name in known if name not in drop] if field_names is None else list(field_names)
        missing = [name for name in known if name not in (*names, *drop)]
        unexpected = [name for name in (*names, *drop) if name not in known]
        if unexpected:
            raise ValueError(f"Unexpected fields {unexpected} specified for {cls}: its constructor does not take them.")
        if missing:
            raise ValueError(f"Missing fields {missing} for {cls}: name them in field_names, or in drop_field_names.")

    def flatten(value):
        return [getattr(value, name) for name in names], names

    def with_keys(value):
        return [(GetAttrKey(name), getattr(value, name)) for name in names], names

    register_pytree_node(
        cls,
        flatten,
        lambda children, names: cls(**dict(zip(names, children))),
        flatten_with_keys_fn=with_keys,
        serialized_type_name=serialized_type_name,
    )


@dataclasses.dataclass(frozen=True)
class ConstantNode:
    """The context of a value that is a part of the structure."""

    value: Any


def register_constant(cls):
    """Treat instances of `cls` as nodes without leaves."""
    for method in ("__eq__", "__hash__"):
        if getattr(cls, method) in (getattr(object, method), None):
            raise TypeError(
                f"register_constant(cls) expects `cls` to have a non-default `{method}` implementation. Got the default one for {cls}."
            )
    register_pytree_node(cls, lambda value: ([], ConstantNode(value)), lambda children, context: context.value)
    _CONSTANTS.add(cls)


_CONSTANTS = set()


def is_constant_class(cls):
    """Whether `register_constant` was told of the class."""
    return isinstance(cls, type) and cls in _CONSTANTS


def is_structseq_class(cls):
    """Whether a class is of the kind of `time.struct_time`, and of the named results of operators."""
    if not isinstance(cls, type) or not issubclass(cls, tuple) or cls is tuple:
        return False
    fields = all(isinstance(getattr(cls, name, None), int) for name in ("n_fields", "n_sequence_fields", "n_unnamed_fields"))
    return fields and cls.__flags__ & 1 << 10 == 0  # 1 << 10: classes may be made from it


def is_structseq_instance(obj):
    """Whether a value is of such a class."""
    return is_structseq_class(type(obj))


def is_structseq(obj):
    """Whether a value, or a class, is of that kind."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_class(cls):
    """Whether a class is one of namedtuples."""
    fields = getattr(cls, "_fields", None)
    return (
        isinstance(cls, type)
        and issubclass(cls, tuple)
        and isinstance(fields, tuple)
        and not hasattr(cls, "n_fields")
        and callable(getattr(cls, "_make", None))
    )


def is_namedtuple_instance(obj):
    """Whether a value is a namedtuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj):
    """Whether a value, or a class, is one of namedtuples."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def _kind(value):
    """What a value is a node as: its class, `namedtuple` for all of these; None for a leaf."""
    kind = type(value)
    if kind in _NODES:
        return kind
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return kind if hasattr(kind, "n_fields") else namedtuple
    return None


def _node_of(kind):
    return _NODES.get(kind) or _NAMED_RESULT


def _node(value):
    kind = _kind(value)
    return None if kind is None else _node_of(kind)


@dataclasses.dataclass(frozen=True)
class TreeSpec:
    """The structure of a nested value, without its leaves. `type` is None for a leaf."""

    type: Any
    context: Any
    children_specs: list

    @functools.cached_property
    def num_leaves(self):
        """How many leaves there are."""
        return 1 if self.type is None else sum(spec.num_leaves for spec in self.children_specs)

    @functools.cached_property
    def num_nodes(self):
        """How many nodes there are, with the leaves."""
        return 1 + sum(spec.num_nodes for spec in self.children_specs)

    @property
    def num_children(self):
        return len(self.children_specs)

    def is_leaf(self):
        return self.type is None

    def children(self):
        """The structures of the parts."""
        return list(self.children_specs)

    def child(self, index):
        """The structure of one part."""
        return self.children_specs[index]

    def flatten_up_to(self, tree):
        """The parts of a tree where this structure has leaves."""
        return _flatten_up_to(self, tree)

    def unflatten(self, leaves):
        return tree_unflatten(leaves, self)

    def __eq__(self, other):
        if not isinstance(other, TreeSpec):
            return NotImplemented
        return (self.type, self.context, self.children_specs) == (other.type, other.context, other.children_specs)

    def __hash__(self):
        context = tuple(self.context) if isinstance(self.context, list) and self.type is not defaultdict else None
        return hash((self.type, context, tuple(self.children_specs)))

    def __repr__(self, indent=0):
        if self.type is None:
            return "*"
        head = f"TreeSpec({self.type.__name__}, {self.context}, ["
        parts = [spec.__repr__(indent + 2) for spec in self.children_specs]
        return head + (",\n" + " " * (indent + 2)).join(parts) + "])"


def treespec_leaf():
    """The structure of a leaf."""
    return TreeSpec(None, None, [])


LeafSpec = treespec_leaf


def treespec_tuple(iterable=(), /):
    """The structure of a tuple, from those of its parts."""
    return TreeSpec(tuple, None, list(iterable))


def treespec_list(iterable=(), /):
    """The structure of a list, from those of its parts."""
    return TreeSpec(list, None, list(iterable))


def treespec_dict(mapping=(), /, **kwargs):
    """The structure of a dict, from those of its values."""
    parts = dict(mapping, **kwargs)
    return TreeSpec(dict, list(parts), list(parts.values()))


_PROTOCOL = 1


def treespec_dumps(treespec, protocol=None):
    """A structure as text (JSON), which `treespec_loads` reads."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"treespec_dumps(treespec, protocol): Expected `treespec` to be instance of TreeSpec but got item of type {type(treespec)}."
        )
    if protocol not in (None, _PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")

    def told(value):
        if isinstance(value, enum.Enum):
            return {"__enum__": True, "fqn": _full_name(type(value)), "name": value.name}
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")

    def dump(spec):
        if spec.type is None:
            return {"type": None, "context": None, "children_spec": []}
        node = _NODES.get(spec.type)
        if node is None or node.name is None:
            raise NotImplementedError(
                f"No registered serialization name for {spec.type} found. Please update your register_pytree_node call."
            )
        if node.dump is not None and node.name in (None, "collections.namedtuple"):
            context = json.dumps(node.dump(spec.context))
        elif node.dump is not None:
            context = json.dumps(node.dump(spec.context), default=told)
        else:
            context = json.dumps(spec.context, default=told)
        return {"type": node.name, "context": context, "children_spec": [dump(child) for child in spec.children_specs]}

    return json.dumps((_PROTOCOL, dump(treespec)))


def treespec_loads(serialized):
    """The structure that `treespec_dumps` wrote."""
    protocol, whole = json.loads(serialized)
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    kinds = {node.name: (kind, node) for kind, node in _NODES.items() if node.name is not None}

    def member(found):
        return _named_kind(found["fqn"])[found["name"]] if found.get("__enum__") else found

    def load(told):
        if told["type"] is None:
            return treespec_leaf()
        if told["type"] not in kinds:
            raise NotImplementedError(f"Unable to read the structure: no class is registered as {told['type']}.")
        kind, node = kinds[told["type"]]
        context = json.loads(told["context"], object_hook=member)
        context = context if node.load is None else node.load(context)
        return TreeSpec(kind, context, [load(child) for child in told["children_spec"]])

    return load(whole)


def tree_flatten(tree, is_leaf=None):
    """-> the leaves of a nested value in order, and its structure."""
    leaves = []

    def walk(value):
        node = None if is_leaf is not None and is_leaf(value) else _node(value)
        if node is None:
            leaves.append(value)
            return LeafSpec()
        children, context = node.flatten(value)
        return TreeSpec(_kind(value), context, [walk(child) for child in children])

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
        node = _node_of(spec.type)
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
    if node is None or _kind(tree) is not spec.type:
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
_list_flatten, _list_unflatten = _NODES[list].flatten, _NODES[list].unflatten
_tuple_flatten, _tuple_unflatten = _NODES[tuple].flatten, _NODES[tuple].unflatten


def _list_flatten_with_keys(value):
    return [(SequenceKey(i), item) for i, item in enumerate(value)], None


_tuple_flatten_with_keys = _list_flatten_with_keys


def _dict_unflatten(values, context):
    return dict(zip(context, values))


def _dict_flatten_with_keys(value):
    values, keys = _flatten_dict(value)
    return [(MappingKey(key), item) for key, item in zip(keys, values)], keys


def _get_node_type(tree):
    return _kind(tree) or type(tree)


def _is_leaf(tree, is_leaf=None):
    return (is_leaf is not None and is_leaf(tree)) or _kind(tree) is None


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """The leaves of a tree whose leaves stand for whole parts of the structure; None where it does not fit."""
    if treespec.type is None:
        return [tree] if _is_leaf(tree, is_leaf) else None
    if _is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    children, context = _node(tree).flatten(tree)
    if _kind(tree) is not treespec.type or len(children) != treespec.num_children or context != treespec.context:
        return None
    parts = [_broadcast_to_and_flatten(child, spec, is_leaf) for child, spec in zip(children, treespec.children_specs)]
    return None if None in parts else [leaf for part in parts for leaf in part]


def tree_is_leaf(tree, is_leaf=None):
    """Whether a value is a leaf."""
    return _is_leaf(tree, is_leaf)


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


def key_get(obj, kp):
    """What lies at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


def tree_leaves_with_path(tree, is_leaf=None):
    """The leaves with their paths."""
    found = []

    def walk(value, path):
        node = None if is_leaf is not None and is_leaf(value) else _node(value)
        if node is None:
            found.append((path, value))
            return
        if node.keys is not None:
            for key, child in node.keys(value)[0]:
                walk(child, (*path, key))
            return
        children = node.flatten(value)[0]
        if isinstance(value, dict):
            keys = [MappingKey(key) for key in value]
        elif hasattr(value, "_fields"):
            keys = [GetAttrKey(name) for name in value._fields]
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


def arg_tree_leaves(*args, **kwargs):
    """The leaves of the arguments of a call."""
    return [leaf for tree in (*args, *kwargs.values()) for leaf in tree_leaves(tree)]
