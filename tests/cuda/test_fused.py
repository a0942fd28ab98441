"""Dropout, norms and sums of rows in the programs of compiled regions: eager's random numbers, and its values but for the order of sums."""

import pytest
from test_operators import near

import wisp
import wisp.nn.functional as F
from wisp import nn

DTYPES = [wisp.float32, wisp.bfloat16, wisp.float16, wisp.float64]
TOLERANCE = {wisp.float32: 2e-5, wisp.bfloat16: 3e-2, wisp.float16: 4e-3, wisp.float64: 1e-12}


def results(f, inputs, compiled, mode=None):
    """What f gives, the gradients of its sum with numbers, and the next random numbers."""
    wisp.manual_seed(3)
    leaves = [x.detach().clone().requires_grad_() for x in inputs]

    def step():
        y = f(*leaves)
        weights = wisp.linspace(-1, 1, y.numel(), device="cuda").view(y.shape).to(y.dtype)
        return [y.detach(), *wisp.autograd.grad((y * weights).sum(), leaves)]

    return [*(wisp.compile(step, mode=mode) if compiled else step)(), wisp.rand(5, device="cuda")]


def same(f, *inputs):
    for a, b in zip(results(f, inputs, False), results(f, inputs, True)):
        assert a.dtype == b.dtype and wisp.equal(a, b), (a.float() - b.float()).abs().max()


def close(f, *inputs, tolerance):
    for a, b in zip(results(f, inputs, False), results(f, inputs, True)):
        assert a.dtype == b.dtype and a.shape == b.shape
        near(b, a.cpu(), tolerance * max(1.0, float(a.float().abs().max())))


