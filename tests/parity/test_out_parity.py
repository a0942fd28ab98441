"""out= of every dtype beside PyTorch's: which are taken, which are refused, and what is written."""

import pytest
import torch

import wisp

DTYPES = "bool uint8 int8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()


def inputs(package):
    x = package.tensor([[2.0, 1.0], [1.0, 3.0]])
    return x, package.tensor([1.0, 2.0]), package.tensor([[2, 1], [1, 3]]), x.to(package.complex64), x.to(package.bfloat16)


# name -> (package, matrix, vector, integers, complex numbers, bfloat16, out) -> what has to write to out
CALLS = {
    "sum": lambda p, x, v, i, c, h, out: p.sum(x, 0, out=out),
    "sum of integers": lambda p, x, v, i, c, h, out: p.sum(i, 0, out=out),
    "sum of complex": lambda p, x, v, i, c, h, out: p.sum(c, 0, out=out),
    "sum of bfloat16": lambda p, x, v, i, c, h, out: p.sum(h / 3, 0, out=out),
    "sum in float64": lambda p, x, v, i, c, h, out: p.sum(x, 0, dtype=p.float64, out=out),
    "prod": lambda p, x, v, i, c, h, out: p.prod(x * 1.5, 0, out=out),
    "prod of integers": lambda p, x, v, i, c, h, out: p.prod(i, 0, out=out),
    "prod of complex": lambda p, x, v, i, c, h, out: p.prod(c, 0, out=out),
    "mean": lambda p, x, v, i, c, h, out: p.mean(x, 0, out=out),
    "mean of all": lambda p, x, v, i, c, h, out: p.mean(x, out=out),
    "mean of complex": lambda p, x, v, i, c, h, out: p.mean(c, 0, out=out),
    "mean in float64": lambda p, x, v, i, c, h, out: p.mean(x, 0, dtype=p.float64, out=out),
    "nansum of integers": lambda p, x, v, i, c, h, out: p.nansum(i, 0, out=out),
    "cumsum in float64": lambda p, x, v, i, c, h, out: p.cumsum(x, 0, dtype=p.float64, out=out),
    "all": lambda p, x, v, i, c, h, out: p.all(x, 0, out=out),
    "all of integers": lambda p, x, v, i, c, h, out: p.all(i.to(p.uint8), 0, out=out),
    "any": lambda p, x, v, i, c, h, out: p.any(x - 1, 0, out=out),
    "any of all": lambda p, x, v, i, c, h, out: p.any(x - 1, out=out),
    "argmax": lambda p, x, v, i, c, h, out: p.argmax(x, 0, out=out),
    "amax": lambda p, x, v, i, c, h, out: p.amax(x, 0, out=out),
    "max, values": lambda p, x, v, i, c, h, out: p.max(x, 0, out=(out, p.empty(0, dtype=p.int64))),
    "max, indices": lambda p, x, v, i, c, h, out: p.max(x, 0, out=(p.empty(0), out)),
    "max of all": lambda p, x, v, i, c, h, out: p.max(x, out=out),
    "median": lambda p, x, v, i, c, h, out: p.median(x, 0, out=(out, p.empty(0, dtype=p.int64))),
    "sort": lambda p, x, v, i, c, h, out: p.sort(x, 0, out=(p.empty(0), out)),
    "topk": lambda p, x, v, i, c, h, out: p.topk(x, 1, out=(out, p.empty(0, dtype=p.int64))),
    "mm": lambda p, x, v, i, c, h, out: p.mm(x, x, out=out),
    "addmm": lambda p, x, v, i, c, h, out: p.addmm(x, x, x, out=out),
    "dot": lambda p, x, v, i, c, h, out: p.dot(v, v, out=out),
    "inverse": lambda p, x, v, i, c, h, out: p.inverse(x, out=out),
    "linalg.svdvals": lambda p, x, v, i, c, h, out: p.linalg.svdvals(x, out=out),
    "linalg.slogdet": lambda p, x, v, i, c, h, out: p.linalg.slogdet(x, out=(p.empty(0), out)),
    "linalg.norm": lambda p, x, v, i, c, h, out: p.linalg.norm(x, out=out),
    "matrix_power": lambda p, x, v, i, c, h, out: p.linalg.matrix_power(x, 3, out=out),
    "softmax": lambda p, x, v, i, c, h, out: p.softmax(x, 0, out=out),
    "where": lambda p, x, v, i, c, h, out: p.where(x > 1, x, v, out=out),
    "gather": lambda p, x, v, i, c, h, out: p.gather(x, 0, i * 0, out=out),
    "index_select": lambda p, x, v, i, c, h, out: p.index_select(x, 0, i[0] - 1, out=out),
    "scatter_add": lambda p, x, v, i, c, h, out: p.scatter_add(x, 0, i * 0, x, out=out),
    "tril": lambda p, x, v, i, c, h, out: p.tril(x, out=out),
    "isin": lambda p, x, v, i, c, h, out: p.isin(x, v, out=out),
    "bucketize": lambda p, x, v, i, c, h, out: p.bucketize(x, v, out=out),
    "quantile": lambda p, x, v, i, c, h, out: p.quantile(x, 0.5, out=out),
    "cross": lambda p, x, v, i, c, h, out: p.linalg.cross(p.ones(3), p.arange(3.0), out=out),
    "frexp": lambda p, x, v, i, c, h, out: p.frexp(x, out=(out, p.empty(0, dtype=p.int32))),
    "t_copy": lambda p, x, v, i, c, h, out: p.t_copy(x, out=out),
    "sign": lambda p, x, v, i, c, h, out: p.sign(x, out=out),
    "trunc of integers": lambda p, x, v, i, c, h, out: p.trunc(i, out=out),
    "heaviside": lambda p, x, v, i, c, h, out: p.heaviside(x, x, out=out),
    "add": lambda p, x, v, i, c, h, out: p.add(x, v, out=out),
    "eq": lambda p, x, v, i, c, h, out: p.eq(x, v, out=out),
    "hash_tensor": lambda p, x, v, i, c, h, out: p.hash_tensor(x, out=out),
    "normalize": lambda p, x, v, i, c, h, out: p.nn.functional.normalize(x, out=out),
    "avg_pool2d": lambda p, x, v, i, c, h, out: p._C._nn.avg_pool2d(x[None], 2, out=out),
}


def outcome(package, call, dtype):
    out = package.empty(0, dtype=getattr(package, dtype))
    try:
        call(package, *inputs(package), out)
    except Exception as refusal:
        return type(refusal)
    return [*out.shape, *out.flatten().tolist()]


@pytest.mark.filterwarnings("ignore:.*discards the imaginary part")
@pytest.mark.parametrize("name", CALLS)
def test_out_of_every_dtype(name):
    for dtype in DTYPES:
        expected = outcome(torch, CALLS[name], dtype)
        assert outcome(wisp, CALLS[name], dtype) == (expected if isinstance(expected, type) else pytest.approx(expected, rel=1e-6)), dtype
