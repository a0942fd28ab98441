"""Running results of an associative function along a dimension, in a logarithmic number of steps."""

import wisp
from wisp.utils import _pytree

__all__ = ["associative_scan"]


def associative_scan(combine_fn, xs, dim, reverse=False, combine_mode="pointwise"):
    """The results of combining the first element, the first two, the first three ... along `dim`.

    >>> import wisp
    >>> from wisp._higher_order_ops import associative_scan
    >>> associative_scan(lambda a, b: a + b, wisp.tensor([1.0, 2.0, 3.0]), 0)
    tensor([1., 3., 6.])
    """
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("associative_scan: expected at least one tensor to scan")
    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]
    size, step = leaves[0].shape[dim], 1

    def combined(first, second):
        return _pytree.tree_leaves(combine_fn(_pytree.tree_unflatten(first, spec), _pytree.tree_unflatten(second, spec)))

    while step < size:
        # elements from `step` on take in what lies `step` before them, which covers twice as much every time
        before = [leaf.narrow(dim, 0, size - step) for leaf in leaves]
        here = [leaf.narrow(dim, step, size - step) for leaf in leaves]
        new = combined(before, here)
        leaves = [wisp.cat([leaf.narrow(dim, 0, step), part], dim) for leaf, part in zip(leaves, new)]
        step *= 2
    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]
    return _pytree.tree_unflatten(leaves, spec)
