"""Tensors on their way to other processes: their memory is moved into a file that has no name, and the file's
descriptor travels. The kernel frees the memory with its last owner, however the processes end.
"""

import errno
import io
import os
import pickle
import tempfile
import threading
from multiprocessing import reduction
from multiprocessing.reduction import ForkingPickler

import wisp
from wisp import _core

_operators = _core._operators[""]
_move, _map, _descriptor = _operators["_move_to_shared"], _operators["_map_shared"], _operators["_shared_descriptor"]
_storage, _from_storage = _operators["_storage"], _operators["_from_storage"]


def raise_file_limit():
    """Let this process open as many files as the system allows; False if that was so already."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return True


def _open_file():
    try:
        if hasattr(os, "memfd_create"):
            return os.memfd_create("wisp", os.MFD_CLOEXEC)
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())
    except OSError as error:
        if error.errno == errno.EMFILE and raise_file_limit():
            return _open_file()
        raise


def new_file(size):
    """The descriptor of a new nameless file in memory with room for `size` bytes; OSError if there is no room."""
    descriptor = _open_file()
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)  # now: to find no room on writing would kill the process
        else:
            os.ftruncate(descriptor, size)
    except OSError as error:
        os.close(descriptor)
        raise OSError(error.errno, f"no room for {size} bytes of shared memory: {os.strerror(error.errno)}") from None
    return descriptor


def share(tensor):
    """Move the memory behind a tensor into a file, for all tensors that share it; returns the file's descriptor."""
    descriptor = _descriptor(tensor)
    if descriptor >= 0 or not tensor.untyped_storage().nbytes():
        return descriptor
    if tensor.is_shared():  # mapped without its file: the memory can't be passed on, a copy can
        raise RuntimeError("this memory can't be shared further; send a clone() of the tensor")
    file = new_file(tensor.untyped_storage().nbytes())
    try:
        _move(tensor, file)
    finally:
        os.close(file)
    return _descriptor(tensor)


# ---------------------------------------------------------------- pickling
class _Parcels(threading.local):
    packing = None  # the descriptors of the message that this thread packs, by the storage's address
    sending = ()  # what goes out with the next message: (descriptors, tensors that keep them open)
    arrived = ()  # descriptors that came with the message being unpacked


parcels = _Parcels()


def _opened(handle, size):
    """The bytes of a storage from what stands for its descriptor."""
    if isinstance(handle, int):
        return _map(parcels.arrived[handle], size, True)
    descriptor = handle.detach()
    try:
        return _map(descriptor, size, True)
    finally:
        os.close(descriptor)


def rebuild_tensor(kind, handle, size, dtype, shape, stride, offset, requires_grad, attributes):
    """The tensor that `reduce_tensor` described, on the same memory."""
    tensor = _from_storage(_opened(handle, size), dtype, list(shape), list(stride), offset)
    if kind is not None:
        tensor = wisp.Tensor._make_subclass(kind, tensor, requires_grad)
    elif requires_grad:
        tensor.requires_grad_()
    tensor.__dict__.update(attributes)
    return tensor


def reduce_tensor(tensor):
    """How a tensor is pickled for another process."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not "
            "support crossing process boundaries.  If you just want to transfer the data, call detach() "
            "on the tensor before serializing (e.g., putting it on the queue)."
        )
    kind = None if type(tensor) is wisp.Tensor else type(tensor)
    plain = tensor.detach()
    if tensor.device.type != "cpu" or not plain.untyped_storage().nbytes():
        return tensor.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    if plain.is_shared() and _descriptor(plain) < 0:
        plain = plain.clone()
    descriptor = share(plain)
    if parcels.packing is None:
        handle = reduction.DupFd(descriptor)
    else:
        handle = parcels.packing.setdefault(plain.untyped_storage().data_ptr(), (len(parcels.packing), plain))[0]
    return rebuild_tensor, (
        kind,
        handle,
        plain.untyped_storage().nbytes(),
        tensor.dtype,
        tuple(plain.shape),
        plain.stride(),
        plain.storage_offset(),
        tensor.requires_grad,
        tensor.__dict__,
    )


def reduce_storage(storage):
    """How an untyped storage is pickled for another process."""
    return wisp.UntypedStorage._over, (storage._bytes,)


def _typed(untyped, dtype):
    return wisp.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def reduce_typed_storage(storage):
    """How a storage with a dtype is pickled for another process."""
    return _typed, (storage.untyped(), storage.dtype)


def register():
    """Make all of Python's multiprocessing send tensors this way."""
    for kind in (wisp.Tensor, wisp.nn.Parameter):
        ForkingPickler.register(kind, reduce_tensor)
    ForkingPickler.register(wisp.UntypedStorage, reduce_storage)
    ForkingPickler.register(wisp.TypedStorage, reduce_typed_storage)


class Parcel:
    """A pickled value together with the descriptors of its tensors: they leave with the bytes and wait in the socket,
    so the sender may end before the receiver looks."""

    def __init__(self, value):
        outer, parcels.packing = parcels.packing, {}
        try:
            stream = io.BytesIO()
            ForkingPickler(stream, pickle.HIGHEST_PROTOCOL).dump(value)
            self.data, self.tensors = stream.getvalue(), [tensor for _, tensor in parcels.packing.values()]
        finally:
            parcels.packing = outer

    def __reduce__(self):
        parcels.sending = [_descriptor(tensor) for tensor in self.tensors], self.tensors
        return pickle.loads, (self.data,)
