"""complex32 and float8 against PyTorch: conversions bit for bit, files both ways, limits, which calls are refused."""

import io

import numpy
import pytest
import torch

import wisp

FLOAT8 = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
STORED = ["complex32", *FLOAT8]


def floats():
    """Each pattern of the upper 20 bits of a float, with lower bits that make ties, and what is just beside them."""
    upper = numpy.arange(2**20, dtype=numpy.uint32) << 12
    return numpy.concatenate([upper, upper | 1, upper - 1, upper | 0x800]).view(numpy.float32)


@pytest.mark.parametrize("name", FLOAT8)
def test_every_code_and_many_floats(name):
    codes = numpy.arange(256, dtype=numpy.uint8)
    ours, theirs = (m.from_numpy(codes).view(getattr(m, name)) for m in (wisp, torch))
    for wide in ("float32", "float64", "float16", "bfloat16", "complex64"):
        a, b = ours.to(getattr(wisp, wide)), theirs.to(getattr(torch, wide))
        same = lambda x, y: numpy.array_equal(x.cfloat().numpy(), y.cfloat().numpy(), equal_nan=True)  # noqa: E731
        assert same(a, b)
    values = floats()
    assert numpy.array_equal(
        wisp.from_numpy(values).to(getattr(wisp, name)).view(wisp.uint8).numpy(),
        torch.from_numpy(values).to(getattr(torch, name)).view(torch.uint8).numpy(),
    )


def test_complex32_conversions():
    values = floats()[: 2**20].view(numpy.complex64)
    a, b = wisp.from_numpy(values).chalf().view(wisp.int16).numpy(), torch.from_numpy(values).chalf().view(torch.int16).numpy()
    nan = ((a & 0x7FFF) > 0x7C00) & ((b & 0x7FFF) > 0x7C00)
    assert numpy.array_equal(a[~nan], b[~nan])


@pytest.mark.parametrize("name", STORED)
def test_files_both_ways(name):
    for ours, theirs in ((wisp, torch), (torch, wisp)):
        stream = io.BytesIO()
        x = ours.arange(12).to(ours.float32).reshape(3, 4).to(getattr(ours, name)).t()
        ours.save({"x": x}, stream)
        stream.seek(0)
        read = theirs.load(stream)["x"]
        assert str(read.dtype) == f"torch.{name}" and read.stride() == (1, 4)
        assert numpy.array_equal(read.cfloat().numpy(), x.cfloat().numpy())


@pytest.mark.parametrize("name", STORED)
def test_limits(name):
    ours, theirs = wisp.finfo(getattr(wisp, name)), torch.finfo(getattr(torch, name))
    for limit in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, limit) == pytest.approx(getattr(theirs, limit)), limit
    for other in ("float16", "bfloat16", "float32", "int32", "bool", "complex64", "float64", *STORED):
        try:
            expected = str(torch.promote_types(getattr(torch, name), getattr(torch, other)))
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match="^" + str(error).splitlines()[0]):
                wisp.promote_types(getattr(wisp, name), getattr(wisp, other))
        else:
            assert str(wisp.promote_types(getattr(wisp, name), getattr(wisp, other))) == expected


def test_scaled_mm():
    x, y = numpy.random.default_rng(0).standard_normal((2, 16, 32)).astype("float32")
    for out in ("float32", "bfloat16", None):
        a, b = (
            m._scaled_mm(
                m.from_numpy(x).to(m.float8_e4m3fn),
                m.from_numpy(y).to(m.float8_e5m2).t(),
                m.tensor(0.5),
                m.tensor(3.0),
                out_dtype=out and getattr(m, out),
            )
            for m in (wisp, torch)
        )
        assert str(a.dtype) == str(b.dtype)
        numpy.testing.assert_allclose(a.float().numpy(), b.float().numpy(), rtol=0.13, atol=1e-4)
