"""Files go both ways between Wisp and PyTorch."""

import collections
import io
import pickle

import numpy as np
import pytest
import torch

import wisp

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
    "complex128",
    "uint16",
    "uint32",
    "uint64",
]


def example(package):
    x = package.arange(12, dtype=package.float32).reshape(3, 4)
    result = {dtype: package.ones(2, 3).to(getattr(package, dtype)) for dtype in DTYPES}
    result |= {
        "x": x,
        "view": x[1:],
        "column": x[:, 1],
        "transposed": x.T,
        "scalar": package.tensor(5),
        "empty": package.empty(0, 3),
        "nested": [1, 2.5, None, (True, "text", b"bytes"), {1, 2}, 3 + 4j],
        "ordered": collections.OrderedDict(a=1),
        "counter": collections.Counter("aab"),
        "dtype": package.int16,
        "device": package.device("cpu"),
        "size": package.Size([1, 2]),
        "parameter": package.nn.Parameter(package.ones(2)),
        "grad": package.ones(1, requires_grad=True),
        "large": 2**70,
        "expanded": package.ones(1).expand(4),
    }
    return result


def check(ours, theirs):
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        mine = ours[key]
        if isinstance(value, (torch.Tensor, wisp.Tensor)):
            assert str(mine.dtype).split(".")[1] == str(value.dtype).split(".")[1]
            assert tuple(mine.shape) == tuple(value.shape) and mine.tolist() == value.tolist()
            assert mine.requires_grad == value.requires_grad
            assert type(mine).__name__ == type(value).__name__
        elif key == "dtype":
            assert str(mine).split(".")[1] == str(value).split(".")[1]
        elif key == "device":
            assert str(mine) == str(value)
        else:
            assert mine == value and type(mine).__name__ == type(value).__name__


@pytest.mark.parametrize("legacy", [False, True])
def test_theirs(tmp_path, legacy):
    data = example(torch)
    if legacy:
        for dtype in ("uint16", "uint32", "uint64"):
            del data[dtype]
    torch.save(data, tmp_path / "file.pt", _use_new_zipfile_serialization=not legacy)
    loaded = wisp.load(tmp_path / "file.pt")
    check(loaded, data)
    loaded["x"][1, 0] = 99
    assert loaded["view"][0, 0] == 99 and loaded["transposed"][0, 1] == 99  # memory is still shared


def test_ours(tmp_path):
    data = example(wisp)
    wisp.save(data, tmp_path / "file.pt")
    loaded = torch.load(tmp_path / "file.pt", weights_only=True)
    check(loaded, data)
    loaded["x"][1, 0] = 99
    assert loaded["view"][0, 0] == 99
    check(wisp.load(tmp_path / "file.pt"), data)
    check(wisp.load(tmp_path / "file.pt", mmap=True), data)
    check(torch.load(tmp_path / "file.pt", weights_only=True, mmap=True), data)


