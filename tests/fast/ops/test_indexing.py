"""Gather, scatter, index_*, masks, advanced indexing, joining, rearranging: against NumPy, and their derivatives."""

import numpy as np
import pytest

import wisp
from wisp.autograd import gradcheck, gradgradcheck


@pytest.fixture(autouse=True)
def seed():
    wisp.manual_seed(0)


def layouts(*shape):
    x = wisp.randn(*shape, dtype=wisp.float64)
    yield x
    yield wisp.randn(*shape[::-1], dtype=wisp.float64).permute(*range(len(shape))[::-1])
    yield wisp.randn(*[2 * n for n in shape], dtype=wisp.float64)[tuple(slice(1, None, 2) for _ in shape)]


KEYS = [
    lambda n: (n(0, 3, (4,)),),
    lambda n: (slice(None), n(0, 5, (2, 3))),
    lambda n: (n(-3, 3, (2,)), slice(None), n(-4, 4, (2,))),
    lambda n: (n(0, 3, (3, 1)), n(0, 5, (1, 2))),
    lambda n: (slice(0, 2), n(0, 5, (30,)), slice(1, None)),
    lambda n: (..., n(0, 4, (2,))),
    lambda n: (None, n(0, 3, (2,)), None),
    lambda n: (1, n(0, 5, (3,))),
    lambda n: (n(0, 3, (0,)),),
    lambda n: (n(0, 3, (2,)), 1, n(0, 4, (2,))),
]


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_advanced_indexing_is_numpys(key):
    rng = np.random.default_rng(0)
    index = key(lambda low, high, shape: rng.integers(low, high, shape))
    ours = tuple(wisp.from_numpy(k) if isinstance(k, np.ndarray) else k for k in index)
    for x in layouts(3, 5, 4):
        assert np.array_equal(x[ours].numpy(), x.numpy()[index])
        y, a = x.clone(), x.numpy().copy()
        y[ours] = 7.0
        a[index] = 7.0
        assert np.array_equal(y.numpy(), a)
    x = wisp.randn(3, 5, 4, dtype=wisp.float64, requires_grad=True)
    assert gradcheck(lambda x: x[ours], (x,)) and gradgradcheck(lambda x: x[ours], (x,))


def test_masks():
    for x in layouts(6, 7):
        m = x > 0
        a = x.numpy()
        assert np.array_equal(x[m].numpy(), a[a > 0]) and np.array_equal(m.nonzero().numpy(), np.argwhere(a > 0))
        assert np.array_equal(x.masked_fill(m, 3.0).numpy(), np.where(a > 0, 3.0, a))
        y = x.clone()
        y[m] = wisp.arange(int(m.sum()), dtype=wisp.float64)
        b = a.copy()
        b[a > 0] = np.arange((a > 0).sum())
        assert np.array_equal(y.numpy(), b)
        rows = wisp.tensor([True, False, True, False, False, True])
        assert np.array_equal(x[rows].numpy(), a[rows.numpy()]) and np.array_equal(x[rows, 2:4].numpy(), a[rows.numpy(), 2:4])
    x = wisp.randn(4, 3, dtype=wisp.float64, requires_grad=True)
    m = x.detach() > 0
    v = wisp.tensor(2.0, dtype=wisp.float64, requires_grad=True)
    assert gradgradcheck(lambda x, v: x.masked_fill(m, v).sum(0), (x, v)) and gradcheck(lambda x: x[m], (x,))
    assert gradcheck(lambda x, s: x.masked_scatter(m, s), (x, wisp.randn(12, dtype=wisp.float64, requires_grad=True)))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather_and_scatter(dim):
    for x in layouts(4, 5, 3):
        index = wisp.randint(0, x.shape[dim], (4, 5, 3))
        assert np.array_equal(x.gather(dim, index).numpy(), np.take_along_axis(x.numpy(), index.numpy(), dim))
        source = wisp.randn(4, 5, 3, dtype=wisp.float64)
        expected = x.numpy().copy()
        for at in np.ndindex(4, 5, 3):
            to = list(at)
            to[dim] = index.numpy()[at]
            expected[tuple(to)] += source.numpy()[at]
        np.testing.assert_allclose(x.scatter_add(dim, index, source).numpy(), expected)
        y = x.clone()
        assert y.scatter_add_(dim, index, source) is y
        np.testing.assert_allclose(y.numpy(), expected)
    x, s = (wisp.randn(3, 4, dtype=wisp.float64, requires_grad=True) for _ in range(2))
    index = wisp.tensor([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 2, 1]])
    for f in (
        lambda x, s: x.scatter_add(0, index, s),
        lambda x, s: x.scatter(0, index, s),
        lambda x, s: x.gather(0, index) * s,
        lambda x, s: x.scatter_reduce(0, index, s, "mean"),
        lambda x, s: x.scatter_reduce(0, index, s, "prod"),
        lambda x, s: x.scatter_reduce(0, index, s, "amax", include_self=False),
    ):
        assert gradcheck(f, (x, s))


