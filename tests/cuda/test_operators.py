"""The GPU gives what the CPU gives: pointwise rows, copies, reductions, products, over dtypes and layouts."""

import pytest

import wisp

UNARY = """abs neg sgn sign square reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh
asinh acosh atanh sigmoid floor ceil trunc round frac deg2rad rad2deg erf erfc erfinv lgamma digamma sinc i0 isnan isinf isfinite
isposinf isneginf signbit logical_not relu""".split()
BINARY = """add sub mul div remainder fmod pow maximum minimum fmax fmin atan2 hypot copysign nextafter logaddexp logaddexp2 xlogy
eq ne lt le gt ge logical_and logical_or logical_xor""".split()
ACTIVATIONS = """gelu silu mish softplus logsigmoid hardtanh relu6 hardsigmoid hardswish hardshrink softshrink elu celu selu
leaky_relu""".split()


def near(gpu, cpu, tolerance=2e-5):
    assert gpu.device.type == "cuda" and gpu.dtype == cpu.dtype and gpu.shape == cpu.shape, (gpu.device, gpu.dtype, gpu.shape, cpu.shape)
    wisp.testing.assert_close(gpu.cpu(), cpu, rtol=tolerance, atol=tolerance, equal_nan=True)


def layouts(x):
    yield x
    yield x.t().contiguous().t()
    yield wisp.cat([x, x], 1)[:, ::2].contiguous()[:, : x.shape[1] - 1] if x.shape[1] > 1 else x
    yield x[:, :1].expand(x.shape)
    yield x[0, 0]
    yield x[:0]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    f = getattr(wisp, name)
    x = wisp.rand(33, 40) * 0.9 + 0.05
    for v in layouts(x):
        near(f(v.cuda()), f(v), 3e-5)
    if name in ("acosh", "round"):
        return
    a, b = x.clone().requires_grad_(), x.cuda().requires_grad_()
    ya, yb = f(a), f(b)
    if ya.requires_grad:
        g = wisp.randn(ya.shape)
        ya.backward(g)
        yb.backward(g.cuda())
        near(b.grad, a.grad, 1e-4)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    f = getattr(wisp.nn.functional, name)
    for dtype, tolerance in ((wisp.float32, 2e-5), (wisp.float64, 1e-10), (wisp.bfloat16, 2e-2), (wisp.float16, 3e-3)):
        x = (wisp.randn(17, 65) * 3).to(dtype)
        near(f(x.cuda()), f(x), tolerance)
    a, b = x.float().requires_grad_(), x.float().cuda().requires_grad_()
    f(a).sum().backward()
    f(b).sum().backward()
    near(b.grad, a.grad, 1e-4)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    f = getattr(wisp, name)
    x, y = wisp.rand(33, 40) + 0.1, wisp.rand(33, 40) + 0.1
    for v in layouts(x):
        near(f(v.cuda(), v.cuda()), f(v, v), 3e-5)
    near(f(x.cuda(), y.cuda()), f(x, y), 3e-5)
    near(f(x.cuda(), y[0].cuda()), f(x, y[0]), 3e-5)
    near(f(x.cuda(), y[:, :1].cuda()), f(x, y[:, :1]), 3e-5)
    near(f(x.cuda(), y[1, 2]), f(x, y[1, 2]), 3e-5)  # a 0-dim tensor on the CPU joins
    near(
        f(x.t().cuda(), y[:, :33].t().contiguous()[:33].t().cuda()[:33, :33].t()[0]),
        f(x.t(), y[:, :33].t().contiguous()[:33].t()[:33, :33].t()[0]),
        3e-5,
    )
    if name not in ("hypot", "nextafter", "logaddexp", "logaddexp2"):
        i, j = wisp.randint(1, 9, (5, 7)), wisp.randint(1, 5, (7,)).to(wisp.int32)
        near(f(i.cuda(), j.cuda()), f(i, j))


def test_powers_are_near_and_special_ones_are_right():
    wisp.manual_seed(0)
    wide = ((wisp.rand(100_000) * 240 - 120).exp2(), wisp.rand(100_000) * 2 - 1)
    steep = (wisp.rand(100_000) + 0.6, wisp.rand(100_000) * 240 - 120)
    for x, y in (wide, steep):
        expected, got = x.double() ** y.double(), (x.cuda() ** y.cuda()).cpu().double()
        assert ((got - expected).abs() <= 2.0**-22 * expected.abs()).all()  # two units in the last place
    inf, nan = float("inf"), float("nan")
    numbers = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.3, -0.3, inf, -inf, nan, 1e-40, -1e-40, 3e38, 1e-38, 3.0, -3.0, 0.25]
    x, y = wisp.meshgrid(wisp.tensor(numbers), wisp.tensor(numbers), indexing="ij")
    expected, got = x**y, (x.cuda() ** y.cuda()).cpu()
    assert wisp.allclose(got, expected, 1e-6, 1e-44, equal_nan=True)
    assert wisp.equal(got.signbit()[~got.isnan()], expected.signbit()[~expected.isnan()])


