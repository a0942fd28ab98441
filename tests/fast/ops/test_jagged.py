"""Packed rows of different lengths and padded ones, there and back."""

import pytest

import wisp

padded, packed = wisp._core._jagged_to_padded_dense_forward, wisp._core._padded_dense_to_jagged_forward


def test_rows_are_padded_and_cut():
    values, offsets = wisp.arange(1.0, 7.0), wisp.tensor([0, 2, 2, 6])
    assert padded(values, [offsets], [3], -1.0).tolist() == [[1, 2, -1], [-1, -1, -1], [3, 4, 5]]
    assert padded(values, [offsets], [0]).shape == (3, 0)
    assert padded(values.bfloat16().view(3, 2), [wisp.tensor([0, 1, 3])], [2]).tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]


def test_there_and_back():
    values, offsets = wisp.randn(9, 2, 3), wisp.tensor([0, 0, 4, 5, 9])
    dense = padded(values, [offsets], [4])
    assert dense.shape == (4, 4, 2, 3)
    assert wisp.equal(packed(dense, [offsets], 9), values)
    assert wisp.equal(packed(dense, [offsets]), values)


def test_gradients():
    offsets = wisp.tensor([0, 3, 4])
    values = wisp.randn(4, 2, dtype=wisp.float64, requires_grad=True)
    assert wisp.autograd.gradcheck(lambda x: padded(x, [offsets], [2]), values)
    assert wisp.autograd.gradgradcheck(lambda x: padded(x, [offsets], [3]), values)
    dense = wisp.randn(2, 3, 2, dtype=wisp.float64, requires_grad=True)
    assert wisp.autograd.gradcheck(lambda x: packed(x, [offsets]), dense)


def test_what_does_not_fit_is_refused():
    values = wisp.ones(4)
    with pytest.raises(RuntimeError, match="rise from 0 to 4"):
        padded(values, [wisp.tensor([0, 3, 2, 4])], [2])
    with pytest.raises(RuntimeError, match="single jagged dim"):
        padded(values, [wisp.tensor([0, 4])] * 2, [2])
    with pytest.raises(RuntimeError, match="length 4 when max length"):
        packed(wisp.ones(1, 3), [wisp.tensor([0, 4])])
