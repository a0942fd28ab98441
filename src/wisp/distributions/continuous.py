"""Continuous distributions of single numbers whose samples are drawn directly."""

import math

import wisp
from wisp.distributions import constraints
from wisp.distributions.distribution import Distribution, ExponentialFamily
from wisp.distributions.utils import broadcast_all, lazy_property, standard_gamma

__all__ = """
    Beta Cauchy Chi2 Dirichlet Exponential FisherSnedecor Gamma GeneralizedPareto Laplace Normal StudentT Uniform VonMises""".split()

_LOCATION = {"loc": constraints.real, "scale": constraints.positive}


class Normal(ExponentialFamily):
    """The normal distribution.

    >>> import wisp
    >>> wisp.distributions.Normal(0., 1.).log_prob(wisp.tensor(0.))
    tensor(-0.9189)
    """

    arg_constraints, support, has_rsample = _LOCATION, constraints.real, True
    _mean_carrier_measure = 0

    def __init__(self, loc, scale, validate_args=None):
        self._set_parameters(validate_args, loc=loc, scale=scale)

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: self.scale)
    variance = property(lambda self: self.stddev.pow(2))
    _natural_params = property(lambda self: (self.loc / self.scale.pow(2), -0.5 * self.scale.pow(2).reciprocal()))

    def _log_normalizer(self, x, y):
        return -0.25 * x.pow(2) / y + 0.5 * wisp.log(-math.pi / y)

    def rsample(self, sample_shape=wisp.Size()):
        return self.loc + self.scale * wisp.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value):
        self._check(value)
        return -(((value - self.loc) / self.scale) ** 2) / 2 - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value):
        self._check(value)
        return 0.5 * (1 + wisp.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value):
        return self.loc + self.scale * wisp.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()


class Laplace(Distribution):
    """The two-sided exponential distribution."""

    arg_constraints, support, has_rsample = _LOCATION, constraints.real, True

    def __init__(self, loc, scale, validate_args=None):
        self._set_parameters(validate_args, loc=loc, scale=scale)

    mean = mode = property(lambda self: self.loc)
    stddev = property(lambda self: math.sqrt(2) * self.scale)
    variance = property(lambda self: 2 * self.scale.pow(2))

    def rsample(self, sample_shape=wisp.Size()):
        eps = wisp.finfo(self.loc.dtype).eps
        u = wisp.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device) * (2 - eps) + (eps - 1)
        return self.loc - self.scale * u.sign() * wisp.log1p(-u.abs().clamp(max=1 - eps / 2))

    def log_prob(self, value):
        self._check(value)
        return -wisp.log(2 * self.scale) - wisp.abs(value - self.loc) / self.scale

    def cdf(self, value):
        self._check(value)
        return 0.5 - 0.5 * (value - self.loc).sign() * wisp.expm1(-(value - self.loc).abs() / self.scale)

    def icdf(self, value):
        term = value - 0.5
        return self.loc - self.scale * term.sign() * wisp.log1p(-2 * term.abs())

    def entropy(self):
        return 1 + wisp.log(2 * self.scale)


class Cauchy(Distribution):
    """The Lorentz distribution: it has neither mean nor variance."""

    arg_constraints, support, has_rsample = _LOCATION, constraints.real, True

    def __init__(self, loc, scale, validate_args=None):
        self._set_parameters(validate_args, loc=loc, scale=scale)

    mean = property(lambda self: wisp.full_like(self.loc, math.nan))
    mode = property(lambda self: self.loc)
    variance = property(lambda self: wisp.full_like(self.loc, math.inf))

    def rsample(self, sample_shape=wisp.Size()):
        return self.loc + self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_() * self.scale

    def log_prob(self, value):
        self._check(value)
        return -math.log(math.pi) - self.scale.log() - (((value - self.loc) / self.scale) ** 2).log1p()

    def cdf(self, value):
        self._check(value)
        return wisp.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value):
        return wisp.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class Uniform(Distribution):
    """Equal density in [low, high)."""

    arg_constraints = {
        "low": constraints.dependent(is_discrete=False, event_dim=0),
        "high": constraints.dependent(is_discrete=False, event_dim=0),
    }
    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self._set_parameters(validate_args, low=low, high=high)
        if self._validate_args and not wisp.lt(self.low, self.high).all():
            raise ValueError("Uniform is not defined when low>= high")

    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: math.nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / 12**0.5)
    variance = property(lambda self: (self.high - self.low).pow(2) / 12)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    def rsample(self, sample_shape=wisp.Size()):
        u = wisp.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value):
        self._check(value)
        inside = (self.low <= value) & (self.high > value)
        return inside.to(self.low.dtype).log() - (self.high - self.low).log()

    def cdf(self, value):
        self._check(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value):
        return value * (self.high - self.low) + self.low

    def entropy(self):
        return (self.high - self.low).log()


