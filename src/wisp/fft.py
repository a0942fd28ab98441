"""Discrete Fourier transforms of any length: fft, rfft, hfft, their inverses, and their 2- and n-dimensional forms.

>>> import wisp
>>> wisp.fft.fft(wisp.arange(4.0))
tensor([ 6.+0.j, -2.+2.j, -2.+0.j, -2.-2.j])
"""

from wisp import _core, _reference
from wisp._composites.reduce import into as _into

globals().update(_core._operators["fft"])


def fftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """The frequency of each point of a transform of n samples at distance d: 0, 1, ..., -2, -1, over n d."""
    dtype = _frequency_dtype(dtype, "fftfreq")
    result = _core.arange(n, dtype=dtype, device=device)
    result[(n + 1) // 2 :] -= n
    result = result * (1.0 / (n * d))
    return _into(out, result).requires_grad_(requires_grad)


def rfftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """The frequency of each point of a real transform: 0, 1, ..., n // 2, over n d."""
    dtype = _frequency_dtype(dtype, "rfftfreq")
    result = _core.arange(n // 2 + 1, dtype=dtype, device=device) * (1.0 / (n * d))
    return _into(out, result).requires_grad_(requires_grad)


def _frequency_dtype(dtype, name):
    dtype = dtype or _core.get_default_dtype()
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name} requires a floating point or complex dtype")
    return dtype


def _dims(input, dim):
    return list(range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)


def fftshift(input, dim=None):
    """The transform with the zero frequency in the middle."""
    dims = _dims(input, dim)
    return input.roll([input.shape[d] // 2 for d in dims], dims) if dims else input.clone()


def ifftshift(input, dim=None):
    """Undoes fftshift."""
    dims = _dims(input, dim)
    return input.roll([(input.shape[d] + 1) // 2 for d in dims], dims) if dims else input.clone()


_reference.attach(__name__, globals())