SHAPES = [(64, 768), (3, 5, 7), (1,), (591, 96), (2, 1023), (4, 33, 130), (8, 64), (5, 4096), (3, 2, 4, 260), (2, 8192), (70001,)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_dropout_draws_what_it_draws_eagerly(shape, dtype):
    x, y = (wisp.randn(shape, device="cuda").to(dtype) for _ in range(2))
    for p in (0.0, 0.1, 0.5, 1.0):
        same(lambda x, y: x + F.dropout(F.gelu(y), p) * 2, x, y)
    same(lambda x, y: F.dropout(F.dropout(x * y, 0.3) + x, 0.2), x, y)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dropout_beside_sums_of_rows(dtype):
    for shape in ((64, 768), (7, 64), (9, 100), (5, 33), (4, 5000), (3, 8192)):
        x = wisp.randn(shape, device="cuda").to(dtype)

        def f(x):
            y = F.dropout(x * 2, 0.4)
            return y + F.dropout((y * x).amax(-1, keepdim=True) * x, 0.2)

        close(f, x, tolerance=TOLERANCE[dtype])  # the gradient of a maximum that is spread out is a sum
        same(lambda x: F.dropout(x * 2, 0.4) + F.dropout(x.detach().amax(-1, keepdim=True) * x, 0.2), x)


def test_dropout_of_other_layouts():
    x = wisp.randn(12, 6, 64, device="cuda")
    same(lambda x: F.dropout(x.transpose(0, 1), 0.3) * 2, x)
    same(lambda x: F.dropout(x.transpose(1, 2) + 1, 0.3) * 2, x)
    same(lambda x: F.dropout(x[:, 1:5] + 1, 0.3) + F.dropout(x[:1, :4, ::2], 0.5).mean(), x)
    same(lambda x: F.dropout(x * 2, 0.3).transpose(0, 1).reshape(6, -1) + 1, x)
    same(lambda x: wisp.cat([F.dropout(x, 0.3), F.dropout(x * 2, 0.3)], 1) + 1, x)
    same(lambda x: F.dropout(x.sum(-1) * 2, 0.3)[..., None] * x.amax(-1, keepdim=True), x.long().float())
    same(lambda x: F.dropout(x.detach().amax(-1) * 2, 0.3)[..., None] * x, x)


WIDTHS = [64, 66, 77, 96, 192, 768, 1000, 1024, 3072, 4096, 4100, 5120]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_norms_in_chains(width, dtype):
    x, y = (wisp.randn(3, 7, width, device="cuda").to(dtype) for _ in range(2))
    w, b = (wisp.randn(width, device="cuda").to(dtype) for _ in range(2))
    tolerance = TOLERANCE[dtype]
    shape = (width,)

    def block(x, y, w, b):
        x = x + y
        return x * 2 + F.gelu(F.layer_norm(x, shape, w, b))

    close(block, x, y, w, b, tolerance=tolerance)
    close(lambda x: F.layer_norm(x, shape), x, tolerance=tolerance)
    close(lambda x, w: F.layer_norm(x, shape, w), x, w, tolerance=tolerance)
    close(lambda x, w: x + F.rms_norm(x * 2, shape, w), x, w, tolerance=tolerance)
    close(lambda x: F.rms_norm(x, shape, eps=1e-3), x, tolerance=tolerance)
    close(lambda x, w, b: F.layer_norm(x.transpose(0, 1), shape, w, b) * 2, x, w, b, tolerance=tolerance)


def test_many_rows_and_the_sums_of_their_columns():
    for rows, width in ((3000, 768), (12608, 768), (5000, 3072), (700, 4096), (1, 768), (2, 768)):
        x, y = wisp.randn(2, rows, width, device="cuda"), wisp.randn(2, rows, width, device="cuda", dtype=wisp.bfloat16)
        w, b = wisp.randn(width, device="cuda"), wisp.randn(width, device="cuda")

        def f(x, y, w, b):
            x = x + F.dropout(y, 0.1)
            return F.layer_norm(x, (width,), w, b).to(wisp.bfloat16) * 2 + x

        close(f, x, y, w, b, tolerance=1e-2)
        close(lambda x, w: x * w + w, x, w, tolerance=1e-4)
        near(wisp.compile(lambda: (x * 2 + 1).sum((0, 1)))(), (x * 2 + 1).sum((0, 1)).cpu(), 2e-2)
        same_sums = [wisp.compile(lambda: (x * 2 + 1).sum((0, 1)))() for _ in range(3)]
        assert all(wisp.equal(same_sums[0], s) for s in same_sums)


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.bfloat16], ids=str)
def test_sums_of_joined_rows(dtype):
    """Of parts that lie elsewhere, one behind the other along the row or across it."""
    for rows, widths in ((300, (768, 768, 768)), (40, (64, 4, 60)), (33, (63, 64, 65)), (7, (2048, 4096))):
        parts = [wisp.randn(2, rows, w, device="cuda").to(dtype) for w in widths]
        across = [wisp.randn(2, n, 192, device="cuda").to(dtype) for n in (3, rows, 1)]

        def f(dim, parts, w):
            y = wisp.cat([*(p * 2 for p in parts), parts[0].transpose(0, 1).contiguous().transpose(0, 1)], dim)
            return y * 2, y.sum((0, 1)), y.amax(-1) if dim < 0 else (y * w).sum((0, 1))

        for dim, given in ((-1, parts), (1, across)):
            w = wisp.randn(192, device="cuda").to(dtype)
            for a, b in zip(f(dim, given, w), wisp.compile(f)(dim, given, w)):
                near(b, a.cpu(), TOLERANCE[dtype] * max(1.0, float(a.float().abs().max())))


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_norms_are_differentiated_twice(norm):
    def f(x, w):
        y = getattr(F, norm)(F.dropout(x * 2, 0.2), (768,), w)
        gx, gw = wisp.autograd.grad(y.square().sum(), (x, w), create_graph=True)
        return gx * 2 + gw.square()

    close(f, wisp.randn(5, 768, device="cuda"), wisp.randn(768, device="cuda"), tolerance=1e-3)


def test_what_is_written_in_place_afterwards():
    x = wisp.randn(64, 768, device="cuda", requires_grad=True)

    def f():
        y = x * 2
        z = F.layer_norm(y, (768,))
        kept = z * 1
        y.add_(1)
        return kept, z

    eager, compiled = f(), wisp.compile(f)()
    near(compiled[0], eager[0].detach().cpu(), 1e-5)
    for _, z in (eager, compiled):
        with pytest.raises(RuntimeError, match="in.?place"):
            z.sum().backward()

    def g():
        y = x.detach() * 2
        z = F.dropout(y, 0.5)
        y.zero_()
        return z

    wisp.manual_seed(1)
    a = g()
    wisp.manual_seed(1)
    assert wisp.equal(wisp.compile(g)(), a) and a.any()


