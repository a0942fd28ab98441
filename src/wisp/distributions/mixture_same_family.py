"""Mixtures of distributions of one family."""

import wisp
from wisp.distributions import constraints
from wisp.distributions.discrete import Categorical
from wisp.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """One of several distributions of a family, chosen by a Categorical; the last batch dimension is that of the
    components.
    """

    arg_constraints = {}

    def __init__(self, mixture_distribution, component_distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        batch = tuple(component_distribution.batch_shape[:-1])
        for a, b in zip(reversed(tuple(mixture_distribution.batch_shape)), reversed(batch)):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixture_distribution.batch_shape}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        components = component_distribution.batch_shape[-1]
        if mixture_distribution.logits.shape[-1] != components:
            raise ValueError(
                f"`mixture_distribution component` ({mixture_distribution.logits.shape[-1]}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components})"
            )
        self._num_component, self._event_ndims = components, len(component_distribution.event_shape)
        super().__init__(batch, component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape, _instance=None):
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        batch_shape = tuple(wisp.Size(batch_shape))
        new._component_distribution = self._component_distribution.expand(batch_shape + (self._num_component,))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    def _weights(self):
        probs = self.mixture_distribution.probs
        return probs.reshape(tuple(probs.shape) + (1,) * self._event_ndims)

    def _average(self, value):
        return (self._weights() * value).sum(-1 - self._event_ndims)

    mean = property(lambda self: self._average(self.component_distribution.mean))

    @property
    def variance(self):
        within = self._average(self.component_distribution.variance)
        return within + self._average((self.component_distribution.mean - self.mean.unsqueeze(-1 - self._event_ndims)).pow(2))

    def cdf(self, x):
        x = x.unsqueeze(-1 - self._event_ndims)
        return (self.component_distribution.cdf(x) * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        self._check(x)
        x = x.unsqueeze(-1 - self._event_ndims)
        return wisp.logsumexp(self.component_distribution.log_prob(x) + wisp.log_softmax(self.mixture_distribution.logits, -1), dim=-1)

    def sample(self, sample_shape=wisp.Size()):
        sample_shape = wisp.Size(sample_shape)
        with wisp.no_grad():
            values = self.component_distribution.sample(sample_shape)
            chosen = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            dim = len(sample_shape) + len(self.batch_shape)
            index = chosen.reshape(tuple(chosen.shape) + (1,) * (self._event_ndims + 1))
            index = index.expand(tuple(chosen.shape) + (1,) + tuple(self._event_shape))
            return values.gather(dim, index).squeeze(dim)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
