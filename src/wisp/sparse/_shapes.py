"""Operators that move, pick or join the entries of sparse tensors."""

import wisp
from wisp.sparse._compressed import BLOCKED, TRANSPOSED
from wisp.sparse._operators import BY_VALUES, _coo, _dim, _is_sparse, _operator
from wisp.sparse._tensor import _COO, flat, make, refused


@_operator("transpose", "swapaxes", "swapdims")
def transpose(input, dim0, dim1):
    a, b = _dim(input, dim0), _dim(input, dim1)
    order = list(range(input.dim()))
    order[a], order[b] = b, a
    if input._kind is not _COO and input.dense_dim():
        raise RuntimeError("transpose(): hybrid sparse compressed tensors with dense dimensions are not supported; go by to_sparse_coo()")
    if input._kind is not _COO and (kinds := [_kind_of(input, d) for d in (a, b)])[0] != kinds[1]:
        raise RuntimeError(
            "transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), "
            f"got {dim0}({kinds[0]}) and {dim1}({kinds[1]})"
        )
    if a == b and input._kind is not _COO:
        return make(input._kind, input._index, input._sparse_values, input.shape, True)._as_view_of(input)
    return permute(input, order)


def _kind_of(compressed, dim):
    return "Batch" if dim < compressed._batch_dim() else "Sparse" if dim < compressed._batch_dim() + 2 else "Dense"


@_operator("t")
def t(input):
    if input.dim() > 2 and input._kind is not _COO:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.dim()}D")
    if input.dim() > 2 or input._kind is _COO and input.sparse_dim() > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {input.sparse_dim()} sparse and "
            f"{input.dense_dim()} dense dimensions"
        )
    return transpose(input, 0, 1) if input.dim() == 2 else input


@_operator("permute")
def permute(input, *dims, **kwargs):
    dims = kwargs.get("dims", dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)
    dims = [_dim(input, d) for d in dims]
    if sorted(dims) != list(range(input.dim())):
        raise RuntimeError(f"permute(sparse_coo): {dims} is no order of the {input.dim()} dimensions")
    if dims == list(range(input.dim())):
        return input
    size = [input.size(d) for d in dims]
    if input._kind is not _COO:
        return _permuted(input, dims, size)
    sparse = input.sparse_dim()
    if any(d >= sparse for d in dims[:sparse]):
        raise RuntimeError("permute(sparse_coo): a sparse and a dense dimension cannot be exchanged")
    values = input._sparse_values
    if dims[sparse:] != list(range(sparse, input.dim())):
        values = values.permute(0, *(d - sparse + 1 for d in dims[sparse:]))
    outer = dims[:sparse]
    same = outer == list(range(sparse))
    return make(_COO, (input._index[0] if same else input._index[0][outer],), values, size, input._coalesced and same)


@_operator("adjoint")
def adjoint(input):
    return input.mH


BY_VALUES.update((transpose, t, permute, adjoint))


def _permuted(input, dims, size):
    """A compressed tensor with its dimensions in another order: the same entries in a layout of rows instead of columns, or the reverse,
    where the two sparse dimensions are exchanged. Where batch, sparse and dense dimensions change places, it is made by coordinates."""
    batch = input._batch_dim()
    if sorted(dims[:batch]) != list(range(batch)) or set(dims[batch : batch + 2]) != {batch, batch + 1}:
        return permute(_coo(input), dims)
    turned = dims[batch] > dims[batch + 1]
    block = 2 if input._kind in BLOCKED else 0
    lead, first = dims[:batch], batch + 1
    inner = [first + 1, first] if block and turned else [first, first + 1][:block]
    index = tuple(part.permute(*lead, batch) for part in input._index)
    values = input._sparse_values.permute(*lead, batch, *inner, *(d - 1 + block for d in dims[batch + 2 :]))
    return make(TRANSPOSED[input._kind] if turned else input._kind, index, values, size, True)._as_view_of(input)


@_operator("unsqueeze")
def unsqueeze(input, dim):
    input = _coo(input)
    if not -input.dim() - 1 <= dim <= input.dim():
        raise IndexError(f"Dimension out of range (expected to be in range of [{-input.dim() - 1}, {input.dim()}], but got {dim})")
    dim, sparse, index, values = dim % (input.dim() + 1), input.sparse_dim(), input._index[0], input._sparse_values
    size = [*input.shape[:dim], 1, *input.shape[dim:]]
    if dim <= sparse:
        zeros = index.new_zeros((1, index.size(1)))
        return make(_COO, (wisp.cat([index[:dim], zeros, index[dim:]]),), values, size, False)
    return make(_COO, (index,), values.unsqueeze(dim - sparse + 1), size, input._coalesced)


