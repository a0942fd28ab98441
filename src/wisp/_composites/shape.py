"""Composites that arrange: broadcasting, grids, combinations, splits, indices."""

import warnings

from wisp import _core
from wisp._composites._samples import by_samples
from wisp._composites.reduce import functions_of, into
from wisp._signatures import renamed

_op = _core._operators[""]


def _many(tensors):
    return tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors


def _atleast(tensors, one):
    if len(tensors) == 1 and isinstance(tensors[0], _core.Tensor):
        return one(tensors[0])
    return tuple(one(t) for t in _many(tensors))


def atleast_1d(*tensors):
    """The tensors, those without dimensions as vectors of one element."""
    return _atleast(tensors, lambda t: t.reshape(1) if t.dim() == 0 else t)


def atleast_2d(*tensors):
    """The tensors, with dimensions of size 1 put in front until there are two."""
    return _atleast(tensors, lambda t: t.reshape(1, 1) if t.dim() == 0 else t.unsqueeze(0) if t.dim() == 1 else t)


def atleast_3d(*tensors):
    """The tensors with at least three dimensions: vectors become 1 x n x 1, matrices n x m x 1."""

    def one(t):
        if t.dim() == 0:
            return t.reshape(1, 1, 1)
        return t.unsqueeze(0).unsqueeze(-1) if t.dim() == 1 else t.unsqueeze(-1) if t.dim() == 2 else t

    return _atleast(tensors, one)


def broadcast_shapes(*shapes):
    """The shape that shapes broadcast to.

    >>> import wisp
    >>> wisp.broadcast_shapes((2,), (3, 1), (1, 1, 1))
    torch.Size([1, 3, 2])
    """
    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    result = [1] * max((len(s) for s in shapes), default=0)
    for shape in shapes:
        for i in range(-1, -1 - len(shape), -1):
            if shape[i] < 0:
                raise ValueError(f"Attempting to broadcast a dimension with negative length! (shape {shape})")
            if shape[i] in (1, result[i]):
                continue
            if result[i] != 1:
                raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
            result[i] = shape[i]
    return _core.Size(result)


def broadcast_tensors(*tensors):
    """The tensors, each expanded to the shape that they share."""
    tensors = _many(tensors)
    shape = []
    for tensor in tensors:
        sizes = list(tensor.shape)
        longer, shorter = (sizes, shape) if len(sizes) > len(shape) else (shape, sizes)
        merged = list(longer)
        for i in range(-1, -1 - len(shorter), -1):
            a, b = shape[i], sizes[i]
            if a != b and 1 not in (a, b):
                raise RuntimeError(
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {len(merged) + i}"
                )
            merged[i] = b if a == 1 else a
        shape = merged
    return tuple(t.expand(shape) for t in tensors)


