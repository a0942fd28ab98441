"""Families beyond arithmetic: random numbers to the bit, softmax, norms, losses, indexing, scans, sorting, pooling, convolution, optimizers."""

import pytest
from test_operators import near

import wisp
import wisp.nn.functional as F
from wisp import nn


def both(f, *tensors, tolerance=1e-4, grad=True):
    """f on the CPU and on the GPU: the results and the gradients of all floating inputs agree."""
    results = []
    for device in ("cpu", "cuda"):
        given = [t.detach().to(device).requires_grad_(grad and t.is_floating_point()) if isinstance(t, wisp.Tensor) else t for t in tensors]
        y = f(*given)
        outs = y if isinstance(y, tuple) else (y,)
        grads = ()
        if grad and outs[0].requires_grad:
            wisp.manual_seed(3)
            g = wisp.randn(outs[0].shape).to(outs[0].dtype).to(device)
            leaves = [t for t in given if isinstance(t, wisp.Tensor) and t.requires_grad]
            grads = wisp.autograd.grad(outs[0], leaves, g, allow_unused=True)
        results.append((outs, grads))
    for cpu, gpu in zip(results[0][0], results[1][0]):
        near(gpu.detach(), cpu.detach(), tolerance)
    for cpu, gpu in zip(results[0][1], results[1][1]):
        if cpu is not None:
            near(gpu, cpu, tolerance * 3)


@pytest.mark.parametrize("n", [1, 5, 64, 1000, 100003])
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64, wisp.bfloat16, wisp.float16], ids=str)
def test_random_numbers_are_the_same_bits(n, dtype):
    for make in (
        lambda d: wisp.rand(n, dtype=dtype, device=d),
        lambda d: wisp.randn(n, dtype=dtype, device=d),
        lambda d: wisp.empty(n, dtype=dtype, device=d).uniform_(-2, 3),
        lambda d: wisp.randint(-5, 1000, (n,), device=d),
        lambda d: wisp.empty(n, dtype=dtype, device=d).bernoulli_(0.3),
        lambda d: wisp.empty(n + 3, dtype=dtype, device=d)[3:].normal_(),
        lambda d: wisp.randperm(n, device=d),
    ):
        wisp.manual_seed(7)
        cpu = make("cpu")
        wisp.manual_seed(7)
        assert wisp.equal(make("cuda").cpu(), cpu)


def test_dropout_is_the_same_mask():
    for x in (wisp.randn(1000, 37), wisp.randn(1001)[1:], wisp.randn(70).double(), wisp.randn(333).bfloat16()):
        wisp.manual_seed(1)
        a = F.dropout(x, 0.4)
        wisp.manual_seed(1)
        assert wisp.equal(F.dropout(x.cuda(), 0.4).cpu(), a)


@pytest.mark.parametrize(
    "shape, dim", [((4, 10), 1), ((3, 1000), 1), ((2, 5000), -1), ((2, 40000), -1), ((5, 7, 9), 1), ((33,), 0)], ids=str
)
def test_softmax(shape, dim):
    for f in (wisp.softmax, wisp.log_softmax):
        both(lambda x: f(x, dim), wisp.randn(shape) * 3)
    near(wisp.softmax(wisp.randn(4, 300).bfloat16().cuda(), 1), wisp.softmax(wisp.randn(4, 300).bfloat16(), 1) * 0 + 1, 1)


