"""Files that mean harm: they run nothing, and what they allocate is in proportion to their size."""

import io
import os
import pathlib
import pickle
import resource
import subprocess
import sys
import zipfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wisp

TESTS = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(TESTS))
import mangled_files  # noqa: E402


def archive(text, *files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        target.writestr("archive/data.pkl", b"\x80\x02" + text + b".")
        for name, content in files:
            target.writestr("archive/" + name, content)
    buffer.seek(0)
    return buffer


def call(name, arguments):
    return f"c{name[0]}\n{name[1]}\n".encode() + arguments + b"R"


def same_hash(count):
    return [b"\x8a\x0a" + ((2**61 - 1) * (i + 1)).to_bytes(10, "little") for i in range(count)]


BILLIONS = b"\x8a\x08" + (10**11).to_bytes(8, "little")
HARMFUL = {
    "a call of a shell": call(("os", "system"), b"X\x04\x00\x00\x00true\x85"),
    "a call of eval": call(("builtins", "eval"), b"X\x01\x00\x00\x001\x85"),
    "a call through another": call(("torch._tensor", "_rebuild_from_type_v2"), b"(cos\nsystem\nN(X\x04\x00\x00\x00truet}t"),
    "a call of an operator": call(("torch", "zeros"), BILLIONS + b"\x85"),
    "a constructor of a layer": call(("torch.nn.modules.linear", "Linear"), BILLIONS + BILLIONS + b"\x86"),
    "a large tensor": call(("torch", "Tensor"), BILLIONS + b"\x85"),
    "a bytearray of a size": call(("builtins", "bytearray"), BILLIONS + b"\x85"),
    "a list of a range": call(("builtins", "list"), call(("builtins", "range"), BILLIONS + b"\x85") + b"\x85"),
    "a set of a range": call(("builtins", "set"), call(("builtins", "range"), BILLIONS + b"\x85") + b"\x85"),
    "a deque of a range": call(("collections", "deque"), call(("builtins", "range"), BILLIONS + b"\x85") + b"\x85"),
    "a size of a range": call(("torch", "Size"), call(("builtins", "range"), BILLIONS + b"\x85") + b"\x85"),
    "many bytes": b"B\xff\xff\xff\x7fabc",
    "more bytes": b"\x8e" + (2**40).to_bytes(8, "little"),
    "a long text": b"X\xff\xff\xff\xffabc",
    "a deep key": b"}K\x01" + b"\x85" * 300_000 + b"K\x02s",
    "a key of many": b"}K\x01" + b"2\x86" * 100 + b"K\x02s",
    "a deep element of a set": b"\x8f(K\x01" + b"\x85" * 300_000 + b"\x90",
    "a layout of many": call(("torch.serialization", "_get_layout"), b"K\x01" + b"2\x86" * 100 + b"\x85"),
    "a member of many": call(("builtins", "getattr"), b"ctorch.nn\nModule\nK\x01" + b"2\x86" * 100 + b"\x86"),
    "a text of many": call(("builtins", "str"), b"K\x01" + b"2\x86" * 100 + b"\x85"),
    "a state of many": b"ctorch.nn.modules.linear\nLinear\n)\x81K\x01" + b"2\x86" * 100 + b"K\x00\x86\x85b",
    "a deep state": b"ctorch.nn.modules.linear\nLinear\n)\x81K\x01" + b"\x85" * 300_000 + b"K\x00\x86\x85b",
    "a state of a million": b"ctorch.nn.modules.linear\nLinear\n)\x81K\x01" + b"2\x86" * 20 + b"b",
    "one state for many": b"}(" + b"".join(b"M" + i.to_bytes(2, "little") + b"N" for i in range(20_000)) + b"uq\x00"
    b"ctorch.nn.modules.linear\nLinear\n)\x81" + b"h\x00b" * 20_000,
    "keys with one hash": b"}(" + b"N".join(same_hash(20_000)) + b"Nu",
    "keys with one hash, one by one": b"}" + b"Ns".join(same_hash(20_000)) + b"Ns",
    "elements with one hash": b"\x8f(" + b"".join(same_hash(20_000)) + b"\x90",
    "a frozenset with one hash": b"(" + b"".join(same_hash(20_000)) + b"\x91",
    "a set of a list with one hash": call(("builtins", "set"), b"(" + b"".join(same_hash(20_000)) + b"l\x85"),
    "numbers of the memo with one hash": b"N" + b"".join(b"p%d\n" % ((2**61 - 1) * i) for i in range(20_000)),
    "a handle of no hook": b"ctorch.utils.hooks\nRemovableHandle\n)\x81}N)\x87b",
    "many copies": b"(" + b"K\x01" * 50_000 + b"lq\x00" + b"cbuiltins\nlist\nq\x01(" + b"h\x01h\x00\x85R" * 50_000 + b"l",
    "many encodings": b"X\x50\xc3\x00\x00"
    + b"a" * 50_000
    + b"q\x00("
    + b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R" * 20_000
    + b"l",
    "the state of a function": b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb",
    "the state of a class": b"ccollections\nOrderedDict\n}X\x01\x00\x00\x00aK\x01sb",
    "a large storage": b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu" + BILLIONS + b"tQ",
}


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("what", HARMFUL)
def test_refused(what, weights_only):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((pickle.UnpicklingError, EOFError, RuntimeError)) as caught:
        wisp.load(archive(HARMFUL[what], ("data/0", bytes(64))), weights_only=weights_only)
    assert str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_repeating_parts_of_sparse_tensors_are_refused():
    """An index of 2^40 elements that are one element in memory would take for ever to check."""
    storage = b"(X\x07\x00\x00\x00storagectorch\nLongStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x08tQ"
    many = b"\x8a\x06" + (2**40).to_bytes(6, "little")
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00(" + b"K\x01" + many + b"tK\x00K\x00\x86\x89}tR"
    values = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + many + b"\x85K\x00\x85\x89}tR"
    layout = call(("torch.serialization", "_get_layout"), b"X\x10\x00\x00\x00torch.sparse_coo\x85")
    text = b"ctorch._utils\n_rebuild_sparse_tensor\n(" + layout + b"(" + tensor + values + b"K\x05\x85\x88ttR"
    with pytest.raises(pickle.UnpicklingError, match="larger than their memory"):
        wisp.load(archive(text, ("data/0", bytes(64))))


def test_keys_whose_hash_is_chosen_are_read():
    value = {**{2**64 + i: i for i in range(300)}, **{(i, (i, "a")): i for i in range(300)}, **{i + 1j: i for i in range(300)}, -1: 0}
    value = [value, {frozenset((i,)) for i in range(300)}, [{(0, 1): i} for i in range(300)]]
    assert wisp.load(archive(pickle.dumps(value, 2)[2:-1])) == value


def test_large_numbers_in_the_memo_cost_nothing():
    assert wisp.load(archive(b"K\x07r\xff\xff\xff\xff0j\xff\xff\xff\xff")) == 7


def test_deep_nesting():
    value = wisp.load(archive(b"]" * 200_000 + b"a" * 199_999))
    for _ in range(199_999):
        (value,) = value
    assert value == []


def test_compressed_pickles_are_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("archive/data.pkl", b"\x80\x02X\x00\x00\x00\x10" + bytes(2**28) + b".")
    buffer.seek(0)
    with pytest.raises(RuntimeError, match="compressed"):
        wisp.load(buffer)


@pytest.mark.parametrize("layout", ["coo", "csr", "bsc"])
def test_sparse_tensors_are_made_of_tensors(layout):
    nested = b")" + b"2\x86" * 60  # a pair of the same pair, and so on
    kind = call(
        ("torch.serialization", "_get_layout"), b"(X" + (13 + len(layout)).to_bytes(4, "little") + f"torch.sparse_{layout}t".encode()
    )
    content = call(("torch._utils", "_rebuild_sparse_tensor"), b"(" + kind + b"(" + nested + nested + nested + b")tt")
    with pytest.raises(pickle.UnpicklingError, match="other things than tensors"):
        wisp.load(archive(content))


def test_overlapping_storages_are_refused():
    storage = b"(X\x07\x00\x00\x00storagectorch\nByteStorage\nX\x02\x00\x00\x00%02dX\x03\x00\x00\x00cpuJ\x00\x00\x10\x00tQ"
    content = archive(b"(" + b"".join(storage % i for i in range(50)) + b"l", *((f"data/{i:02}", bytes(2**20)) for i in range(2)))
    text = content.getvalue()
    begin, end = text.index(b"PK\1\2"), text.index(b"PK\5\6")
    directory = [b"PK\1\2" + entry for entry in text[begin:end].split(b"PK\1\2")[1:]]
    directory = [directory[0]] + [directory[1].replace(b"data/00", b"data/%02d" % i) for i in range(50)]
    joined = b"".join(directory)
    tail = bytearray(text[end:])
    tail[8:10] = tail[10:12] = len(directory).to_bytes(2, "little")
    tail[12:16] = len(joined).to_bytes(4, "little")
    with pytest.raises(RuntimeError, match="larger than the file"):
        wisp.load(io.BytesIO(text[:begin] + joined + bytes(tail)))


ORIGINALS = mangled_files.samples()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_mangled(random):
    mangled_files.load_mangled(mangled_files.mangle(random, ORIGINALS))


def test_fuzzer(tmp_path):
    result = subprocess.run(
        [sys.executable, TESTS.parent / "tools" / "fuzz_files.py", "--seconds", "1", "--seed", "7"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 of them did" in result.stdout


def test_the_watch_is_awake(monkeypatch):
    """A loader that does something else than load is noticed."""
    monkeypatch.setattr(wisp.serialization, "_load_file", lambda *args: os.listdir("/"))
    with pytest.raises(mangled_files.Escaped, match="os.listdir"):
        mangled_files.load_mangled(ORIGINALS[0])
    monkeypatch.setattr(wisp.serialization, "_load_file", lambda *args: [][1])
    with pytest.raises(mangled_files.Escaped, match="IndexError"):
        mangled_files.load_mangled(ORIGINALS[0])
