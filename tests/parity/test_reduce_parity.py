"""Reductions, scans, sorting and indexing beside PyTorch on random shapes, layouts and dtypes: values and gradients."""

import random

import pytest

import wisp

torch = pytest.importorskip("torch")

FLOATS = ("float32", "float64")
ALL = FLOATS + ("bfloat16", "float16", "int64", "int32", "uint8", "bool")


def pair(shape, dtype, layout, low=-3, high=3):
    """The same random tensor on both sides, in the same layout."""
    big = [2 * n for n in shape] if layout == "strided" else list(shape[::-1]) if layout == "transposed" else list(shape)
    t = (
        torch.randn(big) * 2
        if dtype in FLOATS + ("bfloat16", "float16")
        else torch.randint(0 if dtype in ("uint8", "bool") else low, high, big)
    )
    w = wisp.from_numpy(t.numpy().copy())

    def arrange(x, module):
        x = x.to(getattr(module, dtype))
        if layout == "strided":
            return x[tuple(slice(None, None, 2) for _ in shape)]
        return x.permute(*range(len(shape))[::-1]) if layout == "transposed" else x

    return arrange(w, wisp), arrange(t, torch)


def flat(x):
    return [y for part in x for y in flat(part)] if isinstance(x, (tuple, list)) else [x]


def same(ours, theirs, dtype):
    for a, b in zip(flat(ours), flat(theirs), strict=True):
        assert str(a.dtype) == str(b.dtype) and tuple(a.shape) == tuple(b.shape)
        a, b = torch.from_numpy(a.detach().double().numpy().copy()), b.detach().double()
        rough = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 4e-3}.get(dtype, 1e-9)
        assert torch.allclose(a, b, rtol=rough, atol=rough * 10, equal_nan=True)


OPERATORS = {
    "sum": (ALL, lambda m, x, d: x.sum(d)),
    "sum all": (ALL, lambda m, x, d: x.sum()),
    "mean": (FLOATS, lambda m, x, d: x.mean(d, keepdim=True)),
    "prod": (FLOATS, lambda m, x, d: x.prod(d)),
    "amax": (ALL, lambda m, x, d: x.amax(d)),
    "max": (ALL, lambda m, x, d: x.max(d).values),
    "min all": (ALL, lambda m, x, d: x.min()),
    "var": (FLOATS, lambda m, x, d: x.var(d)),
    "std": (FLOATS, lambda m, x, d: x.std(d, correction=0)),
    "var_mean": (FLOATS, lambda m, x, d: m.var_mean(x, d)),
    "norm": (FLOATS, lambda m, x, d: x.norm(2, d)),
    "norm 3": (FLOATS, lambda m, x, d: x.norm(3)),
    "logsumexp": (FLOATS, lambda m, x, d: x.logsumexp(d)),
    "any": (ALL, lambda m, x, d: x.any(d)),
    "all": (ALL, lambda m, x, d: x.all(d)),
    "cumsum": (ALL, lambda m, x, d: x.cumsum(d)),
    "cumprod": (FLOATS, lambda m, x, d: x.cumprod(d)),
    "cummax": (ALL, lambda m, x, d: x.cummax(d)),
    "logcumsumexp": (FLOATS, lambda m, x, d: x.logcumsumexp(d)),
    "sort": (ALL, lambda m, x, d: m.sort(x, dim=d, stable=True)),
    "sort down": (ALL, lambda m, x, d: m.sort(x, dim=d, stable=True, descending=True)),
    "topk": (FLOATS, lambda m, x, d: x.topk(1, d)),
    "median": (FLOATS, lambda m, x, d: x.median(d).values),
    "quantile": (FLOATS, lambda m, x, d: x.quantile(0.4, d)),
    "unique": (ALL, lambda m, x, d: m.unique(x, return_inverse=True, return_counts=True)),
    "flip": (ALL, lambda m, x, d: x.flip(d)),
    "roll": (ALL, lambda m, x, d: x.roll(2, d)),
    "diff": (FLOATS, lambda m, x, d: x.diff(dim=d)),
    "cat": (ALL, lambda m, x, d: m.cat([x, x], d)),
    "nonzero": (ALL, lambda m, x, d: x.nonzero()),
    "mask": (ALL, lambda m, x, d: x[x > 0]),
    "masked_fill": (ALL, lambda m, x, d: x.masked_fill(x > 0, 1)),
    "take": (ALL, lambda m, x, d: x.take(m.tensor([0, -1]))),
    "repeat": (ALL, lambda m, x, d: x.repeat_interleave(2, d)),
    "index": (ALL, lambda m, x, d: x[m.tensor([0, -1, 0])]),
    "index last": (ALL, lambda m, x, d: x[..., m.tensor([[0], [-1]])]),
    "index_select": (ALL, lambda m, x, d: x.index_select(d, m.tensor([0, 0]))),
    "gather": (ALL, lambda m, x, d: x.gather(d, m.zeros_like(x, dtype=m.int64))),
    "scatter_add": (ALL, lambda m, x, d: x.scatter_add(d, m.zeros_like(x, dtype=m.int64), x)),
    "index_add": (ALL, lambda m, x, d: x.index_add(d, m.tensor([0, 0]), m.cat([x, x], d).narrow(d, 0, 2))),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", OPERATORS)
def test_beside_pytorch(name):
    dtypes, f = OPERATORS[name]
    random.seed(name)
    torch.manual_seed(len(name))
    for _ in range(24):
        dtype, layout = random.choice(dtypes), random.choice(("contiguous", "transposed", "strided"))
        shape = [random.choice((1, 2, 3, 5, 17, 40)) for _ in range(random.randint(1, 3))]
        ours, theirs = pair(shape, dtype, layout)
        d = random.randrange(-len(shape), len(shape))
        if name in ("cumsum", "scatter_add", "index_add") and dtype in ("bfloat16", "float16"):
            continue  # PyTorch rounds after every step
        if name in ("scatter_add", "index_add") and dtype == "bool":
            continue
        differentiable = dtype in FLOATS and name != "unique"  # which has no derivative, in PyTorch neither
        if differentiable:
            ours, theirs = ours.requires_grad_(), theirs.requires_grad_()
        a, b = f(wisp, ours, d), f(torch, theirs, d)
        same(a, b, dtype)
        if differentiable and flat(a)[0].requires_grad:
            weights = torch.randn(flat(b)[0].shape, dtype=flat(b)[0].dtype)
            (flat(a)[0] * wisp.from_numpy(weights.numpy())).sum().backward()
            (flat(b)[0] * weights).sum().backward()
            same(ours.grad, theirs.grad, dtype)
