"""The `*_copy` operators: what a view operator shows, in fresh contiguous memory."""

from wisp import _core
from wisp._composites.reduce import into

_op = _core._operators[""]


def _copied(view, out=None):
    if out is not None:
        return into(out, view)
    return view.clone(memory_format=_core.contiguous_format)


def _copied_all(views, out=None):
    if out is None:
        return tuple(_copied(view) for view in views)
    if len(out) != len(views):
        raise RuntimeError(f"Expected {len(views)} tensors in out, but got {len(out)}")
    for target, view in zip(out, views):
        into(target, view)
    return None


def alias_copy(input, *, out=None):
    """A copy of the tensor."""
    return _copied(input, out)


def detach_copy(input, *, out=None):
    """A copy that is cut off from the graph."""
    return _copied(input.detach(), out)


def as_strided_copy(input, size, stride, storage_offset=None, *, out=None):
    """A copy of what `as_strided` shows."""
    return _copied(_op["as_strided"](input, size, stride, storage_offset), out)


def expand_copy(input, size, *, implicit=False, out=None):
    """A copy of what `expand` shows."""
    return _copied(input.expand(size), out)


def narrow_copy(input, dim, start, length, *, out=None):
    """A copy of what `narrow` shows."""
    return _copied(input.narrow(dim, start, length), out)


def permute_copy(input, dims, *, out=None):
    """A copy with its dimensions in another order."""
    return _copied(input.permute(dims), out)


def select_copy(input, dim, index, *, out=None):
    """A copy of what `select` shows."""
    return _copied(input.select(dim, index), out)


def slice_copy(input, dim=0, start=None, end=None, step=1, *, out=None):
    """A copy of a slice along one dimension."""
    if step < 1:
        raise RuntimeError("slice step must be positive")
    dim = dim if dim >= 0 else dim + input.dim()
    return _copied(input[(slice(None),) * dim + (slice(start, end, step),)], out)


def squeeze_copy(input, dim=None, *, out=None):
    """A copy without dimensions of size 1."""
    return _copied(input.squeeze() if dim is None else input.squeeze(dim), out)


def unsqueeze_copy(input, dim, *, out=None):
    """A copy with a further dimension of size 1."""
    return _copied(input.unsqueeze(dim), out)


def t_copy(input, *, out=None):
    """A copy of the transposed matrix."""
    return _copied(input.t(), out)


def transpose_copy(input, dim0, dim1, *, out=None):
    """A copy with two dimensions swapped."""
    return _copied(input.transpose(dim0, dim1), out)


def unfold_copy(input, dimension, size, step, *, out=None):
    """A copy of what `Tensor.unfold` shows."""
    return _copied(input.unfold(dimension, size, step), out)


def view_copy(input, size=None, dtype=None, *, out=None):
    """A copy with another shape, or of the same bytes in another dtype."""
    return _copied(input.view(size if size is not None else dtype), out)


def view_as_real_copy(input, *, out=None):
    """A copy of complex numbers as pairs of real ones."""
    return _copied(_op["view_as_real"](input), out)


def view_as_complex_copy(input, *, out=None):
    """A copy of pairs of real numbers as complex ones."""
    return _copied(_op["view_as_complex"](input), out)


def split_copy(input, split_size, dim=0, *, out=None):
    """Copies of the pieces of `split`."""
    return _copied_all(input.split(split_size, dim), out)


def split_with_sizes_copy(input, split_sizes, dim=0, *, out=None):
    """Copies of the pieces of `split_with_sizes`."""
    return _copied_all(input.split(list(split_sizes), dim), out)


def unbind_copy(input, dim=0, *, out=None):
    """Copies of the slices of `unbind`."""
    return _copied_all(input.unbind(dim), out)


FUNCTIONS = [function for name, function in globals().items() if name.endswith("_copy")]
METHODS = [narrow_copy]
INPLACE = []
