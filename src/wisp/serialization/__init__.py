"""Saving and loading: PyTorch's `.pt` files, read and written, without ever running code from a file.

A file is a zip archive: `data.pkl` is a pickle in which a tensor is a call of `torch._utils._rebuild_tensor_v2` on a
numbered storage, and `data/0`, `data/1` … hold the bytes of the storages. The reader (`_unpickle.py`) knows a fixed list
of names that such a pickle may refer to (`_names.py`) and refuses all others.
"""

import codecs
import contextlib
import enum
import fcntl
import io
import mmap as mapping
import os
import pickle
import re
import struct
import sys
import threading
import time
import typing
import warnings
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor

from wisp import _reference
from wisp.serialization._mapped import map_file
from wisp.serialization._names import Finder, add_safe_globals, added_names, clear_safe_globals, get_safe_globals, safe_globals, unpickled
from wisp.serialization._pickler import pickled
from wisp.serialization._storages import (
    LEGACY_VERSION,
    MAGIC,
    begin_of,
    bytes_of,
    load_legacy,
    packages,
    persistent,
    placement,
    read_storage,
    skip_data,
    skipping,
    swapped,
)
from wisp.serialization._unpickle import brief
from wisp.serialization._zip import write_archive

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "safe_globals",
    "save",
    "LoadEndianness",
    "SourceChangeWarning",
    "default_restore_location",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "location_tag",
    "register_package",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]

_ALIGNMENT = 64
_JUST_BEGUN = 10.0  # seconds in which a file may have been opened and not been locked yet
# the types that annotated programs import from here
FILE_LIKE, MAP_LOCATION, FileLike = typing.Any, typing.Any, typing.Any
DEFAULT_PROTOCOL = 2


# ---------------------------------------------------------------- writing
def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True, _disable_byteorder_record=False):
    """Save an object to a file (a path or a file object), readable by PyTorch and by `load`.

    A path is written to a temporary file first and then renamed: a crash leaves the old file as it was.

    >>> import os, tempfile, wisp
    >>> path = os.path.join(tempfile.mkdtemp(), "model.pt")
    >>> wisp.save(wisp.nn.Linear(2, 1).state_dict(), path)
    >>> list(wisp.load(path))
    ['weight', 'bias']
    """
    write = _write_archive if _use_new_zipfile_serialization else _write_legacy
    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "write"):
            raise AttributeError(f"expected 'f' to be string, path, or a file-like object with a 'write' attribute; got {type(f).__name__}")
        write(obj, f, "archive", pickle_protocol)
        if hasattr(f, "flush"):
            f.flush()
        return
    name = os.path.splitext(os.path.basename(os.path.realpath(f)))[0] or "archive"
    directory = os.path.dirname(os.path.realpath(f))
    if not os.path.isdir(directory):
        raise RuntimeError(f"Parent directory {directory} does not exist.")
    with replacing(f) as file:
        write(obj, file, name, pickle_protocol)


