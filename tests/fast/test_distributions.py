"""Statistics of samples, gradients of samples, checking of arguments, and names of the distributions."""

import importlib
import math
import pickle

import pytest

import wisp

D = wisp.distributions
N = 20000

ONE_D = [
    D.Normal(1.0, 2.0),
    D.Laplace(1.0, 2.0),
    D.Uniform(-1.0, 3.0),
    D.Exponential(2.0),
    D.Gamma(0.4, 2.0),
    D.Gamma(3.0, 0.5),
    D.Chi2(3.0),
    D.Beta(0.5, 2.0),
    D.StudentT(6.0, 1.0, 2.0),
    D.FisherSnedecor(4.0, 12.0),
    D.GeneralizedPareto(1.0, 2.0, 0.1),
    D.ContinuousBernoulli(0.2),
    D.Bernoulli(0.3),
    D.Geometric(0.3),
    D.Binomial(9, probs=wisp.tensor(0.4)),
    D.NegativeBinomial(3.0, probs=wisp.tensor(0.4)),
    D.Poisson(2.5),
    D.LogNormal(0.1, 0.4),
    D.HalfNormal(2.0),
    D.Gumbel(1.0, 2.0),
    D.Pareto(1.0, 6.0),
    D.Weibull(2.0, 1.5),
    D.Kumaraswamy(2.0, 3.0),
    D.InverseGamma(6.0, 2.0),
    D.Dirichlet(wisp.tensor([0.4, 1.0, 3.0])),
    D.Multinomial(6, wisp.tensor([0.2, 0.3, 0.5])),
    D.OneHotCategorical(wisp.tensor([0.2, 0.8])),
    D.MixtureSameFamily(
        wisp.distributions.Categorical(wisp.tensor([0.3, 0.7])), D.Normal(wisp.tensor([-1.0, 2.0]), wisp.tensor([1.0, 0.5]))
    ),
    D.Independent(D.Normal(wisp.zeros(2), wisp.ones(2)), 1),
]


@pytest.mark.parametrize("d", ONE_D, ids=lambda d: type(d).__name__)
def test_moments_of_samples(d):
    wisp.manual_seed(1)
    x = d.sample((N,)).double()
    mean, variance = d.mean.double(), d.variance.double()
    assert ((x.mean(0) - mean).abs() < 6 * (variance / N).sqrt() + 1e-6).all()
    assert ((x.var(0) / variance - 1).abs() < 0.25).all()
    assert wisp.isfinite(d.log_prob(d.sample((5,)))).all()


def test_samples_follow_the_distribution_function():
    wisp.manual_seed(2)
    for d in (D.Normal(0.0, 1.0), D.Cauchy(1.0, 2.0), D.Gamma(0.3, 1.0), D.Gamma(5.0, 2.0), D.HalfCauchy(1.0), D.Laplace(0.0, 1.0)):
        u = d.cdf(d.sample((N,))).sort().values
        assert (u - (wisp.arange(N) + 0.5) / N).abs().max() < 1.8 / math.sqrt(N)  # Kolmogorov-Smirnov


def test_circle():
    wisp.manual_seed(3)
    d = D.VonMises(wisp.tensor([0.5, -2.0]), wisp.tensor([3.0, 0.4]))
    x = d.sample((N,))
    assert (wisp.atan2(x.sin().mean(0), x.cos().mean(0)) - d.loc).abs().max() < 0.1
    length = (x.sin().mean(0) ** 2 + x.cos().mean(0) ** 2).sqrt()
    assert (1 - length - d.variance).abs().max() < 0.03


def test_gradient_of_gamma_samples():
    """d E[x] / da is 1, and at a fixed quantile dx/da moves along the distribution function."""
    wisp.manual_seed(4)
    for a in (0.2, 1.0, 4.0, 50.0):
        concentration = wisp.full((N,), a, dtype=wisp.float64, requires_grad=True)
        x = D.Gamma(concentration, wisp.ones(N, dtype=wisp.float64)).rsample()
        x.sum().backward()
        assert abs(concentration.grad.mean().item() - 1) < 0.1
        h = 1e-6 * a
        shifted = wisp.igamma(wisp.full_like(x, a + h), x.detach() + h * concentration.grad)
        assert (shifted - wisp.igamma(wisp.full_like(x, a), x.detach())).abs().max() < 1e-8


