"""Shapes of nested tensors: what moves, joins, splits and indexes them."""

import math

import wisp
from wisp import _core
from wisp.nested._rules import RULES, _dim, _nested, _wrapped, refused, rule
from wisp.nested._tensor import RaggedSize, _make


def _moved(input, values, ragged):
    shapes = [(*values.shape[: ragged - 1], length, *values.shape[ragged:]) for length in input._part_lengths()]
    return _make(values, shapes, ragged, input._layout, input._offsets, input._metadata_cache)


@rule("transpose", "swapaxes", "swapdims")
def transpose(input, dim0, dim1):
    dim0, dim1 = _wrapped(input, dim0), _wrapped(input, dim1)
    if 0 in (dim0, dim1) and dim0 != dim1:
        if input._layout is wisp.strided:
            raise RuntimeError("Nested tensor dimension 0 cannot be transposed")
        raise ValueError("Transpose is not supported on the batch dimension for jagged NT")
    if input._ragged is None:
        return input._again([part.transpose(dim0 - 1, dim1 - 1) for part in input._parts()])
    swapped = {dim0: dim1, dim1: dim0}
    return _moved(input, input._values.transpose(dim0 - 1, dim1 - 1) if dim0 else input._values, swapped.get(input._ragged, input._ragged))


@rule("permute")
def permute(input, *dims):
    dims = [_wrapped(input, d) for d in (dims[0] if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims)]
    if len(dims) == input.dim() and len(set(dims)) != len(dims):
        raise ValueError("permute(): duplicate dims are not allowed.")
    if len(dims) == input.dim() and dims[0] != 0 and input._layout is wisp.jagged:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    if len(dims) != input.dim():
        raise ValueError(
            f"permute(): number of dimensions in the tensor input ({input.dim()}) does not match the length of the desired ordering of "
            f"dimensions ({len(dims)})."
        )
    if dims[0] != 0:
        raise ValueError(f"permute: the batch dimension of a nested tensor stays first; got {dims}")
    if input._ragged is None:
        return input._again([part.permute([d - 1 for d in dims[1:]]) for part in input._parts()])
    return _moved(input, input._values.permute([d - 1 for d in dims[1:]]), dims.index(input._ragged))


@rule("expand")
def expand(input, *shape):
    shape = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape)
    if input._ragged is None or len(shape) != input.dim() or shape[0] not in (-1, len(input)):
        raise refused("expand to other batches or more dimensions")
    if shape[input._ragged] not in (-1, input._sizes[input._ragged]):
        raise RuntimeError(f"expand(): the ragged dimension stays as it is: use -1 at {input._ragged}, not {shape[input._ragged]}")
    shape[input._ragged] = -1
    return input._with(input._values.expand(shape[1:]))._viewing(input)


@rule("reshape")
def reshape(input, *shape):
    return view(input, *shape, name="reshape")


@rule("view")
def view(input, *shape, name="view"):
    shape = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape)
    if not len(input):
        raise RuntimeError(f"{name}: empty nested tensor cannot be reshaped")
    strided = input._layout is wisp.strided
    if strided and shape and shape[0] != len(input) and (-1 in shape or math.prod(shape) == input.numel()):
        raise RuntimeError(f"{name}: For now nested {name} cannot change or infer the implicit batch dimension")
    if input._ragged is None or not shape or shape[0] not in (len(input), -1):
        raise RuntimeError(
            f"{name}: shape '{shape}' is invalid for "
            + (f"input of size {input.numel()}" if strided and shape else "a nested tensor")
            + ": it keeps its batch as dimension 0, and one ragged dimension"
        )
    if strided and shape.count(-1) > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred")
    lengths = input._part_lengths()
    place = next((i for i, size in enumerate(shape) if isinstance(size, RaggedSize)), None)
    if place is None:
        place = next((i for i, size in enumerate(shape) if i and size == -1), None)
    before = math.prod(input._values.shape[: input._ragged - 1])
    if place is None or place == 0 or isinstance(shape[place], RaggedSize) and shape[place] != input._sizes[input._ragged]:
        raise RuntimeError(f"view: the shape {tuple(shape)} has no place for the ragged dimension; use -1 or size({input._ragged})")
    if math.prod(shape[1:place]) != before:
        raise RuntimeError(f"view(): cannot view shape ({', '.join(map(str, input._sizes))}) as ({', '.join(map(str, shape))})")
    return _moved(input, input._values.reshape(*shape[1:place], sum(lengths), *shape[place + 1 :]), place)._viewing(input)


@rule("unflatten")
def unflatten(input, dim, sizes):
    if _wrapped(input, dim) == 0:
        raise RuntimeError(f"unflatten(): cannot view shape ({', '.join(map(str, input._sizes))}) with other batches: dim 0 stays as it is")
    place = _dim(input, dim, "unflatten")
    values = input._values.unflatten(place, sizes)
    return _moved(input, values, input._ragged + (len(sizes) - 1 if place < input._ragged - 1 else 0))


