"""The memory behind tensors, as objects: `tensor.untyped_storage()` in bytes, `tensor.storage()` in elements."""

import io
import weakref

import wisp
from wisp import _core
from wisp._tensor import TYPE_NAMES

_storage, _from_storage, _resize = (_core._operators[""][name] for name in ("_storage", "_from_storage", "_resize_storage"))
_CASTS = {
    "float": wisp.float32,
    "double": wisp.float64,
    "half": wisp.float16,
    "bfloat16": wisp.bfloat16,
    "byte": wisp.uint8,
    "char": wisp.int8,
    "short": wisp.int16,
    "int": wisp.int32,
    "long": wisp.int64,
    "bool": wisp.bool,
    "complex_float": wisp.complex64,
    "complex_double": wisp.complex128,
}


def _load_from_bytes(content):
    """What a pickled storage is made by."""
    return wisp.load(io.BytesIO(content), weights_only=False)


class _StorageBase:
    """What both kinds of storages have."""

    is_sparse = is_sparse_csr = False
    is_cpu = property(lambda self: self.device.type == "cpu", doc="Whether the memory is the processor's.")
    is_cuda = property(lambda self: self.device.type == "cuda", doc="Whether the memory is a GPU's.")
    is_hpu = property(lambda self: False, doc="False: there is no such device.")

    def __len__(self):
        return self.size()

    def __iter__(self):
        return iter(self.tolist())

    def __copy__(self):
        return self.clone()

    def __deepcopy__(self, memo):
        key = "memory", self.data_ptr()  # as for the tensors in it
        if key not in memo or not self.data_ptr():
            memory = _storage(self.untyped()._bytes)
            memo[key] = memory.clone()
            memo.setdefault(id(memo), []).append(memory)
        new = memo[id(self)] = self._with(UntypedStorage._over(memo[key]))
        return new

    def __reduce__(self):
        content = io.BytesIO()
        wisp.save(self, content)
        return _load_from_bytes, (content.getvalue(),)

    def __sizeof__(self):
        return 24 + self.nbytes()  # with every Python: what summaries of models add up is compared with what PyTorch's says

    def cpu(self):
        """The storage in main memory: itself, if it is there."""
        return self.to("cpu")

    def cuda(self, device=None, non_blocking=False):
        """The storage in a GPU's memory."""
        return self.to("cuda" if device is None else wisp.device("cuda", device) if isinstance(device, int) else device)

    def get_device(self):
        """The number of the GPU, -1 for main memory."""
        return -1 if self.device.index is None else self.device.index

    def resizable(self):
        """Whether `resize_` can change the size: the memory is not a part of another, and nobody else owns or sees it."""
        memory = self.untyped()._bytes
        return self.nbytes() == memory._storage_bytes() and memory._storage_grows() and not self.is_shared()

    def _tensor_of(self, dtype):
        """What `torch.tensor(storage, dtype=...)` is: a vector on this memory."""
        own = getattr(self, "dtype", dtype)
        if own != dtype:
            raise RuntimeError(f"Expected a Storage of type {dtype} or an UntypedStorage, but got type {own} for argument 1 'storage'")
        return TypedStorage(wrap_storage=self.untyped(), dtype=dtype)._elements()

    def new(self):
        """An empty storage of the same kind."""
        return self._with(UntypedStorage(0, device=self.device))

    def data_ptr(self):
        """The address of the first element."""
        return self.untyped()._bytes.data_ptr()

    def is_pinned(self, device="cuda"):
        """Whether the memory is pinned."""
        return self.untyped()._bytes.is_pinned()

    def pin_memory(self, device="cuda"):
        """A copy in pinned memory."""
        return self._with(UntypedStorage._over(self.untyped()._bytes.pin_memory()))


