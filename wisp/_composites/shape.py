"""Composites that arrange shapes: broadcasting, grids, splits by direction, and the copying forms of views."""
import itertools

from wisp import _core


def _listed(tensors):
    """The tensors of f(*tensors) or f([tensors])."""
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else list(tensors)


def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes broadcast to.

    >>> wisp.broadcast_shapes((2,), (3, 1), (1, 1, 1))
    torch.Size([1, 3, 2])
    """
    result = []
    for shape in shapes:
        shape = [shape] if isinstance(shape, int) else list(shape)
        if any(n < 0 for n in shape):
            raise RuntimeError(f"Trying to create tensor with negative dimension ({min(shape)}): ({min(shape)})")
        result = [1] * (len(shape) - len(result)) + result
        for i, n in enumerate(shape, len(result) - len(shape)):
            if n != 1 and result[i] not in (1, n):
                raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
            result[i] = n if result[i] == 1 else result[i]
    return _core.Size(result)


def broadcast_tensors(*tensors):
    tensors = _listed(tensors)
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return tuple(t.expand(shape) for t in tensors)


def meshgrid(*tensors, indexing=None):
    """Grids of coordinates from vectors: "ij" has the first vector along rows, "xy" along columns."""
    tensors = _listed(tensors)
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if any(t.dim() > 1 for t in tensors):
        raise RuntimeError("torch.meshgrid: Expected 0D or 1D tensors in the tensor list")
    if len({t.dtype for t in tensors}) > 1:
        raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    swap = indexing == "xy" and len(tensors) >= 2
    if swap:
        tensors[:2] = tensors[1::-1]
    shape = [t.numel() for t in tensors]
    grids = [t.reshape([-1 if i == k else 1 for i in range(len(tensors))]).expand(shape) for k, t in enumerate(tensors)]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


def cartesian_prod(*tensors):
    tensors = _listed(tensors)
    for t in tensors:
        if t.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return _core.stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input, r=2, with_replacement=False):
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return _core.empty(0, dtype=input.dtype)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.numel()), r))
    index = _core.tensor(rows, dtype=_core.int64) if rows else _core.empty((0, r), dtype=_core.int64)
    return input[index.reshape(-1)].reshape(len(rows), r)


def _each(function):
    def f(*tensors):
        if len(tensors) == 1 and isinstance(tensors[0], _core.Tensor):
            return function(tensors[0])
        return tuple(function(t) for t in _listed(tensors))
    f.__name__ = function.__name__
    return f


@_each
def atleast_1d(x):
    return x if x.dim() else x.reshape(1)


@_each
def atleast_2d(x):
    return x if x.dim() >= 2 else x.reshape(1, 1) if x.dim() == 0 else x.unsqueeze(0)


@_each
def atleast_3d(x):
    return x if x.dim() >= 3 else x.reshape(1, 1, 1) if x.dim() == 0 else x[None, :, None] if x.dim() == 1 else x.unsqueeze(-1)


def _directional(name, least, dim):
    def f(input, indices_or_sections):
        if input.dim() < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {input.dim()} dimensions!")
        d = 0 if name == "hsplit" and input.dim() == 1 else dim
        if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or input.shape[d] % indices_or_sections):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {d}, but the size of the dimension {input.shape[d]} is not "
                               f"divisible by the split_size {indices_or_sections}!")
        return input.tensor_split(indices_or_sections, d)
    f.__name__ = name
    return f


hsplit = _directional("hsplit", 1, 1)
vsplit = _directional("vsplit", 2, 0)
dsplit = _directional("dsplit", 3, 2)


def unsafe_chunk(input, chunks, dim=0):
    return input.chunk(chunks, dim)


def unsafe_split(input, split_size, dim=0):
    return input.split(split_size, dim)


def _copying(name, out_list=False):
    """The form of a view that makes a copy."""
    def f(input, *args, out=None, **kwargs):
        view = input.view(input.shape) if name == "alias" else getattr(input, name)(*args, **kwargs)
        if isinstance(view, (tuple, list)):
            copies = tuple(v.clone() for v in view)
            if out is None:
                return copies
            for o, c in zip(out, copies):
                _into(o, c)
            return None
        return _into(out, view.clone() if view.is_contiguous() else view.contiguous())
    f.__name__ = name + "_copy"
    return f


def _into(out, result):
    if out is None:
        return result
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result.detach())


COPIES = [_copying(n) for n in ("alias", "as_strided", "expand", "narrow", "permute", "select", "slice", "split", "split_with_sizes", "squeeze",
                                "t", "transpose", "unbind", "unfold", "unsqueeze", "view")]


def narrow_method(self, dim, start, length):
    return self.narrow(dim, start, length).clone()


narrow_method.__name__ = "narrow_copy"


def unravel_index(indices, shape):
    """Coordinates of flat indices in a tensor of `shape`, one tensor per dimension."""
    if not isinstance(indices, _core.Tensor):
        raise TypeError(f"unravel_index(): argument 'indices' must be Tensor, not {type(indices).__name__}")
    if indices.dtype.is_floating_point or indices.dtype.is_complex or indices.dtype == _core.bool:
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(n < 0 for n in shape):
        raise ValueError(f"'shape' cannot have negative values, but got {shape}")
    result = []
    for n in reversed(shape):
        result.append(indices % n)
        indices = indices.div(n, rounding_mode="floor")
    return tuple(reversed(result))


def empty_permuted(size, physical_layout, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """An uninitialised tensor whose dimensions lie in memory in the given order."""
    if sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(f"physical_layout must be a permutation of the dimensions, got {tuple(physical_layout)} for {len(size)} dimensions")
    base = _core.empty([size[i] for i in physical_layout], dtype=dtype, device=device)
    return base.permute([list(physical_layout).index(i) for i in range(len(size))]).requires_grad_(requires_grad)


FUNCTIONS = [broadcast_shapes, broadcast_tensors, meshgrid, cartesian_prod, combinations, atleast_1d, atleast_2d, atleast_3d, hsplit, vsplit,
             dsplit, unsafe_chunk, unsafe_split, unravel_index, empty_permuted] + COPIES
METHODS = [hsplit, vsplit, dsplit, unsafe_chunk, unsafe_split, narrow_method]
INPLACE = []
