"""Checkpoint files that someone has damaged, by accident or on purpose, and what may happen when they are loaded.

`mangle(random)` gives a file's bytes; `load_mangled(content)` loads them and raises `Escaped` for everything but a value or
one of the errors that `load` documents. The tests use it, and so does `tools/fuzz_files.py`.
"""

import argparse
import codecs
import io
import math
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict

import numpy

import wisp
from wisp.utils import safetensors

ALLOWED = (RuntimeError, EOFError, pickle.UnpicklingError, safetensors.SafetensorError)

# Names that must never be called, and names whose careless use would allocate too much.
_NAMES = [
    "os system",
    "posix system",
    "builtins eval",
    "builtins exec",
    "builtins getattr",
    "builtins __import__",
    "builtins open",
    "subprocess Popen",
    "wisp load",
    "torch load",
    "wisp.hub load",
    "operator attrgetter",
    "functools partial",
    "numpy dtype",
    "numpy ndarray",
    "numpy.core.multiarray scalar",
    "numpy._core.multiarray _reconstruct",
    "argparse Namespace",
    "types SimpleNamespace",
    "pathlib PosixPath",
    "datetime datetime",
    "torch.optim.adam Adam",
    "torch.nn.utils.rnn PackedSequence",
    "builtins bytearray",
    "builtins list",
    "builtins range",
    "builtins set",
    "builtins tuple",
    "builtins str",
    "builtins dict",
    "builtins frozenset",
    "builtins int",
    "builtins complex",
    "collections OrderedDict",
    "collections Counter",
    "collections defaultdict",
    "collections deque",
    "_codecs encode",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_sparse_tensor",
    "torch.serialization _get_layout",
    "torch._utils _rebuild_parameter",
    "torch._tensor _rebuild_from_type_v2",
    "torch Size",
    "torch device",
    "torch Tensor",
    "torch FloatStorage",
    "torch.storage UntypedStorage",
    "torch float32",
    "torch zeros",
    "torch.nn.modules.linear Linear",
    "torch.nn.parameter Parameter",
    "wisp.nn.modules.container Sequential",
]
_OPERATIONS = [bytes([code]) for code in b"(012N)]}tlde aseu.RbQqhj\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x93\x94\x92\x82io"]


class Escaped(Exception):
    """A mangled file did what it must not."""


def samples():
    """Whole files of each format."""
    x = wisp.arange(12.0).reshape(3, 4)
    model = wisp.nn.Sequential(wisp.nn.Linear(2, 3), wisp.nn.BatchNorm1d(3))
    optimizer = wisp.optim.Adam(model.parameters())
    model(wisp.ones(4, 2)).sum().backward()
    optimizer.step()
    value = {
        "x": x,
        "view": x[1:],
        "half": x.bfloat16(),
        "flags": x > 3,
        "unsigned": x.to(wisp.uint16),
        "nested": [1, (2.5, "a", None)],
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "set": {1, 2},
        "ordered": OrderedDict(a=1),
        3: 2**70,
        "parameter": wisp.nn.Parameter(x),
        "sparse": x.to_sparse(),
        "rows": x.to_sparse_csr(),
        "complex": 1j,
        "size": wisp.Size([2]),
        "bytes": b"12",
        "array": numpy.arange(6.0).reshape(2, 3),
        "number": numpy.float32(3),
        "names": argparse.Namespace(a=1),
    }
    result = []
    for content in (value, model, optimizer):
        buffer = io.BytesIO()
        wisp.save(content, buffer)
        result.append(buffer.getvalue())
    result.append(_legacy(x))
    result.append(safetensors.save({"x": x, "y": x.bfloat16(), "long name": x.long()}, {"format": "pt"}))
    return result


def _legacy(x):
    """A file in the format before PyTorch 1.6, put together by hand."""
    head = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x0cNtQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00K\x03K\x04\x86K\x04K\x01\x86\x89ccollections\nOrderedDict\n)RtR"
    content = x.numpy().tobytes()
    return head + b"\x80\x02" + tensor + b"." + pickle.dumps(["0"], 2) + struct.pack("<q", 12) + content


