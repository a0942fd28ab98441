"""`.safetensors` files, read and written: `from wisp.utils.safetensors import load_file, save_file`.

The names are those of the `safetensors.torch` module. The format is small: eight bytes that say how long the header is, a
header in JSON (name -> dtype, shape, where the bytes are), and the bytes. Nothing in it can run code; everything that a
header says is checked before memory is touched.
"""

import io
import json
import math
import os

import numpy

import wisp
from wisp.serialization import replacing
from wisp.serialization._mapped import map_file
from wisp.serialization._storages import bytes_of, fill

__all__ = ["SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]

# In the order in which tensors are written: by type from wide to narrow, so that all are aligned.
_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
_DTYPES = {name: getattr(wisp, dtype) for name, dtype in _NAMES.items()}
_WRITTEN = {dtype: (order, name) for order, (name, dtype) in enumerate(_DTYPES.items())}
_LONGEST_HEADER = 100_000_000


class SafetensorError(Exception):
    """A file is not a whole safetensors file, or something cannot be written to one.

    >>> import wisp
    >>> wisp.utils.safetensors.load(b"hello")
    Traceback (most recent call last):
        ...
    wisp.utils.safetensors.SafetensorError: not a safetensors file: it has 5 bytes, too few for a header
    """


# ---------------------------------------------------------------- reading
class _Entry:
    """Where a tensor is in a file."""

    __slots__ = ("begin", "dtype", "end", "shape")

    def __init__(self, name, entry, size):
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise SafetensorError(f"the header is damaged: {name!r} is described by {str(entry)[:200]}")
        dtype, self.shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        for numbers in (self.shape, offsets):
            if not isinstance(numbers, list) or not all(type(number) is int and 0 <= number < 1 << 62 for number in numbers):
                raise SafetensorError(f"the header is damaged: {name!r} has sizes {str(numbers)[:200]}")
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise SafetensorError(f"{name!r} has the dtype {str(dtype)[:20]}, which Wisp does not have (it has {', '.join(_DTYPES)})")
        self.dtype = _DTYPES[dtype]
        if len(offsets) != 2 or len(self.shape) > 64:
            raise SafetensorError(f"the header is damaged: {name!r} has {len(self.shape)} dimensions, {len(offsets)} offsets")
        self.begin, self.end = offsets
        expected = math.prod(self.shape) * self.dtype.itemsize
        if self.end - self.begin != expected or self.end > size:
            raise SafetensorError(
                f"the file is truncated or damaged: {name!r}, {dtype} of shape {self.shape}, needs {expected} bytes; "
                f"the header says {self.begin} to {self.end} of {size}"
            )


def _no_duplicates(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        raise SafetensorError("the header is damaged: a name appears twice")
    return result


def _read_header(file):
    """-> (entries by name, metadata or None, position of the first tensor's bytes), all of it checked."""
    size = file.seek(0, 2)
    file.seek(0)
    if size < 8:
        raise SafetensorError(f"not a safetensors file: it has {size} bytes, too few for a header")
    length = int.from_bytes(file.read(8), "little")
    if length > min(size - 8, _LONGEST_HEADER):
        raise SafetensorError(f"not a safetensors file, or truncated: it says that its header has {length} bytes; the file has {size}")
    try:
        header = json.loads(file.read(length).decode(), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"not a safetensors file, or damaged: its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise SafetensorError("the header is damaged: it is not a table of tensors")
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())):
        raise SafetensorError("the header is damaged: its metadata is not a table of texts")
    start = 8 + length
    entries = {name: _Entry(name, entry, size - start) for name, entry in header.items()}
    position = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != position:
            raise SafetensorError(f"the header is damaged: tensors overlap or leave a gap at byte {position}")
        position = entry.end
    if position != size - start:
        raise SafetensorError(f"the file is damaged: its tensors end at byte {position} of {size - start}")
    return entries, metadata, start


class safe_open:
    """Open a file and read single tensors, or parts of them, from it.

    >>> import os, tempfile, wisp
    >>> from wisp.utils.safetensors import safe_open, save_file
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save_file({"weight": wisp.eye(3)}, path, metadata={"made by": "hand"})
    >>> with safe_open(path, framework="pt") as file:
    ...     print(list(file.keys()), file.metadata(), file.get_slice("weight")[1, :2])
    ['weight'] {'made by': 'hand'} tensor([0., 1.])
    """

    def __init__(self, filename, framework="pt", device="cpu", mmap=False):
        if framework not in ("pt", "torch", "pytorch", "wisp"):
            raise SafetensorError(f"safe_open: framework {framework!r} is not here; tensors come as Wisp's (framework='pt')")
        self._file = open(filename, "rb")
        try:
            self._entries, self._metadata, self._start = _read_header(self._file)
        except SafetensorError as error:
            self._file.close()
            raise SafetensorError(f"{os.fspath(filename)}: {error}") from None
        self._device, self._mmap, self._memory = device, mmap, None

    def keys(self):
        """The names of the tensors, sorted."""
        return sorted(self._entries)

    def offset_keys(self):
        """The names of the tensors in the order of the file."""
        return sorted(self._entries, key=lambda name: self._entries[name].begin)

    def metadata(self):
        """The texts that were saved with the tensors, or None."""
        return self._metadata

    def _entry(self, name):
        if self._file.closed:
            raise SafetensorError("the file is closed")
        if name not in self._entries:
            raise SafetensorError(f"File does not contain tensor {name}")
        return self._entries[name]

    def _mapped(self, name):
        """The tensor over the mapped file: only what is used will be read."""
        entry = self._entry(name)
        if self._memory is None:
            self._memory = numpy.frombuffer(map_file(self._file), numpy.uint8)
        flat = wisp.from_numpy(self._memory[self._start + entry.begin : self._start + entry.end])
        if (self._start + entry.begin) % entry.dtype.itemsize:
            flat = flat.clone()
        return flat.view(entry.dtype).view(entry.shape)

    def get_tensor(self, name):
        """The tensor of that name."""
        entry = self._entry(name)
        if self._mmap and entry.begin != entry.end:
            tensor = self._mapped(name)
        else:
            tensor = wisp.empty(entry.shape, dtype=entry.dtype, device="cpu")
            if entry.begin != entry.end:
                self._file.seek(self._start + entry.begin)
                fill(self._file, tensor.view(-1))
        return tensor if wisp.device(self._device).type == "cpu" else tensor.to(self._device)

    def get_slice(self, name):
        """An object whose indexing reads a part of the tensor: `file.get_slice("weight")[:10]`."""
        return _Slice(self, name, self._entry(name))

    def get_tensors(self, names=None):
        """A dict of several tensors, by default all."""
        return {name: self.get_tensor(name) for name in (self.keys() if names is None else names)}

    def close(self):
        """Close the file; tensors that were read stay."""
        self._file.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class _Slice:
    """What `safe_open.get_slice` returns."""

    def __init__(self, file, name, entry):
        self._file, self._name, self._entry = file, name, entry

    def get_shape(self):
        """The sizes of the whole tensor, as a list."""
        return list(self._entry.shape)

    def get_dtype(self):
        """The name of the dtype in the file, such as "F32"."""
        return _WRITTEN[self._entry.dtype][1]

    def __getitem__(self, index):
        whole = self._file._mapped(self._name) if self._entry.begin != self._entry.end else self._file.get_tensor(self._name)
        return whole[index].clone().to(self._file._device)


def load_file(filename, device="cpu", mmap=False):
    """Load all tensors of a file -> a dict. With `mmap` they stay in the mapped file until they are used or changed.

    >>> import os, tempfile, wisp
    >>> from wisp.utils.safetensors import load_file, save_file
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save_file({"weight": wisp.ones(2)}, path)
    >>> load_file(path)
    {'weight': tensor([1., 1.])}
    """
    with safe_open(filename, device=device, mmap=mmap) as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


def load(data):
    """Load all tensors from bytes -> a dict.

    >>> import wisp
    >>> wisp.utils.safetensors.load(wisp.utils.safetensors.save({"weight": wisp.ones(2)}))
    {'weight': tensor([1., 1.])}
    """
    return read_tensors(io.BytesIO(data))


def read_tensors(file):
    """Load all tensors from a file object -> a dict.

    >>> import io, wisp
    >>> wisp.utils.safetensors.read_tensors(io.BytesIO(wisp.utils.safetensors.save({"weight": wisp.ones(2)})))
    {'weight': tensor([1., 1.])}
    """
    entries, _, start = _read_header(file)
    result = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1].begin):
        tensor = result[name] = wisp.empty(entry.shape, dtype=entry.dtype, device="cpu")
        if entry.begin != entry.end:
            file.seek(start + entry.begin)
            fill(file, tensor.view(-1))
    return result