class Exponential(ExponentialFamily):
    """The time until an event that happens at a rate."""

    arg_constraints, support, has_rsample = {"rate": constraints.positive}, constraints.nonnegative, True
    _mean_carrier_measure = 0

    def __init__(self, rate, validate_args=None):
        self._set_parameters(validate_args, rate=rate)

    mean = stddev = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: wisp.zeros_like(self.rate))
    variance = property(lambda self: self.rate.pow(-2))
    _natural_params = property(lambda self: (-self.rate,))

    def _log_normalizer(self, x):
        return -wisp.log(-x)

    def rsample(self, sample_shape=wisp.Size()):
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value):
        self._check(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value):
        self._check(value)
        return -wisp.expm1(-self.rate * value)

    def icdf(self, value):
        return -wisp.log1p(-value) / self.rate

    def entropy(self):
        return 1.0 - self.rate.log()


class Gamma(ExponentialFamily):
    """The gamma distribution with a concentration and a rate."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support, has_rsample, _mean_carrier_measure = constraints.nonnegative, True, 0

    def __init__(self, concentration, rate, validate_args=None):
        self._set_parameters(validate_args, concentration=concentration, rate=rate)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.pow(2))
    _natural_params = property(lambda self: (self.concentration - 1, -self.rate))

    def _log_normalizer(self, x, y):
        return wisp.lgamma(x + 1) + (x + 1) * wisp.log(-y.reciprocal())

    def rsample(self, sample_shape=wisp.Size()):
        value = standard_gamma(self.concentration.expand(self._extended_shape(sample_shape))) / self.rate
        return value.clamp(min=wisp.finfo(value.dtype).tiny)

    def log_prob(self, value):
        value = wisp.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._check(value)
        return (
            wisp.xlogy(self.concentration, self.rate)
            + wisp.xlogy(self.concentration - 1, value)
            - self.rate * value
            - wisp.lgamma(self.concentration)
        )

    def entropy(self):
        return (
            self.concentration
            - self.rate.log()
            + wisp.lgamma(self.concentration)
            + (1.0 - self.concentration) * wisp.digamma(self.concentration)
        )

    def cdf(self, value):
        self._check(value)
        return wisp.igamma(self.concentration, self.rate * value)


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None):
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    df = property(lambda self: self.concentration * 2)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Chi2, _instance)
        for name in ("concentration", "rate"):
            setattr(new, name, getattr(self, name).expand(batch_shape))
        Distribution.__init__(new, batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new


# Nodes u of (0, 1), as logarithms, with weights (tanh-sinh): crowded at both ends, where the integrands below have their singularities.
_NODES = [(-math.log1p(math.exp(-math.pi * math.sinh(s / 8))), math.pi / 8 * math.cosh(s / 8)) for s in range(-48, 27)]
_NODES = [(log_u, weight * math.exp(log_u) * -math.expm1(log_u)) for log_u, weight in _NODES]


def _quantile_derivative(x, a, b):
    """d x / d a of the quantiles x of Beta(a, b): minus the distribution function's derivative by a, over the density. Its integral
    runs over the smaller tail: 0..x in t = x u**(1 / a), or x..1 in 1 - t = (1 - x) u**(1 / b)."""
    lower = x < a / (a + b)
    near, far, power, slope = wisp.where(lower, x, 1 - x), wisp.where(lower, 1 - x, x), wisp.where(lower, a, b), wisp.where(lower, b, a)
    shift, log_x, log_far = wisp.digamma(a + b) - wisp.digamma(a), x.log(), far.log()
    total = wisp.zeros_like(x)
    for log_u, weight in _NODES:
        log_rest = wisp.log1p(-near * (log_u / power).exp())  # the logarithm of 1 - t, or of t
        log_t = wisp.where(lower, log_x + log_u / power, log_rest)
        total += weight * (log_t + shift) * ((slope - 1) * (log_rest - log_far)).exp()
    return wisp.where(lower, -x / a, (1 - x) / b) * total


def _Dirichlet_backward(x, concentration, grad_output):
    """The gradient of samples x: each part moves as a Beta distribution's does, and the others make room in proportion."""
    wide, a = x.double(), concentration.double()
    own = _quantile_derivative(wide, a, a.sum(-1, True) - a) / (1 - wide)
    return (own * (grad_output - (wide * grad_output).sum(-1, True))).to(concentration.dtype)


