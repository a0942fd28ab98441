"""Saving and loading: PyTorch's `.pt` files, read and written, without ever running code from a file.

A file is a zip archive: `data.pkl` is a pickle in which a tensor is a call of `torch._utils._rebuild_tensor_v2` on a
numbered storage, and `data/0`, `data/1` … hold the bytes of the storages. The reader knows a fixed list of names that
such a pickle may refer to (see `_NAMES`) and refuses all others.
"""
import builtins
import collections
import contextlib
import functools
import importlib
import io
import mmap as mapping
import os
import pickle
import struct
import sys
import zipfile

import numpy

import wisp
from wisp._zip import write_archive

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "load", "safe_globals", "save"]

_STORAGES = {"FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16",
             "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16",
             "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
             "ComplexDoubleStorage": "complex128", "UntypedStorage": "uint8"}
_STORAGE_OF = {dtype: name for name, dtype in _STORAGES.items() if name != "UntypedStorage"}
_ALIGNMENT = 64


def _dtype_name(dtype):
    return str(dtype).rsplit(".", 1)[-1]


# ---------------------------------------------------------------- writing
class _Global:
    """Stands for a global name in a pickle, without importing its module."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self):
        raise TypeError(f"{self.module}.{self.name} is only a name")


_TENSOR, _TENSOR_V3 = _Global("torch._utils", "_rebuild_tensor_v2"), _Global("torch._utils", "_rebuild_tensor_v3")
_PARAMETER = _Global("torch._utils", "_rebuild_parameter")
_DEVICE, _SIZE = _Global("torch", "device"), _Global("torch", "Size")
_KINDS = {name: _Global("torch.storage" if name == "UntypedStorage" else "torch", name) for name in _STORAGES}
_named = functools.cache(_Global)


class _Storage:
    """The part of a storage that saved tensors cover."""

    def __init__(self, tensor):
        self.tensor = tensor  # any of them; keeps the memory alive
        self.key = None
        self.low, self.high = sys.maxsize, 0
        self.patterns = set()

    def add(self, tensor):
        offset, shape, strides = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
        end = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        self.low, self.high = min(self.low, offset), max(self.high, end)
        self.patterns.add((offset, shape, strides))

    def compact(self):
        """Whether a copy of the single tensor in it is smaller than the range of memory."""
        return self.tensor.numel() == 0 or len(self.patterns) == 1 and self.high - self.low > self.tensor.numel()

    def content(self):
        """The elements to write, as a tensor of one dimension in main memory."""
        if self.compact():
            return self.tensor.contiguous().cpu().reshape(-1)
        return self.tensor.as_strided((self.high - self.low,), (1,), self.low).cpu()

    def count(self):
        return self.tensor.numel() if self.compact() else self.high - self.low


class _Pickler(pickle._Pickler):
    """Writes tensors as PyTorch does. A first, dry run collects which part of each storage is needed, so that a view of
    a large tensor is saved small, and tensors that share memory share it in the file."""

    def __init__(self, file, protocol, surveyed=None):
        super().__init__(file, protocol)
        self.dry = surveyed is None
        self.storages = {} if surveyed is None else surveyed
        self.written = []  # in the order of their keys
        self.alive = []    # while we hold a tensor, its address is not used again

    def save(self, value, save_persistent_id=True):
        if isinstance(value, wisp.dtype):
            value = _named("torch", _dtype_name(value))
        if type(value) is not _Global:
            super().save(value, save_persistent_id)
        elif id(value) in self.memo:
            self.write(self.get(self.memo[id(value)][0]))
        else:
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
            self.memoize(value)

    def persistent_id(self, value):
        if type(value) is not _Storage:
            return None
        if value.key is None or self.dry:
            value.key = str(len(self.written))
            self.written.append(value)
        name, count = _dtype_name(value.tensor.dtype), value.count()
        kind = _STORAGE_OF.get(name, "UntypedStorage")
        if kind == "UntypedStorage":
            count *= value.tensor.element_size()
        return "storage", _KINDS[kind], value.key, str(value.tensor.device), count

    def reducer_override(self, value):
        if isinstance(value, wisp.Tensor):
            return self._reduce_tensor(value)
        if isinstance(value, wisp.device):
            return _DEVICE, (value.type,) if value.index is None else (value.type, value.index)
        if isinstance(value, wisp.Size):
            return _SIZE, (tuple(value),)
        if isinstance(value, dict) and type(value).__module__ == "wisp.nn.modules.registry":
            return collections.OrderedDict, (), None, None, iter(value.items())
        return NotImplemented

    def _reduce_tensor(self, tensor):
        hooks = collections.OrderedDict()
        plain = tensor.detach()
        nn = sys.modules.get("wisp.nn.parameter")
        if nn is not None and isinstance(tensor, nn.Parameter):
            self.alive.append(plain)
            return _PARAMETER, (plain, tensor.requires_grad, hooks)
        if plain.is_complex():
            plain = plain.resolve_conj()
        self.alive.append(plain)
        place = plain._storage_ptr(), plain.dtype, str(plain.device)
        storage = self.storages.get(place) if plain.numel() else _Storage(plain)
        if storage is None:
            storage = self.storages[place] = _Storage(plain)
        if self.dry and plain.numel():
            storage.add(plain)
        offset, strides = plain.storage_offset() - storage.low, tuple(plain.stride())
        if storage.compact():
            offset, strides = 0, tuple(plain.contiguous().stride())
        args = storage, offset, tuple(plain.shape), strides, tensor.requires_grad, hooks
        if _dtype_name(plain.dtype) in _STORAGE_OF:
            return _TENSOR, args
        return _TENSOR_V3, (*args, plain.dtype)


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True,
         _disable_byteorder_record=False):
    """Save an object to a file (a path or a file object), readable by PyTorch and by `load`.

    A path is written to a temporary file first and then renamed: a crash leaves the old file as it was.
    """
    if not isinstance(f, (str, os.PathLike)):
        _write_archive(obj, f, "archive", pickle_protocol)
        return
    path = os.path.realpath(os.fspath(f))
    name = os.path.splitext(os.path.basename(path))[0] or "archive"
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe
        with open(path, "wb") as file:
            _write_archive(obj, file, name, pickle_protocol)
        return
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            _write_archive(obj, file, name, pickle_protocol)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _write_archive(obj, file, name, protocol):
    survey = _Pickler(io.BytesIO(), protocol)
    survey.dump(obj)
    for storage in survey.written:
        storage.key = None
    stream = io.BytesIO()
    pickler = _Pickler(stream, protocol, survey.storages)
    pickler.dump(obj)
    entries = [("data.pkl", stream.getvalue()), (".format_version", b"1"),
               (".storage_alignment", str(_ALIGNMENT).encode()), ("byteorder", sys.byteorder.encode())]
    entries += [(f"data/{storage.key}", _bytes(storage.content())) for storage in pickler.written]
    entries.append(("version", b"3\n"))
    write_archive(file, [(f"{name}/{entry}", content) for entry, content in entries], _ALIGNMENT)


def _bytes(flat):
    """The memory of a contiguous tensor."""
    if flat.numel() == 0:
        return memoryview(b"")
    if flat.dtype == wisp.bfloat16:
        flat = flat.view(wisp.int16)
    return memoryview(flat.numpy()).cast("B")


# ---------------------------------------------------------------- names that a file may refer to
class _Name:
    """A function or type that a pickle may call. A file cannot change it: it has no attributes to set."""

    __slots__ = ("_function",)

    def __init__(self, function):
        object.__setattr__(self, "_function", function)

    def __call__(self, *args):
        return self._function(*args)

    def __setattr__(self, name, value):
        raise pickle.UnpicklingError("a file tried to change a function")


class _StorageKind:
    __slots__ = ("dtype",)

    def __init__(self, dtype):
        self.dtype = dtype


def _rebuild_tensor(storage, offset, size, stride, *_):
    return _view(storage, offset, size, stride)


def _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, *_):
    return _view(storage, offset, size, stride).requires_grad_(requires_grad)


def _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, *_):
    return _view(storage.view(dtype), offset, size, stride).requires_grad_(requires_grad)


def _view(flat, offset, size, stride):
    """A tensor over a storage, after a check that it lies within."""
    if min((offset, *size, *stride), default=0) < 0 or len(size) != len(stride):
        raise pickle.UnpicklingError(f"a tensor in the file has impossible sizes: {size}, {stride}, {offset}")
    if 0 not in size:
        last = offset + sum((n - 1) * step for n, step in zip(size, stride))
        if last >= flat.numel():
            raise pickle.UnpicklingError(f"a tensor in the file reaches beyond its storage of {flat.numel()} elements: "
                                         f"{size}, {stride}, {offset}")
    with wisp.no_grad():
        return flat.as_strided(tuple(size), tuple(stride), offset).detach()


def _rebuild_parameter(data, requires_grad=True, *_):
    return wisp.nn.Parameter(data, requires_grad=requires_grad)


def _encode(text, encoding):
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding} is not expected")
    return text.encode("latin1")


def _default_dict(factory=None):
    known = {id(_NAMES[name]): getattr(builtins, name.split()[1]) for name in _NAMES if name.startswith("builtins ")}
    return collections.defaultdict(known.get(id(factory)))


_NAMES = {
    "torch._utils _rebuild_tensor": _Name(_rebuild_tensor),
    "torch._utils _rebuild_tensor_v2": _Name(_rebuild_tensor_v2),
    "torch._utils _rebuild_tensor_v3": _Name(_rebuild_tensor_v3),
    "torch._utils _rebuild_parameter": _Name(_rebuild_parameter),
    "torch._utils _rebuild_parameter_with_state": _Name(_rebuild_parameter),
    "torch._tensor _rebuild_from_type_v2": _Name(lambda function, kind, args, state: function(*args)),
    "torch.nn.parameter Parameter": _Name(_rebuild_parameter),
    "torch device": _Name(lambda *args: wisp.device(*args)),
    "torch Size": _Name(lambda *args: wisp.Size(*args)),
    "torch Tensor": _Name(lambda *args: wisp.Tensor(*args)),
    "collections OrderedDict": _Name(collections.OrderedDict),
    "collections Counter": _Name(collections.Counter),
    "collections defaultdict": _Name(_default_dict),
    "collections deque": _Name(collections.deque),
    "_codecs encode": _Name(_encode),
    **{f"builtins {kind.__name__}": _Name(kind) for kind in (
        int, float, bool, str, list, dict, tuple, set, frozenset, complex, bytearray, slice, range)},
    **{f"torch {name}": _StorageKind(dtype) for name, dtype in _STORAGES.items()},
    "torch.storage UntypedStorage": _StorageKind("uint8"),
}
_DTYPE_NAMES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "uint16",
                "uint32", "uint64", "bool", "complex64", "complex128")
_safe = {}


def _full_name(item):
    kind, name = item if isinstance(item, tuple) else (item, f"{item.__module__}.{item.__qualname__}")
    return kind, name


def add_safe_globals(safe_globals):
    """Let files refer to these classes and functions. Each is a class, or a pair of it and its name in files."""
    for item in safe_globals:
        kind, name = _full_name(item)
        _safe[name] = kind


def get_safe_globals():
    """What `add_safe_globals` has added."""
    return list(_safe.values())


def clear_safe_globals():
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals):
    """A context in which files may refer to these classes and functions."""
    before = dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file, load_storage, weights_only):
        super().__init__(file, encoding="utf-8")
        self.load_storage, self.weights_only = load_storage, weights_only

    def find_class(self, module, name):
        module = {"__builtin__": "builtins"}.get(module, module)
        if module == "wisp" or module.startswith("wisp."):
            module = "torch" + module[4:]
        known = _NAMES.get(f"{module} {name}")
        if known is not None:
            return known
        if module == "torch" and name in _DTYPE_NAMES:
            return getattr(wisp, name)
        for spelling in (module, "wisp" + module[5:] if module.startswith("torch") else module):
            if f"{spelling}.{name}" in _safe:
                return _safe[f"{spelling}.{name}"]
        if not self.weights_only:
            kind = _module_class(module, name)
            if kind is not None:
                return kind
        raise pickle.UnpicklingError(
            f"the file refers to {module}.{name}, which is not on the list of types that may be loaded. Files never "
            f"run code here. If you trust this type, import it and say "
            f"wisp.serialization.add_safe_globals([{name}]) before loading.")

    def persistent_load(self, identifier):
        if not isinstance(identifier, tuple) or identifier[0] != "storage" or len(identifier) < 5:
            raise pickle.UnpicklingError(f"unknown reference in the file: {identifier!r}")
        kind, key, location, count = identifier[1:5]
        if not isinstance(kind, _StorageKind):
            raise pickle.UnpicklingError(f"unknown kind of storage in the file: {kind!r}")
        return self.load_storage(kind.dtype, str(key), str(location), int(count), *identifier[5:])


def _module_class(module, name):
    """A class of layers which the program has loaded, or an operator: with `weights_only=False` whole models can be
    read."""
    if module == "torch" or module.startswith("torch."):
        operator = wisp._core._operators.get(module[6:], {}).get(name)
        if operator is not None and not name.startswith("_"):
            return operator
        module = "wisp" + module[5:]
    kind = importlib.import_module(module) if module.startswith("wisp.nn.modules.") else sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    return kind if isinstance(kind, type) and issubclass(kind, wisp.nn.Module) else None


# ---------------------------------------------------------------- reading
def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Load what `save`, of Wisp or of PyTorch, has written to a file (a path or a file object).

    Loading never runs code: a file may refer to tensors, plain Python values and what `add_safe_globals` was told; with
    `weights_only=False` also to subclasses of nn.Module that the program has already imported. `map_location` moves
    tensors to a device: a device, a dict from saved to new devices, or a function of (storage, location). With `mmap`
    the file is mapped, and only what is used is read.
    """
    weights_only = True if weights_only is None else weights_only
    if not isinstance(f, (str, os.PathLike)):
        if mmap:
            raise ValueError("f must be a file name in order to use the mmap argument")
        if not hasattr(f, "seek"):
            f = io.BytesIO(f.read())
        return _load_file(f, map_location, weights_only, False)
    with open(f, "rb") as file:
        return _load_file(file, map_location, weights_only, bool(mmap))


