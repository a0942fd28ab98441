"""Fourier transforms and linear algebra on the GPU, with gradients, against the CPU."""

import numpy
import pytest
from test_families import both
from test_operators import near

import wisp

DTYPES = [wisp.float32, wisp.float64, wisp.complex64, wisp.complex128]


def made(*shape, dtype=wisp.float64):
    return wisp.randn(shape, dtype=dtype)


def agree(f, *tensors, tolerance=1e-4):
    """Values, and gradients of a fixed function of them, on both devices."""
    results = []
    for device in ("cpu", "cuda"):
        given = [t.detach().to(device).requires_grad_() for t in tensors]
        y = f(*given)
        wisp.manual_seed(5)
        weight = wisp.randn(y.shape, dtype=y.dtype).to(device)
        total = (y * weight).sum()
        grads = wisp.autograd.grad(total.real if total.is_complex() else total, given)
        results.append((y.detach(), grads))
    near(results[1][0], results[0][0], tolerance)
    for gpu, cpu in zip(results[1][1], results[0][1]):
        near(gpu, cpu, tolerance * 10)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 30, 101, 4096], ids=str)
@pytest.mark.parametrize("wide", [False, True])
def test_one_dimension(n, wide):
    real, complex_ = (wisp.float64, wisp.complex128) if wide else (wisp.float32, wisp.complex64)
    x, z = made(3, n, dtype=real), made(3, n, dtype=complex_)
    tolerance = 1e-9 if wide else 2e-3
    for f in (wisp.fft.fft, wisp.fft.ifft, lambda t: wisp.fft.fft(t, norm="ortho"), lambda t: wisp.fft.fft(t, n=n + 3)):
        agree(f, z, tolerance=tolerance)
    agree(wisp.fft.rfft, x, tolerance=tolerance)
    if n > 1:
        agree(wisp.fft.irfft, z, tolerance=tolerance)
        agree(wisp.fft.hfft, z, tolerance=tolerance)
        agree(lambda t: wisp.fft.irfft(t, n=2 * n - 1), z, tolerance=tolerance)
        agree(wisp.fft.ihfft, x, tolerance=tolerance)


def test_more_dimensions():
    z, x = made(2, 3, 4, 5, 6, dtype=wisp.complex128), made(2, 3, 4, 5, 6)
    for dims in ((0,), (1, 3), (4, 0, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4)):
        agree(lambda t: wisp.fft.fftn(t, dim=dims), z)
        agree(lambda t: wisp.fft.ifftn(t, dim=dims), z.transpose(0, 4))
        agree(lambda t: wisp.fft.rfftn(t, dim=dims), x)
    agree(wisp.fft.fft2, z)
    agree(wisp.fft.irfft2, z)
    assert wisp.fft.fft(wisp.zeros(0, 4).cuda()).shape == (0, 4)


def well(n, *batch, dtype=wisp.float64):
    a = made(*batch, n, n, dtype=dtype)
    return a + 3 * n**0.5 * wisp.eye(n, dtype=dtype)


def same(gpu, array, tolerance):
    """Against NumPy, which brings a LAPACK of its own."""
    assert gpu.device.type == "cuda"
    numpy.testing.assert_allclose(gpu.detach().cpu().numpy(), array, rtol=tolerance, atol=tolerance)


def differentiable(f, *tensors):
    assert wisp.autograd.gradcheck(f, [t.detach().cuda().requires_grad_() for t in tensors], atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)], ids=str)
