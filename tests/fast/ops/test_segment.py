"""segment_reduce against Python's own sums, its gradients against finite differences."""

import math

import pytest

import wisp

FOLDS = {
    "sum": lambda v: v.sum(0),
    "mean": lambda v: v.mean(0),
    "max": lambda v: v.amax(0),
    "min": lambda v: v.amin(0),
    "prod": lambda v: v.prod(0),
}


@pytest.mark.parametrize("fold", FOLDS)
def test_values_and_gradients(fold):
    x = wisp.randn(2, 7, 3, dtype=wisp.float64, requires_grad=True)
    lengths = wisp.tensor([[2, 1, 4], [3, 3, 1]])
    y = wisp.segment_reduce(x, fold, lengths=lengths, axis=1)
    assert y.shape == (2, 3, 3)
    for row in range(2):
        at = 0
        for segment, n in enumerate(lengths[row].tolist()):
            assert wisp.allclose(y[row, segment], FOLDS[fold](x[row, at : at + n]))
            at += n
    assert wisp.autograd.gradcheck(lambda x: wisp.segment_reduce(x, fold, lengths=lengths, axis=1), x)


def test_what_empty_segments_are():
    x, lengths = wisp.tensor([1.0, 2.0]), wisp.tensor([2, 0])
    assert wisp.segment_reduce(x, "sum", lengths=lengths).tolist() == [3.0, 0.0]
    assert wisp.segment_reduce(x, "max", lengths=lengths).tolist() == [2.0, -math.inf]
    assert wisp.segment_reduce(x, "prod", lengths=lengths, initial=5.0).tolist() == [10.0, 5.0]
    assert math.isnan(wisp.segment_reduce(x, "mean", lengths=lengths)[1])


def test_a_zero_in_a_product_gets_the_product_of_the_others():
    x = wisp.tensor([0.0, 3.0, 5.0], requires_grad=True)
    wisp.segment_reduce(x, "prod", lengths=wisp.tensor([3])).backward(wisp.ones(1))
    assert x.grad.tolist() == [15.0, 0.0, 0.0]


def test_elements_outside_of_the_offsets_get_no_gradient():
    x = wisp.ones(5, requires_grad=True)
    y = wisp.segment_reduce(x, "sum", offsets=wisp.tensor([1, 2, 4]))
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([1.0, 2.0], [0.0, 1.0, 1.0, 1.0, 0.0])


def test_half_precision_and_second_derivatives():
    x = wisp.ones(3, dtype=wisp.bfloat16)
    assert wisp.segment_reduce(x, "sum", lengths=wisp.tensor([3])).dtype == wisp.bfloat16
    x = wisp.randn(4, dtype=wisp.float64, requires_grad=True)
    assert wisp.autograd.gradgradcheck(lambda x: wisp.segment_reduce(x * x, "mean", lengths=wisp.tensor([1, 3])), x)


def test_wrong_segments_are_refused():
    x = wisp.ones(3)
    with pytest.raises(RuntimeError, match="negative"):
        wisp.segment_reduce(x, "sum", lengths=wisp.tensor([4, -1]))
    with pytest.raises(RuntimeError, match="sum to data.size"):
        wisp.segment_reduce(x, "sum", lengths=wisp.tensor([1]))
    with pytest.raises(RuntimeError, match="lengths or offsets"):
        wisp.segment_reduce(x, "sum")
    with pytest.raises(RuntimeError, match="reduce must be one of"):
        wisp.segment_reduce(x, "median", lengths=wisp.tensor([3]))