def test_norms():
    x, w, b = wisp.randn(6, 8, 5, 7), wisp.randn(8), wisp.randn(8)
    both(lambda x, w, b: F.layer_norm(x, (5, 7), w, b), x, wisp.randn(5, 7), wisp.randn(5, 7))
    both(lambda x, w: F.rms_norm(x, (7,), w), x, wisp.randn(7))
    both(lambda x, w, b: F.group_norm(x, 4, w, b), x, w, b)
    both(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, w, b)
    both(lambda x, w, b: F.layer_norm(x, (3000,), w, b), wisp.randn(65, 3000), wisp.randn(3000), wisp.randn(3000))
    cpu, gpu = nn.BatchNorm2d(8), nn.BatchNorm2d(8).cuda()
    for _ in range(3):
        y = wisp.randn(6, 8, 5, 7)
        near(gpu(y.cuda()).detach(), cpu(y).detach(), 1e-4)
    near(gpu.running_var, cpu.running_var, 1e-4)
    near(gpu.eval()(x.cuda()).detach(), cpu.eval()(x).detach(), 1e-4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction):
    target = wisp.randint(0, 50, (40,))
    target[3] = -100
    both(lambda x, t: F.cross_entropy(x, t, reduction=reduction), wisp.randn(40, 50), target)
    both(
        lambda x, t, w: F.cross_entropy(x, t, w.detach(), reduction=reduction, label_smoothing=0.1),
        wisp.randn(40, 50),
        target,
        wisp.rand(50) + 0.1,
    )
    both(lambda x, t: F.cross_entropy(x, t, reduction=reduction), wisp.randn(4, 6, 5, 5), wisp.randint(0, 6, (4, 5, 5)))
    both(lambda x, t: F.nll_loss(F.log_softmax(x, 1), t, reduction=reduction), wisp.randn(40, 50), target)
    both(lambda x, y: F.mse_loss(x, y, reduction=reduction), wisp.randn(7, 5), wisp.randn(7, 5))
    both(lambda x, y: F.binary_cross_entropy_with_logits(x, y.detach(), reduction=reduction), wisp.randn(7, 5), wisp.rand(7, 5))
    both(lambda x, t: F.cross_entropy(x, t, reduction=reduction), wisp.randn(3, 30000), wisp.randint(0, 30000, (3,)))


def test_bad_target_is_raised_and_the_device_lives():
    loss = F.cross_entropy(wisp.randn(4, 5).cuda(), wisp.tensor([0, 1, 9, 2]).cuda())
    with pytest.raises(IndexError, match="cross_entropy.*index 9.*size 5"):
        loss.item()
    assert (wisp.ones(3, device="cuda") + 1).tolist() == [2, 2, 2]


def test_indexing():
    x, i, j = wisp.randn(10, 6, 5), wisp.tensor([3, 0, 9, 3]), wisp.tensor([[1, 5], [0, 2]])
    both(lambda x: x[i.to(x.device)], x)
    both(lambda x: x[:, j.to(x.device)], x)
    both(lambda x: x[i.to(x.device), 2], x)
    both(lambda x: x[i, :, -1], x)  # indices on the CPU
    both(lambda x: x[x.detach() > 0.5], x)
    both(lambda x: x.index_select(1, wisp.tensor([1, 1, 0]).to(x.device)), x)
    both(lambda x: x.gather(0, (wisp.arange(60).reshape(2, 6, 5) % 10).to(x.device)), x)
    both(lambda x, y: x.scatter_add(0, (wisp.arange(300).reshape(10, 6, 5) % 3).to(x.device), y), x, wisp.randn(10, 6, 5))
    both(lambda x, y: x.index_add(0, i.to(x.device), y), x, wisp.randn(4, 6, 5))
    both(lambda x: wisp.cat([x, x[:3] * 2], 0), x)
    both(lambda x: wisp.stack([x, x], 1), x)
    both(lambda x: x.flip(0).roll(2, 1), x)
    both(lambda x: x.tril(), x)
    rows = wisp.tensor([0, 4, 4, 10])
    both(lambda x: wisp._core._jagged_to_padded_dense_forward(x, [rows.to(x.device)], [5], 2.0), x)
    both(lambda x: wisp._core._padded_dense_to_jagged_forward(x[:3], [wisp.tensor([0, 4, 4, 10]).to(x.device)]), x)
    for fold in ("sum", "mean", "max", "min", "prod"):
        both(lambda x: wisp.segment_reduce(x, fold, lengths=wisp.tensor([3, 0, 7]).to(x.device), initial=1.0), x)
    both(lambda x: x.masked_fill(x.detach() > 0, 2.0), x)
    both(lambda w, k: F.embedding(k, w), wisp.randn(50, 33), wisp.randint(0, 50, (7, 11)))
    a, b = x.clone(), x.cuda()
    a[i[1:], 1] = 5
    b[i[1:].cuda(), 1] = 5
    near(b, a, 0)
    near(wisp.nonzero(b > 0.3), wisp.nonzero(a > 0.3), 0)
    with pytest.raises(IndexError):
        b[wisp.tensor([11]).cuda()].cpu()


