"""Tests made from a list: operators that are no rows of the pointwise table. One line each: how to call it, the shapes
of its differentiable inputs, and NumPy's answer where NumPy has one. All are run on every layout and derived twice."""

import numpy as np
import pytest
from layouts import LAYOUTS, expanded

import wisp
from wisp.autograd import gradcheck, gradgradcheck
from wisp.nn import functional as F


class Case:
    def __init__(self, name, f, *shapes, numpy=None, low=-2.0, high=2.0, second=True, distinct=False, expand=True):
        self.name, self.f, self.shapes, self.numpy = name, f, shapes, numpy
        self.low, self.high, self.second, self.distinct, self.expand = low, high, second, distinct, expand

    def arrays(self):
        random = np.random.default_rng(sum(map(ord, self.name)))
        made = []
        for i, shape in enumerate(self.shapes):
            n = int(np.prod(shape))
            if self.distinct:  # no two elements near each other: where a maximum is chosen
                values = np.linspace(self.low, self.high, n) + 0.01 * i
                made.append(random.permutation(values).reshape(shape))
            else:
                made.append(random.uniform(self.low, self.high, shape))
        return made


def tensor(*values, **options):
    return wisp.tensor(*values, **options)


mask = wisp.tensor([[True, False, True], [False, True, True]])
index = wisp.tensor([2, 0, 2])
target = wisp.tensor([2, 0, -100, 1])
e = np.exp


def np_softmax(x, axis):
    y = e(x - x.max(axis, keepdims=True))
    return y / y.sum(axis, keepdims=True)


def np_layer_norm(x, w, b):
    m, v = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - m) / np.sqrt(v + 1e-5) * w + b


def np_conv2d(x, w, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, w)