def encoder(dropout, batch_first=True):
    wisp.manual_seed(0)
    layer = nn.TransformerEncoderLayer(192, 3, 768, dropout, "gelu", batch_first=batch_first, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).cuda()


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_training_steps_with_autocast(batch_first, mode):
    told = []
    for compiled in (False, True):
        model = encoder(0.1, batch_first)
        optimizer = wisp.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
        x = wisp.randn(8, 33, 192, generator=wisp.Generator().manual_seed(0)).cuda()

        def step():
            optimizer.zero_grad()
            with wisp.autocast("cuda", dtype=wisp.bfloat16):
                loss = (model(x) - x).float().square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        wisp.manual_seed(5)
        f = wisp.compile(step, mode=mode) if compiled else step
        told.append([f().item() for _ in range(6)] + [wisp.rand(1, device="cuda").item()])
        gradients = [p.grad for p in model.parameters()]
        told.append(gradients)
    losses, eager, compiled_losses, compiled = told
    assert losses[-1] == compiled_losses[-1]
    assert max(abs(a - b) for a, b in zip(losses, compiled_losses)) < 5e-3 * max(losses), (losses, compiled_losses)
    for a, b in zip(eager, compiled):
        assert (a - b).norm() < 0.1 * a.norm() + 1e-6


def test_captured_graphs_draw_new_numbers_each_time():
    x = wisp.ones(64, 768, device="cuda")
    told = []
    for compiled in (False, True):
        f = lambda: F.dropout(x * 2, 0.5) + 1  # noqa: E731
        f = wisp.compile(f) if compiled else f
        f()
        wisp.manual_seed(7)
        graph = wisp.cuda.CUDAGraph()
        with wisp.cuda.graph(graph):
            y = f()
        told.append([])
        for _ in range(3):
            graph.replay()
            told[-1].append(y.clone())
    assert all(wisp.equal(a, b) for a, b in zip(*told))
    assert not wisp.equal(told[0][0], told[0][1])


