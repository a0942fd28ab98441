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
