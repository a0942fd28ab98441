"""Comparisons are of values of the common dtype."""

import pytest

import wisp


@pytest.mark.parametrize("dtype", [wisp.float16, wisp.bfloat16])
@pytest.mark.parametrize("call", [lambda f: f, wisp.compile], ids=["eager", "compiled"])
def test_what_a_16_bit_float_is_compared_with_is_rounded_to_it(dtype, call):
    x = wisp.tensor([0.123, 2048.0, 3.0], dtype=dtype)
    first = [True, False, False]
    assert call(lambda t: t == 0.123)(x).tolist() == first
    assert call(lambda t: 0.123 >= t)(x).tolist() == first
    assert call(lambda t: t < 0.123)(x).tolist() == [False] * 3
    assert call(lambda t: t == wisp.tensor(0.123))(x).tolist() == first
    assert call(lambda t: t == wisp.tensor([0, 2049, 3]))(x).tolist() == [False, True, True]
    assert x.clone().eq_(0.123).tolist() == [1.0, 0.0, 0.0]
    assert wisp.ne(x, 0.123, out=wisp.empty(3, dtype=wisp.bool)).tolist() == [False, True, True]
    assert (x.double() == wisp.tensor(0.123)).tolist() == [False] * 3  # a float of 32 bits, not one of 16
