"""Tests made from the pointwise table: every row, in every dtype and layout, in place, into out=, derived twice.

A new row of csrc/ops/table needs nothing here, unless its arguments or the numbers it takes are special.
"""

import math

import numpy as np
import pytest
from layouts import LAYOUTS, expanded

import wisp
from wisp import special
from wisp.autograd import gradcheck, gradgradcheck
from wisp.nn import functional as F

TABLE = {row[0]: row for row in wisp._core._pointwise_table()}

# Rows that are not called by their name alone.
CALLS = {
    "add_scaled": lambda a, b: wisp.add(a, b, alpha=3),
    "div_floor": lambda a, b: wisp.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: wisp.div(a, b, rounding_mode="trunc"),
    "lerp_number": lambda a, b: wisp.lerp(a, b, 0.3),
    "squared_error": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "absolute_error": lambda a, b: F.l1_loss(a, b, reduction="none"),
    "smooth_error": lambda a, b: F.smooth_l1_loss(a, b, reduction="none", beta=0.7),
    "huber_error": lambda a, b: F.huber_loss(a, b, reduction="none", delta=0.7),
    "logits_error": lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction="none"),
    "addcmul": lambda a, b, c: wisp.addcmul(a, b, c, value=2),
    "addcdiv": lambda a, b, c: wisp.addcdiv(a, b, c, value=2),
    "clamp": lambda x: wisp.clamp(x, -1, 1),
    "pow_number": lambda x: wisp.pow(x, 3),
    "elu": lambda x: F.elu(x, 0.7),
    "celu": lambda x: F.celu(x, 0.7),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": lambda x: F.softplus(x, 1.5, 2.0),
    "hardtanh": lambda x: F.hardtanh(x, -1, 1),
    "hardshrink": lambda x: F.hardshrink(x, 0.4),
    "softshrink": lambda x: F.softshrink(x, 0.4),
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "nan_to_num": lambda x: wisp.nan_to_num(x),
    "logit_clamped": lambda x: wisp.logit(x, 0.1),
    "logit": lambda x: wisp.logit(x),
    "polygamma": lambda x: wisp.polygamma(2, x),
    "round_decimals": lambda x: wisp.round(x, decimals=1),
}

# Where a row is defined, and smooth enough for difference quotients.
DOMAINS = {
    name: domain
    for domain, names in (
        ((0.2, 3), "log log2 log10 sqrt rsqrt entr"),
        ((-0.7, 3), "log1p"),
        ((0.3, 3), "reciprocal i1e i1"),
        ((-0.8, 0.8), "asin acos atanh erfinv"),
        ((1.3, 3), "acosh"),
        ((-1.2, 1.2), "tan"),
        ((0.3, 4), "lgamma digamma"),
        ((0.4, 4), "polygamma bessel_j0 bessel_j1"),
        ((0.1, 0.9), "logit ndtri"),
        ((0.15, 0.85), "logit_clamped"),
        ((-0.9, 0.9), "hardtanh clamp"),
        ((0.2, 2), "hypot copysign sinc abs sgn i0e"),
        ((0.3, 2), "pow xlogy xlog1py ldexp atan2"),
        ((0.4, 3), "igamma igammac"),
        ((1.6, 4), "zeta"),
        ((0.4, 2), "div div_floor div_trunc fmod remainder addcdiv"),
        ((1, 9), "gcd lcm"),
        ((0, 4), "bitwise_left_shift bitwise_right_shift"),
        ((0.5, 5), "bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1"),
        ((0.6, 2), "threshold"),
        ((0.5, 2), "hardshrink softshrink"),
        ((0.1, 2), "relu leaky_relu elu celu selu softsign"),
        ((0.2, 5), "relu6"),
        ((-1, 2), "erfcx logaddexp2"),
        ((-2, 2), "hardsigmoid hardswish"),
        ((-1, 1.2), "softplus"),
    )
    for name in names.split()
}

