"""Fourier transforms against NumPy's, their gradients, windows and short-time transforms."""

import numpy as np
import pytest

import wisp

LENGTHS = [1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 29, 30, 64, 77, 100, 127, 128, 210, 256, 257, 1000, 1009, 1024, 2187, 4096, 5000, 10007]


def _close(mine, expected, tolerance=1e-12):
    assert mine.shape == expected.shape
    assert np.abs(mine.numpy() - expected).max() <= tolerance * max(1, np.abs(expected).max())


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("rows", [1, 3, 19])
def test_transforms_of_any_length(n, rows):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(rows, n)) + 1j * rng.normal(size=(rows, n))
    _close(wisp.fft.fft(wisp.tensor(x)), np.fft.fft(x))
    _close(wisp.fft.ifft(wisp.tensor(x)), np.fft.ifft(x))
    _close(wisp.fft.rfft(wisp.tensor(x.real.copy())), np.fft.rfft(x.real))
    _close(wisp.fft.fft(wisp.tensor(x.astype(np.complex64))), np.fft.fft(x), 2e-6)
    if n > 1:
        half = x[:, : n // 2 + 1]
        _close(wisp.fft.irfft(wisp.tensor(half), n), np.fft.irfft(half, n))
        _close(wisp.fft.hfft(wisp.tensor(half), n), np.fft.hfft(half, n))


@pytest.mark.parametrize("shape", [(3, 10, 4), (2, 128, 20), (5, 17, 3), (2, 3000, 5), (40, 6, 2)])
def test_transforms_along_any_dim(shape):
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    for dim in range(3):
        _close(wisp.fft.fft(wisp.tensor(x), dim=dim), np.fft.fft(x, axis=dim))
        _close(wisp.fft.rfft(wisp.tensor(x.real.copy()), dim=dim), np.fft.rfft(x.real, axis=dim))
    _close(wisp.fft.fftn(wisp.tensor(x)), np.fft.fftn(x))
    _close(wisp.fft.fft(wisp.tensor(x).transpose(0, 2)), np.fft.fft(x.transpose(2, 1, 0)))


@pytest.mark.parametrize("shape", [(2, 5, 34), (3, 4, 33), (2, 3, 6, 40), (40, 101)])
def test_a_real_spectrum_is_mirrored(shape):
    x = np.random.default_rng(0).standard_normal(shape)
    last = tuple(range(1, x.ndim)) if x.ndim > 2 else (1,)
    for dims in (last, last[::-1], (0, x.ndim - 1), (0,)):
        _close(wisp.fft.fftn(wisp.tensor(x), dim=dims), np.fft.fftn(x, axes=dims))
    _close(wisp.fft.rfft(wisp.tensor(x)), np.fft.rfft(x))
    _close(wisp.fft.fft2(wisp.tensor(x).float()), np.fft.fft2(x), 1e-4)


@pytest.mark.parametrize("norm", [None, "backward", "forward", "ortho"])
def test_norms_and_sizes(norm):
    x = np.random.default_rng(0).normal(size=(6, 9))
    for name in ("fft2", "ifft2", "rfft2", "irfft2"):
        for s in (None, (4, 12), (7, 5)):
            _close(getattr(wisp.fft, name)(wisp.tensor(x), s, norm=norm), getattr(np.fft, name)(x, s, norm=norm))
    with pytest.raises(RuntimeError, match="Invalid normalization mode"):
        wisp.fft.fft(wisp.tensor(x), norm="other")
    with pytest.raises(RuntimeError, match="Invalid number of data points"):
        wisp.fft.fft(wisp.tensor(x), 0)


def test_round_trip_of_a_long_signal():
    x = wisp.randn(1 << 18)
    assert (wisp.fft.irfft(wisp.fft.rfft(x)) - x).abs().max().item() < 1e-5
    assert (wisp.fft.ifft(wisp.fft.fft(x)).real - x).abs().max().item() < 1e-5


@pytest.mark.parametrize("n", [6, 7])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_gradients(name, n):
    real = name in ("rfft", "ihfft")
    x = wisp.randn(2, 5, dtype=wisp.float64 if real else wisp.complex128, requires_grad=True)
    f = getattr(wisp.fft, name)
    assert wisp.autograd.gradcheck(lambda t: f(t, n), x)
    assert wisp.autograd.gradgradcheck(lambda t: f(t, n), x)


def test_frequencies_and_shifts():
    for n in (1, 8, 9):
        assert np.allclose(wisp.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5))
        assert np.allclose(wisp.fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5))
    x = wisp.arange(20).reshape(4, 5)
    assert np.array_equal(wisp.fft.fftshift(x).numpy(), np.fft.fftshift(x.numpy()))
    assert wisp.equal(wisp.fft.ifftshift(wisp.fft.fftshift(x, 1), 1), x)


def test_empty_and_unsupported():
    assert wisp.fft.fft(wisp.zeros(0, 4)).shape == (0, 4)
    with pytest.raises(RuntimeError, match="rfft expects a real input"):
        wisp.fft.rfft(wisp.zeros(4, dtype=wisp.complex64))
    with pytest.raises(RuntimeError, match="Unsupported dtype"):
        wisp.fft.fft(wisp.zeros(4, dtype=wisp.float16))


def test_short_time_transform_comes_back():
    x = wisp.randn(2, 400, dtype=wisp.float64)
    window = wisp.hann_window(32, dtype=wisp.float64)
    spectrum = wisp.stft(x, 32, window=window, return_complex=True)
    assert spectrum.shape == (2, 17, 51)
    assert wisp.allclose(wisp.istft(spectrum, 32, window=window), x)


def test_windows_are_numpys():
    for n in (2, 7, 12):
        for mine, theirs in (("hann", np.hanning), ("hamming", np.hamming), ("blackman", np.blackman), ("bartlett", np.bartlett)):
            assert np.allclose(getattr(wisp, mine + "_window")(n, False).numpy(), theirs(n), atol=1e-6)
            assert np.allclose(getattr(wisp.signal.windows, mine)(n).numpy(), theirs(n), atol=1e-6)
        assert np.allclose(wisp.kaiser_window(n, False, 5.0).numpy(), np.kaiser(n, 5.0), atol=1e-6)


def test_windows_are_made_where_they_are_asked_for():
    for name in ("hann", "hamming", "bartlett", "blackman", "kaiser"):
        for length in (1, 5):
            assert getattr(wisp, name + "_window")(length, device="meta").device.type == "meta"
            assert getattr(wisp.signal.windows, name)(length, device="meta").device.type == "meta"
    assert wisp.signal.windows.gaussian(5, requires_grad=True).requires_grad


def test_transforms_without_a_window_warn():
    wisp.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="A window was not provided"):
            spectrum = wisp.stft(wisp.rand(100), 10, return_complex=True)
        with pytest.warns(UserWarning, match="A window was not provided"):
            wisp.istft(spectrum, 10)
    finally:
        wisp.set_warn_always(False)
