"""Sorting, selection, unique, search and counting against NumPy: ties, NaN, dtypes, rows around the radix threshold."""

import numpy as np
import pytest

import wisp

DTYPES = [wisp.bool, wisp.uint8, wisp.int8, wisp.int16, wisp.int32, wisp.int64, wisp.float16, wisp.bfloat16, wisp.float32, wisp.float64]


def make(shape, dtype):
    if dtype == wisp.bool:
        return wisp.randint(0, 2, shape).bool()
    low = 0 if dtype == wisp.uint8 else -9
    x = wisp.randint(low, 10, shape).to(dtype)
    return x / 2 if dtype.is_floating_point else x


def array(x):
    return (x.float() if x.dtype in (wisp.bfloat16, wisp.float16) else x).numpy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 2, 23, 25, 63, 64, 65, 130, 1000])
def test_sort_is_stable(dtype, n):
    wisp.manual_seed(n)
    x = make((4, n), dtype)
    a = array(x).astype("float64")
    for descending in (False, True):
        values, indices = x.sort(1, descending)
        expected = np.argsort(-a if descending else a, 1, kind="stable")
        assert np.array_equal(indices.numpy(), expected) and np.array_equal(array(values), np.take_along_axis(array(x), expected, 1))
        assert np.array_equal(x.argsort(1, descending).numpy(), expected)
        for k in {0, 1, n // 20, n // 3, n} if n else ():
            best = x.topk(k, 1, largest=descending)
            assert np.array_equal(best.values.numpy() if dtype != wisp.bfloat16 else array(best.values), array(values)[:, :k])


def test_nan_is_last_and_zeros_are_equal():
    x = wisp.tensor([2.0, float("nan"), -0.0, 0.0, -float("inf"), float("inf"), -0.0])
    values, indices = x.sort()
    assert indices.tolist() == [4, 2, 3, 6, 0, 5, 1]
    assert x.sort(descending=True).indices.tolist() == [1, 5, 0, 2, 3, 6, 4]
    assert x.median().isnan() and x.nanmedian().item() == 0 and x.topk(1).indices.item() == 1


def test_any_dimension_and_layout():
    wisp.manual_seed(0)
    x = wisp.randn(5, 6, 7).transpose(0, 2)[::2]
    for d in range(3):
        assert np.array_equal(x.sort(d).values.numpy(), np.sort(x.numpy(), d))
        assert np.array_equal(x.median(d).values.numpy(), np.sort(x.numpy(), d).take((x.shape[d] - 1) // 2, d))
        assert np.array_equal(x.kthvalue(2, d, True).values.numpy(), np.sort(x.numpy(), d).take([1], d))
        np.testing.assert_allclose(x.quantile(0.3, d).numpy(), np.quantile(x.numpy(), 0.3, d), rtol=1e-5)
    np.testing.assert_allclose(
        x.quantile(wisp.tensor([0.1, 0.9]), 1, True).numpy(), np.quantile(x.numpy(), [0.1, 0.9], 1, keepdims=True), rtol=1e-4
    )


def test_mode():
    x = wisp.tensor([[3, 1, 3, 1, 2], [5, 5, 4, 4, 4]])
    values, indices = x.mode(1)
    assert values.tolist() == [1, 4] and (x.gather(1, indices[:, None])[:, 0] == values).all()


@pytest.mark.parametrize("dtype", [wisp.int64, wisp.float32, wisp.bool])
def test_unique(dtype):
    wisp.manual_seed(1)
    for shape in ((0,), (1,), (200,), (20, 10)):
        x = make(shape, dtype)
        values, inverse, counts = x.unique(return_inverse=True, return_counts=True)
        e, i, c = np.unique(x.numpy(), return_inverse=True, return_counts=True)
        assert np.array_equal(values.numpy(), e) and np.array_equal(inverse.numpy(), i.reshape(shape)) and np.array_equal(counts.numpy(), c)
    x = make((30, 2), dtype)
    for d in (0, 1):
        values, inverse, counts = x.unique(dim=d, return_inverse=True, return_counts=True)
        e, i, c = np.unique(x.numpy(), axis=d, return_inverse=True, return_counts=True)
        assert np.array_equal(values.numpy(), e) and np.array_equal(inverse.numpy(), i.reshape(-1)) and np.array_equal(counts.numpy(), c)
    assert wisp.tensor([1, 1, 2, 2, 1]).unique_consecutive().tolist() == [1, 2, 1]


def test_search():
    edges, values = wisp.tensor([1.0, 3, 3, 5]), wisp.tensor([[0.0, 1, 2], [3, 4, 9]])
    for right in (False, True):
        expected = np.searchsorted(edges.numpy(), values.numpy(), "right" if right else "left")
        assert np.array_equal(wisp.searchsorted(edges, values, right=right).numpy(), expected)
        assert np.array_equal(wisp.bucketize(values, edges, right=right).numpy(), expected)
    shuffled = wisp.tensor([5.0, 1, 3, 3])
    assert wisp.searchsorted(shuffled, values, sorter=shuffled.argsort()).equal(wisp.searchsorted(edges, values))
    assert wisp.isin(wisp.tensor([1, 2, 3]), wisp.tensor([3, 1, 7])).tolist() == [True, False, True]
    assert wisp.bincount(wisp.tensor([0, 2, 2, 5])).tolist() == [1, 0, 2, 0, 0, 1]
    assert wisp.histc(wisp.tensor([0.0, 1, 2, 3, 3]), 3, 0, 3).tolist() == [1, 1, 3]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_counting_and_runs(dtype):
    random = np.random.default_rng(5)
    numbers = random.integers(0, 60, 100_001).astype(dtype)
    x = wisp.from_numpy(numbers)
    if not x.is_floating_point():
        np.testing.assert_array_equal(x.bincount(minlength=70).numpy(), np.bincount(numbers, minlength=70))
        assert wisp.bincount(x[:3], minlength=100_000).sum() == 3
    np.testing.assert_array_equal((x if x.dtype != wisp.uint8 else x.int()).histc(13, 2, 50).numpy(), np.histogram(numbers, 13, (2, 50))[0])
    rows = np.repeat(numbers[:1000], 3)
    values, inverse, counts = wisp.from_numpy(rows).unique_consecutive(return_inverse=True, return_counts=True)
    first = np.concatenate([[True], rows[1:] != rows[:-1]])
    np.testing.assert_array_equal(values.numpy(), rows[first])
    np.testing.assert_array_equal(inverse.numpy(), np.cumsum(first) - 1)
    np.testing.assert_array_equal(counts.numpy(), np.diff(np.append(np.nonzero(first)[0], len(rows))))


def test_integers_of_any_spread_and_medians():
    random = np.random.default_rng(6)
    for spread in (10, 2**31, 2**62):
        numbers = random.integers(-spread, spread, 20_000)
        x = wisp.from_numpy(numbers)
        np.testing.assert_array_equal(x.sort().values.numpy(), np.sort(numbers))
        np.testing.assert_array_equal(x.sort(descending=True).values.numpy(), np.sort(numbers)[::-1])
        assert x.median() == np.sort(numbers)[9999]
        assert x.kthvalue(77).values == np.sort(numbers)[76]
        np.testing.assert_array_equal(x.topk(20).values.numpy(), np.sort(numbers)[::-1][:20])
    many = wisp.from_numpy(np.array([3.0, np.nan, 1.0, 2.0] * 2000, np.float32))
    assert many.median().isnan() and many.nanmedian() == 2


def test_search_among_many():
    random = np.random.default_rng(7)
    boundaries, values = np.sort(random.normal(size=301)).astype(np.float32), random.normal(size=5003).astype(np.float32)
    values[::9] = random.choice(boundaries, len(values[::9]))
    values[5] = np.nan
    for right in (False, True):
        found = wisp.searchsorted(wisp.from_numpy(boundaries), wisp.from_numpy(values), right=right)
        np.testing.assert_array_equal(found.numpy(), np.searchsorted(boundaries, values, "right" if right else "left"))


@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_few_elements_is_the_beginning_of_a_sort(largest):
    for rows, n, k in ((1, 1, 1), (3, 7, 7), (2, 64, 4), (5, 63, 2), (1, 65, 3), (40, 12, 5)):
        x = wisp.randint(-4, 4, (rows, n)).float()
        x[0, 0] = wisp.nan
        values, places = x.topk(k, 1, largest)
        expected = x.sort(dim=1, descending=largest, stable=True)
        wisp.testing.assert_close(values, expected.values[:, :k], equal_nan=True, rtol=0, atol=0)
        wisp.testing.assert_close(x.gather(1, places), values, equal_nan=True, rtol=0, atol=0)
        assert all(len(set(row.tolist())) == k for row in places)


@pytest.mark.parametrize("dtype", [wisp.int8, wisp.uint8, wisp.int16, wisp.int32, wisp.int64])
def test_unique_counts_integers_that_lie_close_together(dtype):
    rng = np.random.default_rng(0)
    lowest, highest = wisp.iinfo(dtype).min, wisp.iinfo(dtype).max
    for low, high, n in (
        (-100, 100, 1000),
        (0, 7, 64),
        (lowest, lowest + 60, 500),
        (highest - 60, highest, 500),
        (-100, 100, 150),
        (3, 3, 99),
    ):
        low, high = max(low, lowest), min(high, highest)
        a = rng.integers(low, high, n, endpoint=True).astype(str(dtype).split(".")[1])
        values, inverse, counts = wisp.from_numpy(a).view(-1, 1).unique(return_inverse=True, return_counts=True)
        expected = np.unique(a, return_inverse=True, return_counts=True)
        assert values.dtype == dtype and inverse.shape == (n, 1)
        np.testing.assert_array_equal(values.numpy(), expected[0])
        np.testing.assert_array_equal(inverse.flatten().numpy(), expected[1])
        np.testing.assert_array_equal(counts.numpy(), expected[2])
        np.testing.assert_array_equal(wisp.from_numpy(a).unique().numpy(), expected[0])
