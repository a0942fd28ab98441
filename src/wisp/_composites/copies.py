"""The `*_copy` operators: what a view operator shows, in fresh contiguous memory."""

from wisp import _core
from wisp._composites.reduce import into

_op = _core._operators[""]


def _copy(view):
    return view.clone(memory_format=_core.contiguous_format)


def _copied(view, input, name, out=None):
    """What the function `view` shows of the input; `name`: of the view's node."""
    if out is not None:
        return into(out, view(input), exact=True)
    return _core._whole(name + "_copy", lambda x: _copy(view(x)), input)


def _copied_all(view, input, name, out=None):
    if out is None:
        return _core._whole(name + "_copy", lambda x: tuple(_copy(part) for part in view(x)), input)
    views = view(input)
    if len(out) != len(views):
        raise RuntimeError(f"Expected {len(views)} tensors in out, but got {len(out)}")
    for target, view in zip(out, views):
        into(target, view, exact=True)
    return None


def alias_copy(input, *, out=None):
    """A copy of the tensor."""
    return _copied(lambda x: x, input, "AliasBackward0", out)


def detach_copy(input, *, out=None):
    """A copy that is cut off from the graph."""
    return _copy(input.detach()) if out is None else into(out, input.detach(), exact=True)


def as_strided_copy(input, size, stride, storage_offset=None, *, out=None):
    """A copy of what `as_strided` shows."""
    return _copied(lambda x: _op["as_strided"](x, size, stride, storage_offset), input, "AsStridedBackward0", out)


def expand_copy(input, size, *, implicit=False, out=None):
    """A copy of what `expand` shows."""
    return _copied(lambda x: x.expand(size), input, "ExpandBackward0", out)


def narrow_copy(input, dim, start, length, *, out=None):
    """A copy of what `narrow` shows."""
    if out is not None:
        return into(out, input.narrow(dim, start, length), exact=True)
    return _core._whole("NarrowCopyBackward0", lambda x: _copy(x.narrow(dim, start, length)), input)


def permute_copy(input, dims, *, out=None):
    """A copy with its dimensions in another order."""
    return _copied(lambda x: x.permute(dims), input, "PermuteBackward0", out)


def select_copy(input, dim, index, *, out=None):
    """A copy of what `select` shows."""
    return _copied(lambda x: x.select(dim, index), input, "SelectBackward0", out)


def slice_copy(input, dim=0, start=None, end=None, step=1, *, out=None):
    """A copy of a slice along one dimension."""
    if step < 1:
        raise RuntimeError("slice step must be positive")
    dim = dim if dim >= 0 else dim + input.dim()
    return _copied(lambda x: x[(slice(None),) * dim + (slice(start, end, step),)], input, "SliceBackward0", out)


def squeeze_copy(input, dim=None, *, out=None):
    """A copy without dimensions of size 1."""
    number = 0 if dim is None else 1 if isinstance(dim, int) else 2
    return _copied(lambda x: x.squeeze() if dim is None else x.squeeze(dim), input, f"SqueezeBackward{number}", out)


def unsqueeze_copy(input, dim, *, out=None):
    """A copy with a further dimension of size 1."""
    return _copied(lambda x: x.unsqueeze(dim), input, "UnsqueezeBackward0", out)


def t_copy(input, *, out=None):
    """A copy of the transposed matrix."""
    return _copied(lambda x: x.t(), input, "TBackward0", out)


def transpose_copy(input, dim0, dim1, *, out=None):
    """A copy with two dimensions swapped."""
    return _copied(lambda x: x.transpose(dim0, dim1), input, "TransposeBackward0", out)


def unfold_copy(input, dimension, size, step, *, out=None):
    """A copy of what `Tensor.unfold` shows."""
    return _copied(lambda x: x.unfold(dimension, size, step), input, "UnfoldBackward0", out)


def view_copy(input, size=None, dtype=None, *, out=None):
    """A copy with another shape, or of the same bytes in another dtype."""
    return _copied(lambda x: x.view(size if size is not None else dtype), input, "ViewBackward0", out)


def view_as_real_copy(input, *, out=None):
    """A copy of complex numbers as pairs of real ones."""
    return _copied(_op["view_as_real"], input, "ViewAsRealBackward0", out)


def view_as_complex_copy(input, *, out=None):
    """A copy of pairs of real numbers as complex ones."""
    return _copied(_op["view_as_complex"], input, "ViewAsComplexBackward0", out)


def split_copy(input, split_size, dim=0, *, out=None):
    """Copies of the pieces of `split`."""
    return _copied_all(lambda x: x.split(split_size, dim), input, "SplitBackward0", out)


def split_with_sizes_copy(input, split_sizes, dim=0, *, out=None):
    """Copies of the pieces of `split_with_sizes`."""
    return _copied_all(lambda x: x.split(list(split_sizes), dim), input, "SplitWithSizesBackward0", out)


def unbind_copy(input, dim=0, *, out=None):
    """Copies of the slices of `unbind`."""
    return _copied_all(lambda x: x.unbind(dim), input, "UnbindBackward0", out)


def indices_copy(input, *, out=None):
    """A copy of the coordinates of a sparse tensor's elements.

    >>> import wisp
    >>> wisp.indices_copy(wisp.eye(2).to_sparse())
    tensor([[0, 1],
            [0, 1]])
    """
    return _held(input.indices(), out)


def values_copy(input, *, out=None):
    """A copy of the values of a sparse tensor's elements."""
    return _copied(lambda x: x.values(), input, "ValuesBackward0", out)


def crow_indices_copy(input, *, out=None):
    """A copy of where the rows of a sparse tensor begin."""
    return _held(input.crow_indices(), out)


def col_indices_copy(input, *, out=None):
    """A copy of the columns of a sparse tensor's elements, row by row."""
    return _held(input.col_indices(), out)


def ccol_indices_copy(input, *, out=None):
    """A copy of where the columns of a sparse tensor begin."""
    return _held(input.ccol_indices(), out)


def row_indices_copy(input, *, out=None):
    """A copy of the rows of a sparse tensor's elements, column by column."""
    return _held(input.row_indices(), out)


def _held(indices, out):
    return indices.clone() if out is None else into(out, indices, exact=True)


FUNCTIONS = [function for name, function in globals().items() if name.endswith("_copy")]
METHODS = [narrow_copy]
INPLACE = []