CASES = [
    # reductions
    Case("sum", lambda x: x.sum(), (2, 3), numpy=np.sum),
    Case("sum dim", lambda x: x.sum(1), (2, 3, 2), numpy=lambda x: x.sum(1)),
    Case("sum dims keepdim", lambda x: x.sum((0, -1), keepdim=True), (2, 3, 2), numpy=lambda x: x.sum((0, 2), keepdims=True)),
    Case("mean", lambda x: x.mean(0), (2, 3), numpy=lambda x: x.mean(0)),
    Case("nansum", lambda x: x.nansum(1), (2, 3), numpy=lambda x: x.sum(1)),
    Case("prod", lambda x: x.prod(), (2, 2), numpy=np.prod),
    Case("prod dim", lambda x: x.prod(1), (2, 3), numpy=lambda x: x.prod(1)),
    Case("max", lambda x: x.max(), (2, 3), numpy=np.max, distinct=True),
    Case("max dim", lambda x: x.max(1)[0], (2, 3), numpy=lambda x: x.max(1), distinct=True),
    Case("min dim", lambda x: x.min(0)[0], (2, 3), numpy=lambda x: x.min(0), distinct=True),
    Case("amax", lambda x: x.amax((0, 1)), (2, 3), numpy=lambda x: x.max(), distinct=True),
    Case("amin", lambda x: x.amin(1, keepdim=True), (2, 3), numpy=lambda x: x.min(1, keepdims=True), distinct=True),
    Case("median", lambda x: x.median(1)[0], (2, 3), numpy=lambda x: np.median(x, 1), distinct=True),
    Case("kthvalue", lambda x: x.kthvalue(2, 1)[0], (2, 3), numpy=lambda x: np.sort(x, 1)[:, 1], distinct=True),
    Case("quantile", lambda x: x.quantile(0.3, 1), (2, 4), numpy=lambda x: np.quantile(x, 0.3, 1), distinct=True),
    Case("var", lambda x: x.var(1), (2, 3), numpy=lambda x: x.var(1, ddof=1)),
    Case("std", lambda x: x.std((0, 1), correction=0), (2, 3), numpy=np.std),
    Case("norm", lambda x: x.norm(), (2, 3), numpy=np.linalg.norm),
    Case("norm 3", lambda x: wisp.linalg.vector_norm(x, 3, dim=1), (2, 3), numpy=lambda x: (np.abs(x) ** 3).sum(1) ** (1 / 3)),
    Case("logsumexp", lambda x: x.logsumexp(1), (2, 3), numpy=lambda x: np.log(e(x).sum(1))),
    Case("cumsum", lambda x: x.cumsum(1), (2, 3), numpy=lambda x: x.cumsum(1)),
    Case("cumprod", lambda x: x.cumprod(0), (3, 2), numpy=lambda x: x.cumprod(0)),
    Case("cummax", lambda x: x.cummax(1)[0], (2, 3), numpy=lambda x: np.maximum.accumulate(x, 1), distinct=True),
    Case("logcumsumexp", lambda x: x.logcumsumexp(1), (2, 3), numpy=lambda x: np.log(e(x).cumsum(1))),
    Case("trace", lambda x: x.trace(), (3, 3), numpy=np.trace),
    Case("diff", lambda x: wisp.diff(x, dim=1), (2, 4), numpy=lambda x: np.diff(x, axis=1)),
    # views
    Case("view", lambda x: x.contiguous().view(3, 2), (2, 3), numpy=lambda x: x.reshape(3, 2)),
    Case("reshape", lambda x: x.reshape(-1), (2, 3), numpy=np.ravel),
    Case("transpose", lambda x: x.transpose(0, 1), (2, 3), numpy=np.transpose),
    Case("permute", lambda x: x.permute(2, 0, 1), (2, 1, 3), numpy=lambda x: x.transpose(2, 0, 1)),
    Case("expand", lambda x: x.expand(3, 2, 3), (2, 3), numpy=lambda x: np.broadcast_to(x, (3, 2, 3))),
    Case("squeeze", lambda x: x.squeeze(1), (2, 1, 3), numpy=lambda x: x.squeeze(1)),
    Case("unsqueeze", lambda x: x.unsqueeze(-1), (2, 3), numpy=lambda x: x[..., None]),
    Case("narrow", lambda x: x.narrow(1, 1, 2), (2, 4), numpy=lambda x: x[:, 1:3]),
    Case("select", lambda x: x.select(1, -1), (2, 3), numpy=lambda x: x[:, -1]),
    Case("slice", lambda x: x[:, 1::2], (2, 5), numpy=lambda x: x[:, 1::2]),
    Case("unfold", lambda x: x.unfold(1, 2, 1), (2, 4), numpy=lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 1)),
    Case("diagonal", lambda x: x.diagonal(1), (3, 3), numpy=lambda x: np.diagonal(x, 1)),
    Case("as_strided", lambda x: x.contiguous().as_strided((2, 2), (1, 2)), (2, 3)),
    Case("split", lambda x: x.split([1, 2], 1), (2, 3)),
    Case("chunk", lambda x: x.chunk(2), (3, 2)),
    Case("unbind", lambda x: x.unbind(1), (2, 3)),
    Case("movedim", lambda x: x.movedim(0, -1), (2, 1, 3), numpy=lambda x: np.moveaxis(x, 0, -1)),
    Case("flatten", lambda x: x.flatten(1), (2, 1, 3), numpy=lambda x: x.reshape(2, 3)),
    Case("flip", lambda x: x.flip(0, 1), (2, 3), numpy=lambda x: np.flip(x, (0, 1))),
    Case("roll", lambda x: x.roll(1, 1), (2, 3), numpy=lambda x: np.roll(x, 1, 1)),
    Case("rot90", lambda x: x.rot90(), (2, 3), numpy=np.rot90),
    Case("repeat", lambda x: x.repeat(2, 1), (2, 3), numpy=lambda x: np.tile(x, (2, 1))),
    Case("tile", lambda x: x.tile(2), (2, 3), numpy=lambda x: np.tile(x, 2)),
    Case("repeat_interleave", lambda x: x.repeat_interleave(2, 1), (2, 3), numpy=lambda x: np.repeat(x, 2, 1)),
    Case("clone", lambda x: x.clone(), (2, 3), numpy=np.copy),
    Case("contiguous", lambda x: x.t().contiguous(), (2, 3), numpy=np.transpose),
    Case("to", lambda x: x.to(wisp.float64) * 2, (2, 3), numpy=lambda x: x * 2),
    # joining
    Case("cat", lambda x, y: wisp.cat([x, y, x], 1), (2, 3), (2, 1), numpy=lambda x, y: np.concatenate([x, y, x], 1)),
    Case("stack", lambda x, y: wisp.stack([x, y], 1), (2, 3), (2, 3), numpy=lambda x, y: np.stack([x, y], 1)),
    Case("where", lambda x, y: wisp.where(mask, x, y), (2, 3), (2, 3), numpy=lambda x, y: np.where(mask.numpy(), x, y)),
    Case("tril", lambda x: x.tril(), (3, 3), numpy=np.tril),
    Case("triu", lambda x: x.triu(1), (2, 3), numpy=lambda x: np.triu(x, 1)),
    Case("diag", lambda x: x.diag(), (3,), numpy=np.diag),
    Case("diag_embed", lambda x: wisp.diag_embed(x), (2, 2)),
    # indexing
    Case("index", lambda x: x[index], (3, 2), numpy=lambda x: x[[2, 0, 2]]),
    Case("index pairs", lambda x: x[index, wisp.tensor([1, 1, 0])], (3, 2), numpy=lambda x: x[[2, 0, 2], [1, 1, 0]]),
    Case("index mixed", lambda x: x[:, index], (2, 3), numpy=lambda x: x[:, [2, 0, 2]]),
    Case("mask", lambda x: x[mask], (2, 3), numpy=lambda x: x[mask.numpy()]),
    Case("masked_select", lambda x: x.masked_select(mask), (2, 3), numpy=lambda x: x[mask.numpy()]),
    Case("masked_fill", lambda x: x.masked_fill(mask, 0.5), (2, 3), numpy=lambda x: np.where(mask.numpy(), 0.5, x)),
    Case("masked_scatter", lambda x, y: x.masked_scatter(mask, y), (2, 3), (6,)),
    Case(
        "gather",
        lambda x: x.gather(1, wisp.tensor([[0, 2], [1, 1]])),
        (2, 3),
        numpy=lambda x: np.take_along_axis(x, np.array([[0, 2], [1, 1]]), 1),
    ),
    Case("scatter", lambda x, y: x.scatter(1, wisp.tensor([[0, 2], [1, 0]]), y), (2, 3), (2, 2)),
    Case("scatter_add", lambda x, y: x.scatter_add(1, wisp.tensor([[0, 2], [1, 1]]), y), (2, 3), (2, 2)),
    Case("scatter_reduce", lambda x, y: x.scatter_reduce(1, wisp.tensor([[0, 0], [1, 1]]), y, "prod"), (2, 3), (2, 2), low=0.5),
    Case("index_select", lambda x: x.index_select(0, index), (3, 2), numpy=lambda x: x[[2, 0, 2]]),
    Case("index_add", lambda x, y: x.index_add(0, index, y, alpha=2), (3, 2), (3, 2)),
    Case("index_copy", lambda x, y: x.index_copy(0, wisp.tensor([2, 0]), y), (3, 2), (2, 2)),
    Case("index_fill", lambda x: x.index_fill(1, wisp.tensor([0]), 3.0), (2, 3)),
    Case("index_put", lambda x, y: x.index_put((index,), y, accumulate=True), (3, 2), (3, 2)),
    Case("take", lambda x: x.take(wisp.tensor([5, 0, 0])), (2, 3), numpy=lambda x: x.ravel()[[5, 0, 0]]),
    Case("take_along_dim", lambda x: wisp.take_along_dim(x, wisp.tensor([[0, 2], [1, 1]]), 1), (2, 3)),
    Case("sort", lambda x: x.sort(1, descending=True)[0], (2, 3), numpy=lambda x: -np.sort(-x, 1), distinct=True),
    Case("topk", lambda x: x.topk(2, 1)[0], (2, 4), numpy=lambda x: -np.sort(-x, 1)[:, :2], distinct=True),
    # products
    Case("mm", lambda x, y: x @ y, (2, 3), (3, 2), numpy=np.matmul),
    Case("mv", lambda x, y: x.mv(y), (2, 3), (3,), numpy=np.matmul),
    Case("dot", lambda x, y: x.dot(y), (3,), (3,), numpy=np.dot, expand=False),
    Case("bmm", lambda x, y: x.bmm(y), (2, 2, 3), (2, 3, 1), numpy=np.matmul),
    Case("matmul broadcast", lambda x, y: x.matmul(y), (2, 1, 2, 2), (3, 2, 2), numpy=np.matmul),
    Case("outer", lambda x, y: wisp.outer(x, y), (2,), (3,), numpy=np.outer),
    Case(
        "addmm", lambda c, x, y: wisp.addmm(c, x, y, beta=0.5, alpha=2), (2, 2), (2, 3), (3, 2), numpy=lambda c, x, y: 0.5 * c + 2 * x @ y
    ),
    Case("baddbmm", lambda c, x, y: wisp.baddbmm(c, x, y), (1, 2, 2), (2, 2, 1), (2, 1, 2), numpy=lambda c, x, y: c + x @ y),
    Case("einsum", lambda x, y: wisp.einsum("ij,kj->ik", x, y), (2, 3), (2, 3), numpy=lambda x, y: x @ y.T),
    Case("tensordot", lambda x, y: wisp.tensordot(x, y, 1), (2, 3), (3, 2), numpy=lambda x, y: x @ y),
    Case("kron", lambda x, y: wisp.kron(x, y), (2, 2), (1, 2), numpy=np.kron),
    Case("linear", F.linear, (2, 3), (2, 3), (2,), numpy=lambda x, w, b: x @ w.T + b),
    Case("bilinear", F.bilinear, (2, 2), (2, 3), (1, 2, 3), (1,)),
    Case("cdist", lambda x, y: wisp.cdist(x, y), (2, 3), (2, 3)),
    # softmax and norms
    Case("softmax", lambda x: x.softmax(1), (2, 3), numpy=lambda x: np_softmax(x, 1)),
    Case("softmax first", lambda x: x.softmax(0), (3, 2), numpy=lambda x: np_softmax(x, 0)),
    Case("log_softmax", lambda x: x.log_softmax(-1), (2, 3), numpy=lambda x: np.log(np_softmax(x, -1))),
    Case("softmin", lambda x: F.softmin(x, 1), (2, 3), numpy=lambda x: np_softmax(-x, 1)),
    Case("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), (2, 4), (4,), (4,), numpy=np_layer_norm),
    Case(
        "rms_norm",
        lambda x, w: F.rms_norm(x, (4,), w, 1e-5),
        (2, 4),
        (4,),
        numpy=lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w,
    ),
    Case("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 2), (4,), (4,)),
    Case("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (3, 2, 2), (2,), (2,)),
    Case(
        "batch_norm eval",
        lambda x, w, b: F.batch_norm(
            x, wisp.tensor([0.1, 0.2], dtype=wisp.float64), wisp.tensor([1.0, 2.0], dtype=wisp.float64), w, b, False
        ),
        (3, 2, 2),
        (2,),
        (2,),
    ),
    Case("instance_norm", lambda x: F.instance_norm(x), (2, 2, 3)),
    Case("normalize", lambda x: F.normalize(x, dim=1), (2, 3), numpy=lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)),
    Case("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, 1), (2, 3), (2, 3)),
    # convolution and pooling
    Case("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=1), (1, 2, 4), (2, 2, 3), (2,)),
    Case("conv2d", lambda x, w: F.conv2d(x, w), (1, 2, 3, 3), (2, 2, 2, 2), numpy=np_conv2d),
    Case(
        "conv2d stride",
        lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        (1, 1, 4, 4),
        (1, 1, 3, 3),
        numpy=lambda x, w: np_conv2d(x, w, 2, 1),
    ),
    Case("conv2d 1x1", lambda x, w: F.conv2d(x, w), (1, 2, 2, 2), (2, 2, 1, 1), numpy=np_conv2d),
    Case("conv2d groups", lambda x, w: F.conv2d(x, w, groups=2, padding=1), (1, 2, 3, 3), (2, 1, 3, 3)),
    Case("conv2d dilation", lambda x, w: F.conv2d(x, w, dilation=2), (1, 1, 4, 4), (1, 1, 2, 2)),
    Case("conv3d", lambda x, w: F.conv3d(x, w), (1, 1, 2, 2, 3), (1, 1, 2, 1, 2)),
    Case("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), (1, 2, 2, 2), (2, 1, 2, 2)),
    Case("max_pool1d", lambda x: F.max_pool1d(x, 2), (1, 2, 4), distinct=True),
    Case("max_pool2d", lambda x: F.max_pool2d(x, 2), (1, 1, 4, 4), numpy=lambda x: x.reshape(1, 1, 2, 2, 2, 2).max((3, 5)), distinct=True),
    Case("avg_pool2d", lambda x: F.avg_pool2d(x, 2), (1, 1, 4, 4), numpy=lambda x: x.reshape(1, 1, 2, 2, 2, 2).mean((3, 5))),
    Case("avg_pool2d padded", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (1, 1, 4, 4)),
    Case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (2, 1)), (1, 1, 3, 4)),
    Case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (2, 1)), (1, 1, 3, 4), distinct=True),
    Case("interpolate nearest", lambda x: F.interpolate(x, scale_factor=2), (1, 1, 2, 2), numpy=lambda x: x.repeat(2, 2).repeat(2, 3)),
    Case("interpolate bilinear", lambda x: F.interpolate(x, size=(3, 5), mode="bilinear"), (1, 1, 2, 3)),
    Case("interpolate bicubic", lambda x: F.interpolate(x, size=(3, 3), mode="bicubic"), (1, 1, 2, 2)),
    Case("pad", lambda x: F.pad(x, (1, 0, 0, 2), value=3.0), (2, 3), numpy=lambda x: np.pad(x, ((0, 2), (1, 0)), constant_values=3.0)),
    Case(
        "pad reflect", lambda x: F.pad(x, (2, 1), mode="reflect"), (1, 2, 3), numpy=lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "reflect")
    ),
    Case(
        "pad replicate",
        lambda x: F.pad(x, (2, 1), mode="replicate"),
        (1, 2, 3),
        numpy=lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "edge"),
    ),
    Case(
        "pad circular", lambda x: F.pad(x, (2, 1), mode="circular"), (1, 2, 3), numpy=lambda x: np.pad(x, ((0, 0), (0, 0), (2, 1)), "wrap")
    ),
    Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (1, 4, 1, 2)),
    Case("unfold2d", lambda x: F.unfold(x, 2), (1, 1, 3, 3)),
    Case("fold", lambda x: F.fold(x, (3, 3), 2), (1, 4, 4)),
    Case(
        "grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), (1, 1, 3, 3), (1, 2, 1, 2), low=-0.55, high=0.55, second=False
    ),
    # losses and others
    Case("cross_entropy", lambda x: F.cross_entropy(x, target), (4, 3)),
    Case("cross_entropy smooth", lambda x: F.cross_entropy(x, target, label_smoothing=0.1, reduction="sum"), (4, 3)),
    Case("cross_entropy weight", lambda x: F.cross_entropy(x, target, wisp.tensor([1.0, 2.0, 0.5], dtype=wisp.float64)), (4, 3)),
    Case("cross_entropy images", lambda x: F.cross_entropy(x, wisp.tensor([[1, 0], [0, 1]])), (2, 2, 2)),
    Case("cross_entropy probabilities", lambda x, p: F.cross_entropy(x, p.softmax(1)), (2, 3), (2, 3)),
    Case("nll_loss", lambda x: F.nll_loss(x, target), (4, 3), numpy=lambda x: -(x[0, 2] + x[1, 0] + x[3, 1]) / 3),
    Case("mse_loss", F.mse_loss, (2, 3), (2, 3), numpy=lambda x, y: ((x - y) ** 2).mean()),
    Case("l1_loss", F.l1_loss, (2, 3), (2, 3), numpy=lambda x, y: np.abs(x - y).mean(), distinct=True),
    Case("smooth_l1_loss", F.smooth_l1_loss, (2, 3), (2, 3)),
    Case("huber_loss", F.huber_loss, (2, 3), (2, 3)),
    Case(
        "bce",
        lambda x, y: F.binary_cross_entropy(x, y),
        (2, 3),
        (2, 3),
        low=0.1,
        high=0.9,
        numpy=lambda x, y: -(y * np.log(x) + (1 - y) * np.log(1 - x)).mean(),
    ),
    Case(
        "bce_with_logits",
        lambda x, y: F.binary_cross_entropy_with_logits(x, y),
        (2, 3),
        (2, 3),
        low=0.1,
        high=0.9,
        numpy=lambda x, y: (np.log1p(e(x)) - x * y).mean(),
    ),
    Case(
        "kl_div",
        lambda x, y: F.kl_div(x, y, reduction="batchmean"),
        (2, 3),
        (2, 3),
        low=0.1,
        high=0.9,
        numpy=lambda x, y: (y * (np.log(y) - x)).sum() / 2,
    ),
    Case("cosine_embedding_loss", lambda x, y: F.cosine_embedding_loss(x, y, wisp.tensor([1, -1])), (2, 3), (2, 3)),
    Case(
        "margin_ranking_loss",
        lambda x, y: F.margin_ranking_loss(x, y, wisp.tensor([1.0, -1.0, 1.0], dtype=wisp.float64), 0.2),
        (3,),
        (3,),
        expand=False,
    ),
    Case("triplet_margin_loss", lambda a, p, n: F.triplet_margin_loss(a, p, n), (2, 3), (2, 3), (2, 3)),
    Case(
        "soft_margin_loss", lambda x: F.soft_margin_loss(x, wisp.tensor([[1.0, -1.0, 1.0]] * 2, dtype=wisp.float64)), (2, 3), expand=False
    ),
    Case("embedding", lambda w: F.embedding(wisp.tensor([[0, 2], [2, 1]]), w), (3, 2), numpy=lambda w: w[[[0, 2], [2, 1]]]),
    Case("embedding padding", lambda w: F.embedding(wisp.tensor([0, 2, 1, 2]), w, padding_idx=None), (3, 2)),
    Case(
        "embedding_bag",
        lambda w: F.embedding_bag(wisp.tensor([[0, 2], [2, 1]]), w, mode="mean"),
        (3, 2),
        numpy=lambda w: w[[[0, 2], [2, 1]]].mean(1),
    ),
    Case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (1, 2, 2), (1, 3, 2), (1, 3, 2)),
    Case(
        "attention causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (1, 1, 3, 2),
        (1, 1, 3, 2),
        (1, 1, 3, 2),
    ),
    Case("prelu", lambda x, w: F.prelu(x, w), (2, 3), (3,), distinct=True),
    Case("glu", lambda x: F.glu(x, 1), (2, 4), numpy=lambda x: x[:, :2] / (1 + e(-x[:, 2:]))),
    Case("clamp tensors", lambda x, a: wisp.clamp(x, a - 3, a + 0.5), (2, 3), (3,), distinct=True),
    Case("renorm", lambda x: x.renorm(2, 0, 1.0), (2, 3)),
    Case("cross", lambda x, y: wisp.cross(x, y, dim=1), (2, 3), (2, 3), numpy=lambda x, y: np.cross(x, y)),
    Case("complex", lambda x, y: wisp.complex(x, y) * (1 + 2j), (2, 3), (2, 3), numpy=lambda x, y: (x + 1j * y) * (1 + 2j)),
    Case("view_as_complex", lambda x: wisp.view_as_complex(x.contiguous()), (3, 2), numpy=lambda x: x[:, 0] + 1j * x[:, 1]),
    Case("polar", lambda x, y: wisp.polar(x, y), (2, 2), (2, 2), low=0.3, numpy=lambda x, y: x * np.exp(1j * y)),
    Case("det", lambda x: wisp.linalg.det(x), (2, 2), numpy=np.linalg.det),
    Case(
        "inv", lambda x: wisp.linalg.inv(x + 4 * wisp.eye(2, dtype=wisp.float64)), (2, 2), numpy=lambda x: np.linalg.inv(x + 4 * np.eye(2))
    ),
    Case("solve", lambda x, b: wisp.linalg.solve(x + 4 * wisp.eye(2, dtype=wisp.float64), b), (2, 2), (2, 1)),
]
CASES = {case.name: case for case in CASES}


