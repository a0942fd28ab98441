"""Distributions beside PyTorch's: log_prob, cdf, icdf, entropy, moments, gradients and KL on the same parameters."""

import numpy as np
import pytest
import torch

import wisp

T, W = torch.distributions, wisp.distributions
RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.normal(size=shape)


def positive(*shape):
    return RNG.uniform(0.3, 3, size=shape)


def unit(*shape):
    return RNG.uniform(0.05, 0.95, size=shape)


def simplex(*shape):
    x = positive(*shape)
    return x / x.sum(-1, keepdims=True)


def matrix(n):
    a = real(n, n)
    return a @ a.T + n * np.eye(n)


CASES = [  # name, arguments, value
    ("Normal", {"loc": real(3), "scale": positive(3)}, real(3)),
    ("Laplace", {"loc": real(3), "scale": positive(3)}, real(3)),
    ("Cauchy", {"loc": real(3), "scale": positive(3)}, real(3)),
    ("Uniform", {"low": real(3) - 4, "high": real(3) + 4}, unit(3)),
    ("Exponential", {"rate": positive(3)}, positive(3)),
    ("Gamma", {"concentration": positive(3), "rate": positive(3)}, positive(3)),
    ("Chi2", {"df": positive(3)}, positive(3)),
    ("Beta", {"concentration1": positive(3), "concentration0": positive(3)}, unit(3)),
    ("Dirichlet", {"concentration": positive(2, 3)}, simplex(2, 3)),
    ("StudentT", {"df": positive(3) + 2, "loc": real(3), "scale": positive(3)}, real(3)),
    ("FisherSnedecor", {"df1": positive(3) + 2, "df2": positive(3) + 4}, positive(3)),
    ("VonMises", {"loc": real(3), "concentration": positive(3)}, real(3)),
    (
        "GeneralizedPareto",
        {"loc": np.float32(real(3)), "scale": np.float32(positive(3)), "concentration": np.float32([0.2, 0.0, 0.4])},
        np.float32(real(3) + 6),
    ),
    ("ContinuousBernoulli", {"probs": unit(3)}, unit(3)),
    ("ContinuousBernoulli", {"probs": np.array([0.5, 0.4995, 0.2])}, unit(3)),
    ("ContinuousBernoulli", {"logits": real(3)}, unit(3)),
    ("Bernoulli", {"probs": unit(3)}, np.array([0.0, 1, 1])),
    ("Bernoulli", {"logits": real(3)}, np.array([0.0, 1, 1])),
    ("Geometric", {"probs": unit(3)}, np.array([0.0, 3, 7])),
    ("Geometric", {"logits": real(3)}, np.array([0.0, 3, 7])),
    ("Binomial", {"total_count": 7, "probs": unit(3)}, np.array([0.0, 3, 7])),
    ("Binomial", {"total_count": 7, "logits": real(3)}, np.array([0.0, 3, 7])),
    ("NegativeBinomial", {"total_count": positive(3), "probs": unit(3)}, np.array([0.0, 3, 7])),
    ("NegativeBinomial", {"total_count": positive(3), "logits": real(3)}, np.array([0.0, 3, 7])),
    ("Poisson", {"rate": positive(3)}, np.array([0.0, 3, 7])),
    ("Categorical", {"probs": simplex(2, 4)}, np.array([0, 3])),
    ("Categorical", {"logits": real(2, 4)}, np.array([[0], [2], [1]])),
    ("OneHotCategorical", {"probs": simplex(2, 3)}, np.eye(3)[:2]),
    ("Multinomial", {"total_count": 5, "probs": simplex(2, 3)}, np.array([[1.0, 2, 2], [5, 0, 0]])),
    ("LogNormal", {"loc": real(3), "scale": positive(3)}, positive(3)),
    ("LogisticNormal", {"loc": real(2, 3), "scale": positive(2, 3)}, simplex(2, 4)),
    ("HalfNormal", {"scale": positive(3)}, positive(3)),
    ("HalfCauchy", {"scale": positive(3)}, positive(3)),
    ("Gumbel", {"loc": real(3), "scale": positive(3)}, real(3)),
    ("Pareto", {"scale": positive(3), "alpha": positive(3) + 2}, positive(3) + 4),
    ("Weibull", {"scale": positive(3), "concentration": positive(3)}, positive(3)),
    ("Kumaraswamy", {"concentration1": positive(3), "concentration0": positive(3)}, unit(3)),
    ("InverseGamma", {"concentration": positive(3) + 2, "rate": positive(3)}, positive(3)),
    ("RelaxedBernoulli", {"temperature": np.array(0.7), "probs": unit(3)}, unit(3)),
    ("RelaxedOneHotCategorical", {"temperature": np.array(0.7), "logits": real(2, 3)}, simplex(2, 3)),
]
MATRIX_CASES = [
    ("MultivariateNormal", {"loc": real(2, 3), "covariance_matrix": matrix(3)}, real(2, 3)),
    ("MultivariateNormal", {"loc": real(3), "precision_matrix": matrix(3)}, real(3)),
    ("MultivariateNormal", {"loc": real(3), "scale_tril": np.linalg.cholesky(matrix(3))}, real(3)),
    ("LowRankMultivariateNormal", {"loc": real(4), "cov_factor": real(4, 2), "cov_diag": positive(4)}, real(3, 4)),
    (
        "LKJCholesky",
        {"dim": 3, "concentration": positive(2)},
        np.linalg.cholesky(np.array([[1, 0.3, 0.1], [0.3, 1, -0.2], [0.1, -0.2, 1]])),
    ),
    ("Wishart", {"df": np.array(5.0), "covariance_matrix": matrix(3)}, matrix(3)),
]


