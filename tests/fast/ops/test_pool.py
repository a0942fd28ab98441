"""Pooling against its definition: values, indices, gradients, ties, NaN, errors."""

import itertools

import numpy as np
import pytest

import wisp
import wisp.nn.functional as F

MAX = [F.max_pool1d, F.max_pool2d, F.max_pool3d]
AVERAGE = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d]

# spatial size, kernel, stride, padding, dilation, ceil_mode
CASES = [
    ((28, 28), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((9, 7), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((9, 7), (2, 2), (2, 2), (0, 0), (1, 1), True),
    ((12, 37), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((11, 20), (3, 2), (1, 1), (1, 0), (1, 1), False),
    ((11, 20), (3, 2), (3, 4), (1, 1), (2, 1), True),
    ((40,), (3,), (2,), (1,), (1,), False),
    ((25,), (4,), (3,), (2,), (1,), True),
    ((6, 7, 8), (2, 3, 2), (2, 2, 1), (1, 1, 0), (1, 1, 1), False),
]


def windows(size, kernel, stride, padding, dilation, ceil_mode):
    """Per output position, the flat indices of the elements in its window, in order."""
    counts = []
    for n, k, s, p, l in zip(size, kernel, stride, padding, dilation):
        room = n + 2 * p - l * (k - 1) - 1
        count = (-(-room // s) if ceil_mode else room // s) + 1
        counts.append(count - (ceil_mode and (count - 1) * s >= n + p))
    result = []
    for position in itertools.product(*[range(c) for c in counts]):
        inside = []
        for tap in itertools.product(*[range(k) for k in kernel]):
            at = [o * s - p + t * l for o, s, p, t, l in zip(position, stride, padding, tap, dilation)]
            if all(0 <= a < n for a, n in zip(at, size)):
                inside.append(int(np.ravel_multi_index(at, size)))
        result.append(inside)
    return counts, result


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_max(case, dtype):
    size, kernel, stride, padding, dilation, ceil_mode = case
    random = np.random.default_rng(0)
    x = random.integers(-3, 4, (2, 3, *size)).astype(dtype)  # with ties
    x.flat[7] = np.nan
    counts, chosen = windows(*case)
    flat = x.reshape(2, 3, -1)
    pool = MAX[len(size) - 1]
    leaf = wisp.from_numpy(x).requires_grad_()
    values, indices = pool(leaf, kernel, stride, padding, dilation, ceil_mode, return_indices=True)
    assert values.shape == (2, 3, *counts)
    for n, c in itertools.product(range(2), range(3)):
        for o, inside in enumerate(chosen):
            elements = flat[n, c, inside]
            nans = np.flatnonzero(np.isnan(elements))
            at = inside[nans[-1] if len(nans) else int(np.argmax(elements))]
            assert indices.reshape(2, 3, -1)[n, c, o].item() == at
            np.testing.assert_equal(values.reshape(2, 3, -1)[n, c, o].item(), flat[n, c, at])
    g = random.standard_normal((2, 3, *counts)).astype(dtype)
    expected = np.zeros_like(flat)
    for n, c, o in itertools.product(range(2), range(3), range(len(chosen))):
        expected[n, c, indices.reshape(2, 3, -1)[n, c, o].item()] += g.reshape(2, 3, -1)[n, c, o]
    plain = wisp.from_numpy(x).requires_grad_()
    for leaf_, result in ((leaf, values), (plain, pool(plain, kernel, stride, padding, dilation, ceil_mode))):
        np.testing.assert_equal(result.detach().numpy(), values.detach().numpy())
        result.backward(wisp.from_numpy(g))
        np.testing.assert_allclose(leaf_.grad.numpy().reshape(flat.shape), expected, rtol=1e-5, atol=1e-6)
    with wisp.no_grad():
        result = pool(plain, kernel, stride, padding, dilation, ceil_mode)
        np.testing.assert_equal(result.numpy(), values.detach().numpy())


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("case", [c for c in CASES if set(c[4]) == {1}], ids=str)
def test_average(case, include):
    size, kernel, stride, padding, dilation, ceil_mode = case
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 2, *size))
    counts, chosen = windows(*case)
    leaf = wisp.from_numpy(x).requires_grad_()
    y = AVERAGE[len(size) - 1](leaf, kernel, stride, padding, ceil_mode, include)
    matrix = np.zeros((len(chosen), int(np.prod(size))))
    for (o, inside), position in zip(enumerate(chosen), itertools.product(*[range(c) for c in counts])):
        padded = np.prod([min(o_ * s - p + k, n + p) - (o_ * s - p) for o_, s, p, k, n in zip(position, stride, padding, kernel, size)])
        matrix[o, inside] = 1 / (padded if include else len(inside))
    np.testing.assert_allclose(y.detach().numpy().reshape(4, -1), x.reshape(4, -1) @ matrix.T, atol=1e-12)
    g = random.standard_normal(y.shape)
    y.backward(wisp.from_numpy(g))
    np.testing.assert_allclose(leaf.grad.numpy().reshape(4, -1), g.reshape(4, -1) @ matrix, atol=1e-12)


@pytest.mark.parametrize("size, out", [((7,), (3,)), ((9, 5), (4, 2)), ((8, 8), (1, 1)), ((4, 5, 6), (2, 5, 4))])
def test_adaptive(size, out):
    dims = len(size)
    x = np.random.default_rng(0).standard_normal((2, 2, *size))
    leaf = wisp.from_numpy(x).requires_grad_()
    mean = [F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d][dims - 1](leaf, out)
    largest, indices = [F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d][dims - 1](leaf, out, return_indices=True)
    for position in itertools.product(*[range(o) for o in out]):
        window = tuple(slice(p * n // o, -(-(p + 1) * n // o)) for p, n, o in zip(position, size, out))
        part = x[(slice(None), slice(None)) + window].reshape(2, 2, -1)
        at = (slice(None), slice(None)) + position
        np.testing.assert_allclose(mean.detach().numpy()[at], part.mean(-1), atol=1e-12)
        np.testing.assert_array_equal(largest.detach().numpy()[at], part.max(-1))
    picked = np.take_along_axis(x.reshape(2, 2, -1), indices.numpy().reshape(2, 2, -1), -1)
    np.testing.assert_array_equal(picked.reshape(largest.shape), largest.detach().numpy())
    (mean.sum() + largest.sum()).backward()
    assert abs(leaf.grad.sum().item() - 2 * mean.numel()) < 1e-9


def test_none_keeps_a_size():
    x = wisp.randn(1, 2, 5, 6)
    assert F.adaptive_avg_pool2d(x, (None, 3)).shape == (1, 2, 5, 3)


def test_unpool_undoes_max_pool():
    x = wisp.randn(2, 3, 8, 6, requires_grad=True)
    y, indices = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(y, indices, 2)
    assert back.shape == x.shape
    assert wisp.equal(back[back != 0], x[back != 0])
    back.sum().backward()
    assert wisp.equal(x.grad, (back != 0).float())
    with pytest.raises(RuntimeError, match="invalid max index"):
        F.max_unpool2d(y, indices + 1000, 2)


def test_lp_pool():
    x = wisp.rand(1, 2, 6)
    expected = (x.reshape(1, 2, 3, 2) ** 2).sum(-1).sqrt()
    assert wisp.allclose(F.lp_pool1d(x, 2, 2), expected)


def test_second_derivatives_exist():
    x = wisp.randn(1, 1, 6, 6, dtype=wisp.float64, requires_grad=True)
    pools = [
        (lambda t: F.avg_pool2d(t, 3, 2, 1), True),
        (lambda t: F.adaptive_avg_pool2d(t, 4), True),
        (lambda t: F.max_pool2d(t, 2), False),
    ]
    for pool, is_linear in pools:
        (grad,) = wisp.autograd.grad((pool(x) ** 2).sum(), x, create_graph=True)
        (second,) = wisp.autograd.grad(grad.sum(), x)
        if is_linear:
            (expected,) = wisp.autograd.grad((2 * pool(x) * pool(wisp.ones_like(x))).sum(), x)
        else:  # each window's largest element enters squared
            expected = 2 * (grad != 0).double()
        assert wisp.allclose(second, expected)
        (linear,) = wisp.autograd.grad(pool(x).sum(), x, create_graph=True)
        assert (wisp.autograd.grad(linear.sum(), x)[0] == 0).all()


def test_fractional():
    x = wisp.randn(2, 3, 10, 9)
    y, indices = F.fractional_max_pool2d(x, 2, output_size=(5, 4), return_indices=True)
    assert y.shape == indices.shape == (2, 3, 5, 4)
    assert wisp.equal(x.flatten(2).gather(2, indices.flatten(2)).reshape(y.shape), y)
    assert F.fractional_max_pool3d(wisp.randn(1, 1, 6, 6, 6), 2, output_ratio=0.5).shape == (1, 1, 3, 3, 3)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: F.max_pool2d(x, (2, 2, 2)), "kernel_size must either be a single int, or a tuple of two ints"),
        (lambda x: F.max_pool2d(x, 2, 0), "stride should not be zero"),
        (lambda x: F.max_pool2d(x, 2, 2, 2), "pad should be at most half of effective kernel size, but got pad=2"),
        (lambda x: F.avg_pool2d(x, 20), r"Given input size: \(3x8x8\). Calculated output size: \(3x0x0\). Output size is"),
        (lambda x: F.max_pool2d(x[0, 0], 2), "Expected 3D or 4D"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=0), "divisor must be not zero"),
        (lambda x: F.adaptive_avg_pool2d(x, (1, 2, 3)), "output_size must be 2"),
    ],
)
def test_errors(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(wisp.zeros(1, 3, 8, 8))


def test_pooling_to_nothing():
    x = wisp.rand(2, 3, 8, 8, requires_grad=True)
    assert F.fractional_max_pool2d(x, 2, output_size=(0, 1)).shape == (2, 3, 0, 1)
    assert F.max_unpool2d(wisp.ones(1, 1, 1, 1), wisp.zeros(1, 1, 1, 1, dtype=wisp.int64), 1, 5, output_size=[0, 1]).shape == (1, 1, 0, 1)
    for pool in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d):
        with pytest.raises(RuntimeError, match="Expected grad_output to have non-zero size"):
            pool(x, 0).sum().backward()
    with pytest.raises(RuntimeError, match="kernel size should be greater than zero"):
        F.max_pool2d(x, -1)


@pytest.mark.parametrize("padding", [0, 5 * 10**8])
def test_windows_much_longer_than_the_input(padding):
    for dims in (1, 2):
        x = wisp.arange(4.0).reshape(1, 1, *[1] * (dims - 1), 4).requires_grad_()
        pool = getattr(wisp.nn.functional, f"avg_pool{dims}d")
        sizes = {"kernel_size": [1] * (dims - 1) + [10**9], "padding": [0] * (dims - 1) + [padding], "ceil_mode": True}
        y = pool(x, **sizes, count_include_pad=False)
        assert y.flatten()[0].item() == 1.5
        (slope,) = wisp.autograd.grad(y.flatten()[0], x)
        assert slope.flatten().tolist() == [0.25] * 4


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_max_pools_whose_windows_are_mostly_padding(dims):
    x = wisp.arange(4.0).reshape(*[1] * (dims + 1), 4).requires_grad_()
    kernel, padding = [1] * (dims - 1) + [10**9], [0] * (dims - 1) + [5 * 10**8]
    values, indices = getattr(F, f"max_pool{dims}d")(x, kernel, 1, padding, return_indices=True)
    assert values.flatten().tolist() == [3] * 5 and indices.flatten().tolist() == [3] * 5
    values.sum().backward()
    assert x.grad.flatten().tolist() == [0, 0, 0, 5]


@pytest.mark.parametrize("return_indices", [False, True])
def test_windows_without_an_element_take_no_gradient(return_indices):
    # Dilation passes over the whole input: the places of the first window are -1 and 1, where there is one element.
    for x, arguments, expected in (
        (wisp.ones(2, 1), (2, 3, 1, 2, True), [[0], [0]]),
        (wisp.ones(2, 1, 1, 2), ((2, 1, 2), (1, 4, 2), (1, 0, 1), (1, 2, 3), True), [[[[0, 0]]], [[[0, 0]]]]),
        (wisp.ones(1, 3, 2), ((3, 2), (2, 1), (1, 1), (2, 3), True), [[[0, 0], [0, 0], [0, 0]]]),
    ):
        x.requires_grad_()
        found = getattr(F, f"max_pool{x.dim() - 1}d")(x, *arguments, return_indices)
        values = found[0] if return_indices else found
        assert values.isneginf().any()
        (gradient,) = wisp.autograd.grad(values.sum(), x, create_graph=True)
        assert gradient.tolist() == expected
        wisp.autograd.grad(gradient.sum(), x, allow_unused=True)
