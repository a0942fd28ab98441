"""The walk through the core that runs under the sanitizers: every layout and dtype through every family of kernels.

It asserts little (the other tests do) and touches much: odd sizes around vector widths, views with offsets, empty and
0-dim tensors, memory that is not ours, backward passes, threads.
"""

import gc
import random
import threading

import numpy as np
import pytest

import wisp
import wisp.nn.functional as F

SIZES = [0, 1, 3, 7, 15, 16, 17, 31, 33, 63, 65, 100, 257, 1023, 1025]
FLOATS = [wisp.float32, wisp.float64, wisp.bfloat16, wisp.float16]
INTEGERS = [wisp.int64, wisp.int32, wisp.int16, wisp.int8, wisp.uint8, wisp.bool]


def layouts(n, dtype):
    """Tensors of n elements: ours, sliced, strided, transposed, foreign."""
    base = wisp.arange(2 * n + 3).to(dtype)
    yield base[:n].clone()
    yield base[3 : n + 3]
    yield base[1 : 2 * n + 1 : 2]
    yield base[:n].clone().view(1, n).expand(3, n)
    yield wisp.from_numpy(np.ones(n, dtype="float32")).to(dtype)
    yield wisp.from_numpy(np.ones(n + 1, dtype="float32"))[1:]


@pytest.mark.parametrize("n", SIZES)
def test_pointwise(n):
    for dtype in FLOATS + INTEGERS:
        for x in layouts(n, dtype):
            (x + x), (x * 2), (x == x), x.clone(), x.to(wisp.float32), x.to(wisp.int64), wisp.where(x == x, x, x)
            if dtype in FLOATS:
                x.exp(), x.tanh(), x.sqrt(), F.gelu(x), x / (x + 1), x.clamp(0, 1)
                y = x.detach().clone().requires_grad_()
                (y.sigmoid() * y).sum().backward()


def test_every_row_without_elements():
    """Nothing may be read of a tensor that has nothing."""
    for name, arity, *_ in wisp._core._pointwise_table():
        function = getattr(wisp, name, None) or getattr(wisp.special, name, None) or getattr(F, name, None)
        for dtype in FLOATS + INTEGERS:
            x = wisp.zeros(2, 0, 3, dtype=dtype)
            try:
                function(*[x] * arity).sum()
            except (TypeError, RuntimeError):  # not called by its name alone, or not with this dtype
                pass


def test_sums_of_sizes_are_checked():
    for mode in ("constant", "reflect", "replicate", "circular"):
        with pytest.raises(RuntimeError):
            F.pad(wisp.ones(1, 2, 3), (2**62, 2**62), mode)


@pytest.mark.parametrize("n", SIZES)
def test_reductions_and_order(n):
    for dtype in (wisp.float32, wisp.float64, wisp.int64, wisp.bfloat16):
        for x in layouts(n, dtype):
            x.sum(), x.sum(0), x.float().mean(), x.prod(), x.cumsum(0), x.any(), x.all()
            if x.numel():
                x.max(), x.min(), x.argmax(), x.max(0), x.sort(), x.flatten().topk(1)
                x.flatten().unique(), x.float().var(), x.float().softmax(-1), x.float().log_softmax(0)


