"""The continuous Bernoulli distribution."""

import math

import wisp
from wisp.distributions import constraints
from wisp.distributions.distribution import ExponentialFamily
from wisp.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ExponentialFamily):
    """Numbers in [0, 1] with density C p^x (1 - p)^(1 - x); near p = 1/2, within `lims`, C is a Taylor series."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support, has_rsample, _mean_carrier_measure = constraints.unit_interval, True, 0

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        if probs is not None:
            (probs,) = broadcast_all(probs)
            # as in PyTorch, values that rounding has brought out of the range are clamped unless a check is asked for
            if validate_args and not constraints.unit_interval.check(probs).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(probs)
        else:
            (self.logits,) = broadcast_all(logits)
        self._lims = lims
        super().__init__((self.probs if probs is not None else self.logits).shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._lims = self._lims
        return new

    @lazy_property
    def logits(self):
        """Log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        """The parameter p."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    param_shape = property(lambda self: self._batch_shape)
    _natural_params = property(lambda self: (self.logits,))

    def _outside(self, p):
        return (p <= self._lims[0]) | (p > self._lims[1])

    def _cut(self, p):  # p, or the lower limit where the closed formulas are not stable
        return wisp.where(self._outside(p), p, self._lims[0])

    def _log_constant(self):
        p, x = self._cut(self.probs), self.probs - 0.5
        below, above = wisp.where(p <= 0.5, p, 0.0), wisp.where(p >= 0.5, p, 1.0)
        exact = wisp.log(wisp.abs(wisp.log1p(-p) - wisp.log(p))) - wisp.where(
            p <= 0.5, wisp.log1p(-2.0 * below), wisp.log(2.0 * above - 1.0)
        )
        return wisp.where(self._outside(self.probs), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x.pow(2)) * x.pow(2))

    def _log_normalizer(self, x):
        outside = self._outside(wisp.sigmoid(x))
        cut = wisp.where(outside, x, 1.0)
        exact = wisp.log(wisp.abs(wisp.special.expm1(cut))) - wisp.log(wisp.abs(cut))
        return wisp.where(outside, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)

    @property
    def mean(self):
        p, x = self._cut(self.probs), self.probs - 0.5
        exact = p / (2.0 * p - 1.0) + 1.0 / (wisp.log1p(-p) - wisp.log(p))
        return wisp.where(self._outside(self.probs), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def variance(self):
        p, x = self._cut(self.probs), (self.probs - 0.5).pow(2)
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (wisp.log1p(-p) - wisp.log(p)).pow(2)
        return wisp.where(self._outside(self.probs), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape=wisp.Size()):
        return self.icdf(wisp.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value):
        self._check(value)
        logits, value = broadcast_all(self.logits, value)
        return -wisp.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_constant()

    def cdf(self, value):
        self._check(value)
        p = self._cut(self.probs)
        exact = (wisp.pow(p, value) * wisp.pow(1.0 - p, 1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inner = wisp.where(self._outside(self.probs), exact, value)
        return wisp.where(value <= 0.0, 0.0, wisp.where(value >= 1.0, 1.0, inner))

    def icdf(self, value):
        p = self._cut(self.probs)
        exact = (wisp.log1p(-p + value * (2.0 * p - 1.0)) - wisp.log1p(-p)) / (wisp.log(p) - wisp.log1p(-p))
        return wisp.where(self._outside(self.probs), exact, value)

    def entropy(self):
        log_not, log_p = wisp.log1p(-self.probs), wisp.log(self.probs)
        return self.mean * (log_not - log_p) - self._log_constant() - log_not
