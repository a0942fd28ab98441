"""complex32 and float8: stored, moved and converted; what is computed with them is what PyTorch computes."""

import copy
import io

import pytest

import wisp

FLOAT8 = [wisp.float8_e4m3fn, wisp.float8_e5m2, wisp.float8_e4m3fnuz, wisp.float8_e5m2fnuz, wisp.float8_e8m0fnu]
STORED = [wisp.complex32, *FLOAT8]


def codes(dtype):
    """Each of the 256 codes once."""
    return wisp.arange(256).to(wisp.uint8).view(dtype)


def test_names_and_sizes():
    assert [d.itemsize for d in STORED] == [4, 1, 1, 1, 1, 1]
    assert wisp.chalf is wisp.complex32 and wisp.complex32.is_complex and wisp.complex32.to_real() is wisp.float16
    assert wisp.float16.to_complex() is wisp.complex32 and wisp.bfloat16.to_complex() is wisp.complex64
    assert all(d.is_floating_point and d.is_signed == (d is not wisp.float8_e8m0fnu) for d in FLOAT8)
    assert [d.abbr for d in (wisp.bool, wisp.bfloat16, wisp.uint16, *STORED[:2])] == ["b8", "bf16", "u16", "c32", "f8e4m3fn"]
    for dtype in (wisp.int32, wisp.float8_e5m2):
        with pytest.raises(RuntimeError, match="Unknown Complex ScalarType for"):
            dtype.to_complex()
    assert repr(wisp.tensor([1.5 - 2j], dtype=wisp.chalf, device="cpu")) == "tensor([1.5000-2.j], dtype=torch.complex32)"
    assert repr(wisp.tensor([1.5, 2], dtype=wisp.float8_e5m2, device="cpu")) == "tensor([1.5000, 2.0000], dtype=torch.float8_e5m2)"
    assert wisp.zeros(1, dtype=wisp.chalf, device="cpu").type() == "torch.ComplexHalfTensor"


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_code_survives_a_conversion(dtype):
    there = codes(dtype).float()
    assert wisp.equal(there.to(dtype).view(wisp.uint8)[~there.isnan()], wisp.arange(256).to(wisp.uint8)[~there.isnan()])
    assert there.to(dtype).float().isnan().equal(there.isnan())
    assert codes(dtype).double().float().nan_to_num(7).equal(there.nan_to_num(7))


def test_values_of_float8():
    largest = wisp.tensor([448.0, -1e9, float("inf"), -0.0, float("nan")], dtype=wisp.float8_e4m3fn)
    assert largest.view(wisp.uint8).tolist() == [126, 254, 126, 128, 127]
    assert wisp.tensor([57344.0, 61439.0, 61440.0, -0.0]).to(wisp.float8_e5m2).view(wisp.uint8).tolist() == [123, 123, 124, 128]
    assert wisp.tensor([240.0, 1e9, -0.0, float("nan")]).to(wisp.float8_e4m3fnuz).view(wisp.uint8).tolist() == [127, 128, 0, 128]
    assert wisp.tensor([1.0, 1.5, 3.0, 0.0]).to(wisp.float8_e8m0fnu).tolist() == [1.0, 2.0, 4.0, 2.0**-127]
    assert wisp.full((2,), 3.3, dtype=wisp.float8_e4m3fn).tolist() == [3.25, 3.25]


@pytest.mark.parametrize("dtype", STORED)
def test_moving_keeps_the_bytes(dtype):
    x = codes(dtype).reshape(8, -1)
    bits = wisp.int32 if dtype.is_complex else wisp.uint8
    b = x.view(bits)
    index = wisp.tensor([3, 0, 3])
    for move in (
        lambda t: t.t().contiguous(),
        lambda t: t[:, ::2].clone(),
        lambda t: wisp.cat([t, t], 1),
        lambda t: wisp.stack([t[0], t[1]]),
        lambda t: t[index],
        lambda t: t[t.view(bits) > 5],
        lambda t: t.index_select(0, index),
        lambda t: t.roll(1, 0).repeat(2, 1),
        lambda t: wisp.where(t.view(bits) > 9, t, t[0]),
        lambda t: t.reshape(-1).unfold(0, 4, 3).flatten().diag(),
        lambda t: copy.deepcopy(t),
        lambda t: wisp.empty_like(t).copy_(t),
    ):
        assert move(x).dtype is dtype and wisp.equal(move(x).view(bits), move(b))
    x, b = x.clone(), b.clone()
    x[index], b[index] = x[4].clone(), b[4].clone()
    x[0, 1:3] = x[7, :2]
    b[0, 1:3] = b[7, :2]
    assert x.view(bits).equal(b)


