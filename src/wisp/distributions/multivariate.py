"""Distributions of vectors and matrices: normal, low-rank normal, Cholesky factors of correlations, Wishart."""

import math

import wisp
from wisp.distributions import constraints
from wisp.distributions.continuous import Beta
from wisp.distributions.distribution import Distribution, ExponentialFamily
from wisp.distributions.utils import lazy_property, standard_gamma

__all__ = ["LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal", "Wishart"]


def _batch_mv(matrix, vector):
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(factor, difference):
    """The squared length of L^-1 d, for batches of both that broadcast."""
    shape = wisp.broadcast_shapes(tuple(factor.shape[:-2]), tuple(difference.shape[:-1]))
    n = factor.shape[-1]
    solved = wisp.linalg.solve_triangular(
        factor.expand(tuple(shape) + (n, n)), difference.expand(tuple(shape) + (n,)).unsqueeze(-1), upper=False
    )
    return solved.squeeze(-1).pow(2).sum(-1)


def _inverse_of_factor(factor):
    """(L L^T)^-1."""
    eye = wisp.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device).expand(factor.shape)
    half = wisp.linalg.solve_triangular(factor, eye, upper=False)
    return half.mT @ half


def _precision_to_scale_tril(precision):
    """The Cholesky factor of P^-1, by that of P with rows and columns reversed."""
    reversed_factor = wisp.linalg.cholesky(wisp.flip(precision, (-2, -1)))
    inverse = wisp.flip(reversed_factor, (-2, -1)).mT
    eye = wisp.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device).expand(precision.shape)
    return wisp.linalg.solve_triangular(inverse, eye, upper=False)