def _load_file(file, map_location, weights_only, mapped):
    start = file.tell()
    first = file.read(4)
    file.seek(start)
    if first[:2] == b"PK":
        return _load_archive(file, map_location, weights_only, mapped)
    if mapped:
        raise RuntimeError("mmap can only be used with files saved in the zip format")
    if len(first) < 4:
        raise EOFError("the file is empty" if not first else "the file is too short")
    return _load_legacy(file, map_location, weights_only)


def _load_archive(file, map_location, weights_only, mapped):
    place = _placement(map_location)
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise RuntimeError(f"the file is not a complete archive: {error}") from None
    with archive:
        entries = {name.split("/", 1)[1]: info for name, info in archive.NameToInfo.items() if "/" in name}
        if "data.pkl" not in entries:
            raise RuntimeError("the archive holds no data.pkl: it was not written by save()"
                               + (" (TorchScript files are not supported)" if "constants.pkl" in entries else ""))
        if "byteorder" in entries and archive.read(entries["byteorder"]).decode() != sys.byteorder:
            raise RuntimeError("the file was written on a machine with the other byte order")
        memory = mapping.mmap(file.fileno(), 0, access=mapping.ACCESS_COPY) if mapped else None
        storages = {}

        def load_storage(dtype, key, location, count, *_):
            if key not in storages:
                info = entries.get(f"data/{key}")
                if info is None:
                    raise RuntimeError(f"the archive lacks the storage data/{key}")
                storages[key] = place(_read_storage(file, info, memory, dtype, count), location)
            return storages[key]
        return _Unpickler(io.BytesIO(archive.read(entries["data.pkl"])), load_storage, weights_only).load()