def test_training_state():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    buffer.seek(0)
    loaded = wisp.load(buffer)
    assert loaded["model"]._metadata == model.state_dict()._metadata
    assert loaded["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    again = io.BytesIO()
    wisp.save(loaded, again)
    again.seek(0)
    back = torch.load(again, weights_only=True)
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(back["model"][key].numpy(), value.numpy())


# ---------------------------------------------------------------- bit for bit
def raw(tensor):
    """The bytes of a tensor of either package."""
    tensor = tensor.detach().contiguous().reshape(-1)
    package = torch if isinstance(tensor, torch.Tensor) else wisp
    return tensor.view(package.uint8).numpy().tobytes() if tensor.numel() else b""


def patterns(dtype):
    """A NumPy array with every kind of bits: NaNs with payloads, infinities, subnormals, negative zeros."""
    count = 512 * getattr(torch, dtype).itemsize
    bits = np.random.default_rng(0).integers(0, 256, count, np.uint8)
    return bits & 1 if dtype == "bool" else bits


def made(package, dtype):
    content = package.from_numpy(patterns(dtype).copy())
    return content.view(getattr(package, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mmap", [False, True])
def test_bits(tmp_path, dtype, mmap):
    theirs, ours = made(torch, dtype), made(wisp, dtype)
    for source, package in ((torch, theirs), (wisp, ours)):
        source.save({"all": package, "part": package[3:50:2], "matrix": package[:500].view(20, 25).T[2:9]}, tmp_path / "file.pt")
        for reader in (torch, wisp):
            loaded = reader.load(tmp_path / "file.pt", mmap=mmap)
            assert raw(loaded["all"]) == raw(theirs) and raw(loaded["part"]) == raw(theirs[3:50:2])
            assert raw(loaded["matrix"]) == raw(theirs[:500].view(20, 25).T[2:9])
            assert loaded["all"].untyped_storage().data_ptr() == loaded["matrix"].untyped_storage().data_ptr()


def test_tied_modules_and_containers(tmp_path):
    for source, reader in ((torch, wisp), (wisp, torch)):
        x = source.arange(6.0)
        value = {
            "a": [x, {"b": (x, x[2:])}],
            "deque": collections.deque([1, 2]),
            "deep": [[[[[x.view(2, 3)]]]]],
            "default": collections.defaultdict(list, {"k": [x]}),
            "frozen": frozenset([1, 2]),
            "range": None,
        }
        source.save(value, tmp_path / "file.pt")
        loaded = reader.load(tmp_path / "file.pt", weights_only=reader is wisp)
        assert loaded["a"][0] is loaded["a"][1]["b"][0] and loaded["deque"] == collections.deque([1, 2])
        loaded["a"][0][2] = 50
        assert loaded["a"][1]["b"][1][0] == 50 and loaded["deep"][0][0][0][0][0][0, 2] == 50 and loaded["default"]["k"][0][2] == 50
        assert loaded["default"].default_factory is list and loaded["frozen"] == {1, 2}


OPTIMIZERS = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "LBFGS", "Adafactor"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_in_the_other_package(tmp_path, name):
    """Train in one, save, load in the other, and both go on with the same losses."""

    def setup(package):
        package.manual_seed(0)
        model = package.nn.Sequential(package.nn.Linear(4, 5), package.nn.Tanh(), package.nn.Linear(5, 1)).double()
        options = {"momentum": 0.9} if name == "SGD" else {}
        return model, getattr(package.optim, name)(model.parameters(), lr=0.05, **options)

    data = np.random.default_rng(1).normal(size=(8, 4))

    def steps(package, model, optimizer, count):
        x = package.from_numpy(data)
        losses = []
        for _ in range(count):

            def closure():
                optimizer.zero_grad()
                loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
                loss.backward()
                losses.append(loss.item())
                return loss

            optimizer.step(closure)
        return losses

    for source, reader in ((torch, wisp), (wisp, torch)):
        model, optimizer = setup(source)
        steps(source, model, optimizer, 3)
        source.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "file.pt")
        other, other_optimizer = setup(reader)
        state = reader.load(tmp_path / "file.pt")
        other.load_state_dict(state["model"])
        other_optimizer.load_state_dict(state["optimizer"])
        np.testing.assert_allclose(steps(reader, other, other_optimizer, 4), steps(source, model, optimizer, 4), rtol=1e-8)


MODULES = [
    (lambda p: p.nn.LSTM(3, 4, 2, bidirectional=True), (5, 2, 3)),
    (lambda p: p.nn.TransformerEncoderLayer(8, 2, 16), (5, 2, 8)),
    (lambda p: p.nn.Sequential(p.nn.Conv2d(1, 2, 3), p.nn.BatchNorm2d(2), p.nn.ReLU()), (1, 1, 5, 5)),
    (lambda p: p.nn.EmbeddingBag(5, 3), None),
    (lambda p: p.nn.MultiheadAttention(4, 2), None),
    (lambda p: p.nn.TransformerEncoder(p.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), (3, 5, 8)),
    (lambda p: p.nn.Sequential(p.nn.Linear(3, 2), p.nn.GELU(), p.nn.GRU(2, 4)), (5, 3)),
]


@pytest.mark.parametrize("make", [make for make, _ in MODULES])
def test_whole_modules(tmp_path, make):
    """A module saved whole by PyTorch is read as Wisp's module of the same name."""
    theirs = make(torch)
    torch.save(theirs, tmp_path / "file.pt")
    ours = wisp.load(tmp_path / "file.pt", weights_only=False)
    assert type(ours).__name__ == type(theirs).__name__ and type(ours).__module__.startswith("wisp.nn")
    for (name, a), (other, b) in zip(ours.state_dict().items(), theirs.state_dict().items()):
        assert name == other and raw(a) == raw(b)
    make(wisp).load_state_dict(ours.state_dict())
    repr(ours)


@pytest.mark.parametrize("make, shape", MODULES)
def test_whole_modules_back(tmp_path, make, shape):
    """The reverse: PyTorch finds its own classes in the file, with all that they need to run."""
    ours = make(wisp).eval()
    wisp.save(ours, tmp_path / "file.pt")
    theirs = torch.load(tmp_path / "file.pt", weights_only=False)
    assert type(theirs).__module__.startswith("torch.nn") and repr(theirs) == repr(ours)
    again = wisp.load(tmp_path / "file.pt", weights_only=False)
    for (name, a), (other, b), c in zip(ours.state_dict().items(), theirs.state_dict().items(), again.state_dict().values()):
        assert name == other and raw(a) == raw(b) == raw(c)
    if shape is not None:
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        found, expected = ours(wisp.from_numpy(x)), theirs(torch.from_numpy(x))
        if isinstance(found, tuple):
            found, expected = found[0], expected[0]
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-5)
    assert theirs.double() is theirs and all(p.dtype == torch.float64 for p in theirs.parameters())


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adafactor"])
def test_whole_optimizers(tmp_path, name):
    def after(lib, optimizer):
        weight = optimizer.param_groups[0]["params"][0]
        weight.grad = lib.ones(3)
        optimizer.step()
        return weight.tolist()

    for source, reader in ((torch, wisp), (wisp, torch)):
        optimizer = getattr(source.optim, name)([source.nn.Parameter(source.ones(3))], lr=0.1)
        after(source, optimizer)
        source.save(optimizer, tmp_path / "file.pt")
        other = reader.load(tmp_path / "file.pt", weights_only=False)
        np.testing.assert_allclose(after(reader, other), after(source, optimizer), rtol=1e-6)


@pytest.mark.parametrize(
    "location",
    [
        "cpu",
        "device",
        {"cpu": "cpu"},
        lambda storage, location: storage,
        lambda storage, location: None,
        lambda storage, location: storage.cpu(),
    ],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_map_location(tmp_path, location, legacy):
    x = torch.arange(6.0)
    torch.save([x, x[2:]], tmp_path / "file.pt", _use_new_zipfile_serialization=not legacy)
    loaded = wisp.load(tmp_path / "file.pt", map_location=wisp.device("cpu") if location == "device" else location)
    assert loaded[0].tolist() == x.tolist()
    loaded[0][2] = 9
    assert loaded[1][0] == 9


def test_cuda_files(tmp_path):
    """A file that was saved on a GPU."""
    torch.save(torch.arange(4.0), tmp_path / "file.pt")
    import zipfile

    with zipfile.ZipFile(tmp_path / "file.pt") as source, zipfile.ZipFile(tmp_path / "cuda.pt", "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0"))
    assert wisp.load(tmp_path / "cuda.pt", map_location="cpu").tolist() == [0, 1, 2, 3]
    assert wisp.load(tmp_path / "cuda.pt", map_location={"cuda:0": "cpu"}).tolist() == [0, 1, 2, 3]
    assert wisp.load(tmp_path / "cuda.pt", map_location=lambda storage, location: storage).tolist() == [0, 1, 2, 3]
    if not wisp.cuda.is_available():
        with pytest.raises(RuntimeError, match="map_location='cpu'"):
            wisp.load(tmp_path / "cuda.pt")


def test_attributes(tmp_path):
    for source, reader in ((torch, wisp), (wisp, torch)):
        x = source.ones(2)
        x.note = "mine"
        source.save(x, tmp_path / "file.pt")
        assert reader.load(tmp_path / "file.pt").note == "mine"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(tmp_path, protocol):
    data = {"x": torch.arange(3), "nested": [1, -5, 300, 70000, 2**40, 1.5, "ü", b"\xff", {1}, frozenset([2]), (), (1,), bytearray(b"a")]}
    torch.save(data, tmp_path / "file.pt", pickle_protocol=protocol)
    loaded = wisp.load(tmp_path / "file.pt")
    assert loaded["nested"] == data["nested"] and loaded["x"].tolist() == [0, 1, 2]


def test_file_objects(tmp_path):
    """Positions other than zero, unbuffered files, and objects that can only be read, which are refused."""
    for source, reader in ((torch, wisp), (wisp, torch)):
        with open(tmp_path / "file.pt", "wb") as file:
            source.save(source.arange(3), file)
        with open(tmp_path / "file.pt", "rb", buffering=0) as file:
            assert reader.load(file).tolist() == [0, 1, 2]

    class OnlyRead:
        def __init__(self, content):
            self.file = io.BytesIO(content)

        def read(self, count=-1):
            return self.file.read(count)

    for reader in (torch, wisp):
        with pytest.raises(AttributeError, match="You can only torch.load from a file that is seekable"):
            reader.load(OnlyRead((tmp_path / "file.pt").read_bytes()))
    with pytest.raises(AttributeError, match="file object"):
        wisp.load(5)
    with pytest.raises(FileNotFoundError):
        wisp.load(tmp_path / "nothing.pt")


def test_large_files(tmp_path):
    """Storages of a few megabytes, so that every way of reading and writing is used."""
    data = np.random.default_rng(0).normal(size=3_000_000).astype(np.float32)
    wisp.save({"a": wisp.from_numpy(data), "b": wisp.from_numpy(data[:7])}, tmp_path / "ours.pt")
    assert torch.load(tmp_path / "ours.pt")["a"].numpy().tobytes() == data.tobytes()
    torch.save({"a": torch.from_numpy(data), "b": torch.from_numpy(data[:7])}, tmp_path / "theirs.pt")
    for mmap in (False, True):
        assert wisp.load(tmp_path / "theirs.pt", mmap=mmap)["a"].numpy().tobytes() == data.tobytes()


def test_files_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.arange(1000)}, tmp_path / "file.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert wisp.load(tmp_path / "file.pt")["a"].sum() == 499500


