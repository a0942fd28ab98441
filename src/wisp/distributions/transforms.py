"""Invertible maps with the logarithms of their Jacobian determinants."""

import math

import wisp
from wisp.distributions import constraints
from wisp.distributions._transform import (  # noqa: F401
    ComposeTransform,
    IndependentTransform,
    ReshapeTransform,
    Transform,
    _InverseTransform,
    identity_transform,
)
from wisp.distributions.utils import lazy_property, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = """
    AbsTransform AffineTransform CatTransform ComposeTransform CorrCholeskyTransform CumulativeDistributionTransform ExpTransform
    IndependentTransform LowerCholeskyTransform PositiveDefiniteTransform PowerTransform ReshapeTransform SigmoidTransform
    SoftplusTransform TanhTransform SoftmaxTransform StackTransform StickBreakingTransform Transform identity_transform""".split()


class _Simple(Transform):
    """Maps without parameters: all of one type are equal."""

    def __eq__(self, other):
        return type(other) is type(self)

    __hash__ = object.__hash__


class ExpTransform(_Simple):
    """y = exp(x)."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x ** exponent, for positive x."""

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.exponent = exponent if isinstance(exponent, wisp.Tensor) else wisp.tensor(float(exponent))

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size=cache_size)

    sign = property(lambda self: self.exponent.sign())

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return wisp.broadcast_shapes(tuple(shape), tuple(self.exponent.shape))

    inverse_shape = forward_shape


class SigmoidTransform(_Simple):
    """y = 1 / (1 + exp(-x))."""

    codomain, bijective, sign = constraints.unit_interval, True, 1

    def _call(self, x):
        info = wisp.finfo(x.dtype)
        return wisp.sigmoid(x).clamp(min=info.tiny, max=1.0 - info.eps)

    def _inverse(self, y):
        info = wisp.finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1.0 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -wisp.nn.functional.softplus(-x) - wisp.nn.functional.softplus(x)