class _Dirichlet(wisp.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(concentration, generator=None):
        # At small concentrations nearly all of the mass lies beyond what 32 bits can hold; no part is 0 or 1.
        draws = standard_gamma(concentration.double(), generator)
        limits = wisp.finfo(concentration.dtype)
        parts = draws / draws.sum(-1, True).clamp(min=wisp.finfo(wisp.float64).tiny)
        return parts.to(concentration.dtype).clamp(limits.tiny, 1 - limits.eps / 2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output, inputs[0])

    @staticmethod
    def backward(ctx, grad_output):
        x, concentration = ctx.saved_tensors
        return _Dirichlet_backward(x, concentration, grad_output), None


class Dirichlet(ExponentialFamily):
    """Points of a simplex; the last dimension of the concentration is that of the events."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support, has_rsample, _mean_carrier_measure = constraints.simplex, True, 0

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    _natural_params = property(lambda self: (self.concentration - 1,))

    def _log_normalizer(self, x):
        return (x + 1).lgamma().sum(-1) - wisp.lgamma((x + 1).sum(-1))

    def rsample(self, sample_shape=wisp.Size()):
        return _Dirichlet.apply(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._check(value)
        total = self.concentration.sum(-1)
        return wisp.xlogy(self.concentration - 1.0, value).sum(-1) + wisp.lgamma(total) - wisp.lgamma(self.concentration).sum(-1)

    mean = property(lambda self: self.concentration / self.concentration.sum(-1, True))

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        corner = (self.concentration < 1).all(-1, keepdim=True)  # all corners are modes then: the first is given
        one_hot = (wisp.arange(mode.shape[-1], device=mode.device) == 0).to(mode.dtype)
        return wisp.where(corner, one_hot, mode)

    @property
    def variance(self):
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self):
        k, total = self.concentration.size(-1), self.concentration.sum(-1)
        return (
            wisp.lgamma(self.concentration).sum(-1)
            - wisp.lgamma(total)
            - (k - total) * wisp.digamma(total)
            - ((self.concentration - 1.0) * wisp.digamma(self.concentration)).sum(-1)
        )


class Beta(ExponentialFamily):
    """Numbers in [0, 1]."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support, has_rsample = constraints.unit_interval, True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self._dirichlet = Dirichlet(wisp.stack(broadcast_all(concentration1, concentration0), -1), validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    concentration1 = property(lambda self: self._dirichlet.concentration[..., 0])
    concentration0 = property(lambda self: self._dirichlet.concentration[..., 1])
    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode = property(lambda self: self._dirichlet.mode[..., 0])
    _natural_params = property(lambda self: (self.concentration1, self.concentration0))

    def _log_normalizer(self, x, y):
        return wisp.lgamma(x) + wisp.lgamma(y) - wisp.lgamma(x + y)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Beta, _instance)
        new._dirichlet = self._dirichlet.expand(batch_shape)
        Distribution.__init__(new, batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape=wisp.Size()):
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value):
        self._check(value)
        return self._dirichlet.log_prob(wisp.stack([value, 1.0 - value], -1))

    def entropy(self):
        return self._dirichlet.entropy()


