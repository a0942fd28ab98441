"""Special functions of mathematics."""

from wisp import _core, _reference

globals().update(_core._operators["special"])

# Names that are operators of the package too.
digamma = psi = _core.digamma
erf, erfc, erfinv, exp2, expm1 = _core.erf, _core.erfc, _core.erfinv, _core.exp2, _core.expm1
gammaln, i0, log1p, logit, round, sinc, xlogy = (_core.lgamma, _core.i0, _core.log1p, _core.logit, _core.round, _core.sinc, _core.xlogy)
expit = _core.sigmoid


def logsumexp(input, dim, keepdim=False, *, out=None):
    """log(sum(exp(input))) along dims, without overflow."""
    return _core.logsumexp(input, dim, keepdim, out=out)


def softmax(input, dim, *, dtype=None):
    """exp(input) / sum(exp(input)) along a dim."""
    return _core.softmax(input, dim, dtype)


def log_softmax(input, dim, *, dtype=None):
    """log(softmax(input)) along a dim."""
    return _core.log_softmax(input, dim, dtype)


def gammainc(input, other, *, out=None):
    """The regularised lower incomplete gamma function."""
    return _core.igamma(input, other, out=out)


def gammaincc(input, other, *, out=None):
    """The regularised upper incomplete gamma function."""
    return _core.igammac(input, other, out=out)


def multigammaln(input, p, *, out=None):
    """The logarithm of the multivariate gamma function of dimension p."""
    import wisp

    result = wisp.mvlgamma(input, p)
    return result if out is None else out.copy_(result)


_reference.attach(__name__, globals())
