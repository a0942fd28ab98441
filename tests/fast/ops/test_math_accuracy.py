"""Elementary functions of float32 against float64: a few units in the last place, and the special values right."""

import math

import numpy as np
import pytest

import wisp

# name, range, units in the last place
FUNCTIONS = [
    ("exp", -103, 88.7, 1.2),
    ("exp2", -149, 127.9, 1.2),
    ("expm1", -20, 88, 2),
    ("log", 1e-40, 1e38, 1.2),
    ("log2", 1e-40, 1e38, 2.5),
    ("log10", 1e-40, 1e38, 2.5),
    ("log1p", -0.999, 1e30, 2),
    ("sin", -1e5, 1e5, 2),
    ("cos", -1e5, 1e5, 2),
    ("tan", -1e5, 1e5, 4),
    ("asin", -1, 1, 3),
    ("acos", -1, 1, 2),
    ("atan", -50, 50, 2.5),
    ("sinh", -89, 89, 3),
    ("cosh", -89, 89, 3),
    ("tanh", -12, 12, 3),
    ("asinh", -1e10, 1e10, 2.5),
    ("acosh", 1, 1e10, 2.5),
    ("atanh", -0.9999, 0.9999, 3),
]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 1e-39, 3e38, -3e38, 89, -104, 1e-8], np.float32)


def points(low, high):
    random = np.random.default_rng(0)
    even = random.uniform(low, high, 20_000)
    largest = math.log(max(abs(low), abs(high)))
    many = np.exp(random.uniform(math.log(1e-40), largest, 20_000)) * random.choice([-1, 1], 20_000)
    return np.concatenate([even, many[(many >= low) & (many <= high)]]).astype(np.float32)


NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}


@pytest.mark.parametrize("name, low, high, units", FUNCTIONS)
def test_units_in_the_last_place(name, low, high, units):
    x = points(low, high)
    exact = getattr(np, NUMPY.get(name, name))(x.astype(np.float64))
    kept = np.isfinite(exact.astype(np.float32))
    ours = getattr(wisp, name)(wisp.from_numpy(x)).numpy()
    error = np.abs(ours[kept].astype(np.float64) - exact[kept]) / np.spacing(np.abs(exact[kept].astype(np.float32)))
    assert error.max() <= units, f"{error.max():.2f} at {x[kept][error.argmax()]!r}"


@pytest.mark.parametrize("name", [f[0] for f in FUNCTIONS if f[0] not in ("sin", "cos", "tan")])
def test_special_values(name):
    with np.errstate(all="ignore"):
        exact = getattr(np, NUMPY.get(name, name))(SPECIAL.astype(np.float64)).astype(np.float32)
    ours = getattr(wisp, name)(wisp.from_numpy(SPECIAL)).numpy()
    np.testing.assert_allclose(ours, exact, rtol=1e-6, atol=1e-44)
    zero = exact == 0
    assert (np.signbit(ours[zero]) == np.signbit(exact[zero])).all()


@pytest.mark.parametrize("name, function, low, high", [("erf", math.erf, -5, 5), ("erfc", math.erfc, -5, 10)])
def test_error_functions(name, function, low, high):
    x = points(low, high)[:20_000]
    exact = np.array([function(float(v)) for v in x])
    ours = getattr(wisp, name)(wisp.from_numpy(x)).numpy()
    error = np.abs(ours - exact) / np.spacing(np.abs(exact.astype(np.float32)))
    assert error.max() <= 4


# name, range, units in the last place; the functions of doubles are computed in other ways
SPECIAL_FUNCTIONS = [
    ("erfinv", -1, 1, 4),
    ("special.ndtri", 0, 1, 4),
    ("lgamma", -30, 30, 2),
    ("digamma", -30, 30, 1),
    ("i0", -80, 80, 1),
    ("special.i1", -80, 80, 1),
    ("special.bessel_j0", -4, 4, 1),
    ("logit", 1e-6, 0.4, 4),
]


