"""Leaves of nested arguments by a structure that is known: what is not in the structure is left out."""

from collections import OrderedDict, namedtuple

from wisp.utils._pytree import SUPPORTED_NODES, tree_flatten

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

SUPPORTED_NODES_FLATTEN_SPEC, SUPPORTED_NODES_EXACT_MATCH = {}, {}


def register_pytree_flatten_spec(cls, flatten_fn_spec, flatten_fn_exact_match_spec=None):
    """Say how a value of a class comes apart by a structure: `flatten_fn_spec(value, spec)` returns its parts."""
    SUPPORTED_NODES_FLATTEN_SPEC[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def tree_flatten_spec(pytree, spec):
    """The leaves of a value in the order of a structure.

    >>> import wisp.fx
    >>> from wisp.utils._pytree import tree_structure
    >>> wisp.fx._pytree.tree_flatten_spec({"b": 2, "a": 1}, tree_structure({"a": 0, "b": 0}))
    [1, 2]
    """
    if spec.is_leaf():
        return [pytree]
    flatten = SUPPORTED_NODES_FLATTEN_SPEC.get(spec.type)
    if flatten is not None:
        parts = flatten(pytree, spec)
    elif spec.type in SUPPORTED_NODES:
        parts = SUPPORTED_NODES[spec.type].flatten_fn(pytree)[0]
    else:
        return tree_flatten(pytree)[0]
    return [leaf for part, child in zip(parts, spec.children()) for leaf in tree_flatten_spec(part, child)]


register_pytree_flatten_spec(dict, lambda value, spec: [value[key] for key in spec.context])
register_pytree_flatten_spec(OrderedDict, lambda value, spec: [value[key] for key in spec.context])
register_pytree_flatten_spec(list, lambda value, spec: [value[i] for i in range(len(spec.children()))])
register_pytree_flatten_spec(tuple, lambda value, spec: [value[i] for i in range(len(spec.children()))])
register_pytree_flatten_spec(namedtuple, lambda value, spec: [value[i] for i in range(len(spec.children()))])
