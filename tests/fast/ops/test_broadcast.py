"""One row against many: the driver lays a repeated row out several times and cuts the work on cache lines."""

import numpy
import pytest

import wisp


@pytest.mark.parametrize("inner", [1, 2, 3, 10, 16, 100, 683, 1000, 1024, 1025, 5000])
@pytest.mark.parametrize("rows", [1, 2, 3, 17, 70])
def test_row_against_many(rows, inner):
    random = numpy.random.default_rng(0)
    for dtype in (numpy.float32, numpy.float64, numpy.int64, numpy.complex128):
        a, b = random.integers(-9, 9, (rows, inner)).astype(dtype), random.integers(-9, 9, inner).astype(dtype)
        x, y = wisp.from_numpy(a), wisp.from_numpy(b)
        assert ((x * y).numpy() == a * b).all()
        assert ((y - x).numpy() == b - a).all()
        assert (wisp.where(x == y, x, y).numpy() == b).all()
        assert (wisp.addcmul(x, y, y).numpy() == a + b * b).all()
        assert (x.clone().add_(y).numpy() == a + b).all()
        wide = wisp.from_numpy(numpy.zeros((rows, inner + 3), dtype))[:, 1 : inner + 1]
        assert (wide.add_(x).mul_(y).numpy() == a * b).all()


def test_large_pieces_are_all_covered():
    for n in (32769, 99999, 1000003):
        x = wisp.arange(n).double()
        assert (x + x).sum().item() == n * (n - 1)
        assert (-x)[-1].item() == 1 - n
    x = wisp.arange(70000).double().view(700, 100)
    y = wisp.arange(100).double()
    assert ((x + y).numpy() == x.numpy() + y.numpy()).all()
    for plane in (15, 17, 40000):  # a number for each channel
        x, y = wisp.arange(6 * plane).double().view(2, 3, plane), wisp.tensor([[1.0], [2.0], [3.0]]).double()
        assert ((x + y).numpy() == x.numpy() + y.numpy()).all()
        assert ((y / (x + 1)).numpy() == y.numpy() / (x.numpy() + 1)).all()


def test_a_row_of_the_result_itself():
    x = wisp.arange(60000).double().view(600, 100)
    expected = x.numpy() + x.numpy()[3]
    x.add_(x[3])
    assert (x.numpy() == expected).all()


def test_strides_where_all_operands_are_stretched():
    """The order of dims is that of the first operand that tells two of them apart."""
    x = wisp.ones(2, 1, 3).transpose(0, 2)  # (3, 1, 2), its first dim innermost
    assert (x + wisp.ones(2, 2)).stride() == (1, 3, 6)
    assert (wisp.ones(2, 2) + x).stride() == (1, 3, 6)
    assert (wisp.ones(3, 1, 2).permute(2, 1, 0) + wisp.ones(4, 3)).stride() == (1, 2, 8)
    assert (wisp.ones(3, 2).t() + wisp.ones(4, 1, 1)).stride() == (6, 1, 2)
    assert (wisp.ones(3, 1) + wisp.ones(1, 4)).stride() == (4, 1)
    assert wisp.equal(x + wisp.arange(4.0).view(2, 2), x.contiguous() + wisp.arange(4.0).view(2, 2))


def test_where_and_roll_have_the_strides_of_pytorch():
    a = wisp.arange(60.0).reshape(3, 4, 5)
    x = a.permute(2, 0, 1)
    assert wisp.where(x > 9, x, 0).stride() == wisp.where(x > 9, x.contiguous(), x).stride() == (1, 20, 5)  # the condition counts first
    assert wisp.where(a > 9, x.permute(1, 2, 0), 0).stride() == (20, 5, 1)
    assert x.roll(1, 0).stride() == x.roll(0, 0).stride() == x.roll(3).stride() == (12, 4, 1)
    images = a[None].contiguous(memory_format=wisp.channels_last)
    assert wisp.where(images > 9, images, 0).stride() == images.stride() and images.roll(1, 1).is_contiguous()
    assert images.roll((1, 2), (1, 3)).equal(a[None].roll((1, 2), (1, 3)))


def test_fresh_tensors_keep_the_order_of_strides():
    x = wisp.arange(4.0).unfold(0, 3, 1)  # both strides are 1: the longer dimension lies further out
    assert wisp.empty_like(x).stride() == x.clone().stride() == x.flip(1).stride() == x.double().stride() == (1, 2)
    y = wisp.rand(4, 6).t()[::2]
    assert y.sort(0)[0].stride() == y.sort(1)[1].stride() == y.clone().stride() == (1, 3)
    assert y.sort(0)[0].equal(y.contiguous().sort(0)[0]) and y.sort(1)[1].equal(y.contiguous().sort(1)[1])
    assert y.masked_fill(y > 0.5, 0).is_contiguous() and y.bernoulli().is_contiguous() and y.renorm(2, 0, 1).is_contiguous()


@pytest.mark.parametrize("sizes", [(16, 16), (33, 129), (130, 17), (5, 70, 300), (1000, 3)])
def test_transposed_operands(sizes):
    random = numpy.random.default_rng(0)
    for dtype in (numpy.float32, numpy.int64, numpy.uint8, numpy.complex128):
        a, b = (random.integers(1, 9, sizes).astype(dtype) for _ in range(2))
        turned = wisp.from_numpy(numpy.ascontiguousarray(numpy.swapaxes(b, -1, -2))).transpose(-1, -2)
        x = wisp.from_numpy(a)
        assert ((x + turned).numpy() == a + b).all()
        assert ((turned * x).numpy() == b * a).all()
        assert (wisp.where(x == turned, x, turned).numpy() == b).all()
        assert (wisp.addcmul(x, turned, turned).numpy() == a + b * b).all()
        assert ((turned * x[..., :1]).numpy() == b * a[..., :1]).all()
        expected = a * b
        assert (x.mul_(turned).numpy() == expected).all()


def test_transposed_self_is_read_before_it_is_written():
    x = wisp.arange(90000).double().view(300, 300)
    expected = x.numpy() + x.numpy().T
    x.add_(x.t())
    assert (x.numpy() == expected).all()


def test_arithmetic_of_two_numbers_gives_a_tensor():
    for name, expected in (("add", 9.0), ("sub", 5.0), ("mul", 14.0), ("div", 3.5), ("floor_divide", 3.0)):
        result = getattr(wisp, name)(7, 2.0)
        assert result.item() == expected and result.shape == () and result.dtype == wisp.float32
    assert wisp.add(True, True).dtype == wisp.bool and wisp.mul(2, 3).dtype == wisp.int64
    assert wisp.add(1, 2, alpha=3).item() == 7
    with pytest.raises(RuntimeError, match="Boolean alpha"):
        wisp.add(1, 1, alpha=True)
    with pytest.raises(TypeError, match="at least one Tensor"):
        wisp.pow(2, 3)


def test_clamp_has_the_dtype_of_the_tensor_and_both_bounds():
    x = wisp.ones(2, dtype=wisp.int32)
    double, single = wisp.zeros(2, dtype=wisp.float64), wisp.ones(2)
    for low, high, dtype in (
        (double[0], single, wisp.float32),  # a bound without dimensions is weaker than the other
        (single[0], double[0], wisp.float64),
        (double[0], 1, wisp.float32),  # beside a number it is one
        (double, single, wisp.float64),
        (double[0], None, wisp.float64),
    ):
        assert wisp.clamp(x, low, high).dtype == dtype
