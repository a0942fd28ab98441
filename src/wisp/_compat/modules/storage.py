"""The memory behind tensors, as objects: `tensor.untyped_storage()` in bytes, `tensor.storage()` in elements."""

import wisp
from wisp import _core

_storage, _from_storage = _core._operators[""]["_storage"], _core._operators[""]["_from_storage"]


class UntypedStorage:
    """A block of memory that tensors share, seen as bytes.

    >>> import wisp
    >>> wisp.zeros(3).untyped_storage().nbytes()
    12
    """

    def __init__(self, size=0, *, device=None, _bytes=None):
        self._bytes = wisp.empty(size, dtype=wisp.uint8, device=device) if _bytes is None else _bytes

    def data_ptr(self):
        """The address of the first byte."""
        return self._bytes.data_ptr()

    def nbytes(self):
        """How many bytes there are."""
        return self._bytes.numel()

    size = __len__ = nbytes

    @property
    def device(self):
        """Where the memory is."""
        return self._bytes.device

    is_cuda = is_sparse = is_sparse_csr = False

    def element_size(self):
        """1: the elements are bytes."""
        return 1

    def __getitem__(self, index):
        value = self._bytes[index]
        return value.item() if isinstance(index, int) else UntypedStorage(_bytes=value)

    def __setitem__(self, index, value):
        self._bytes[index] = value

    def __iter__(self):
        return iter(self.tolist())

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr() and len(self) == len(other)

    def __hash__(self):
        return hash(self.data_ptr())

    def __repr__(self):
        return f"[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"

    def tolist(self):
        """The bytes as a list of numbers."""
        return self._bytes.tolist()

    def clone(self):
        """A copy of the memory."""
        return UntypedStorage(_bytes=self._bytes.clone())

    def copy_(self, source, non_blocking=None):
        """Overwrite the bytes with those of another storage."""
        self._bytes.copy_(source._bytes)
        return self

    def fill_(self, value):
        """Set every byte."""
        self._bytes.fill_(value)
        return self

    def cpu(self):
        """The storage itself: it is in main memory."""
        return self

    def untyped(self):
        """The storage itself."""
        return self

    def is_shared(self):
        """Whether other processes can see the memory."""
        return self._bytes.is_shared()

    def share_memory_(self):
        """Move the memory, in place, to where other processes can see it."""
        self._bytes.share_memory_()
        return self

    @classmethod
    def _over(cls, data):
        return cls(_bytes=data)

    @classmethod
    def from_file(cls, filename, shared=False, nbytes=0):
        """The bytes of a file, mapped into memory; with `shared`, writes go to the file."""
        return cls(_bytes=wisp.from_file(str(filename), shared=shared, size=nbytes, dtype=wisp.uint8))

    @classmethod
    def from_buffer(cls, buffer, **options):
        """A copy of a buffer's bytes."""
        return cls(_bytes=wisp.frombuffer(bytearray(buffer), dtype=wisp.uint8))

    def __array__(self, dtype=None, copy=None):
        return self._bytes.__array__(dtype, copy)  # for torch.asarray and NumPy


class TypedStorage:
    """A block of memory seen as elements of one dtype: what `tensor.storage()` gives."""

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        self.dtype = dtype or getattr(self, "dtype", None) or wisp.get_default_dtype()
        if wrap_storage is None:
            data = args[0] if args else 0
            values = wisp.tensor(data, dtype=self.dtype, device=device) if isinstance(data, (list, tuple)) else None
            wrap_storage = (wisp.empty(data, dtype=self.dtype, device=device) if values is None else values).untyped_storage()
        self._untyped_storage = wrap_storage

    def _elements(self):
        width = wisp.empty(0, dtype=self.dtype).element_size()
        return _from_storage(self._untyped_storage._bytes, self.dtype, [self._untyped_storage.nbytes() // width], [1])

    def untyped(self):
        """The same memory in bytes."""
        return self._untyped_storage

    def data_ptr(self):
        """The address of the first element."""
        return self._untyped_storage.data_ptr()

    def nbytes(self):
        """How many bytes there are."""
        return self._untyped_storage.nbytes()

    def size(self):
        """How many elements there are."""
        return self._elements().numel()

    __len__ = size

    @property
    def device(self):
        """Where the memory is."""
        return self._untyped_storage.device

    is_cuda = is_sparse = False

    def element_size(self):
        """The bytes of one element."""
        return self._elements().element_size()

    def __getitem__(self, index):
        return self._elements()[index].item() if isinstance(index, int) else self._elements()[index].storage()

    def __setitem__(self, index, value):
        self._elements()[index] = value

    def __iter__(self):
        return iter(self.tolist())

    def tolist(self):
        """The elements as a list of numbers."""
        return self._elements().tolist()

    def fill_(self, value):
        """Set every element."""
        self._elements().fill_(value)
        return self

    def copy_(self, source, non_blocking=None):
        """Overwrite the elements with those of another storage."""
        self._elements().copy_(source._elements())
        return self

    def clone(self):
        """A copy of the memory."""
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def cpu(self):
        """The storage itself: it is in main memory."""
        return self

    def is_shared(self):
        """Whether other processes can see the memory."""
        return self._untyped_storage.is_shared()

    def share_memory_(self):
        """Move the memory, in place, to where other processes can see it."""
        self._untyped_storage.share_memory_()
        return self

    def __repr__(self):
        lines = "\n".join(f" {value}" for value in self.tolist())
        return f"{lines}\n[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"


def of(tensor):
    """The bytes behind a tensor."""
    return UntypedStorage(_bytes=_storage(tensor.detach()))


def typed(name, dtype):
    """A class of storages of one dtype: FloatStorage, LongStorage, ..."""
    return type(name, (TypedStorage,), {"dtype": dtype, "__module__": "wisp"})
