"""Values where formulas meet their ends: large angles, ties, zeros, infinities and NaN; what is expected is PyTorch's."""

import math

import pytest

import wisp
import wisp.nn.functional as F

NAN, INF = math.nan, math.inf


def gradient(f, values, dtype=wisp.float32):
    x = wisp.tensor(values, dtype=dtype, requires_grad=True)
    f(x).sum().backward()
    return x.grad.tolist()


def same(got, want, tolerance=1e-6):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert (a != a and b != b) or a == b or abs(a - b) <= tolerance * abs(b), (got, want)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("length", [1, 5, 1000])
def test_large_angles(name, length):
    values = [1e16, -1e20, 3e38, 1e9, 1e15, 0.5, 1e22][:length] * (1 if length <= 7 else length // 7)
    x = wisp.tensor(values)
    exact = [getattr(math, name)(v) for v in x.tolist()]
    same(getattr(x, name)().tolist(), exact, 1e-6)
    slopes = {"sin": math.cos, "cos": lambda v: -math.sin(v), "tan": lambda v: 1 + math.tan(v) ** 2}[name]
    same(gradient(getattr(wisp, name), values), [slopes(v) for v in x.tolist()], 3e-6)
    assert all(v != v for v in getattr(wisp.tensor([INF, NAN, 1e20]), name)().tolist()[:2])


def test_sinc_near_zero():
    points = [1e-20, 1e-8, 1e-4, 0.01, 0.0999, 0.1001, 0.3, -1e-8, 0.0]
    want = [
        math.pi * ((math.pi * x) * math.cos(math.pi * x) - math.sin(math.pi * x)) / (math.pi * x) ** 2
        if abs(x) > 1e-3
        else -(math.pi**2) * x / 3
        for x in points
    ]
    same(gradient(wisp.sinc, points), want, 1e-5)
    same(gradient(wisp.sinc, points, wisp.float64), want, 1e-8)
    x = wisp.tensor([0.0, 0.2], dtype=wisp.float64, requires_grad=True)
    (slope,) = wisp.autograd.grad(wisp.sinc(x).sum(), x, create_graph=True)
    (second,) = wisp.autograd.grad(slope.sum(), x)
    assert abs(second[0].item() + math.pi**2 / 3) < 1e-12 and math.isfinite(second[1].item())


def test_clamp_gives_ties_to_the_input():
    low, high = wisp.tensor([1.0, 0.0, 2.0], requires_grad=True), wisp.tensor([2.0, 0.0, 1.0], requires_grad=True)
    x = wisp.tensor([1.0, 0.0, 3.0], requires_grad=True)
    x.clamp(low, high).sum().backward()
    assert x.grad.tolist() == [1, 1, 0] and low.grad.tolist() == [0, 0, 0] and high.grad.tolist() == [0, 0, 1]
    assert gradient(lambda t: t.clamp(min=wisp.tensor([1.0, 0.0])), [1.0, -1.0]) == [1, 0]
    assert gradient(lambda t: wisp.tensor([1.0, 0.0]).clamp(max=t), [1.0, -1.0]) == [0, 1]


def test_variance_of_large_and_small_numbers():
    same([wisp.tensor([1e20, -1e20]).std().item(), wisp.tensor([1e-30, -1e-30]).std().item()], [1.4142136e20, 1.4142136e-30])
    same(wisp.tensor([[1e20, -1e20], [1.0, 2.0]]).std(1).tolist(), [1.4142136e20, 0.70710678])
    same(wisp.tensor([[1e20, 1.0], [-1e20, 2.0]]).std(0).tolist(), [1.4142136e20, 0.70710678])
    assert wisp.ones(5).var().item() == 0 and wisp.tensor([NAN, 1.0]).std().isnan()


def test_slopes_at_corners():
    same(gradient(wisp.logit, [-1.0, 0.0, 0.5, 1.0, 2.0]), [NAN, INF, 4, INF, NAN])
    same(gradient(lambda t: wisp.logit(t, 0.1), [-1.0, 0.5, NAN]), [0, 4, NAN])
    assert gradient(F.hardswish, [-3.0, 3.0, -4.0, 4.0, 0.0, NAN]) == [0, 1, 0, 1, 0.5, 1]
    same(F.hardswish(wisp.tensor([NAN, -INF, INF, 1.0])).tolist(), [NAN, NAN, INF, 2 / 3])
    assert gradient(wisp.relu, [NAN, 0.0, 1.0]) == [1, 0, 1]
    assert gradient(F.hardtanh, [NAN, -1.0, 1.0, 0.5]) == [1, 0, 0, 1]
    assert gradient(lambda t: t.pow(0), [0.0, 1.0]) == [0, 0]
    assert wisp.sign(wisp.tensor([NAN, -2.0])).tolist() == [0, -1] and wisp.sgn(wisp.tensor([NAN])).tolist() == [0]
    x = wisp.tensor([0.0, 1.0], requires_grad=True)
    (slope,) = wisp.autograd.grad((x**1).sum(), x, create_graph=True)
    assert wisp.autograd.grad(slope.sum(), x)[0].tolist() == [0, 0]


def test_search_among_nan():
    edges, values = wisp.tensor([1.0, 2.0, NAN]), wisp.tensor([NAN, 3.0, 0.0])
    for dtype in (wisp.float32, wisp.float64, wisp.float16, wisp.bfloat16):
        for right in (False, True):
            assert wisp.searchsorted(edges.to(dtype), values.to(dtype), right=right).tolist() == [3, 3, 0]


def test_reductions_of_nothing_and_nan():
    assert wisp.all(wisp.ones(2, 2), dim=()).tolist() == [[True, True], [True, True]]
    assert wisp.any(wisp.zeros(2), dim=()).tolist() == [False, False]
    assert wisp.nansum(wisp.tensor([1.0, NAN, 2.0]), dtype=wisp.int64).item() == 3
    x = -wisp.arange(8.0).view(1, 1, 8)
    assert F.lp_pool1d(x, INF, 2).tolist() == [[[1, 3, 5, 7]]] and F.lp_pool1d(x, -INF, 2).tolist() == [[[0, 2, 4, 6]]]


PIECEWISE = {
    "relu": wisp.relu,
    "leaky_relu": F.leaky_relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "threshold": lambda t: F.threshold(t, 0.1, 0.2),
}


@pytest.mark.parametrize("name", PIECEWISE)
def test_second_derivatives_by_any_way(name):
    """Forward over reverse, as reverse over reverse."""

    def f(x):
        return PIECEWISE[name](x).sum() ** 2

    x = wisp.tensor([0.55, -1.0, 2.0, 0.9], dtype=wisp.float64)
    want = wisp.autograd.functional.hessian(f, x)
    assert want.abs().sum() > 0
    assert wisp.allclose(wisp.func.hessian(f)(x), want) and wisp.allclose(wisp.func.jacrev(wisp.func.jacrev(f))(x), want)


def test_histograms_of_large_values():
    """Places are found without overflow, and where rounding has closed the range, in the middle."""
    assert wisp.histc(wisp.tensor([0.0, 3e38, 1e38])).nonzero().flatten().tolist() == [0, 33, 99]
    assert wisp.histc(wisp.tensor([-3e38, 3e38, 0.0])).nonzero().flatten().tolist() == [0, 50, 99]
    assert wisp.histc(wisp.tensor([1e308, -1e308, 0.0], dtype=wisp.float64)).nonzero().flatten().tolist() == [0, 50, 99]
    for value in (1e9, 1e20):
        assert wisp.histc(wisp.tensor([value, value]))[50] == 2


def test_norms_of_one_element_and_distances_of_nan():
    assert wisp.linalg.vector_norm(wisp.tensor(-3e38), 4).item() == wisp.tensor(3e38).item()
    assert wisp.linalg.vector_norm(wisp.tensor([[1e30], [-2.0]]), 3, dim=1).tolist() == wisp.tensor([1e30, 2.0]).tolist()
    nan, x = float("nan"), wisp.tensor([[1.0, 2.0, 3.0]])
    assert wisp.cdist(wisp.tensor([[nan, 2.0, 0.0]]), x, p=0.0).isnan().all()
    assert wisp.cdist(wisp.tensor([[1e-45, 2.0, float("inf")]]), x, p=0.0).item() == 2


@pytest.mark.parametrize("length", [3, 100])
def test_norms_of_negative_order(length):
    """One zero is all of the norm, whatever its sign, and nothing has a slope there."""
    more = [INF] * (length - 3)  # add nothing to a sum of inverses
    rows = [[-0.0, 2.0, 0.0], [1.0, 4.0, 2.0], [1e-30, 1e30, 3.0], [1e20, 1e20, 1e20]]
    x = wisp.tensor([row + more for row in rows], requires_grad=True)
    norms = wisp.linalg.vector_norm(x, -1, dim=1)
    same(norms.tolist(), [0, 1 / 1.75, 1e-30, 1e20 / 3])
    assert math.copysign(1, wisp.linalg.vector_norm(wisp.tensor([-0.0, 1.0]), -1).item()) == 1
    norms[:2].sum().backward()
    same(x.grad[:2, :3].flatten().tolist(), [0, 0, 0, *((1 / 1.75 / v) ** 2 for v in rows[1])])
    same(wisp.linalg.vector_norm(x.detach(), -2, dim=1)[:2].tolist(), [0, 1.3125**-0.5])


def test_frexp_at_the_ends_of_the_range():
    for dtype in (wisp.float16, wisp.bfloat16, wisp.float32, wisp.float64):
        info = wisp.finfo(dtype)
        x = wisp.tensor([info.max, -info.max, info.tiny, info.tiny / 4, info.tiny / 64, 0.0, -1.5], dtype=dtype)
        mantissa, exponent = wisp.frexp(x)
        expected = [math.frexp(v) for v in x.double().tolist()]
        assert list(zip(mantissa.double().tolist(), exponent.tolist())) == expected


def test_complex_exponentials_less_one():
    for dtype in (wisp.complex64, wisp.complex128):
        y = wisp.expm1(wisp.tensor([1000 + 0j, 1000 + 1j, 1000 + 2j, -1000 + 1j, 1e-9 + 1e-9j, 2 + 1.5707963j], dtype=dtype))
        same(y.real.tolist(), [INF, INF, -INF, -1, 1e-9, -1])
        same(y.imag.tolist()[1:], [INF, INF, 0, 1e-9, math.exp(2)])