def test_index_functions():
    index = wisp.tensor([2, 0, 2])
    for x in layouts(3, 5, 4):
        for d in range(3):
            assert np.array_equal(x.index_select(d, index).numpy(), x.numpy().take([2, 0, 2], d))
        source = wisp.randn(3, 5, 4, dtype=wisp.float64)
        expected = x.numpy().copy()
        np.add.at(expected, [2, 0, 2], 2 * source.numpy())
        np.testing.assert_allclose(x.index_add(0, index, source, alpha=2).numpy(), expected)
        assert x.index_fill(1, index, -1.0)[:, 2].eq(-1).all() and x.index_copy(0, wisp.tensor([1]), source[:1])[1].equal(source[0])
        assert np.array_equal(x.take(wisp.tensor([0, 7, -1])).numpy(), x.numpy().take([0, 7, -1]))
    x, s = (wisp.randn(3, 4, dtype=wisp.float64, requires_grad=True) for _ in range(2))
    for f in (
        lambda x, s: x.index_add(0, index, s),
        lambda x, s: x.index_select(0, index) * s,
        lambda x, s: x.index_put((index,), s, True),
        lambda x, s: x.index_copy(1, wisp.tensor([3, 0]), s[:, :2]),
        lambda x, s: x.index_fill(0, index, s[0, 0]),
    ):
        assert gradcheck(f, (x, s)) and gradgradcheck(f, (x, s))


def test_in_place_writes_are_seen_by_autograd():
    x = wisp.randn(4, 3, dtype=wisp.float64, requires_grad=True)
    s = wisp.randn(2, 3, dtype=wisp.float64, requires_grad=True)

    def f(x, s):
        y = x * 2
        y.index_add_(0, wisp.tensor([1, 1]), s)
        y[wisp.tensor([0, 3])] = s * s
        y[:, 1].masked_fill_(wisp.tensor([True, False, False, False]), 5.0)
        return y * y

    assert gradcheck(f, (x, s)) and gradgradcheck(f, (x, s))


def test_bad_indices_are_refused():
    x = wisp.zeros(3, 4)
    for f in (
        lambda: x[wisp.tensor([3])],
        lambda: x[:, wisp.tensor([-5])],
        lambda: x.gather(0, wisp.tensor([[3]])),
        lambda: x.gather(1, wisp.tensor([[-1]])),
        lambda: x.index_select(0, wisp.tensor([3])),
        lambda: x.scatter_add(0, wisp.tensor([[4]]), x),
        lambda: x.take(wisp.tensor([12])),
        lambda: x.index_add(1, wisp.tensor([4]), x[:, :1]),
        lambda: x[wisp.zeros(2, 4, dtype=wisp.bool)],
        lambda: x[wisp.tensor([0, 1]), wisp.tensor([0, 1, 2])],
        lambda: wisp.searchsorted(x, x, sorter=wisp.full((3, 4), 9)),
    ):
        with pytest.raises((IndexError, RuntimeError)):
            f()
    with pytest.raises(RuntimeError, match="dtypes match"):
        x.index_put((wisp.tensor([0]),), wisp.zeros(4, dtype=wisp.float64))


