"""Composites of linear algebra with names at the top level: powers, exponentials, low-rank approximations."""

import math

from wisp import _core
from wisp._composites.reduce import into
from wisp._signatures import renamed
from wisp._tensor.limits import finfo

_op, _linalg = _core._operators[""], _core._operators["linalg"]


def _check_square(A, name):
    if A.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {A.shape[-2]} by {A.shape[-1]} matrices")


def _identity_like(A):
    return _core.eye(A.shape[-1], dtype=A.dtype, device=A.device)


def matrix_power(input, n, *, out=None):
    """The n-th power of square matrices, by repeated squaring; a negative n inverts.

    >>> import wisp
    >>> wisp.matrix_power(wisp.tensor([[1., 1.], [0., 1.]]), 5)
    tensor([[1., 5.],
            [0., 1.]])
    """
    _check_square(input, "linalg.matrix_power")
    if n == -1:
        return into(out, _linalg["inv"](input), exact=True)
    if n < 0:
        input, n = _linalg["inv"](input), -n
    if n == 0:
        result = input.clone().copy_(_identity_like(input))  # keeps its place in the graph, with a gradient of 0
    elif n == 1:
        result = input.clone()
    else:
        result, power, rest = None, input, n
        while rest:
            if rest & 1:
                result = power if result is None else result @ power
            rest >>= 1
            if rest:
                power = power @ power
    return into(out, result, exact=n in (2, 3))


# The coefficients of the Padé approximant of order 13, and the norm up to which it is exact to double precision.
_PADE = [math.factorial(26 - k) * math.factorial(13) / (math.factorial(26) * math.factorial(k) * math.factorial(13 - k)) for k in range(14)]
_PADE_RADIUS = 5.371920351148152


def matrix_exp(input):
    """The exponential of square matrices, by scaling, a Padé approximant and squaring.

    >>> import wisp
    >>> wisp.matrix_exp(wisp.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(f"linalg.matrix_exp: Expected a floating point or complex tensor as input. Got {input.dtype}")
    _check_square(input, "linalg.matrix_exp")
    return _core._whole("LinalgMatrixExpBackward0", _matrix_exp, input)


def _matrix_exp(input):
    from wisp.func._batching import innermost  # wisp.func is built on composites

    if input.dtype not in (_core.float64, _core.complex128):  # squaring doubles the rounding each time
        return _matrix_exp(input.to(_core.complex128 if input.is_complex() else _core.float64)).to(input.dtype)
    n = input.shape[-1]
    if input.numel() == 0:
        return input.clone()
    if n == 1:
        return input.exp()
    norms = input.detach().abs().sum(-2).amax(-1)
    squarings = (norms / _PADE_RADIUS).log2().ceil().clamp(0, 1000).nan_to_num(0, 0, 0)[..., None, None]
    A, one, c = input * 2.0**-squarings, _identity_like(input), _PADE
    A2 = A @ A
    A4 = A2 @ A2
    A6 = A4 @ A2
    odd = A @ (A6 @ (c[13] * A6 + c[11] * A4 + c[9] * A2) + c[7] * A6 + c[5] * A4 + c[3] * A2 + c[1] * one)
    even = A6 @ (c[12] * A6 + c[10] * A4 + c[8] * A2) + c[6] * A6 + c[4] * A4 + c[2] * A2 + c[0] * one
    result = _linalg["solve_ex"](even - odd, even + odd)[0]
    most = innermost(squarings)
    if most.numel() == 1:
        for _ in range(int(most.item())):
            result = result @ result
        return result
    for i in range(int(most.amax().item())):
        result = _op["where"](squarings > i, result @ result, result)
    return result


def logdet(input):
    """The logarithm of the determinant; nan where that is negative."""
    sign, size = _op["slogdet"](input)
    if input.is_complex():
        return sign.log() + size
    return _op["where"](sign == -1.0, math.nan, size)


def pinverse(input, rcond=1e-15):
    """The pseudo-inverse; singular values below rcond times the largest count as zero."""
    from wisp.linalg import pinv

    return pinv(input, rcond)


def lu(input, pivot=True, get_infos=False, out=None):
    """The LU factors in one matrix, and the pivots; with `get_infos` also where a factorisation failed."""
    result = _linalg["lu_factor_ex"](input, pivot=pivot)
    result = tuple(result) if get_infos else tuple(result)[:2]
    return result if out is None else tuple(into(o, r) for o, r in zip(out, result))


def _approximate_basis(A, q, niter):
    """An orthonormal basis of a q-dimensional space that nearly contains A's (Halko et al. 2009, algorithm 4.4)."""
    qr = _linalg["qr"]
    Q = qr(A @ _core.randn(A.shape[-1], q, dtype=A.dtype, device=A.device))[0]
    for done in range(niter):
        before, Q = Q, qr(A @ qr(A.mH @ Q)[0])[0]
        if done % 64 == 63 and not _turned(before.detach(), Q.detach()):  # more passes than a basis needs, however many were asked for
            break
    return Q


def _turned(before, after):
    """Whether the spaces of two orthonormal bases differ by more than rounding."""
    return after.numel() > 0 and bool((after - before @ (before.mH @ after)).abs().amax() > 16 * finfo(after.dtype).eps)


def svd_lowrank(A, q=6, niter=2, M=None):
    """A randomised singular value decomposition (U, S, V) of rank q, of A or of A - M."""
    q = 6 if q is None else q
    if M is not None:
        A = A - M.broadcast_to(A.shape)
    wide = A.shape[-2] < A.shape[-1]
    if wide:
        A = A.mH
    Q = _approximate_basis(A, q, 2 if niter is None else niter)
    U, S, Vh = _linalg["svd"](Q.mH @ A, full_matrices=False)
    U, V = Q @ U, Vh.mH
    return (V, S, U) if wide else (U, S, V)


def pca_lowrank(A, q=None, center=True, niter=2):
    """The principal components of the rows of A: svd_lowrank of the centred matrix."""
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


FUNCTIONS = [matrix_power, renamed(matrix_exp, "matrix_exp(A)", A="input"), logdet, pinverse, lu, svd_lowrank, pca_lowrank]
METHODS = [matrix_power, matrix_exp, logdet, pinverse, lu]
INPLACE = []