class SoftplusTransform(_Simple):
    """y = log(1 + exp(x))."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x):
        return wisp.nn.functional.softplus(x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -wisp.nn.functional.softplus(-x)


class TanhTransform(_Simple):
    """y = tanh(x)."""

    codomain, bijective, sign = constraints.interval(-1.0, 1.0), True, 1

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return wisp.atanh(y)

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - wisp.nn.functional.softplus(-2.0 * x))


class AbsTransform(_Simple):
    """y = |x|: not invertible, the inverse takes the positive one."""

    codomain = constraints.positive

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """y = loc + scale * x."""

    bijective = True

    def __init__(self, loc, scale, event_dim=0, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)
    domain = codomain = property(
        lambda self: constraints.real if self.event_dim == 0 else constraints.independent(constraints.real, self.event_dim)
    )
    sign = property(lambda self: self.scale.sign() if isinstance(self.scale, wisp.Tensor) else (self.scale > 0) - (self.scale < 0))

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else AffineTransform(self.loc, self.scale, self.event_dim, cache_size=cache_size)

    def __eq__(self, other):
        def same(a, b):
            return a is b or bool(wisp.as_tensor(a).eq(wisp.as_tensor(b)).all())

        return isinstance(other, AffineTransform) and same(self.loc, other.loc) and same(self.scale, other.scale)

    __hash__ = object.__hash__

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        result = self.scale.abs().log() if isinstance(self.scale, wisp.Tensor) else wisp.full_like(x, math.log(abs(self.scale)))
        shape = tuple(x.shape)
        if self.event_dim:
            result = result.expand(wisp.broadcast_shapes(tuple(result.shape), shape[len(shape) - self.event_dim :]))
            result = sum_rightmost(result, self.event_dim)
            shape = shape[: len(shape) - self.event_dim]
        return result.expand(wisp.broadcast_shapes(tuple(result.shape), shape))

    def forward_shape(self, shape):
        return wisp.broadcast_shapes(tuple(shape), *(tuple(p.shape) for p in (self.loc, self.scale) if isinstance(p, wisp.Tensor)))

    inverse_shape = forward_shape


class CorrCholeskyTransform(Transform):
    """D(D-1)/2 numbers to the Cholesky factor of a D x D correlation matrix."""

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _call(self, x):
        eps = wisp.finfo(x.dtype).eps
        r = vec_to_tril_matrix(wisp.tanh(x).clamp(min=-1 + eps, max=1 - eps), diag=-1)
        rest = (1 - r**2).sqrt().cumprod(-1)  # what is left of the unit row after each entry
        r = r + wisp.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * wisp.nn.functional.pad(rest[..., :-1], [1, 0], value=1)

    def _inverse(self, y):
        left = 1 - (y * y).cumsum(-1)
        shifted = wisp.nn.functional.pad(left[..., :-1], [1, 0], value=1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(shifted, diag=-1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        left = 1 - (y * y).cumsum(-1)
        stick = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        tanh = -2 * (x + wisp.nn.functional.softplus(-2 * x) - math.log(2.0)).sum(-1)
        return stick + tanh

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return wisp.Size(tuple(shape[:-1]) + (n, n))

    def inverse_shape(self, shape):
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return wisp.Size(tuple(shape[:-2]) + (shape[-1] * (shape[-1] - 1) // 2,))


class SoftmaxTransform(_Simple):
    """The simplex, by exp and normalisation; not invertible, the inverse takes logarithms."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x):
        return wisp.softmax(x, -1)

    def _inverse(self, y):
        return y.log()

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_Simple):
    """K numbers to a point of the simplex of K + 1, breaking pieces off a stick."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    @staticmethod
    def _offset(x):
        return x.shape[-1] + 1 - wisp.ones_like(x).cumsum(-1)

    def _call(self, x):
        z = wisp.sigmoid(x - self._offset(x).log()).clamp(min=wisp.finfo(x.dtype).tiny, max=1 - wisp.finfo(x.dtype).eps)
        pad = wisp.nn.functional.pad
        return pad(z, [0, 1], value=1) * pad((1 - z).cumprod(-1), [1, 0], value=1)

    def _inverse(self, y):
        cropped = y[..., :-1]
        left = (1 - cropped.cumsum(-1)).clamp(min=wisp.finfo(y.dtype).tiny)
        return cropped.log() - left.log() + self._offset(cropped).log()

    def log_abs_det_jacobian(self, x, y):
        x = x - self._offset(x).log()
        return (-x + wisp.nn.functional.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return wisp.Size(tuple(shape[:-1]) + (shape[-1] + 1,))

    def inverse_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("Too few dimensions on input")
        return wisp.Size(tuple(shape[:-1]) + (shape[-1] - 1,))


class LowerCholeskyTransform(_Simple):
    """Matrices to lower triangles with a positive diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Simple):
    """Matrices to positive-definite ones."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(wisp.linalg.cholesky(y))


class _Parts(Transform):
    """Transforms for parts of a value along a dimension."""

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    @staticmethod
    def _checked(tseq, cache_size):
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        return [t.with_cache(cache_size) if cache_size else t for t in tseq]

    def _check_size(self, value, size):
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for tensor with {value.dim()} dimensions")
        if value.shape[self.dim] != size:
            raise AssertionError(f"x.size({self.dim}) = {value.shape[self.dim]} must equal {size}, the size that the transforms take")

    def _each(self, value, inverse):
        pieces = self._cut(value)
        return self._join([(t.inv if inverse else t)(piece) for t, piece in zip(self.transforms, pieces)])

    def _call(self, x):
        return self._each(x, False)

    def _inverse(self, y):
        return self._each(y, True)


class CatTransform(_Parts):
    """Transforms for consecutive slices, of given lengths, along a dimension."""

    def __init__(self, tseq, dim=0, lengths=None, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.transforms = self._checked(tseq, cache_size)
        self.lengths, self.dim = list(lengths) if lengths is not None else [1] * len(self.transforms), dim

    @lazy_property
    def event_dim(self):
        """The most dimensions that one of the transforms looks at."""
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self):
        """The size of the dimension."""
        return sum(self.lengths)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _cut(self, value):
        self._check_size(value, self.length)
        return value.split(self.lengths, self.dim)

    def _join(self, pieces):
        return wisp.cat(pieces, self.dim)

    def log_abs_det_jacobian(self, x, y):
        terms = []
        for t, piece, image in zip(self.transforms, self._cut(x), self._cut(y)):
            terms.append(sum_rightmost(t.log_abs_det_jacobian(piece, image), self.event_dim - t.event_dim))
        dim = self.dim if self.dim < 0 else self.dim - x.dim()
        dim += self.event_dim
        return wisp.cat(terms, dim) if dim < 0 else sum(terms)

    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))


class StackTransform(_Parts):
    """A transform for each slice along a dimension."""

    def __init__(self, tseq, dim=0, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.transforms, self.dim = self._checked(tseq, cache_size), dim

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _cut(self, value):
        self._check_size(value, len(self.transforms))
        return value.unbind(self.dim)

    def _join(self, pieces):
        return wisp.stack(pieces, self.dim)

    def log_abs_det_jacobian(self, x, y):
        return self._join([t.log_abs_det_jacobian(a, b) for t, a, b in zip(self.transforms, self._cut(x), self._cut(y))])

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))


class CumulativeDistributionTransform(Transform):
    """The distribution function of a distribution: its inverse turns uniform numbers into samples."""

    bijective, codomain, sign = True, constraints.unit_interval, 1

    def __init__(self, distribution, cache_size=0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else CumulativeDistributionTransform(self.distribution, cache_size=cache_size)


def _clipped_sigmoid(x):
    info = wisp.finfo(x.dtype)
    return wisp.clamp(wisp.sigmoid(x), min=info.tiny, max=1.0 - info.eps)