def test_repeated_indices_add_up_for_any_number_of_threads():
    index = wisp.randint(0, 50, (20000,))
    source = wisp.randn(20000, 16)
    before = wisp.get_num_threads()
    ways = [
        lambda x: x.index_add(0, index, source),
        lambda x: x.index_put((index,), source, True),
        lambda x: x.scatter_add(0, index[:, None].expand(-1, 16), source),
    ]
    results = []
    try:
        for threads in (1, 4):
            wisp.set_num_threads(threads)
            results.append([way(wisp.zeros(50, 16)) for way in ways])
    finally:
        wisp.set_num_threads(before)
    assert all(one.equal(other) for one, other in zip(*results))
    if source.device.type == "cpu":  # in one order all three; a GPU's scatter_add adds in fixed point
        assert all(r.equal(results[0][0]) for r in results[0])


def test_joining():
    a, b = wisp.randn(2, 3), wisp.randn(4, 3)
    assert np.array_equal(wisp.cat([a, b]).numpy(), np.concatenate([a.numpy(), b.numpy()]))
    assert np.array_equal(wisp.stack([a, a.t().contiguous().t()], 2).numpy(), np.stack([a.numpy(), a.numpy()], 2))
    assert wisp.cat([wisp.zeros(0), a]).shape == (2, 3) and wisp.cat([a.int(), a]).dtype == wisp.float32
    for name in ("hstack", "vstack", "dstack", "column_stack"):
        assert np.array_equal(getattr(wisp, name)([a, a]).numpy(), getattr(np, name)([a.numpy(), a.numpy()]))
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        wisp.cat([a, b], 1)
    with pytest.raises(RuntimeError, match="equal size"):
        wisp.stack([a, b])
    x, y = (wisp.randn(2, 3, dtype=wisp.float64, requires_grad=True) for _ in range(2))
    assert gradgradcheck(lambda x, y: wisp.cat([x, y * y], 1), (x, y))


def test_rearranging():
    for x in layouts(4, 5, 3):
        a = x.numpy()
        assert np.array_equal(x.flip(0, 2).numpy(), np.flip(a, (0, 2))) and np.array_equal(
            x.roll((1, -2), (0, 1)).numpy(), np.roll(a, (1, -2), (0, 1))
        )
        assert np.array_equal(x.roll(3).numpy(), np.roll(a, 3)) and np.array_equal(x.rot90(1, (0, 1)).numpy(), np.rot90(a, 1, (0, 1)))
        assert np.array_equal(x.repeat(2, 1, 3, 1).numpy(), np.tile(a, (2, 1, 3, 1))) and np.array_equal(x.tile(2).numpy(), np.tile(a, 2))
        assert np.array_equal(x.repeat_interleave(2, 1).numpy(), np.repeat(a, 2, 1))
        assert np.array_equal(x.repeat_interleave(wisp.tensor([1, 0, 3, 2]), 0).numpy(), np.repeat(a, [1, 0, 3, 2], 0))
        for d in (-2, 0, 1):
            assert np.array_equal(x.tril(d).numpy(), np.tril(a, d)) and np.array_equal(x.triu(d).numpy(), np.triu(a, d))
    v = wisp.arange(3.0)
    assert np.array_equal(v.diag(1).numpy(), np.diag(v.numpy(), 1)) and v.diag().diag().equal(v) and v.diag_embed().trace().item() == 3
    x = wisp.randn(3, 3, dtype=wisp.float64, requires_grad=True)
    for f in (
        lambda x: x.flip(1),
        lambda x: x.roll(1, 0),
        lambda x: x.tril(),
        lambda x: x.diag(),
        lambda x: x.repeat(2, 2),
        lambda x: x.trace(),
        lambda x: x.select_scatter(x[0] * 2, 1, 0),
        lambda x: x.repeat_interleave(wisp.tensor([2, 0, 1]), 1),
    ):
        assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))


def test_in_place_overlap_is_safe():
    x = wisp.arange(6.0)
    x[1:] = x[:-1].clone()
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    y = wisp.arange(4.0)
    y[:] = y.flip(0)
    assert y.tolist() == [3, 2, 1, 0]