@pytest.mark.parametrize("name", ["add", "mul", "div", "pow", "maximum", "atan2", "hypot", "logaddexp", "xlogy"])
def test_binary_gradients(name):
    f = getattr(wisp, name)
    x, y = wisp.rand(6, 5) + 0.1, wisp.rand(5) + 0.1
    pairs = [(x.clone().requires_grad_(), y.clone().requires_grad_()), (x.cuda().requires_grad_(), y.cuda().requires_grad_())]
    grads = [wisp.autograd.grad(f(a, b).square().sum(), (a, b)) for a, b in pairs]
    for cpu, gpu in zip(*grads):
        near(gpu, cpu, 1e-4)


DTYPES = [
    wisp.uint8,
    wisp.int8,
    wisp.int16,
    wisp.int32,
    wisp.int64,
    wisp.float16,
    wisp.bfloat16,
    wisp.float32,
    wisp.float64,
    wisp.complex64,
    wisp.complex128,
    wisp.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_casts_and_copies(dtype):
    x = (wisp.rand(31, 50) * 100).to(dtype)
    for other in DTYPES:
        near(x.cuda().to(other), x.to(other), 0)
        near(x.t().cuda().to(other), x.t().to(other), 0)
    for v in layouts(x):
        near(v.cuda(), v, 0)
    near(x.cuda().t().contiguous(), x.t().contiguous(), 0)
    g = x.cuda()
    g[3:7] = x[1, 1]
    h = x.clone()
    h[3:7] = x[1, 1]
    near(g, h, 0)
    near(wisp.where(x.cuda() != 0, x.cuda(), 1), wisp.where(x != 0, x, 1), 0)
    near(wisp.zeros(3, 4, dtype=dtype, device="cuda"), wisp.zeros(3, 4, dtype=dtype), 0)
    near(wisp.full((3, 4), 1, dtype=dtype, device="cuda"), wisp.full((3, 4), 1, dtype=dtype), 0)


@pytest.mark.parametrize("name", "sum mean prod amax amin any all var std norm logsumexp count_nonzero argmax argmin nansum".split())
@pytest.mark.parametrize("shape", [(7,), (5, 300), (300, 5), (4, 65, 33), (1, 100000), (70000, 3), (2, 1, 3), (64, 4096)], ids=str)
def test_reductions(name, shape):
    x = wisp.randn(shape) * 0.5 + (1.0 if name == "prod" else 0)
    f = getattr(wisp, name)
    if name == "prod" and x.numel() > 400:
        x = x / x
    if name not in ("logsumexp", "amax", "amin"):
        near(f(x.cuda()), f(x), 1e-3)
    for v in (x, x.transpose(0, -1)):
        for dim in range(v.dim()):
            near(f(v.cuda(), dim=dim), f(v, dim=dim), 1e-3)
    if x.dim() == 3 and name in ("sum", "mean", "var", "amax"):
        near(f(x.cuda(), dim=(0, 2), keepdim=True), f(x, dim=(0, 2), keepdim=True), 1e-3)
    if name in ("amax", "argmax"):
        y = x.clone()
        y.view(-1)[y.numel() // 2] = float("nan")
        near(f(y.cuda(), dim=0), f(y, dim=0), 0)


def test_named_extremes():
    x = wisp.randn(40, 50)
    for name in ("max", "min"):
        cpu, gpu = getattr(x, name)(1), getattr(x.cuda(), name)(1)
        near(gpu.values, cpu.values, 0)
        near(gpu.indices, cpu.indices, 0)


@pytest.mark.parametrize(
    "dtype, tolerance", [(wisp.float32, 1e-4), (wisp.float64, 1e-10), (wisp.bfloat16, 2e-1), (wisp.float16, 3e-2), (wisp.complex64, 1e-4)]
)
def test_products(dtype, tolerance):
    def r(*sizes):
        return wisp.randn(*sizes, dtype=wisp.complex64 if dtype.is_complex else wisp.float32).to(dtype)

    a, b = r(37, 64), r(64, 29)
    near(a.cuda() @ b.cuda(), a @ b, tolerance)
    near(a.cuda() @ b.t().contiguous().cuda().t(), a @ b, tolerance)
    near(b.cuda().t() @ a.cuda().t(), b.t() @ a.t(), tolerance)
    near(a.cuda()[:, ::2] @ b.cuda()[::2], a[:, ::2] @ b[::2], tolerance)
    p, q = r(3, 5, 8, 16), r(5, 16, 9)
    near(p.cuda() @ q.cuda(), p @ q, tolerance)
    near(a.cuda() @ b.cuda()[:, 0], a @ b[:, 0], tolerance)
    bias, w = r(29), r(29, 64)
    near(wisp.nn.functional.linear(a.cuda(), w.cuda(), bias.cuda()), wisp.nn.functional.linear(a, w, bias), tolerance)
    c = r(37, 29)
    near(wisp.addmm(c.cuda(), a.cuda(), b.cuda(), beta=0.5, alpha=2), wisp.addmm(c, a, b, beta=0.5, alpha=2), tolerance)
    near(wisp.einsum("bij,bjk->ik", p.cuda()[0], q.cuda()), wisp.einsum("bij,bjk->ik", p[0], q), tolerance * 4)


def test_training_an_mlp():
    wisp.manual_seed(0)
    model = wisp.nn.Sequential(wisp.nn.Linear(20, 64), wisp.nn.ReLU(), wisp.nn.Linear(64, 3))
    x, y = wisp.randn(50, 20), wisp.randn(50, 3)
    twin = wisp.nn.Sequential(wisp.nn.Linear(20, 64), wisp.nn.ReLU(), wisp.nn.Linear(64, 3))
    twin.load_state_dict(model.state_dict())
    twin.cuda()
    for m, a, b in ((model, x, y), (twin, x.cuda(), y.cuda())):
        for _ in range(20):
            loss = (m(a) - b).square().mean()
            m.zero_grad()
            loss.backward()
            with wisp.no_grad():
                for p in m.parameters():
                    p -= 0.05 * p.grad
    for a, b in zip(model.parameters(), twin.parameters()):
        near(b.detach(), a.detach(), 1e-4)


@pytest.mark.parametrize("dims", [11, 14, 16])
def test_many_dimensions(dims):
    """More of them than a kernel counts, in an order that merges none."""
    x = wisp.arange(2**dims).reshape([2] * dims).float()
    a, b = (y.permute(*range(dims - 1, -1, -1)) for y in (x, x.cuda()))
    index = wisp.tensor([1, 0])
    for f in (
        lambda y: y + y.transpose(0, -1),
        lambda y: y.transpose(0, 3).contiguous(),
        lambda y: y.sum(tuple(range(0, dims, 2))),
        lambda y: y.argmax(2),
        lambda y: y.amax((1, 4)),
        lambda y: y[index.to(y.device)],
        lambda y: y.gather(0, (y % 2).long()),
        lambda y: y.cumsum(2),
        lambda y: y.flip((0, 2)),
        lambda y: wisp.where(y.transpose(0, 2) % 3 == 0, y, 1.0),
        lambda y: wisp.cat([y, y], 3),
        lambda y: y.softmax(1),
        lambda y: y.nonzero(),
    ):
        near(f(b), f(a), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_of_nothing(dtype):
    a, b, c = wisp.zeros(3, 0).to(dtype), wisp.zeros(0, 4).to(dtype), wisp.ones(4).to(dtype)
    if dtype == wisp.bool:
        return
    near(a.cuda() @ b.cuda(), wisp.zeros(3, 4).to(dtype), 0)
    near(wisp.addmm(c.cuda(), a.cuda(), b.cuda(), beta=3), wisp.full((3, 4), 3).to(dtype), 0)
    near(a.cuda()[None].expand(2, 3, 0) @ b.cuda(), wisp.zeros(2, 3, 4).to(dtype), 0)
    if dtype.is_floating_point or dtype.is_complex:
        x = wisp.ones(3, 4).to(dtype).cuda().requires_grad_()
        (x @ b.t().cuda()).abs().sum().backward()
        near(x.grad, wisp.zeros(3, 4).to(dtype), 0)


def test_mixtures_say_so():
    x = wisp.randn(4, 4, device="cuda")
    with pytest.raises(RuntimeError, match="cuda:0 and cpu"):
        x + wisp.randn(4, 4)
    assert (x + 1).sum().item() == pytest.approx((x.cpu() + 1).sum().item(), rel=1e-5)