@contextlib.contextmanager
def replacing(path):
    """A file to write that takes the place of `path` when all went well, so that there is always a whole file."""
    path = os.path.realpath(os.fspath(path))
    if os.path.exists(path) and not os.path.isfile(path):  # a device or a pipe
        with open(path, "wb") as file:
            yield file
        return
    _clear_leftovers(path)
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            _lock(file)
            yield file
        with _freed_aside(path):
            os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _lock(file):
    """Mark a file as being written, until it is closed or its process ends; whether it was not so marked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody else's, or a file system without locks
        return False
    return True


def _clear_leftovers(path):
    """Remove what saves to the same path left behind when their process was killed."""
    directory, name = os.path.split(path)
    leftover = re.compile(re.escape(name) + r"\.\d+\.[0-9a-f]{8}\.tmp")
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if not leftover.fullmatch(entry.name):
                continue
            with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime > _JUST_BEGUN and _lock(file):
                    os.unlink(entry.path)


@contextlib.contextmanager
def _freed_aside(path):
    """While `path` is replaced: its old content is kept until a thread of its own lets go of it, as giving back the
    blocks of a large file takes about as long as writing it."""
    old = None
    with contextlib.suppress(OSError):
        if os.stat(path).st_size >= 1 << 20:
            old = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        yield
    finally:
        if old is not None:
            try:
                threading.Thread(target=os.close, args=(old,)).start()
            except RuntimeError:  # no more threads, or the interpreter is about to end
                os.close(old)


def _written(storage):
    content = storage.content()
    return memoryview(bytes(content.nbytes)) if skipping() else bytes_of(content)


def _write_archive(obj, file, name, protocol):
    data, storages = pickled(obj, protocol)
    entries = [
        ("data.pkl", data),
        (".format_version", b"1"),
        (".storage_alignment", str(_ALIGNMENT).encode()),
        ("byteorder", sys.byteorder.encode()),
    ]
    entries += [(f"data/{storage.key}", _written(storage)) for storage in storages]
    entries.append(("version", b"3\n"))
    write_archive(file, [(f"{name}/{entry}", content) for entry, content in entries], _ALIGNMENT, _crc[0])


def _write_legacy(obj, file, name, protocol):
    """The format of PyTorch before 1.6, which it still writes when asked."""
    data, storages = pickled(obj, protocol, legacy=True)
    sizes = {"short": 2, "int": 4, "long": 4}
    for head in (
        MAGIC,
        LEGACY_VERSION,
        {"protocol_version": LEGACY_VERSION, "little_endian": sys.byteorder == "little", "type_sizes": sizes},
    ):
        file.write(pickle.dumps(head, protocol))
    file.write(data)
    file.write(pickle.dumps([storage.key for storage in storages], protocol))
    for storage in storages:
        content = storage.content()
        file.write(storage.entries(content).to_bytes(8, "little"))
        file.write(bytes_of(content))


# ---------------------------------------------------------------- reading
def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Load what `save`, of Wisp or of PyTorch, has written to a file (a path or a file object).

    Loading never runs code: a file may refer to tensors, plain Python values and what `add_safe_globals` was told; with
    `weights_only=False` also to subclasses of nn.Module that the program has already imported. What is allocated is in
    proportion to the size of the file, whatever it says. A `pickle_module` of the program's own (dill, say), with
    `weights_only=False`, reads the file by its own rules instead, and may run code.
    `map_location` moves tensors to a device: a device, a dict from
    saved to new devices, or a function of (storage, location). With `mmap` the file is mapped, and only what is used is
    read. A safetensors file gives its dict of tensors.

    >>> import io, wisp
    >>> file = io.BytesIO()
    >>> wisp.save({"weight": wisp.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> wisp.load(file)
    {'weight': tensor([1., 1.])}
    """
    encoding = pickle_load_args.get("encoding", "utf-8")
    if encoding != "bytes":
        codecs.lookup(encoding)
    weights_only = _wished(weights_only)
    if pickle_module is pickle:
        pickle_module = None
    if weights_only and pickle_module is not None:
        raise RuntimeError(
            "Can not safely load weights when explicit pickle_module is specified: pass weights_only=False if you trust the file, which "
            "may run code then"
        )
    finder = Finder(weights_only, encoding=encoding, pickle_module=pickle_module)
    return _open(f, mmap, lambda file: _load_file(file, map_location, finder, bool(mmap)))