def test_reparameterised_gradients():
    loc, scale = wisp.tensor(0.5, requires_grad=True), wisp.tensor(2.0, requires_grad=True)
    D.Normal(loc, scale).rsample((1000,)).sum().backward()
    assert loc.grad == 1000
    p = wisp.tensor([0.3, 0.7], requires_grad=True)
    D.OneHotCategoricalStraightThrough(probs=p).rsample()[0].backward()
    assert p.grad is not None
    q = wisp.tensor([0.3, 0.7], requires_grad=True)
    D.RelaxedOneHotCategorical(wisp.tensor(0.5), probs=q).rsample()[0].backward()
    assert wisp.isfinite(q.grad).all() and not D.Normal(loc, scale).sample().requires_grad


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="scale"):
        D.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="support"):
        D.Exponential(1.0).log_prob(wisp.tensor(-1.0))
    with pytest.raises(ValueError, match="Either"):
        D.Bernoulli()
    with pytest.raises(ValueError, match="at least one-dimensional"):
        wisp.distributions.Categorical(wisp.tensor(0.5))
    with pytest.raises(ValueError, match="broadcastable"):
        D.Normal(wisp.zeros(3), 1.0).log_prob(wisp.zeros(2))
    assert D.Exponential(1.0, validate_args=False).log_prob(wisp.tensor(-1.0)) == 1
    with pytest.raises(NotImplementedError):
        D.kl_divergence(D.Poisson(1.0), D.Normal(0.0, 1.0))


def test_register_kl_prefers_the_nearest_type():
    class Mine(D.Normal):
        pass

    @D.register_kl(Mine, D.Normal)
    def _(p, q):
        return "mine"

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)) == "mine"
    assert D.kl_divergence(D.Normal(0.0, 1.0), Mine(0.0, 1.0)) == 0


def test_shapes():
    d = D.Normal(wisp.zeros(3, 1), wisp.ones(2))
    assert d.batch_shape == (3, 2) and d.sample((4,)).shape == (4, 3, 2) and d.expand((5, 3, 2)).sample().shape == (5, 3, 2)
    e = D.Independent(d, 1)
    assert e.batch_shape == (3,) and e.event_shape == (2,) and e.log_prob(d.sample()).shape == (3,)
    f = D.TransformedDistribution(D.Normal(wisp.zeros(3), 1.0), [D.ExpTransform(), D.StickBreakingTransform()])
    assert f.event_shape == (4,) and f.expand((2,)).sample((5,)).shape == (5, 2, 4)
    assert wisp.distributions.Categorical(logits=wisp.zeros(2, 5)).enumerate_support().shape == (5, 2)


def test_names_of_pytorch_modules():
    for module, name in (
        ("normal", "Normal"),
        ("categorical", "Categorical"),
        ("kl", "kl_divergence"),
        ("multivariate_normal", "MultivariateNormal"),
        ("transformed_distribution", "TransformedDistribution"),
        ("exp_family", "ExponentialFamily"),
    ):
        assert getattr(importlib.import_module("wisp.distributions." + module), name) is getattr(D, name)
    assert pickle.loads(pickle.dumps(D.Normal(wisp.zeros(2), 1.0))).batch_shape == (2,)


def test_cached_transform():
    t = D.ExpTransform().with_cache(1)
    x = wisp.tensor([1.0, 2.0])
    y = t(x)
    assert t(x) is y and t.inv(y) is x and t.inv.inv is t


def test_a_subclass_with_parts_of_its_own_must_define_expand():
    class Named(wisp.distributions.Normal):
        def __init__(self, loc, scale, name):
            super().__init__(loc, scale)
            self.name = name

    with pytest.raises(NotImplementedError, match="custom __init__"):
        Named(wisp.zeros(2), wisp.ones(2), "x").expand([3, 2])
    assert wisp.distributions.Chi2(wisp.ones(2)).expand([3, 2]).batch_shape == (3, 2)


