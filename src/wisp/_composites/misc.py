"""Pointwise composites: angle, frexp, isreal, mvlgamma and the like."""

import math

from wisp import _core, return_types
from wisp._composites.reduce import into


def angle(input, *, out=None):
    """The angle of complex numbers; 0 or pi for real ones.

    >>> import wisp
    >>> wisp.angle(wisp.tensor([1., -1.]))
    tensor([0.0000, 3.1416])
    """
    if input.layout is not _core.strided:
        from wisp.sparse._operators import call

        return call("angle", input, out=out)
    result = _core._whole("AngleBackward0", _angle, input)
    return into(out, result)


def _angle(input):
    if input.is_complex():
        return _core.atan2(input.imag, input.real)
    x = input if input.is_floating_point() or input.is_complex() else input.to(_core.get_default_dtype())
    return _core.where(x < 0, math.pi, x * 0 if x.requires_grad else _core.where(x != x, x, 0.0))


def isreal(input):
    """Whether each element has no imaginary part."""
    if input.is_complex():
        return input.imag == 0
    return _core.ones_like(input, dtype=_core.bool)


def _scaled(x, exponent):
    """x * 2 ** exponent in two steps: one power may be out of range where the product is not."""
    half = _core.floor(exponent / 2)
    return x * _core.exp2(half).to(x.dtype) * _core.exp2(exponent - half).to(x.dtype)


def frexp(input, *, out=None):
    """Mantissas in [0.5, 1) and exponents of two, so that input = mantissa * 2 ** exponent."""
    if not input.is_floating_point():
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, got {input.dtype}")
    wide = input.detach().double()
    safe = _core.where(_core.isfinite(wide) & (wide != 0), wide.abs(), 1.0)
    exponent = _core.floor(_core.log2(safe)) + 1
    mantissa = _scaled(safe, -exponent)
    exponent = _core.where(mantissa >= 1, exponent + 1, _core.where(mantissa < 0.5, exponent - 1, exponent))
    exponent = _core.where(_core.isfinite(wide) & (wide != 0), exponent, 0.0)
    mantissa = _core._whole("FrexpBackward0", lambda x: _scaled(x, -exponent), input)
    result = _Frexp((mantissa, exponent.to(_core.int32)))
    if out is not None:
        return _Frexp(into(target, value, exact=True) for target, value in zip(out, result))
    return result


_Frexp = return_types._make("frexp", ["mantissa", "exponent"])


def mvlgamma(input, p, *, out=None):
    """The logarithm of the multivariate gamma function of dimension p."""
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    result = _core._whole("MvlgammaBackward0", _mvlgamma, input, p)
    return into(out, result)


def _mvlgamma(input, p):
    x = input if input.is_floating_point() else input.to(_core.get_default_dtype())
    steps = _core.arange(0, p, dtype=x.dtype.to_real(), device=x.device) * -0.5
    return _core.lgamma(x.unsqueeze(-1) + steps).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


FUNCTIONS = [angle, isreal, frexp, mvlgamma]
METHODS = [angle, isreal, frexp, mvlgamma]
INPLACE = [mvlgamma]