def _wished(weights_only):
    """What the environment says comes first, in PyTorch's words."""

    def on(name):
        return os.environ.get(name, "0") in ("1", "y", "yes", "true")

    if on("TORCH_FORCE_WEIGHTS_ONLY_LOAD"):
        return True
    if weights_only is None:
        if on("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
            warnings.warn(
                "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was not explicitly "
                "passed to `torch.load`, forcing weights_only=False.",
                stacklevel=3,
            )
            return False
        return True
    return weights_only


def get_unsafe_globals_in_checkpoint(f):
    """The names in a file that `load` would refuse, as a list of texts.

    >>> import io, wisp
    >>> file = io.BytesIO()
    >>> wisp.save({"layer": wisp.nn.Linear(1, 1)}, file)
    >>> wisp.serialization.get_unsafe_globals_in_checkpoint(file)
    ['torch.nn.modules.linear.Linear']
    """
    finder = Finder(weights_only=True, collect=True)

    def read(file):
        file.seek(0)
        with contextlib.suppress(pickle.UnpicklingError):
            _load_file(file, None, finder, False)

    _open(f, False, read)
    from wisp import _weights_only_unpickler  # where programs that know PyTorch's inner names change the list

    allowed = {*_weights_only_unpickler._get_allowed_globals(), *added_names()}
    return list(dict.fromkeys(name for name in finder.named if name not in allowed and "wisp" + name[5:] not in allowed))


def _open(f, mmap, read):
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return read(file)
    if mmap:
        raise ValueError("f must be a file name in order to use the mmap argument")
    if not hasattr(f, "read"):
        raise AttributeError(f"load: expected a path or a file object with read and seek, got {type(f).__name__}")
    if not (hasattr(f, "seek") and hasattr(f, "tell")):
        raise AttributeError(
            f"load: a {type(f).__name__} has no seek or tell. You can only torch.load from a file that is seekable. Please pre-load the "
            "data into a buffer like io.BytesIO and try to load from it instead."
        )
    if hasattr(f, "seekable") and not f.seekable():
        f = io.BytesIO(f.read())
    return read(f)


_KNOWN_BEGINNINGS = {
    b"version https://git-lfs": "it is a Git LFS pointer: fetch the file itself with `git lfs pull`",
    b"<!DOCTYPE": "it is a web page: the download went wrong",
    b"<html": "it is a web page: the download went wrong",
    b"\x1f\x8b": "it is compressed with gzip: unpack it first",
    b"\x93NUMPY": "it is an array of NumPy: use numpy.load",
    b"\x89HDF": "it is an HDF5 file",
}


def _load_file(file, map_location, finder, mapped):
    start = file.tell()
    first = file.read(32)
    file.seek(start)
    if first[:2] == b"PK":
        return _load_archive(file, map_location, finder, mapped)
    for beginning, what in _KNOWN_BEGINNINGS.items():
        if first.startswith(beginning):
            raise RuntimeError(f"the file was not written by save(): {what}")
    if first[8:9] == b"{" and int.from_bytes(first[:8], "little") < 1 << 27:
        return _load_safetensors(file, map_location, mapped)
    if len(first) < 4:
        raise EOFError("the file is empty" if not first else "the file is too short")
    if mapped:
        raise RuntimeError("mmap can only be used with files saved in the zip format")
    return load_legacy(file, map_location, finder)


def _load_safetensors(file, map_location, mapped):
    from wisp.utils import safetensors

    if isinstance(map_location, dict) or callable(map_location):
        raise RuntimeError("a safetensors file does not say where its tensors were: map_location must be a device")
    device = "cpu" if map_location is None else map_location
    if mapped:
        return safetensors.load_file(file.name, device, mmap=True)
    whole = file if file.tell() == 0 else io.BytesIO(file.read())
    return {name: tensor.to(device) for name, tensor in safetensors.read_tensors(whole).items()}


def _load_archive(file, map_location, finder, mapped):
    place = placement(map_location)
    start = file.tell()
    size = file.seek(0, 2) - start
    file.seek(start)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, struct.error, KeyError) as error:
        raise RuntimeError(f"the file is not a complete archive: it is truncated, or damaged at its end ({error})") from None
    with archive:
        entries = {name.split("/", 1)[1]: info for name, info in archive.NameToInfo.items() if "/" in name}
        if "data.pkl" not in entries:
            raise RuntimeError(
                "the archive holds no data.pkl: it was not written by save()"
                + (" (TorchScript files are not supported)" if "constants.pkl" in entries else "")
            )

        checks = _Checksums()

        def read(name):
            info = entries[name]
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
                raise RuntimeError(f"the archive is damaged: {name} is compressed or larger than the file")
            file.seek(begin_of(file, info))
            content = file.read(info.file_size)
            if len(content) < info.file_size:
                raise RuntimeError(f"the archive is truncated: it ends within {name}")
            checks.add(info, content)
            return content

        foreign = _is_foreign(read("byteorder") if "byteorder" in entries else None)
        memory = map_file(file, private=_mmap[0] == mapping.MAP_PRIVATE) if mapped else None
        storages, left = {}, size

        def load_storage(dtype, key, location, count, *_):
            nonlocal left
            if key not in storages:
                info = entries.get(f"data/{key}")
                if info is None:
                    raise RuntimeError(f"the archive lacks the storage data/{key}")
                left -= info.file_size  # entries that overlap could hold more than the file
                if left < 0:
                    raise RuntimeError("the archive is damaged: its storages are larger than the file")
                flat = read_storage(file, info, memory, dtype, count, checks)
                storages[key] = place(swapped(flat) if foreign else flat, location)
            return storages[key]

        pickled = read("data.pkl")
        with checks:
            return unpickled(io.BytesIO(pickled), finder, persistent(load_storage))