def test_systems(dtype, batch):
    wide = dtype in (wisp.float64, wisp.complex128)
    tolerance = 1e-8 if wide else 2e-3
    a, b = well(6, *batch, dtype=dtype), made(*batch, 6, 3, dtype=dtype)
    array, A, B = a.numpy(), a.cuda(), b.cuda()
    same(wisp.linalg.solve(A, B), numpy.linalg.solve(array, b.numpy()), tolerance)
    same(wisp.linalg.solve(A, B.mT, left=False), numpy.linalg.solve(array.swapaxes(-1, -2), b.numpy()).swapaxes(-1, -2), tolerance)
    same(wisp.linalg.inv(A), numpy.linalg.inv(array), tolerance)
    same(wisp.linalg.det(A / 5), numpy.linalg.det(array / 5), tolerance * 10)
    same(wisp.linalg.slogdet(A)[1], numpy.linalg.slogdet(array)[1], tolerance)
    same(wisp.linalg.lu_solve(*wisp.linalg.lu_factor(A), B), numpy.linalg.solve(array, b.numpy()), tolerance)
    p, lower, u = wisp.linalg.lu(A)
    same(p @ lower @ u, array, tolerance)
    positive = A @ A.mH + wisp.eye(6, dtype=dtype, device="cuda")
    same(wisp.linalg.cholesky(positive), numpy.linalg.cholesky(positive.cpu().numpy()), tolerance)
    same(A.triu() @ wisp.linalg.solve_triangular(A.triu(), B, upper=True), b.numpy(), tolerance)
    same(wisp.linalg.solve_triangular(A.tril(), B.mT, upper=False, left=False) @ A.tril(), b.mT.numpy(), tolerance)
    if wide and batch != (2, 3):
        differentiable(wisp.linalg.solve, a, b)
        differentiable(wisp.linalg.inv, a)
        differentiable(wisp.linalg.det, a / 5)
        differentiable(lambda a: wisp.linalg.cholesky(a @ a.mH), a)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7), (3, 6, 4)], ids=str)
def test_decompositions(dtype, shape):
    wide = dtype in (wisp.float64, wisp.complex128)
    tolerance = 1e-8 if wide else 3e-3
    a = made(*shape, dtype=dtype)
    A, array = a.cuda(), a.numpy()
    q, r = wisp.linalg.qr(A)
    same(q @ r, array, tolerance)
    same(q.mH @ q, (wisp.eye(q.shape[-1], dtype=dtype).expand(q.mH.shape[:-2] + (q.shape[-1],) * 2)).numpy(), tolerance)
    u, s, vh = wisp.linalg.svd(A, full_matrices=False)
    same((u * s.unsqueeze(-2).to(u.dtype)) @ vh, array, tolerance)
    same(s, numpy.linalg.svd(array, compute_uv=False), tolerance)
    u, s, vh = wisp.linalg.svd(A)
    assert u.shape[-1] == a.shape[-2] and vh.shape[-2] == a.shape[-1]
    same(vh @ vh.mH, wisp.eye(vh.shape[-1], dtype=dtype).expand(vh.shape).numpy(), tolerance)
    same(wisp.linalg.svdvals(A), numpy.linalg.svd(array, compute_uv=False), tolerance)
    same(wisp.linalg.pinv(A), numpy.linalg.pinv(array), tolerance * 10)
    b = made(*shape[:-1], 2, dtype=dtype)
    expected = numpy.linalg.pinv(array) @ b.numpy()
    same(wisp.linalg.lstsq(A, b.cuda()).solution, expected, tolerance * 10)
    if wide:
        differentiable(wisp.linalg.svdvals, a)
        if shape[-2] >= shape[-1]:
            differentiable(lambda a: wisp.linalg.qr(a)[1].abs(), a)
    if shape[-1] == shape[-2]:
        h = A + A.mH
        same(wisp.linalg.eigvalsh(h), numpy.linalg.eigvalsh(h.cpu().numpy()), tolerance)
        values, vectors = wisp.linalg.eigh(h)
        same(h @ vectors - vectors * values.to(dtype), numpy.zeros(shape), tolerance * 10)
        values, vectors = wisp.linalg.eig(A)
        same(A.to(values.dtype) @ vectors - vectors * values.unsqueeze(-2), numpy.zeros(shape), tolerance * 10)


