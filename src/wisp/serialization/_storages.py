"""The storages in a file: their bytes on the way in, and where they are brought."""

import pickle
import struct
import threading
import zipfile

import numpy

import wisp
from wisp._tensor import _KINDS
from wisp.serialization._names import StorageKind, unpickled
from wisp.serialization._unpickle import brief

packages = []  # (priority, name of a storage's place, how to bring it there), as register_package was told


_skipping = threading.local()


class skip_data:
    """A context in which `load` leaves tensors without the values in the file (they are zeros), and `save` writes zeros for them.

    >>> import io, wisp
    >>> file = io.BytesIO()
    >>> wisp.save(wisp.ones(2), file)
    >>> _ = file.seek(0)
    >>> with wisp.serialization.skip_data():
    ...     wisp.load(file)
    tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors=False):
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self):
        self.before, _skipping.on = skipping(), True

    def __exit__(self, *details):
        _skipping.on = self.before


def skipping():
    """Whether a `skip_data` context is active."""
    return getattr(_skipping, "on", False)


def bytes_of(flat):
    """The memory of a contiguous tensor."""
    if flat.numel() == 0:
        return memoryview(b"")
    if str(flat.dtype)[6:] not in _KINDS:
        flat = flat.view(wisp.uint8)
    return memoryview(flat.numpy()).cast("B")


def persistent(load_storage):
    """A function that finds the storage which an identifier in a pickle describes."""

    made = {}

    def load(identifier):
        if isinstance(identifier, tuple):
            identifier = tuple(part.decode("latin1") if type(part) is bytes else part for part in identifier)
        if not isinstance(identifier, tuple) or len(identifier) < 5 or identifier[0] != "storage":
            got = type(identifier[0] if isinstance(identifier, tuple) and len(identifier) == 1 else identifier)
            raise pickle.UnpicklingError(f"Only persistent_load of storage is allowed, but got {got} in the file")
        kind, key, location, count = identifier[1:5]
        if not isinstance(kind, StorageKind) or not isinstance(count, int) or count < 0:
            raise pickle.UnpicklingError("unknown kind of storage in the file")
        if not isinstance(key, (str, int)) or not isinstance(location, str):
            raise pickle.UnpicklingError("a storage in the file has no name or no place")
        flat = load_storage(kind.dtype, str(key), location, count, *identifier[5:])
        if id(flat) not in made:
            made[id(flat)] = storage = (
                _untyped(flat) if kind.untyped else wisp.storage.TypedStorage._over(flat.view(wisp.uint8), flat.dtype)
            )
            storage._flat = flat
        return made[id(flat)]

    return load


def begin_of(file, info):
    """Where the content of an entry begins."""
    header = b""
    if info.header_offset >= 0:
        file.seek(info.header_offset)
        header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise RuntimeError(f"the archive is damaged: {info.filename} is not where it should be")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    return info.header_offset + 30 + name_length + extra_length


def read_storage(file, info, memory, dtype, count, checks):
    """The tensor of one dimension that an entry of the archive holds, read straight into its memory."""
    dtype = getattr(wisp, dtype)
    size = count * dtype.itemsize
    if info.compress_type != zipfile.ZIP_STORED or size > info.file_size:
        raise RuntimeError(f"storage {info.filename}: record size ({info.file_size} bytes) does not match expected size ({size} bytes)")
    if size == 0:
        return wisp.empty(0, dtype=dtype, device="cpu")
    if skipping():
        return wisp.zeros(count, dtype=dtype, device="cpu")
    begin = begin_of(file, info)
    if memory is not None and begin % dtype.itemsize == 0:
        return wisp.from_numpy(numpy.frombuffer(memory, numpy.uint8, size, begin)).view(dtype)
    file.seek(begin)
    flat = wisp.empty(count, dtype=dtype, device="cpu")
    fill(file, flat)
    checks.add(info, bytes_of(flat))
    return flat


def swapped(flat):
    """The elements with their bytes in the other order."""
    width = flat.dtype.itemsize // 2 if flat.dtype.is_complex else flat.dtype.itemsize
    return flat.view(wisp.uint8).reshape(-1, width).flip(1).reshape(-1).view(flat.dtype) if flat.numel() else flat


def fill(file, flat):
    """Read the elements of a contiguous tensor from a file."""
    target = bytes_of(flat)
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


def _untyped(flat):
    return wisp.storage.UntypedStorage._over(flat.view(wisp.uint8))


def _flat(result, dtype):
    """The tensor of one dimension in what a function gave back: a storage, or a tensor."""
    return result if isinstance(result, wisp.Tensor) else result.untyped()._bytes.view(dtype)


def placement(map_location):
    """A function (tensor in main memory, saved location) -> tensor where it should be."""

    def place(flat, location):
        target = location
        if callable(map_location):
            result = map_location(_untyped(flat), location)
            if result is not None:
                return _flat(result, flat.dtype)
        elif isinstance(map_location, dict):
            target = map_location.get(location, location)
        elif map_location is not None:
            target = map_location
        for _, _, restore in packages:
            result = restore(_untyped(flat), target)
            if result is not None:
                return _flat(result, flat.dtype)
        device = wisp.device(target)
        if device.type == "cpu":
            return flat
        if device.type == "cuda" and not wisp.cuda.is_available():
            raise RuntimeError(
                "Attempting to deserialize object on a CUDA device but wisp.cuda.is_available() is False. If you are running on a "
                "CPU-only machine, please use load with map_location='cpu' to map your storages to the CPU."
            )
        return flat.to(device)

    return place


MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001


def load_legacy(file, map_location, finder):
    """Files of PyTorch before 1.6: five pickles, then the storages one after the other."""
    start = file.tell()
    left = file.seek(0, 2) - start
    file.seek(start)
    storages, views, locations = {}, {}, {}

    def load_storage(dtype, key, location, count, view=None):
        nonlocal left
        if key not in storages:
            dtype = getattr(wisp, dtype)
            left -= count * dtype.itemsize
            if left < 0:
                raise RuntimeError("the file is truncated or damaged: its storages are larger than the file")
            storages[key], locations[key] = wisp.empty(count, dtype=dtype, device="cpu"), location
        if view is None:
            return storages[key]
        view_key, offset, size = view
        if not all(type(value) in (str, int) for value in view):
            raise pickle.UnpicklingError(f"a view of a storage in the file is {brief(view)}")
        if view_key not in views:
            views[view_key] = storages[key][offset : offset + size]
        return views[view_key]

    def read():
        return unpickled(file, finder, persistent(load_storage))

    try:
        if read() != MAGIC:
            raise RuntimeError("the file was not written by save(): invalid magic number; corrupt file?")
    except (pickle.UnpicklingError, EOFError) as error:
        raise RuntimeError(f"the file was not written by save(): {error}") from None
    if read() != LEGACY_VERSION:
        raise RuntimeError("the file has an unknown version of the old format; corrupt file?")
    read()
    begin = file.tell()
    result = read()
    keys = read()
    if isinstance(keys, list):  # the strings of Python 2 may have been asked for as bytes
        keys = [key.decode("latin1") if type(key) is bytes else key for key in keys]
    if not isinstance(keys, list) or not all(isinstance(key, (str, int)) and str(key) in storages for key in keys):
        raise RuntimeError("the file is damaged: its list of storages does not fit")
    for key in keys:
        flat, head = storages[str(key)], file.read(8)
        count = int.from_bytes(head, "little", signed=True)
        if len(head) < 8 or count != flat.numel():
            raise RuntimeError(f"the file is truncated or damaged: storage {key} has {count} elements, expected {flat.numel()}")
        if count and skipping():
            file.seek(flat.nbytes, 1)
            flat.zero_()
        elif count:
            fill(file, flat)
    copied = any(hasattr(flat, "is_copied") for flat in (*storages.values(), *views.values()))
    if not copied and map_location is None and all(location == "cpu" for location in locations.values()):
        return result
    # the tensors again, over storages that are filled and where they should be
    place = placement(map_location)
    storages = {key: place(flat, locations[key]) for key, flat in storages.items()}
    views.clear()
    file.seek(begin)
    return read()