@pytest.mark.parametrize("name, low, high, units", SPECIAL_FUNCTIONS)
def test_special_functions_as_of_doubles(name, low, high, units):
    f = wisp.special if name.startswith("special.") else wisp
    f = getattr(f, name.removeprefix("special."))
    x = points(low, high)
    x = np.concatenate([x, [0.0, -0.0, 1, 2, -1, np.inf, -np.inf, np.nan, 0.5, 1 - 2.0**-24, 1e-45]]).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = f(wisp.from_numpy(x.astype(np.float64))).numpy()
        rounded = exact.astype(np.float32)
        ours = f(wisp.from_numpy(x)).numpy()
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(ours[~finite], rounded[~finite])
        error = np.abs(ours[finite] - exact[finite]) / np.maximum(np.spacing(np.abs(rounded[finite])), 1e-45)
    near_zero = np.abs(exact[finite]) < 1e-9  # there doubles have lost digits, too
    assert error[~near_zero].max() <= units, f"{error.max():.2f} at {x[finite][error.argmax()]!r}"


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "logit", "sin", "tan", "special.bessel_j0", "special.i1", "lgamma"])
def test_an_element_does_not_depend_on_its_neighbours(name):
    f = wisp.special if name.startswith("special.") else wisp
    f = getattr(f, name.removeprefix("special."))
    x = wisp.from_numpy(np.random.default_rng(2).uniform(0.01, 0.99, 5000).astype(np.float32))
    alone = f(x)
    beside = x.clone()
    beside[::7] = wisp.tensor([0.0, 1e30, -5.0, float("inf"), float("nan"), 1e-42, 50.0]).repeat(103)[:715]
    others = wisp.arange(5000) % 7 != 0
    assert wisp.equal(f(beside)[others], alone[others])


def test_large_angles():
    x = np.float32(2) ** np.arange(10, 60, 0.01, dtype=np.float32)
    for name in ("sin", "cos"):
        np.testing.assert_allclose(getattr(wisp, name)(wisp.from_numpy(x)).numpy(), getattr(np, name)(x.astype(np.float64)), atol=2e-7)


def test_remainders_are_exact():
    random = np.random.default_rng(3)
    a = np.concatenate([random.normal(size=3000) * 100, random.integers(-50, 50, 3000), 10.0 ** random.uniform(-30, 30, 3000)])
    b = np.concatenate(
        [random.normal(size=3000), random.integers(1, 9, 3000) * random.choice([-1, 1], 3000), 10.0 ** random.uniform(-10, 9, 3000)]
    )
    a, b = a.astype(np.float32), b.astype(np.float32)
    x, y = wisp.from_numpy(a), wisp.from_numpy(b)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(wisp.fmod(x, y).numpy(), np.fmod(a, b))
        np.testing.assert_array_equal(wisp.remainder(x, y).numpy(), np.remainder(a, b))
        np.testing.assert_array_equal(wisp.floor_divide(x, y).numpy(), np.floor_divide(a, b))
        np.testing.assert_array_equal(wisp.fmod(x, 0.75).numpy(), np.fmod(a, np.float32(0.75)))
        np.testing.assert_array_equal(wisp.remainder(7.5, y).numpy(), np.remainder(np.float32(7.5), b))
    odd = wisp.tensor([1.0, float("inf"), float("nan"), -3.0, 5.0])
    assert wisp.fmod(odd, wisp.tensor([0.0, 2.0, 2.0, float("inf"), float("nan")])).isnan().tolist() == [True, True, True, False, True]


def test_powers():
    random = np.random.default_rng(1)
    x, y = random.uniform(0, 9, 20_000).astype(np.float32), random.uniform(-30, 30, 20_000).astype(np.float32)
    exact = x.astype(np.float64) ** y
    kept = (exact < 3e38) & (exact > 1e-37)
    ours = wisp.pow(wisp.from_numpy(x), wisp.from_numpy(y)).numpy()
    error = np.abs(ours[kept] - exact[kept]) / np.spacing(exact[kept].astype(np.float32))
    assert error.max() <= 1
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, math.inf, -math.inf, math.nan, 3.0, -3.0]
    a, b = (np.array(v, np.float32).ravel() for v in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(wisp.pow(wisp.from_numpy(a), wisp.from_numpy(b)).numpy(), np.power(a, b), rtol=3e-7)
        angles = wisp.atan2(wisp.from_numpy(a), wisp.from_numpy(b)).numpy()
        np.testing.assert_allclose(angles, np.arctan2(a, b), rtol=1e-6)


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
def test_small_whole_powers_are_products(dtype):
    x = wisp.randn(1000, dtype=dtype).requires_grad_()
    for e, power, slope in [(2, x * x, 2 * x), (3, x * x * x, 3 * (x * x)), (4, None, 4 * (x * x * x)), (1, x, wisp.ones_like(x))]:
        y = x**e
        assert power is None or (y == power).all()
        assert (wisp.autograd.grad(y.sum(), x)[0] == slope).all()
    for e in (2, 3):
        assert wisp.autograd.gradgradcheck(lambda x, e=e: x**e, wisp.randn(5, dtype=wisp.float64).requires_grad_())
