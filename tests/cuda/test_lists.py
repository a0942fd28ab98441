"""Work that is put together: lists of tensors in one launch, joined rows, whole sequences of recurrent layers and of CTC."""

import pytest
from test_families import both
from test_operators import near

import wisp
import wisp.nn.functional as F
from wisp import nn

SHAPES = [(33, 7), (1,), (256, 256), (0, 3), (5,), (1024,), (3, 3)]


def lists(dtype=wisp.float32):
    return [wisp.randn(shape).to(dtype) for shape in SHAPES], [wisp.randn(shape).to(dtype) for shape in SHAPES]


def on_gpu(tensors):
    return [t.cuda() for t in tensors]


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.bfloat16, wisp.float64], ids=str)
def test_foreach_functions(dtype):
    a, b = lists(dtype)
    for function in (
        lambda a, b: wisp._foreach_lerp(a, b, 0.25),
        lambda a, b: wisp._foreach_add(a, b, alpha=0.5),
        lambda a, b: wisp._foreach_mul(a, 3.0),
        lambda a, b: wisp._foreach_mul(a, [float(i) for i in range(len(a))]),
        lambda a, b: wisp._foreach_addcmul(a, b, b, 0.5),
        lambda a, b: wisp._foreach_sqrt(wisp._foreach_abs(a)),
        lambda a, b: wisp._foreach_div(a, b),
    ):
        for expected, got in zip(function(a, b), function(on_gpu(a), on_gpu(b))):
            near(got.float(), expected.float(), 1e-2 if dtype == wisp.bfloat16 else 1e-6)
    ours, theirs = on_gpu(a), [t.clone() for t in a]
    wisp._foreach_lerp_(ours, on_gpu(b), 0.1)
    wisp._foreach_lerp_(theirs, b, 0.1)
    for expected, got in zip(theirs, ours):
        near(got.float(), expected.float(), 1e-2 if dtype == wisp.bfloat16 else 1e-6)


def test_tensors_of_a_list_that_share_memory_are_taken_in_order():
    x = wisp.arange(4096.0, device="cuda")
    expected = x + 1
    expected = (expected + expected) * 8
    wisp._foreach_add_([x], 1.0)
    wisp._foreach_add_([x, x, x, x], [x, x, x, x])
    assert wisp.equal(x, expected)
    many = [x[i * 16 : (i + 1) * 16] for i in range(200)]
    wisp._foreach_mul_(many, 0.5)
    assert wisp.equal(x[:3200], expected[:3200] * 0.5) and wisp.equal(x[3200:], expected[3200:])


def test_gradients_of_lists():
    a, b = lists()
    total = []
    for device in ("cpu", "cuda"):
        xs = [t.detach().to(device).requires_grad_() for t in a]
        sum(r.sum() for r in wisp._foreach_mul(xs, [t.to(device) for t in b])).backward()
        total.append([x.grad for x in xs])
    for expected, got in zip(*total):
        near(got, expected, 1e-6)


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.bfloat16, wisp.float64], ids=str)
@pytest.mark.parametrize("most", [0.5, 1e6])
def test_clipping(dtype, most):
    a, _ = lists(dtype)
    norms, grads = [], []
    for device in ("cpu", "cuda"):
        ps = [nn.Parameter(t.to(device)) for t in a]
        for p in ps:
            p.grad = p.detach().clone()
        norms.append(nn.utils.clip_grad_norm_(ps, most))
        grads.append([p.grad for p in ps])
    assert norms[1].device.type == "cuda" and norms[1].dtype == dtype
    near(norms[1].float(), norms[0].float(), 1e-3)
    for expected, got in zip(*grads):
        near(got.float(), expected.float(), 2e-2 if dtype == wisp.bfloat16 else 1e-6)


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.uint8, wisp.complex128, wisp.float16], ids=str)
def test_joining(dtype):
    for dim in (0, 1, 2):
        shapes = [[4, 3, 5] for _ in range(5)]
        for k, shape in enumerate(shapes):
            shape[dim] = (1, 7, 0, 16, 2)[k]
        parts = [(wisp.randn(shape) * 9).to(dtype) for shape in shapes]
        assert wisp.equal(wisp.cat(on_gpu(parts), dim).cpu(), wisp.cat(parts, dim))
    parts = [(wisp.randn(8, 12) * 9).to(dtype) for _ in range(150)]
    for dim in (0, 1, 2, -1):
        assert wisp.equal(wisp.stack(on_gpu(parts), dim).cpu(), wisp.stack(parts, dim))
    both(lambda a, b: wisp.cat([a, b.t(), a], 1), wisp.randn(6, 8), wisp.randn(3, 6))