@rule("flatten")
def flatten(input, start_dim=0, end_dim=-1):
    start, end = _wrapped(input, start_dim), _wrapped(input, end_dim)
    if input._ragged is None or start == 0 or start <= input._ragged <= end and start < end:
        raise RuntimeError("flatten(): not supported for NestedTensor on the batch or the ragged dimension")
    return _moved(input, input._values.flatten(start - 1, end - 1), input._ragged - (end - start if end < input._ragged else 0))


@rule("unsqueeze")
def unsqueeze(input, dim):
    place = dim % (input.dim() + 1)
    if place == 0 or input._ragged is None:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    return _moved(input, input._values.unsqueeze(place - 1), input._ragged + (place <= input._ragged))


@rule("squeeze")
def squeeze(input, dim=None):
    if dim is None:
        raise RuntimeError("For nested tensors, squeeze without the dim argument is not supported; nor is the batch or the ragged one")
    if input._layout is wisp.strided and dim == 0:
        raise RuntimeError("For nested tensors, squeezing dimension 0 is not supported")
    if input._layout is wisp.strided and input.dim() == 2 and input._values.numel() == len(input):
        raise RuntimeError("For nested tensors, squeezing a nested tensor of singleton tensors is not supported")
    for place in sorted({_wrapped(input, d) for d in ([dim] if isinstance(dim, int) else dim)}, reverse=True):
        values_dim = _dim(input, place, "squeeze")
        if input._values.shape[values_dim] == 1:
            input = _moved(input, input._values.squeeze(values_dim), input._ragged - (place < input._ragged))
    return input._with(input._values.view_as(input._values))


def _stretch(input, begin, end):
    """The parts from one number to another, as a view."""
    if input._ragged is None:
        return input._again(input._parts()[begin:end])
    lengths = input._part_lengths()
    values = input._values.narrow(input._ragged - 1, sum(lengths[:begin]), sum(lengths[begin:end]))
    return _make(values, input._shapes[begin:end], input._ragged, input._layout)


def _splitting(name):
    def split(input, sizes=None, dim=0, **named):
        sizes = next(iter(named.values())) if sizes is None else sizes  # each of these calls it otherwise
        if input._layout is wisp.strided and name != "split" and _wrapped(input, dim) != input.dim() - 1:
            shown = "Chunk" if name == "chunk" else name
            raise RuntimeError(f"{shown} for nested tensors is currently only supported for the last dimension.")
        if input._layout is wisp.strided and name != "split" and not input.is_contiguous():
            raise RuntimeError(f"{name} expects `self` to be contiguous.")
        if input._layout is wisp.strided and name == "chunk" and not isinstance(input._sizes[-1], RaggedSize) and input._sizes[-1] % sizes:
            raise RuntimeError(
                "Chunk for nested tensors is only supported for nested tensors with trailing dimension divisible by chunks. "
                f"Got {input._sizes[-1]} and {sizes} chunks"
            )
        if _wrapped(input, dim) == 0:
            groups = [(int(group[0]), int(group[-1]) + 1) for group in getattr(wisp.arange(len(input)), name)(sizes)]
            return tuple(_stretch(input, a, b) for a, b in groups)
        place = _dim(input, dim, "split" if isinstance(sizes, int) else "split_with_sizes") if name == "split" else _dim(input, dim, name)
        return tuple(input._with(part) for part in getattr(input._values, name)(sizes, place))

    return split


for _name in ("chunk", "split", "split_with_sizes"):
    RULES[_name] = _splitting(_name)


@rule("cat", "concat", "concatenate")
def cat(tensors, dim=0):
    first = next(tensor for tensor in tensors if _nested(tensor))
    if not all(map(_nested, tensors)):
        raise RuntimeError("cat(): expected each tensor in given list to be nested")
    place = _wrapped(first, dim)
    if any(tensor.dim() != first.dim() for tensor in tensors):
        raise RuntimeError("cat(): expected all nested tensors to have matching ragged structures outside of the concatenated dim")
    if first._layout is wisp.strided and not all(tensor.is_contiguous() for tensor in tensors):
        raise RuntimeError("cat(): only contiguous nested tensors are supported with the strided layout; call contiguous()")
    if place == 0:
        return first._again([part for tensor in tensors for part in tensor._parts()])
    alike = first._ragged is not None and all(t._ragged == first._ragged and t._part_lengths() == first._part_lengths() for t in tensors)
    if alike and place != first._ragged:
        return first._with(wisp.cat([tensor._values for tensor in tensors], place - 1))
    return first._again([wisp.cat(parts, place - 1) for parts in zip(*(tensor._parts() for tensor in tensors))])