# ---------------------------------------------------------------- safetensors, against the library
SAFE = [dtype for dtype in DTYPES if dtype != "complex128"]


def test_safetensors(tmp_path):
    library = pytest.importorskip("safetensors.torch")
    from wisp.utils import safetensors as own

    theirs = {dtype: made(torch, dtype) for dtype in SAFE} | {
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(5.0),
        "a.b": torch.ones(2, 3),
    }
    ours = {dtype: made(wisp, dtype) for dtype in SAFE} | {"empty": wisp.empty(0, 3), "scalar": wisp.tensor(5.0), "a.b": wisp.ones(2, 3)}
    for metadata in (None, {"format": "pt"}):
        library.save_file(theirs, tmp_path / "theirs.safetensors", metadata)
        own.save_file(ours, tmp_path / "ours.safetensors", metadata)
        assert (tmp_path / "theirs.safetensors").read_bytes() == (tmp_path / "ours.safetensors").read_bytes()
    assert own.save(ours) == library.save(theirs)
    for loaded in (
        own.load_file(tmp_path / "theirs.safetensors"),
        own.load_file(tmp_path / "theirs.safetensors", mmap=True),
        library.load_file(tmp_path / "ours.safetensors"),
        wisp.load(tmp_path / "theirs.safetensors"),
        own.load(library.save(theirs)),
        library.load(own.save(ours)),
    ):
        assert set(loaded) == set(theirs)
        for name, tensor in theirs.items():
            assert tuple(loaded[name].shape) == tuple(tensor.shape) and raw(loaded[name]) == raw(tensor)
            assert str(loaded[name].dtype).split(".")[1] == str(tensor.dtype).split(".")[1]