def _pickle_piece(random):
    """A piece of a pickle, most of them harmful in the hands of Python's own unpickler."""
    kind = random.randrange(9)
    if kind == 0:
        module, name = random.choice(_NAMES).split(" ")
        return f"c{module}\n{name}\n".encode()
    if kind == 1:
        return b"J" + struct.pack("<i", random.choice([0, 1, -1, 3, 2**31 - 1, -(2**31)]))
    if kind == 2:
        return b"\x8a\x08" + struct.pack("<q", random.choice([2**62, 10**12, -1, 2**63 - 1]))
    if kind == 3:
        return random.choice([b"B", b"X", b"r", b"j", b"\x8b", b"T"]) + struct.pack("<I", random.choice([1, 5, 2**31, 2**32 - 1]))
    if kind == 4:
        return random.choice([b"\x8d", b"\x8e", b"\x95", b"\x96"]) + struct.pack("<Q", random.choice([1, 2**40, 2**63]))
    if kind == 5:
        return random.choice([b"\x85", b"]a", b"q\x01h\x01\x86", b"\x90", b"2\x86", b"(h\x00h\x00t"]) * random.choice([1, 3, 60, 5000])
    if kind == 6:
        return b"X\x05\x00\x00\x00hello"
    if kind == 7:
        return b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x0ctQ"
    return random.choice(_OPERATIONS)


def mangle(random, originals):
    """The bytes of a damaged file."""
    content = bytearray(random.choice(originals))
    how = random.randrange(4)
    if how == 0:
        return _damage(random, content)
    if how == 1:  # a pickle made of harmful pieces
        return _archive(b"\x80\x02" + b"".join(_pickle_piece(random) for _ in range(random.randrange(1, 40))) + b".")
    if how == 2 and content[:2] == b"PK":  # a real pickle with something else inside, in an archive whose checksums are right
        with zipfile.ZipFile(io.BytesIO(bytes(content))) as archive:
            files = {name.split("/", 1)[1]: archive.read(name) for name in archive.namelist()}
        text = bytearray(files.pop("data.pkl"))
        for _ in range(random.randrange(1, 4)):
            place = random.randrange(len(text))
            text[place : place + random.choice([0, 0, 1, 5])] = _pickle_piece(random)
        return _archive(bytes(text), files if random.random() < 0.9 else {})
    if content[8:9] == b"{":  # a safetensors header with other numbers
        length = int.from_bytes(content[:8], "little")
        digits = [i for i in range(8, 8 + length) if chr(content[i]).isdigit()]
        for _ in range(random.randrange(1, 4)):
            content[random.choice(digits)] = random.choice(b'0123456789-.[]{}"e')
        return bytes(content)
    return _damage(random, content)


def _damage(random, content):
    for _ in range(random.randrange(1, 6)):
        if not content:
            break
        place = random.randrange(len(content))
        kind = random.randrange(5)
        if kind == 0:
            content[place] = random.randrange(256)
        elif kind == 1:
            del content[place:]
        elif kind == 2:
            del content[place : place + random.randrange(1, 64)]
        elif kind == 3:
            content[place:place] = bytes(random.randrange(256) for _ in range(random.randrange(1, 16)))
        else:
            content[place : place + 4] = struct.pack("<I", random.choice([0, 1, 2**31, 2**32 - 1]))
    return bytes(content)


def _archive(text, files=None):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", text)
        for name, content in (files or {"data/0": bytes(48)}).items():
            archive.writestr(f"archive/{name}", content)
    return buffer.getvalue()


_events, _watching = [], False


def _audit(event, args):
    if (
        _watching
        and event.split(".")[0] in ("os", "subprocess", "exec", "socket", "ctypes", "shutil", "webbrowser")
        and event not in ("os.putenv",)
    ):
        _events.append((event, str(args)[:200]))


def load_mangled(content):
    """Load a file both ways, and use what comes out of it."""
    global _watching
    if _audit not in _hooked:
        sys.addaudithook(_audit)
        _hooked.append(_audit)
    wisp.nn, wisp.sparse, wisp.storage  # noqa: B018 loaded now: that Wisp imports its own parts late is not the file's doing
    codecs.lookup("cp437")  # nor that zipfile, for names of no other encoding, imports this one
    for weights_only in (True, False):
        _events.clear()
        _watching = True
        try:
            value = _load(content, weights_only)
        except ALLOWED as error:
            assert str(error)
            continue
        except BaseException as error:
            raise Escaped(f"load(weights_only={weights_only}) raised {type(error).__name__}: {error}") from error
        finally:
            _watching = False
        if _events:
            raise Escaped(f"load(weights_only={weights_only}) ran something: {_events}")
        _use(value)


_hooked = []


def _load(content, weights_only):
    if content[8:9] == b"{":
        return safetensors.load(content)
    return wisp.load(io.BytesIO(content), weights_only=weights_only)


def _use(value):
    """Read every tensor, so that one that reaches beyond its memory is noticed."""
    todo, seen = [value], set()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, wisp.Tensor):
            if item.layout is not wisp.strided:
                todo += [item._values(), item._indices()] if item.layout is wisp.sparse_coo else [item.values(), item.crow_indices()]
            elif math.prod(item.shape) < 1_000_000:
                item.detach().clone()
        elif isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            todo += item