def _read_storage(file, info, memory, dtype, count):
    """The tensor of one dimension that an entry of the archive holds, read straight into its memory."""
    dtype = getattr(wisp, dtype)
    size = count * dtype.itemsize
    if info.compress_type != zipfile.ZIP_STORED or size > info.file_size:
        raise RuntimeError(f"storage {info.filename} has {info.file_size} bytes, expected {size}")
    if size == 0:
        return wisp.empty(0, dtype=dtype)
    file.seek(info.header_offset)
    header = file.read(30)
    if header[:4] != b"PK\x03\x04":
        raise RuntimeError(f"storage {info.filename} is damaged")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    begin = info.header_offset + 30 + name_length + extra_length
    if memory is not None and begin % dtype.itemsize == 0:
        return wisp.from_numpy(numpy.frombuffer(memory, numpy.uint8, size, begin)).view(dtype)
    file.seek(begin)
    return _read_into(file, dtype, count)


def _read_into(file, dtype, count):
    flat = wisp.empty(count, dtype=dtype)
    target = _bytes(flat)
    if hasattr(file, "readinto"):
        done = 0
        while done < target.nbytes:
            got = file.readinto(target[done:])
            if not got:
                raise EOFError("the file ends within a storage")
            done += got
    else:
        content = file.read(target.nbytes)
        if len(content) < target.nbytes:
            raise EOFError("the file ends within a storage")
        target[:] = content
    return flat