def test_safetensors_models(tmp_path):
    library = pytest.importorskip("safetensors.torch")
    from wisp.utils import safetensors as own

    theirs, ours = torch.nn.LSTM(3, 4), wisp.nn.LSTM(3, 4)
    library.save_model(theirs, tmp_path / "file.safetensors")
    own.load_model(ours, tmp_path / "file.safetensors")
    own.save_model(ours, tmp_path / "again.safetensors")
    library.load_model(torch.nn.LSTM(3, 4), tmp_path / "again.safetensors")
    for a, b in zip(ours.parameters(), theirs.parameters()):
        assert raw(a) == raw(b)


@pytest.mark.parametrize(
    "make",
    [
        lambda lib: lib.tensor([1 + 2j, 3 - 1j]).conj(),
        lambda lib: lib.tensor([1 + 2j, 3 - 1j]).conj().imag,
        lambda lib: lib.tensor([[1 + 2j, 3 - 1j]]).mH,
    ],
)
def test_lazy_views(make):
    """PyTorch saves the memory of a conjugated view and a note that it is to be conjugated."""
    stream = io.BytesIO()
    torch.save(make(torch), stream)
    stream.seek(0)
    assert wisp.load(stream).tolist() == make(torch).tolist()
    stream = io.BytesIO()
    wisp.save(make(wisp), stream)
    stream.seek(0)
    assert torch.load(stream).tolist() == make(torch).tolist()


