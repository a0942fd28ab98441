"""Layers and samplers whose kernels choose by shape: each way gives the CPU's results."""

import pytest
from test_families import both
from test_operators import near

import wisp
import wisp.nn.functional as F


@pytest.mark.parametrize("n", [4, 8, 12, 16, 20, 32, 60, 64, 68])
def test_softmax_of_short_rows(n):
    for rows in (1, 3, 1000):
        x = wisp.randn(rows, n)
        both(lambda x: x.softmax(-1), x)
        both(lambda x: x.log_softmax(-1), x)
    for dtype in (wisp.bfloat16, wisp.float64):
        near(x.to(dtype).cuda().softmax(-1), x.to(dtype).softmax(-1), 1e-2 if dtype is wisp.bfloat16 else 1e-12)


@pytest.mark.parametrize("size", [1, 7, (1, 3), 56], ids=str)
def test_adaptive_average_pooling(size):
    both(lambda x: F.adaptive_avg_pool2d(x, size), wisp.randn(3, 5, 56, 56))
    both(lambda x: F.adaptive_avg_pool2d(x, size), wisp.randn(2, 3, 61, 57))


def test_adaptive_average_pooling_of_volumes():
    both(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), wisp.randn(2, 3, 9, 20, 17))
    both(lambda x: F.adaptive_avg_pool1d(x, 3), wisp.randn(2, 3, 1000))


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_local_response_norm(size):
    both(lambda x: F.local_response_norm(x, size), wisp.randn(2, 7, 5, 6))
    both(lambda x: F.local_response_norm(x, size), wisp.randn(2, 7, 5))


def test_distributions_are_those_of_the_cpu():
    for name, arguments in (("exponential_", (1.5,)), ("cauchy_", (1.0, 2.0)), ("geometric_", (0.3,)), ("log_normal_", (0.5, 0.25))):
        for dtype in (wisp.float32, wisp.float64):
            wisp.manual_seed(3)
            cpu = getattr(wisp.empty(10_007, dtype=dtype), name)(*arguments)
            wisp.manual_seed(3)
            near(getattr(wisp.empty(10_007, dtype=dtype, device="cuda"), name)(*arguments), cpu, 1e-5)
    p = wisp.rand(10_007)
    for dtype in (wisp.float32, wisp.float64, wisp.float16):
        wisp.manual_seed(4)
        cpu = wisp.bernoulli(p.to(dtype))
        wisp.manual_seed(4)
        assert wisp.equal(wisp.bernoulli(p.to(dtype).cuda()).cpu(), cpu)


def test_the_last_of_several_values_stays():
    index = wisp.randint(0, 50, (3000,))
    for dtype in (wisp.float32, wisp.float64, wisp.int8, wisp.complex128):
        x, z = wisp.randn(3000, 6).to(dtype), wisp.zeros(50, 6).to(dtype)
        assert wisp.equal(z.cuda().index_put((index.cuda(),), x.cuda()).cpu(), z.index_put((index,), x))
        assert wisp.equal(z.cuda().index_copy(0, index.cuda(), x.cuda()).cpu(), z.index_copy(0, index, x))
        columns = z.t().contiguous()
        assert wisp.equal(columns.cuda().index_copy(1, index.cuda(), x.t().cuda()).cpu(), columns.index_copy(1, index, x.t()))
    y = wisp.zeros(4, 50)
    g = y.cuda()
    y[:, -index[:20] % 50] = 3.0
    g[:, (-index[:20] % 50).cuda()] = 3.0
    assert wisp.equal(g.cpu(), y)


def test_windows_and_grids():
    both(lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=2), wisp.randn(2, 3, 11, 13))
    both(lambda x: F.fold(F.unfold(x, 3, padding=1), (11, 13), 3, padding=1), wisp.randn(2, 3, 11, 13))
    for mode in ("nearest", "bilinear", "bicubic"):
        both(lambda x, mode=mode: F.interpolate(x, scale_factor=1.7, mode=mode), wisp.randn(2, 3, 11, 13))
    for channels in (1, 3, 4, 9):
        both(lambda x, g: F.grid_sample(x, g, align_corners=False), wisp.randn(2, channels, 11, 13), wisp.rand(2, 7, 9, 2) * 2.2 - 1.1)
    both(lambda x: x.tril(-1) + x.triu(2), wisp.randn(3, 7, 9))
