"""safetensors: reading, writing, what is refused, and loading into models."""

import doctest
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import wisp
import wisp.hub
import wisp.serialization
import wisp.serialization._names
from wisp.utils import safetensors

DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "uint16",
    "uint32",
    "uint64",
]


@pytest.mark.parametrize(
    "module", [safetensors, wisp.hub, wisp.serialization, wisp.serialization._names], ids=lambda module: module.__name__
)
def test_examples(module):
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.failed == 0 and result.attempted > 0


def example():
    x = wisp.arange(6).reshape(2, 3)
    return {dtype: (x > 2 if dtype == "bool" else x.to(getattr(wisp, dtype))) for dtype in DTYPES} | {
        "empty": wisp.empty(0, 3),
        "scalar": wisp.tensor(5.0),
        "transposed": wisp.rand(3, 4).T,
        "ü/日本": wisp.ones(1),
        "parameter": wisp.nn.Parameter(wisp.ones(2)),
        "expanded": wisp.ones(1).expand(3),
    }


def check(loaded, original):
    assert set(loaded) == set(original)
    for name, tensor in original.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
        assert loaded[name].tolist() == tensor.tolist() and not loaded[name].requires_grad


@pytest.mark.parametrize("mmap", [False, True])
def test_round_trip(tmp_path, mmap):
    original = example()
    path = tmp_path / "file.safetensors"
    safetensors.save_file(original, path, metadata={"a": "b"})
    loaded = safetensors.load_file(path, mmap=mmap)
    check(loaded, original)
    loaded["float32"].fill_(7)  # a private copy: the file stays as it is
    check(safetensors.load_file(path), original)
    check(safetensors.load(safetensors.save(original)), original)
    assert os.listdir(tmp_path) == ["file.safetensors"]


def test_safe_open(tmp_path):
    path = str(tmp_path / "file.safetensors")
    x = wisp.arange(24.0).reshape(4, 6)
    safetensors.save_file({"x": x, "e": wisp.empty(0, 2)}, path)
    with safetensors.safe_open(path, framework="pt", device="cpu") as file:
        assert file.keys() == ["e", "x"] and file.metadata() is None and sorted(file.offset_keys()) == ["e", "x"]
        part = file.get_slice("x")
        assert part.get_shape() == [4, 6] and part.get_dtype() == "F32"
        assert wisp.equal(part[1:3, ::2], x[1:3, ::2]) and wisp.equal(part[:], x) and part[2, 3] == x[2, 3]
        assert wisp.equal(file.get_tensor("x"), x) and file.get_slice("e")[:].shape == (0, 2)
        with pytest.raises(safetensors.SafetensorError, match="does not contain tensor y"):
            file.get_tensor("y")
    with pytest.raises(safetensors.SafetensorError, match="closed"):
        file.get_tensor("x")
    with pytest.raises(FileNotFoundError):
        safetensors.safe_open(path + "x")


def test_what_cannot_be_saved():
    x = wisp.zeros(4)
    with pytest.raises(RuntimeError, match=r"share memory.*\['a', 'b'\]"):
        safetensors.save({"a": x, "b": x[1:3], "c": wisp.zeros(1)})
    safetensors.save({"a": x[:2], "b": x[2:]})  # the same storage, but no element in common
    with pytest.raises(safetensors.SafetensorError, match="view_as_real"):
        safetensors.save({"a": wisp.zeros(2, dtype=wisp.complex128)})
    for wrong in ([x], {"a": 1}, {1: x}, {"__metadata__": x}):
        with pytest.raises(ValueError):
            safetensors.save(wrong)
    with pytest.raises(ValueError, match="metadata"):
        safetensors.save({"a": x}, metadata={"a": 1})


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "empty": b"",
    "short": b"1234567",
    "long header": (1 << 40).to_bytes(8, "little") + b"{}",
    "no JSON": file_of(b"{hello"),
    "no text": file_of(b"\xff\xff"),
    "a list": file_of([]),
    "nested": file_of(b"[" * 100_000),
    "wrong type": file_of({"a": {**GOOD, "dtype": "F8_E4M3"}}, bytes(8)),
    "odd type": file_of({"a": {**GOOD, "dtype": [1]}}, bytes(8)),
    "truncated": file_of({"a": GOOD}, bytes(7)),
    "too long": file_of({"a": GOOD}, bytes(9)),
    "overlap": file_of({"a": GOOD, "b": GOOD}, bytes(8)),
    "gap": file_of({"a": {**GOOD, "data_offsets": [8, 16]}}, bytes(16)),
    "negative": file_of({"a": {**GOOD, "shape": [-2]}}, bytes(8)),
    "size": file_of({"a": {**GOOD, "shape": [3]}}, bytes(8)),
    "huge": file_of({"a": {"dtype": "F32", "shape": [2**61, 2**61], "data_offsets": [0, 2**61]}}, bytes(8)),
    "float": file_of({"a": {**GOOD, "shape": [2.0]}}, bytes(8)),
    "more": file_of({"a": {**GOOD, "b": 1}}, bytes(8)),
    "twice": file_of(b'{"a":1,"a":1}'),
    "metadata": file_of({"__metadata__": {"a": 1}}),
    "nothing": file_of({"a": None}),
    "dimensions": file_of({"a": {**GOOD, "shape": [2] + [1] * 100}}, bytes(8)),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged(what, tmp_path):
    with pytest.raises(safetensors.SafetensorError):
        safetensors.load(DAMAGED[what])
    path = tmp_path / "file.safetensors"
    path.write_bytes(DAMAGED[what])
    with pytest.raises(safetensors.SafetensorError, match=r"file\.safetensors: "):
        safetensors.load_file(path, mmap=True)


