"""Properties of matrices and systems of tensors, made of decompositions."""

import math

import wisp
from wisp import _core, matrix_exp
from wisp._composites._autocast import in_float32
from wisp._composites.linear import _check_square
from wisp._composites.linear import matrix_power as _matrix_power
from wisp._composites.reduce import into
from wisp.linalg.norms import matrix_norm

_op = _core._operators["linalg"]

__all__ = ["cond", "matrix_exp", "matrix_power", "matrix_rank", "pinv", "tensorinv", "tensorsolve"]


def _real_dtype(A):
    return wisp.float64 if A.dtype in (wisp.float64, wisp.complex128) else wisp.float32


def _tolerance(value, A):
    if value is None or isinstance(value, wisp.Tensor):
        return value
    return wisp.tensor(float(value), dtype=_real_dtype(A), device=A.device)


def matrix_power(A, n, *, out=None):
    """The n-th power of square matrices; a negative n inverts."""
    return _matrix_power(A, n, out=out)


@in_float32
def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None, out=None):
    """The pseudo-inverse (Moore-Penrose); singular values up to max(atol, rtol * the largest) count as zero.

    >>> import wisp
    >>> wisp.linalg.pinv(wisp.tensor([[2., 0.], [0., 0.]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    if rcond is not None:
        atol, rtol = 0.0, rcond
    return into(out, _op["_pinv"](A, _tolerance(atol, A), _tolerance(rtol, A), hermitian))


def matrix_rank(A, tol=None, hermitian=False, *, atol=None, rtol=None, out=None):
    """How many singular values are above max(atol, rtol * the largest)."""
    if A.dim() < 2:
        raise RuntimeError("linalg.matrix_rank: The input tensor A must have at least 2 dimensions.")
    for name, given in (("tol", tol), ("atol", atol), ("rtol", rtol)):
        if isinstance(given, wisp.Tensor) and given.is_complex():
            raise RuntimeError(f"torch.linalg.matrix_rank: {name} tensor of complex type is not supported. Got {given.dtype}")
    if hermitian:
        _check_square(A, "linalg.matrix_rank")
    if tol is not None:
        atol, rtol = tol, 0.0
    with wisp.no_grad():
        values = _op["eigvalsh"](A).abs() if hermitian else _op["svdvals"](A)
        atol, given = _tolerance(0.0 if atol is None else atol, A), _tolerance(rtol, A)
        if given is None:
            given = wisp.where(atol > 0, 0.0, max(A.shape[-2:]) * wisp.finfo(values.dtype).eps)
        if A.numel() == 0:
            shape = wisp.broadcast_shapes(A.shape[:-2], atol.shape, given.shape)
            return into(out, wisp.zeros(shape, dtype=wisp.int64, device=A.device))
        limit = wisp.maximum(atol.unsqueeze(-1), given.unsqueeze(-1) * values.amax(-1, keepdim=True))
        return into(out, (values > limit).sum(-1))


def cond(A, p=None, *, out=None):
    """The condition number of matrices in a norm: None or 2, -2, 'fro', 'nuc', inf, -inf, 1 or -1."""
    if A.dim() < 2:
        raise RuntimeError(f"linalg.cond: The input tensor must have at least 2 dimensions, but got {A.dim()} dimensions instead.")
    if not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError(f"linalg.cond: Expected a floating point or complex tensor as input. Got {A.dtype}")
    if isinstance(p, str):
        if p not in ("fro", "nuc"):
            raise RuntimeError(f"linalg.cond got an invalid norm type: {p}; as a string it must be 'fro' or 'nuc'")
    elif p is not None and abs(p) not in (1, 2, math.inf):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    two = p is None or p in (2, -2)
    if not two:
        _check_square(A, "linalg.cond")
    if A.numel() == 0:
        return into(out, wisp.zeros(A.shape[:-2], dtype=_real_dtype(A), device=A.device))
    if two:
        values = _op["svdvals"](A)
        largest, smallest = values.narrow(-1, 0, 1), values.narrow(-1, -1, 1)
        return into(out, (smallest / largest if p == -2 else largest / smallest).squeeze(-1))
    inverse, info = _op["inv_ex"](A)
    singular = info > 0
    if singular.any():
        inverse = wisp.where(singular[..., None, None], 0.0, inverse)
        return into(out, wisp.where(singular, math.inf, matrix_norm(A, p) * matrix_norm(inverse, p)))
    return into(out, matrix_norm(A, p) * matrix_norm(inverse, p))


def tensorinv(A, ind=2, *, out=None):
    """The inverse of `tensordot(A, ., dims)`: A's first `ind` dimensions against the others."""
    if ind <= 0:
        raise RuntimeError("Expected a strictly positive integer for 'ind'")
    rows, columns = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    if math.prod(rows) != math.prod(columns):
        raise RuntimeError(
            f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {math.prod(columns)} "
            f"!= {math.prod(rows)}"
        )
    return into(out, _op["inv"](A.reshape(math.prod(rows), math.prod(columns))).reshape(columns + rows))


def tensorsolve(A, B, dims=None, *, out=None):
    """The X with `tensordot(A, X, dims=X.ndim) == B`, after moving A's `dims` to its end."""
    if dims is not None:
        dims = [d % A.dim() for d in dims]
        A = A.movedim(dims, list(range(A.dim() - len(dims), A.dim())))
    shape = tuple(A.shape[B.dim() :])
    if math.prod(A.shape[: B.dim()]) != B.numel() or B.numel() != math.prod(shape):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got "
            f"{math.prod(shape)} != {math.prod(A.shape[: B.dim()])}"
        )
    return into(out, _op["solve"](A.reshape(B.numel(), B.numel()), B.reshape(-1)).reshape(shape))
