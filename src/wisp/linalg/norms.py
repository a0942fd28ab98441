"""Norms of vectors and matrices."""

import math

from wisp import _core
from wisp._composites.reduce import into

vector_norm = _core._operators["linalg"]["vector_norm"]


def _largest(values, dim, keepdim=False):
    return values.amax(dim, keepdim) if values.shape[dim] else values.sum(dim, keepdim)  # 0 where there is nothing


def _unsqueezed(result, dims, ndim):
    for d in sorted(d % ndim for d in dims):
        result = result.unsqueeze(d)
    return result


def _shown(kind, dims):
    """Dimensions for an error: no tensor has more than 64, so of longer lists the length says enough."""
    return kind(dims) if len(dims) <= 64 else f"{len(dims)} dimensions"


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None):
    """A norm of the matrices in two dimensions: 'fro', 'nuc', 1, -1, inf, -inf, 2 or -2."""
    if A.dim() < 2:
        raise RuntimeError(f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, got shape {list(A.shape)}.")
    if not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError(f"linalg.matrix_norm: Expected a floating point or complex tensor as input. Got {A.dtype}")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {_shown(tuple, dim)}")
    dim = tuple(dim)
    if dim[0] % A.dim() == dim[1] % A.dim():
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {dim}")
    if dtype is not None:
        A = A.to(dtype)
    if ord == "fro":
        return into(out, vector_norm(A, 2, dim, keepdim), exact=True)
    if ord in ("nuc", 2, -2, 2.0, -2.0):
        from wisp import linalg

        values = linalg.svdvals(A.movedim(dim, (-2, -1)))
        result = values.sum(-1) if ord == "nuc" else _largest(values, -1) if ord > 0 else values.amin(-1)
        return into(out, _unsqueezed(result, dim, A.dim()) if keepdim else result, exact=True)
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        expected = " Expected a non-complex scalar as the order of norm." if isinstance(ord, complex) else ""
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.{expected}")
    rows, columns = dim[0] % A.dim(), dim[1] % A.dim()
    if abs(ord) == math.inf:
        rows, columns = columns, rows
    sums = vector_norm(A, 1, rows, keepdim)
    if not keepdim and rows < columns:
        columns -= 1
    return into(out, _largest(sums, columns, keepdim) if ord > 0 else sums.amin(columns, keepdim), exact=True)


def norm(input, ord=None, dim=None, keepdim=False, *, out=None, dtype=None, axis=None):
    """A vector norm, or a matrix norm where two dimensions are meant. `axis` is NumPy's name of `dim`."""
    dim = axis if dim is None else dim
    if dim is not None:
        if not isinstance(dim, int) and len(dim) not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {_shown(list, dim)}")
        dims = (dim,) if isinstance(dim, int) else tuple(dim)
    elif ord is not None:
        if input.dim() not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {input.dim()}D.")
        dims = tuple(range(input.dim()))
    else:
        dims = None
    if ord is not None and len(dims) == 2:
        return matrix_norm(input, ord, dims, keepdim, dtype=dtype, out=out)
    if isinstance(ord, str):
        raise RuntimeError(f"linalg.norm: Order {ord} is for matrices, and needs two dimensions.")
    return into(out, vector_norm(input, 2 if ord is None else ord, dims, keepdim, dtype=dtype), exact=True)
