"""Sparse tensors: construction, products, sums and softmax over the stored elements."""

import wisp
from wisp import _reference
from wisp._tensor import dispatch
from wisp.sparse import _compressed, _operators, _shapes  # noqa: F401
from wisp.sparse._semi_structured import (
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
    to_sparse_semi_structured,
)
from wisp.sparse._tensor import _COO, _CSC, _CSR, _KINDS, SparseTensor, make

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
    "to_sparse_semi_structured",
]


# ---- construction


def _values(values, dtype, device, requires_grad):
    """The values of a new tensor: the given ones in the graph, or a leaf of their own."""
    values = wisp.as_tensor(values)
    if isinstance(values, SparseTensor):
        raise TypeError("the values of a sparse tensor must be a dense tensor")
    values = values.to(device=device or values.device, dtype=dtype or values.dtype)
    if values.requires_grad and wisp.is_grad_enabled() or wisp._core._has_tangent(values):
        return values.view_as(values)
    return values.detach().requires_grad_(requires_grad)


def _check_range(index, size, what):
    for d, (row, n) in enumerate(zip(index, size)):
        if row.numel() and int(row.min()) < 0:
            raise RuntimeError(f"found negative index {int(row.min())} for {what} {d}")
        if row.numel() and int(row.max()) >= n:
            raise RuntimeError(f"size is inconsistent with indices: for {what} {d}, size is {n} but found index {int(row.max())}")


