"""Choices and loops as functions."""

import builtins

import wisp
from wisp import cond, while_loop
from wisp.utils import _pytree

__all__ = ["cond", "map", "scan", "while_loop"]


def scan(combine_fn, init, xs, *, dim=0, reverse=False):
    """`carry, y = combine_fn(carry, x)` for the slices of `xs` in turn: the last carry and all y.

    >>> import wisp
    >>> from wisp._higher_order_ops import scan
    >>> scan(lambda carry, x: (carry + x, carry * x), wisp.tensor(1.0), wisp.tensor([2.0, 3.0]))
    (tensor(6.), tensor([2., 9.]))
    """
    leaves, spec = _pytree.tree_flatten(xs)
    order = range(leaves[0].shape[dim])
    results = []
    for i in reversed(order) if reverse else order:
        init, y = combine_fn(init, _pytree.tree_unflatten([leaf.select(dim, i) for leaf in leaves], spec))
        results.append(y)
    if reverse:
        results.reverse()
    return init, _pytree.tree_map(lambda *parts: wisp.stack(parts, dim), results[0], *results[1:])


def map(f, xs, *args):
    """`f(x, *args)` for the slices of `xs` along the first dimension, stacked.

    >>> import wisp
    >>> from wisp._higher_order_ops import map
    >>> map(lambda x: x * 2, wisp.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    leaves, spec = _pytree.tree_flatten(xs)
    results = builtins.list(
        builtins.map(lambda i: f(_pytree.tree_unflatten([leaf[i] for leaf in leaves], spec), *args), range(leaves[0].shape[0]))
    )
    return _pytree.tree_map(lambda *parts: wisp.stack(parts), results[0], *results[1:])