@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64], ids=str)
def test_ctc(dtype, zero_infinity):
    x = wisp.randn(30, 5, 9, dtype=dtype)
    targets, lengths, inputs = wisp.randint(1, 9, (5, 12)), [12, 3, 0, 7, 12], [30, 20, 10, 0 if zero_infinity else 30, 14]
    targets[0, 3:6] = 4
    for reduction in ("none", "sum", "mean"):
        if reduction != "none" and not zero_infinity:
            inputs = [30, 20, 10, 30, 28]
        both(
            lambda x: F.ctc_loss(
                x.log_softmax(-1), targets.to(x.device), inputs, lengths, reduction=reduction, zero_infinity=zero_infinity
            ),
            x,
            tolerance=1e-4,
        )
    joined = wisp.cat([row[:n] for row, n in zip(targets, lengths)])
    both(lambda x: F.ctc_loss(x.log_softmax(-1), joined.to(x.device), [30] * 5, lengths), x, tolerance=1e-4)


def test_a_bad_label_is_reported():
    with pytest.raises(IndexError):
        F.ctc_loss(wisp.zeros(8, 1, 4, device="cuda"), wisp.full((1, 3), 7, device="cuda"), [8], [3])
        wisp.cuda.synchronize()


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize(
    "size, batch, layers, both_ways",
    [
        (128, 32, 2, False),
        (128, 3, 1, True),
        (64, 5, 2, True),
        (256, 16, 1, True),
        (20, 300, 1, False),
        (12, 3, 1, True),
        (512, 2, 1, True),
        (192, 7, 2, True),
    ],
)
def test_recurrent_layers(kind, size, batch, layers, both_ways):
    layer = getattr(nn, kind)(16, size, layers, bidirectional=both_ways)
    there = getattr(nn, kind)(16, size, layers, bidirectional=both_ways)
    there.load_state_dict(layer.state_dict())
    there.cuda()
    x = wisp.randn(11, batch, 16)
    results = []
    for module, input in ((layer, x), (there, x.cuda())):
        input = input.requires_grad_()
        out, state = module(input)
        (out.square().sum() + (state[0] * state[1] if kind == "LSTM" else state).sum()).backward()
        results.append([out, input.grad, *(p.grad for p in module.parameters())])
    for expected, got in zip(*results):
        near(got / expected.abs().max().cuda(), expected / expected.abs().max(), 2e-5)


def test_many_tiny_products():
    both(lambda a, b: a @ b, wisp.randn(4096, 8, 8), wisp.randn(4096, 8, 8), tolerance=1e-4)
    both(lambda a, b: a @ b.mT, wisp.randn(70, 5, 13), wisp.randn(70, 3, 13), tolerance=1e-4)


def test_random_values_are_checked():
    for function in (wisp.bernoulli, lambda p: wisp.multinomial(p, 1), wisp.poisson):
        with pytest.raises(RuntimeError):
            function(wisp.tensor([0.5, -1.0], device="cuda"))
            wisp.cuda.synchronize()
    with pytest.raises(RuntimeError, match="sum of probabilities"):
        wisp.multinomial(wisp.zeros(4, device="cuda"), 2)
        wisp.cuda.synchronize()