def sparse_coo_tensor(
    indices=None,
    values=None,
    size=None,
    *,
    dtype=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    check_invariants=None,
    is_coalesced=None,
):
    """A sparse tensor of the `values` at the coordinates `indices`, (sparse_dim, nnz); equal coordinates are added up.

    >>> import wisp
    >>> wisp.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if values is None:  # sparse_coo_tensor(size)
        size = tuple(size if size is not None else indices)
        return _operators.zeros(size, dtype=dtype, layout=_COO, device=device, requires_grad=requires_grad)
    values = _values(values, dtype, device, requires_grad)
    index = wisp.as_tensor(indices).detach().to(device=values.device, dtype=wisp.int64)
    if index.dim() == 1 and index.numel() == 0:
        index = index.reshape(0 if size is None else len(size) - max(values.dim() - 1, 0), 0)
    values = values.unsqueeze(0) if values.dim() == 0 else values
    if index.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(index.shape)}")
    if index.size(1) != values.size(0):
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {index.size(1)}, nnz from values: {values.size(0)}"
        )
    if size is None:
        if index.numel() == 0 and index.size(0):
            outer = (0,) * index.size(0)
        else:
            outer = tuple(int(row.max()) + 1 for row in index)
        size = (*outer, *values.shape[1:])
    size = tuple(size)
    if len(size) != index.size(0) + values.dim() - 1:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
            f"{index.size(0)}, "
            f"dense_dim = {values.dim() - 1}"
        )
    if tuple(values.shape[1:]) != size[index.size(0) :]:
        raise RuntimeError(f"values has incorrect size, expected {[values.size(0), *size[index.size(0) :]]}, got {list(values.shape)}")
    _check_range(index, size, "dim")
    return make(_COO, (index,), values, size, bool(is_coalesced) or is_coalesced is None and index.size(1) < 2)


def _make_compressed(layout, compressed, plain, values, size, dtype, device, requires_grad):
    values = _values(values, dtype, device, requires_grad)
    index = []
    for given in (compressed, plain):
        given = wisp.as_tensor(given).detach().to(values.device)
        index.append(given if given.dtype in (wisp.int32, wisp.int64) else given.long())
    size = _compressed.size_of(*index, values, layout) if size is None else tuple(size)
    _compressed.check(*index, values, size, layout)
    return make(layout, tuple(index), values, size, True)


def sparse_bsr_tensor(
    crow_indices, col_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None
):
    """A sparse matrix of blocks by rows: `values` has a block for each entry.

    >>> import wisp
    >>> wisp.sparse_bsr_tensor([0, 1, 1], [1], [[[1.0, 2.0]]], (2, 4)).to_dense()
    tensor([[0., 0., 1., 2.],
            [0., 0., 0., 0.]])
    """
    return _make_compressed(wisp.sparse_bsr, crow_indices, col_indices, values, size, dtype, device, requires_grad)


def sparse_bsc_tensor(
    ccol_indices, row_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None
):
    """A sparse matrix of blocks by columns: `values` has a block for each entry.

    >>> import wisp
    >>> wisp.sparse_bsc_tensor([0, 0, 1], [0], [[[1.0, 2.0]]], (1, 4)).to_dense()
    tensor([[0., 0., 1., 2.]])
    """
    return _make_compressed(wisp.sparse_bsc, ccol_indices, row_indices, values, size, dtype, device, requires_grad)


def _validate_compressed(compressed_indices, plain_indices, values, size, layout, check_pinning=None):
    _compressed.check(compressed_indices, plain_indices, values, tuple(size), layout)


def _validate_coordinates(indices, values, size, is_coalesced=None, check_pinning=None):
    sparse_coo_tensor(indices, values, size, is_coalesced=is_coalesced)


def sparse_csr_tensor(
    crow_indices, col_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None
):
    """A sparse matrix by rows: row i has the columns and values from `crow_indices[i]` up to `crow_indices[i + 1]`.

    >>> import wisp
    >>> wisp.sparse_csr_tensor([0, 1, 2], [1, 0], [5.0, 6.0]).to_dense()
    tensor([[0., 5.],
            [6., 0.]])
    """
    return _make_compressed(_CSR, crow_indices, col_indices, values, size, dtype, device, requires_grad)


def sparse_csc_tensor(
    ccol_indices, row_indices, values, size=None, *, dtype=None, device=None, pin_memory=False, requires_grad=False, check_invariants=None
):
    """A sparse matrix by columns: column j has the rows and values from `ccol_indices[j]` up to `ccol_indices[j + 1]`.

    >>> import wisp
    >>> wisp.sparse_csc_tensor([0, 1, 2], [1, 0], [5.0, 6.0]).to_dense()
    tensor([[0., 6.],
            [5., 0.]])
    """
    return _make_compressed(_CSC, ccol_indices, row_indices, values, size, dtype, device, requires_grad)


def sparse_compressed_tensor(
    compressed_indices,
    plain_indices,
    values,
    size=None,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    check_invariants=None,
):
    """A sparse matrix by rows or by columns, as `layout` says (torch.sparse_csr or torch.sparse_csc).

    >>> import wisp
    >>> wisp.sparse_compressed_tensor([0, 1, 2], [1, 0], [5.0, 6.0], layout=wisp.sparse_csr).layout
    torch.sparse_csr
    """
    if layout not in _compressed.LAYOUTS:
        raise RuntimeError(f"sparse_compressed_tensor: expected a compressed layout, got {layout}")
    return _make_compressed(layout, compressed_indices, plain_indices, values, size, dtype, device, requires_grad)


def _from_dense(tensor, sparse_dim, layout, blocksize=None, dense_dim=None):
    """tensor.to_sparse(): the elements, or slices of the last dimensions, that are not zero."""
    layout = _COO if layout is None else layout
    if layout is wisp.strided:
        return tensor
    if layout in _compressed.LAYOUTS and (layout in _compressed.BLOCKED or tensor.dim() != 2 or blocksize is not None or dense_dim):
        compressed, plain, values = _compressed.parts(tensor, layout, blocksize, dense_dim or 0)
        return make(layout, (compressed, plain), values, tensor.shape, True)
    if layout is not _COO and layout not in _compressed.LAYOUTS:
        raise NotImplementedError(f"to_sparse: the layout {layout} is not supported")
    if layout is not _COO and sparse_dim not in (None, 2):
        raise RuntimeError(f"to_sparse: {layout} has 2 sparse dimensions, not {sparse_dim}")
    name = "ToSparseBackward1" if sparse_dim is None else "ToSparseBackward0"
    sparse_dim = tensor.dim() if sparse_dim is None else sparse_dim
    if not (0 < sparse_dim <= tensor.dim() or sparse_dim == tensor.dim() == 0):
        raise RuntimeError(
            f"dense_to_sparse: sparse_dim argument must be in [{'1' if tensor.dim() else '0'},{tensor.dim()}] range, "
            f"but {sparse_dim} is given"
        )
    filled = tensor.detach() != 0
    inner = tuple(range(sparse_dim, tensor.dim()))
    if tensor.dim() == 0:
        index = wisp.zeros((0, int(filled)), dtype=wisp.int64, device=tensor.device)
        values = tensor.reshape(1)[: int(filled)]
    else:
        index = (filled.any(inner) if inner else filled).nonzero().t().contiguous()
        values = wisp._core._whole(name, lambda x: x[tuple(index)], tensor)
    result = make(_COO, (index,), values, tensor.shape, True)
    return result if layout is _COO else result._converted(layout=layout)


# ---- functions


def mm(mat1, mat2, reduce=None):
    """The product of two matrices of which one or both are sparse; gradients go to the stored values and to the dense matrix.

    With `reduce` ("mean", "amax" or "amin") the products of a row are not added up, but that is taken of them.

    >>> import wisp
    >>> graph = wisp.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0])
    >>> wisp.sparse.mm(graph, wisp.tensor([[1.0], [3.0]]))
    tensor([[3.],
            [2.]])
    """
    if reduce is None:
        return wisp.mm(mat1, mat2)
    if dispatch.dispatches(type(mat1)):
        return dispatch.run(wisp.ops.aten._sparse_mm_reduce_impl.default, (mat1, mat2, reduce), {})[0]
    return _operators.mm_reduced(mat1, mat2, reduce)


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """beta * mat + alpha * (mat1 @ mat2), with a sparse `mat1`.

    >>> import wisp
    >>> wisp.sparse.addmm(wisp.ones(2, 2), wisp.eye(2).to_sparse(), wisp.ones(2, 2), alpha=3)
    tensor([[4., 4.],
            [4., 4.]])
    """
    return wisp.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sum(input, dim=None, dtype=None):
    """The sum over some dimensions: sparse where sparse dimensions are left, else dense.

    >>> import wisp
    >>> wisp.sparse.sum(wisp.eye(3).to_sparse())
    tensor(3.)
    """
    return (
        _operators.reduce_sum(input, dim, dtype=dtype)
        if isinstance(input, SparseTensor)
        else wisp.sum(input, () if dim is None else dim, dtype=dtype)
    )


def softmax(input, dim, *, dtype=None):
    """Softmax over the stored elements along a dimension; those not stored count as -inf.

    >>> import wisp
    >>> wisp.sparse.softmax(wisp.sparse_coo_tensor([[0, 0], [0, 2]], [1.0, 1.0], (1, 3)), 1).to_dense()
    tensor([[0.5000, 0.0000, 0.5000]])
    """
    return _operators.softmax(input, dim, dtype, log=False)


def log_softmax(input, dim, *, dtype=None):
    """The logarithm of `softmax`, for the stored elements.

    >>> import wisp
    >>> wisp.sparse.log_softmax(wisp.sparse_coo_tensor([[0], [0]], [4.0], (1, 3)), 1).values()
    tensor([0.])
    """
    return _operators.softmax(input, dim, dtype, log=True)


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """alpha * (mat1 @ mat2) at the places of the sparse matrix `input`, plus beta * input.

    >>> import wisp
    >>> wisp.sparse.sampled_addmm(wisp.eye(2).to_sparse_csr(), wisp.ones(2, 3), wisp.ones(3, 2)).values()
    tensor([4., 4.])
    """
    if not isinstance(input, SparseTensor) or input.layout is not _CSR:
        raise RuntimeError(f"sampled_addmm: expected `input` in the layout torch.sparse_csr, got {input.layout}")
    if out is not None and (not isinstance(out, SparseTensor) or out.layout is not _CSR):
        raise RuntimeError(f"sampled_addmm: Expected result to have sparse csr layout, but got {_KINDS[out.layout]}")
    lead = mat1.shape[:-2]
    if input.dim() == 2 and lead:
        index, own = (part.expand(*lead, -1) for part in input._index), input._sparse_values.expand(*lead, -1)
        input = make(_CSR, tuple(index), own, (*lead, *input.shape), True)
    product_shape = (*mat1.shape[:-1], mat2.size(-1))
    if tuple(input.shape) != product_shape:
        raise RuntimeError(f"sampled_addmm: expected a product of shape {tuple(input.shape)}, got {product_shape}")

    def values(own, mat1, mat2):
        if mat1.is_complex() or mat1.dim() > 2:
            *batch, row, col = _compressed.entries(input)[0]
            product = (mat1[(*batch, row)] * mat2.mT[(*batch, col)]).sum(-1).reshape(own.shape)
        else:
            product = wisp._core._csr_sampled(*input._index, mat1, mat2.t())
        return product * alpha + own * beta

    result = input._with(wisp._core._whole("SparseSampledAddmmBackward0", values, input._sparse_values, mat1, mat2))
    return result if out is None else out._become(result)


def spdiags(diagonals, offsets, shape, layout=None):
    """The sparse matrix whose diagonals, at the `offsets`, are the rows of `diagonals`.

    >>> import wisp
    >>> wisp.sparse.spdiags(wisp.tensor([[1.0, 2.0]]), wisp.tensor([1]), (2, 2)).to_dense()
    tensor([[0., 2.],
            [0., 0.]])
    """
    diagonals = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    if diagonals.dim() != 2:
        raise RuntimeError(f"spdiags: Diagonals must be vector or matrix, got {diagonals.dim()} dimensions")
    if len(shape) != 2:
        raise RuntimeError(f"spdiags: Output shape must be 2d, got {len(shape)} sizes")
    if offsets.dim() > 1:
        raise RuntimeError(f"spdiags: Offsets must be scalar or vector, got {offsets.dim()} dimensions")
    if offsets.dtype != wisp.int64:
        raise RuntimeError(f"spdiags: Offset Tensor must have dtype Long but got {offsets.dtype}")
    if layout not in (None, _COO, wisp.sparse_csr, wisp.sparse_csc):
        name = str(layout).rpartition(".")[2]
        raise RuntimeError(f"spdiags: Only output layouts (Sparse, SparseCsr, SparseCsc) are supported, got {name}")
    offsets = offsets.reshape(-1).to(diagonals.device)
    if offsets.numel() != diagonals.size(0):
        raise RuntimeError(f"spdiags: Number of diagonals ({diagonals.size(0)}) does not match the number of offsets ({offsets.numel()})")
    if offsets.unique().numel() != offsets.numel():
        raise RuntimeError("spdiags: Offset tensor contains duplicate values")
    rows, columns = shape
    # Element j of each diagonal stands in column j.
    column = wisp.arange(diagonals.size(1), device=diagonals.device).expand(diagonals.shape)
    row = column - offsets.unsqueeze(1)
    inside = (row >= 0) & (row < rows) & (column < columns)
    result = make(_COO, (wisp.stack([row[inside], column[inside]]),), diagonals[inside], (rows, columns), False)
    return result if layout in (None, _COO) else result._converted(layout=layout)


class check_sparse_tensor_invariants:
    """A switch that PyTorch has for checking indices; here they are always checked.

    >>> import wisp
    >>> with wisp.sparse.check_sparse_tensor_invariants():
    ...     wisp.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    """

    _enabled = False

    def __init__(self, enable=True):
        self.state, self.saved_state = enable, None

    @staticmethod
    def is_enabled():
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable():
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable():
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self):
        self.saved_state, check_sparse_tensor_invariants._enabled = self._enabled, self.state

    def __exit__(self, *error):
        check_sparse_tensor_invariants._enabled = self.saved_state

    def __call__(self, function):
        def wrapped(*args, **kwargs):
            with type(self)(self.state):
                return function(*args, **kwargs)

        return wrapped


def as_sparse_gradcheck(gradcheck):
    """`gradcheck` (or gradgradcheck) for functions of sparse tensors: it varies their values.

    >>> import wisp
    >>> check = wisp.sparse.as_sparse_gradcheck(wisp.autograd.gradcheck)
    >>> graph, ones = wisp.eye(2, dtype=wisp.float64).to_sparse(), wisp.ones(2, 1, dtype=wisp.float64)
    >>> check(lambda m: wisp.sparse.mm(m, ones), graph.requires_grad_())
    True
    """

    def check(function, inputs, masked=True, **kwargs):
        inputs = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        dense = [i._sparse_values.detach().requires_grad_(i.requires_grad) if isinstance(i, SparseTensor) else i for i in inputs]

        def of_values(*args):
            result = function(*(i._with(arg) if isinstance(i, SparseTensor) else arg for i, arg in zip(inputs, args)))
            return result.to_dense() if isinstance(result, SparseTensor) else result

        return gradcheck(of_values, dense, **kwargs)

    return check


# ---- the constructors of old code: sparse.FloatTensor(indices, values, size)


def _old_constructor(dtype, name):
    def construct(indices=None, values=None, size=None):
        if indices is None:
            indices, values, size = wisp.empty(1, 0, dtype=wisp.int64), wisp.empty(0, dtype=dtype), (0,)
        return sparse_coo_tensor(indices, values, size, dtype=dtype)

    construct.__name__ = construct.__qualname__ = name
    construct.__doc__ = "The old form of `sparse_coo_tensor`."
    return construct


FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor = (
    _old_constructor(dtype, name)
    for dtype, name in (
        (wisp.float32, "FloatTensor"),
        (wisp.float64, "DoubleTensor"),
        (wisp.float16, "HalfTensor"),
        (wisp.bfloat16, "BFloat16Tensor"),
        (wisp.int64, "LongTensor"),
        (wisp.int32, "IntTensor"),
        (wisp.int16, "ShortTensor"),
        (wisp.int8, "CharTensor"),
        (wisp.uint8, "ByteTensor"),
    )
)

_reference.attach(__name__, globals())