def test_tensors_without_memory():
    for ours, theirs in ((wisp, torch), (torch, wisp)):
        stream = io.BytesIO()
        ours.save({"w": ours.empty(2, 3, device="meta").t()}, stream)
        stream.seek(0)
        read = theirs.load(stream)["w"]
        assert read.is_meta and tuple(read.shape) == (3, 2) and read.stride() == (1, 3)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_safetensors_of_float8(name):
    import safetensors.torch

    x = {"b": torch.arange(5.0).to(getattr(torch, name)), "a": torch.ones(3)}
    theirs = safetensors.torch.save(x)
    ours = wisp.utils.safetensors.load(theirs)
    assert str(ours["b"].dtype) == f"torch.{name}" and ours["b"].tolist() == x["b"].tolist()
    assert wisp.utils.safetensors.save(ours) == theirs


def test_absent_dtypes_are_named():
    value = torch.empty(2, dtype=torch.bits8)
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="which Wisp does not read"):
        wisp.load(stream)


@pytest.mark.parametrize("make", [lambda z: z.conj(), lambda z: z.conj().imag, lambda z: z])
def test_lazy_views_in_old_files_and_pickles(make):
    expected = make(torch.tensor([1 + 2j, 3 - 1j]))
    file = io.BytesIO()
    torch.save({"x": expected, "plain": torch.arange(3.0)}, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    loaded = wisp.load(file)
    assert loaded["x"].tolist() == expected.tolist() and loaded["plain"].tolist() == [0.0, 1.0, 2.0]


PICKLED = """
import pickle, sys
import torch
x = pickle.loads(bytes.fromhex(sys.argv[1]))
assert "wisp" in torch.__file__
print(x["conj"].tolist(), x["coo"].to_dense().tolist(), x["csr"].to_dense().tolist(), x["generator"].initial_seed(), x["p"].kept)
"""


def test_pickles_of_pytorchs(tmp_path):
    import subprocess
    import sys

    p = torch.nn.Parameter(torch.ones(1))
    p.kept = 3
    eye = torch.eye(2)
    parts = {"conj": torch.tensor([1 + 2j]).conj(), "coo": eye.to_sparse(), "csr": eye.to_sparse_csr(), "p": p}
    data = pickle.dumps({**parts, "generator": torch.Generator().manual_seed(5)})
    (tmp_path / "read.py").write_text(PICKLED)
    command = [sys.executable, "-m", "wisp", "run", str(tmp_path / "read.py"), data.hex()]
    done = subprocess.run(command, capture_output=True, text=True)
    square = [[1.0, 0.0], [0.0, 1.0]]
    assert done.stdout.strip() == f"{[1 - 2j]} {square} {square} 5 3", done.stderr


def test_generators_in_files():
    file = io.BytesIO()
    torch.save({"generator": torch.Generator().manual_seed(5)}, file)
    file.seek(0)
    assert wisp.load(file, weights_only=False)["generator"].initial_seed() == 5