class UntypedStorage(_StorageBase):
    """A block of memory that tensors share, seen as bytes.

    >>> import wisp
    >>> wisp.zeros(3).untyped_storage().nbytes()
    12
    """

    filename = None  # of a mapped file

    def __init__(self, size=0, *, device=None, _bytes=None):
        if _bytes is None:
            make = wisp.empty if isinstance(size, int) else wisp.tensor
            _bytes = make(size, dtype=wisp.uint8, device=device)
        self._bytes = _bytes

    def nbytes(self):
        """How many bytes there are."""
        return self._bytes.numel()

    size = nbytes

    @property
    def device(self):
        """Where the memory is."""
        return self._bytes.device

    def element_size(self):
        """1: the elements are bytes."""
        return 1

    def __getitem__(self, index):
        value = self._bytes[index]
        if isinstance(index, int):
            return value.item()
        # through NumPy, since a part has a size of its own, which a view of the whole has not
        return UntypedStorage(_bytes=wisp.from_numpy(value.numpy()) if value.is_cpu and value.numel() else value)

    def __setitem__(self, index, value):
        if isinstance(index, slice) and isinstance(value, UntypedStorage):
            value = value._bytes
        self._bytes[index] = value

    def __eq__(self, other):
        return isinstance(other, UntypedStorage) and self.data_ptr() == other.data_ptr() and len(self) == len(other)

    def __hash__(self):
        return hash(self.data_ptr())

    def __repr__(self):
        if self.device.type == "meta":
            return f"...\n[{_name(self)}(device={self.device}) of size {len(self)}]"
        lines = "".join(f" {value}\n" for value in self.tolist())
        return f"{lines}[{_name(self)}(device={self.device}) of size {len(self)}]"

    __str__ = __repr__
    _cdata = property(lambda self: self._bytes._storage_ptr(), doc="What is the same for all objects of one memory.")

    def _with(self, untyped):
        return untyped

    def type(self, dtype=None, non_blocking=False):
        """The name of the class, or the memory in elements of a type."""
        return _name(self) if dtype is None else TypedStorage(wrap_storage=self, dtype=wisp.uint8).type(dtype)

    def tolist(self):
        """The bytes as a list of numbers."""
        return self._bytes.tolist()

    def clone(self):
        """A copy of the memory."""
        return UntypedStorage(_bytes=self._bytes.clone())

    def copy_(self, source, non_blocking=None):
        """Overwrite the bytes with those of another storage."""
        self._bytes.copy_(source.untyped()._bytes)
        return self

    def fill_(self, value):
        """Set every byte."""
        self._bytes.fill_(value)
        return self

    def resize_(self, size):
        """Give the memory another size, for all tensors that view it."""
        if self.nbytes() != self._bytes._storage_bytes():
            raise RuntimeError("Trying to resize storage that is not resizable: it is a part of another")
        _resize(self._bytes, size)
        self._bytes = _storage(self._bytes)
        return self

    def to(self, device, non_blocking=False):
        """The bytes on a device: the storage itself, if they are there."""
        moved = self._bytes.to(device)
        return self if moved is self._bytes else UntypedStorage(_bytes=moved)

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
    def _new_shared(cls, size, *, device="cpu"):
        return cls(_bytes=wisp.empty(size, dtype=wisp.uint8, device=device).share_memory_())

    @classmethod
    def from_file(cls, filename, shared=False, nbytes=0):
        """The bytes of a file, mapped into memory; with `shared`, writes go to the file."""
        made = cls(_bytes=wisp.from_file(str(filename), shared=shared, size=nbytes, dtype=wisp.uint8))
        made.filename = str(filename)
        return made

    @classmethod
    def from_buffer(cls, buffer, *args, dtype=None, **options):
        """A copy of a buffer's bytes; a `byte_order` other than this machine's is turned around."""
        made = cls(_bytes=wisp.frombuffer(bytearray(buffer), dtype=wisp.uint8))
        if (args[0] if args else options.get("byte_order")) == "big" and dtype is not None:
            made.byteswap(dtype)
        return made

    def byteswap(self, dtype):
        """Turn the bytes of each element around."""
        width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        self._bytes.copy_(self._bytes.reshape(-1, width).flip(1).reshape(-1))

    def __array__(self, dtype=None, copy=None):
        return self._bytes.__array__(dtype, copy)  # for torch.asarray and NumPy


