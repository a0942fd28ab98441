"""Discrete distributions."""

import math

import wisp
from wisp.distributions import constraints
from wisp.distributions.distribution import Distribution, ExponentialFamily
from wisp.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits, standard_gamma

__all__ = """
    Bernoulli Binomial Categorical Geometric Multinomial NegativeBinomial
    OneHotCategorical OneHotCategoricalStraightThrough Poisson""".split()


def _one_of(probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class _Binary(Distribution):
    """A probability given as `probs` or as log-odds `logits`; the other is computed when asked for."""

    @lazy_property
    def logits(self):
        """Log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=True)

    def _take(self, probs, logits):
        _one_of(probs, logits)
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
        else:
            (self.logits,) = broadcast_all(logits)

    @property
    def _param(self):
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    param_shape = property(lambda self: self._param.size())


_BINARY = {"probs": constraints.unit_interval, "logits": constraints.real}


def _binary_entropy(logits, probs):
    return wisp.nn.functional.binary_cross_entropy_with_logits(logits, probs, reduction="none")


class Bernoulli(_Binary, ExponentialFamily):
    """0 or 1."""

    arg_constraints, support, has_enumerate_support, _mean_carrier_measure = _BINARY, constraints.boolean, True, 0

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._take(probs, logits)
        Distribution.__init__(self, self._param.shape, validate_args=validate_args)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))
    _natural_params = property(lambda self: (wisp.logit(self.probs),))

    def _log_normalizer(self, x):
        return wisp.log1p(x.exp())

    @property
    def mode(self):
        return wisp.where(self.probs == 0.5, math.nan, (self.probs > 0.5).to(self.probs.dtype))

    def sample(self, sample_shape=wisp.Size()):
        with wisp.no_grad():
            return wisp.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        self._check(value)
        logits, value = broadcast_all(self.logits, value)
        return -_binary_entropy(logits, value)

    def entropy(self):
        return _binary_entropy(self.logits, self.probs)

    def enumerate_support(self, expand=True):
        values = wisp.arange(2, dtype=self._param.dtype, device=self._param.device).view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + tuple(self._batch_shape)) if expand else values


class Geometric(_Binary):
    """The number of failures before the first success."""

    arg_constraints, support = _BINARY, constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(f"Expected parameter probs of distribution {self!r} to be positive but found invalid values:\n{self.probs}")

    mean = property(lambda self: 1.0 / self.probs - 1.0)
    mode = property(lambda self: wisp.zeros_like(self.probs))
    variance = property(lambda self: (1.0 / self.probs - 1.0) / self.probs)

    def sample(self, sample_shape=wisp.Size()):
        with wisp.no_grad():
            u = wisp.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device).clamp(
                min=wisp.finfo(self.probs.dtype).tiny
            )
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        self._check(value)
        value, probs = broadcast_all(value, self.probs)
        probs = wisp.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self):
        return _binary_entropy(self.logits, self.probs) / self.probs


class Binomial(_Binary):
    """The number of successes in `total_count` trials."""

    arg_constraints, has_enumerate_support = {"total_count": constraints.nonnegative_integer, **_BINARY}, True

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        name = "probs" if probs is not None else "logits"
        self.total_count, value = broadcast_all(total_count, probs if probs is not None else logits)
        value = value if value.is_floating_point() else value.to(wisp.get_default_dtype())
        setattr(self, name, value)
        self.total_count = self.total_count.to(value.dtype)
        super().__init__(value.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=wisp.Size()):
        shape = self._extended_shape(sample_shape)
        with wisp.no_grad():
            return wisp.binomial(self.total_count.expand(shape).contiguous(), self.probs.expand(shape).contiguous())

    def log_prob(self, value):
        self._check(value)
        n = self.total_count
        ways = wisp.lgamma(n + 1) - wisp.lgamma(value + 1) - wisp.lgamma(n - value + 1)
        return ways + value * self.logits + n * wisp.nn.functional.logsigmoid(-self.logits)

    def entropy(self):
        if self.total_count.max() != self.total_count.min():
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(wisp.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand=True):
        total = int(self.total_count.max())
        if not self.total_count.min() == total:
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        values = wisp.arange(1 + total, dtype=self._param.dtype, device=self._param.device).view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + tuple(self._batch_shape)) if expand else values


class NegativeBinomial(_Binary):
    """The number of successes before `total_count` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        name = "probs" if probs is not None else "logits"
        self.total_count, value = broadcast_all(total_count, probs if probs is not None else logits)
        setattr(self, name, value)
        self.total_count = self.total_count.to(value.dtype)
        super().__init__(value.shape, validate_args=validate_args)

    mean = property(lambda self: self.total_count * wisp.exp(self.logits))
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / wisp.sigmoid(-self.logits))

    def sample(self, sample_shape=wisp.Size()):
        with wisp.no_grad():
            rate = standard_gamma(self.total_count.expand(self._extended_shape(sample_shape))) * wisp.exp(self.logits)
            return wisp.poisson(rate)

    def log_prob(self, value):
        self._check(value)
        log_sigmoid, n = wisp.nn.functional.logsigmoid, self.total_count
        normal = -wisp.lgamma(n + value) + wisp.lgamma(1.0 + value) + wisp.lgamma(n)
        normal = wisp.where(n + value == 0.0, 0.0, normal)
        return n * log_sigmoid(-self.logits) + value * log_sigmoid(self.logits) - normal