def _is_foreign(told):
    """Whether the bytes of elements are in the other order than this machine's."""
    if told is None:
        wanted = _endianness[0]
        return wanted not in (None, LoadEndianness.NATIVE) and wanted.name.lower() != sys.byteorder
    if told not in (b"little", b"big"):
        raise ValueError("Unknown endianness type: " + brief(told))
    return told != sys.byteorder.encode()


class _Checksums:
    """Compares what was read with the checksums in the archive: at once where it is little, else in other threads, while more
    is read; at the end of the context all must fit. PyTorch can be told to write zeros instead, which are not compared."""

    def __init__(self):
        self.pool, self.waiting = None, []

    def add(self, info, content):
        if not info.CRC or len(content) != info.file_size:
            return
        if len(content) < 1 << 18:
            self.compare(info, zlib.crc32(content))
        else:
            self.pool = self.pool or ThreadPoolExecutor(2)
            self.waiting.append((info, self.pool.submit(zlib.crc32, content)))

    def compare(self, info, checksum):
        if checksum != info.CRC:
            raise RuntimeError(f"the archive is damaged: the checksum of {info.filename} does not fit its content")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            for info, checksum in self.waiting if kind is None else ():
                self.compare(info, checksum.result())
        finally:
            if self.pool is not None:
                self.pool.shutdown()


def register_package(priority, tagger, deserializer):
    """Let a function bring storages to their place when a file is loaded: `deserializer(storage, location)` returns the storage,
    or None if the location is none of its own. Functions of lower priority are asked first.

    >>> import wisp.serialization
    >>> wisp.serialization.register_package(15, lambda storage: None, lambda storage, location: None)
    """
    packages.append((priority, tagger, deserializer))
    packages.sort(key=lambda entry: entry[0])


def default_restore_location(storage, location):
    """Bring a storage to the place with this name ("cpu", "cuda:0")."""
    import wisp

    return storage.to(wisp.device(location)) if str(location) != "cpu" else storage


def normalize_storage_type(storage_type):
    """The class of storages of a name, or of a class of storages on a GPU, in main memory."""
    import wisp

    return getattr(wisp, storage_type if isinstance(storage_type, str) else storage_type.__name__)


def location_tag(storage):
    """The name of a storage's place."""
    return str(storage.device)


def _get_layout(name):
    """The layout of a name in PyTorch's pickles."""
    import wisp

    layout = getattr(wisp, name.removeprefix("torch."), None) if isinstance(name, str) else None
    if not isinstance(layout, wisp.layout):
        raise KeyError(name)
    return layout


class LoadEndianness(enum.Enum):
    """The order of bytes in files that do not say it."""

    NATIVE, LITTLE, BIG = 1, 2, 3


_endianness = [None]


def get_default_load_endianness():
    """The order of bytes in files that do not say it; None: this machine's."""
    return _endianness[0]


def set_default_load_endianness(endianness):
    """Say which order of bytes files have that do not say it."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _endianness[0] = endianness


_crc = [True]


def get_crc32_options():
    """Whether checksums are written."""
    return _crc[0]


def set_crc32_options(compute_crc32):
    """Say whether checksums are written; files without them cannot be checked when they are read."""
    _crc[0] = compute_crc32


_mmap = [mapping.MAP_PRIVATE]


def get_default_mmap_options():
    """The flags of mapped files."""
    return _mmap[0]


class set_default_mmap_options:
    """Say how files are mapped: MAP_PRIVATE keeps writes to this process, MAP_SHARED brings them to the file. As a context, for a while.

    >>> import mmap, wisp.serialization
    >>> with wisp.serialization.set_default_mmap_options(mmap.MAP_SHARED):
    ...     wisp.serialization.get_default_mmap_options() == mmap.MAP_SHARED
    True
    """

    def __init__(self, flags):
        if flags not in (mapping.MAP_PRIVATE, mapping.MAP_SHARED):
            raise ValueError(
                f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, got {flags}"
            )
        self.previous, _mmap[0] = _mmap[0], flags

    def __enter__(self):
        pass

    def __exit__(self, *_):
        _mmap[0] = self.previous


class SourceChangeWarning(Warning):
    """Not given: source code is not kept in files."""


_reference.attach(__name__, globals())