@_operator("view_as_real")
def view_as_real(input):
    if input._kind is not _COO:
        raise refused("view_as_real")
    return make(_COO, input._index, wisp.view_as_real(input._sparse_values), [*input.shape, 2], input._coalesced)


@_operator("view_as_complex")
def view_as_complex(input):
    if input._kind is not _COO:
        raise refused("view_as_complex")
    if input.dim() == 0 or input.shape[-1] != 2 or input.dense_dim() == 0:
        raise RuntimeError(
            "view_as_complex_sparse is only supported for sparse tensors with the last dim == 2 and dense_dim > 0. "
            f"Got shape {tuple(input.shape)} with {input.dense_dim()} dense dimensions"
        )
    return make(_COO, input._index, wisp.view_as_complex(input._sparse_values), input.shape[:-1], input._coalesced)


def _entries(input, keep):
    """The entries whose numbers are in `keep`."""
    return input._index[0].index_select(1, keep), input._sparse_values.index_select(0, keep)


@_operator("select")
def select(input, dim, index):
    dim = _dim(input, dim)
    if not -input.size(dim) <= index < input.size(dim):
        raise IndexError(f"select(): index {index} out of range for tensor of size {tuple(input.shape)} at dimension {dim}")
    index %= input.size(dim)
    if input._is_general():
        batch = input._index[0].dim() - 1
        size = [n for d, n in enumerate(input.shape) if d != dim]
        if dim < batch:
            parts = tuple(part.select(dim, index) for part in input._index)
            return make(input._kind, parts, input._sparse_values.select(dim, index), size, True)
        if dim >= batch + 2:
            place = dim - 1 + (2 if input._blocksize() else 0)
            return make(input._kind, input._index, input._sparse_values.select(place, index), size, True)
        if batch:
            raise RuntimeError("selecting sparse dimensions is not supported for batched sparse compressed tensors.")
    input = _coo(input)
    sparse = input.sparse_dim()
    size = [n for d, n in enumerate(input.shape) if d != dim]
    if dim >= sparse:
        return make(_COO, input._index, input._sparse_values.select(dim - sparse + 1, index), size, input._coalesced)
    coordinates, values = _entries(input, (input._index[0][dim] == index).nonzero().squeeze(1))
    if sparse == 1:
        return values.sum(0, dtype=values.dtype)
    coordinates = coordinates[[d for d in range(sparse) if d != dim]]
    return make(_COO, (coordinates,), values, size, input._coalesced)


BY_VALUES.add(select)


@_operator("unbind")
def unbind(input, dim=0):
    return tuple(select(input, dim, i) for i in range(input.size(_dim(input, dim))))


@_operator("narrow_copy", "narrow")
def narrow_copy(input, dim, start, length):
    input = _coo(input)
    dim, sparse = _dim(input, dim), input.sparse_dim()
    start = start + input.size(dim) if start < 0 else start
    if not 0 <= start <= start + length <= input.size(dim):
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({input.size(dim)}).")
    size = [length if d == dim else n for d, n in enumerate(input.shape)]
    if dim >= sparse:
        return make(_COO, input._index, input._sparse_values.narrow(dim - sparse + 1, start, length), size, input._coalesced)
    row = input._index[0][dim]
    coordinates, values = _entries(input, ((row >= start) & (row < start + length)).nonzero().squeeze(1))
    coordinates[dim] -= start
    return make(_COO, (coordinates,), values, size, input._coalesced)


@_operator("index_select")
def index_select(input, dim, index):
    kind, input = input._kind, _coo(input)
    dim, sparse = _dim(input, dim), input.sparse_dim()
    size = [index.numel() if d == dim else n for d, n in enumerate(input.shape)]
    if dim >= sparse:
        return make(_COO, input._index, input._sparse_values.index_select(dim - sparse + 1, index), size, input._coalesced)
    index = index.long().reshape(-1)
    if index.numel() and not -input.size(dim) <= int(index.min()) <= int(index.max()) < input.size(dim):
        raise IndexError(f"index_select(): an index is out of range for a dimension of size {input.size(dim)}")
    index = wisp.where(index < 0, index + input.size(dim), index)
    row, order = input._index[0][dim].sort(stable=True)  # the entries of a slice lie together
    first, last = wisp.searchsorted(row, index), wisp.searchsorted(row, index, right=True)
    count = last - first
    place = wisp.arange(index.numel(), device=index.device).repeat_interleave(count)
    within = wisp.arange(place.numel(), device=place.device) - (count.cumsum(0) - count)[place]
    coordinates, values = _entries(input, order[first[place] + within])
    coordinates[dim] = place
    return make(_COO, (coordinates,), values, size, False)._converted(layout=kind)


