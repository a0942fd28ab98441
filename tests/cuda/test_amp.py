"""Autocast and GradScaler on the GPU; pinned memory and copies that are not waited for."""

import gc

import pytest
from test_operators import near

import wisp
import wisp.nn.functional as F
from wisp import nn
from wisp.utils.data import DataLoader, TensorDataset


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float16])
def test_dtypes_by_list(dtype):
    a, image = wisp.rand(8, 8).cuda(), wisp.rand(2, 8, 8, 8).cuda()
    with wisp.autocast("cuda", dtype=dtype):
        product = a @ a
        assert product.dtype == wisp.mm(a, a).dtype == nn.Linear(8, 8).cuda()(a).dtype == nn.Conv2d(8, 4, 3).cuda()(image).dtype == dtype
        for f in (
            wisp.exp,
            wisp.sum,
            lambda x: x.softmax(-1),
            lambda x: x**2,
            lambda x: F.layer_norm(x, (8,)),
            lambda x: x.norm(),
            lambda x: x.logsumexp(0),
        ):
            assert f(product).dtype == wisp.float32
        assert F.cross_entropy(product, wisp.arange(8).cuda()).dtype == F.mse_loss(product, product).dtype == wisp.float32
        assert F.relu(product).dtype == dtype and product.sum(dtype=dtype).dtype == dtype and (product + a).dtype == wisp.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(a, a)
        assert (a.cpu() @ a.cpu()).dtype == wisp.float32 and wisp.is_autocast_enabled() and not wisp.is_autocast_cpu_enabled()
    assert (a @ a).dtype == wisp.float32 and wisp.get_autocast_gpu_dtype() == wisp.float16


def test_weights_are_cast_once():
    layer, x = nn.Linear(64, 64).cuda(), wisp.randn(4, 64).cuda()
    with wisp.autocast("cuda", dtype=wisp.bfloat16):
        y = layer(layer(layer(x)))
        before = wisp.cuda.memory_allocated()
        layer(x)  # casts no weight again
        assert wisp.cuda.memory_allocated() - before < 64 * 64 * 2
    y.float().sum().backward()
    assert layer.weight.grad.dtype == wisp.float32
    with wisp.no_grad():
        layer.weight.add_(1)
    with wisp.autocast("cuda", dtype=wisp.bfloat16):
        assert not wisp.equal(layer(x), y)


def test_cross_entropy_under_autocast():
    x, t = wisp.randn(16, 1000), wisp.randint(0, 1000, (16,))
    a, b = x.bfloat16().float().requires_grad_(), x.bfloat16().cuda().requires_grad_()
    F.cross_entropy(a, t).backward()
    with wisp.autocast("cuda", dtype=wisp.bfloat16):
        loss = F.cross_entropy(b, t.cuda())
    loss.backward()
    assert loss.dtype == wisp.float32 and b.grad.dtype == wisp.bfloat16
    near(b.grad.float(), a.grad, 1e-3)
    with wisp.autocast("cuda", dtype=wisp.bfloat16):
        near(F.cross_entropy(b, t.cuda(), weight=wisp.ones(1000).cuda()), F.cross_entropy(a, t), 1e-4)
        near(F.cross_entropy(b, wisp.softmax(x, 1).cuda()), F.cross_entropy(a, wisp.softmax(x, 1)), 1e-4)


def test_the_scaler_skips_and_adapts():
    weight = nn.Parameter(wisp.ones(3, device="cuda"))
    optimizer = wisp.optim.SGD([weight], lr=1.0)
    scaler = wisp.cuda.amp.GradScaler(init_scale=8.0, growth_interval=2)
    for factor, expected, scale in ((1.0, 0.0, 8.0), (float("inf"), 0.0, 4.0), (1.0, -1.0, 4.0), (1.0, -2.0, 8.0)):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert weight.tolist() == [expected] * 3 and scaler.get_scale() == scale
    other = wisp.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8.0


def test_training_with_autocast_converges():
    wisp.manual_seed(0)
    x = wisp.randn(256, 16)
    y = (x[:, :4].sum(1) > 0).long()
    for dtype in (wisp.bfloat16, wisp.float16):
        net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 2)).cuda()
        optimizer, scaler = wisp.optim.AdamW(net.parameters(), lr=1e-2, fused=True), wisp.amp.GradScaler(enabled=dtype == wisp.float16)
        for _ in range(60):
            optimizer.zero_grad()
            with wisp.autocast("cuda", dtype=dtype):
                loss = F.cross_entropy(net(x.cuda()), y.cuda())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert loss.item() < 0.1


def test_pinned_memory():
    x = wisp.randn(1000, 1000)
    p = x.pin_memory()
    assert p.is_pinned() and not x.is_pinned() and p[3:].is_pinned() and p.pin_memory() is p and wisp.equal(p, x)
    assert wisp.empty(5, pin_memory=True).is_pinned() and wisp.tensor([1.0], pin_memory=True).is_pinned() and not p.clone().is_pinned()
    on = p.cuda(non_blocking=True)
    p = p * 2  # another tensor
    assert wisp.equal(on.cpu(), x)
    for k in range(20):  # blocks are used again, but never before their copy is through
        block = wisp.full((1 << 20,), float(k), pin_memory=True)
        moved = block.to("cuda", non_blocking=True)
        del block
        again = wisp.full((1 << 20,), -1.0, pin_memory=True)
        assert (moved == k).all() and (again == -1).all()
    back = wisp.empty(1000, 1000, pin_memory=True)
    back.copy_(on, non_blocking=True)
    wisp.cuda.synchronize()
    assert wisp.equal(back, x)
    y = wisp.randn(4, 3, 5, 5).contiguous(memory_format=wisp.channels_last)
    assert y.cuda().is_contiguous(memory_format=wisp.channels_last) and wisp.equal(y.cuda().cpu(), y)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins(workers):
    data = TensorDataset(wisp.arange(10).float())
    loader = DataLoader(data, batch_size=4, num_workers=workers, pin_memory=True)
    for _ in range(2):
        batches = [b for (b,) in loader]
        assert all(b.is_pinned() for b in batches) and wisp.cat(batches).tolist() == list(range(10))
    iterator = iter(loader)
    next(iterator)
    del iterator
    gc.collect()


def test_replayed_random_numbers_are_new_ones():
    x = wisp.ones(1000, device="cuda")
    wisp.manual_seed(3)
    expected = [(F.dropout(x), wisp.rand(10, device="cuda")) for _ in range(3)]
    for _ in range(2):  # warm up
        F.dropout(x), wisp.rand(10, device="cuda")
    wisp.manual_seed(3)
    g = wisp.cuda.CUDAGraph()
    with wisp.cuda.graph(g):
        y, r = F.dropout(x), wisp.rand(10, device="cuda")
    for a, b in expected:
        g.replay()
        assert wisp.equal(y, a) and wisp.equal(r, b)
    wisp.manual_seed(3)
    g.replay()
    assert wisp.equal(y, expected[0][0])
    assert not wisp.equal(F.dropout(x), y)

    layer = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5)).cuda()
    given = wisp.randn(8, 64, device="cuda", requires_grad=True)
    replayed = wisp.cuda.make_graphed_callables(layer, (given,))
    masks = []
    for _ in range(3):
        out = replayed(given)
        (grad,) = wisp.autograd.grad(out.sum(), layer[0].bias)
        near(grad, (out != 0).sum(0).float().cpu() * 2, 1e-5)  # the mask of this forward
        masks.append(out != 0)
    assert not wisp.equal(masks[0], masks[1])