@pytest.mark.parametrize("m,k,n", [(0, 3, 2), (1, 1, 1), (3, 0, 2), (5, 7, 3), (17, 33, 65), (64, 31, 129), (1, 100, 50), (130, 20, 1)])
def test_products(m, k, n):
    for dtype in (wisp.float32, wisp.float64, wisp.bfloat16, wisp.complex64, wisp.int64):
        a, b = wisp.ones(m, k).to(dtype), wisp.ones(k, n).to(dtype)
        a @ b, a.t().contiguous().t() @ b, a @ b.t().contiguous().t(), wisp.ones(3, m, k).to(dtype) @ b
    a, b = wisp.randn(m, k, requires_grad=True), wisp.randn(n, k, requires_grad=True)
    F.linear(a, b, wisp.randn(n, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("dtype", INTEGERS[:-1] + FLOATS)
def test_products_end_where_their_operands_do(dtype):
    """Blocks are packed in whole tiles: rows and columns of the last one that are not there must not be read, however the operand lies."""

    def lying(rows, columns, way):
        """A matrix whose last element is the last of its memory; what lies behind is poisoned."""
        x = wisp.ones(columns, rows).t() if way % 2 else wisp.ones(rows, columns)
        x = x.to(dtype)
        return x if way < 2 else wisp.ones(rows + 1, columns).to(dtype)[1:] if way == 2 else x[:, :1].expand(rows, columns)

    r = random.Random(str(dtype))
    for _ in range(60):
        m, k, n = (r.choice([1, 2, 3, 7, 8, 9, 15, 17, 31, 33, 47, 65, 96, 130, 257]) for _ in range(3))
        a, b = lying(m, k, r.randrange(4)), lying(k, n, r.randrange(4))
        a @ b, a @ b[:, 0], wisp.tensordot(a, b, 1), wisp.tensordot(a.t(), b, ([0], [0])), wisp.tensordot(a, b.t(), ([1], [1]))
        wisp.tensordot(lying(m, k * 2, r.randrange(3)).reshape(m, k, 2), lying(k, 2, r.randrange(3)), ([1, 2], [0, 1]))


@pytest.mark.parametrize(
    "shape,out,kernel,options",
    [
        ((2, 3, 9, 11), 4, 3, {}),
        ((1, 4, 8, 8), 4, 3, {"padding": 1, "groups": 4}),
        ((2, 2, 7, 7), 6, 5, {"padding": 2, "stride": 2}),
        ((1, 3, 10, 5), 2, 1, {}),
        ((2, 2, 6, 6), 2, 2, {"dilation": 2}),
        ((1, 6, 14, 14), 16, 5, {}),
        ((3, 8, 4, 4), 8, 3, {"padding": 1}),
    ],
)
def test_convolution(shape, out, kernel, options):
    for dtype in (wisp.float32, wisp.float64):
        x = wisp.randn(shape, dtype=dtype, requires_grad=True)
        w = wisp.randn(out, shape[1] // options.get("groups", 1), kernel, kernel, dtype=dtype, requires_grad=True)
        b = wisp.randn(out, dtype=dtype, requires_grad=True)
        F.conv2d(x, w, b, **options).sum().backward()
        F.max_pool2d(x, 2).sum().backward()
        F.avg_pool2d(x, 2, padding=1).sum().backward()
        F.adaptive_avg_pool2d(x, 3).sum().backward()
        F.interpolate(x, scale_factor=1.5, mode="bilinear").sum().backward()
        F.pad(x, (1, 2, 0, 1), mode="reflect").sum().backward()


def test_layers():
    x = wisp.randn(3, 5, 17, requires_grad=True)
    F.layer_norm(x, (17,)).sum().backward()
    F.batch_norm(x, wisp.zeros(5), wisp.ones(5), training=True).sum().backward()
    F.group_norm(x, 5).sum().backward()
    F.cross_entropy(x.flatten(0, 1), wisp.arange(15)).backward()
    F.embedding(wisp.tensor([[0, 2], [3, 3]]), wisp.randn(4, 33, requires_grad=True)).sum().backward()
    q = wisp.randn(2, 2, 37, 9, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    F.dropout(x, 0.5).sum().backward()
    model = wisp.nn.LSTM(5, 7, 2, batch_first=True)
    model(wisp.randn(2, 6, 5))[0].sum().backward()
    for make in (wisp.optim.SGD, wisp.optim.Adam, wisp.optim.AdamW):
        optimizer = make(model.parameters(), lr=0.01)
        optimizer.step()


def test_sparse():
    for rows, columns, width in ((0, 3, 2), (3, 0, 2), (7, 5, 1), (40, 33, 70)):
        dense = wisp.randn(rows, columns) * (wisp.rand(rows, columns) < 0.3)
        for layout in (wisp.sparse_coo, wisp.sparse_csr, wisp.sparse_csc):
            matrix, x = dense.to_sparse(layout=layout).requires_grad_(), wisp.randn(columns, width, requires_grad=True)
            (matrix @ x).sum().backward()
            (matrix @ matrix.t()).to_dense()
    F.embedding(wisp.tensor([[0, 2], [3, 3]]), wisp.randn(4, 33, requires_grad=True), sparse=True).sum().backward()


def test_indexing():
    x = wisp.randn(5, 7, 3)
    for key in (
        0,
        -1,
        slice(1, None, 2),
        (slice(None), 1),
        (..., 0),
        None,
        wisp.tensor([0, 4]),
        [1, 2],
        (slice(None), [0, 6]),
        (wisp.tensor([[0], [1]]), wisp.tensor([0, 1])),
        x > 0,
        x[:, :, 0] > 0,
    ):
        y = x.clone().requires_grad_()
        y[key].sum().backward()
        z = x.clone()
        z[key] = 1.0
    index = wisp.randint(0, 5, (5, 7, 3))
    x.gather(0, index), x.clone().scatter_(0, index, x), x.clone().scatter_add_(0, index, x), x.index_select(1, wisp.tensor([6, 0]))
    x.masked_fill(x > 0, 0), x.masked_select(x > 0), x.take(wisp.tensor([0, 104])), x.nonzero(), wisp.cat([x, x], 1), x.flip(0)
    for bad in (5, [7], wisp.tensor([9])):
        with pytest.raises(IndexError):
            x[bad]


def test_graphs_and_threads():
    x = wisp.randn(4, requires_grad=True)
    y = x
    for _ in range(20000):
        y = y + 1
    y.sum().backward()
    del y
    gc.collect()

    def work():
        w = wisp.randn(50, 50, requires_grad=True)
        for _ in range(20):
            (w @ w).relu().sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_shared_memory_and_seeds():
    from wisp import multiprocessing as mp
    from wisp.utils.data import DataLoader, TensorDataset

    x = wisp.arange(1000.0)
    view = x[10:20]
    x.share_memory_()
    receive, send = mp.Pipe(duplex=False)
    send.send((x, view, wisp.empty(0)))
    a, b, _ = receive.recv()
    b.fill_(1)
    assert a[10] == 1 and view[0] == 1
    del x, a, b, view
    for n in (1, 2, 7):
        array = np.arange(3 * n * 4).reshape(3, n, 4)[:, :, 1::2]
        assert (wisp.from_numpy(array).sum().item(), wisp.tensor(array).sum().item()) == (array.sum(), array.sum())
    for workers in (0, 2):
        loader = DataLoader(list(range(40)), batch_size=7, shuffle=True, num_workers=workers)
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(40))
        loader = DataLoader(TensorDataset(wisp.randn(40, 300)), batch_size=7, num_workers=workers)
        assert sum(len(batch[0]) for batch in loader) == 40


@pytest.mark.parametrize("dtype", INTEGERS[:-1])
def test_integers_wrap(dtype):
    low, high = wisp.iinfo(dtype).min, wisp.iinfo(dtype).max
    x = wisp.tensor([[high, low, high - 1, low + 1, 0, 1, 2, high // 3] * 5] * 9, dtype=dtype)[:, :33]
    assert (x + x).tolist() == (x.numpy() + x.numpy()).tolist() and (x * x).tolist() == (x.numpy() * x.numpy()).tolist()
    assert (-x).tolist() == (-x.numpy()).tolist() and (x * x).equal(x.square())
    for f in (wisp.sub, wisp.mul, lambda a, b: a.add(b, alpha=3), lambda a, b: wisp.addcmul(a, b, b, value=3), wisp.gcd, wisp.lcm):
        f(x, x.flip(1))
    x.sum(), x.sum(0), x.prod(1), x.cumsum(1), x.cumprod(0), x @ x.t(), x.abs(), x**3, x // -1, x % -1, x.diff(), x.trace(), x << 1
    wisp.compile(lambda a: (a * a + a - 3) * a)(x)
