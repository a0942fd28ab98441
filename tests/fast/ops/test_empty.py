"""Operators on tensors without elements: shapes of results, zero gradients, and what has no answer."""

import pytest

import wisp
from wisp.nn import functional as F


@pytest.mark.parametrize(
    "f, shape, result",
    [
        (lambda x: x.sum(), (0,), ()),
        (lambda x: x.sum(1), (0, 3), (0,)),
        (lambda x: x.sum(0), (0, 3), (3,)),
        (lambda x: x.prod(), (0,), ()),
        (lambda x: x @ wisp.ones(3, 2), (0, 3), (0, 2)),
        (lambda x: x @ wisp.ones(0, 2), (3, 0), (3, 2)),
        (lambda x: x.softmax(1), (0, 3), (0, 3)),
        (lambda x: x.softmax(1), (3, 0), (3, 0)),
        (lambda x: wisp.cat([x, wisp.ones(2, 3)]), (0, 3), (2, 3)),
        (lambda x: x[:, 1:], (0, 3), (0, 2)),
        (lambda x: x.cumsum(0), (0, 3), (0, 3)),
        (lambda x: x.sort(1)[0], (0, 3), (0, 3)),
        (lambda x: x.mean(1), (0, 3), (0,)),
        (lambda x: F.linear(x, wisp.ones(2, 3)), (0, 3), (0, 2)),
        (lambda x: F.layer_norm(x, (3,)), (0, 3), (0, 3)),
        (lambda x: F.conv2d(x, wisp.ones(2, 1, 3, 3)), (0, 1, 5, 5), (0, 2, 3, 3)),
        (lambda x: x.view(-1, 3), (0, 3), (0, 3)),
        (lambda x: x.amax(1), (0, 3), (0,)),
        (lambda x: x[wisp.zeros(0, dtype=wisp.int64)], (4, 3), (0, 3)),
        (lambda x: x[x > 5], (2, 2), (0,)),
        (lambda x: x.bmm(wisp.ones(0, 3, 2)), (0, 2, 3), (0, 2, 2)),
        (lambda x: F.gelu(x), (0, 3), (0, 3)),
        (lambda x: x.var(1), (0, 3), (0,)),
    ],
)
def test_empty(f, shape, result):
    x = wisp.zeros(shape, requires_grad=True)
    y = f(x)
    assert y.shape == result
    y.sum().backward()
    assert x.grad.shape == shape and not x.grad.any()


@pytest.mark.parametrize("f", [lambda x: x.max(), lambda x: x.amin(), lambda x: x.max(0), lambda x: x.argmax(), lambda x: x.median(0)])
def test_empty_without_an_answer(f):
    with pytest.raises((RuntimeError, IndexError)):
        f(wisp.zeros(0))