@pytest.mark.parametrize("dtype", STORED)
def test_files_and_factories(dtype):
    stream = io.BytesIO()
    wisp.save({"x": codes(dtype)}, stream)
    stream.seek(0)
    assert wisp.load(stream)["x"].dtype is dtype
    stream.seek(0)
    assert wisp.load(stream)["x"].view(wisp.uint8).equal(codes(dtype).view(wisp.uint8))
    assert wisp.ones(2, dtype=dtype).tolist() == [1, 1] and wisp.zeros(2, 2).new_full((1,), 2, dtype=dtype).item() == 2
    assert wisp.from_dlpack(codes(dtype)).dtype is dtype
    with pytest.raises(TypeError, match="unsupported ScalarType (ComplexHalf|Float8)"):
        codes(dtype).numpy()


def test_promotion():
    half, whole = wisp.ones(2, dtype=wisp.float16), wisp.ones(2, dtype=wisp.int32)
    z = wisp.ones(2, dtype=wisp.chalf)
    assert (z * half).dtype is (z + whole).dtype is (half * 1j).dtype is wisp.chalf
    assert (z * half.float()).dtype is (z * half.bfloat16()).dtype is (z - z.cfloat()).dtype is wisp.complex64
    assert wisp.result_type(z, wisp.ones(2, dtype=wisp.float64)) is wisp.complex128
    assert wisp.promote_types(wisp.chalf, wisp.bool) is wisp.chalf
    with pytest.raises(RuntimeError, match="Promotion for Float8 Types is not supported, attempted to promote Float8_e5m2 and Float"):
        wisp.promote_types(wisp.float8_e5m2, wisp.float32)


def test_complex32_is_computed_in_complex64():
    x = wisp.randn(3, 4, dtype=wisp.complex64).chalf()
    y = wisp.rand(4, dtype=wisp.chalf)
    wide, other = x.cfloat(), y.cfloat()
    for compute in (
        lambda a, b: a + b,
        lambda a, b: a - 2 * b,
        lambda a, b: a * b.conj(),
        lambda a, b: wisp.addcmul(a, a, b, value=0.5),
        lambda a, b: (-a).sgn(),
        lambda a, b: a.abs(),
        lambda a, b: a.var(0),
        lambda a, b: wisp.linalg.vector_norm(a, dim=1),
        lambda a, b: a.index_add(0, wisp.tensor([0, 0, 2]), a),
        lambda a, b: wisp.nn.functional.conv1d(a[None], a[None, :, :2]),
    ):
        got, expected = compute(x, y), compute(wide, other)
        assert got.dtype is (wisp.chalf if expected.is_complex() else wisp.float16)
        wisp.testing.assert_close(got.to(expected.dtype), expected, rtol=2e-3, atol=2e-3)
    assert (x == x.clone()).all() and not (x != x).any() and x.isfinite().all() and x.count_nonzero() == 12


def test_parts_and_views_of_complex32():
    z = wisp.complex(wisp.tensor([1.0, 2.0]).half(), wisp.tensor([3.0, 4.0]).half())
    assert z.dtype is wisp.chalf and z.real.tolist() == [1, 2] and z.imag.dtype is wisp.float16
    assert wisp.view_as_complex(wisp.view_as_real(z)).equal(z)
    z.imag = wisp.zeros(2)
    z.real[0] = 7
    assert z.tolist() == [7, 2]
    assert (z * 1j).conj().resolve_conj().tolist() == [-7j, -2j]