def test_dirichlet_at_small_concentrations():
    wisp.manual_seed(0)
    x = D.Beta(wisp.tensor(0.01), wisp.tensor(0.01)).sample((2000,))
    assert ((x > 0) & (x < 1)).all() and abs((x < 0.5).float().mean() - 0.5) < 0.05
    # x = u ** (1 / a) for Beta(a, 1): its derivative by a is -x log(x) / a, and by b, from (1 - x) alike, at a = 1
    a = wisp.full((50,), 0.3, dtype=wisp.float64, requires_grad=True)
    x = D.Beta(a, wisp.ones_like(a)).rsample()
    x.sum().backward()
    wisp.testing.assert_close(a.grad, (-x * x.log() / a).detach())
    b = wisp.full((50,), 20.0, dtype=wisp.float64, requires_grad=True)
    y = D.Beta(wisp.ones_like(b), b).rsample()
    y.sum().backward()
    wisp.testing.assert_close(b.grad, ((1 - y) * (1 - y).log() / b).detach(), rtol=1e-6, atol=1e-9)


def test_samples_have_tangents_of_zero():
    from wisp.autograd import forward_ad

    samplers = [wisp.bernoulli, wisp.poisson, wisp.normal, lambda x: wisp.normal(0.0, x), lambda x: x.uniform_(), lambda x: x.normal_()]
    for sample in samplers:
        with forward_ad.dual_level():
            out = sample(forward_ad.make_dual(wisp.ones(3), wisp.ones(3)))
            assert forward_ad.unpack_dual(out).tangent.count_nonzero() == 0


def test_wishart_of_whole_degrees_of_freedom():
    assert D.Wishart(wisp.tensor(1), wisp.tensor([[1.0]])).sample().shape == (1, 1)


def test_the_density_of_wishart_is_one_of_the_whole_matrix():
    scale = wisp.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=wisp.float64)
    value = wisp.tensor([[3.0, 0.2], [0.2, 1.0]], dtype=wisp.float64, requires_grad=True)
    log_prob = D.Wishart(wisp.tensor(4.0, dtype=wisp.float64), scale).log_prob
    log_prob(value).backward()
    inverse = wisp.linalg.inv
    assert wisp.allclose(value.grad, (inverse(value.detach()) - inverse(scale)) / 2)  # both halves of the matrix have their share
    assert wisp.autograd.gradcheck(log_prob, value)


def test_samples_do_not_ask_what_programs_replace(monkeypatch):
    """Tests of libraries put numbers of their own in the place of `randn_like`: draws of other shapes go on."""
    for name in ("randn_like", "rand_like", "randn", "rand"):
        monkeypatch.setattr(wisp, name, lambda *_, **__: wisp.zeros(3, 2, 4))
    assert wisp.distributions.Gamma(2.5, 1.0).rsample((5, 1)).shape == (5, 1)


def test_expand_of_a_class_with_other_parameters():
    class Shifted(wisp.distributions.Categorical):
        arg_constraints = {"predictor": wisp.distributions.constraints.real}

        def __init__(self, predictor):
            self.predictor = predictor
            super().__init__(logits=wisp.stack([predictor, -predictor], -1))

        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Shifted, _instance)
            new.predictor = self.predictor.expand(batch_shape)
            return super().expand(batch_shape, new)

    small = Shifted(wisp.tensor([0.5, -1.0]))
    large = small.expand((3, 2))
    assert large.predictor.shape == (3, 2) and large.probs.shape == (3, 2, 2)
    assert wisp.equal(large.log_prob(wisp.tensor(1)), small.log_prob(wisp.tensor(1)).expand(3, 2))


def test_a_transform_may_be_a_module():
    class Scaled(wisp.distributions.Transform, wisp.nn.Module):
        def __init__(self):
            super().__init__(cache_size=1)
            self.layer = wisp.nn.Linear(2, 2)

    assert len(list(Scaled().parameters())) == 2 and Scaled()._cache_size == 1


def test_gamma_of_concentrations_without_a_distribution_ends():
    draws = wisp._standard_gamma(wisp.tensor([wisp.inf, wisp.nan, -5.0, 2.0]))
    assert draws[0] == wisp.inf and draws[1:3].isnan().all() and 0 < draws[3] < wisp.inf
