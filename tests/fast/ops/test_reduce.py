"""Reductions and scans against NumPy in double precision: layouts, sets of dims, NaN, empty, derivatives, threads."""

import itertools

import numpy as np
import pytest

import wisp
from wisp.autograd import gradcheck, gradgradcheck

LAYOUTS = ("contiguous", "transposed", "strided", "expanded", "narrow")
SHAPES = ((), (1,), (7,), (130,), (3, 5), (40, 17), (5, 1, 9), (2, 3, 4, 5), (300, 70), (4000, 3), (3, 4000))


def make(shape, layout, dtype=wisp.float64):
    if not shape or layout == "contiguous":
        return wisp.randn(shape, dtype=dtype)
    if layout == "transposed":
        return wisp.randn(shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1])
    if layout == "strided":
        return wisp.randn([2 * n for n in shape], dtype=dtype)[tuple(slice(None, None, 2) for _ in shape)]
    if layout == "expanded":
        return wisp.randn([1, *shape[1:]], dtype=dtype).expand(shape)
    return wisp.randn([n + 1 for n in shape], dtype=dtype)[tuple(slice(1, None) for _ in shape)]


def sets_of_dims(n):
    return [None] + [d for k in range(1, n + 1) for d in itertools.combinations(range(n), k)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
def test_sums_means_norms_and_spreads(layout, dtype):
    wisp.manual_seed(0)
    tolerance = 1e-5 if dtype == wisp.float32 else 1e-12
    for shape in SHAPES:
        x = make(shape, layout, dtype)
        a = x.double().numpy()
        for dims, keep in itertools.product(sets_of_dims(len(shape)), (False, True)):

            def check(got, expected):
                assert got.dtype == dtype
                np.testing.assert_allclose(got.double().numpy(), expected, rtol=tolerance, atol=tolerance * 100)

            check(x.sum(dims, keep), a.sum(dims, keepdims=keep))
            check(x.mean(dims, keep), a.mean(dims, keepdims=keep))
            check(x.var(dims, correction=0, keepdim=keep), a.var(dims, keepdims=keep))
            check(wisp.linalg.vector_norm(x, 2, dims, keep), np.sqrt((a * a).sum(dims, keepdims=keep)))
            check(wisp.linalg.vector_norm(x, 1, dims, keep), np.abs(a).sum(dims, keepdims=keep))
            check(wisp.linalg.vector_norm(x, float("inf"), dims, keep), np.abs(a).max(dims, keepdims=keep))
            check(x.amax(() if dims is None else dims, keep), a.max(dims, keepdims=keep))
            check(x.logsumexp(tuple(range(len(shape))) if dims is None else dims, keep), np.log(np.exp(a).sum(dims, keepdims=keep)))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_extremes_with_positions(layout):
    wisp.manual_seed(1)
    for shape in SHAPES[1:]:
        x = (make(shape, layout, wisp.float32) * 3).round()  # many equal elements: the first counts
        a = x.numpy()
        for d in range(len(shape)):
            for got, values, positions in ((x.max(d), a.max(d), a.argmax(d)), (x.min(d), a.min(d), a.argmin(d))):
                assert np.array_equal(got.values.numpy(), values) and np.array_equal(got.indices.numpy(), positions)
        assert x.argmax().item() == a.argmax() and x.argmin().item() == a.argmin()


@pytest.mark.parametrize("dtype", [wisp.bool, wisp.uint8, wisp.int8, wisp.int16, wisp.int32, wisp.int64])
def test_integers(dtype):
    wisp.manual_seed(2)
    for shape in SHAPES:
        x = wisp.randint(0, 2 if dtype == wisp.bool else 100, shape).to(dtype)
        a = x.numpy().astype("int64")
        for dims in sets_of_dims(len(shape)):
            assert np.array_equal(x.sum(dims).numpy(), a.sum(dims)) and x.sum(dims).dtype == wisp.int64
            assert np.array_equal(x.any(dims).numpy().astype(bool), (a != 0).any(dims))
            assert np.array_equal(x.all(dims).numpy().astype(bool), (a != 0).all(dims))
            assert np.array_equal(wisp.count_nonzero(x, dims).numpy(), (a != 0).sum(dims))
            assert np.array_equal(x.amax(() if dims is None else dims).numpy(), a.max(dims))
        for d in range(len(shape)):
            assert np.array_equal(x.prod(d).numpy(), a.prod(d))


def test_a_count_of_bools_does_not_wrap():
    for shape, dim in (((5000,), 0), ((5000, 3), 0), ((3, 5000), 1), ((700, 600), 0)):
        assert (wisp.ones(shape, dtype=wisp.bool).sum(dim) == shape[dim]).all()


def test_nan_wins_and_is_found():
    for n in (1, 5, 100, 5000):
        for at in (0, n // 2, n - 1):
            x = wisp.zeros(n)
            x[at] = float("nan")
            assert x.max().isnan() and x.min().isnan() and x.argmax().item() == at and x.argmin().item() == at
            column = x.reshape(n, 1).expand(n, 20)
            assert column.max(0).values.isnan().all() and (column.argmax(0) == at).all()
            assert x.nansum().item() == 0


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64, wisp.bfloat16])
@pytest.mark.parametrize("n", [1, 15, 63, 64, 65, 200, 333, 5000])
def test_extremes_of_rows_with_any_numbers(dtype, n):
    rng = np.random.default_rng(n)
    for first, second in itertools.product((1.5, np.nan, np.inf, -np.inf), repeat=2):
        a = rng.standard_normal((3, n)).round(2)
        a[1, rng.integers(n)] = first
        a[1, rng.integers(n)] = second
        a[2] = first
        x = wisp.from_numpy(a).to(dtype)
        a = x.double().numpy()
        np.testing.assert_array_equal(x.amax(1).double().numpy(), a.max(1))
        np.testing.assert_array_equal(x.amin(1).double().numpy(), a.min(1))
        np.testing.assert_array_equal(x.amax().double().numpy(), a.max())
        if not np.isinf((first, second)).any():
            np.testing.assert_allclose(
                x.nansum(1).double().numpy(), np.nansum(a, 1), rtol=1e-2 if dtype == wisp.bfloat16 else 1e-5, atol=1e-4
            )


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.bfloat16])
def test_a_product_may_leave_the_range_of_floats_on_its_way(dtype):
    x = wisp.cat([wisp.full((3, 500), 0.5), wisp.full((3, 501), 2.0)], 1).to(dtype)
    assert x.prod(1).tolist() == [2.0] * 3
    assert x[0].prod().item() == 2.0


