"""assert_close says what PyTorch's says; make_tensor keeps its bounds."""

import numpy as np
import pytest
import torch

import wisp

nan, inf = float("nan"), float("inf")


def pairs(p):
    one, two = p.ones(2), p.tensor([1.0, 1.5])
    yield one, two, {}
    yield one, one.clone(), {}
    yield one, p.ones(3), {}
    yield one, p.ones(2, dtype=p.float64), {}
    yield one, p.ones(2, dtype=p.float64), dict(check_dtype=False)
    yield p.tensor([1.0, nan, inf]), p.tensor([1.0, nan, inf]), {}
    yield p.tensor([1.0, nan, inf]), p.tensor([1.0, nan, inf]), dict(equal_nan=True)
    yield p.tensor([inf, 1.0]), p.tensor([-inf, 1.0]), {}
    yield p.tensor(1.0), p.tensor(2.0), {}
    yield p.tensor(3), p.tensor(4), {}
    yield p.tensor([1, 2]), p.tensor([1, 3]), {}
    yield p.tensor([1, 2]), p.tensor([1, 3]), dict(rtol=0, atol=0.5)
    yield p.tensor([True, False]), p.tensor([True, True]), {}
    yield p.tensor([1 + 1j]), p.tensor([1 + 2j]), {}
    yield p.tensor([1.0, 2.0], dtype=p.float16), p.tensor([1.0, 2.5], dtype=p.float16), {}
    yield p.tensor([1.0, 2.0], dtype=p.bfloat16), p.tensor([1.0, 2.015625], dtype=p.bfloat16), {}
    yield p.zeros(0), p.zeros(0), {}
    yield p.arange(6).reshape(2, 3), p.arange(6).reshape(2, 3) * 2, {}
    yield [1, one], [1, two], {}
    yield {"a": {"b": 1.0}}, {"a": {"b": 2.0}}, {}
    yield {"a": 1}, {"b": 1}, {}
    yield [1], [1, 2], {}
    yield 1.0, 1.0 + 1e-9, {}
    yield 1.0, 1.1, {}
    yield 1, 1.0, {}
    yield 1.0, np.float64(1.0), {}
    yield np.float32(1.0), 1.0, {}
    yield 1, np.int64(2), {}
    yield 1.0, np.int64(1), {}
    yield True, False, {}
    yield None, 1, {}
    yield None, None, {}
    yield "a", "a", {}
    yield one, 1.0, {}
    yield one, one, dict(rtol=0.1)
    yield one, two, dict(msg="own text")
    yield one, two, dict(msg=lambda text: "before\n" + text)
    yield np.ones(2), np.zeros(2), {}
    yield p.ones(2, 2).t()[:, :1], p.ones(2, 1), dict(check_stride=True)


def outcome(package, case):
    actual, expected, options = case
    try:
        package.testing.assert_close(actual, expected, **options)
        return None
    except Exception as error:
        return type(error), str(error).replace("torch.", "").replace("wisp.", "")


@pytest.mark.parametrize("number", range(len(list(pairs(torch)))))
def test_assert_close(number):
    ours = outcome(wisp, list(pairs(wisp))[number])
    theirs = outcome(torch, list(pairs(torch))[number])
    assert ours == theirs


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "uint8", "bool", "complex64"])
def test_make_tensor(dtype):
    kind = getattr(wisp, dtype)
    x = wisp.testing.make_tensor(20, 20, dtype=kind, device="cpu", exclude_zero=True)
    assert x.dtype == kind and tuple(x.shape) == (20, 20) and bool((x != 0).all())
    assert not wisp.testing.make_tensor((4, 4), dtype=kind, device="cpu", noncontiguous=True).is_contiguous()
    if dtype == "float32":
        y = wisp.testing.make_tensor(100, dtype=kind, device="cpu", low=2, high=3, requires_grad=True)
        assert y.requires_grad and y.min() >= 2 and y.max() <= 3
    with pytest.raises(ValueError):
        wisp.testing.make_tensor(3, dtype=kind, device="cpu", low=5, high=1)
