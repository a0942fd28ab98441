"""Fused operators equal the plain formulas, in values and in first and second derivatives, whatever the layout."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

import wisp
import wisp.nn.functional as F
from wisp.autograd import gradcheck, gradgradcheck


def close(a, b, tolerance=1e-5):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def leaf(*shape, seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return wisp.from_numpy(values).requires_grad_()


def both_derivatives(function, *inputs):
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("shape", [(7,), (3, 33), (2, 5, 17), (4, 1), (0, 3)])
@pytest.mark.parametrize("dim", [0, -1])
def test_softmax_is_its_formula(shape, dim):
    x = wisp.randn(shape)
    e = (x - x.amax(dim, keepdim=True)).exp() if x.numel() else x.exp()
    close(F.softmax(x, dim), e / e.sum(dim, keepdim=True))
    close(F.log_softmax(x, dim), (e / e.sum(dim, keepdim=True)).log(), 1e-4)
    close(F.softmin(x, dim), F.softmax(-x, dim))


def test_softmax_of_other_layouts():
    x = wisp.randn(6, 8)
    close(F.softmax(x.t(), 0), F.softmax(x, 1).t())
    close(F.softmax(x[:, ::2], 1), F.softmax(x[:, ::2].contiguous(), 1))
    close(F.softmax(wisp.randn(3, 1).expand(3, 4), 1), wisp.full((3, 4), 0.25))


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64, wisp.bfloat16])
def test_softmax_of_columns_in_stripes(dtype):
    """Columns are taken several vectors side by side where there are many, and are those of few."""
    x, g = wisp.randn(9, 1100).to(dtype).requires_grad_(), wisp.randn(9, 1100).to(dtype)
    for function in (F.softmax, F.log_softmax):
        x.grad = None
        y = function(x, 0)
        y.backward(g)
        for begin in (0, 64, 1088, 1095):
            part = x.detach()[:, begin : begin + 5].contiguous().requires_grad_()
            alone = function(part, 0)
            alone.backward(g[:, begin : begin + 5].contiguous())
            assert wisp.equal(y[:, begin : begin + 5], alone)
            close(x.grad[:, begin : begin + 5].float(), part.grad.float(), 1e-2 if dtype == wisp.bfloat16 else 1e-6)


def test_softmax_of_infinities():
    row = F.softmax(wisp.tensor([[-math.inf, 0.0, 0.0], [-math.inf] * 3]), 1)
    assert row[0].tolist() == [0.0, 0.5, 0.5]
    assert row[1].isnan().all()


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_derivatives(dim):
    both_derivatives(lambda x: F.softmax(x, dim), leaf(2, 3, 4))
    both_derivatives(lambda x: F.log_softmax(x, dim), leaf(2, 3, 4))


def test_layer_norm_is_its_formula():
    x, weight, bias = wisp.randn(5, 3, 40) + 7, wisp.randn(3, 40), wisp.randn(3, 40)
    mean, var = x.mean((1, 2), keepdim=True), x.var((1, 2), keepdim=True, correction=0)
    close(F.layer_norm(x, (3, 40), weight, bias), (x - mean) / (var + 1e-5).sqrt() * weight + bias, 1e-4)
    square = (x * x).mean(2, keepdim=True)
    close(F.rms_norm(x, (40,), weight[0], 1e-6), x / (square + 1e-6).sqrt() * weight[0], 1e-4)


def test_norm_derivatives():
    x, weight, bias = leaf(4, 3, 5), leaf(5, seed=1), leaf(5, seed=2)
    both_derivatives(lambda *a: F.layer_norm(a[0], (5,), a[1], a[2]), x, weight, bias)
    both_derivatives(lambda *a: F.rms_norm(a[0], (5,), a[1], 1e-5), x, weight)
    x, weight, bias = leaf(3, 4, 5), leaf(4, seed=1), leaf(4, seed=2)
    both_derivatives(lambda *a: F.group_norm(a[0], 2, a[1], a[2]), x, weight, bias)
    both_derivatives(lambda *a: F.batch_norm(a[0], None, None, a[1], a[2], True), x, weight, bias)
    mean, var = wisp.zeros(4, dtype=wisp.float64), wisp.ones(4, dtype=wisp.float64)
    both_derivatives(lambda *a: F.batch_norm(a[0], mean, var, a[1], a[2], False), x, weight, bias)
    both_derivatives(lambda *a: F.instance_norm(a[0], weight=a[1], bias=a[2]), x, weight, bias)


def test_batch_norm_moves_running_statistics():
    x, mean, var = wisp.randn(8, 3, 5), wisp.zeros(3), wisp.ones(3)
    version = mean._version
    F.batch_norm(x, mean, var, training=True, momentum=0.25)
    close(mean, 0.25 * x.mean((0, 2)))
    close(var, 0.75 + 0.25 * x.var((0, 2)))
    assert mean._version > version
    strided = wisp.zeros(3, 2)[:, 0]
    F.batch_norm(x, strided, None, training=True, momentum=0.25)
    close(strided, mean)


def plain_cross_entropy(x, target, weight=None, ignore=-100, smoothing=0.0, reduction="mean"):
    logp = F.log_softmax(x, 1)
    w = wisp.ones(x.shape[1], dtype=x.dtype) if weight is None else weight
    kept = target != ignore
    index = wisp.where(kept, target, wisp.zeros_like(target))
    own = -logp.gather(1, index.unsqueeze(1)).squeeze(1) * w[index]
    view = w.reshape(-1, *[1] * (x.dim() - 2))
    even = -(logp * view).sum(1) / x.shape[1]
    losses = wisp.where(kept, (1 - smoothing) * own + smoothing * even, wisp.zeros_like(own))
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / wisp.where(kept, w[index], wisp.zeros_like(own)).sum()


@pytest.mark.parametrize("shape", [(6, 5), (4, 37), (2, 5, 3), (2, 4, 3, 20)])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_is_its_formula(shape, reduction):
    x = leaf(*shape)
    target = wisp.arange(x.numel() // shape[1]).reshape(shape[0], *shape[2:]) % shape[1]
    target.view(-1)[1] = -100
    weight = leaf(shape[1], seed=3).detach().abs() + 0.1
    for options in ({}, {"smoothing": 0.1}, {"weight": weight}, {"weight": weight, "smoothing": 0.3}):
        given = {("label_smoothing" if k == "smoothing" else k): v for k, v in options.items()}
        loss = F.cross_entropy(x, target, reduction=reduction, **given)
        plain = plain_cross_entropy(x, target, reduction=reduction, **options)
        close(loss, plain, 1e-10)
        grads = [wisp.autograd.grad((t * t).sum(), x)[0] for t in (loss, plain)]
        close(*grads, 1e-10)


def test_loss_derivatives():
    target = wisp.tensor([1, -100, 2, 0])
    both_derivatives(lambda x: F.cross_entropy(x, target, label_smoothing=0.2), leaf(4, 3))
    both_derivatives(lambda x: F.cross_entropy(x, target, reduction="none"), leaf(4, 3))
    both_derivatives(lambda x: F.nll_loss(x, target) ** 2, leaf(4, 3))
    probabilities = F.softmax(leaf(4, 3, seed=5), 1)
    both_derivatives(lambda x: F.cross_entropy(x, probabilities.detach()), leaf(4, 3))
    both_derivatives(lambda *a: F.mse_loss(*a), leaf(4, 3), leaf(4, 3, seed=6))
    third = wisp.ones(4, 3, dtype=wisp.float64) * 0.3
    both_derivatives(lambda x: F.binary_cross_entropy(x.sigmoid(), third), leaf(4, 3))


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_losses_that_are_summed_as_they_are_made(name, dtype):
    loss = getattr(F, name)
    for n in (4096, 4097, 70001, 300000):
        x, y = wisp.randn(n, dtype=dtype, requires_grad=True), wisp.randn(n, dtype=dtype)
        each = loss(x, y, reduction="none")
        in_a_program = x.is_cuda and wisp.compiler.is_compiling()  # whose sums add in an order of their own
        same = wisp.allclose if in_a_program else wisp.equal
        assert same(loss(x, y), each.mean()) and same(loss(x, y, reduction="sum"), each.sum())
        assert same(loss(x.view(1, n).t(), y.view(n, 1)), each.mean())
        (expected,) = wisp.autograd.grad(each.sum(), x)
        assert wisp.equal(wisp.autograd.grad(loss(x, y, reduction="sum"), x)[0], expected)


@pytest.mark.parametrize("target", [[], [1], [1, 2], [1, 1], [2, 1, 2]])
def test_ctc_loss_counts_every_alignment(target):
    steps, classes = 4, 3
    p = wisp.randn(steps, 1, classes, dtype=wisp.float64).log_softmax(-1).requires_grad_()
    ways = []
    for path in itertools.product(range(classes), repeat=steps):
        kept = [c for i, c in enumerate(path) if c != 0 and (i == 0 or path[i - 1] != c)]
        if kept == target:
            ways.append(sum(p[t, 0, c] for t, c in enumerate(path)))
    expected = -wisp.stack(ways).logsumexp(0)
    labels = wisp.tensor([target], dtype=wisp.int64).reshape(1, len(target))
    loss = F.ctc_loss(p, labels, [steps], [len(target)], reduction="sum")
    close(loss, expected, 1e-12)
    (of_paths,) = wisp.autograd.grad(expected, p)  # that of the loss is with respect to logits before a log_softmax
    close(wisp.autograd.grad(loss, p)[0], of_paths + p.exp(), 1e-12)
    close(F.ctc_loss(p.float(), labels, [steps], [len(target)], reduction="sum"), expected, 1e-5)


def test_targets_out_of_range():
    with pytest.raises(IndexError, match="3 is out of bounds"):
        F.cross_entropy(wisp.randn(2, 3), wisp.tensor([0, 3])).item()
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        F.cross_entropy(wisp.randn(2, 3), wisp.tensor([0, 1]), reduction="average")


def test_embedding():
    weight = leaf(5, 3)
    index = wisp.tensor([[1, 4], [1, 0]])
    close(F.embedding(index, weight), weight[index])
    grad = wisp.autograd.grad(F.embedding(index, weight, padding_idx=1).sum(), weight)[0]
    assert grad.sum(1).tolist() == [3.0, 0.0, 0.0, 0.0, 3.0]
    both_derivatives(lambda w: F.embedding(index, w, scale_grad_by_freq=False) ** 2, weight)
    with pytest.raises(IndexError):
        F.embedding(wisp.tensor([5]), weight)
    for mode in ("sum", "mean", "max"):
        bags = F.embedding_bag(index, weight, mode=mode)
        close(bags, weight[index].amax(1) if mode == "max" else getattr(weight[index], mode)(1))
        both_derivatives(lambda w, mode=mode: F.embedding_bag(index, w, mode=mode), weight)
    for width in (16, 128, 150):
        weight = leaf(40, width)
        index, starts = wisp.arange(37) * 7 % 40, wisp.tensor([0, 3, 3, 20])
        bags = F.embedding_bag(index, weight, starts, mode="mean", padding_idx=14)
        parts = [[0, 7], [], [i * 7 % 40 for i in range(3, 20)], [i * 7 % 40 for i in range(20, 37)]]
        close(bags, wisp.stack([weight[p].mean(0) if p else wisp.zeros(width) for p in ([i for i in part if i != 14] for part in parts)]))


def plain_attention(q, k, v, mask=None, causal=False, scale=None):
    scores = q @ k.transpose(-2, -1) * (scale or 1 / math.sqrt(q.shape[-1]))
    if causal:
        mask = wisp.ones(q.shape[-2], k.shape[-2], dtype=wisp.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == wisp.bool else scores + mask
    return F.softmax(scores, -1) @ v


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (2, 3, 70, 8), (1, 2, 300, 16), (2, 2, 2, 5, 4)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_its_formula(shape, causal):
    q, k, v = (leaf(*shape, seed=i) for i in range(3))
    out, plain = F.scaled_dot_product_attention(q, k, v, is_causal=causal), plain_attention(q, k, v, causal=causal)
    close(out, plain, 1e-10)
    weight = leaf(*shape, seed=4).detach()
    grads = [wisp.autograd.grad((t * weight).sum(), (q, k, v)) for t in (out, plain)]
    for mine, other in zip(*grads):
        close(mine, other, 1e-9)


def test_attention_masks_heads_and_strides():
    q, k, v = (leaf(2, 6, 4, 8, seed=i).transpose(1, 2) for i in range(3))
    mask = wisp.ones(2, 1, 6, 6, dtype=wisp.bool).tril(2)
    close(F.scaled_dot_product_attention(q, k, v, mask), plain_attention(q, k, v, mask), 1e-10)
    added = leaf(6, 6, seed=7)
    close(F.scaled_dot_product_attention(q, k, v, added.detach()), plain_attention(q, k, v, added), 1e-10)
    assert wisp.autograd.grad(F.scaled_dot_product_attention(q, k, v, added).sum(), added)[0].shape == (6, 6)
    shared = F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True)
    close(shared, plain_attention(q, k[:, :2].repeat_interleave(2, 1), v[:, :2].repeat_interleave(2, 1)), 1e-10)
    nothing = F.scaled_dot_product_attention(q, k, v, wisp.zeros(6, 6, dtype=wisp.bool))
    assert (nothing == 0).all()


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 5, 8), (2, 2, 3, 5, 8)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_gradients_of_attention_lie_as_what_they_belong_to(shape, turned):
    """And so become the gradients of leaves without a copy."""
    q, k, v = (wisp.randn(shape) for _ in range(3))
    if turned and len(shape) > 2:
        q, k, v = (t.transpose(-2, -3).contiguous().transpose(-2, -3) for t in (q, k, v))
    places = []
    for t in (q, k, v):
        t.requires_grad_().register_hook(lambda g: places.append(g.data_ptr()))
    F.scaled_dot_product_attention(q, k, v).sum().backward()
    assert all(t.grad.stride() == t.stride() for t in (q, k, v))
    assert sorted(places) == sorted(t.grad.data_ptr() for t in (q, k, v))


def dropped_attention(q, k, v, p, mask=None):
    """The formula with dropout; draws as the operator does."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return F.dropout(F.softmax(scores if mask is None else scores + mask, -1), p) @ v


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 70, 8), (1, 2, 300, 16)])
@pytest.mark.parametrize("p", [0.25, 1.0])
def test_attention_with_dropout_is_its_formula(shape, p):
    q, k, v = (leaf(*shape, seed=i) for i in range(3))
    weight = leaf(*shape, seed=4).detach()
    results = []
    for attend in (lambda: F.scaled_dot_product_attention(q, k, v, dropout_p=p), lambda: dropped_attention(q, k, v, p)):
        wisp.manual_seed(5)
        out = attend()
        results.append((out, *wisp.autograd.grad((out * weight).sum(), (q, k, v))))
    for mine, other in zip(*results):
        close(mine, other, 1e-9)


