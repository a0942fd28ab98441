"""A bool element is one byte, and any byte but 0 is true: views of other dtypes, NumPy and files bring such bytes."""

import numpy as np
import pytest

import wisp


def odd(values):
    """A bool tensor of the truth of `values`, its true bytes being anything but 1."""
    plain = np.asarray(values, dtype=bool)
    bytes_of = np.resize(np.array([255, 2, 128, 254, 3], dtype=np.uint8), plain.shape)
    return wisp.from_numpy(np.where(plain, bytes_of, 0).astype(np.uint8)).view(wisp.bool)


TRUTH = np.random.default_rng(0).random((7, 613)) < 0.4
CASES = {
    "sum": lambda m: m.sum(),
    "sum of rows": lambda m: m.sum(1),
    "sum of columns": lambda m: m.sum(0),
    "count_nonzero": lambda m: m.count_nonzero(),
    "any": lambda m: m.any(0),
    "all": lambda m: m.all(0),
    "nonzero": lambda m: m.nonzero(),
    "argwhere": lambda m: wisp.argwhere(m),
    "masked_select": lambda m: wisp.arange(m.numel()).view(m.shape).masked_select(m),
    "masked_scatter": lambda m: wisp.zeros(m.shape).masked_scatter(m, wisp.ones(m.numel())),
    "index": lambda m: wisp.arange(m.numel()).view(m.shape)[m],
    "float": lambda m: m.float(),
    "half": lambda m: m.half(),
    "uint8": lambda m: m.to(wisp.uint8),
    "strided": lambda m: m[:, ::2].int(),
    "equality": lambda m: m == wisp.from_numpy(TRUTH.copy()),
    "xor": lambda m: m ^ wisp.from_numpy(TRUTH.copy()),
    "and": lambda m: m & wisp.ones(m.shape, dtype=wisp.bool),
    "not": lambda m: ~m,
    "sort": lambda m: m.sort(dim=1, stable=True).indices,
    "max": lambda m: m.max(1).indices,
    "cummax": lambda m: m.cummax(1).indices,
    "cumsum": lambda m: m.cumsum(1),
    "mode": lambda m: m.mode(1).values.int(),
    "where": lambda m: wisp.where(m, 1.0, 2.0),
    "scatter_reduce": lambda m: wisp.ones(7, 1, dtype=wisp.bool).scatter_reduce(1, wisp.zeros(m.shape, dtype=wisp.int64), m, "prod").int(),
    "unique": lambda m: m.unique(return_counts=True)[1],
    "attention": lambda m: wisp.nn.functional.scaled_dot_product_attention(
        wisp.ones(1, 7, 4), wisp.ones(1, 613, 4), wisp.arange(613.0).view(1, -1, 1), attn_mask=m
    ),
    "list": lambda m: m[0].tolist(),
}


@pytest.mark.parametrize("name", CASES)
def test_any_byte_but_zero_is_true(name):
    want, got = CASES[name](wisp.from_numpy(TRUTH.copy())), CASES[name](odd(TRUTH))
    assert repr(got.tolist() if isinstance(got, wisp.Tensor) else got) == repr(want.tolist() if isinstance(want, wisp.Tensor) else want)


def test_many_such_bytes():
    m = wisp.full((4096,), 255, dtype=wisp.uint8).view(wisp.bool)
    assert m.nonzero().shape == (4096, 1) and m.sum().item() == 4096
    assert wisp.arange(4096)[m].shape == (4096,)
    assert bool(m[0]) is True and m[0].item() is True
