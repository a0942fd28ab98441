"""What makes the tensors and generators of a checkpoint from what its pickle says, after checks that they lie within their memory."""

import math
import pickle

import wisp
from wisp.serialization._unpickle import brief


def rebuild_tensor(storage, offset, size, stride, *_):
    return _view(storage, offset, size, stride)


def rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks=None, bits=None, *_):
    return _with_bits(_view(storage, offset, size, stride), storage, bits).requires_grad_(requires_grad)


def rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, bits=None, *_):
    return _with_bits(_view(storage, offset, size, stride, dtype), storage, bits).requires_grad_(requires_grad)


def _with_bits(tensor, storage, bits):
    """What PyTorch's lazy views stand for: the memory is to be read conjugated, or with the other sign."""
    if type(bits) is dict and (bits.get("conj") or bits.get("neg")):
        flat_of(storage).is_copied = True  # what is made here holds what the storage holds by now
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise pickle.UnpicklingError("a tensor in the file that is to be conjugated repeats its elements")
        tensor = tensor.conj().resolve_conj() if bits.get("conj") else tensor
        tensor = -tensor if bits.get("neg") else tensor
    return tensor


def rebuild_meta(dtype, size, stride, requires_grad):
    """A tensor without memory."""
    size, stride = tuple(size), tuple(stride)
    if (
        not isinstance(dtype, wisp.dtype)
        or len(size) != len(stride)
        or len(size) > 64
        or not all(type(number) is int and 0 <= number < 1 << 62 for number in (*size, *stride))
    ):
        raise pickle.UnpicklingError(f"a tensor in the file has impossible sizes: {brief(size)}, {brief(stride)}")
    return wisp.empty_strided(size, stride, dtype=dtype, device="meta").requires_grad_(requires_grad)


def flat_of(storage):
    """The tensor of one dimension that the reader put into a storage; None for anything else in a file."""
    return storage.__dict__.get("_flat") if type(storage).__module__ == "wisp.storage" else None


def _view(storage, offset, size, stride, dtype=None):
    """A tensor over a storage, after a check that it lies within."""
    flat = flat_of(storage)
    if dtype is not None and flat is not None:
        flat = flat.view(dtype)
    if not isinstance(flat, wisp.Tensor) or flat.dim() != 1:
        raise pickle.UnpicklingError("a tensor in the file has no storage")
    return _strided(flat, offset, size, stride)


def _strided(flat, offset, size, stride):
    size, stride = tuple(size), tuple(stride)
    if (
        not all(type(number) is int and 0 <= number < 1 << 62 for number in (offset, *size, *stride))
        or len(size) != len(stride)
        or len(size) > 64
    ):
        raise pickle.UnpicklingError(f"a tensor in the file has impossible sizes: {brief(size)}, {brief(stride)}, {brief(offset)}")
    if 0 not in size:
        last = offset + sum((n - 1) * step for n, step in zip(size, stride))
        if last >= flat.numel():
            raise pickle.UnpicklingError(
                f"a tensor in the file reaches beyond its storage of {flat.numel()} elements: "
                f"{brief(size)}, {brief(stride)}, {brief(offset)}"
            )
    with wisp.no_grad():
        return flat.as_strided(size, stride, offset).detach()


def named_layout(name):
    known = "strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc jagged".split()
    if type(name) is not str or name not in [f"torch.{kind}" for kind in known]:  # a tuple nested in itself takes for ever to hash
        raise pickle.UnpicklingError(f"tensors of the layout {brief(name)} are not supported")
    return getattr(wisp, name[6:])


def _check_memory(parts, what):
    """Refuses parts that will be looked at and repeat a few elements without end."""
    for part in parts:
        if isinstance(part, wisp.Tensor) and (
            part.layout is not wisp.strided or part.is_nested or part.numel() * part.element_size() > part.untyped_storage().nbytes()
        ):
            raise pickle.UnpicklingError(f"{what} in the file has parts that are larger than their memory")


def rebuild_sparse(layout, data):
    """A sparse tensor; the constructors check the indices, and that it is coalesced is believed after a look."""
    if type(data) is not tuple or not 3 <= len(data) <= 4 or not isinstance(layout, wisp.layout) or layout is wisp.strided:
        raise pickle.UnpicklingError("a sparse tensor in the file is incomplete")
    parts = 2 if layout is wisp.sparse_coo else 3
    size = data[parts] if len(data) > parts else ()
    is_size = isinstance(size, tuple) and len(size) <= 64 and all(type(n) is int for n in size)
    if not is_size or not all(isinstance(part, wisp.Tensor) for part in data[:parts]):  # nested tuples would take for ever to look at
        raise pickle.UnpicklingError("a sparse tensor in the file is made of other things than tensors and a size")
    _check_memory(data, "a sparse tensor")
    if layout is not wisp.sparse_coo:
        return wisp.sparse_compressed_tensor(*data, layout=layout)
    index, values, size, *coalesced = data
    tensor = wisp.sparse_coo_tensor(index, values, size)
    if not coalesced or not coalesced[0]:
        return tensor
    keys = wisp.sparse._tensor.flat(tensor._indices(), tensor.shape)
    return tensor._coalesced_((keys[1:] > keys[:-1]).all())