def test_any_sequence_of_integers_is_an_index():
    import collections

    x = wisp.arange(12.0).view(3, 4)
    assert x[range(3), [0, 1, 2]].tolist() == [0, 5, 10] and x[:, range(1, 3)].shape == (3, 2) and x[range(0)].shape == (0, 4)
    assert x[collections.deque([0, 2])].shape == (2, 4)
    x[range(2), wisp.tensor([0, 1])] = 7
    assert x[0, 0] == 7 and x[1, 1] == 7
    for bad, error in (("a", TypeError), ({1: 2}, IndexError), (b"x", TypeError), (1.5, IndexError)):
        with pytest.raises(error):
            x[bad]


@pytest.mark.parametrize("columns", [3, 33, 64])
def test_one_index_for_a_row(columns):
    random = np.random.default_rng(4)
    table = random.integers(-9, 9, (20, columns)).astype(np.float32)
    rows, places = random.integers(-9, 9, (500, columns)).astype(np.float32), random.integers(0, 20, 500)
    index = wisp.from_numpy(places)[:, None].expand(-1, columns)
    expected = table.copy()
    np.add.at(expected, places, rows)
    np.testing.assert_array_equal(wisp.from_numpy(table).scatter_add(0, index, wisp.from_numpy(rows)).numpy(), expected)
    np.testing.assert_array_equal(wisp.from_numpy(table).gather(0, index).numpy(), table[places])
    np.testing.assert_array_equal(wisp.from_numpy(table.T.copy()).t().gather(0, index).numpy(), table[places])
    negative = wisp.take_along_dim(wisp.from_numpy(table), wisp.tensor([[-1, 0, -2]] * 20), 1)
    np.testing.assert_array_equal(negative.numpy(), table[:, [-1, 0, -2]])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_bits_of_any_length(dtype):
    random = np.random.default_rng(8)
    for n in (1, 7, 8, 13, 5000):
        a, b = random.integers(0, 127, n).astype(dtype), random.integers(0, 127, n).astype(dtype)
        x, y = wisp.from_numpy(a), wisp.from_numpy(b)
        np.testing.assert_array_equal((x & y).numpy(), a & b)
        np.testing.assert_array_equal((x | y).numpy(), a | b)
        np.testing.assert_array_equal((x ^ y).numpy(), a ^ b)
        np.testing.assert_array_equal((~x).numpy(), ~a)
        np.testing.assert_array_equal((x[::2] & y[::2]).numpy(), a[::2] & b[::2])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_products_of_complex_numbers_are_the_same_everywhere(dtype):
    random = np.random.default_rng(9)
    a, b = ((random.standard_normal(333) + 1j * random.standard_normal(333)).astype(dtype) for _ in range(2))
    x, y = wisp.from_numpy(a), wisp.from_numpy(b)
    assert ((x * x.conj()).imag == 0).all()
    product = x * y
    np.testing.assert_array_equal(product.real.numpy(), a.real * b.real - a.imag * b.imag)
    np.testing.assert_array_equal(product.imag.numpy(), a.real * b.imag + a.imag * b.real)
    assert wisp.equal(x.scatter_reduce(0, wisp.arange(333), y, "prod"), product)
    assert wisp.equal(wisp.stack([p * q for p, q in zip(x, y, strict=True)]), product)


@pytest.mark.parametrize("length", [255, 256, 257, 300, 1021, 5000])
@pytest.mark.parametrize("shift", [0, 1, 3, 16])
def test_rows_of_any_length_and_alignment_are_copied_whole(length, shift):
    x = wisp.arange(3 * (length + 20), dtype=wisp.float32).view(3, -1)
    part = x[:, shift : shift + length]
    assert part.clone(memory_format=wisp.contiguous_format).tolist() == [row[shift : shift + length] for row in x.tolist()]
    assert part[wisp.tensor([2, 0, 2])].tolist() == [part[i].tolist() for i in (2, 0, 2)]
    around = wisp.full((3, length + 40), -1.0)
    around[:, 7 : 7 + length] = part  # nothing beside the row is written
    assert around[:, 7 : 7 + length].equal(part) and (around[:, :7] == -1).all() and (around[:, 7 + length :] == -1).all()
    assert part.roll(5, 1).tolist() == [row[-5:] + row[:-5] for row in part.tolist()]