def _half_log_det(factor):
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class _ByMatrix(Distribution):
    """What is described by a positive-definite matrix: given as that, its inverse or its Cholesky factor, it has all three."""

    @staticmethod
    def _given(**matrices):
        """The one that is given, and its name."""
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError(f"Exactly one of {' or '.join(matrices)} may be specified.")
        ((name, matrix),) = given
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        return name, matrix

    def _factorise(self, name, matrix):
        factor = {"scale_tril": lambda m: m, "covariance_matrix": wisp.linalg.cholesky, "precision_matrix": _precision_to_scale_tril}[name]
        self._unbroadcasted_scale_tril = factor(matrix)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    def _full(self, matrix):
        return matrix.expand(tuple(self._batch_shape) + (self._event_shape[-1],) * 2)

    @lazy_property
    def scale_tril(self):
        """The Cholesky factor of the matrix."""
        return self._full(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        """The matrix: a normal vector's covariance, a Wishart matrix's scale."""
        return self._full(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self):
        """The inverse of the matrix."""
        return self._full(_inverse_of_factor(self._unbroadcasted_scale_tril))


class MultivariateNormal(_ByMatrix):
    """Normal vectors, by covariance, precision or the Cholesky factor `scale_tril` of the covariance."""

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support, has_rsample = constraints.real_vector, True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = self._given(covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril)
        batch = tuple(wisp.broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1])))
        setattr(self, name, matrix.expand(batch + (-1, -1)))
        self.loc = loc.expand(batch + (-1,))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._factorise(name, matrix)

    mean = mode = property(lambda self: self.loc)
    variance = property(
        lambda self: self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(tuple(self._batch_shape) + tuple(self._event_shape))
    )

    def rsample(self, sample_shape=wisp.Size()):
        return self.loc + _batch_mv(
            self._unbroadcasted_scale_tril, wisp.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        )

    def log_prob(self, value):
        self._check(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - _half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self):
        result = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + _half_log_det(self._unbroadcasted_scale_tril)
        return result.expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors with covariance W W^T + D: a factor of few columns and a diagonal, so that all costs stay
    linear.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support, has_rsample = constraints.real_vector, True

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        n = loc.shape[-1]
        if cov_factor.shape[-2] != n:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {n} x m")
        if cov_diag.shape[-1] != n:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {(n,)}")
        batch = tuple(wisp.broadcast_shapes(tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1])))
        self.loc, self.cov_diag = loc.expand(batch + (-1,)), cov_diag.expand(batch + (-1,))
        self.cov_factor = cov_factor.expand(batch + tuple(cov_factor.shape[-2:]))
        super().__init__(batch, (n,), validate_args=validate_args)

    @property
    def _unbroadcasted_cov_factor(self):
        return self.cov_factor

    @property
    def _unbroadcasted_cov_diag(self):
        return self.cov_diag

    @lazy_property
    def _capacitance_tril(self):  # the factor of I + W^T D^-1 W
        weighted = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        return wisp.linalg.cholesky(
            weighted @ self.cov_factor + wisp.eye(self.cov_factor.shape[-1], dtype=self.loc.dtype, device=self.loc.device)
        )

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: self.cov_factor.pow(2).sum(-1) + self.cov_diag)

    @lazy_property
    def covariance_matrix(self):
        """The covariance."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @lazy_property
    def scale_tril(self):
        """The Cholesky factor of the covariance."""
        return wisp.linalg.cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance, by Woodbury's identity."""
        weighted = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        half = wisp.linalg.solve_triangular(self._capacitance_tril, weighted, upper=False)
        return self.cov_diag.reciprocal().diag_embed() - half.mT @ half

    def rsample(self, sample_shape=wisp.Size()):
        shape = self._extended_shape(sample_shape)
        few = wisp.randn(tuple(shape[:-1]) + (self.cov_factor.shape[-1],), dtype=self.loc.dtype, device=self.loc.device)
        each = wisp.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + _batch_mv(self.cov_factor, few) + self.cov_diag.sqrt() * each

    def _log_det(self):
        return 2 * _half_log_det(self._capacitance_tril) + self.cov_diag.log().sum(-1)

    def log_prob(self, value):
        self._check(value)
        difference = value - self.loc
        weighted = self.cov_factor.mT / self.cov_diag.unsqueeze(-2)
        distance = (difference.pow(2) / self.cov_diag).sum(-1) - _batch_mahalanobis(self._capacitance_tril, _batch_mv(weighted, difference))
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self):
        return 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices with density det ** (concentration - 1)."""

    arg_constraints, support = {"concentration": constraints.positive}, constraints.corr_cholesky

    def __init__(self, dim, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self.concentration = concentration if isinstance(concentration, wisp.Tensor) else wisp.tensor(float(concentration))
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def expand(self, batch_shape, _instance=None):
        new = super().expand(batch_shape, _instance)
        new.dim = self.dim
        return new

    def sample(self, sample_shape=wisp.Size()):
        """The onion method: each row is a direction of uniform angle with a beta-distributed length."""
        with wisp.no_grad():
            marginal = self.concentration + 0.5 * (self.dim - 2)
            place = self.concentration.device
            offset = wisp.cat([wisp.zeros(1, device=place), wisp.arange(self.dim - 1, dtype=wisp.float32, device=place)]).to(
                self.concentration.dtype
            )
            beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
            length = beta.sample(sample_shape).unsqueeze(-1)
            normal = wisp.randn(self._extended_shape(sample_shape), dtype=length.dtype, device=length.device).tril(-1)
            sphere = normal / normal.norm(dim=-1, keepdim=True)
            row = wisp.arange(self.dim, device=normal.device).view(self.dim, 1)
            sphere = wisp.where(row == 0, 0.0, sphere)
            factor = length.sqrt() * sphere
            diagonal = (1 - (factor**2).sum(-1)).clamp(min=wisp.finfo(factor.dtype).tiny).sqrt()
            return factor + diagonal.diag_embed()

    def log_prob(self, value):
        self._check(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - wisp.arange(2, self.dim + 1, device=self.concentration.device)
        alone = (order * diagonal.log()).sum(-1)
        n = self.dim - 1
        alpha = self.concentration + 0.5 * n
        log_constant = 0.5 * n * math.log(math.pi) + wisp.mvlgamma(alpha - 0.5, n) - wisp.lgamma(alpha) * n
        return alone - log_constant


class Wishart(_ByMatrix, ExponentialFamily):
    """Covariances of samples: positive-definite matrices with `df` degrees of freedom."""

    arg_constraints = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support, has_rsample, _mean_carrier_measure = constraints.positive_definite, True, 0

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        name, matrix = self._given(covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril)
        df = df if isinstance(df, wisp.Tensor) else wisp.tensor(float(df), dtype=matrix.dtype, device=matrix.device)
        batch = tuple(wisp.broadcast_shapes(tuple(df.shape), tuple(matrix.shape[:-2])))
        n = matrix.shape[-1]
        self.df = df.expand(batch)
        setattr(self, name, matrix.expand(batch + (-1, -1)))
        if (self.df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        super().__init__(batch, matrix.shape[-2:], validate_args=validate_args)
        self._factorise(name, matrix)

    mean = property(lambda self: self.df.view(tuple(self._batch_shape) + (1, 1)) * self.covariance_matrix)

    @property
    def mode(self):
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = wisp.where(factor <= 0, math.nan, factor)
        return factor.view(tuple(self._batch_shape) + (1, 1)) * self.covariance_matrix

    @property
    def variance(self):
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self.df.view(tuple(self._batch_shape) + (1, 1)) * (v.pow(2) + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape=wisp.Size(), max_try_correction=None):
        """Bartlett's decomposition."""
        return self._bartlett_sampling(sample_shape)

    def _bartlett_sampling(self, sample_shape=wisp.Size()):
        n, shape = self._event_shape[-1], self._extended_shape(sample_shape)
        freedom = (self.df.unsqueeze(-1) - wisp.arange(n, dtype=self.df.dtype, device=self.df.device)).expand(tuple(shape[:-1]))
        diagonal = (2 * standard_gamma(0.5 * freedom)).sqrt()
        noise = wisp.randn(shape, dtype=diagonal.dtype, device=diagonal.device).tril(-1) + diagonal.diag_embed()
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def log_prob(self, value):
        self._check(value)
        n, nu = self._event_shape[-1], self.df
        # of the matrix as it is: a factorisation that reads one half of it has another derivative
        trace = wisp.cholesky_solve(value, self._unbroadcasted_scale_tril).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -nu * (n * math.log(2) / 2 + _half_log_det(self._unbroadcasted_scale_tril))
            - wisp.mvlgamma(nu / 2, n)
            + (nu - n - 1) / 2 * wisp.linalg.slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self):
        n, nu = self._event_shape[-1], self.df
        digammas = wisp.digamma((nu / 2).unsqueeze(-1) - wisp.arange(n, dtype=nu.dtype, device=nu.device) / 2).sum(-1)
        return (
            (n + 1) * (n * math.log(2) / 2 + _half_log_det(self._unbroadcasted_scale_tril))
            + wisp.mvlgamma(nu / 2, n)
            - (nu - n - 1) / 2 * digammas
            + nu * n / 2
        )