class _Movable:
    """What a `map_location` function gets as storage."""

    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def device(self):
        return self.tensor.device

    def cpu(self):
        return _Movable(self.tensor.cpu())

    def cuda(self, device=None):
        return _Movable(self.tensor.cuda(device))

    def to(self, device):
        return _Movable(self.tensor.to(device))


def _placement(map_location):
    """A function (tensor in main memory, saved location) -> tensor where it should be."""
    def place(flat, location):
        target = location
        if callable(map_location):
            result = map_location(_Movable(flat), location)
            if result is not None:
                return result.tensor if isinstance(result, _Movable) else result
        elif isinstance(map_location, dict):
            target = map_location.get(location, location)
        elif map_location is not None:
            target = map_location
        device = wisp.device(target)
        if device.type == "cpu":
            return flat
        if device.type == "cuda" and not wisp.cuda.is_available():
            raise RuntimeError("Attempting to deserialize object on a CUDA device but wisp.cuda.is_available() is "
                               "False. If you are running on a CPU-only machine, please use load with "
                               "map_location='cpu' to map your storages to the CPU.")
        return flat.to(device)
    return place


def _load_legacy(file, map_location, weights_only):
    """Files of PyTorch before 1.6: five pickles, then the storages one after the other."""
    place, storages, views = _placement(map_location), {}, {}

    def load_storage(dtype, key, location, count, view=None):
        if key not in storages:
            storages[key] = wisp.empty(count, dtype=getattr(wisp, dtype)), location
        if view is None:
            return storages[key][0]
        view_key, offset, size = view
        if view_key not in views:
            views[view_key] = storages[key][0][offset:offset + size]
        return views[view_key]

    def read():
        return _Unpickler(file, load_storage, weights_only).load()
    try:
        if read() != 0x1950a86a20f9469cfc6c:
            raise RuntimeError("Invalid magic number; corrupt file?")
        if read() != 1001:
            raise RuntimeError("Invalid protocol version")
    except (pickle.UnpicklingError, ValueError, KeyError, IndexError) as error:
        raise RuntimeError(f"the file was not written by save(): {error}") from None
    read()
    result = read()
    for key in read():
        flat = storages[str(key)][0]
        count, = struct.unpack("<q", file.read(8))
        if count != flat.numel():
            raise RuntimeError(f"storage {key} has {count} elements, expected {flat.numel()}")
        if count:
            _bytes(flat)[:] = file.read(_bytes(flat).nbytes)
    if map_location is not None or any(location != "cpu" for _, location in storages.values()):
        from wisp.utils import _pytree
        locations = {flat._storage_ptr(): location for flat, location in storages.values()}
        return _pytree.tree_map_only(wisp.Tensor, lambda tensor: place(
            tensor, locations.get(tensor._storage_ptr(), "cpu")), result)
    return result