def test_half_precision_sums_in_float():
    for dtype in (wisp.float16, wisp.bfloat16):
        assert wisp.ones(4096, dtype=dtype).sum().item() == 4096
        assert wisp.ones(4096, 4, dtype=dtype).sum(0).tolist() == [4096] * 4


def test_float_sums_stay_accurate():
    x = wisp.full((3_000_000,), 0.1)
    exact = 3_000_000 * float(np.float32(0.1))
    assert abs(x.sum().item() - exact) < 0.2
    assert abs(x.reshape(-1, 3).sum(0)[1].item() - exact / 3) < 0.08
    assert abs(x.reshape(3, -1).t().sum(0)[1].item() - exact / 3) < 0.08


def test_results_do_not_depend_on_threads():
    wisp.manual_seed(3)
    x = wisp.randn(1000, 700)
    before = wisp.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 7):
            wisp.set_num_threads(threads)
            results.append([t.numpy() for t in (x.sum(), x.sum(0), x.sum(1), x.t().sum(0), x.var(), x.norm(), x.logsumexp((0, 1)))])
    finally:
        wisp.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert np.array_equal(a, b)


def test_nothing():
    assert wisp.zeros(0, 3).sum(0).tolist() == [0, 0, 0] and wisp.zeros(0).sum().item() == 0 and wisp.zeros(0).prod().item() == 1
    assert wisp.zeros(0).mean().isnan() and wisp.zeros(3, 0).sum(0).shape == (0,)
    assert not wisp.zeros(0).any() and wisp.zeros(0).all()
    assert wisp.zeros(0).logsumexp(0).item() == -float("inf")
    for f in (wisp.zeros(0).max, wisp.zeros(0).argmax, lambda: wisp.zeros(0).max(0), lambda: wisp.zeros(0).amin()):
        with pytest.raises((RuntimeError, IndexError)):
            f()


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
def test_scans(dim, layout):
    wisp.manual_seed(4)
    x = make((4, 30, 3), layout)
    a = x.numpy()
    np.testing.assert_allclose(x.cumsum(dim).numpy(), a.cumsum(dim), rtol=1e-12)
    np.testing.assert_allclose(x.cumprod(dim).numpy(), a.cumprod(dim), rtol=1e-10)
    np.testing.assert_allclose(x.logcumsumexp(dim).numpy(), np.log(np.exp(a).cumsum(dim)), rtol=1e-10)
    values, indices = x.cummax(dim)
    assert np.array_equal(values.numpy(), np.maximum.accumulate(a, dim)) and np.array_equal(x.gather(dim, indices).numpy(), values.numpy())
    np.testing.assert_allclose(x.diff(dim=dim).numpy(), np.diff(a, axis=dim))


