"""Arguments that no program means: sizes that overflow, lists that hold themselves, memory that is taken away. Each must end in an error."""

import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import wisp
import wisp.nn.functional as F
from wisp.nn.utils.rnn import pack_sequence, pad_packed_sequence
from wisp.vision.ops import roi_pool

HUGE = 2**63 - 1


# ---------------------------------------------------------------- sizes
SIZES = {
    "strides": lambda: wisp.empty_strided((3,), (2**61,)),
    "strides of two": lambda: wisp.empty_strided((3, 3), (2**62, 2**62)),
    "negative size": lambda: wisp.empty_strided((-3,), (1,)),
    "resize_": lambda: wisp.ones(6).resize_([-2, -3]),
    "resize_ to much": lambda: wisp.ones(6).resize_([2**62]),
    "broadcast": lambda: wisp.zeros(8, 8).bernoulli_(wisp.full((64,), 0.5)[:3]),  # behind them lie numbers that would do
    "chunks of nothing": lambda: wisp.ones(0).chunk(HUGE),
    "expand": lambda: wisp.ones(1).expand(2**40, 2**40),
    "pool": lambda: F.max_pool1d(wisp.ones(1, 1, 8), HUGE),
    "dilation": lambda: F.max_pool1d(wisp.ones(1, 1, 8), 3, dilation=HUGE),
    "interpolate": lambda: F.interpolate(wisp.ones(1, 1, 4, 4), scale_factor=1e9, mode="bilinear"),
    "tile": lambda: wisp.ones(2, 3).tile([2**62, 4]),
    "repeat": lambda: wisp.ones(2, 3).repeat(1, -(2**63)),
    "split": lambda: wisp.ones(2, 3).split([HUGE, 3]),
    "split along no dimension": lambda: wisp.ones(2, 3).split([1, 1], 2**31),
    "unfold": lambda: F.unfold(wisp.ones(1, 2, 6, 6), 1, padding=2**61),
    "pad": lambda: F.pad(wisp.ones(2, 3), [HUGE, 1]),
    "pad back": lambda: F.pad(wisp.ones(2, 3), [-HUGE - 1, HUGE]),
    "convolution": lambda: F.conv2d(wisp.ones(1, 2, 6, 6), wisp.ones(1, 2, 6, 6), dilation=2**61),
    "transposed convolution": lambda: F.conv_transpose1d(wisp.ones(1, 1, 8), wisp.ones(1, 1, 3), stride=2**61),
    "unpool": lambda: F.max_unpool1d(wisp.ones(1, 1, 4), wisp.zeros(1, 1, 4, dtype=wisp.int64), HUGE),
    "diag": lambda: wisp.ones(4).diag(-(2**61)),
    "diag further": lambda: wisp.ones(4).diag(-HUGE - 1),
    "repeat_interleave": lambda: wisp.ones(2, 3).repeat_interleave(2**61),
    "pooled regions": lambda: roi_pool(wisp.ones(1, 1, 4, 4), wisp.tensor([[0.0, 0, 0, 3, 3]]), HUGE),
    "arange": lambda: wisp.arange(-HUGE, HUGE),
    "arange of floats": lambda: wisp.arange(0.0, 1e30),
    "ctc": lambda: wisp._core._operators[""]["_ctc_losses"](wisp.ones(2, 3), *[wisp.ones(2, 3)] * 2, -HUGE, 1, True),
    "interpolate further": lambda: F.interpolate(wisp.ones(1, 1, 4, 4), scale_factor=1e30, mode="bilinear"),
    "interpolate one side": lambda: F.interpolate(wisp.ones(1, 1, 4, 4), size=(2**40, 1), mode="bilinear"),
    "frombuffer": lambda: wisp.frombuffer(bytearray(16), dtype=wisp.float32, count=2**62),
    "frombuffer from an offset": lambda: wisp.frombuffer(bytearray(16), dtype=wisp.float32, count=2**62 + 1, offset=4),
    "bincount": lambda: wisp.bincount(wisp.tensor([HUGE])),
    "one_hot": lambda: F.one_hot(wisp.tensor([HUGE])),
    "cat": lambda: wisp.cat([wisp.empty(0, 2**62)] * 2, 1),
    "block_diag": lambda: wisp.block_diag(*[wisp.empty(0, 2**62)] * 2),
    "kron": lambda: wisp.kron(wisp.empty(0, 2**62), wisp.ones(2, 2)),
    "view of smaller elements": lambda: wisp.empty(0, 2**62).view(wisp.int8),
    "affine_grid": lambda: F.affine_grid(wisp.ones(1, 2, 3), (1, 1, 2**32, 2**32)),
    "fractional pool": lambda: F.fractional_max_pool2d(wisp.ones(1, 1, 4, 4), 2, output_ratio=1e300),
    "fractional pool of NaN": lambda: F.fractional_max_pool2d(wisp.ones(1, 1, 4, 4), 2, output_ratio=float("nan")),
    "packed sequence": lambda: pad_packed_sequence(pack_sequence([wisp.ones(2)]), total_length=2**40),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_do_not_fit(name):
    with pytest.raises((RuntimeError, ValueError, IndexError, MemoryError)):
        SIZES[name]()


def test_numbers_that_are_negated():
    x = wisp.ones(2)
    assert wisp.sub(x, x, alpha=-HUGE - 1).tolist() == [-(2.0**63)] * 2
    assert x.round(decimals=-HUGE - 1).isnan().all()


def test_sizes_that_only_look_so():
    assert [len(part) for part in wisp.ones(17).chunk(HUGE)] == [1] * 17
    assert wisp.ones(0, 1).diff(2**31 - 1).shape == (0, 0)
    assert [len(part) for part in wisp.empty(HUGE, 0).chunk(3)] == [HUGE // 3 + 1, HUGE // 3 + 1, HUGE // 3 - 1]
    assert F.interpolate(wisp.ones(0, 1, 4, 4), size=2**40, mode="bilinear").shape == (0, 1, 2**40, 2**40)
    assert wisp.ones(2, 3).diff(HUGE).shape == (2, 0)
    assert wisp.arange(5)[:: 2**62].tolist() == [0]
    x = wisp.ones(2, 2)
    assert x.triu(HUGE).sum() == 0 and x.tril(HUGE).sum() == 4 and x.triu(-HUGE).sum() == 4 and x.tril(-HUGE).sum() == 0
    assert F.avg_pool1d(wisp.ones(1, 1, 5), 10**9, ceil_mode=True).tolist() == [[[1.0]]]
    assert wisp.empty(0, 2**40, 2**40).numel() == 0
    assert wisp.Size([2**40, 2**40]).numel() == 2**80 and wisp.Size([0, 2**40]).numel() == 0  # of shapes that no tensor has, too


@pytest.mark.parametrize("padding", [0, 1, 2**40])
def test_strides_beyond_the_only_place(padding):
    for stride in (7 + 2 * padding, HUGE):
        x, w = wisp.ones(2, 4, 7, requires_grad=True), wisp.ones(4, 4, 3, requires_grad=True)
        y = F.conv1d(x, w, stride=stride, padding=padding)
        y.sum().backward()
        assert y.shape == (2, 4, 1) and y.unique().item() == (0 if padding > 3 else 12 - 4 * padding)
        assert x.grad.sum() == w.grad.sum() == y.sum()
    y = F.conv_transpose1d(x[..., :1], w, stride=HUGE, padding=padding % 2)
    y.sum().backward()
    assert y.shape == (2, 4, 3 - 2 * (padding % 2)) and y.unique().item() == 4


# ---------------------------------------------------------------- lists
def run(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("before", ["", "class T(wisp.Tensor): pass\n", "wisp.ones(2, dtype=wisp.complex64).conj()\n"])
@pytest.mark.parametrize(
    "make",
    [
        "z = [0]; z.append(z)",
        "z = []\nfor _ in range(10**6): z = [z]",
        "z = (0,)\nfor _ in range(99): z = (z, z)",
        "z = [0]\nfor _ in range(9): z = [z] * 1000",
        "z = [wisp.ones(2, dtype=wisp.complex64).conj()]; z.append(z)",
        "z = [wisp.ones(2, dtype=wisp.complex32)]; z.append(z)",
    ],
)
def test_lists_without_end(before, make):
    program = f"import wisp\n{before}{make}\n" + "\n".join(
        f"try: {call}\nexcept (TypeError, ValueError, IndexError, RuntimeError): pass\nelse: raise SystemExit(3)"
        for call in (
            "wisp.cat(z)",
            "wisp.sum(wisp.ones(2), z)",
            "wisp.tensor(z)",
            "wisp.ones(2)[z]",
            "wisp.add(z, 1)",
            "wisp.conv2d(wisp.ones(1, 2, 2, dtype=wisp.complex32), z)",
        )
    )
    program += "\nimport os; os._exit(0)"  # a million lists take their time to go
    result = run(program)
    assert result.returncode == 0, result.stderr[-2000:]


class Emptying:
    """A number that empties the list it is in when it is read."""

    def __init__(self, holder):
        self.holder = holder

    def __index__(self):
        self.holder.clear()
        return 1


def test_a_list_that_changes_while_it_is_read():
    sizes = []
    sizes += [Emptying(sizes), 2, 3]
    with pytest.raises(RuntimeError, match="changed"):
        wisp.ones(sizes)
    key = [slice(None)]
    key += [Emptying(key), 2]
    wisp.ones(3, 3, 3)[key]


def test_device_numbers():
    for number in (2**64, -1, 128, -(2**70)):
        with pytest.raises(RuntimeError):
            wisp.device(number)


def test_meta_memory_is_not_read():
    with pytest.raises((RuntimeError, NotImplementedError)):
        wisp.linalg.eigh(wisp.empty(3, 3, device="meta"))


# ---------------------------------------------------------------- memory that others see
def test_exports_keep_their_memory():
    def retarget(x):
        x.data = wisp.zeros(10)

    def swap(x):
        wisp.utils.swap_tensors(x, wisp.zeros(10))

    for take in (lambda x: x.set_(wisp.zeros(10)), retarget, swap):
        for export in (lambda x: x.numpy(), lambda x: np.from_dlpack(x)):
            x = wisp.full((1 << 16,), 7.0)
            n = export(x)
            take(x)
            others = [wisp.zeros(1 << 16) for _ in range(8)]
            assert (n == 7).all()
            if n.flags.writeable:  # NumPy does not write to what it got by DLPack
                n[:] = 1
            assert all(not other.any() for other in others)


@pytest.mark.parametrize("export", [lambda x: x.numpy(), lambda x: np.from_dlpack(x), lambda x: x.__dlpack__()])
def test_exported_memory_is_not_resized(export):
    x = wisp.ones(10)
    kept = export(x)  # noqa: F841
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(10**6)
    assert x.shape == (10,)
    assert x.resize_(2, 2).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(RuntimeError, match="not resizable"):
        wisp.from_numpy(np.ones(3)).resize_(10)


def test_views_follow_their_storage_when_it_grows():
    x = wisp.arange(6.0)
    v = x[2:4]
    for size in (100, 100_000):
        x.resize_(size)
        x[2] = size
        assert v.tolist() == [size, 3.0]
        assert x[:6].tolist() == [0, 1, size, 3, 4, 5]
    moved = x.share_memory_()
    moved[3] = -1
    assert v[1] == -1


# ---------------------------------------------------------------- files
def test_a_message_about_a_nested_value(tmp_path):
    """The repr of these tuples has 2**60 elements."""
    nested = ("x",)
    for _ in range(60):
        nested = (nested, nested)

    path = tmp_path / "nested.pt"
    wisp.save({"w": wisp.ones(2)}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in entries if name.endswith("data.pkl"))
    call = pickle.dumps(nested, 2)[2:-1]
    # torch._utils._rebuild_tensor_v2(nested, nested, ...): every argument is that value
    body = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + call + b"".join(b"2" for _ in range(5)) + b"tR."
    encode = b"\x80\x02c_codecs\nencode\n(U\x01a" + call + b"tR."  # in an encoding of that name
    for entry in (body, encode, b"\x80\x02ccollections\nOrderedDict\n" + call + b"\x85R.", b"\x80\x02" + call + b"Q."):
        entries[name] = entry
        with zipfile.ZipFile(path, "w") as archive:
            for key, content in entries.items():
                archive.writestr(key, content)
        program = f"import wisp\ntry: wisp.load({str(path)!r})\nexcept Exception as error: print(len(str(error)))"
        result = run(program)
        assert result.returncode == 0 and int(result.stdout or 0) < 5000, result.stderr[-2000:]