def build(library, module, arguments, gradients=False):
    made = {k: v if isinstance(v, int) else library.tensor(v, requires_grad=gradients) for k, v in arguments.items()}
    return made, getattr(library.distributions, module)(**made)


def same(ours, theirs, tolerance=1e-9):
    assert tuple(ours.shape) == tuple(theirs.shape)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


def compare(name, arguments, value, gradients=True):
    mine, ours = build(wisp, name, arguments, gradients)
    its, theirs = build(torch, name, arguments, gradients)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape) and tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample and ours.has_enumerate_support == theirs.has_enumerate_support
    a, b = ours.log_prob(wisp.tensor(value)), theirs.log_prob(torch.tensor(value))
    loose = 1e-5 if name == "GeneralizedPareto" else 1e-7 if name == "VonMises" else 1e-9  # float32; PyTorch's Bessel function
    same(a, b, loose)
    a.sum().backward()
    b.sum().backward()
    for key in mine:
        if not isinstance(mine[key], int) and its[key].grad is not None:
            same(mine[key].grad, its[key].grad, max(loose, 1e-7))
    for what in ("entropy", "mean", "variance", "stddev", "mode", "cdf", "icdf", "enumerate_support"):
        if what == "mode" and name == "Kumaraswamy":
            continue  # PyTorch's formula is not the mode
        argument = {"cdf": value, "icdf": RNG.uniform(0.1, 0.9, size=np.shape(value)).astype(value.dtype)}.get(what)
        try:
            expected = getattr(theirs, what)
            if callable(expected):
                expected = expected() if argument is None else expected(torch.tensor(argument))
        except (NotImplementedError, AttributeError, RuntimeError):
            continue
        got = getattr(ours, what)
        if callable(got):
            got = got() if argument is None else got(wisp.tensor(argument))
        same(got, expected, max(loose, 1e-6))
    grown = (3,) + tuple(theirs.batch_shape)
    same(ours.expand(grown).log_prob(wisp.tensor(value)), theirs.expand(grown).log_prob(torch.tensor(value)), loose)
    sample = ours.sample((2,))
    assert tuple(sample.shape) == tuple(theirs.sample((2,)).shape) and sample.dtype == (wisp.int64 if name == "Categorical" else a.dtype)
    ours.log_prob(sample)  # samples lie in the support