def rebuild_nested(buffer, sizes, strides, offsets):
    """A nested tensor of the strided layout; each part must lie in the buffer, and all of them may not hold more than it."""
    _check_memory((buffer, sizes, strides, offsets), "a nested tensor")
    numbers = [part.tolist() for part in (sizes, strides, offsets) if isinstance(part, wisp.Tensor) and part.dtype == wisp.int64]
    if len(numbers) != 3 or not isinstance(buffer, wisp.Tensor) or buffer.dim() != 1 or len({len(part) for part in numbers}) != 1:
        raise pickle.UnpicklingError("a nested tensor in the file is incomplete")
    if sum(math.prod(size) for size in numbers[0]) > buffer.numel():
        raise pickle.UnpicklingError("a nested tensor in the file is larger than its memory")
    from wisp.nested._tensor import pack

    flat = buffer.detach()
    parts = [_strided(flat, offset, size, stride) for size, stride, offset in zip(*numbers)]
    # dimensions in the order in which they lie: a transposed tensor stays one
    order = sorted(range(parts[0].dim()), key=lambda dim: -parts[0].stride(dim)) if parts else []
    if order == sorted(order) or not all(part.permute(order).is_contiguous() for part in parts):
        return pack(parts, wisp.strided, flat).requires_grad_(buffer.requires_grad)
    made = pack([part.permute(order) for part in parts], wisp.strided, flat)
    return made.permute(0, *(1 + order.index(dim) for dim in range(len(order)))).requires_grad_(buffer.requires_grad)


def rebuild_jagged(content):
    """A nested tensor of the jagged layout, from its packed values and the ends of its parts."""
    values, offsets, lengths = (content.get(name) for name in ("values", "offsets", "lengths")) if isinstance(content, dict) else [None] * 3
    ragged = content.get("_ragged_idx", 1) if isinstance(content, dict) else None
    tensors = [values, offsets] + [lengths] * (lengths is not None)
    if type(ragged) is not int or not all(isinstance(part, wisp.Tensor) for part in tensors):
        raise pickle.UnpicklingError("a nested tensor in the file is incomplete")
    _check_memory(tensors, "a nested tensor")
    told = content.get("_metadata_cache")
    known = {k: n.shape[0] for k, n in told.items() if isinstance(n, wisp.Tensor) and n.dim()} if isinstance(told, dict) else {}
    given = values.detach(), offsets, lengths, ragged
    made = wisp.nested.nested_tensor_from_jagged(*given, known.get("min_seqlen"), known.get("max_seqlen"))
    return made.requires_grad_(bool(content.get("requires_grad")))


def rebuild_wrapper(cls, dtype, size, stride, offset, layout, device, requires_grad):
    """A tensor of a class with `__torch_dispatch__`, which has no memory; what it is made of is its state."""
    if not (isinstance(cls, type) and issubclass(cls, wisp.Tensor)):
        raise pickle.UnpicklingError("the file makes a tensor of a class that is none of tensors")
    return wisp.Tensor._make_wrapper_subclass(
        cls, _sizes(size), strides=_sizes(stride), dtype=dtype, device=device, requires_grad=bool(requires_grad)
    )


def _sizes(values):
    return [int(v) for v in values]


def rebuild_parameter(data, requires_grad=True, *_):
    return wisp.nn.Parameter(data, requires_grad=requires_grad)


def rebuild_parameter_with_state(data, requires_grad, hooks, state):
    parameter = rebuild_parameter(data, requires_grad)
    if type(state) is dict and all(type(key) is str for key in state):
        parameter.__dict__.update(state)
    return parameter


def new_generator(device="cpu"):
    if not isinstance(device, wisp.device) or device.type != "cpu":
        raise pickle.UnpicklingError(f"a generator in the file is on {brief(device)}")
    return wisp.Generator()


def finish_generator(generator, state):
    if not (type(state) is tuple and len(state) == 3 and type(state[0]) is int):
        raise pickle.UnpicklingError("the state of a generator in the file is not one")
    generator.__setstate__(state)