class TypedStorage(_StorageBase):
    """A block of memory seen as elements of one dtype: what `tensor.storage()` gives."""

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        self.dtype = dtype or wisp.get_default_dtype()
        if wrap_storage is None:
            if len(args) > 1:
                raise ValueError("Too many positional arguments for TypedStorage: expected a size or a sequence of numbers")
            data = args[0] if args else 0
            if is_storage(data):
                data = data._elements() if isinstance(data, TypedStorage) else data._bytes
            if isinstance(data, (float, str)):
                raise TypeError(f"Argument type not recognized: {type(data)}")
            make = wisp.empty if hasattr(data, "__index__") and not isinstance(data, wisp.Tensor) else wisp.tensor
            wrap_storage = make(data, dtype=self.dtype, device=device).untyped_storage()
        elif not isinstance(wrap_storage, UntypedStorage):
            raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}")
        self._untyped_storage = wrap_storage

    def _elements(self):
        memory = self._untyped_storage._bytes
        count = memory.numel() // self.dtype.itemsize
        return _from_storage(memory, self.dtype, [count], [1], memory.storage_offset() // self.dtype.itemsize)

    def _with(self, untyped):
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    def untyped(self):
        """The same memory in bytes."""
        return self._untyped_storage

    def nbytes(self):
        """How many bytes there are."""
        return self._untyped_storage.nbytes()

    def size(self):
        """How many elements there are."""
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    _size = size
    filename = property(lambda self: self._untyped_storage.filename, doc="Of a mapped file.")
    _cdata = property(lambda self: self._untyped_storage._cdata, doc="What is the same for all objects of one memory.")

    @property
    def device(self):
        """Where the memory is."""
        return self._untyped_storage.device

    def element_size(self):
        """The bytes of one element."""
        return self.dtype.itemsize

    def __getitem__(self, index):
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise TypeError(f"can't index a {type(self)} with {type(index)}")
        return self._elements()[index].item()

    def __setitem__(self, index, value):
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if is_storage(value):
            raise RuntimeError(f"cannot set item with value type {type(value)}")
        self._elements()[index] = value

    def __eq__(self, other):
        return isinstance(other, TypedStorage) and self.dtype == other.dtype and self._untyped_storage == other._untyped_storage

    def __hash__(self):
        return hash(self._untyped_storage)

    def type(self, dtype=None, non_blocking=False):
        """The name of the type of storages, or the elements converted to another type."""
        if dtype is None:
            place = "torch.cuda" if self.is_cuda else "torch"
            return f"{place}.{self._legacy_name()}" if self._legacy_name() else _name(self)
        if isinstance(dtype, str):
            dtype = getattr(wisp, dtype.rpartition(".")[2])
        return self._to(getattr(dtype, "dtype", dtype))

    def _legacy_name(self):
        return TYPE_NAMES[self.dtype] + "Storage" if self.dtype in TYPE_NAMES else None

    def pickle_storage_type(self):
        """The name of the class of storages of this dtype."""
        return self._legacy_name()

    _pickle_storage_type = pickle_storage_type

    def _to(self, dtype):
        return TypedStorage(wrap_storage=of(self._elements().to(dtype, copy=True)), dtype=dtype)

    def to(self, *, device, non_blocking=False):
        """The elements on a device: the storage itself, if they are there."""
        moved = self._untyped_storage.to(device)
        return self if moved is self._untyped_storage else self._with(moved)

    def cpu(self):
        """The storage in main memory: itself, if it is there."""
        return self.to(device="cpu")

    def cuda(self, device=None, non_blocking=False):
        """The storage in a GPU's memory."""
        moved = self._untyped_storage.cuda(device)
        return self if moved is self._untyped_storage else self._with(moved)

    def tolist(self):
        """The elements as a list of numbers."""
        return self._elements().tolist()

    def fill_(self, value):
        """Set every element."""
        self._elements().fill_(value)
        return self

    def copy_(self, source, non_blocking=None):
        """Overwrite the elements with those of another storage."""
        self._elements().copy_(source._elements() if isinstance(source, TypedStorage) else source._bytes)
        return self

    def clone(self):
        """A copy of the memory."""
        return self._with(self._untyped_storage.clone())

    def resize_(self, size):
        """Give the memory another size, for all tensors that view it."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def is_shared(self):
        """Whether other processes can see the memory."""
        return self._untyped_storage.is_shared()

    def share_memory_(self):
        """Move the memory, in place, to where other processes can see it."""
        self._untyped_storage.share_memory_()
        return self

    @classmethod
    def _over(cls, data, dtype):
        return cls(wrap_storage=UntypedStorage._over(data), dtype=dtype)

    @classmethod
    def from_buffer(cls, *args, dtype=None, device=None, **options):
        """A copy of a buffer's elements."""
        dtype = dtype or getattr(cls, "dtype", None) or wisp.get_default_dtype()
        return TypedStorage(wrap_storage=UntypedStorage.from_buffer(*args, dtype=dtype, **options), dtype=dtype)

    _from_buffer = from_buffer

    @classmethod
    def from_file(cls, filename, shared=False, size=0):
        """The elements of a file, mapped into memory."""
        dtype = getattr(cls, "dtype", None) or wisp.get_default_dtype()
        return TypedStorage(wrap_storage=UntypedStorage.from_file(filename, shared, size * dtype.itemsize), dtype=dtype)

    def __repr__(self):
        values = "".join(f" {value}\n" for value in self.tolist()) if self.device.type != "meta" else "...\n"
        return f"{values}[{_name(self)}(dtype={self.dtype}, device={self.device}) of size {len(self)}]"

    __str__ = __repr__


def _name(storage):
    return f"torch.storage.{type(storage).__name__}"


def _cast(name, dtype):
    def cast(self):
        if isinstance(self, UntypedStorage):
            self = TypedStorage(wrap_storage=self, dtype=wisp.uint8)
        return self._to(dtype)

    cast.__name__, cast.__doc__ = name, f"A copy with elements of {dtype}."
    return cast


for _name_of_cast, _dtype in _CASTS.items():
    setattr(_StorageBase, _name_of_cast, _cast(_name_of_cast, _dtype))


class _Legacy(type):
    """The class of FloatStorage and its like: they make TypedStorages, and know theirs."""

    def __instancecheck__(cls, value):
        return isinstance(value, TypedStorage) and value.dtype == cls.dtype and value.is_cuda == cls.is_cuda

    def __call__(cls, *args, wrap_storage=None, _internal=False):
        device = "cuda" if cls.is_cuda else None
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype, device=None if wrap_storage is not None else device)


