"""What distributions share: broadcasting of parameters, probabilities and logits, cached properties, gamma samples."""

import numbers

import wisp
from wisp import _core
from wisp.func._batching import drawn

euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def broadcast_all(*values):
    """Numbers and tensors as tensors of one shape; numbers take dtype and device of the first tensor."""
    first = next((v for v in values if isinstance(v, _core.Tensor)), None)
    for value in values:
        if not isinstance(value, (_core.Tensor, numbers.Number)):
            raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.")
    like = {"dtype": _core.get_default_dtype()} if first is None else {"dtype": first.dtype, "device": first.device}
    return wisp.broadcast_tensors(*(v if isinstance(v, _core.Tensor) else wisp.tensor(v, **like) for v in values))


def sum_rightmost(value, dim):
    """The sum over that many dimensions on the right."""
    return value if dim == 0 else value.reshape(tuple(value.shape[: value.dim() - dim]) + (-1,)).sum(-1)


def clamp_probs(probs):
    """Probabilities moved away from 0 and 1 by the precision of their dtype."""
    eps = wisp.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def logits_to_probs(logits, is_binary=False):
    """Probabilities of logits: of each element, or of a category along the last dimension."""
    return wisp.sigmoid(logits) if is_binary else wisp.softmax(logits, dim=-1)


def probs_to_logits(probs, is_binary=False):
    """Logits of probabilities; log-odds for binary ones."""
    safe = clamp_probs(probs)
    return safe.log() - (-safe).log1p() if is_binary else safe.log()


class lazy_property:
    """A property that is computed once and then is an attribute."""

    def __init__(self, wrapped):
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__
        self.name = wrapped.__name__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with wisp.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.name, value)
        return value


def vec_to_tril_matrix(vec, diag=0):
    """The lower triangular matrix whose rows hold the vector's elements."""
    n = (-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2
    if not round(n, 3).is_integer() and n - round(n) > wisp.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as the lower triangular part of a square D x D "
            "matrix."
        )
    n = round(n.real) if isinstance(n, complex) else round(n)
    rows, columns = wisp.tril_indices(n, n, diag, device=vec.device)
    matrix = vec.new_zeros(tuple(vec.shape[:-1]) + (n * n,))
    index = (rows * n + columns).expand(vec.shape)
    return matrix.scatter(-1, index, vec).reshape(tuple(vec.shape[:-1]) + (n, n))


def tril_matrix_to_vec(mat, diag=0):
    """The elements of the lower triangle, row by row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = wisp.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


# --- gamma samples --------------------------------------------------------------------------------------------------


def _draw_gamma(shape_parameter, generator=None):
    """Marsaglia and Tsang's method in double precision; a parameter below 1 is raised by 1 and corrected by a
    uniform power. Draws are methods, since tests of programs put numbers of theirs in the place of `randn_like`.
    """
    a = shape_parameter.detach().double()
    small = a < 1
    d = wisp.where(small, a + 1, a) - 1.0 / 3
    c = 1 / (9 * d).sqrt()

    def uniform():
        return wisp.empty_like(a).uniform_(generator=generator)

    waiting = wisp.isfinite(a) & (a >= 0)  # of others no draw is ever accepted: infinity stays, the rest has no distribution
    result = wisp.where(waiting, 0.0, wisp.where(a > 0, a, wisp.nan))
    while True:
        x = wisp.empty_like(a).normal_(generator=generator)
        v = (1 + c * x) ** 3
        safe = wisp.where(v > 0, v, 1.0)
        accepted = (v > 0) & ((1 - uniform()).log() < 0.5 * x * x + d * (1 - safe + safe.log()))
        result = wisp.where(waiting & accepted, d * safe, result)
        waiting = waiting & ~accepted
        if not waiting.any():
            break
    correction = wisp.where(small, (1 - uniform()).log() / wisp.where(small, a, 1.0), 0.0)
    return result * correction.exp()


def _gamma_slope(x, a):
    """dx/da of a gamma sample at a fixed quantile: -(dP/da) / p(x), by differences of the smaller tail of P."""
    h = 1e-4 * a.clamp(min=1e-3)
    lower = wisp.igamma(a, x) < 0.5
    change = wisp.where(lower, wisp.igamma(a + h, x) - wisp.igamma(a - h, x), wisp.igammac(a - h, x) - wisp.igammac(a + h, x)) / (2 * h)
    log_density = (a - 1) * x.log() - x - wisp.lgamma(a)
    slope = -change / log_density.exp()
    near_zero = x * (wisp.digamma(a + 1) - x.log()) / a  # where P is x**a / gamma(a + 1)
    return wisp.where(wisp.isfinite(slope) & (x > 1e-8), slope, near_zero)


class _StandardGamma(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, concentration, generator=None):
        sample = _draw_gamma(concentration, generator)
        tiny = wisp.finfo(concentration.dtype).tiny
        ctx.save_for_backward(sample.clamp(min=tiny), concentration)
        return sample.to(concentration.dtype).clamp(min=tiny)

    @staticmethod
    def backward(ctx, grad):
        sample, concentration = ctx.saved_tensors
        return grad * _gamma_slope(sample, concentration.double()).to(grad.dtype), None


def standard_gamma(concentration, generator=None):
    """Samples of the gamma distribution with rate 1; gradients reach the concentration."""
    return drawn(lambda parameter: _StandardGamma.apply(parameter, generator), concentration)


def _standard_normal(shape, dtype, device):
    return wisp.randn(shape, dtype=dtype, device=device)


_sum_rightmost = sum_rightmost  # the name in older releases of PyTorch