_math = np.vectorize
REFERENCES = {
    **{
        name: getattr(np, name)
        for name in """
            abs sign square sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh floor ceil trunc
            deg2rad rad2deg sinc i0 isnan isinf isfinite signbit logical_not add fmod remainder maximum minimum fmax
            fmin hypot copysign nextafter logaddexp logaddexp2 heaviside gcd lcm logical_and logical_or logical_xor
            bitwise_and bitwise_or bitwise_xor
        """.split()
        if hasattr(np, name)
    },
    "neg": np.negative,
    "mul": np.multiply,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "round": np.round,
    "frac": lambda x: x - np.trunc(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "bitwise_not": np.invert,
    "sub": np.subtract,
    "erf": _math(math.erf),
    "erfc": _math(math.erfc),
    "lgamma": _math(math.lgamma),
    "atan2": np.arctan2,
    "pow": np.power,
    "div": np.true_divide,
    "div_floor": np.floor_divide,
    "div_trunc": lambda a, b: np.trunc(a / b),
    "add_scaled": lambda a, b: a + 3 * b,
    "lerp_number": lambda a, b: a + 0.3 * (b - a),
    "squared_error": lambda a, b: (a - b) ** 2,
    "logits_error": lambda a, b: (1 - b) * a + np.log1p(np.exp(-a)),
    "absolute_error": lambda a, b: np.abs(a - b),
    "addcmul": lambda a, b, c: a + 2 * b * c,
    "addcdiv": lambda a, b, c: a + 2 * b / c,
    "lerp": lambda a, b, c: a + c * (b - a),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "xlogy": lambda a, b: a * np.log(b),
    "ldexp": lambda a, b: a * 2.0**b,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "clamp": lambda x: np.clip(x, -1, 1),
    "pow_number": lambda x: x**3,
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
    "elu": lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "softplus": lambda x: np.log1p(np.exp(1.5 * x)) / 1.5,
    "logsigmoid": lambda x: -np.log1p(np.exp(-x)),
    "relu6": lambda x: np.clip(x, 0, 6),
    "hardtanh": lambda x: np.clip(x, -1, 1),
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "tanhshrink": lambda x: x - np.tanh(x),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "logit": lambda x: np.log(x / (1 - x)),
    "sgn": np.sign,
    "isposinf": np.isposinf,
    "isneginf": np.isneginf,
}
# What NumPy has for complex numbers too.
COMPLEX = set(
    """
    square sqrt exp expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh neg
    reciprocal rsqrt sigmoid add sub mul div add_scaled lerp_number addcmul addcdiv lerp eq ne logical_and logical_or
    logical_xor logical_not isnan isinf isfinite pow pow_number silu sinc abs squared_error
""".split()
)
# What jumps where rounding moved the input.
JUMPS = set("nextafter div_floor div_trunc round_decimals fmod remainder floor ceil trunc round".split())
FLOATS = {wisp.float32: 2e-6, wisp.float64: 1e-13, wisp.float16: 2e-3, wisp.bfloat16: 2e-2}
INTEGERS = (wisp.uint8, wisp.int8, wisp.int16, wisp.int32, wisp.int64)


def caller(name):
    if name in CALLS:
        return CALLS[name]
    for space in (wisp, special, F):
        if hasattr(space, name):
            return getattr(space, name)
    return None


def sample(name, i=0, shape=(2, 3)):
    low, high = DOMAINS.get(name, (-2, 2))
    n = int(np.prod(shape))
    points = (np.arange(n) * (0.6180339887 + 0.12 * i) + 0.11 + 0.17 * i) % 1.0  # spread out, never equal between operands
    return (low + (high - low) * points).reshape(shape)


def samples(name, shape=(2, 3)):
    return [sample(name, i, shape) for i in range(TABLE[name][1])]


def test_every_row_can_be_called():
    assert len(TABLE) > 120
    assert [name for name in TABLE if caller(name) is None] == []


@pytest.mark.parametrize("name", [n for n, row in TABLE.items() if "F" in row[2]])
def test_floating_values(name):
    _, arity, types, result, _ = TABLE[name]
    f, arrays = caller(name), samples(name)
    exact = f(*map(wisp.from_numpy, arrays))
    if name in REFERENCES:
        np.testing.assert_allclose(exact.numpy(), REFERENCES[name](*arrays), 1e-12, 1e-13)
    for dtype, tolerance in FLOATS.items():
        rounded = [wisp.from_numpy(a).to(dtype) for a in arrays]
        y = f(*rounded)
        assert y.dtype is (wisp.bool if result == "boolean" else dtype) and y.shape == (2, 3)
        if name in JUMPS:
            continue
        if result != "boolean":
            again = f(*[r.double() for r in rounded])
            scale = max(1.0, again.abs().max().item())
            assert (y.double() - again).abs().max() <= tolerance * scale * 4, (dtype, y, again)


@pytest.mark.parametrize("name", [n for n, row in TABLE.items() if "I" in row[2]])
def test_integers_and_bools(name):
    _, arity, types, result, _ = TABLE[name]
    f = caller(name)
    values = [np.array([[1, 2, 3], [4, 5, 2]]), np.array([[2, 1, 2], [1, 3, 1]]), np.array([[1, 1, 2], [3, 1, 1]])][:arity]
    if name == "lerp_number":
        return
    for dtype in (*INTEGERS, *((wisp.bool,) if "B" in types else ())):
        operands = [wisp.from_numpy(v).to(dtype) for v in values]
        y = f(*operands)
        expected = {"same": dtype, "real": dtype, "promote": wisp.float32, "boolean": wisp.bool}[result]
        if dtype is wisp.bool and result == "same":
            expected = None  # add(alpha), clamp, ... promote by their numbers
        assert expected is None or y.dtype is expected, (dtype, y.dtype)
        if name in REFERENCES and dtype is not wisp.bool and name not in ("add_scaled",):
            with np.errstate(all="ignore"):
                right = REFERENCES[name](*values)
            if result == "same":
                assert np.array_equal(
                    y.numpy().astype(np.int64), np.asarray(right).astype(np.int64).astype(str(dtype)[6:]).astype(np.int64)
                ), dtype
            else:
                np.testing.assert_allclose(y.numpy().astype(np.float64), np.asarray(right, np.float64), 1e-5, 1e-6)
    if "B" not in types and name not in ("relu", "square", "pow_number", "pow"):
        with pytest.raises(RuntimeError):
            f(*[wisp.ones(2, dtype=wisp.bool) for _ in range(arity)])


@pytest.mark.parametrize("name", [n for n, row in TABLE.items() if "C" in row[2]])
def test_complex_values(name):
    _, arity, types, result, gradients = TABLE[name]
    f = caller(name)
    arrays = [sample(name, i) + 1j * sample(name, i + 3)[::-1] for i in range(arity)]
    for kind, tolerance in (("complex128", 1e-11), ("complex64", 2e-5)):
        operands = [wisp.from_numpy(a.astype(kind)) for a in arrays]
        y = f(*operands)
        expected = {"same": kind, "promote": kind, "boolean": "bool", "real": "float64" if kind == "complex128" else "float32"}[result]
        assert str(y.dtype) == "torch." + expected
        if name in COMPLEX and name in REFERENCES:
            np.testing.assert_allclose(y.numpy(), REFERENCES[name](*[a.astype(kind) for a in arrays]), tolerance, tolerance)
    if any(gradients) and result != "boolean":
        inputs = [wisp.from_numpy(a[:1]).requires_grad_(g) for a, g in zip(arrays, gradients)]
        assert gradcheck(f, inputs)
        assert gradgradcheck(f, inputs)


@pytest.mark.parametrize("name", TABLE)
def test_layouts(name):
    """The same numbers in any layout give the same results, also empty, 0-dim, broadcast and long ones."""
    _, arity, types, result, _ = TABLE[name]
    f = caller(name)
    dtype = np.float64 if "F" in types else np.int64
    arrays = [a.astype(dtype) for a in samples(name, (3, 4, 5))]
    plain = f(*map(LAYOUTS["contiguous"], arrays))
    for layout, make in LAYOUTS.items():
        y = f(*map(make, arrays))
        assert wisp.equal(y, plain), layout
    mixed = f(*[make(a) for make, a in zip((LAYOUTS["sliced"], LAYOUTS["transposed"], LAYOUTS["contiguous"]), arrays)])
    assert wisp.equal(mixed, plain)
    for shape in ((), (0,), (2, 0, 3), (1,), (1, 1, 1)):
        parts = [a.ravel()[: max(1, int(np.prod(shape)))] for a in arrays]
        y = f(*[wisp.from_numpy(p.copy())[: int(np.prod(shape))].reshape(shape) for p in parts])
        assert y.shape == shape
        if y.numel():
            assert wisp.equal(y.reshape(-1), f(*map(wisp.from_numpy, parts)).reshape(-1))
    wide = [wisp.from_numpy(a[:1, :, :1].copy()).expand(3, 4, 5) for a in arrays]
    assert wisp.equal(f(*wide), f(*[w.contiguous() for w in wide]))
    if arity > 1:
        column, row = wisp.from_numpy(arrays[0][:, :1, :1].copy()), wisp.from_numpy(arrays[1][:1].copy())
        rest = [wisp.from_numpy(a) for a in arrays[2:]]
        if "error" not in name:
            assert wisp.equal(f(column, row, *rest), f(column.expand(3, 4, 5).contiguous(), row.expand(3, 4, 5).contiguous(), *rest))
    long = [np.resize(a.ravel(), 5003) for a in arrays]
    y = f(*map(wisp.from_numpy, long))
    assert wisp.equal(y[:60], plain.reshape(-1)) and wisp.equal(y[4980:4983], plain.reshape(-1)[:3])


@pytest.mark.parametrize("name", [n for n in TABLE if n not in CALLS and hasattr(wisp.Tensor, n + "_")])
def test_in_place_and_out(name):
    _, arity, types, result, _ = TABLE[name]
    f = caller(name)
    dtype = np.float64 if "F" in types else np.int64
    arrays = [a.astype(dtype) for a in samples(name)]
    operands = [wisp.from_numpy(a) for a in arrays]
    expected = f(*operands)
    for make in LAYOUTS.values():
        x = make(arrays[0])
        version = x._version
        assert getattr(x, name + "_")(*operands[1:]) is x and x._version == version + 1
        assert wisp.equal(x, expected.to(x.dtype)), name
    for out in (
        wisp.empty(2, 3, dtype=expected.dtype),
        wisp.empty(0, dtype=expected.dtype),
        wisp.empty(3, 2, dtype=expected.dtype).t(),
        wisp.empty(5, 7, dtype=expected.dtype)[1:5:2, 1:6:2],
    ):
        assert f(*operands, out=out) is out and wisp.equal(out, expected)
    if expected.is_floating_point():
        with pytest.raises(RuntimeError, match="can't be cast|expected scalar_type"):
            f(*operands, out=wisp.empty(2, 3, dtype=wisp.int64))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        f(operands[0].to(wisp.float64).requires_grad_(), *operands[1:], out=wisp.empty(2, 3, dtype=expected.dtype))
    assert hasattr(wisp.Tensor, name) and wisp.equal(getattr(operands[0], name)(*operands[1:]), expected)


DERIVED = [n for n, row in TABLE.items() if any(row[4]) and "F" in row[2]]


@pytest.mark.parametrize(
    "name, layout",
    [
        (name, layout)
        for name in DERIVED
        for layout in ("contiguous", "transposed", "sliced", "expanded")
        if layout != "expanded" or TABLE[name][4][0]
    ],
)
def test_derivatives(name, layout):
    _, arity, types, result, gradients = TABLE[name]
    f = caller(name)
    arrays = samples(name, (2, 2))
    if layout == "expanded":
        inputs = [wisp.from_numpy(a) for a in arrays]
        g, first = expanded(f, inputs[0], 0, 2)
        inputs = [first] + [x.requires_grad_(d) for x, d in zip(inputs[1:], gradients[1:])]
    else:
        g = f
        inputs = [LAYOUTS[layout](a).requires_grad_(d) for a, d in zip(arrays, gradients)]
    assert gradcheck(g, inputs)
    assert gradgradcheck(g, inputs, gen_non_contig_grad_outputs=layout == "sliced")


@pytest.mark.parametrize("name", DERIVED)
def test_fused_backward_is_the_formula(name):
    """A backward kernel and the same row on tensors (create_graph) agree."""
    _, arity, types, result, gradients = TABLE[name]
    f = caller(name)
    for dtype, tolerance in ((wisp.float64, 1e-11), (wisp.float32, 1e-4)):
        inputs = [wisp.from_numpy(a).to(dtype).requires_grad_(d) for a, d in zip(samples(name, (7, 9)), gradients)]
        wanted = [x for x in inputs if x.requires_grad]
        weight = wisp.from_numpy(sample("weight", 4, (7, 9))).to(dtype)
        plain = wisp.autograd.grad(f(*inputs), wanted, weight)
        recorded = wisp.autograd.grad(f(*inputs), wanted, weight, create_graph=True)
        for a, b in zip(plain, recorded):
            assert wisp.allclose(a, b, tolerance, tolerance), (a - b).abs().max()


def test_a_derivative_that_does_not_exist_is_an_error():
    a, b = wisp.rand(3, requires_grad=True), wisp.rand(3, requires_grad=True)
    y = wisp.igamma(a, b).sum()
    with pytest.raises(NotImplementedError, match="the derivative for 'igamma: input' is not implemented."):
        y.backward()
    wisp.igamma(a.detach(), b).sum().backward()


@pytest.mark.parametrize("dtype", [wisp.float16, wisp.bfloat16])
def test_the_next_number_of_16_bits(dtype):
    codes = wisp.arange(-(2**15), 2**15).to(wisp.int16)
    values = codes.view(dtype)
    numbers = values[~values.isnan()]
    in_order = numbers[numbers.double().sort(stable=True).indices]
    in_order = in_order[in_order.double().diff(prepend=wisp.tensor([-math.inf], dtype=wisp.float64)) != 0]  # one of the two zeros
    assert len(in_order) == len(numbers) - 1
    up = wisp.nextafter(in_order, wisp.full_like(in_order, math.inf))
    assert wisp.equal(up[:-1], in_order[1:]) and up[-1] == math.inf
    down = wisp.nextafter(in_order, wisp.full_like(in_order, -math.inf))
    assert wisp.equal(down[1:], in_order[:-1]) and down[0] == -math.inf
    assert wisp.equal(wisp.nextafter(in_order, in_order), in_order)
    assert wisp.nextafter(values, wisp.full_like(values, math.nan)).isnan().all()
    x = wisp.ones(3, dtype=dtype, requires_grad=True)
    y = wisp.nextafter(x, wisp.tensor(2.0))  # a number without dimensions has no say in the dtype
    y.sum().backward()
    assert y.dtype is dtype and (y - 1 == wisp.finfo(dtype).eps).all() and x.grad.tolist() == [1, 1, 1]
    assert wisp.equal(wisp.ones(3, dtype=dtype).nextafter_(wisp.full((3,), 2.0, dtype=dtype)), y)
    assert wisp.equal(wisp.nextafter(wisp.ones(3, dtype=dtype), wisp.tensor(1 + 1e-6)), wisp.ones(3, dtype=dtype))