def index(input, key):
    """input[key], for integers, full slices, slices of step 1 and index tensors."""
    keys = key if isinstance(key, tuple) else (key,)
    if any(k is Ellipsis for k in keys):
        at = [k is Ellipsis for k in keys].index(True)
        fill = input.dim() - (len(keys) - 1 - [k is None for k in keys].count(True))
        keys = keys[:at] + (slice(None),) * max(fill, 0) + keys[at + 1 :]
    dim = 0
    for k in keys:
        if k is None:
            input, dim = unsqueeze(input, dim), dim + 1
            continue
        if dim >= input.dim():
            raise IndexError(f"too many indices for tensor of dimension {input.dim()}")
        if isinstance(k, wisp.Tensor) and not _is_sparse(k) and k.dim() == 0 and k.dtype != wisp.bool:
            k = int(k)
        if isinstance(k, int) and not isinstance(k, bool):
            input = select(input, dim, k) if _is_sparse(input) else input.select(dim, k)
        elif isinstance(k, slice) and k.step in (None, 1):
            start, stop, _ = k.indices(input.size(dim))
            if (start, stop) != (0, input.size(dim)):
                input = (
                    narrow_copy(input, dim, start, max(stop - start, 0))
                    if _is_sparse(input)
                    else input.narrow(dim, start, max(stop - start, 0))
                )
            dim += 1
        elif isinstance(k, (list, wisp.Tensor)) and not _is_sparse(k):
            k = wisp.as_tensor(k)
            k = k.nonzero().squeeze(1) if k.dtype == wisp.bool and k.dim() == 1 else k
            if k.dim() != 1:
                raise refused("indexing with this key")
            input = index_select(input, dim, k) if _is_sparse(input) else input.index_select(dim, k)
            dim += 1
        else:
            raise refused("indexing with this key")
    return input


@_operator("cat", "concat", "concatenate")
def cat(tensors, dim=0):
    tensors = [_coo(tensor) if _is_sparse(tensor) else tensor.to_sparse() for tensor in tensors]
    first = tensors[0]
    dim, sparse = _dim(first, dim), first.sparse_dim()
    sizes = [[*tensor.shape[:dim], *tensor.shape[dim + 1 :]] for tensor in tensors]
    if any(size != sizes[0] for size in sizes) or any(tensor.sparse_dim() != sparse for tensor in tensors):
        raise RuntimeError(
            f"All tensors must have the same shape except in the concatenating dimension; got {[tuple(x.shape) for x in tensors]}"
        )
    size = list(first.shape)
    size[dim] = sum(tensor.size(dim) for tensor in tensors)
    index, values, start = [], [], 0
    for tensor in tensors:
        coordinates, stored = tensor._index[0], tensor._sparse_values
        if dim < sparse:
            coordinates = coordinates.clone()
            coordinates[dim] += start
        else:
            before, after = start, size[dim] - start - tensor.size(dim)
            inner = [*stored.shape]
            parts = []
            for length in (before, after):
                inner[dim - sparse + 1] = length
                parts.append(stored.new_zeros(inner))
            stored = wisp.cat([parts[0], stored, parts[1]], dim - sparse + 1)
        index.append(coordinates)
        values.append(stored)
        start += tensor.size(dim)
    return make(_COO, (wisp.cat(index, 1),), wisp.cat(values), size, False)


@_operator("stack")
def stack(tensors, dim=0):
    dim = dim % (tensors[0].dim() + 1)
    return cat([unsqueeze(tensor, dim) if _is_sparse(tensor) else tensor.unsqueeze(dim).to_sparse() for tensor in tensors], dim)


@_operator("sparse_mask")
def sparse_mask(input, mask):
    """The elements of `input` where `mask` has entries."""
    if not _is_sparse(mask):
        raise RuntimeError("sparse_mask(): the mask must be a sparse tensor")
    if input.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {tuple(input.shape)} but mask has size {tuple(mask.shape)}"
        )
    if not _is_sparse(input):
        index = mask._coordinates()
        return mask._with(input[tuple(index)] if index.size(0) else input.unsqueeze(0))
    source = _coo(input).coalesce()
    keys, others = flat(mask._coordinates(), mask.shape), flat(source._index[0], source.shape)
    place = wisp.searchsorted(others, keys)
    found = place < others.numel()
    place = place * found
    found = found & (others[place] == keys) if others.numel() else found
    values = source._sparse_values
    if not others.numel():
        return mask._with(values.new_zeros((keys.numel(), *values.shape[1:])))
    picked = values.index_select(0, place)
    return mask._with(picked * found.to(picked.dtype).reshape(-1, *[1] * (picked.dim() - 1)))
