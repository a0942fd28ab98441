"""Convolution, batch normalisation and pooling: every kind, contiguous and channels last, against the CPU."""

import pytest
from test_families import both
from test_operators import near

import wisp
import wisp.nn.functional as F
from wisp import nn


@pytest.fixture(autouse=True)
def full_precision():
    with wisp.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


CONVOLUTIONS = [
    (1, (2, 6, 20), (8, 6, 3), {"padding": 1}),
    (2, (2, 6, 12, 10), (8, 6, 3, 3), {"padding": 1, "stride": 2}),
    (2, (2, 3, 33, 47), (40, 3, 7, 7), {"padding": 3, "stride": 2}),
    (2, (2, 2, 31, 29), (36, 2, 5, 4), {"padding": (2, 0), "stride": 3}),
    (2, (3, 8, 9, 9), (16, 4, 3, 3), {"groups": 2, "dilation": 2}),
    (2, (2, 8, 9, 7), (8, 1, 3, 3), {"groups": 8, "padding": 1}),
    (2, (2, 8, 19, 17), (8, 1, 7, 7), {"groups": 8, "padding": 3}),
    (2, (3, 5, 6, 40), (5, 1, 5, 5), {"groups": 5, "padding": (4, 1)}),
    (2, (2, 8, 9, 7), (12, 8, 1, 1), {}),
    (2, (2, 5, 9, 7), (7, 5, 4, 2), {"padding": "same"}),
    (3, (2, 4, 6, 5, 7), (6, 4, 3, 2, 3), {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
]


@pytest.mark.parametrize("dims, shape, weight, options", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_convolution(dims, shape, weight, options, last):
    if last and dims == 1:
        pytest.skip("one dimension has no such format")
    format = {2: wisp.channels_last, 3: wisp.channels_last_3d}.get(dims)
    convolution = getattr(F, f"conv{dims}d")

    def f(x, w, b):
        if last:
            x, w = x.contiguous(memory_format=format), w.contiguous(memory_format=format)
        y = convolution(x, w, b, **options)
        if last and x.is_cuda and options.get("padding") != "same" and x.dtype != wisp.float64:
            assert y.is_contiguous(memory_format=format)
        return y

    for dtype in (wisp.float32, wisp.float64):
        both(f, wisp.randn(shape, dtype=dtype), wisp.randn(weight, dtype=dtype), wisp.randn(weight[0], dtype=dtype), tolerance=1e-4)


@pytest.mark.parametrize("dtype", [wisp.float16, wisp.bfloat16], ids=str)
def test_kernels_for_each_channel_and_patches_of_half_precision(dtype):
    for shape, weight, options in (
        ((2, 6, 30, 33), (6, 1, 7, 7), {"groups": 6, "padding": 3}),
        ((3, 3, 32, 48), (20, 3, 16, 16), {"stride": 16}),
        ((2, 5, 8, 20), (9, 5, 4, 5), {"stride": (4, 5)}),
    ):
        x, w, b = (wisp.randn(s).to(dtype) for s in (shape, weight, weight[:1]))
        near_half = {"tolerance": 3e-2 if dtype is wisp.float16 else 0.2}
        both(lambda x, w, b: F.conv2d(x, w, b, **options) / w[0].numel() ** 0.5, x, w, b, **near_half)


def test_integers():
    x, w, b = wisp.randint(-9, 9, (2, 4, 9, 8)), wisp.randint(-9, 9, (6, 2, 3, 2)), wisp.randint(-9, 9, (6,))
    for options in ({"groups": 2}, {"groups": 2, "padding": (1, 2), "stride": 2, "dilation": (1, 2)}):
        assert wisp.equal(F.conv2d(x.cuda(), w.cuda(), b.cuda(), **options).cpu(), F.conv2d(x, w, b, **options))
    turned = wisp.randint(-9, 9, (4, 3, 3, 2))
    args = {"stride": 2, "padding": 1, "output_padding": 1}
    assert wisp.equal(F.conv_transpose2d(x.cuda(), turned.cuda(), **args).cpu(), F.conv_transpose2d(x, turned, **args))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed(dims):
    convolution = getattr(F, f"conv_transpose{dims}d")
    x, w, b = wisp.randn(2, 6, *(5, 7, 6)[:dims]), wisp.randn(6, 4, *(3, 4, 2)[:dims]), wisp.randn(8)
    for options in (
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
        {"stride": 1, "dilation": 3, "output_padding": 2, "groups": 2},
    ):
        both(lambda x, w, b: convolution(x, w, b, **options), x, w, b, tolerance=1e-4)


def test_a_large_one():
    x, w = wisp.randn(8, 64, 60, 60), wisp.randn(64, 64, 3, 3) / 24
    both(lambda x, w: F.conv2d(x, w, padding=1), x, w, tolerance=4e-3)
    turned = x.cuda().contiguous(memory_format=wisp.channels_last)
    assert wisp.equal(turned, x.cuda()) and wisp.equal(turned.contiguous(), x.cuda())


def test_reduced_precision_and_second_order():
    x, w = wisp.randn(4, 16, 14, 14), wisp.randn(32, 16, 3, 3)
    exact = F.conv2d(x, w, padding=1)
    for dtype in (wisp.bfloat16, wisp.float16):
        for format in (wisp.contiguous_format, wisp.channels_last):
            y = F.conv2d(x.cuda().to(dtype).contiguous(memory_format=format), w.cuda().to(dtype), padding=1)
            assert y.dtype == dtype and y.is_contiguous(memory_format=format)
            near(y.float(), exact, 0.3)

    def second(x, w):
        (g,) = wisp.autograd.grad((F.conv2d(x, w, padding=1) ** 2).sum(), x, create_graph=True)
        return g

    both(second, wisp.randn(2, 3, 6, 6, dtype=wisp.float64), wisp.randn(4, 3, 3, 3, dtype=wisp.float64))


def test_empty_and_settings():
    assert F.conv2d(wisp.zeros(0, 3, 8, 8).cuda(), wisp.zeros(4, 3, 3, 3).cuda()).shape == (0, 4, 6, 6)
    settings = wisp.backends.cudnn
    x, w = wisp.randn(2, 8, 16, 16).cuda(), wisp.randn(8, 8, 3, 3).cuda()
    expected = F.conv2d(x, w).cpu()
    with settings.flags(benchmark=True, deterministic=False, allow_tf32=False):
        assert settings.benchmark and not settings.deterministic and not settings.allow_tf32
        near(F.conv2d(x, w), expected, 1e-4)
    assert settings.version() > 9000


@pytest.mark.parametrize("shape", [(6, 8), (5, 3, 7), (4, 16, 6, 6), (3, 5, 7, 5), (2, 8, 3, 4, 4), (33, 64, 17, 9)], ids=str)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("last", [False, True])
def test_batch_norm(shape, training, last):
    format = {4: wisp.channels_last, 5: wisp.channels_last_3d}.get(len(shape))
    if last and not format:
        pytest.skip("no such format")
    c = shape[1]
    mean, var = wisp.randn(c), wisp.rand(c) + 0.5
    after = []

    def f(x, w, b):
        if last:
            x = x.contiguous(memory_format=format)
        m, v = mean.to(x.device, x.dtype, copy=True), var.to(x.device, x.dtype, copy=True)
        y = F.batch_norm(x, m, v, w, b, training, 0.3, 1e-3)
        after.append((m, v))
        if last:
            assert not x.is_cuda or y.is_contiguous(memory_format=format)
        return y

    for dtype in (wisp.float32, wisp.float64):
        both(f, wisp.randn(shape, dtype=dtype) * 2 + 5, wisp.randn(c, dtype=dtype), wisp.randn(c, dtype=dtype), tolerance=2e-4)
    for cpu, gpu in zip(after[::2], after[1::2]):
        for a, b in zip(cpu, gpu):
            near(b, a, 1e-4)


def test_batch_norm_of_mixed_dtypes():
    x, layer = wisp.randn(8, 16, 10, 10), nn.BatchNorm2d(16)
    y = layer.cuda()(x.cuda().bfloat16())
    assert y.dtype == wisp.bfloat16
    y.float().square().sum().backward()
    assert layer.weight.grad.dtype == wisp.float32
    near(y.float(), nn.BatchNorm2d(16)(x), 0.05)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
def test_pools(last, dtype):
    def kept(f):
        def g(x):
            if last:
                x = x.contiguous(memory_format=wisp.channels_last)
            y = f(x)
            first = y[0] if isinstance(y, tuple) else y
            assert not (last and x.is_cuda) or first.is_contiguous(memory_format=wisp.channels_last)
            return y

        return g

    for channels in (3, 8):
        x = wisp.randn(2, channels, 13, 10, dtype=dtype)
        both(kept(lambda x: F.max_pool2d(x, 3, 2, 1)), x)
        both(kept(lambda x: F.max_pool2d(x, 2, 3, dilation=2, ceil_mode=True)), x)
        both(kept(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)), x)
        both(kept(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)), x)
        both(kept(lambda x: F.adaptive_avg_pool2d(x, (5, 4))), x)
        both(kept(lambda x: F.adaptive_max_pool2d(x, (5, 4))), x)
    both(lambda x: F.max_pool3d(x, 2), wisp.randn(2, 4, 6, 5, 8, dtype=dtype))
    near(F.max_pool2d(x.cuda().bfloat16(), 2).float(), F.max_pool2d(x.float(), 2), 0.05)


def test_a_network_keeps_its_format():
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.ReLU(inplace=True),
    )
    x = wisp.randn(4, 3, 32, 32)
    expected = net(x)
    expected.square().mean().backward()
    grads = [p.grad for p in net.parameters()]
    moved = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 32, 3, 1, 1),
        nn.ReLU(inplace=True),
    )
    moved.load_state_dict({k: v for k, v in net.state_dict().items()})
    moved = moved.cuda().to(memory_format=wisp.channels_last)
    assert moved[0].weight.is_contiguous(memory_format=wisp.channels_last)
    y = moved(x.cuda().contiguous(memory_format=wisp.channels_last))
    assert y.is_contiguous(memory_format=wisp.channels_last)
    near(y, expected, 1e-3)
    y.square().mean().backward()
    for p, g in zip(moved.parameters(), grads):
        near(p.grad, g, 1e-3)
        assert p.grad.stride() == p.stride()
