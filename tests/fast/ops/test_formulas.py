"""Fused kernels equal the plain formula, in values and gradients, one line each; cases of one kernel are in test_fused.py."""

import math

import numpy as np
import pytest
from layouts import LAYOUTS

import wisp
from wisp.nn import functional as F


def ln(x, w, b):
    m = x.mean(-1, keepdim=True)
    v = ((x - m) ** 2).mean(-1, keepdim=True)
    return (x - m) / (v + 1e-5).sqrt() * w + b


def bn(x, w, b):
    m = x.mean((0, 2), keepdim=True)
    v = ((x - m) ** 2).mean((0, 2), keepdim=True)
    return (x - m) / (v + 1e-5).sqrt() * w[:, None] + b[:, None]


def gn(x, w, b):
    g = x.reshape(x.shape[0], 2, -1)
    m = g.mean(-1, keepdim=True)
    v = ((g - m) ** 2).mean(-1, keepdim=True)
    return ((g - m) / (v + 1e-5).sqrt()).reshape(x.shape) * w[:, None] + b[:, None]


def attention(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(~wisp.ones(q.shape[-2], k.shape[-2], dtype=wisp.bool).tril(), -wisp.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights / weights.sum(-1, keepdim=True) @ v


LABELS = wisp.arange(33) % 70
FUSED = {
    "softmax": (
        lambda x: x.softmax(-1),
        lambda x: (x - x.amax(-1, keepdim=True)).exp() / (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True),
        [(33, 70)],
    ),
    "softmax first": (lambda x: x.softmax(0), lambda x: x.exp() / x.exp().sum(0), [(33, 70)]),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x: x - x.exp().sum(-1, keepdim=True).log(), [(33, 70)]),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, LABELS),
        lambda x: (x.exp().sum(1).log() - x.gather(1, LABELS[:, None])[:, 0]).mean(),
        [(33, 70)],
    ),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (70,), w, b), ln, [(33, 70), (70,), (70,)]),
    "rms_norm": (
        lambda x, w: F.rms_norm(x, (70,), w, 1e-5),
        lambda x, w: x / ((x * x).mean(-1, keepdim=True) + 1e-5).sqrt() * w,
        [(33, 70), (70,)],
    ),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), bn, [(6, 5, 37), (5,), (5,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), gn, [(6, 4, 37), (4,), (4,)]),
    "gelu": (F.gelu, lambda x: x * 0.5 * (1 + wisp.erf(x / 2**0.5)), [(33, 70)]),
    "silu": (F.silu, lambda x: x * wisp.sigmoid(x), [(33, 70)]),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda q, k, v: attention(q, k, v, False),
        [(2, 3, 37, 16), (2, 3, 41, 16), (2, 3, 41, 16)],
    ),
    "attention causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: attention(q, k, v, True),
        [(2, 3, 37, 16), (2, 3, 37, 16), (2, 3, 37, 16)],
    ),
    "linear": (F.linear, lambda x, w, b: (x[:, None] * w).sum(-1) + b, [(33, 70), (19, 70), (19,)]),
    "embedding": (lambda w: F.embedding(LABELS, w), lambda w: w[LABELS], [(70, 19)]),
    "mse_loss": (F.mse_loss, lambda a, b: ((a - b) ** 2).mean(), [(33, 70), (33, 70)]),
    "var": (lambda x: x.var(1), lambda x: ((x - x.mean(1, keepdim=True)) ** 2).sum(1) / 69, [(33, 70)]),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: x.exp().sum(1).log(), [(33, 70)]),
    "mean": (lambda x: x.mean(0), lambda x: x.sum(0) / 33, [(33, 70)]),
    "conv2d": (
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda x, w: wisp.einsum("nchwij,ocij->nohw", F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1), w),
        [(3, 5, 11, 13), (7, 5, 3, 3)],
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2)), [(3, 5, 10, 14)]),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2), lambda x: x.unfold(2, 3, 2).unfold(3, 3, 2).mean((-1, -2)), [(3, 5, 11, 13)]),
}


@pytest.mark.parametrize("dtype, tolerance", [(wisp.float64, 1e-10), (wisp.float32, 1e-4)])
@pytest.mark.parametrize("name", FUSED)
def test_fused_is_the_formula(name, dtype, tolerance):
    fused, plain, shapes = FUSED[name]
    for layout in ("contiguous", "transposed"):
        random = np.random.default_rng(5)
        arrays = [random.standard_normal(shape) for shape in shapes]
        results = []
        for f in (fused, plain):
            inputs = [LAYOUTS[layout](a).to(dtype).requires_grad_() for a in arrays]
            y = f(*inputs)
            weight = wisp.from_numpy(np.random.default_rng(6).standard_normal(tuple(y.shape))).to(dtype)
            results.append([y, *wisp.autograd.grad(y, inputs, weight)])
        for a, b in zip(*results):
            assert wisp.allclose(a, b, tolerance, tolerance), (name, layout, (a - b).abs().max())


def test_dropout_is_a_scaled_mask():
    x = wisp.rand(1000, requires_grad=True)
    y = F.dropout(x, 0.25)
    kept = y != 0
    assert wisp.allclose(y[kept], x[kept] / 0.75) and 0.6 < kept.float().mean() < 0.9
    y.sum().backward()
    assert wisp.allclose(x.grad, kept / 0.75)
    assert F.dropout(x, 0.25, training=False) is x
    assert not F.dropout(x, 1.0).any() and wisp.equal(F.dropout(x, 0.0), x)


@pytest.mark.parametrize("classes, inner", [(2, ()), (100, ()), (3, (5,))])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_large_logits_loses_no_digits(classes, inner, smoothing):
    logits = 1e4 + wisp.arange(4 * classes * math.prod(inner)).reshape(4, classes, *inner) % 7
    target = wisp.arange(4 * math.prod(inner)).reshape(4, *inner) % classes
    found = []
    for dtype in (wisp.float32, wisp.float64):
        x = logits.to(dtype, copy=True).requires_grad_()
        losses = wisp.nn.functional.cross_entropy(x, target, reduction="none", label_smoothing=smoothing)
        losses.sum().backward()
        found.append((losses.detach().double(), x.grad.double()))
    for near, exact in zip(*found):
        wisp.testing.assert_close(near, exact, rtol=3e-6, atol=1e-6)