@pytest.mark.parametrize("mask", [(70, 300), (1, 300), (70, 1), (1,), (2, 1, 1, 300), (1, 3, 70, 300), (3, 70, 1)])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_attention_differentiates_its_mask(mask, p):
    q, k, v = (leaf(2, 3, n, 8, seed=n) for n in (70, 300, 300))
    added, weight = leaf(*mask, seed=3), leaf(2, 3, 70, 8, seed=4).detach()
    results = []
    for attend in (lambda: F.scaled_dot_product_attention(q, k, v, added, p), lambda: dropped_attention(q, k, v, p, added)):
        wisp.manual_seed(5)
        results.append(wisp.autograd.grad((attend() * weight).sum(), (added, q, k, v)))
    for mine, other in zip(*results):
        close(mine, other, 1e-9)


def test_attention_differentiates_a_strided_mask():
    q, k, v = (leaf(2, 6, 4, seed=i) for i in range(3))
    added = leaf(6, 6, seed=3)
    for view in (lambda: added.t(), lambda: added[:1].expand(6, 6), lambda: added[::2, ::2].repeat(2, 2)):
        grads = [
            wisp.autograd.grad(attend(q, k, v, view()).square().sum(), added)[0]
            for attend in (F.scaled_dot_product_attention, plain_attention)
        ]
        close(*grads, 1e-9)


