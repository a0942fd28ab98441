"""Plans are kept by structure: what differs in numbers or memory alone is looked up, and anything else is planned anew."""

import pytest

import wisp
from wisp.nn import functional as F


@pytest.fixture(autouse=True)
def everything_is_noted():
    before = wisp._core._set_worth_noting(0)
    yield
    wisp._core._set_worth_noting(before)


def planned(f, *args):
    """The result in a region, which has to be that of eager, and how many plans were made for it."""
    expected = f(*args)
    before = wisp.compiler.statistics()["plans"]
    result = wisp.compile(f)(*args)
    made = wisp.compiler.statistics()["plans"] - before
    assert all(map(wisp.equal, result, expected)) if isinstance(result, tuple) else wisp.equal(result, expected)
    return made


def test_the_same_structure_is_planned_once():
    def f(x, y, a, b):
        return F.leaky_relu(x * a + y, b) - x * b

    made = [planned(f, wisp.randn(7, 130), wisp.randn(130), a, b) for a, b in ((2.5, 0.5), (3.0, 0.25), (-1.0, 0.125))]
    assert made == [1, 0, 0]


def test_numbers_that_are_equal_by_chance():
    def f(x, a, b):
        return x * a + (x + b) * a

    made = [planned(f, wisp.randn(311), a, b) for a, b in ((2.0, 2.0), (2.0, 3.0), (4.0, 5.0), (6.0, 6.0))]
    assert made == [1, 1, 0, 0]


def test_memory_that_is_the_same():
    def f(x, y, z):
        return (x * y).exp() + z

    x, y, z = (wisp.randn(5, 123) for _ in range(3))
    assert [planned(f, x, y, z), planned(f, x, x, z), planned(f, y, y, x), planned(f, z, x, y), planned(f, x, y, y)] == [1, 1, 0, 0, 1]


def test_who_is_seen_and_how_it_lies():
    def f(x, keep):
        h = x * 1.5
        y = h.tanh() + h
        return (y, h) if keep else y

    x = wisp.randn(9, 77)
    assert [planned(f, x, False), planned(f, x, True), planned(f, x, False)] == [1, 1, 0]
    assert [planned(f, x.t(), True), planned(f, x[:, ::2], True), planned(f, x[1:], True), planned(f, x.double(), True)] == [1, 1, 1, 1]
    assert [planned(f, x + 1, True), planned(f, (x + 1)[2:], True), planned(f, (x + 1)[1:], True)] == [0, 1, 0]


def test_values_between_programs():
    def f(x, w):
        h = x * 2 + 1
        return h.t().contiguous() * w + h.sum(0).mean(), h.exp().sum(-1)

    for _ in range(3):
        made = planned(f, wisp.randn(66, 100), wisp.randn(66))
    assert made == 0


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("width", [64, 100, 1000, 4096, 5000])
def test_rows_are_folded_as_they_are_eagerly(rows, width):
    def f(x):
        e = (x - x.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True), (x * x).mean(-1), -x.amax(-1)

    x = wisp.randn(rows, width)
    planned(f, x)
    x[0, 5] = wisp.nan
    expected, result = f(x), wisp.compile(f)(x)
    assert all(wisp.equal(a.isnan(), b.isnan()) and wisp.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(result, expected))


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64, wisp.bfloat16])
def test_gradients_of_products_by_rows(dtype):
    def f(x, w, s):
        x, w, s = (t.detach().requires_grad_() for t in (x, w, s))
        (x * s * w / s + x / 3).square().sum().backward()
        return x.grad, w.grad, s.grad

    for sizes in ((12, 300), (2, 5000), (300, 5)):
        x, w, s = wisp.randn(sizes), wisp.randn(sizes[1]), wisp.rand(sizes[0], 1) + 0.5
        planned(f, *(t.to(dtype) for t in (x, w, s)))


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float16])
def test_values_of_half_precision_are_rounded_between_operators(dtype):
    bits = wisp.arange(0, 65536, 3).to(wisp.int16)
    x = bits.view(dtype).reshape(2, -1)  # denormal numbers, infinities and NaN among them
    y = wisp.randn(x.shape).to(dtype)

    def chain(x, y):
        z = x * y + y
        return (z.float() * 1.2345 - 1).to(dtype) * x, z / 3 - y

    for made, expected in zip(wisp.compile(chain)(x, y), chain(x, y), strict=True):
        assert made.dtype == dtype and wisp.equal(made.isnan(), expected.isnan())
        assert wisp.equal(made.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("rows, width", [(7, 1000), (64, 1000), (3, 1600), (200, 30), (2, 5000), (33, 2049)])
def test_one_row_for_all(rows, width):
    a, b, c = wisp.randn(rows, width), wisp.randn(width), wisp.randn(rows, 1)
    chain = lambda: ((a * b + c) * b).exp() - b  # noqa: E731
    assert wisp.equal(wisp.compile(chain)(), chain())
