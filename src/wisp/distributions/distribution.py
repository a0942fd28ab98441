"""The base class of distributions."""

import inspect
import warnings

import wisp
from wisp import _core
from wisp.distributions import constraints
from wisp.distributions.utils import broadcast_all

__all__ = ["Distribution", "ExponentialFamily"]


class Distribution:
    """A distribution over events of `event_shape`, `batch_shape` of them with parameters of their own."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    @staticmethod
    def set_default_validate_args(value):
        """Whether distributions check their parameters and the values given to `log_prob`."""
        if value not in (True, False):
            raise ValueError("value must be True or False")
        Distribution._validate_args = value

    def __init__(self, batch_shape=wisp.Size(), event_shape=wisp.Size(), validate_args=None):
        self._batch_shape, self._event_shape = wisp.Size(batch_shape), wisp.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _set_parameters(self, validate_args, **parameters):
        """Broadcast parameters against each other, keep them as attributes, and finish the constructor: for events
        of one number.
        """
        values = broadcast_all(*parameters.values())
        for name, value in zip(parameters, values):
            setattr(self, name, value)
        Distribution.__init__(self, values[0].shape, validate_args=validate_args)

    def _check_parameters(self):
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint) or name not in self.__dict__ and self._is_lazy(name):
                continue
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} to "
                    f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    @classmethod
    def _is_lazy(cls, name):
        """Whether a parameter is computed from another one, which is checked instead."""
        return not isinstance(inspect.getattr_static(cls, name, None), property)

    @property
    def batch_shape(self):
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one sample."""
        return self._event_shape

    @property
    def arg_constraints(self):
        """By name of a parameter, the constraint that it satisfies."""
        raise NotImplementedError

    @property
    def support(self):
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self):
        """The mean of each distribution."""
        raise NotImplementedError

    @property
    def mode(self):
        """The most probable value of each distribution."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self):
        """The variance of each distribution."""
        raise NotImplementedError

    @property
    def stddev(self):
        """The standard deviation of each distribution."""
        return self.variance.sqrt()

    def sample(self, sample_shape=wisp.Size()):
        """Samples of shape sample_shape + batch_shape + event_shape, without gradients."""
        with wisp.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=wisp.Size()):
        """Samples through which gradients reach the parameters."""
        raise NotImplementedError

    def sample_n(self, n):
        """`sample((n,))`."""
        warnings.warn("sample_n(n) will be deprecated. Use .sample((n,)) instead", UserWarning, stacklevel=2)
        return self.sample(wisp.Size((n,)))

    def log_prob(self, value):
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError

    def cdf(self, value):
        """The probability of a value up to this one."""
        raise NotImplementedError

    def icdf(self, value):
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand=True):
        """All values of a discrete distribution, along a new first dimension."""
        raise NotImplementedError

    def entropy(self):
        """The entropy of each distribution, in nats."""
        raise NotImplementedError

    def perplexity(self):
        """exp(entropy)."""
        return self.entropy().exp()

    def expand(self, batch_shape, _instance=None):
        """The same distribution for a larger batch; parameters are expanded, not copied."""
        ours = next(cls for cls in type(self).__mro__ if cls.__module__.startswith("wisp."))
        if ours.__init__ is Distribution.__init__ and _instance is None and type(self).__init__ is not ours.__init__:
            raise NotImplementedError(f"{type(self).__name__} does not define expand()")
        new = self._get_checked_instance(ours, _instance)
        batch_shape = wisp.Size(batch_shape)
        own = ours.arg_constraints if isinstance(ours.arg_constraints, dict) else self.arg_constraints
        for name, constraint in own.items():  # a class derived from ours may name parameters of its own instead
            if name in self.__dict__:
                setattr(new, name, _expand(getattr(self, name), batch_shape, constraint.event_dim))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def _extended_shape(self, sample_shape=wisp.Size()):
        return wisp.Size(tuple(wisp.Size(sample_shape)) + tuple(self._batch_shape) + tuple(self._event_shape))

    def _validate_sample(self, value):
        if not isinstance(value, _core.Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = value.dim() - len(self._event_shape)
        if tuple(value.shape[max(start, 0) :]) != tuple(self._event_shape):
            raise ValueError(f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(tuple(value.shape)), reversed(tuple(expected))):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        valid = support.check(value)
        if not valid.all():
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _check(self, value):
        if self._validate_args:
            self._validate_sample(value)

    def _get_checked_instance(self, cls, _instance=None):
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    def __repr__(self):
        names = [name for name in self.arg_constraints if name in self.__dict__]
        shown = ", ".join(
            f"{name}: {value if value.numel() == 1 else value.shape}" for name, value in ((n, self.__dict__[n]) for n in names)
        )
        return f"{type(self).__name__}({shown})"


def _expand(value, batch_shape, event_dim):
    return value.expand(tuple(batch_shape) + tuple(value.shape[value.dim() - event_dim :]))


class ExponentialFamily(Distribution):
    """Distributions p(x) = exp(t(x) . n - A(n)) h(x): their entropy follows from the log-normaliser A by
    differentiation.
    """

    @property
    def _natural_params(self):
        raise NotImplementedError

    def _log_normalizer(self, *natural_params):
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self):
        raise NotImplementedError

    def entropy(self):
        result = -self._mean_carrier_measure
        natural = [p.detach().requires_grad_() for p in self._natural_params]
        with wisp.enable_grad():
            normalizer = self._log_normalizer(*natural)
        gradients = wisp.autograd.grad(normalizer.sum(), natural, create_graph=True)
        result = result + normalizer
        for parameter, gradient in zip(natural, gradients):
            result = result - (parameter * gradient).reshape(tuple(self._batch_shape) + (-1,)).sum(-1)
        return result