class Tied(wisp.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = wisp.nn.Embedding(5, 3)
        self.head = wisp.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def test_tied_weights(tmp_path):
    path, model, other = tmp_path / "model.safetensors", Tied(), Tied()
    with pytest.raises(RuntimeError, match="save_model"):
        safetensors.save_file(model.state_dict(), path)
    safetensors.save_model(model, path)
    with safetensors.safe_open(path) as file:
        assert file.metadata() == {"head.weight": "embedding.weight"}
    assert safetensors.load_model(other, path) == (set(), [])
    assert wisp.equal(other.head.weight, model.embedding.weight) and other.head.weight is other.embedding.weight
    assert wisp.hub.load_safetensors(Tied(), path) == (set(), [])
    wisp.hub.save_safetensors(model, tmp_path / "folder")
    assert wisp.hub.load_safetensors(Tied(), tmp_path / "folder") == (set(), [])
    model.head.weight = wisp.nn.Parameter(model.embedding.weight.detach()[:3])  # the same memory, but not all of it
    for save in (safetensors.save_model, wisp.hub.save_safetensors):
        with pytest.raises(RuntimeError, match="share a part"):
            save(model, tmp_path / "folder2")


def test_into_models(tmp_path):
    model, other = (
        wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.Linear(4, 2)),
        wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.Linear(4, 2)),
    )
    wisp.hub.save_safetensors(model, tmp_path / "one")
    wisp.hub.save_safetensors(model, tmp_path / "many", max_bytes=50)
    assert len(os.listdir(tmp_path / "many")) == 4
    for path in (tmp_path / "one", tmp_path / "many", tmp_path / "many" / "model.safetensors.index.json"):
        for parameter in other.parameters():
            parameter.data.zero_()
        assert wisp.hub.load_safetensors(other, path) == (set(), [])
        assert all(wisp.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    single = wisp.nn.Linear(3, 4, dtype=wisp.float64)
    missing, unexpected = wisp.hub.load_safetensors(single, tmp_path / "one", strict=False, prefix={"0.": ""})
    assert not missing and sorted(unexpected) == ["1.bias", "1.weight"]
    assert single.weight.dtype == wisp.float64 and wisp.equal(single.weight.float(), model[0].weight)
    wisp.hub.load_safetensors(
        single,
        tmp_path / "one",
        rename=lambda name: name[2:] if name[0] == "0" else None,
        dtype=wisp.bfloat16,
        convert=lambda name, tensor: tensor * 2,
        assign=True,
    )
    assert single.weight.dtype == wisp.bfloat16 and wisp.equal(single.weight, (model[0].weight * 2).bfloat16())
    with pytest.raises(RuntimeError, match="size mismatch") as caught:
        wisp.hub.load_safetensors(wisp.nn.Sequential(wisp.nn.Linear(3, 5)), tmp_path / "one")
    assert "1.weight" in str(caught.value) and "0.bias" in str(caught.value)
    (tmp_path / "many" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00003"):
        wisp.hub.load_safetensors(other, tmp_path / "many")
    (tmp_path / "many" / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../secret.safetensors"}}')
    with pytest.raises(RuntimeError, match="outside"):
        wisp.hub.load_safetensors(other, tmp_path / "many")


def test_load_knows_other_files(tmp_path):
    path = tmp_path / "model.pt"
    safetensors.save_file({"a": wisp.ones(1)}, path)
    assert wisp.load(path)["a"].item() == wisp.load(path, mmap=True)["a"].item() == 1
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0")
    with pytest.raises(RuntimeError, match="git lfs pull"):
        wisp.load(path)


def test_hub_says_where_files_go(tmp_path):
    with pytest.raises(RuntimeError, match=r"put it at .*model\.pt"):
        wisp.hub.load_state_dict_from_url("file:///nonexistent/model.pt", model_dir=str(tmp_path))
    wisp.save({"a": wisp.ones(2)}, tmp_path / "model.pt")
    assert wisp.hub.load_state_dict_from_url("file:///nonexistent/model.pt", model_dir=str(tmp_path))["a"].tolist() == [1, 1]
    safetensors.save_file({"a": wisp.ones(2)}, tmp_path / "model.safetensors")
    assert wisp.hub.load_state_dict_from_url("http://localhost/model.safetensors?x=1", model_dir=str(tmp_path))["a"].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="put a copy of"):
        wisp.hub.load("someone/something", "model")
    with pytest.raises(FileNotFoundError, match="hubconf"):
        wisp.hub.load(str(tmp_path), "model", source="local")


KILLED = """
import sys, wisp
from wisp.utils import safetensors
x = {"a": wisp.full((500_000,), 2.0), "b": wisp.arange(500_000)}
print("ready", flush=True)
while True:
    wisp.save(x, sys.argv[1] + ".pt")
    safetensors.save_file(x, sys.argv[1] + ".safetensors")
"""


def test_killed_saves_leave_whole_files(tmp_path):
    path = str(tmp_path / "model")
    wisp.save({"a": wisp.full((500_000,), 2.0), "b": wisp.arange(500_000)}, path + ".pt")
    safetensors.save_file({"a": wisp.full((500_000,), 2.0), "b": wisp.arange(500_000)}, path + ".safetensors")
    for attempt in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.005 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        for loaded in (wisp.load(path + ".pt"), safetensors.load_file(path + ".safetensors")):
            assert loaded["a"].eq(2).all() and wisp.equal(loaded["b"], wisp.arange(500_000))