def test_gradients_of_a_bias_come_with_the_gradient_that_they_sum():
    x, w, v = wisp.randn(40, 768, device="cuda"), wisp.randn(3072, 768, device="cuda") / 28, wisp.randn(768, 3072, device="cuda") / 55
    b, c = wisp.randn(3072, device="cuda"), wisp.randn(768, device="cuda")
    for dtype, tolerance in ((wisp.float32, 1e-3), (wisp.bfloat16, 3e-2)):
        close(
            lambda x, w, b, v, c: F.linear(F.dropout(F.gelu(F.linear(x, w, b)), 0.1), v, c) * x,
            *(t.to(dtype) for t in (x, w, b, v, c)),
            tolerance=tolerance,
        )
        close(
            lambda x, w, b: F.linear(x.view(8, 5, 768).transpose(0, 1), w, b).transpose(0, 1) * 2,
            *(t.to(dtype) for t in (x, w, b)),
            tolerance=tolerance,
        )


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float16], ids=str)
@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"reduction": "none"}, {"ignore_index": 3, "label_smoothing": 0.1}], ids=str)
def test_losses_in_floats_of_halves(dtype, options):
    target = wisp.randint(0, 512, (96,), device="cuda")
    target[5] = 3

    def gradient(x, w, seen):
        w = w.detach().requires_grad_()
        logits = F.linear(x, w).view(2, 48, 512).float().view(96, 512)
        if seen:  # then it is made in floats, and rounded afterwards
            logits.retain_grad()
        y = F.cross_entropy(logits, target, **options).sum()
        y.backward()
        return y.detach(), w.grad, logits.grad if seen else None

    x, w = wisp.randn(96, 64, device="cuda").to(dtype), wisp.randn(512, 64, device="cuda").to(dtype)
    eager = gradient(x, w, True)
    for _ in range(2):
        (y, narrow, _), (z, wide, floats) = (wisp.compile(gradient)(x, w, seen) for seen in (False, True))
        assert wisp.equal(y, z) and wisp.equal(narrow, wide)
    near(y, eager[0].cpu(), 1e-5 * max(1.0, float(eager[0])))
    near(floats, eager[2].cpu(), 1e-5)
    near(narrow, eager[1].cpu(), TOLERANCE[dtype] * float(eager[1].abs().max()))


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float32], ids=str)
@pytest.mark.parametrize("activation", [F.silu, F.gelu])
def test_both_gradients_of_a_gate_in_one_program(activation, dtype):
    x = wisp.randn(96, 256, device="cuda").to(dtype)
    weights = [(wisp.randn(256, 256, device="cuda") / 16).to(dtype).requires_grad_() for _ in range(3)]

    def step():
        gate, up, down = weights
        y = F.linear(activation(F.linear(x, gate)) * F.linear(x, up), down)
        return wisp.autograd.grad(y, weights, wisp.ones_like(y))

    expected, compiled = step(), wisp.compile(step)
    for _ in range(3):
        assert all(map(wisp.equal, compiled(), expected))
    told = [p for p in wisp.compiler.explain(step)().programs if "mul'" in p.operators]
    assert len(told) == 1 and told[0].read == 3 * x.numel() * x.itemsize and told[0].written == 2 * x.numel() * x.itemsize


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_in_five_and_six_dimensions(dtype):
    for width in (64, 24, 7):
        k = wisp.randn(2, 33, 4, width, device="cuda").to(dtype)
        y = wisp.randn(2, 12, 33, width, device="cuda").to(dtype)

        def repeated(k, y):
            return (k.transpose(1, 2) * 2).repeat_interleave(3, 1) * y

        close(repeated, k, y, tolerance=TOLERANCE[dtype])
    x = wisp.randn(2, 3, 4, 5, 6, 8, device="cuda").to(dtype)
    same(lambda x: (x.permute(0, 2, 4, 1, 3, 5) * 2 + 1).contiguous().relu(), x)
    same(lambda x: (x.permute(4, 2, 0, 1, 3, 5).contiguous() - 1) * 3, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_queries_and_keys_of_a_token_in_one_launch(dtype, mode):
    def rotated(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + wisp.cat([-b, a], -1) * sin

    for batch, width in ((1, 64), (16, 64), (3, 10)):
        q, k = (wisp.randn(batch, 1, heads, width, device="cuda").to(dtype).transpose(1, 2) for heads in (32, 8))
        cos, sin = (wisp.randn(1, width, device="cuda").to(dtype) for _ in range(2))
        position, kept = wisp.tensor([5], device="cuda"), wisp.zeros(batch, 8, 20, width, device="cuda", dtype=dtype)

        def token(q, k, kept, position=position, cos=cos, sin=sin):
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
            return kept.index_copy_(2, position, k), q

        compiled = wisp.compile(token, mode=mode)
        for _ in range(4):
            q = q + 1
            expected = token(q, k, kept.clone())
            assert all(map(wisp.equal, compiled(q, k, kept.clone()), expected))


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64], ids=str)
def test_products_are_not_joined_with_sums(dtype):
    a, b, c = (wisp.randn(1000, device="cuda", dtype=dtype) for _ in range(3))
    same(lambda a, b, c: a * b + c, a, b, c)
    # Between the product and the sum of these gradients stands one that changes nothing.
    same(lambda a, b, c: (a - b).exp() + a * c - (c - a).sin() * b, a, b, c)


def test_derivatives_of_lgamma_in_one_program():
    x, y = (wisp.rand(50, device="cuda", dtype=wisp.float64) * 6 - 3 for _ in range(2))
    same(lambda x, y: (x + 1).lgamma() * (y * 2).digamma() + wisp.mvlgamma(x.abs() + 3, 3), x, y)

    def twice(x):
        x = x.detach().requires_grad_()
        (first,) = wisp.autograd.grad(wisp.lgamma(x + 0.5).sum(), x, create_graph=True)
        return first.detach(), wisp.autograd.grad((first * x).sum(), x)[0]

    for eager, noted in zip(twice(x), wisp.compile(twice)(x)):
        near(noted, eager.cpu(), 1e-12)
