"""Kernels of ours for small work, and rows in registers: they agree with the CPU's for every layout that reaches them."""

import pytest
from test_families import both
from test_operators import near

import wisp
import wisp.nn.functional as F

CONVOLUTIONS = [
    # batch, in, out, size, kernel, options
    (4, 3, 6, (32, 32), (5, 5), {}),
    (128, 6, 16, (14, 14), (5, 5), {}),
    (1, 1, 1, (1, 1), (1, 1), {}),
    (3, 5, 7, (9, 11), (3, 2), {"padding": (1, 2)}),
    (2, 4, 9, (17, 13), (3, 3), {"stride": (2, 3), "padding": 1}),
    (2, 3, 17, (15, 15), (3, 3), {"dilation": (2, 1), "padding": 2}),
    (600, 1, 3, (6, 6), (3, 3), {}),
    (2, 32, 32, (8, 8), (3, 3), {"padding": 1}),
    (1, 2, 4, (200, 300), (7, 7), {"padding": 3}),
    (2, 3, 5, (8, 8), (3, 3), {"stride": 4, "padding": 5}),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(case):
    batch, inner, outer, size, kernel, options = case
    x, w, b = wisp.randn(batch, inner, *size), wisp.randn(outer, inner, *kernel) / 5, wisp.randn(outer)
    both(lambda x, w, b: F.conv2d(x, w, b, **options), x, w, b, tolerance=1e-3)
    both(lambda x, w: F.conv2d(x, w, **options), x, w, tolerance=1e-3)
    if size[1] > 1:
        both(lambda x, w, b: F.conv2d(x[:2, :, :, 1:], w, b, padding=4), x, w, b, tolerance=1e-3)
    if "dilation" not in options:
        both(lambda x, w, b: F.conv_transpose2d(x, w, b, **options), wisp.randn(batch, outer, 4, 5), w, wisp.randn(inner), tolerance=1e-3)


def test_convolution_in_one_dimension_and_twice_differentiated():
    x, w, b = wisp.randn(3, 4, 50), wisp.randn(6, 4, 5), wisp.randn(6)
    both(lambda x, w, b: F.conv1d(x, w, b, stride=2), x, w, b, tolerance=1e-3)

    def second(x, w, b):
        gx, gw, gb = wisp.autograd.grad(F.conv2d(x, w, b).square().sum(), (x, w, b), create_graph=True)
        return gx.square().sum() + gw.square().sum() + gb.square().sum()

    both(second, wisp.randn(2, 2, 6, 6), wisp.randn(3, 2, 3, 3), wisp.randn(3), tolerance=1e-2)


@pytest.mark.parametrize(
    "m, n, k",
    [(1, 1, 1), (64, 10, 84), (64, 256, 784), (512, 1024, 256), (512, 1000, 256), (33, 65, 17), (5, 3, 2000), (300, 2, 1), (7, 9, 0)],
)
def test_products(m, n, k):
    a, b = wisp.randn(m, k), wisp.randn(k, n)
    both(lambda a, b: a @ b, a, b, tolerance=1e-3)
    both(lambda a, b: a.t() @ b.t(), a.t().contiguous(), b.t().contiguous(), tolerance=1e-3)
    both(lambda a, b: a[:, ::2] @ b[::2], a, b, tolerance=1e-3)
    if k:
        both(lambda x, w, b: F.linear(x, w, b), a, b.t().contiguous(), wisp.randn(n), tolerance=1e-3)
        both(lambda x, w, b: F.linear(x.view(1, m, k), w, b), a, b.t().contiguous(), wisp.randn(n), tolerance=1e-3)
        both(lambda x, w, b: F.linear(x, w, b), a, b.t().contiguous(), wisp.randn(1), tolerance=1e-3)
        both(lambda c, a, b: wisp.addmm(c, a, b, beta=0.5, alpha=2), wisp.randn(m, n), a, b, tolerance=1e-3)


@pytest.mark.parametrize("m", [1, 3, 4, 5, 8, 9, 16])
@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float16], ids=str)
def test_products_of_few_rows(m, dtype):
    for n, k in ((8, 8), (7, 16), (33, 40), (100, 1000), (512, 2048), (300, 4104)):
        x, w, b = wisp.randn(m, k + 8).to(dtype), (wisp.randn(n, k) / k**0.5).to(dtype), wisp.randn(n).to(dtype)
        both(lambda x, w: F.linear(x[:, : w.shape[1]], w), x, w, tolerance=4e-2, grad=False)
        both(lambda x, w, b: F.linear(x[:, : w.shape[1]], w, b), x, w, b, tolerance=4e-2, grad=False)


@pytest.mark.parametrize("m", [1, 3, 16])
def test_products_of_few_rows_in_one_launch(m):
    weights = [wisp.randn(n, 256, device="cuda", dtype=wisp.bfloat16) / 16 for n in (64, 64, 128, 512)]

    def f(x):
        for _ in range(4):
            a, b, c, d = (F.linear(x, w) for w in weights)
            x = wisp.cat([a + b, c], -1) + F.linear(d[..., :256], weights[3])[..., :192]
            x = F.pad(x, (0, 64))
        return x

    g = wisp.compile(f, mode="reduce-overhead")
    for x in (wisp.randn(m, 256, device="cuda", dtype=wisp.bfloat16) for _ in range(5)):
        assert wisp.equal(f(x), g(x))


def test_one_slice_is_put():
    at, value = wisp.tensor([7]), wisp.randn(2, 3, 1, 8)
    both(lambda x, v: x.clone().index_copy_(2, at.to(x.device), v), wisp.randn(2, 3, 10, 8), value, tolerance=0)
    both(
        lambda x, v: x.clone().index_copy_(2, at.to(x.device), v.transpose(1, 2)),
        wisp.randn(2, 3, 10, 8),
        value.transpose(1, 2),
        tolerance=0,
    )
    both(lambda x: x.clone().index_fill_(0, at.to(x.device), 3.0), wisp.randn(10, 3), tolerance=0)