@pytest.mark.parametrize("case", range(len(CASES)), ids=[c[0] + str(i) for i, c in enumerate(CASES)])
def test_beside_pytorch(case):
    compare(*CASES[case])


@pytest.mark.parametrize("case", range(len(MATRIX_CASES)), ids=[c[0] + str(i) for i, c in enumerate(MATRIX_CASES)])
def test_matrices_beside_pytorch(case):
    compare(*MATRIX_CASES[case])


FIRST = {}
for _name, _arguments, _ in CASES:
    FIRST.setdefault(_name, _arguments)


def kl_pairs():
    names = {getattr(T, n): n for n in FIRST}
    for p, q in T.kl._KL_REGISTRY:
        if p in names and q in names:
            yield names[p], names[q]


@pytest.mark.parametrize("pair", sorted(set(kl_pairs())), ids="-".join)
def test_kl(pair):
    ours, theirs = [build(wisp, n, FIRST[n])[1] for n in pair], [build(torch, n, FIRST[n])[1] for n in pair]
    try:
        expected = T.kl_divergence(*theirs)
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            W.kl_divergence(*ours)
        return
    same(W.kl_divergence(*ours), expected, 1e-7)


def test_kl_of_normal_vectors():
    names = ["MultivariateNormal", "LowRankMultivariateNormal"]
    arguments = [{"loc": real(4), "covariance_matrix": matrix(4)}, {"loc": real(4), "cov_factor": real(4, 2), "cov_diag": positive(4)}]
    for p, a in zip(names, arguments):
        for q, b in zip(names, arguments):
            same(
                W.kl_divergence(build(wisp, p, a)[1], build(wisp, q, b)[1]),
                T.kl_divergence(build(torch, p, a)[1], build(torch, q, b)[1]),
                1e-7,
            )


def test_kl_of_wrapped():
    def make(library):
        d = library.distributions
        loc, scale = library.tensor(LOC), library.tensor(SCALE)
        return (
            d.Independent(d.Normal(loc, scale), 1),
            d.Independent(d.Normal(scale, scale + 1), 1),
            d.LogNormal(loc, scale),
            d.LogNormal(scale, scale + 1),
        )

    LOC, SCALE = real(2, 3), positive(2, 3)
    a, b, c, d = make(wisp)
    e, f, g, h = make(torch)
    same(W.kl_divergence(a, b), T.kl_divergence(e, f))
    same(W.kl_divergence(c, d), T.kl_divergence(g, h))
    with pytest.raises(NotImplementedError):
        W.kl_divergence(a, c)


def test_mixture():
    def make(library):
        d, t = library.distributions, library.tensor
        return d.MixtureSameFamily(d.Categorical(logits=t(M)), d.Normal(t(M), t(S))), d.MixtureSameFamily(
            d.Categorical(logits=t(L)), d.Independent(d.Normal(t(V), t(V) ** 2 + 1), 1)
        )

    L, M, S, V = real(4), real(2, 4), positive(2, 4), real(4, 3)
    for ours, theirs, x in zip(make(wisp), make(torch), (real(5, 2), real(5, 3))):
        same(ours.log_prob(wisp.tensor(x)), theirs.log_prob(torch.tensor(x)))
        same(ours.mean, theirs.mean)
        same(ours.variance, theirs.variance)
        assert tuple(ours.sample((3,)).shape) == tuple(theirs.sample((3,)).shape)


