"""Window functions of M points, symmetric (`sym`, for filters) or periodic (for spectra).

>>> import wisp
>>> wisp.signal.windows.hann(5)
tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
"""

import functools
import math

from wisp import _core, _reference

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _window(formula):
    """What all windows share: `formula` has the checked dtype and gives the points, wherever they are to be."""
    name = formula.__name__

    @functools.wraps(formula)
    def window(M, *, dtype=None, layout=None, device=None, requires_grad=False, **options):
        if layout not in (None, _core.strided):
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        dtype = dtype or _core.get_default_dtype()
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if dtype not in (_core.float32, _core.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
        points = formula(M, dtype=dtype, **options)
        return (points if device is None else points.to(device)).requires_grad_(requires_grad)

    return window


def _ramp(start, step, M, dtype):
    """M points from `start` on, as linspace places them."""
    return _core.linspace(start, start + (M - 1) * step, M, dtype=dtype)


@_window
def exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-|n - center| / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    return _core.exp(-_core.abs(_ramp(-center / tau, 1 / tau, M, dtype)))


@_window
def cosine(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """Half a period of the sine."""
    if M == 0:
        return _core.ones(0, dtype=dtype)
    step = math.pi / (M + 1 if not sym and M > 1 else M)
    return _core.sin(_ramp(0.5 * step, step, M, dtype))


@_window
def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-(n / std)^2 / 2), n counted from the middle."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    step = 1 / (std * math.sqrt(2))
    ramp = _ramp(-(M if not sym and M > 1 else M - 1) / 2.0 * step, step, M, dtype)
    return _core.exp(-ramp * ramp)


@_window
def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M < 2:
        return _core.ones(int(M), dtype=dtype)
    step = 2.0 * beta / (M if not sym else M - 1)
    ramp = _core.linspace(-beta, min(beta, -beta + (M - 1) * step), M, dtype=dtype)
    top = _core.i0(_core.sqrt((beta * beta - ramp * ramp).clamp_min(0)))
    return top / _core.i0(_core.tensor(beta, dtype=dtype))


@_window
def bartlett(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A triangle."""
    if M < 2:
        return _core.ones(int(M), dtype=dtype)
    return 1 - _core.abs(_ramp(-1.0, 2 / (M if not sym else M - 1), M, dtype))


@_window
def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """A sum of cosines with the coefficients `a`, of alternating sign."""
    if not isinstance(a, (list, tuple)):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    if M < 2:
        return _core.ones(int(M), dtype=dtype)
    ramp = _ramp(0.0, 2 * math.pi / (M if not sym else M - 1), M, dtype)
    signed = _core.tensor([(-1) ** i * w for i, w in enumerate(a)], dtype=dtype)
    order = _core.arange(len(a), dtype=dtype)
    return (signed.unsqueeze(-1) * _core.cos(order.unsqueeze(-1) * ramp)).sum(0)


def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """alpha - (1 - alpha) cos."""
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.54 - 0.46 cos."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.5 - 0.5 cos."""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


@_window
def blackman(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.42 - 0.5 cos + 0.08 cos 2."""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype)


def nuttall(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    """The minimal four-term Blackman-Harris window."""
    return general_cosine(
        M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


_reference.attach(__name__, globals())