@pytest.mark.parametrize("shape", [(64, 20), (5, 8, 20), (8, 5, 20, 3)])
def test_repeated_places_along_an_inner_dimension_add_up_in_order(shape):
    wisp.manual_seed(0)
    x, i = wisp.randn(*shape, requires_grad=True), wisp.randint(0, 20, (50,))
    picked = x.index_select(-2, i) if len(shape) == 4 else x[..., i]
    g = wisp.randn_like(picked)
    picked.backward(g)
    dim = picked.dim() - (2 if len(shape) == 4 else 1)
    expected = wisp.zeros_like(x)
    for k, place in enumerate(i.tolist()):
        expected.select(dim, place).add_(g.select(dim, k))
    assert x.grad.equal(expected)
    y = wisp.zeros_like(expected)
    y[(slice(None),) * dim + (i,)] = g  # the last one stays
    for place in i.tolist():
        assert y.select(dim, place).equal(g.select(dim, max(j for j, p in enumerate(i.tolist()) if p == place)))


@pytest.mark.parametrize("n", [1, 2047, 2048, 2049, 4099, 300001])
def test_zeroing_a_part_touches_nothing_else(n):
    for offset in (0, 1, 3):
        x = wisp.ones(n + offset + 5, dtype=wisp.uint8)
        x[offset : offset + n].zero_()
        values = x.numpy()
        assert values[:offset].all() and not values[offset : offset + n].any() and values[offset + n :].all()


@pytest.mark.parametrize("lengths", [[3, 0, 5, 1] * 30000, [0, 0, 200000, 0, 1, 70000, 0], [0] * 9 + [100000] * 3 + [7] * 999])
def test_many_parts_are_joined_in_order(lengths):
    numbers = np.arange(sum(lengths), dtype=np.float32)
    parts = [wisp.from_numpy(p.copy()) for p in np.split(numbers, np.cumsum(lengths)[:-1])]
    assert (wisp.cat(parts).numpy() == numbers).all()


def test_a_tensor_written_to_itself():
    x = wisp.arange(6.0).reshape(2, 1, 3)
    v = x.unsqueeze(0).diagonal()  # strides of dimensions of one element say nothing
    v[0] = v
    x[:, 0] = x[:, 0]
    x.transpose(1, 0)[0] = x.transpose(1, 0)
    assert x.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    x = wisp.arange(6.0).reshape(2, 3)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        x.copy_(x[0])
    x[:] = x[0]
    assert x.tolist() == [[0, 1, 2], [0, 1, 2]]
    square = wisp.arange(4.0).reshape(2, 2)
    for write in (lambda: square.copy_(square.T), lambda: square[:].index_copy_(0, wisp.tensor([1, 0]), square)):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write()


def test_an_index_of_index_add_out_of_range_is_the_error_of_scatter_add_for_slices():
    x, index = wisp.zeros(4, 3), wisp.tensor([4])
    with pytest.raises(RuntimeError, match="index 4 is out of bounds for dimension 0 with size 4"):
        x.index_add_(0, index, wisp.ones(1, 3))
    with pytest.raises(IndexError, match="index out of range in self"):
        x.index_add_(0, index, wisp.ones(1, 3), alpha=2)
    with pytest.raises(IndexError, match="index out of range in self"):
        wisp.zeros(4).index_add_(0, index, wisp.ones(1))


def test_put_sums_halves_as_index_add_does():
    x, index, source = wisp.full((3,), 2048.0, dtype=wisp.float16), wisp.tensor([1, 1, 1, 1]), wisp.ones(4, dtype=wisp.float16)
    assert x.put(index, source, accumulate=True).tolist() == x.index_add(0, index, source).tolist() == [2048.0, 2052.0, 2048.0]


def test_more_than_64_dimensions_of_one_element_need_no_loop():
    x = wisp.full([1] * 70, 3.0)
    assert (x * 2 + 1).item() == 7.0 and (x * 2).dim() == 70
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        x.sum(0)
