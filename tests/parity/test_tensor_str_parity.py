"""repr(tensor) is, character by character, PyTorch's."""

import numpy as np
import pytest
import torch

import wisp
from wisp._tensor.printing import tensor_str

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"]
SHAPES = [(), (1,), (7,), (40,), (1001,), (3, 4), (2, 3, 4), (50, 50), (5, 300), (2, 1, 3, 2), (4, 9, 40), (0,), (0, 3), (2, 0, 5)]


def same(array, **options):
    theirs, ours = torch.from_numpy(array.copy()), wisp.from_numpy(array.copy())
    with torch._tensor_str.printoptions(**options), wisp._tensor.printing.printoptions(**options):
        assert tensor_str(ours) == repr(theirs).replace("torch.", str(wisp.int8)[:-4])


def sample(random, dtype, shape):
    scale = random.choice([1, 10, 1e-6, 1e6, 1e9])
    real = random.standard_normal(shape) * scale
    if random.random() < 0.3:
        real = np.round(real)
    if dtype.startswith("complex"):
        imag = random.standard_normal(shape) * random.choice([1, 1e-5, 1e7])
        return np.asarray(real + 1j * imag).astype(dtype)
    if dtype == "bool":
        return np.asarray(real > 0)
    if dtype.startswith("float"):
        with np.errstate(over="ignore"):
            real = np.asarray(real)
            if random.random() < 0.3:
                real = np.where(random.random(shape) < 0.2, random.choice([np.nan, np.inf, -np.inf, 0.0, -0.0]), real)
            return np.asarray(real).astype(dtype)
    return np.asarray(real % 120).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype):
    random = np.random.default_rng(DTYPES.index(dtype))
    for shape in SHAPES:
        for _ in range(8):
            same(sample(random, dtype, shape))


@pytest.mark.parametrize(
    "options",
    [
        dict(precision=2),
        dict(profile="short"),
        dict(profile="full"),
        dict(sci_mode=True),
        dict(sci_mode=False),
        dict(edgeitems=1, threshold=5),
        dict(edgeitems=0, threshold=5),
        dict(linewidth=40),
        dict(linewidth=200, precision=8),
    ],
)
def test_options(options):
    random = np.random.default_rng(0)
    for dtype in ("float32", "int64", "complex64", "bool"):
        for shape in SHAPES:
            same(sample(random, dtype, shape), **options)


def test_gradient_suffixes():
    def build(package):
        x = package.tensor([1.5, -2.0], requires_grad=True)
        yield x
        yield x * 2
        yield (x * 2).sum()
        yield package.ones(30, requires_grad=True) * package.ones(30)
        yield package.ones(2, 3, dtype=package.float64, requires_grad=True)
        yield package.ones(0, 3, requires_grad=True)

    for ours, theirs in zip(build(wisp), build(torch)):
        assert tensor_str(ours) == repr(theirs).replace("torch.", str(wisp.int8)[:-4])


def test_options_are_restored():
    before = wisp._tensor.printing.get_printoptions()
    with wisp._tensor.printing.printoptions(precision=1, sci_mode=True):
        assert wisp._tensor.printing.get_printoptions()["precision"] == 1
    assert wisp._tensor.printing.get_printoptions() == before