def outputs(y):
    return list(y) if isinstance(y, (tuple, list)) else [y]


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    case = CASES[name]
    arrays = case.arrays()
    plain = outputs(case.f(*map(LAYOUTS["contiguous"], arrays)))
    if case.numpy:
        np.testing.assert_allclose(plain[0].numpy(), case.numpy(*arrays), 1e-11, 1e-12)
    for layout, make in LAYOUTS.items():
        for y, right in zip(outputs(case.f(*map(make, arrays))), plain):
            assert y.shape == right.shape and wisp.allclose(y, right, 1e-12, 1e-12), layout
    for y, right in zip(
        outputs(case.f(*[wisp.from_numpy(a).float() for a in arrays]))
        if "complex" not in name
        and "1.0" not in name
        and name not in ("batch_norm eval", "cross_entropy weight", "soft_margin_loss", "margin_ranking_loss", "solve")
        else (),
        plain,
    ):
        if y.dtype is wisp.float32:
            assert wisp.allclose(y.double(), right, 2e-4, 2e-5)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "expanded"])
@pytest.mark.parametrize("name", CASES)
def test_derivatives(name, layout):
    case = CASES[name]
    arrays = case.arrays()
    if layout == "expanded":
        if not case.expand or case.distinct or arrays[0].shape[0] == 1 and name != "matmul broadcast":
            pytest.skip("equal elements make it undifferentiable, or there is nothing to expand")
        inputs = [wisp.from_numpy(a) for a in arrays]
        f, first = expanded(case.f, inputs[0], 0, inputs[0].shape[0])
        inputs = [first] + [x.requires_grad_() for x in inputs[1:]]
    else:
        f, inputs = case.f, [LAYOUTS[layout](a).requires_grad_() for a in arrays]
    assert gradcheck(f, inputs)
    if case.second:
        assert gradgradcheck(f, inputs, gen_non_contig_grad_outputs=layout == "sliced")


@pytest.mark.parametrize("name", CASES)
def test_no_gradient_is_recorded_without_need(name):
    case = CASES[name]
    for y in outputs(case.f(*map(LAYOUTS["contiguous"], case.arrays()))):
        assert not y.requires_grad and y.grad_fn is None
    inputs = [LAYOUTS["contiguous"](a).requires_grad_() for a in case.arrays()]
    with wisp.no_grad():
        assert not any(y.requires_grad for y in outputs(case.f(*inputs)))
    assert any(y.requires_grad for y in outputs(case.f(*inputs)))