def test_scans_and_sorting():
    x = wisp.randn(7, 300)
    both(lambda x: x.cumsum(1), x)
    both(lambda x: x.cumsum(0), x)
    both(lambda x: x[:, :40].cumprod(1), x, tolerance=1e-3)
    near(x.cuda().cummax(1).values, x.cummax(1).values, 0)
    for descending in (False, True):
        cpu, gpu = x.sort(1, descending), x.cuda().sort(1, descending)
        near(gpu.values, cpu.values, 0)
        near(gpu.indices, cpu.indices, 0)
        k = wisp.randint(-100, 100, (5000,))
        near(k.cuda().sort(descending=descending, stable=True).indices, k.sort(descending=descending, stable=True).indices, 0)
    near(x.cuda().topk(5).values, x.topk(5).values, 0)
    near(x.cuda().argsort(0), x.argsort(0), 0)
    both(lambda x: x.sort(0).values, x)


def test_pooling():
    x = wisp.randn(2, 3, 13, 17)
    both(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    both(lambda x: F.max_pool2d(x, 2), x)
    both(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
    both(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True), x)
    both(lambda x: F.adaptive_avg_pool2d(x, (5, 4)), x)
    both(lambda x: F.adaptive_max_pool2d(x, (5, 4)), x)
    both(lambda x: F.max_pool1d(x[0], 3), x)


def test_convolution():
    x = wisp.randn(2, 4, 13, 17)
    for options in (dict(), dict(padding=1), dict(stride=2, padding=1), dict(dilation=2), dict(groups=2)):
        w = wisp.randn(6, 4 // options.get("groups", 1), 3, 3)
        both(lambda x, w, b: F.conv2d(x, w, b, **options), x, w, wisp.randn(6), tolerance=2e-2)
    both(lambda x, w: F.conv1d(x[0], w), x, wisp.randn(5, 13, 3), tolerance=2e-2)
    both(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), x, wisp.randn(4, 3, 3, 3), wisp.randn(3), tolerance=2e-2)
    both(lambda x, w: F.conv2d(x.double(), w.double()), x, wisp.randn(6, 4, 3, 3), tolerance=1e-5)


@pytest.mark.parametrize("name", "SGD Adam AdamW Adamax NAdam RAdam Adagrad Adadelta RMSprop Rprop ASGD".split())
def test_optimizers(name):
    start, grads = [wisp.randn(5, 7), wisp.randn(3)], [[wisp.randn(5, 7), wisp.randn(3)] for _ in range(4)]
    ends = []
    for device in ("cpu", "cuda"):
        params = [nn.Parameter(p.clone().to(device)) for p in start]
        optimizer = getattr(wisp.optim, name)(params, lr=0.01, **({"momentum": 0.9} if name == "SGD" else {}))
        for step in grads:
            for p, g in zip(params, step):
                p.grad = g.to(device)
            optimizer.step()
        ends.append([p.detach() for p in params])
    for cpu, gpu in zip(*ends):
        near(gpu, cpu, 1e-5)
    norm = [nn.utils.clip_grad_norm_([p], 0.1) for p in params]
    assert len(norm) == 2


def test_attention_and_a_transformer():
    q, k, v = (wisp.randn(2, 4, 9, 8) for _ in range(3))
    both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
    x = wisp.randn(3, 7, 16)
    cpu = layer(x).detach()
    near(layer.cuda()(x.cuda()).detach(), cpu, 1e-4)


def test_memory_comes_back():
    wisp.cuda.synchronize()
    before = wisp.cuda.memory_allocated()
    x = wisp.randn(1000, 1000, device="cuda", requires_grad=True)
    (x @ x).relu().sum().backward()
    del x
    assert wisp.cuda.memory_allocated() == before


def test_streams_and_events():
    s, a = wisp.cuda.Stream(), wisp.randn(512, 512, device="cuda")
    start, end = wisp.cuda.Event(enable_timing=True), wisp.cuda.Event(enable_timing=True)
    s.wait_stream(wisp.cuda.current_stream())
    with wisp.cuda.stream(s):
        start.record()
        b = a @ a
        end.record()
    wisp.cuda.current_stream().wait_stream(s)
    near(b, a.cpu() @ a.cpu(), 1e-3)
    end.synchronize()
    assert start.elapsed_time(end) > 0


def test_graphs_replay_a_training_step():
    wisp.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    twin = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    twin.load_state_dict(model.state_dict())
    x, y = wisp.randn(8, 16, device="cuda"), wisp.randint(0, 4, (8,), device="cuda")

    def step(m, x, y):
        loss = F.cross_entropy(m(x), y)
        for p, g in zip(m.parameters(), wisp.autograd.grad(loss, list(m.parameters()))):
            p.detach().sub_(g, alpha=0.1)
        return loss.detach()

    saved = [p.detach().clone() for p in model.parameters()]
    step(model, x, y)  # kernels are compiled before the capture
    for p, s in zip(model.parameters(), saved):
        p.detach().copy_(s)
    g = wisp.cuda.CUDAGraph()
    with wisp.cuda.graph(g):
        loss = step(model, x, y)
    for _ in range(5):
        new, target = wisp.randn(8, 16, device="cuda"), wisp.randint(0, 4, (8,), device="cuda")
        x.copy_(new)
        y.copy_(target)
        g.replay()
        near(loss, step(twin, new, target).cpu(), 1e-5)
    with pytest.raises(RuntimeError, match="nothing was captured"):
        wisp.cuda.CUDAGraph().replay()


def test_graphed_callables():
    model, twin = nn.Linear(6, 3).cuda(), nn.Linear(6, 3).cuda()
    twin.load_state_dict(model.state_dict())
    model = wisp.cuda.make_graphed_callables(model, (wisp.randn(5, 6, device="cuda", requires_grad=True),))
    for _ in range(3):
        x = wisp.randn(5, 6, device="cuda", requires_grad=True)
        a = model(x)
        a.square().sum().backward()
        first, x.grad = x.grad, None
        b = twin(x)
        b.square().sum().backward()
        near(a.detach(), b.detach().cpu(), 1e-5)
        near(first, x.grad.cpu(), 1e-5)
    near(model.weight.grad, twin.weight.grad.cpu(), 1e-4)


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64], ids=str)
def test_transforms_of_parts_that_begin_at_an_odd_element(dtype):
    """cuFFT takes no real numbers whose address is not that of a pair."""
    whole = wisp.randn(35, 71, dtype=dtype)
    for part in (lambda t: t[1:-1], lambda t: t[0, 1:], lambda t: t[:, 3:33]):
        for f in (wisp.fft.rfft, wisp.fft.fft, wisp.fft.ifft, wisp.fft.hfft):
            want, got = f(part(whole)), f(part(whole.cuda())).cpu()
            assert wisp.allclose(got, want, rtol=1e-4, atol=1e-4)
    assert wisp.allclose(wisp.fft.rfft2(whole.cuda()[1:]).cpu(), wisp.fft.rfft2(whole[1:]), rtol=1e-4, atol=1e-3)