class Poisson(ExponentialFamily):
    """The number of events in a unit of time."""

    arg_constraints, support = {"rate": constraints.nonnegative}, constraints.nonnegative_integer

    def __init__(self, rate, validate_args=None):
        self._set_parameters(validate_args, rate=rate)

    mean = variance = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())
    _natural_params = property(lambda self: (wisp.log(self.rate),))

    def _log_normalizer(self, x):
        return wisp.exp(x)

    def sample(self, sample_shape=wisp.Size()):
        with wisp.no_grad():
            return wisp.poisson(self.rate.expand(self._extended_shape(sample_shape)).contiguous())

    def log_prob(self, value):
        self._check(value)
        rate, value = broadcast_all(self.rate, value)
        return wisp.xlogy(value, rate) - rate - wisp.lgamma(value + 1)


class Categorical(Distribution):
    """A number from 0 to K - 1; the last dimension of the parameter holds the K probabilities.

    >>> import wisp
    >>> wisp.distributions.Categorical(probs=wisp.tensor([1., 3.])).log_prob(wisp.tensor(1)).exp()
    tensor(0.7500)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of(probs, logits)
        given = probs if probs is not None else logits
        if given.dim() < 1:
            raise ValueError(f"`{'probs' if probs is not None else 'logits'}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._num_events = given.size(-1)
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._num_events = self._num_events
        return new

    @lazy_property
    def logits(self):
        """Logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self):
        """Probabilities."""
        return logits_to_probs(self.logits)

    @property
    def _param(self):
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    param_shape = property(lambda self: self._param.size())
    mean = variance = property(lambda self: wisp.full(self._extended_shape(), math.nan, dtype=self.probs.dtype, device=self.probs.device))
    mode = property(lambda self: self.probs.argmax(dim=-1))

    def sample(self, sample_shape=wisp.Size()):
        sample_shape = wisp.Size(sample_shape)
        with wisp.no_grad():
            table = self.probs.reshape(-1, self._num_events)
            drawn = wisp.multinomial(table, sample_shape.numel(), True)
            return drawn.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value):
        self._check(value)
        value = value.long().unsqueeze(-1)
        shape = wisp.broadcast_shapes(tuple(value.shape[:-1]), tuple(self.logits.shape[:-1]))
        table = self.logits.expand(tuple(shape) + (self._num_events,))
        return table.gather(-1, value.expand(tuple(shape) + (1,))).squeeze(-1)

    def entropy(self):
        logits = self.logits.clamp(min=wisp.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand=True):
        values = wisp.arange(self._num_events, device=self._param.device).view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + tuple(self._batch_shape)) if expand else values


class OneHotCategorical(Distribution):
    """A category as a vector with a single 1."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support, has_enumerate_support = constraints.one_hot, True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(OneHotCategorical, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    probs = mean = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    _param = property(lambda self: self._categorical._param)
    param_shape = property(lambda self: self._categorical.param_shape)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _one_hot(self, index):
        return wisp.nn.functional.one_hot(index, self._event_shape[0])

    @property
    def mode(self):
        return self._one_hot(self.probs.argmax(-1)).to(self.probs.dtype)

    def sample(self, sample_shape=wisp.Size()):
        return self._one_hot(self._categorical.sample(sample_shape)).to(self.probs.dtype)

    def log_prob(self, value):
        self._check(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self):
        return self._categorical.entropy()

    def enumerate_support(self, expand=True):
        n = self._event_shape[0]
        values = wisp.eye(n, dtype=self._param.dtype, device=self._param.device).view((n,) + (1,) * len(self._batch_shape) + (n,))
        return values.expand((n,) + tuple(self._batch_shape) + (n,)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot samples whose gradient is that of the probabilities."""

    has_rsample = True

    def rsample(self, sample_shape=wisp.Size()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(Distribution):
    """How often each category is drawn in `total_count` draws."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(Multinomial, _instance)
        new.total_count, new._categorical = self.total_count, self._categorical.expand(batch_shape)
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=wisp.Size()):
        sample_shape = wisp.Size(sample_shape)
        drawn = self._categorical.sample((self.total_count,) + tuple(sample_shape))
        return wisp.nn.functional.one_hot(drawn, self._event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value):
        self._check(value)
        logits, value = broadcast_all(self.logits, value)
        logits = wisp.where((value == 0) & (logits == -math.inf), 0.0, logits)
        return wisp.lgamma(value.sum(-1) + 1) - wisp.lgamma(value + 1).sum(-1) + (logits * value).sum(-1)

    def entropy(self):
        n = wisp.tensor(self.total_count, dtype=self.probs.dtype, device=self.probs.device)
        counts = Binomial(self.total_count, probs=clamp_probs(self.probs), validate_args=False)
        support = counts.enumerate_support(expand=False)[1:]
        expected = (counts.log_prob(support).exp() * wisp.lgamma(support + 1)).sum((0, -1))
        return n * self._categorical.entropy() - wisp.lgamma(n + 1) + expected
