"""Fourier transforms and linear algebra on the GPU, with gradients, against the CPU."""

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
    agree(lambda t: wisp.stft(t, 16, window=wisp.hann_window(16, dtype=t.dtype, device=t.device), return_complex=True), made(64))


def well(n, *batch, dtype=wisp.float64):
    a = made(*batch, n, n, dtype=dtype)
    return a + 3 * n**0.5 * wisp.eye(n, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [(), (4,), (2, 3)], ids=str)
def test_systems(dtype, batch):
    tolerance = 1e-8 if dtype in (wisp.float64, wisp.complex128) else 2e-3
    a, b = well(6, *batch, dtype=dtype), made(*batch, 6, 3, dtype=dtype)
    agree(wisp.linalg.solve, a, b, tolerance=tolerance)
    agree(wisp.linalg.inv, a, tolerance=tolerance)
    agree(wisp.linalg.det, a / 5, tolerance=tolerance)
    agree(lambda a: wisp.linalg.slogdet(a)[1], a, tolerance=tolerance)
    agree(lambda a, b: wisp.linalg.lu_solve(*wisp.linalg.lu_factor(a), b), a, b, tolerance=tolerance)
    agree(lambda a: wisp.linalg.lu(a)[2], a, tolerance=tolerance)
    positive = a @ a.mH + wisp.eye(6, dtype=dtype)
    agree(lambda p: wisp.linalg.cholesky((p + p.mH) / 2), positive, tolerance=tolerance)
    agree(lambda a, b: wisp.linalg.solve_triangular(a.triu(), b, upper=True), a, b, tolerance=tolerance)
    agree(lambda a, b: wisp.linalg.solve_triangular(a.tril(), b.mT, upper=False, left=False), a, b, tolerance=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7), (3, 6, 4)], ids=str)
def test_decompositions(dtype, shape):
    tolerance = 1e-8 if dtype in (wisp.float64, wisp.complex128) else 3e-3
    a = made(*shape, dtype=dtype)
    q, r = wisp.linalg.qr(a.cuda())
    near(q @ r, a, tolerance)
    u, s, vh = wisp.linalg.svd(a.cuda(), full_matrices=False)
    near((u * s.unsqueeze(-2).to(u.dtype)) @ vh, a, tolerance)
    u, s, vh = wisp.linalg.svd(a.cuda())
    assert u.shape[-1] == a.shape[-2] and vh.shape[-2] == a.shape[-1]
    near(vh @ vh.mH, wisp.eye(vh.shape[-1], dtype=dtype).expand(vh.shape), tolerance)
    agree(wisp.linalg.svdvals, a, tolerance=tolerance)
    agree(lambda a: wisp.linalg.pinv(a), a, tolerance=tolerance * 10)
    if shape[-1] == shape[-2]:
        h = a + a.mH
        agree(lambda h: wisp.linalg.eigvalsh((h + h.mH) / 2), h, tolerance=tolerance)
        values, vectors = wisp.linalg.eigh(h.cuda())
        near(h.cuda() @ vectors - vectors * values.to(dtype), wisp.zeros_like(h), tolerance * 10)
        values, vectors = wisp.linalg.eig(a.cuda())
        near(a.cuda().to(values.dtype) @ vectors - vectors * values.unsqueeze(-2), wisp.zeros(a.shape, dtype=values.dtype), tolerance * 10)
    b = made(*shape[:-1], 2, dtype=dtype)
    agree(lambda a, b: wisp.linalg.lstsq(a, b, driver="gels").solution, a, b, tolerance=tolerance * 10)


def test_errors_name_the_matrix():
    with pytest.raises(wisp.linalg.LinAlgError, match="singular"):
        wisp.linalg.inv(wisp.zeros(3, 3).cuda())
    with pytest.raises(wisp.linalg.LinAlgError, match="positive-definite"):
        wisp.linalg.cholesky(-wisp.eye(3).cuda())
    with pytest.raises(RuntimeError, match="gels"):
        wisp.linalg.lstsq(wisp.randn(3, 3).cuda(), wisp.randn(3, 1).cuda(), driver="gelsd")
    both(lambda a: a.t() @ a, wisp.randn(4, 4))


@pytest.mark.parametrize("make", [lambda: wisp.nn.LSTM(8, 16, 2, bidirectional=True), lambda: wisp.nn.GRU(8, 16, 2), lambda: wisp.nn.RNN(8, 16, nonlinearity="relu"),
                                  lambda: wisp.nn.RNN(8, 16, bias=False), lambda: wisp.nn.LSTM(8, 16, proj_size=5, batch_first=True)],
                         ids=["lstm", "gru", "relu", "tanh", "projected"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64], ids=str)
def test_recurrent_layers(make, packed, dtype):
    wisp.manual_seed(0)
    net = make().to(dtype)
    x = wisp.randn(7, 5, 8, dtype=dtype)
    results = []
    for device in ("cpu", "cuda"):
        net = net.to(device)
        net.zero_grad()
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
