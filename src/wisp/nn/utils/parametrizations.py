"""Ready-made parametrizations: orthogonal matrices, weight normalisation, spectral normalisation."""

from enum import Enum, auto

import wisp
from wisp import _reference
from wisp.nn import functional as F
from wisp.nn.modules.module import Module
from wisp.nn.utils import parametrize
from wisp.nn.utils.spectral_norm import _default_dim
from wisp.nn.utils.weight_norm import norm_except_dim, scaled_direction

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return scaled_direction(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Split a weight into its norm (`original0`) and its direction (`original1`); Salimans and Kingma, 2016.

    >>> import wisp
    >>> layer = wisp.nn.utils.parametrizations.weight_norm(wisp.nn.Linear(20, 40))
    >>> tuple(layer.parametrizations.weight.original0.shape)
    (40, 1)
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename_old_keys(state_dict, prefix, *_):
        g, v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if g in state_dict and v in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original0"] = state_dict.pop(g)
            state_dict[f"{prefix}parametrizations.{name}.original1"] = state_dict.pop(v)

    module._register_load_state_dict_pre_hook(rename_old_keys)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        ndim = weight.dim()
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight.detach())
            rows, columns = matrix.shape
            u = F.normalize(matrix.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(matrix.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)
            self._power_method(matrix, 15)  # a good start, as the first forward may be one in evaluation mode

    def _reshape_weight_to_matrix(self, weight):
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    @wisp.no_grad()
    def _power_method(self, matrix, n_power_iterations):
        for _ in range(n_power_iterations):
            self._u.copy_(F.normalize(wisp.mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(wisp.mv(matrix.H, self._u), dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix.detach(), self.n_power_iterations)
        # Backward needs the vectors as they are now.
        u, v = self._u.clone(), self._v.clone()
        return weight / wisp.vdot(u, wisp.mv(matrix, v))

    def right_inverse(self, value):
        return value  # the weight may have any scale: it is divided out


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide a weight by its largest singular value (Miyato et al., 2018).

    >>> import wisp
    >>> layer = wisp.nn.utils.parametrizations.spectral_norm(wisp.nn.Linear(20, 40))
    >>> tuple(layer.weight.shape)
    (40, 20)
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, wisp.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    parametrization = _SpectralNorm(weight, n_power_iterations, _default_dim(module, dim), eps)
    parametrize.register_parametrization(module, name, parametrization)
    return module


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    # Maps a free matrix to one with orthonormal columns (or rows, if it is wide).
    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X):
        rows, columns = X.shape[-2:]
        transposed = rows < columns
        if transposed:
            X = X.mT
            rows, columns = columns, rows
        if self.orthogonal_map == _OrthMaps.householder:
            A = X.tril(-1)
            Q = wisp.linalg.householder_product(A, 2.0 / (1.0 + (A * A).sum(dim=-2)))
            Q = Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)  # the diagonal holds signs
        else:
            A = X.tril()
            if rows != columns:
                A = wisp.cat([A, A.new_zeros(*A.shape[:-2], rows, rows - columns)], dim=-1)
            A = A - A.mH
            if self.orthogonal_map == _OrthMaps.matrix_exp:
                Q = wisp.matrix_exp(A)
            else:
                eye = wisp.eye(rows, dtype=A.dtype, device=A.device)
                Q = wisp.linalg.solve(eye - 0.5 * A, eye + 0.5 * A)
            Q = Q[..., :columns]
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if transposed else Q

    @wisp.no_grad()
    def right_inverse(self, Q):
        if tuple(Q.shape) != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {tuple(Q.shape)}.")
        start = wisp.zeros_like(Q)  # what forward maps to the identity
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        transposed = Q.shape[-2] < Q.shape[-1]
        Q = Q.mT if transposed else Q
        rows, columns = Q.shape[-2:]
        if not hasattr(self, "base"):
            if self.orthogonal_map != _OrthMaps.householder:
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when use_trivialization=False."
                )
            A, tau = wisp.geqrf(Q)
            diagonal = A.diagonal(dim1=-2, dim2=-1)
            diagonal.copy_(diagonal.sign() * wisp.where(tau == 0, -1.0, 1.0).to(A.dtype))
            return A.mT if transposed else A
        if rows != columns:
            rest = wisp.randn(*Q.shape[:-2], rows, rows - columns, dtype=Q.dtype, device=Q.device)
            self.base = _make_orthogonal(wisp.cat([Q, rest], dim=-1))
        else:
            self.base = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        return start


def _is_orthogonal(Q):
    columns = Q.shape[-1]
    eye = wisp.eye(columns, dtype=Q.dtype, device=Q.device)
    eps = 10.0 * columns * wisp.finfo(Q.dtype).eps
    return bool(wisp.allclose(Q.mH @ Q, eye.expand(*Q.shape[:-2], columns, columns), atol=eps))


def _make_orthogonal(A):
    Q, R = wisp.linalg.qr(A)
    return Q * R.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Keep a weight (semi-)orthogonal, by one of the maps "matrix_exp", "cayley" and "householder".

    >>> import wisp
    >>> layer = wisp.nn.utils.parametrizations.orthogonal(wisp.nn.Linear(5, 5))
    >>> wisp.allclose(layer.weight.T @ layer.weight, wisp.eye(5), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, wisp.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _OrthMaps.__members__:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    parametrization = _Orthogonal(weight, _OrthMaps[orthogonal_map], use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, parametrization, unsafe=True)
    return module


_reference.attach(__name__, globals())
