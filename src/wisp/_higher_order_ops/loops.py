"""Choices and loops as functions."""

import builtins

import wisp
from wisp.utils import _pytree

__all__ = ["cond", "map", "scan", "while_loop"]


def cond(pred, true_fn, false_fn, operands=()):
    """`true_fn(*operands)` or `false_fn(*operands)`.

    >>> import wisp
    >>> from wisp._higher_order_ops import cond
    >>> cond(wisp.tensor(True), lambda x: x + 1, lambda x: x - 1, (wisp.ones(1),))
    tensor([2.])
    """
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """Replace the values by `body_fn(*values)` while `cond_fn(*values)`.

    >>> import wisp
    >>> from wisp._higher_order_ops import while_loop
    >>> while_loop(lambda i: i < 3, lambda i: (i + 1,), (wisp.tensor(0),))
    (tensor(3),)
    """
    values = tuple(carried_inputs)
    while bool(cond_fn(*values)):
        values = body_fn(*values)
        values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    return values


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
