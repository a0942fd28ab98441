"""Probability distributions: samples, with gradients where they have any, log-densities, entropies and divergences.

>>> import wisp
>>> d = wisp.distributions.Normal(wisp.zeros(2), wisp.ones(2))
>>> d.rsample().shape
torch.Size([2])
"""

import sys as _sys

from wisp import _reference
from wisp.distributions import (  # noqa: F401
    constraint_registry,
    constraints,
    continuous,
    discrete,
    distribution,
    kl,
    multivariate,
    transformed,
    transforms,
    utils,
)
from wisp.distributions.constraint_registry import biject_to, transform_to
from wisp.distributions.continuous import *  # noqa: F403
from wisp.distributions.continuous_bernoulli import ContinuousBernoulli
from wisp.distributions.discrete import *  # noqa: F403
from wisp.distributions.distribution import *  # noqa: F403
from wisp.distributions.kl import *  # noqa: F403
from wisp.distributions.mixture_same_family import MixtureSameFamily
from wisp.distributions.multivariate import *  # noqa: F403
from wisp.distributions.transformed import *  # noqa: F403
from wisp.distributions.transforms import *  # noqa: F403

__all__ = ["ContinuousBernoulli", "MixtureSameFamily", "biject_to", "transform_to"]
__all__ += continuous.__all__
__all__ += discrete.__all__
__all__ += distribution.__all__
__all__ += kl.__all__
__all__ += multivariate.__all__
__all__ += transformed.__all__
__all__ += transforms.__all__

# PyTorch has a module per distribution; programs import from those too.
for _home, _names in {
    continuous: "beta cauchy chi2 dirichlet exponential fishersnedecor gamma generalized_pareto laplace normal studentT uniform von_mises",
    discrete: "bernoulli binomial categorical geometric multinomial negative_binomial one_hot_categorical poisson",
    distribution: "exp_family",
    multivariate: "lkj_cholesky lowrank_multivariate_normal multivariate_normal wishart",
    transformed: "gumbel half_cauchy half_normal independent inverse_gamma kumaraswamy "
    "log_normal logistic_normal "
    "pareto relaxed_bernoulli relaxed_categorical transformed_distribution weibull",
}.items():
    for _name in _names.split():
        _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _home

_reference.attach(__name__, globals())