def _legacy(name, dtype, is_cuda=False):
    methods = {method: classmethod(getattr(TypedStorage, method).__func__) for method in ("from_buffer", "_from_buffer", "from_file")}
    home = "torch.cuda" if is_cuda else "torch"
    doc = f"Memory for elements of {dtype}, in the way of old programs: for so many of them, or of the values given."
    return _Legacy(name, (), {"dtype": dtype, "is_cuda": is_cuda, "__module__": home, "__doc__": doc, **methods})


LEGACY = {f"{name}Storage": _legacy(f"{name}Storage", dtype) for dtype, name in TYPE_NAMES.items()}
CUDA_LEGACY = {f"{name}Storage": _legacy(f"{name}Storage", dtype, True) for dtype, name in TYPE_NAMES.items()}


def is_storage(value):
    """Whether a value is a storage."""
    return isinstance(value, _StorageBase)


_living = weakref.WeakValueDictionary()  # address of a memory -> the object that programs hold of it, so that they get the same again


def of(tensor):
    """The bytes behind a tensor."""
    place = tensor._storage_ptr(), tensor._storage_bytes()
    found = _living.get(place) if place[0] else None
    if found is None or found._bytes._storage_ptr() != place[0] or found.nbytes() != place[1]:
        found = _living[place] = UntypedStorage(_bytes=_storage(tensor.detach()))
    return found


def __getattr__(name):
    if name in LEGACY:
        return LEGACY[name]
    if name == "StorageBase":
        return _StorageBase
    if name == "Storage":
        return LEGACY[TYPE_NAMES[wisp.get_default_dtype()] + "Storage"]
    raise AttributeError(f"module 'wisp.storage' has no attribute {name!r}")