class StudentT(Distribution):
    """Student's t with `df` degrees of freedom, moved and scaled."""

    arg_constraints = {"df": constraints.positive, **_LOCATION}
    support, has_rsample = constraints.real, True

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self._set_parameters(validate_args, df=df, loc=loc, scale=scale)

    mean = property(lambda self: wisp.where(self.df > 1, self.loc, math.nan))
    mode = property(lambda self: self.loc)

    @property
    def variance(self):
        wide = self.scale.pow(2) * self.df / wisp.where(self.df > 2, self.df - 2, 1.0)
        return wisp.where(self.df > 2, wide, wisp.where(self.df > 1, math.inf, math.nan))

    def rsample(self, sample_shape=wisp.Size()):
        shape = self._extended_shape(sample_shape)
        normal = wisp.randn(shape, dtype=self.df.dtype, device=self.df.device)
        squares = 2 * standard_gamma((0.5 * self.df).expand(shape))
        return self.loc + self.scale * normal * wisp.rsqrt(squares / self.df)

    def log_prob(self, value):
        self._check(value)
        y = (value - self.loc) / self.scale
        constant = (
            self.scale.log()
            + 0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + wisp.lgamma(0.5 * self.df)
            - wisp.lgamma(0.5 * (self.df + 1.0))
        )
        return -0.5 * (self.df + 1.0) * wisp.log1p(y**2.0 / self.df) - constant

    def entropy(self):
        log_beta = wisp.lgamma(0.5 * self.df) + math.lgamma(0.5) - wisp.lgamma(0.5 * (self.df + 1))
        return (
            self.scale.log()
            + 0.5 * (self.df + 1) * (wisp.digamma(0.5 * (self.df + 1)) - wisp.digamma(0.5 * self.df))
            + 0.5 * self.df.log()
            + log_beta
        )


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared numbers over their degrees of freedom."""

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support, has_rsample = constraints.positive, True

    def __init__(self, df1, df2, validate_args=None):
        self._set_parameters(validate_args, df1=df1, df2=df2)

    mean = property(lambda self: wisp.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan))
    mode = property(lambda self: wisp.where(self.df1 > 2, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2), math.nan))

    @property
    def variance(self):
        d2 = wisp.where(self.df2 > 4, self.df2, math.nan)
        return 2 * d2.pow(2) * (self.df1 + d2 - 2) / (self.df1 * (d2 - 2).pow(2) * (d2 - 4))

    def rsample(self, sample_shape=wisp.Size()):
        shape = self._extended_shape(sample_shape)
        tiny = wisp.finfo(self.df1.dtype).tiny
        above = standard_gamma((self.df1 * 0.5).expand(shape)) / self.df1
        below = standard_gamma((self.df2 * 0.5).expand(shape)) / self.df2
        return (above / below.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value):
        self._check(value)
        half1, half2, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        log_beta = half1.lgamma() + half2.lgamma() - (half1 + half2).lgamma()
        return half1 * ratio.log() + (half1 - 1) * value.log() - (half1 + half2) * wisp.log1p(ratio * value) - log_beta


class VonMises(Distribution):
    """A normal distribution wound around the circle; values are angles."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self._set_parameters(validate_args, loc=loc, concentration=concentration)

    mean = mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self):
        """The circular variance."""
        return 1 - wisp.special.i1e(self.concentration) / wisp.special.i0e(self.concentration)

    def log_prob(self, value):
        self._check(value)
        log_i0 = wisp.special.i0e(self.concentration).log() + self.concentration
        return self.concentration * wisp.cos(value - self.loc) - math.log(2 * math.pi) - log_i0

    def sample(self, sample_shape=wisp.Size()):
        """Best and Fisher's rejection method, in double precision."""
        with wisp.no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * k**2).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = wisp.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))
            angle = wisp.zeros(shape, dtype=wisp.float64, device=self.loc.device)
            waiting = wisp.ones(shape, dtype=wisp.bool, device=self.loc.device)
            while waiting.any():
                u1, u2, u3 = (1 - wisp.rand((3,) + tuple(shape), dtype=wisp.float64, device=self.loc.device)).unbind(0)
                z = wisp.cos(math.pi * u1)
                f = ((1 + r * z) / (r + z)).clamp(min=-1, max=1)
                c = k * (r - f)
                accepted = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                angle = wisp.where(waiting & accepted, (u3 - 0.5).sign() * f.acos(), angle)
                waiting = waiting & ~accepted
            return ((angle + math.pi + self.loc.double()) % (2 * math.pi) - math.pi).to(self.loc.dtype)


class GeneralizedPareto(Distribution):
    """The tail of other distributions beyond a threshold `loc`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self._set_parameters(validate_args, loc=loc, scale=scale, concentration=concentration)

    @property
    def _exponential(self):  # a concentration of zero is the exponential distribution
        return wisp.isclose(self.concentration, wisp.zeros_like(self.concentration))

    @property
    def _shape(self):  # never zero, for the formulas that divide by it
        return wisp.where(self._exponential, 1.0, self.concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        upper = wisp.where(self.concentration < 0, self.loc - self.scale / self._shape, math.inf)
        return constraints.interval(self.loc, upper)

    def rsample(self, sample_shape=wisp.Size()):
        return self.icdf(wisp.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value):
        self._check(value)
        z = (value - self.loc) / self.scale
        heavy = -(1 + 1 / self._shape) * wisp.log1p(self._shape * wisp.where(self._exponential, 0.0, z))
        return -self.scale.log() + wisp.where(self._exponential, -z, heavy)

    def log_survival_function(self, value):
        """log(1 - cdf)."""
        self._check(value)
        z = (value - self.loc) / self.scale
        return wisp.where(self._exponential, -z, -wisp.log1p(self._shape * wisp.where(self._exponential, 0.0, z)) / self._shape)

    def log_cdf(self, value):
        """log(cdf)."""
        return wisp.log1p(-self.log_survival_function(value).exp())

    def cdf(self, value):
        return self.log_cdf(value).exp()

    def icdf(self, value):
        log_rest = wisp.log1p(-value)
        return self.loc + self.scale * wisp.where(self._exponential, -log_rest, wisp.expm1(-self._shape * log_rest) / self._shape)

    @property
    def mean(self):
        c = self.concentration
        return wisp.where(c < 1, self.loc + self.scale / wisp.where(c < 1, 1 - c, 1.0), math.inf)

    @property
    def variance(self):
        c = wisp.where(self.concentration < 0.5, self.concentration, 0.0)
        return wisp.where(self.concentration < 0.5, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.inf)

    mode = property(lambda self: self.loc)

    def entropy(self):
        return (self.scale.log() + self.concentration + 1).expand(self._batch_shape)