def test_slices_are_put_in_one_launch():
    caches = [[wisp.zeros(2, 3, 10, 8, device="cuda") for _ in range(2)] for _ in range(2)]

    def put(keys, values, at, x):
        keys.index_copy_(2, at, x)
        values.index_copy_(2, at, x.transpose(0, 1).reshape(3, 2, 1, 8).transpose(0, 1) * 2)
        keys.index_copy_(2, at + 1, values[:, :, :1])  # needs what was put

    kept = wisp.compile(put, mode="reduce-overhead")
    for i in range(6):
        at, x = wisp.tensor([i], device="cuda"), wisp.randn(2, 3, 1, 8, device="cuda")
        put(*caches[0], at, x)
        kept(*caches[1], at, x)
        assert all(wisp.equal(a, b) for a, b in zip(*caches))
    with pytest.raises(IndexError, match="out of range|out of bounds"):
        kept(*caches[1], wisp.tensor([10], device="cuda"), x)
        wisp.cuda.synchronize()


def test_batches_of_products():
    for a, b in (((3, 4, 5), (3, 5, 6)), ((2, 3, 4, 5), (2, 3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((8, 4, 64, 16), (8, 4, 16, 64))):
        both(lambda a, b: a @ b, wisp.randn(a), wisp.randn(b), tolerance=1e-3)
    q, k = wisp.randn(8, 64, 4, 16), wisp.randn(8, 64, 4, 16)
    for dtype in (wisp.float32, wisp.float64):
        both(lambda q, k: q.transpose(1, 2) @ k.permute(0, 2, 3, 1), q.to(dtype), k.to(dtype), tolerance=1e-3)


@pytest.mark.parametrize("n", [4, 16, 96, 256, 260, 768, 1000, 1024, 4096, 8192, 16384, 16388, 40000])
@pytest.mark.parametrize("dtype, tolerance", [(wisp.float32, 1e-4), (wisp.float64, 1e-9), (wisp.bfloat16, 5e-2)], ids=str)
def test_rows(n, dtype, tolerance):
    for rows in (1, 7, 300 if n < 2000 else 3):
        x, w, b = (wisp.randn(s).to(dtype) for s in ((rows, n), (n,), (n,)))
        both(lambda x, w, b: F.layer_norm(x, (n,), w, b), x, w, b, tolerance=tolerance)
        both(lambda x: F.layer_norm(x, (n,)), x, tolerance=tolerance)
        both(lambda x, w: F.rms_norm(x, (n,), w), x, w, tolerance=tolerance)
        both(lambda x: x.softmax(1), x, tolerance=tolerance)
        both(lambda x: x.log_softmax(1), x, tolerance=tolerance)
    wide = wisp.randn(3, n + 1).to(dtype)
    both(lambda x: x[:, 1:].softmax(1), wide, tolerance=tolerance)
    both(lambda x: F.layer_norm(x[:, 1:], (n,)), wide, tolerance=tolerance)


def test_rows_of_infinities_and_nan():
    x = wisp.randn(4, 64)
    x[0, 3], x[1, 2], x[2] = float("inf"), float("nan"), float("-inf")
    x[3, :60] = float("-inf")
    assert wisp.equal(x.cuda().softmax(1).cpu().isnan(), x.softmax(1).isnan())
    near(x[3:].cuda().softmax(1), x[3:].softmax(1), 1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("samples, classes", [(4, 10), (128, 10), (1, 1), (600, 1000), (5, 50257)])
def test_cross_entropy(samples, classes, reduction):
    wisp.manual_seed(0)
    x, t, w = wisp.randn(samples, classes), wisp.randint(0, classes, (samples,)), wisp.rand(classes) + 0.1
    both(lambda x: F.cross_entropy(x, t.to(x.device), reduction=reduction), x)
    both(lambda x: F.cross_entropy(x, t.to(x.device), w.to(x.device), reduction=reduction, label_smoothing=0.1, ignore_index=int(t[0])), x)
    both(lambda x: F.cross_entropy(x[:, 1:], t.to(x.device), reduction=reduction), wisp.randn(samples, classes + 1))
    both(lambda x: F.nll_loss(x, t.to(x.device), w.to(x.device), reduction=reduction), x)
    both(lambda x: F.cross_entropy(x, t.to(x.device), reduction=reduction), x.bfloat16(), tolerance=3e-2)


@pytest.mark.parametrize("samples, classes", [(64, 32000), (8, 1000), (5, 10)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_wider_copies_in_a_region(samples, classes, smoothing):
    def step(x, t):
        x = x.detach().requires_grad_()
        loss = F.cross_entropy((x * 1).float(), t, label_smoothing=smoothing, ignore_index=3)
        loss.backward()
        return loss, x.grad

    x, t = wisp.randn(samples, classes, device="cuda", dtype=wisp.bfloat16), wisp.randint(0, classes, (samples,), device="cuda")
    assert all(map(wisp.equal, step(x, t), wisp.compile(step)(x, t)))


def test_gradients_are_not_shared():
    """What backward gives away belongs to the parameter alone: another gradient does not change with it."""
    a, b = (wisp.randn(8, device="cuda", requires_grad=True) for _ in range(2))
    (a + b).sum().backward()
    kept = b.grad.clone()
    a.grad.mul_(3)
    assert wisp.equal(b.grad, kept)
    (a + b).sum().backward()
    near(a.grad, wisp.full((8,), 4.0), 1e-6)
    near(b.grad, wisp.full((8,), 2.0), 1e-6)