@rule("stack")
def stack(tensors, dim=0):
    return cat([unsqueeze(tensor, dim) for tensor in tensors], dim)


@rule("unbind")
def unbind(input, dim=0):
    if _wrapped(input, dim) != 0:
        raise RuntimeError(f"unbind(): only supported for NestedTensor on jagged layout for dim=0, got dim={dim}")
    return tuple(input._parts())


@rule("select")
def select(input, dim, index):
    if _wrapped(input, dim) == 0:
        if not -len(input) <= index < len(input):
            raise IndexError(f"select(): index {index} out of range for a nested tensor of {len(input)} parts")
        return input._parts()[index]
    if input._layout is wisp.strided and (input._ragged is None or _wrapped(input, dim) == input._ragged):
        return input._again([part.select(_wrapped(input, dim) - 1, index) for part in input._parts()])
    place = _dim(input, dim, "select")
    return _moved(input, input._values.select(place, index), input._ragged - (place < input._ragged - 1))


@rule("__getitem__")
def getitem(input, key):
    keys = list(key) if isinstance(key, tuple) else [key]
    if input._layout is wisp.strided and isinstance(keys[0], slice):
        raise refused("slices of the batch with the strided layout (layout=torch.jagged has them)")
    if Ellipsis in [k for k in keys if not isinstance(k, _core.Tensor)]:
        place = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (input.dim() - len(keys) + 1)
    first, *rest = keys
    if isinstance(first, int):
        part = select(input, 0, first)
        return part[tuple(rest)] if rest else part
    if not isinstance(first, slice) or any(not isinstance(k, (int, slice)) for k in rest):
        raise refused("indexing with tensors, lists or None")
    if first != slice(None):
        input = input._again(input._parts()[first])
    if all(k == slice(None) for k in rest):
        return input
    if input._ragged is None or len(rest) >= input._ragged and rest[input._ragged - 1] != slice(None):
        return input._again([part[tuple(rest)] for part in input._parts()])
    gone = sum(isinstance(k, int) for k in rest[: input._ragged - 1])
    return _moved(input, input._values[tuple(rest)], input._ragged - gone)


@rule("__setitem__")
def setitem(input, key, value):
    keys = list(key) if isinstance(key, tuple) else [key]
    if not isinstance(keys[0], int):
        raise refused("x[...] = value without the number of a part")
    select(input, 0, keys[0])[tuple(keys[1:])] = value


def _putting(name):
    def put(input, indices, values, accumulate=False):
        if input._ragged is None or any(index is None or index.is_floating_point() for index in indices):
            raise refused(f"{name} of parts that differ in several sizes, or without whole numbers")
        first, *rest = (index.long() for index in indices)
        if len(rest) < input._ragged:  # whole parts
            if rest or input._ragged != 1:
                raise RuntimeError(
                    f"{name}(): If ragged dimension is not part of indices, this only works on contiguous NJTs: index dimensions up to "
                    f"the ragged one, {input._ragged}"
                )
            rest = [(input._segments().unsqueeze(1) == first).any(1).nonzero().squeeze(1)]
        else:
            lengths = input._offsets.diff()[first]
            if not bool(((rest[input._ragged - 1] < lengths) & (rest[input._ragged - 1] >= 0)).all()):
                raise IndexError(f"{name}(): an index of the ragged dimension is outside of its part")
            rest[input._ragged - 1] = rest[input._ragged - 1] + input._offsets[first]
        result = getattr(input._values, name)(tuple(rest), values, accumulate)
        return input if name.endswith("_") else input._with(result)

    return put


for _name in ("index_put", "index_put_"):
    RULES[_name] = _putting(_name)


@rule("narrow")
def narrow(input, dim, start, length):
    if _wrapped(input, dim) == 0:
        if input._layout is wisp.strided and not input.is_contiguous():
            raise RuntimeError("narrow(): only contiguous nested tensors supported with the strided layout; call contiguous()")
        if start < 0 or length <= 0 or start + length > len(input):
            raise RuntimeError(f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({len(input)}).")
        return _stretch(input, start, start + length)._viewing(input)
    if input._layout is wisp.strided:
        raise RuntimeError("narrow(): only dim=0 supported for nested tensors of the strided layout")
    return input._with(input._values.narrow(_dim(input, dim, "narrow"), start, length))


def outer_to_inner_dim(ndim, dim, ragged_dim, canonicalize=False):
    """The dimension of the packed values that a dimension of the nested tensor is; with `canonicalize` each of several once."""
    if isinstance(dim, (tuple, list)):
        inner = [outer_to_inner_dim(ndim, d, ragged_dim) for d in dim]
        return type(dim)(dict.fromkeys(inner) if canonicalize else inner)
    dim = dim % ndim
    return ragged_dim - 1 if dim in (0, ragged_dim) else dim - 1