def meshgrid(*tensors, indexing=None):
    """Grids of coordinates from vectors, by rows ('ij', the default) or Cartesian ('xy')."""
    tensors = _many(tensors)
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in tensors:
        if t.dim() > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t}")
        if t.dtype != tensors[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
        if t.device != tensors[0].device:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    if indexing is None:
        warnings.warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.", stacklevel=2)
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swap = indexing == "xy" and len(tensors) >= 2
    if swap:
        tensors = (tensors[1], tensors[0]) + tuple(tensors[2:])
    shape = [t.numel() for t in tensors]
    grids = [t.reshape([-1 if j == i else 1 for j in range(len(shape))]).expand(shape) for i, t in enumerate(tensors)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def cartesian_prod(*tensors):
    """Every combination of an element of each vector, a row each."""
    tensors = _many(tensors)
    for t in tensors:
        if t.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return _core.stack([g.flatten() for g in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input, r=2, with_replacement=False):
    """Every choice of r elements of a vector, a row each."""
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return _core.empty(0, dtype=input.dtype, device=input.device)
    n, step = input.numel(), 0 if with_replacement else 1
    size = n + (r - 1) * (1 - step)  # of so many there are as many choices without repetition
    count = 1 if size >= r else 0
    for i in range(min(r, size - r)):
        count = count * (size - i) // (i + 1)
        if count * r >> 60:
            raise RuntimeError(f"combinations(): the choices of {r} of {n} elements are more than memory has places for")
    if not count:
        return input[:0, None].expand(0, r).clone(memory_format=_core.contiguous_format)
    input.new_empty(count, r)  # raises if it does not fit
    return _core.stack([input[column] for column in _choices(n, r, step, input.device)], 1)


def _choices(n, r, step, device):
    """The rows of r ascending numbers below n, in order, as columns; each number is at least `step` above the one before."""
    columns = []
    for left in reversed(range(r)):  # columns to come, which need larger numbers
        end = n - left * step
        first = columns[-1] + step if columns else _core.zeros(1, dtype=_core.int64, device=device)
        following = (end - first).clamp(min=0)  # of each row that there is
        columns = [column.repeat_interleave(following) for column in columns]
        ends = following.cumsum(0)
        columns.append(_core.arange(int(ends[-1]), device=device) - (ends - following - first).repeat_interleave(following))
    return columns


def _split_at(input, indices_or_sections, dim, name, least):
    if input.dim() < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension{'s' if least > 1 else ''}, "
            f"but got a tensor with {input.dim()} dimensions!"
        )
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections == 0 or input.shape[dim] % sections:
            raise RuntimeError(
                f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {input.shape[dim]} is not "
                f"divisible by the split_size {sections}!"
            )
    return input.tensor_split(indices_or_sections, dim)


def hsplit(input, indices_or_sections):
    """Pieces side by side: along dimension 1, or 0 of a vector."""
    return _split_at(input, indices_or_sections, 0 if input.dim() == 1 else 1, "hsplit", 1)


def vsplit(input, indices_or_sections):
    """Pieces below each other: along dimension 0."""
    return _split_at(input, indices_or_sections, 0, "vsplit", 2)


def dsplit(input, indices_or_sections):
    """Pieces in depth: along dimension 2."""
    return _split_at(input, indices_or_sections, 2, "dsplit", 3)


def _unsafe(input, pieces, dim, even=True):
    return _core._unsafe_split(input, [p.shape[dim] for p in pieces], dim, even)


def unsafe_chunk(input, chunks, dim=0):
    """`chunk` whose pieces may be changed in place without a check."""
    return _unsafe(input, input.detach().chunk(chunks, dim), dim)


def unsafe_split(tensor, split_size_or_sections, dim=0):
    """`split` whose pieces may be changed in place without a check."""
    return _unsafe(tensor, tensor.detach().split(split_size_or_sections, dim), dim, isinstance(split_size_or_sections, int))


def unsafe_split_with_sizes(input, split_sizes, dim=0):
    """`split_with_sizes` whose pieces may be changed in place without a check."""
    return unsafe_split(input, list(split_sizes), dim)


def unravel_index(indices, shape):
    """The coordinates, one tensor per dimension, that flat indices have in an array of that shape."""
    if not isinstance(indices, _core.Tensor):
        raise TypeError(f"expected 'indices' to be a tensor, but got {type(indices)}")
    if indices.is_complex() or indices.is_floating_point() or indices.dtype == _core.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if isinstance(shape, int):
        shape = (shape,)
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for size in shape:
        if not isinstance(size, int):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(size)}")
    if any(size < 0 for size in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {tuple(shape)}")
    result, step = [], 1
    for size in reversed(shape):
        result.append(indices.to(_core.int64).div(step, rounding_mode="floor") % size)
        step *= size
    return tuple(reversed(result))


@by_samples
def nonzero_static(input, *, size, fill_value=-1, out=None):
    """`nonzero` with a fixed number of rows: cut off, or filled up with `fill_value`."""
    if size < 0:
        raise RuntimeError("nonzero_static: 'size' must be an non-negative integer")
    found = input.nonzero()[:size]
    if found.shape[0] < size:
        rest = _core.full((size - found.shape[0], found.shape[1]), fill_value, dtype=_core.int64, device=found.device)
        found = _core.cat([found, rest])
    return into(out, found)


def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Uninitialised memory whose dimensions lie in memory in the order given."""
    if len(physical_layout) != len(size):
        raise RuntimeError(
            f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {len(size)} is not equal "
            f"to len(physical_layout) = {len(physical_layout)}"
        )
    stride, step = [0] * len(size), 1
    seen = set()
    for d in reversed(physical_layout):
        if not 0 <= d < len(size):
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got {d} at index "
                f"{list(physical_layout).index(d)}).  NB: negative dims not currently supported; file an issue if you want it."
            )
        if d in seen:
            raise RuntimeError("Duplicate dim not allowed")
        seen.add(d)
        stride[d], step = step, step * max(size[d], 1)
    return _core.empty_strided(size, stride, dtype=dtype, device=device, requires_grad=requires_grad)


def resize_as_(input, the_template, *, memory_format=None):
    """Give the tensor the shape of another; memory that is new is uninitialised."""
    if memory_format is _core.preserve_format:
        formats = (_core.contiguous_format, _core.channels_last, _core.channels_last_3d)
        memory_format = next((f for f in formats if the_template.is_contiguous(memory_format=f)), None)
    return input.resize_(the_template.shape, memory_format=memory_format)


def fill_diagonal_(input, fill_value, wrap=False):
    """Write a number to the main diagonal, in place."""
    if input.dim() < 2:
        raise RuntimeError("dimensions must larger than 1")
    if input.dim() > 2 and len(set(input.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    length, stride = min(input.shape), sum(input.stride())
    input.as_strided((length,), (stride,), input.storage_offset()).fill_(fill_value)
    if wrap and input.dim() == 2 and input.shape[0] > input.shape[1] + 1:
        rows, columns = input.shape
        for start in range(columns + 1, rows, columns + 1):
            input[start:].diagonal().fill_(fill_value)
    return input


def is_tensor(obj):
    """Whether the object is a tensor."""
    return isinstance(obj, _core.Tensor)


FUNCTIONS = functions_of(globals(), "fill_diagonal_")
# The names by which PyTorch documents the parameters of the methods.
_SPLITS = (
    renamed(split, f"{split.__name__}(split_size_or_sections)", split_size_or_sections="indices_or_sections")
    for split in (hsplit, vsplit, dsplit)
)
METHODS = [
    *_SPLITS,
    renamed(unsafe_split, "unsafe_split(split_size, dim=0)", split_size="split_size_or_sections"),
    renamed(resize_as_, "resize_as_(tensor, memory_format=torch.contiguous_format)", tensor="the_template"),
    unsafe_chunk,
    unsafe_split_with_sizes,
    nonzero_static,
    fill_diagonal_,
]
INPLACE = []
