"""Methods that turn tensors into sparse ones or ask whether they are; what they do is in wisp.sparse, loaded on first use."""

import functools
import warnings

from wisp._core import strided


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """The tensor's elements that are not zero, as a sparse tensor; with `sparse_dim`, slices of the other dimensions."""
    from wisp.sparse import SparseTensor, _from_dense

    if isinstance(self, SparseTensor):  # Tensor.to_sparse(x)
        return self.to_sparse(sparse_dim, layout=layout, blocksize=blocksize, dense_dim=dense_dim)
    return _from_dense(self, sparse_dim, layout, blocksize, dense_dim)


def to_sparse_coo(self):
    """The tensor's elements that are not zero, by their coordinates."""
    return self.to_sparse()


def to_sparse_csr(self, dense_dim=None):
    """The matrix's elements that are not zero, by rows."""
    from wisp import sparse_csr

    return self.to_sparse(layout=sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(self, dense_dim=None):
    """The matrix's elements that are not zero, by columns."""
    from wisp import sparse_csc

    return self.to_sparse(layout=sparse_csc, dense_dim=dense_dim)


def to_sparse_bsr(self, blocksize, dense_dim=None):
    """The blocks of the matrix that are not zero, by rows of blocks."""
    from wisp import sparse_bsr

    return self.to_sparse(layout=sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


def to_sparse_bsc(self, blocksize, dense_dim=None):
    """The blocks of the matrix that are not zero, by columns of blocks."""
    from wisp import sparse_bsc

    return self.to_sparse(layout=sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


def to_dense(self, dtype=None, *, masked_grad=None):
    """The tensor itself (a sparse one: with all its elements)."""
    return self if dtype is None else self.to(dtype)


def sparse_mask(self, mask):
    """The elements of this tensor at the places that the sparse tensor `mask` has."""
    from wisp.sparse import _operators

    return _operators.call("sparse_mask", self, mask)


def sparse_dim(self):
    """The number of sparse dimensions: 0."""
    return 0


def dense_dim(self):
    """The number of dense dimensions: all of them."""
    return self.dim()


def smm(input, mat):
    """The product of a sparse matrix with a dense one, as a sparse tensor."""
    from wisp.sparse import _operators

    return _operators.call("smm", input, mat)


def _factors_in_front(function):
    """Takes what old programs write, too: `f(beta, input, alpha, mat1, mat2)`, or as a method `input.f(beta, alpha, mat1, mat2)`."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        factors = [arg for arg in args if isinstance(arg, (int, float, complex))]
        if not factors:
            return function(*args, **kwargs)
        warnings.warn(
            f"This overload of {function.__name__} is deprecated: the factors in front; pass them by name, behind the tensors.",
            stacklevel=2,
        )
        tensors = [arg for arg in args if not isinstance(arg, (int, float, complex))]
        return function(*tensors, **dict(zip(("beta", "alpha"), factors)), **kwargs)

    return called


@_factors_in_front
def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1, out=None):
    """beta * input + alpha * (mat1 @ mat2) of sparse `input` and `mat1`, as a sparse tensor."""
    from wisp.sparse import _operators

    return _operators.call("sspaddmm", input, mat1, mat2, beta=beta, alpha=alpha, out=out)


@_factors_in_front
def saddmm(input, mat1, mat2, *, beta=1, alpha=1, out=None):
    """The same as `sspaddmm`, by an older name.

    >>> import wisp
    >>> sparse = wisp.eye(2).to_sparse()
    >>> wisp.saddmm(sparse, sparse, wisp.ones(2, 2), beta=2).to_dense()
    tensor([[3., 1.],
            [1., 3.]])
    """
    return sspaddmm(input, mat1, mat2, beta=beta, alpha=alpha, out=out)


def hspmm(mat1, mat2, *, out=None):
    """The product of a sparse matrix with a dense one, with sparse rows."""
    from wisp.sparse import _operators

    return _operators.call("hspmm", mat1, mat2, out=out)


def _needs_sparse(name, layout):
    def method(self, *args, **kwargs):
        if self.layout is not strided:  # `Tensor.values(x)`: the method of the sparse tensor
            return getattr(self, name)(*args, **kwargs)
        raise RuntimeError(f"{name} expected {layout} tensor layout but got Strided")

    method.__name__ = name
    method.__doc__ = f"{name} of a sparse tensor (a {layout} layout); strided tensors have none."
    return method


FUNCTIONS = [smm, sspaddmm, saddmm, hspmm]
METHODS = [
    to_sparse,
    to_sparse_coo,
    to_sparse_csr,
    to_sparse_csc,
    to_sparse_bsr,
    to_sparse_bsc,
    to_dense,
    sparse_mask,
    sparse_dim,
    dense_dim,
    smm,
    sspaddmm,
    *(
        _needs_sparse(name, layout)
        for layout, names in {
            "sparse coordinate": ("coalesce", "is_coalesced", "indices", "_indices"),
            "sparse": ("values", "_values", "_nnz", "sparse_resize_", "sparse_resize_and_clear_"),
            "sparse row compressed": ("crow_indices", "col_indices"),
            "sparse column compressed": ("ccol_indices", "row_indices"),
        }.items()
        for name in names
    ),
]
