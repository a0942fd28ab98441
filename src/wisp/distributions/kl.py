"""Kullback-Leibler divergences, by pair of types."""

import functools
import math

import wisp
from wisp.distributions.continuous import Beta, Cauchy, Dirichlet, Exponential, Gamma, Laplace, Normal, Uniform
from wisp.distributions.continuous_bernoulli import ContinuousBernoulli
from wisp.distributions.discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from wisp.distributions.distribution import ExponentialFamily
from wisp.distributions.multivariate import LowRankMultivariateNormal, MultivariateNormal, Wishart, _batch_mahalanobis, _half_log_det
from wisp.distributions.transformed import Gumbel, HalfNormal, Independent, Pareto, TransformedDistribution
from wisp.distributions.utils import euler_constant, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY = {}


def register_kl(type_p, type_q):
    """Decorate a function(p, q) that computes KL(p || q) for these types and their subclasses."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorate(function):
        _KL_REGISTRY[type_p, type_q] = function
        _find.cache_clear()
        return function

    return decorate


@functools.cache
def _find(type_p, type_q):
    """The entry for the nearest base classes: distances along the two lines of ancestors are added."""
    found = [
        (type_p.__mro__.index(p) + type_q.__mro__.index(q), type_p.__mro__.index(p), f)
        for (p, q), f in _KL_REGISTRY.items()
        if issubclass(type_p, p) and issubclass(type_q, q)
    ]
    return min(found, key=lambda entry: entry[:2])[2] if found else None


def kl_divergence(p, q):
    """KL(p || q), the expectation under p of log p - log q.

    >>> import wisp
    >>> Normal = wisp.distributions.Normal
    >>> wisp.distributions.kl_divergence(Normal(0., 1.), Normal(1., 1.))
    tensor(0.5000)
    """
    function = _find(type(p), type(q))
    if function is None:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}")
    return function(p, q)


def _infinite_like(tensor):
    return wisp.full_like(tensor, math.inf)


def _where_finite(condition, value):
    return wisp.where(condition, value, math.inf)


def _x_log_x(value):
    return wisp.xlogy(value, value)


# --- the same type on both sides ------------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    softplus = wisp.nn.functional.softplus
    one = p.probs * (softplus(-q.logits) - softplus(-p.logits))
    one = wisp.where(p.probs == 0, 0.0, wisp.where(q.probs == 0, math.inf, one))
    other = (1 - p.probs) * (softplus(q.logits) - softplus(p.logits))
    return one + wisp.where(p.probs == 1, 0.0, wisp.where(q.probs == 1, math.inf, other))


@register_kl(Beta, Beta)
def _(p, q):
    def log_beta(a, b):
        return a.lgamma() + b.lgamma() - (a + b).lgamma()

    p1, p0, q1, q0 = p.concentration1, p.concentration0, q.concentration1, q.concentration0
    return (
        log_beta(q1, q0)
        - log_beta(p1, p0)
        + (p1 - q1) * p1.digamma()
        + (p0 - q0) * p0.digamma()
        + (q1 + q0 - p1 - p0) * (p1 + p0).digamma()
    )


@register_kl(Binomial, Binomial)
def _(p, q):
    divergence = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return wisp.where(p.total_count > q.total_count, math.inf, divergence)


@register_kl(Categorical, Categorical)
def _(p, q):
    t = p.probs * (p.logits - q.logits)
    t = wisp.where((q.probs == 0).expand(t.shape), math.inf, t)
    return wisp.where((p.probs == 0).expand(t.shape), 0.0, t).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _(p, q):
    return kl_divergence(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _(p, q):
    return p.mean * (p.logits - q.logits) + p._log_constant() + wisp.log1p(-p.probs) - q._log_constant() - wisp.log1p(-q.probs)


@register_kl(Dirichlet, Dirichlet)
def _(p, q):
    total = p.concentration.sum(-1)
    first = total.lgamma() - q.concentration.sum(-1).lgamma()
    second = (p.concentration.lgamma() - q.concentration.lgamma()).sum(-1)
    third = ((p.concentration - q.concentration) * (p.concentration.digamma() - total.digamma().unsqueeze(-1))).sum(-1)
    return first - second + third


@register_kl(Exponential, Exponential)
def _(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _(p, q):
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman divergences"
        )
    natural = [n.detach().requires_grad_() for n in p._natural_params]
    with wisp.enable_grad():
        normalizer = p._log_normalizer(*natural)
    gradients = wisp.autograd.grad(normalizer.sum(), natural, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for a, b, gradient in zip(natural, q._natural_params, gradients):
        result = result - sum_rightmost((b - a) * gradient, len(q.event_shape))
    return result


@register_kl(Wishart, Wishart)
def _(p, q):
    n, half = p.event_shape[-1], p.df / 2
    p_factor, q_factor = p.scale_tril, q.scale_tril
    shape = wisp.broadcast_shapes(p_factor.shape, q_factor.shape)
    ratio = wisp.linalg.solve_triangular(q_factor.expand(shape), p_factor.expand(shape), upper=False)
    digammas = wisp.digamma(half.unsqueeze(-1) - wisp.arange(n, dtype=half.dtype, device=half.device) / 2).sum(-1)
    return (
        q.df * (_half_log_det(q_factor) - _half_log_det(p_factor))
        + half * (ratio.pow(2).sum((-2, -1)) - n)
        + wisp.mvlgamma(q.df / 2, n)
        - wisp.mvlgamma(half, n)
        + (p.df - q.df) / 2 * digammas
    )


@register_kl(Gamma, Gamma)
def _(p, q):
    return (
        q.concentration * (p.rate / q.rate).log()
        + wisp.lgamma(q.concentration)
        - wisp.lgamma(p.concentration)
        + (p.concentration - q.concentration) * wisp.digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _(p, q):
    ratio, low, high = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    return -ratio.log() - low + high + ratio * euler_constant + wisp.exp(low + (1 + ratio).lgamma() - high) - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _(p, q):
    return -p.entropy() - wisp.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _(p, q):
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * wisp.exp(-distance / p.scale) - 1


@register_kl(Normal, Normal)
def _(p, q):
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Cauchy, Cauchy)
def _(p, q):
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(Pareto, Pareto)
def _(p, q):
    ratio, alphas = p.scale / q.scale, q.alpha / p.alpha
    return _where_finite(p.support.lower_bound >= q.support.lower_bound, q.alpha * ratio.log() - alphas.log() + alphas - 1)


@register_kl(Poisson, Poisson)
def _(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _(p, q):
    inside = (q.low <= p.low) & (q.high >= p.high)
    return _where_finite(inside, ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(TransformedDistribution, TransformedDistribution)
def _(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL of transformed distributions needs the same transforms on both sides")
    more = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), more)


@register_kl(Independent, Independent)
def _(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL of Independent needs the same reinterpreted_batch_ndims on both sides")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


def _normal_vectors(p, q, log_dets):
    """KL of normal vectors from the Cholesky factors of both covariances; `log_dets` is log det q - log det p."""
    n = p.event_shape[0]
    p_factor, q_factor = p.scale_tril, q.scale_tril
    shape = tuple(wisp.broadcast_shapes(tuple(p_factor.shape), tuple(q_factor.shape)))
    ratio = wisp.linalg.solve_triangular(q_factor.expand(shape), p_factor.expand(shape), upper=False)
    return 0.5 * (log_dets + ratio.pow(2).sum((-2, -1)) + _batch_mahalanobis(q_factor, q.loc - p.loc) - n)


def _check_sizes(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed")


def _log_det(d):
    return d._log_det() if isinstance(d, LowRankMultivariateNormal) else 2 * _half_log_det(d.scale_tril)


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):

        @register_kl(_p, _q)
        def _(p, q):
            _check_sizes(p, q)
            return _normal_vectors(p, q, _log_det(q) - _log_det(p))


# --- different types ------------------------------------------------------------------------------------------------


def _infinite(parameter, p, *others):
    """KL is infinite where p has mass outside the support of the other."""
    for q in others:

        @register_kl(p, q)
        def _(p, q, name=parameter):
            mine = getattr(p, name)
            return _infinite_like(mine).expand(wisp.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)))


_infinite("concentration1", Beta, Pareto)
_infinite("mean", ContinuousBernoulli, Pareto)
_infinite("rate", Exponential, Beta, ContinuousBernoulli, Pareto, Uniform)
_infinite("concentration", Gamma, Beta, ContinuousBernoulli, Pareto, Uniform)
_infinite("loc", Gumbel, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("loc", Laplace, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("loc", Normal, Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)
_infinite("scale", Pareto, Beta, ContinuousBernoulli, Uniform)
_infinite("rate", Poisson, Bernoulli, Binomial)


@register_kl(Bernoulli, Poisson)
def _(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _(p, q):
    return -p.entropy() - p.mean * q.logits - wisp.log1p(-q.probs) - q._log_constant()


def _cross_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.mean


for _p in (Beta, ContinuousBernoulli):
    register_kl(_p, Exponential)(_cross_exponential)


def _cross_normal(p, q):
    """For any p with an entropy, a mean and a variance."""
    variance = q.scale.pow(2)
    return -p.entropy() + 0.5 * (variance * 2 * math.pi).log() + 0.5 * (p.variance + (p.mean - q.loc).pow(2)) / variance


for _p in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Uniform):
    register_kl(_p, Normal)(_cross_normal)


@register_kl(Beta, Gamma)
def _(p, q):
    expected_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return -p.entropy() + q.concentration.lgamma() - q.concentration * q.rate.log() - (q.concentration - 1) * expected_log + q.rate * p.mean


def _cross_uniform(p, q):
    return _where_finite((q.high >= 1) & (q.low <= 0), -p.entropy() + (q.high - q.low).log())


for _p in (Beta, ContinuousBernoulli):
    register_kl(_p, Uniform)(_cross_uniform)


@register_kl(Exponential, Gamma)
def _(p, q):
    ratio = q.rate / p.rate
    return -q.concentration * wisp.log(ratio) + ratio + q.concentration.lgamma() + q.concentration * euler_constant - (1 + euler_constant)


@register_kl(Exponential, Gumbel)
def _(p, q):
    rates, place = p.rate * q.scale, q.loc / q.scale
    return rates.log() - 1 + place.exp() * rates / (rates + 1) - place + rates.reciprocal()


@register_kl(Gamma, Exponential)
def _(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Gamma, Gumbel)
def _(p, q):
    beta, place = p.rate * q.scale, q.loc / q.scale
    return (
        (p.concentration - 1) * p.concentration.digamma()
        - p.concentration.lgamma()
        - p.concentration
        + beta.log()
        + p.concentration / beta
        + place.exp() * (1 + beta.reciprocal()).pow(-p.concentration)
        - place
    )


@register_kl(Normal, Gumbel)
def _(p, q):
    mean, ratio, place = p.loc / q.scale, (p.scale / q.scale).pow(2), q.loc / q.scale
    return (
        -(ratio * 0.5).log() * 0.5
        + mean
        - place
        + wisp.exp(-mean + 0.5 * ratio + place)
        - (0.5 * (1 + math.log(2 * math.pi)) + 0.5 * math.log(2))
    )


@register_kl(Normal, Laplace)
def _(p, q):
    difference = p.loc - q.loc
    ratio, z = p.scale / q.scale, difference / p.scale
    first = math.sqrt(2 / math.pi) * p.scale * wisp.exp(-0.5 * z.pow(2)) + difference * wisp.erf(math.sqrt(0.5) * z)
    return -ratio.log() + first / q.scale - (0.5 + 0.5 * math.log(0.5 * math.pi))


@register_kl(Pareto, Exponential)
def _(p, q):
    product = p.scale * q.rate
    value = (p.alpha / product).log() + p.alpha * product / (p.alpha - 1) - p.alpha.reciprocal() - 1
    return wisp.where(p.alpha <= 1, math.inf, value)


@register_kl(Pareto, Gamma)
def _(p, q):
    log_scale = p.scale.log() + p.alpha.reciprocal()
    value = (
        p.alpha.log()
        - p.scale.log()
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        + (1 - q.concentration) * log_scale
        + q.rate * p.alpha * p.scale / (p.alpha - 1)
        - p.alpha.reciprocal()
        - 1
    )
    return wisp.where(p.alpha <= 1, math.inf, value)


@register_kl(Pareto, Normal)
def _(p, q):
    variance = 2 * q.scale.pow(2)
    rest = p.scale / (p.alpha - 1)
    value = (
        (math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log()
        - p.alpha.reciprocal()
        - 1
        + (p.alpha * rest.pow(2) / (p.alpha - 2) + (p.alpha * rest - q.loc).pow(2)) / variance
    )
    return wisp.where(p.alpha <= 2, math.inf, value)


@register_kl(Uniform, Beta)
def _(p, q):
    width = p.high - p.low
    part = (q.concentration1 - 1) * (_x_log_x(p.high) - _x_log_x(p.low) - width) / width + (q.concentration0 - 1) * (
        _x_log_x(1 - p.low) - _x_log_x(1 - p.high) - width
    ) / width
    value = q.concentration1.lgamma() + q.concentration0.lgamma() - (q.concentration1 + q.concentration0).lgamma() - part - width.log()
    return _where_finite((p.high <= 1) & (p.low >= 0), value)


@register_kl(Uniform, ContinuousBernoulli)
def _(p, q):
    value = -p.entropy() - p.mean * q.logits - wisp.log1p(-q.probs) - q._log_constant()
    return _where_finite((p.high < 1) & (p.low > 0), value)


@register_kl(Uniform, Exponential)
def _(p, q):
    return _where_finite(p.low >= 0, q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log())


@register_kl(Uniform, Gamma)
def _(p, q):
    width = p.high - p.low
    value = (
        -width.log()
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        + (1 - q.concentration) * (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
        + q.rate * (p.high + p.low) / 2
    )
    return _where_finite(p.low >= 0, value)


@register_kl(Uniform, Gumbel)
def _(p, q):
    width = q.scale / (p.high - p.low)
    high, low = (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return width.log() + 0.5 * (high + low) - width * (wisp.exp(-high) - wisp.exp(-low))


@register_kl(Uniform, Pareto)
def _(p, q):
    width = p.high - p.low
    value = (q.alpha + 1) * (_x_log_x(p.high) - _x_log_x(p.low) - width) / width - q.alpha.log() - q.alpha * q.scale.log() - width.log()
    return _where_finite(p.low >= q.support.lower_bound, value)
