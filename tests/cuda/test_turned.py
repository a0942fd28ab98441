"""Convolutions and group norms of compiled regions, whose images have their channels last though nobody sees it."""

import copy

import pytest

import wisp
from wisp import nn
from wisp.nn import functional as F


class Block(nn.Module):
    def __init__(self, come, go):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, come), nn.GroupNorm(8, go)
        self.conv1, self.conv2 = nn.Conv2d(come, go, 3, padding=1), nn.Conv2d(go, go, 3, padding=1)
        self.time, self.side = nn.Linear(16, go), nn.Conv2d(come, go, 1) if come != go else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.side(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)
        self.a, self.b, self.c, self.d = Block(32, 32), Block(32, 64), Block(128, 32), Block(64, 32)
        self.down, self.up = nn.Conv2d(32, 32, 3, 2, 1), nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(32, 32, 3, padding=1))
        self.norm, self.qkv = nn.GroupNorm(8, 64), nn.Conv2d(64, 192, 1)

    def forward(self, x, t):
        x = self.a(self.first(x), t)
        kept = x
        low = x = self.b(self.down(x), t)
        q, k, v = self.qkv(self.norm(x)).view(x.shape[0], 3, 1, 64, -1).transpose(-1, -2).unbind(1)
        x = wisp.cat([F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(x.shape), low], 1)
        x = self.up(self.c(x, t))
        return self.last(F.silu(self.d(wisp.cat([x, kept], 1), t)))


def far(a, b):
    return float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-12))


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_a_unet_learns_as_it_does_eagerly(last):
    wisp.manual_seed(0)
    exact = UNet().cuda()
    x, t, y = wisp.randn(4, 3, 16, 16, device="cuda"), wisp.randn(4, 16, device="cuda"), wisp.randn(4, 3, 16, 16, device="cuda")
    models = exact, copy.deepcopy(exact), copy.deepcopy(exact)
    if last:
        models = [m.to(memory_format=wisp.channels_last) for m in models]

    def step(model, lower):
        model.zero_grad()
        with wisp.autocast("cuda", dtype=wisp.bfloat16, enabled=lower):
            out = model(x, t)
        loss = F.mse_loss(out.float(), y)
        loss.backward()
        return out

    compiled = wisp.compile(step)
    for _ in range(3):  # the first region does not know yet that there will be a backward pass
        wanted, eager, got = step(models[0], False), step(models[1], True), compiled(models[2], True)
    assert got.stride() == eager.stride() and got.dtype == eager.dtype
    assert far(got, wanted) < 1.5 * far(eager, wanted) + 1e-3
    for (name, e), p, q in zip(exact.named_parameters(), models[1].parameters(), models[2].parameters(), strict=True):
        assert q.grad.stride() == p.grad.stride() and q.grad.dtype == p.grad.dtype, name
        assert far(q.grad, e.grad) < 1.5 * far(p.grad, e.grad) + 5e-3, (name, far(q.grad, e.grad), far(p.grad, e.grad))
    before = [p.grad.clone() for p in models[2].parameters()]
    compiled(models[2], True)
    assert all(wisp.equal(a, p.grad) for a, p in zip(before, models[2].parameters(), strict=True))


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.bfloat16, wisp.float16, wisp.float64])
@pytest.mark.parametrize(
    "shape,groups",
    [((4, 64, 16, 16), 8), ((2, 6, 5), 3), ((3, 8, 7, 9), 1), ((2, 30, 1, 3), 30), ((2, 512, 8, 8), 32), ((4, 32, 64, 65), 8)],
)
@pytest.mark.parametrize("last", [False, True])
def test_group_norm_in_regions(dtype, shape, groups, last):
    if last and len(shape) != 4:
        shape = (*shape, 1)
    x = (wisp.randn(*shape, generator=wisp.Generator().manual_seed(1)) * 3 + 5).to(dtype).cuda()
    w, b, g = wisp.randn(shape[1]).to(dtype).cuda(), wisp.randn(shape[1]).to(dtype).cuda(), wisp.randn(*shape).to(dtype).cuda()
    if last:
        x = x.contiguous(memory_format=wisp.channels_last)

    def f(x, w, b):
        x, w, b = (v.detach().requires_grad_() for v in (x, w, b))
        y = F.silu(F.group_norm(x * 1, groups, w, b))
        y.backward(g.to(x.device, y.dtype))
        return y.detach(), x.grad, w.grad, b.grad

    near = {wisp.float64: 1e-12, wisp.float32: 1e-4}.get(dtype, 2e-2)
    wanted, eager, compiled = f(x.cpu().double(), w.cpu().double(), b.cpu().double()), f(x, w, b), wisp.compile(f)
    for _ in range(2):
        got = compiled(x, w, b)
    for a, e, c in zip(got, eager, wanted, strict=True):
        assert a.stride() == e.stride() and a.dtype == e.dtype
        assert far(e.cpu(), c) < near and far(a.cpu(), c) < 2 * far(e.cpu(), c) + near / 10


def test_halves_of_a_float_norm_under_autocast():
    x = wisp.randn(2, 32, 8, 8, device="cuda", dtype=wisp.bfloat16, requires_grad=True)
    norm = nn.GroupNorm(4, 32).cuda()

    def f(x):
        with wisp.autocast("cuda", dtype=wisp.bfloat16):
            y = norm(x * 2)
        (y * y * y).sum().backward()
        return y.detach()

    eager = f(x)
    wanted, x.grad = x.grad, None
    got = wisp.compile(f)(x)
    assert eager.dtype == got.dtype == wisp.float32 and far(got, eager) < 1e-5 and far(x.grad, wanted) < 1e-2


def test_second_derivatives():
    x = wisp.randn(2, 8, 4, 4, device="cuda", requires_grad=True)

    def f(x):
        y = F.group_norm(x, 2).square().sum()
        (g,) = wisp.autograd.grad(y, x, create_graph=True)
        (h,) = wisp.autograd.grad((g * g).sum() + F.group_norm(x, 2).pow(3).sum(), x)
        return h

    assert far(wisp.compile(f)(x), f(x)) < 1e-3
