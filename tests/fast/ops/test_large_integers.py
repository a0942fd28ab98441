"""Integers from 2**63 to 2**64 - 1 as operands and values: uint64 holds them, other integers wrap where PyTorch's do, or refuse."""

import pickle

import pytest

import wisp

TOP, HALF = 2**64 - 1, 2**63


def unsigned(*values):
    return wisp.tensor(values, dtype=wisp.uint64)


def test_uint64_holds_them():
    assert wisp.full((2,), TOP, dtype=wisp.uint64).tolist() == [TOP, TOP]
    assert unsigned(1, 2).fill_(HALF).tolist() == [HALF, HALF]
    assert unsigned(1, 2).new_full((1,), HALF + 1).item() == HALF + 1
    assert wisp.scalar_tensor(TOP, dtype=wisp.uint64).item() == TOP
    x = unsigned(1, 2, TOP)
    assert x[2].item() == int(x[2]) == x.tolist()[2] == TOP and float(x[2]) == 2.0**64 and range(TOP + 1)[x[2]] == TOP
    x[0] = HALF
    x[wisp.tensor([False, True, False])] = TOP - 1
    assert x.tolist() == [HALF, TOP - 1, TOP]
    mask = wisp.tensor([True, False, False])
    assert x.masked_fill(mask, 2**64 - 5).tolist() == [2**64 - 5, TOP - 1, TOP]
    assert wisp.where(mask, TOP, x).tolist() == [TOP, TOP - 1, TOP]
    assert wisp.arange(TOP - 2, TOP, dtype=wisp.uint64).tolist() == [TOP - 2, TOP - 1]


def test_uint64_computes_with_them():
    x = unsigned(0, 1, HALF + 2)
    assert (x & TOP).tolist() == x.tolist() and (x | HALF).tolist() == [HALF, HALF + 1, HALF + 2]
    assert (x ^ TOP).tolist() == [TOP, TOP - 1, TOP ^ (HALF + 2)] == (TOP ^ x).tolist()
    assert (x == HALF + 2).tolist() == [False, False, True] and (x != TOP).all()
    assert (x < HALF).tolist() == [True, True, False] and (HALF >= x).tolist() == [True, True, False]
    assert (x + HALF).tolist() == [HALF, HALF + 1, 2] and (x * TOP).tolist() == [0, TOP, HALF - 2]
    assert (x % HALF).tolist() == [0, 1, 2] and (x // HALF).tolist() == [0, 0, 1]
    assert (x / HALF).tolist() == [0.0, 2.0**-63, 1.0]
    x &= HALF
    assert x.tolist() == [0, 0, HALF]


def test_bounds_of_uint64():
    x = unsigned(1, 10, HALF + 5)
    assert x.clamp(max=5).tolist() == [1, 5, 5] and x.clamp(min=5).tolist() == [5, 10, HALF + 5]
    assert x.clamp(2, HALF).tolist() == [2, 10, HALF] and x.clamp(min=TOP).tolist() == [TOP] * 3


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_other_integers_wrap(name):
    x = wisp.tensor([1, 2, 3], dtype=getattr(wisp, name))
    low = wisp.full((), -1, dtype=x.dtype)
    assert (x & TOP).dtype is x.dtype and (x & TOP).tolist() == x.tolist()
    assert wisp.equal(x + TOP, x - 1) and wisp.equal(x ^ TOP, ~x) and wisp.equal(x < TOP, x < low) and wisp.equal(TOP // x, low // x)
    assert wisp.equal(x.clone().mul_(TOP), -x) and wisp.result_type(x, TOP) is x.dtype
    assert wisp.equal(wisp.sub(x, x, alpha=TOP), x + x)


@pytest.mark.parametrize("name", ["uint8", "int8", "int32", "int64"])
def test_other_integers_refuse_values(name):
    x = wisp.tensor([1, 2, 3], dtype=getattr(wisp, name))
    mask = wisp.tensor([True, False, True])
    for call in (
        lambda: x.fill_(HALF),
        lambda: wisp.full((2,), TOP, dtype=x.dtype),
        lambda: x.masked_fill(mask, HALF),
        lambda: x.index_fill(0, wisp.tensor([0]), HALF),
        lambda: x.scatter(0, wisp.tensor([0]), HALF),
        lambda: wisp.where(mask, x, HALF),
        lambda: x.clamp(max=TOP),
        lambda: x**HALF,
        lambda: wisp.threshold(x, 1, TOP),
        lambda: wisp.nn.functional.pad(x, (1, 1), value=TOP),
        lambda: x.__setitem__(0, HALF),
        lambda: x.__setitem__(mask, HALF),
    ):
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    assert x.tolist() == [1, 2, 3]
    for call in (
        lambda: wisp.tensor([HALF]),
        lambda: wisp.tensor(TOP, dtype=x.dtype),
        lambda: unsigned(2**64),
        lambda: x + 2**64,
        lambda: x & -(2**63) - 1,
    ):
        with pytest.raises(RuntimeError, match="Overflow when unpacking"):
            call()
    with pytest.raises(RuntimeError, match="without overflow"):
        wisp.arange(HALF, HALF + 2)


def test_a_large_number_is_zero_to_small_integers():
    x = wisp.tensor([0, 1], dtype=wisp.int32)
    assert (x == HALF).tolist() == [True, False]  # its low bits, as in PyTorch
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x // HALF


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64", "complex64"])
def test_floats_take_them_as_they_are(name):
    x = wisp.tensor([0.0, 1.0], dtype=getattr(wisp, name), requires_grad=True)
    assert (x + TOP).tolist() == [2.0**64, 2.0**64] and (x * HALF).tolist() == [0, 2.0**63]
    (x * HALF).backward(wisp.ones_like(x))
    assert x.grad.tolist() == [2.0**63] * 2
    assert wisp.full((1,), TOP, dtype=x.dtype).item() == 2.0**64
    assert wisp.sub(x, x, alpha=TOP).tolist() == [0, 1 - 2.0**64 if name == "float64" else -(2.0**64)]


def test_half_precision_reaches_not_so_far():
    x = wisp.zeros(2, dtype=wisp.float16)
    assert (x + HALF).tolist() == [float("inf")] * 2
    with pytest.raises(RuntimeError, match="without overflow"):
        x.fill_(HALF)


def test_gradients_and_compiled_regions():
    def f(x, n):
        return ((n & TOP) ^ HALF) | 1, wisp.where(n == TOP, x * TOP, x / HALF)

    x, n = wisp.tensor([1.0, 2.0], requires_grad=True), unsigned(TOP, 4)
    want = f(x, n)
    got = wisp.compile(f)(x, n)
    assert got[0].tolist() == want[0].tolist() == [HALF - 1, HALF + 5]
    assert got[1].tolist() == want[1].tolist() == [2.0**64, 2.0**-62]
    y = wisp.tensor([2.0], requires_grad=True)
    (y**HALF).sum().backward()
    assert y.grad.item() == float("inf")


def test_numbers_of_numpy_and_of_tensors():
    numpy = pytest.importorskip("numpy")
    assert (unsigned(TOP) == numpy.uint64(TOP)).all()
    zero = pickle.loads(pickle.dumps(unsigned(TOP)))[0]
    assert (wisp.tensor([0.5]) + zero).item() == 2.0**64 and wisp.full((1,), zero).item() == TOP