DIFFERENTIABLE = [
    lambda x: x.sum(),
    lambda x: x.sum(1),
    lambda x: x.mean((0, 1), True),
    lambda x: x.prod(),
    lambda x: x.prod(1),
    lambda x: x.var(0),
    lambda x: x.std(),
    lambda x: x.std(1, correction=0),
    lambda x: x.norm(),
    lambda x: x.norm(3, 1),
    lambda x: x.norm(1.5),
    lambda x: x.norm(1, 0),
    lambda x: x.logsumexp(1),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(0),
    lambda x: x.logcumsumexp(1),
    lambda x: x.nansum(0),
    lambda x: x.max(1).values,
    lambda x: x.amin((0, 1)),
    lambda x: x.max(),
    lambda x: x.cummin(0).values,
    lambda x: x.diff(dim=0),
    lambda x: wisp.var_mean(x, 1),
    lambda x: wisp.std_mean(x),
    lambda x: wisp.linalg.vector_norm(x, float("inf"), 1),
    lambda x: x.median(1).values,
    lambda x: x.quantile(0.3, 1),
    lambda x: x.sort(1).values,
    lambda x: x.topk(2, 0).values,
    lambda x: x.msort(),
    lambda x: x.kthvalue(2, 1).values,
]


@pytest.mark.parametrize("f", DIFFERENTIABLE, ids=range(len(DIFFERENTIABLE)))
def test_derivatives(f):
    wisp.manual_seed(5)
    x = (wisp.randperm(12).double().reshape(3, 4) * 0.37 - 1.7).requires_grad_()  # no two equal, none zero
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))
    y = (wisp.randperm(12).double().reshape(4, 3) * 0.37 - 1.7).t().requires_grad_()
    assert gradcheck(f, (y,))


@pytest.mark.parametrize("f", [lambda x: x.prod(), lambda x: x.prod(1), lambda x: x.cumprod(1)])
@pytest.mark.parametrize("zeros", [1, 2, 5])
def test_products_with_zeros_have_derivatives(f, zeros):
    x = wisp.arange(1, 13).double().reshape(3, 4) / 5
    x.view(-1)[:zeros] = 0
    x.requires_grad_()
    assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