# ---------------------------------------------------------------- writing
def _pieces(tensors, metadata):
    """The parts of a file: header and the tensors' bytes."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise ValueError(f"the name of a tensor must be a text other than '__metadata__', got {name!r}")
        if not isinstance(tensor, wisp.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected Tensor but received {type(tensor)}")
        if tensor.dtype not in _WRITTEN:
            raise SafetensorError(
                f"{name!r} has dtype {tensor.dtype}, which the safetensors format does not have"
                + ("; save view_as_real(tensor) instead" if tensor.is_complex() else "")
            )
    shared = [names for names in shared_names(tensors) if len(names) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading "
            f"them again: {shared}. Keep one of each group and tie them again after loading, or use save_model, "
            f"which does that for a model, or clone() what need not be shared."
        )
    if metadata is not None and not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise ValueError("metadata must be a dict from texts to texts")
    order = sorted(tensors, key=lambda name: (-_WRITTEN[tensors[name].dtype][0], name))
    header, position = {} if metadata is None else {"__metadata__": metadata}, 0
    for name in order:
        tensor = tensors[name]
        end = position + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _WRITTEN[tensor.dtype][1], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        if tensors[name].numel():
            flat = tensors[name].detach()
            flat = flat.resolve_conj() if flat.is_complex() else flat
            yield bytes_of(flat.contiguous().cpu().view(-1))


def shared_names(tensors):
    """Groups of names whose tensors overlap in memory, each sorted.

    >>> import wisp
    >>> x = wisp.zeros(4)
    >>> wisp.utils.safetensors.shared_names({"all": x, "end": x[2:], "other": wisp.zeros(1)})
    [['all', 'end'], ['other']]
    """
    places = []
    for name, tensor in tensors.items():
        width = tensor.element_size()
        first = tensor.storage_offset() * width
        last = first + (1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))) * width
        own = tensor.numel() == 0  # shares with nobody
        places.append(((str(tensor.device), id(tensor) if own else tensor._storage_ptr(), own), first, last, name))
    groups, place, reach = [], None, 0
    for storage, first, last, name in sorted(places):
        if storage == place and first < reach:
            groups[-1].append(name)
            reach = max(reach, last)
        else:
            groups.append([name])
            place, reach = storage, last
    return sorted(sorted(names) for names in groups)


def save_file(tensors, filename, metadata=None):
    """Save a dict of tensors. The file appears under its name when it is complete. Tensors that are not contiguous are
    written as if they were; tensors that share memory are refused.

    >>> import os, tempfile, wisp
    >>> from wisp.utils.safetensors import load_file, save_file
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save_file(wisp.nn.Linear(2, 3).state_dict(), path, metadata={"format": "pt"})
    >>> sorted(load_file(path))
    ['bias', 'weight']
    """
    pieces = _pieces(tensors, metadata)
    first = next(pieces)  # refuse before a file is made
    with replacing(filename) as file:
        file.write(first)
        for piece in pieces:
            file.write(piece)


def save(tensors, metadata=None):
    """The bytes of a file with these tensors.

    >>> import wisp
    >>> len(wisp.utils.safetensors.save({"a": wisp.zeros(2)}))
    72
    """
    return b"".join(_pieces(tensors, metadata))


# ---------------------------------------------------------------- models
def save_model(model, filename, metadata=None, force_contiguous=True):
    """Save the state of a module. Of parameters that share memory (tied weights) one is written; the metadata says which.

    >>> import os, tempfile, wisp
    >>> model = wisp.nn.Linear(2, 3)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> wisp.utils.safetensors.save_model(model, path)
    >>> wisp.utils.safetensors.load_model(model, path)
    (set(), [])
    """
    state, dropped = untied(model)
    save_file(state, filename, {**(metadata or {}), **dropped} or None)


def untied(model):
    """The state of a module with one of every group of tied weights -> (state, which name was left out for which).

    >>> import wisp
    >>> tied = wisp.nn.Linear(2, 2, bias=False)
    >>> state, dropped = wisp.utils.safetensors.untied(wisp.nn.Sequential(tied, tied))
    >>> list(state), dropped
    (['0.weight'], {'1.weight': '0.weight'})
    """
    state, dropped = dict(model.state_dict()), {}
    for names in shared_names(state):
        kept = state[names[0]]
        for name in names[1:]:
            if state[name].shape != kept.shape or state[name].stride() != kept.stride():
                raise RuntimeError(f"{name} and {names[0]} share a part of their memory; clone() one of them to save them")
            dropped[name] = names[0]
            del state[name]
    return state, dropped


def load_model(model, filename, strict=True, device="cpu"):
    """Load the state of a module -> (missing names, unexpected names). Names of tied weights that `save_model` left out are
    not missing.

    >>> import os, tempfile, wisp
    >>> model = wisp.nn.Linear(2, 3)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> wisp.utils.safetensors.save_file({"weight": wisp.ones(3, 2)}, path)
    >>> wisp.utils.safetensors.load_model(model, path, strict=False)
    ({'bias'}, [])
    """
    return load_into(model, load_file(filename, device=device, mmap=True), strict)


def load_into(model, state, strict=True, assign=False):
    """`model.load_state_dict(state)`, except that a name is not missing if its tensor is tied to one that is there.

    >>> import wisp
    >>> wisp.utils.safetensors.load_into(wisp.nn.Linear(2, 3, bias=False), {"weight": wisp.ones(3, 2)})
    (set(), [])
    """
    own = model.state_dict()
    for names in shared_names(own):
        there = [name for name in names if name in state]
        for name in names if there else ():
            if name not in state and own[name].shape == own[there[0]].shape:
                state[name] = state[there[0]]
    missing, unexpected = model.load_state_dict(state, strict=strict, assign=assign)
    return set(missing), list(unexpected)
