"""Helpers that programs and pickles take from `torch._utils`."""

import wisp


def _flatten_dense_tensors(tensors):
    """The tensors as one vector."""
    return wisp.cat([tensor.reshape(-1) for tensor in tensors]) if len(tensors) else wisp.empty(0)


def _unflatten_dense_tensors(flat, tensors):
    """The parts of a vector in the shapes of the tensors."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.reshape(tensor.shape) for part, tensor in zip(parts, tensors))


def _take_tensors(tensors, size_limit):
    """The tensors in lists of one type and of at most so many bytes."""
    waiting = {}
    for tensor in tensors:
        kept = waiting.setdefault((tensor.type(), tensor.layout), [])
        if kept and sum(t.nbytes for t in kept) + tensor.nbytes > size_limit:
            yield kept[:]
            kept.clear()
        kept.append(tensor)
    yield from (kept for kept in waiting.values() if kept)


def _set_obj_state(obj, state):
    """Give an object the attributes that were pickled: a dict, or a pair of one and of slots."""
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    if attributes:
        vars(obj).update(attributes)
    for name, value in (slots or {}).items():
        setattr(obj, name, value)
    return obj


def _rebuild_parameter(data, requires_grad, backward_hooks):
    """What a pickled parameter is made by."""
    return wisp.nn.Parameter(data, requires_grad)


def _rebuild_tensor(storage, storage_offset, size, stride):
    """What a pickled tensor is made by: a view of its storage."""
    return wisp.empty(0, dtype=storage.dtype, device=storage.device).set_(storage, storage_offset, tuple(size), tuple(stride))


def _as_told(tensor, metadata):
    """A tensor as its pickle says that the memory is to be read: conjugated, or with the other sign."""
    metadata = metadata or {}
    tensor = tensor.conj() if metadata.get("conj") else tensor
    return -tensor if metadata.get("neg") else tensor


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    """What a pickled tensor is made by."""
    return _as_told(_rebuild_tensor(storage, storage_offset, size, stride), metadata).requires_grad_(requires_grad)


def _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None):
    """What a pickled tensor of a dtype without typed storages is made by."""
    tensor = wisp.empty(0, dtype=dtype, device=storage.device).set_(storage.untyped(), storage_offset, tuple(size), tuple(stride))
    return _as_told(tensor, metadata).requires_grad_(requires_grad)


def _rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    """What a pickled parameter with attributes is made by."""
    parameter = wisp.nn.Parameter(data, requires_grad)
    parameter.__dict__.update(state)
    return parameter


def _rebuild_sparse_tensor(layout, data):
    """What a pickled sparse tensor is made by."""
    if layout is not wisp.sparse_coo:
        return wisp.sparse_compressed_tensor(*data, layout=layout)
    indices, values, size, *coalesced = data
    return wisp.sparse_coo_tensor(indices, values, size, is_coalesced=coalesced[0] if coalesced else None)


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    """What a pickled tensor without memory is made by."""
    return wisp.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)


def _element_size(dtype):
    """The bytes of an element."""
    if not isinstance(dtype, wisp.dtype):
        raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
    return dtype.itemsize


def _get_device_index(device, optional=False, allow_cpu=False):
    """The number of a GPU: of a device, a name or the number itself; the current one for None, if that is allowed."""
    if isinstance(device, int):
        return device
    if device is None and optional:
        return wisp.cuda.current_device() if wisp.cuda.is_available() else -1
    device = wisp.device(device) if isinstance(device, str) else device
    if not isinstance(device, wisp.device) or (device.type == "cpu" and not allow_cpu):
        raise ValueError(f"Expected a GPU device, but got: {device}")
    return -1 if device.type == "cpu" else 0 if device.index is None else device.index


def _get_available_device_type():
    """The name "cuda" where there is a GPU, else None."""
    return "cuda" if wisp.cuda.is_available() else None


def _get_device_module(device_type):
    """The module of a kind of device: wisp.cuda, wisp.cpu."""
    module = getattr(wisp, device_type, None)
    if module is None:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'.")
    return module


class classproperty:
    """A property of a class."""

    def __init__(self, function):
        self._function = function

    def __get__(self, instance, owner=None):
        return self._function(type(instance) if owner is None else owner)


def _accumulate(iterable, fn=lambda x, y: x + y):
    """The running sums."""
    import itertools

    return itertools.accumulate(iterable, fn)


class ExceptionWrapper:
    """An exception with its traceback as text, to be raised in another process."""

    def __init__(self, exc_info=None, where="in background"):
        import sys
        import traceback

        kind, value, trace = exc_info or sys.exc_info()
        self.exc_type, self.where, self.exc_msg = kind, where, "".join(traceback.format_exception(kind, value, trace))

    def reraise(self):
        """Raise it again."""
        raise self.exc_type(f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}")