TRANSFORMS = [
    (lambda d, t: d.ExpTransform(), real(3)),
    (lambda d, t: d.SigmoidTransform(), real(3)),
    (lambda d, t: d.TanhTransform(), real(3)),
    (lambda d, t: d.SoftplusTransform(), real(3)),
    (lambda d, t: d.PowerTransform(t(0.7)), positive(3)),
    (lambda d, t: d.AffineTransform(t(A), t(B)), real(3)),
    (lambda d, t: d.AffineTransform(1.5, -2.0, event_dim=1), real(2, 3)),
    (lambda d, t: d.StickBreakingTransform(), real(2, 3)),
    (lambda d, t: d.CorrCholeskyTransform(), real(2, 6)),
    (lambda d, t: d.ReshapeTransform((4,), (2, 2)), real(3, 4)),
    (lambda d, t: d.ComposeTransform([d.AffineTransform(t(A), t(B)), d.ExpTransform(), d.StickBreakingTransform()]), real(2, 3)),
    (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), real(2, 3)),
    (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform()], dim=0), real(2, 3)),
    (lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], dim=0, lengths=[1, 2]), real(3, 3)),
    (lambda d, t: d.CumulativeDistributionTransform(d.Normal(t(A), t(B))), real(3)),
    (lambda d, t: d.ExpTransform().inv, positive(3)),
]
A, B = real(3), positive(3)


@pytest.mark.parametrize("case", range(len(TRANSFORMS)))
def test_transforms(case):
    make, x = TRANSFORMS[case]
    ours, theirs = (make(W, lambda v: wisp.tensor(v, dtype=wisp.float64)), make(T, lambda v: torch.tensor(v, dtype=torch.float64)))
    a, b = wisp.tensor(x), torch.tensor(x)
    y, z = ours(a), theirs(b)
    same(y, z)
    same(ours.inv(y), theirs.inv(z), 1e-7)
    same(ours.log_abs_det_jacobian(a, y), theirs.log_abs_det_jacobian(b, z), 1e-7)
    assert ours.domain.event_dim == theirs.domain.event_dim and ours.codomain.event_dim == theirs.codomain.event_dim
    assert tuple(ours.forward_shape(a.shape)) == tuple(theirs.forward_shape(b.shape)) and ours.bijective == theirs.bijective


@pytest.mark.parametrize("name", ["real", "positive", "unit_interval", "simplex", "real_vector", "corr_cholesky", "nonnegative"])
def test_registries(name):
    x = real(2, 3)
    for registry in ("biject_to", "transform_to"):
        ours, theirs = (getattr(W, registry)(getattr(W.constraints, name)), getattr(T, registry)(getattr(T.constraints, name)))
        same(ours(wisp.tensor(x)), theirs(torch.tensor(x)))
        assert getattr(W.constraints, name).check(ours(wisp.tensor(x))).all()


def test_kl_of_wishart_matrices():
    """PyTorch's general formula adds up over the batch; this one is compared with samples."""
    wisp.manual_seed(0)
    scale = wisp.tensor([[2.0, 0.5], [0.5, 1.0]])
    p, q = wisp.distributions.Wishart(4.0, scale), wisp.distributions.Wishart(wisp.tensor([3.0, 5.0]), wisp.eye(2))
    sample = p.sample((40000, 1))
    expected = (p.log_prob(sample) - q.log_prob(sample)).mean(0)
    assert wisp.allclose(wisp.distributions.kl_divergence(p, q), expected, rtol=0.03)
    assert wisp.distributions.kl_divergence(p, p).abs() < 1e-5


@pytest.mark.parametrize(
    "call",
    [
        lambda d: d.Chi2(-1.0),
        lambda d: d.TransformedDistribution(d.Normal(0.0, 1.0), 3),
        lambda d: d.transforms.CatTransform([3]),
        lambda d: d.transforms.StackTransform([d.transforms.ExpTransform()])(d.Normal(0.0, 1.0).sample((2,))),
    ],
)
def test_what_is_refused(call):
    with pytest.raises(Exception) as theirs:
        call(torch.distributions)
    with pytest.raises(theirs.type):
        call(wisp.distributions)


@pytest.mark.parametrize(
    "make",
    [
        lambda d, lib: d.Normal(lib.zeros(2), lib.ones(2)),
        lambda d, lib: d.Normal(0.0, 1.0),
        lambda d, lib: d.MixtureSameFamily(d.Categorical(logits=lib.zeros(2)), d.Normal(lib.zeros(2), lib.ones(2))),
    ],
)
def test_representations(make):
    assert repr(make(wisp.distributions, wisp)) == repr(make(torch.distributions, torch))