def test_gradients_of_complex32():
    x = wisp.randn(3, dtype=wisp.chalf, requires_grad=True)
    y = wisp.randn(3, dtype=wisp.chalf)
    ((x * y) + x).backward(wisp.ones(3, dtype=wisp.chalf))
    assert x.grad.dtype is wisp.chalf
    wisp.testing.assert_close(x.grad.cfloat(), y.cfloat().conj() + 1, rtol=2e-3, atol=2e-3)
    x.grad = None
    x.abs().backward(wisp.ones(3, dtype=wisp.float16))
    wisp.testing.assert_close(x.grad.cfloat(), x.detach().cfloat().sgn(), rtol=2e-3, atol=2e-3)
    x.grad = None
    x[wisp.tensor([0, 0, 1])].cfloat().real.sum().backward()
    assert x.grad.tolist() == [2, 1, 0]


@pytest.mark.parametrize("name", ["exp", "sum", "sqrt", "cumsum", "sort", "prod", "sigmoid", "flip", "max", "bmm", "log_softmax", "unique"])
def test_what_is_not_computed_is_refused(name):
    for dtype in STORED:
        x = wisp.ones(2, 2, 2, dtype=dtype)
        arguments = (0,) if name in ("cumsum", "flip", "log_softmax") else (x,) if name == "bmm" else ()
        with pytest.raises(NotImplementedError, match="not implemented for '(ComplexHalf|Float8_)"):
            getattr(x, name)(*arguments)
    with pytest.raises(NotImplementedError, match="not implemented for 'Float8_e5m2'"):
        wisp.ones(2, dtype=wisp.float8_e5m2) + 1
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexHalf'"):
        wisp.ones(2, dtype=wisp.chalf) / 2
    with pytest.raises(NotImplementedError, match="\"arange\" not implemented for 'Float8_e5m2'"):
        wisp.arange(3, dtype=wisp.float8_e5m2)


def test_comparison_of_float8():
    x = wisp.tensor([1.0, float("nan"), 3.0], dtype=wisp.float8_e5m2)
    assert (x == x.clone()).tolist() == [True, False, True] and x.isnan().tolist() == [False, True, False]
    assert wisp.isclose(x, x, rtol=0, atol=0, equal_nan=True).all() and x.count_nonzero() == 3 and x.abs().dtype is x.dtype
    wisp.testing.assert_close(x, x.clone(), equal_nan=True)
    with pytest.raises(AssertionError, match=r"The first mismatched element is at index \(2,\)"):
        wisp.testing.assert_close(x, wisp.tensor([1.0, float("nan"), 4.0], dtype=x.dtype), equal_nan=True)
    z = wisp.testing.make_tensor(1000, dtype=wisp.chalf, device="cpu", low=0, high=1)
    assert wisp.view_as_real(z).max() < 1


def test_scaled_and_integer_products():
    a, b = wisp.randn(4, 8).to(wisp.float8_e4m3fn), wisp.randn(8, 5).to(wisp.float8_e5m2)
    rows, columns, bias = wisp.rand(4, 1), wisp.rand(1, 5), wisp.randn(5)
    got = wisp._scaled_mm(a, b, rows, columns, bias, out_dtype=wisp.float32)
    wisp.testing.assert_close(got, (a.float() * rows) @ (b.float() * columns) + bias)
    assert wisp._scaled_mm(a, b, wisp.tensor(1.0), wisp.tensor(1.0)).dtype is wisp.float8_e4m3fn
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        wisp._scaled_mm(a, b, wisp.ones(3), columns)
    x, y = wisp.full((2, 3), -128, dtype=wisp.int8), wisp.full((3, 2), 127, dtype=wisp.int8)
    assert wisp._int_mm(x, y).tolist() == [[-48768] * 2] * 2 and wisp._int_mm(x, y).dtype is wisp.int32
    with pytest.raises(RuntimeError, match="Expected mat2 dtype to be of type int8"):
        wisp._int_mm(x, y.to(wisp.uint8))


def test_the_first_tensor_of_complex_halves_warns():
    wisp.set_warn_always(True)
    try:
        for make in (lambda: wisp.rand(3, dtype=wisp.chalf), lambda: wisp.zeros(3, dtype=wisp.complex64).to(wisp.chalf)):
            with pytest.warns(UserWarning, match="ComplexHalf support is experimental"):
                make()
    finally:
        wisp.set_warn_always(False)