def test_equal_extremes_share_the_gradient():
    x = wisp.tensor([[1.0, 3, 3], [3, 0, 3]], requires_grad=True)
    x.amax(1).sum().backward()
    assert x.grad.tolist() == [[0, 0.5, 0.5], [0.5, 0, 0.5]]
    x.grad = None
    x.max().backward()
    assert x.grad.tolist() == [[0, 0.25, 0.25], [0.25, 0, 0.25]]
    x.grad = None
    x.max(1).values.sum().backward()
    assert x.grad.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_frobenius_norm():
    x = make((4, 3, 5), "transposed")
    np.testing.assert_allclose(wisp.frobenius_norm(x, (0, 2)).numpy(), np.linalg.norm(x.numpy(), axis=(0, 2)))
    assert wisp.frobenius_norm(x, (-1,), keepdim=True).shape == (*x.shape[:-1], 1)
    assert gradcheck(lambda x: wisp.frobenius_norm(x, (1,)), (x.requires_grad_(),))


def test_forms():
    x = wisp.arange(6.0).reshape(2, 3)
    out = wisp.empty(2)
    assert wisp.sum(x, 1, out=out) is out and out.tolist() == [3, 12]
    assert wisp.sum(x, axis=0, keepdims=True).shape == (1, 3)
    assert x.sum(dtype=wisp.int32).dtype == wisp.int32 and x.mean(dtype=wisp.float64).dtype == wisp.float64
    values, indices = wisp.max(x, dim=1)
    assert wisp.max(x, wisp.full_like(x, 3)).min().item() == 3 and values.tolist() == [2, 5] and indices.tolist() == [2, 2]
    y = x.clone()
    assert y.cumsum_(1) is y and y.tolist() == [[0, 1, 3], [3, 7, 12]]
    with pytest.raises(RuntimeError, match="mean"):
        wisp.ones(3, dtype=wisp.int64).mean()
    with pytest.raises(IndexError):
        x.sum(2)
    with pytest.raises(RuntimeError):
        x.sum((0, 0))


def test_more_dimensions_than_a_reduction_can_tell_apart_are_refused():
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        wisp.zeros([1] * 65).amax(64)


@pytest.mark.parametrize("dtype", [wisp.int32, wisp.int64, wisp.float64])
def test_nansum_has_the_dtype_that_was_asked_for(dtype):
    result = wisp.nansum(wisp.tensor([[wisp.nan, 2.0], [3.0, wisp.nan]]), 1, dtype=dtype)
    assert result.dtype == dtype and result.tolist() == [2, 3]


@pytest.mark.parametrize("length", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("rows", [1, 15, 16, 17, 5000])
def test_sums_of_short_rows(rows, length):
    x = np.random.default_rng(0).integers(-99, 99, (rows, length)).astype(np.float32)
    for given in (x, np.where(x == 7, np.nan, x), np.where(x == 7, np.inf, x)):
        assert np.array_equal(wisp.from_numpy(given).sum(1).numpy(), given.sum(1), equal_nan=True)
    wide = wisp.from_numpy(np.tile(x, 2))[:, :length]  # rows that do not follow one another
    assert np.array_equal(wide.sum(1).numpy(), x.sum(1))
    assert np.array_equal(wisp.from_numpy(x)[1:].mean(1).numpy(), x[1:].sum(1) / np.float32(length))


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
@pytest.mark.parametrize("value", [0.1, 7.7, 1e10, 1e-30])
def test_equal_numbers_have_no_variance(value, dtype):
    for shape, dim in (((5000,), 0), ((3, 1001), 1), ((5001, 3), 0), ((200000,), 0)):
        x = wisp.full(shape, value, dtype=dtype)
        variance, mean = wisp.var_mean(x, dim)
        assert not variance.any() and (mean == x.select(dim, 0)).all()
    near = wisp.full((1000,), value, dtype=wisp.float64)
    near[::2] *= 1 + 2**-44
    expected = ((near[0] - near[1]).item() / 2) ** 2
    bound = 1e-2 if near.is_cuda else 1e-6  # a running mean has no more digits than the numbers, whose differences are the last ones
    assert abs(near.var(correction=0).item() / expected - 1) < bound