# Peak memory over what was held before, in MB, of attention over a long sequence, forward and backward.
MEMORY = """
import resource, sys
import wisp
from wisp.nn import functional as F
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
q, k, v = (wisp.randn(1, 1, 8192, 8, requires_grad=True) for _ in range(3))
F.scaled_dot_product_attention(*(t[:, :, :64] for t in (q, k, v)), dropout_p=0.1).sum().backward()
options = {"dropout": dict(dropout_p=0.1), "causal": dict(is_causal=True),
           "mask": dict(attn_mask=wisp.zeros(1, 8192, requires_grad=True))}[sys.argv[1]]
before = peak()
F.scaled_dot_product_attention(q, k, v, **options).sum().backward()
print(peak() - before)
"""


@pytest.mark.parametrize("kind", ["dropout", "causal", "mask"])
def test_attention_needs_memory_linear_in_the_sequence(kind):
    run = subprocess.run([sys.executable, "-c", MEMORY, kind], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 40  # the matrix of weights alone would be 256


def test_attention_derivatives():
    q, k, v = (leaf(1, 2, 3, 4, seed=i) for i in range(3))
    both_derivatives(lambda *a: F.scaled_dot_product_attention(*a, is_causal=True), q, k, v)
    shared = [t[:, :1] for t in (k, v)]
    both_derivatives(lambda *a: F.scaled_dot_product_attention(*a, enable_gqa=True), q, *(t.detach().requires_grad_() for t in shared))
    both_derivatives(lambda *a: F.scaled_dot_product_attention(*a), q, k, v, leaf(3, 3, seed=6))

    def dropped(*args):
        wisp.manual_seed(1)
        return F.scaled_dot_product_attention(*args, dropout_p=0.5)

    both_derivatives(dropped, q, k, v)


def test_dropout_draws_the_same_mask_backward():
    x = wisp.ones(10_000, requires_grad=True)
    y = F.dropout(x, 0.3)
    y.sum().backward()
    assert wisp.equal(x.grad, y.detach())
    assert abs((y == 0).float().mean().item() - 0.3) < 0.03
    np.testing.assert_allclose(y.max().item(), 1 / 0.7, rtol=1e-6)
    assert F.dropout(x, 0.5, training=False) is x
    wisp.manual_seed(3)
    first = F.dropout(x, 0.5)
    wisp.manual_seed(3)
    assert wisp.equal(first, F.dropout(x, 0.5))


def test_channel_dropout_drops_whole_channels():
    y = F.dropout2d(wisp.ones(20, 30, 2, 3), 0.4)
    per_channel = y.flatten(2)
    assert ((per_channel == 0).all(2) | (per_channel != 0).all(2)).all()


@pytest.mark.parametrize("name", ["_sum_of_squares", "_scale_tensors"])
def test_lists_of_tensors(name):
    tensors = [wisp.randn(5), wisp.randn(3, 4).t(), wisp.randn(70_000), wisp.randn(6)[::2]]
    if name == "_sum_of_squares":
        whole = sum((t.double() ** 2).sum().item() for t in tensors)
        first = wisp._core._sum_of_squares(tensors[:2], None)
        assert wisp._core._sum_of_squares(tensors[2:], first).item() == pytest.approx(whole, rel=1e-6)
    else:
        wanted = [t * 0.5 for t in tensors]
        wisp._core._scale_tensors(tensors, 0.5)
        for t, w in zip(tensors, wanted):
            close(t, w)


def test_results_do_not_depend_on_the_number_of_threads():
    x, weight = wisp.randn(200, 300).requires_grad_(), wisp.randn(300).requires_grad_()
    q = wisp.randn(2, 2, 150, 16).requires_grad_()
    threads = wisp.get_num_threads()
    results = []
    try:
        for n in (1, 2):
            wisp.set_num_threads(n)
            loss = F.layer_norm(x, (300,), weight).square().sum() + F.scaled_dot_product_attention(q, q, q).sum()
            loss = loss + F.cross_entropy(x, wisp.arange(200))
            results.append(wisp.autograd.grad(loss, (x, weight, q)))
    finally:
        wisp.set_num_threads(threads)
    assert all(wisp.equal(a, b) for a, b in zip(*results))