def test_errors_name_the_matrix():
    with pytest.raises(wisp.linalg.LinAlgError, match="singular"):
        wisp.linalg.inv(wisp.zeros(3, 3).cuda())
    with pytest.raises(wisp.linalg.LinAlgError, match="positive-definite"):
        wisp.linalg.cholesky(-wisp.eye(3).cuda())
    with pytest.raises(RuntimeError, match="gels"):
        wisp.linalg.lstsq(wisp.randn(3, 3).cuda(), wisp.randn(3, 1).cuda(), driver="gelsd")
    both(lambda a: a.t() @ a, wisp.randn(4, 4))


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indefinite(dtype, hermitian):
    """Factors and pivots are LAPACK's; zeros on the diagonal ask for pivots of two rows."""
    tolerance = 1e-3 if dtype in (wisp.float32, wisp.complex64) else 1e-9
    for shape in ((1, 1), (5, 5), (3, 40, 40), (2, 2, 7, 7), (300, 300), (0, 0), (0, 3, 3)):
        a, b = made(*shape, dtype=dtype), made(*shape[:-1], 3, dtype=dtype)
        a = a + (a.mH if hermitian else a.mT)
        a.diagonal(dim1=-2, dim2=-1).mul_(0 if shape[-1] == 40 else 1)
        cpu, gpu = (wisp.linalg.ldl_factor_ex(x, hermitian=hermitian) for x in (a, a.cuda()))
        near(gpu.pivots, cpu.pivots, 0)
        near(gpu.info, cpu.info, 0)
        near(gpu.LD, cpu.LD, tolerance * 10)
        x = wisp.linalg.ldl_solve(gpu.LD, gpu.pivots, b.cuda(), hermitian=hermitian)
        near(a.cuda() @ x, b, tolerance * 100)


def test_indefinite_refusals():
    with pytest.raises(wisp.linalg.LinAlgError, match=r"Batch element 0.*D\[1,1\] is zero"):
        wisp.linalg.ldl_factor(wisp.zeros(2, 3, 3).cuda())
    with pytest.raises(RuntimeError, match="pivots must come from ldl_factor"):
        wisp.linalg.ldl_solve(wisp.eye(3).cuda(), wisp.tensor([1, -2, 9], dtype=wisp.int32).cuda(), wisp.eye(3).cuda())
        wisp.cuda.synchronize()


@pytest.mark.parametrize(
    "make",
    [
        lambda: wisp.nn.LSTM(8, 16, 2, bidirectional=True),
        lambda: wisp.nn.GRU(8, 16, 2),
        lambda: wisp.nn.RNN(8, 16, nonlinearity="relu"),
        lambda: wisp.nn.RNN(8, 16, bias=False),
        lambda: wisp.nn.LSTM(8, 16, proj_size=5, batch_first=True),
    ],
    ids=["lstm", "gru", "relu", "tanh", "projected"],
)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64], ids=str)
def test_recurrent_layers(make, packed, dtype):
    x = wisp.randn(7, 5, 8, dtype=dtype)
    results = []
    for device in ("cpu", "cuda"):
        wisp.manual_seed(0)
        net = make().to(device, dtype)
        given = x.to(device).detach().requires_grad_()
        if packed:
            lengths = wisp.tensor([7, 2, 4, 4, 1, 3, 2]) if net.batch_first else wisp.tensor([7, 2, 4, 4, 1])
            lengths = lengths.clamp(max=5) if net.batch_first else lengths
            data = wisp.nn.utils.rnn.pack_padded_sequence(given, lengths, net.batch_first, enforce_sorted=False)
            out, state = net(data)
            out = out.data
        else:
            out, state = net(given)
        states = state if isinstance(state, tuple) else (state,)
        total = out.square().sum() + sum((s * 3).sin().sum() for s in states)
        total.backward()
        results.append([out.detach(), *(s.detach() for s in states), given.grad, *(p.grad.clone() for p in net.parameters())])
    for cpu, gpu in zip(*results):
        near(gpu, cpu, 1e-9 if dtype == wisp.float64 else 1e-4)
