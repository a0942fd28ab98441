"""Operators on sparse tensors. The core hands every call that has one among its arguments to `call`.

`OPERATORS` maps the name of an operator to a function with its parameters. Those that keep zeros, by their registration, work on
the values alone. In-place forms that are not in the table are made from the others.
"""

import wisp
from wisp._composites.reduce import into
from wisp.sparse import _compressed
from wisp.sparse._tensor import _COO, SparseTensor, flat, make, refused

_CASTS = ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble", "chalf")

OPERATORS, BY_VALUES = {}, set()


def call(name, *args, **kwargs):
    """Run an operator that was called with a sparse tensor."""
    operator = OPERATORS.get(name)
    if operator is None and name.endswith("_") and name[:-1] in OPERATORS and isinstance(args[0], SparseTensor):
        if name in ("abs_", "absolute_") and args[0].is_complex():
            raise RuntimeError("In-place abs is not supported for complex tensors.")
        result = OPERATORS[name[:-1]](*args, **kwargs)
        if name in ("t_", "transpose_", "swapaxes_", "swapdims_") and args[0]._kind is _COO:
            return args[0]._replace(result._index[0], result._sparse_values, result.shape)._coalesced_(result._coalesced)
        return args[0]._become(result.to(args[0].dtype) if wisp.can_cast(result.dtype, args[0].dtype) else result)
    if operator is None and name.startswith("_") and name.endswith("_step"):
        raise RuntimeError(f"{name[1:-5]} does not support sparse gradients, please consider SGD, Adagrad or SparseAdam instead")
    if operator is None:
        raise refused(name)
    out = kwargs.pop("out", None)
    if out is not None and not any(map(_is_sparse, (*args, *kwargs.values()))):
        if name not in ("zeros", "empty"):
            raise refused(f"{name}(out=)")
        wants = kwargs.pop("requires_grad", False)
        return out._take(operator(*args, **{**kwargs, "layout": out.layout, "dtype": out.dtype})).requires_grad_(wants)
    result = _run(operator, args, kwargs)
    if name.endswith("_") and not name.endswith("__") and _is_sparse(args[0]) and args[0]._is_general() and result is not args[0]:
        return args[0]._become(result)  # it was written by coordinates
    return result if out is None else _into(name, out, result)


def _run(operator, args, kwargs):
    """Call an operator; of tensors with batches, blocks or dense dimensions in a compressed layout those that work on values work as they
    are, others by coordinates."""
    general = [arg for arg in args if isinstance(arg, SparseTensor) and arg._is_general()]
    if not general or operator in BY_VALUES or (operator in (mul, mul_, div) and any(map(_is_number, args))):
        return operator(*args, **kwargs)
    result = operator(*(arg.to_sparse() if isinstance(arg, SparseTensor) and arg._is_general() else arg for arg in args), **kwargs)
    like = general[0]
    if isinstance(result, SparseTensor) and result.shape == like.shape:
        try:
            return result._converted(layout=like._kind, blocksize=like._blocksize(), dense_dim=like.dense_dim())
        except RuntimeError:  # batches with different numbers of entries
            return result
    return result


def _into(name, out, result):
    """Put a sparse result where it was wanted."""
    if not isinstance(out, SparseTensor) and not isinstance(result, SparseTensor):
        return into(out, result, exact=True)
    if not isinstance(out, SparseTensor) or not isinstance(result, SparseTensor):
        raise refused(f"{name}(out=)")
    if not wisp.can_cast(result.dtype, out.dtype):
        return out._become(result)
    return out._take(result.to(out.dtype))


def _operator(*names):
    def enter(function):
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return enter


def _is_sparse(value):
    return isinstance(value, SparseTensor)


def _is_number(value):
    return not isinstance(value, wisp.Tensor) or (not _is_sparse(value) and value.dim() == 0)


def _coo(tensor):
    return tensor if tensor._kind is _COO else tensor.to_sparse()


def _dim(tensor, dim):
    if not -max(tensor.dim(), 1) <= dim < max(tensor.dim(), 1):
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-max(tensor.dim(), 1)}, {max(tensor.dim(), 1) - 1}], but got {dim})"
        )
    return dim % max(tensor.dim(), 1)


def _on_values(name, linear):
    operator = getattr(wisp, name, None) or getattr(wisp.Tensor, name, None) or getattr(wisp.nn.functional, name)

    def function(input, *args, **kwargs):
        if not linear and input._kind is _COO:
            input = input.coalesce()
        return input._with(operator(input._sparse_values, *args, **kwargs))

    BY_VALUES.add(function)
    return function


# f(0) = 0, so that only the stored elements change. Linear ones need no coalescing.
for _fact in ("keeps_zero", "is_linear"):
    for _path in wisp._core._operators_with(_fact):
        _name = _path.rsplit(".", 1)[-1]
        OPERATORS[_name] = _on_values(_name, _fact == "is_linear")
OPERATORS["angle"] = _on_values("angle", False)
for _name in _CASTS:
    OPERATORS[_name] = lambda input, *args, _name=_name, **kwargs: input._with(getattr(input._sparse_values, _name)())
    BY_VALUES.add(OPERATORS[_name])


@_operator("to")
def to(input, *args, **kwargs):
    if not _is_sparse(input):
        raise refused("to(sparse tensor)")
    args = [arg.dtype if _is_sparse(arg) else arg for arg in args]
    if kwargs.get("copy") or len(args) > 2 and args[2] is True:
        input = input.clone()
    values = input._sparse_values.to(*args, **kwargs)
    if values is input._sparse_values:
        return input
    result = input._with(values)
    result._index = tuple(index.to(values.device) for index in input._index)
    return result


for _name in ("cpu", "clone", "detach", "contiguous", "coalesce", "to_dense", "to_sparse", "item", "is_contiguous"):
    _method = getattr(SparseTensor, _name)
    if _method is not getattr(wisp.Tensor, _name, None):
        OPERATORS[_name] = _method
OPERATORS["cpu"] = lambda input, memory_format=None: to(input, "cpu")
OPERATORS["type_as"] = lambda input, other: to(input, other.dtype)
for _name in ("is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg"):
    OPERATORS[_name] = lambda input, _name=_name: getattr(input._sparse_values, _name)()
OPERATORS["_has_tangent"] = lambda input: wisp._core._has_tangent(input._sparse_values)
OPERATORS["is_same_size"] = lambda input, other: input.shape == other.shape
OPERATORS["result_type"] = lambda tensor1, tensor2: wisp.result_type(
    *(t._sparse_values[:0].new_zeros((1,) * t.dim()) if _is_sparse(t) else t for t in (tensor1, tensor2))
)


for _name in ("randn_like", "rand_like", "randint_like"):
    OPERATORS[_name] = lambda input, *args, _name=_name, **kwargs: _values_like(_name, input, *args, **kwargs)


def _values_like(name, input, *args, layout=None, memory_format=None, requires_grad=False, **kwargs):
    """New values in the places that a sparse tensor has."""
    if layout not in (None, input._kind):
        raise refused(f"{name} of another layout")
    return input._with(getattr(wisp, name)(input._sparse_values.detach(), *args, **kwargs)).requires_grad_(requires_grad)


BY_VALUES.update(OPERATORS.values())


@_operator("_assign")
def assign(input, result):
    if not _is_sparse(input):
        raise refused("an in-place operator")
    return input._become(result)


# ---- arithmetic


@_operator("mul")
def mul(input, other):
    if not _is_sparse(input):
        input, other = other, input
    if _is_sparse(other) and 0 in (input.dim(), other.dim()):
        if input.dim() == other.dim():  # neither is weaker than the other
            input, other = (t.to(wisp.promote_types(input.dtype, other.dtype)) for t in (input, other))
        number = input if input.dim() == 0 and (other.dim() or input._nnz() == 1) else other
        input, other = (other if number is input else input), number.to_dense()
    if _is_number(other):
        return input._with(input._sparse_values * other)
    if _is_sparse(other):
        return _product_of_patterns(input, other)
    shape = wisp.broadcast_shapes(tuple(input.shape), tuple(other.shape))
    if tuple(shape) != tuple(input.shape):
        input = _broadcast(_coo(input), tuple(shape))
    picked = other.expand(input.shape)[tuple(input._coordinates())]
    return input._with(input._sparse_values * picked)


def _broadcast(input, shape):
    """A tensor in coordinates in a larger shape: entries are repeated along its new or larger sparse dimensions."""
    fresh, sparse = len(shape) - input.dim(), input.sparse_dim()
    own = (1,) * fresh + tuple(input.shape)
    values = input._sparse_values.expand(-1, *shape[fresh + sparse :])
    index = list(input._index[0].new_zeros(fresh, input._index[0].size(1))) + list(input._index[0])
    for dim in range(fresh + sparse):
        if own[dim] != shape[dim]:
            count = values.size(0)
            index = [row.repeat(shape[dim]) for row in index]
            index[dim] = wisp.arange(shape[dim], device=values.device).repeat_interleave(count)
            values = values.repeat(shape[dim], *[1] * (values.dim() - 1))
    return make(_COO, (wisp.stack(index) if index else input._index[0],), values, shape, False)


def _product_of_patterns(a, b):
    sparse = a.sparse_dim()
    if a.dim() != b.dim() or a.shape[:sparse] != b.shape[:sparse] or (a.shape != b.shape and b.sparse_dim() != sparse):
        raise RuntimeError(f"mul operands have incompatible sizes: {tuple(a.shape)} and {tuple(b.shape)}")
    if a.sparse_dim() != b.sparse_dim():  # the one with fewer places decides which of the other's count
        a, b = (a, b) if a.sparse_dim() < b.sparse_dim() else (b, a)
        a = _coo(a).coalesce()
        return a._with(a._sparse_values * b.to_dense()[tuple(a._index[0])])
    kind, a, b = a._kind, _coo(a).coalesce(), _coo(b).coalesce()
    keys, others = flat(a._index[0], a.shape), flat(b._index[0], b.shape)
    place = wisp.searchsorted(others, keys)
    both = (place < others.numel()).nonzero().squeeze(1)
    both = both[others[place[both]] == keys[both]]
    values = a._sparse_values.index_select(0, both) * b._sparse_values.index_select(0, place[both])
    shape = (*a.shape[:sparse], *values.shape[1:])  # dense dimensions broadcast
    return make(_COO, (a._index[0].index_select(1, both),), values, shape, True)._converted(layout=kind)


@_operator("mul_")
def mul_(input, other):
    if not _is_sparse(input):
        return input.copy_(mul(input, other).to_dense())
    result = mul(input, other)
    return input._become(result.to(input.dtype) if wisp.can_cast(result.dtype, input.dtype) else result)


@_operator("div")
def div(input, other, *, rounding_mode=None):
    if not _is_sparse(input) or not _is_number(other):
        shape = list(other.shape) if isinstance(other, wisp.Tensor) else other
        raise RuntimeError(f"Sparse division requires a scalar or zero-dim dense tensor divisor (got shape {shape} for divisor)")
    if rounding_mode is not None and input._kind is _COO:
        input = input.coalesce()
    return input._with(wisp.div(input._sparse_values, other, rounding_mode=rounding_mode))


OPERATORS["floor_divide"] = lambda input, other: div(input, other, rounding_mode="floor")


@_operator("pow")
def power(input, exponent):
    if not _is_sparse(input) or not _is_number(exponent) or not exponent > 0:
        raise RuntimeError("pow: a sparse tensor can only be raised to a positive number")
    input = input.coalesce() if input._kind is _COO else input
    return input._with(input._sparse_values**exponent)


@_operator("add")
def add(input, other, *, alpha=1):
    if _is_sparse(input) and _is_sparse(other):
        return _add_sparse(input, other, alpha)
    if not (isinstance(input, wisp.Tensor) and isinstance(other, wisp.Tensor)):
        raise RuntimeError("add: a number cannot be added to a sparse tensor, since the result has no zeros; call .to_dense()")
    dense, sparse, factor = (other * alpha, input, 1) if _is_sparse(input) else (input, other, alpha)
    if dense.shape != sparse.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, got a dense one of shape {tuple(dense.shape)} and a sparse one of "
            f"{tuple(sparse.shape)}"
        )
    dtype = wisp.promote_types(dense.dtype, sparse.dtype)
    values = sparse._sparse_values.to(dtype)
    values, index = values if factor == 1 else values * factor, sparse._coordinates()
    if index.size(0) == 1:
        return dense.to(dtype).index_add(0, index[0], values)
    if index.size(0) == 0:
        return dense.to(dtype) + values.sum(0)
    return dense.to(dtype).index_put(tuple(index), values, accumulate=True)


@_operator("add_")
def add_(input, other, *, alpha=1):
    if _is_sparse(input):
        if not _is_sparse(other):
            raise RuntimeError("add_: a dense tensor cannot be added to a sparse one in place; use add(sparse, dense)")
        return input._become(_add_sparse(input, other, alpha).to(input.dtype))
    if input.shape != other.shape:
        raise RuntimeError(
            f"add_: expected tensors of one size, got a dense one of shape {tuple(input.shape)} and a sparse one of {tuple(other.shape)}"
        )
    if not wisp.can_cast(other.dtype, input.dtype):
        raise RuntimeError(f"result type {other.dtype} can't be cast to the desired output type {input.dtype}")
    index, values = other._coordinates(), other._sparse_values.to(input.dtype)
    values = values if alpha == 1 else values * alpha
    if index.size(0) == 1:
        return input.index_add_(0, index[0], values)
    if index.size(0) == 0:
        return input.add_(values.sum(0))
    return input.index_put_(tuple(index), values, accumulate=True)


def _add_sparse(a, b, alpha):
    if a.shape != b.shape or a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(f"add: expected sizes of 'self' and 'other' to match, but {tuple(a.shape)} != {tuple(b.shape)}")
    kind, a, b = a._kind, _coo(a), _coo(b)
    dtype = wisp.promote_types(a.dtype, b.dtype)
    values = b._sparse_values.to(dtype)
    values = wisp.cat([a._sparse_values.to(dtype), values if alpha == 1 else values * alpha])
    both = make(_COO, (wisp.cat([a._index[0], b._index[0]], 1),), values, a.shape, False)
    return both.coalesce()._converted(layout=kind) if a._coalesced and b._coalesced or kind is not _COO else both


@_operator("sub")
def sub(input, other, *, alpha=1):
    return add(input, other, alpha=-alpha)


@_operator("sub_")
def sub_(input, other, *, alpha=1):
    return add_(input, other, alpha=-alpha)


def _check_copied(input, src):
    if src._kind is not input._kind:
        raise RuntimeError("copy of sparse compressed tensors having different layouts is not supported.")
    if src._nnz() != input._nnz():
        raise RuntimeError("only sparse compressed tensors with the same number of specified elements are supported.")
    for dim, (a, b) in enumerate(zip(input.shape, src.shape)):
        if a != b:
            raise RuntimeError(f"copy_(): expected shapes of self and src to match along dimension {dim}: got {a} and {b}")
    if src._blocksize() != input._blocksize():
        raise RuntimeError("copy of sparse compressed tensors having different block sizes is not supported.")


@_operator("copy_")
def copy_(input, src, non_blocking=False):
    if _is_sparse(input) and _is_sparse(src):
        if input._kind is not _COO:
            _check_copied(input, src)
        return input._become(to(src.clone(), input.dtype))
    if _is_sparse(input) and input._kind is not _COO:
        raise RuntimeError("copy of sparse compressed tensors having different layouts is not supported.")
    raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Call .to_dense() or .to_sparse()")


@_operator("resize_as_")
def resize_as_(input, other, *, memory_format=None):
    """The shape of another one; entries stay, and larger dense dimensions are filled up with zeros behind them."""
    if input._kind is not _COO or not _is_sparse(other) or other._kind is not _COO:
        raise refused("resize_as_ of layouts other than sparse_coo")
    if not input._nnz():
        return input._take(zeros_like(other, dtype=input.dtype))
    sparse, told = input.sparse_dim(), "on a non-empty sparse tensor is not supported"
    for kind, one, two in (("sparse", sparse, other.sparse_dim()), ("dense", input.dense_dim(), other.dense_dim())):
        if one != two:
            raise RuntimeError(f"resize_as_: changing the number of {kind} dimensions (from {one} to {two}) {told}")
    for kind, one, two in (("sparse", input.shape[:sparse], other.shape[:sparse]), ("dense", input.shape[sparse:], other.shape[sparse:])):
        if any(a > b for a, b in zip(one, two)):
            raise RuntimeError(f"resize_as_: shrinking the size of {kind} dimensions (from {tuple(one)} to {tuple(two)}) {told}")
    values = input._sparse_values.new_zeros(input._nnz(), *other.shape[sparse:])
    values.view(-1)[: input._sparse_values.numel()] = input._sparse_values.reshape(-1)
    return input._take(make(_COO, input._index, values, other.shape, input._coalesced))


@_operator("zero_")
def zero_(input):
    return input._become(zeros_like(input))


@_operator("zeros", "empty")
def zeros(*size, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """A sparse tensor without entries: zeros(2, 3, layout=torch.sparse_coo)."""
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if layout in _compressed.LAYOUTS:
        if len(size) < 2 or layout in _compressed.BLOCKED:
            raise RuntimeError(f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(size)}")
        dtype, device = dtype or wisp.get_default_dtype(), device or wisp.get_default_device()
        index, values = _compressed.nothing(size, layout, None, 0, dtype, device)
        return make(layout, index, values, size, True).requires_grad_(requires_grad)
    values = wisp.zeros(0, dtype=dtype, device=device, requires_grad=requires_grad)
    return make(_COO, (wisp.zeros((len(size), 0), dtype=wisp.int64, device=device),), values, size, True)._converted(layout=layout)


@_operator("new_empty", "new_zeros")
def new_empty(input, *size, dtype=None, layout=None, device=None, **options):
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    return zeros(size, dtype=dtype or input.dtype, layout=layout or input.layout, device=device or input.device, **options)


@_operator("empty_like")
def empty_like(input, *, layout=None, **options):
    if _is_sparse(input) and layout not in (None, wisp.strided, input.layout):
        raise RuntimeError("empty_like with different sparse layout is not supported (self is " + f"{input.layout}, layout is {layout})")
    return zeros_like(input, layout=layout, **options)


@_operator("zeros_like")
def zeros_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=None, pin_memory=False):
    dtype = input.dtype if dtype is None else dtype
    layout = input.layout if layout is None else layout
    if memory_format is not None and layout is not wisp.strided:
        raise RuntimeError("memory format option is only supported by strided tensors")
    if layout is wisp.strided:
        return wisp.zeros(input.shape, dtype=dtype, device=device, requires_grad=requires_grad)
    if not _is_sparse(input):
        return zeros(*input.shape, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)
    if layout in _compressed.LAYOUTS:
        block, inner = input._blocksize(), input.dense_dim()
        if (layout in _compressed.BLOCKED) != (block is not None):
            raise RuntimeError("empty_like with different sparse layout is not supported")
        index, values = _compressed.nothing(tuple(input.shape), layout, block, inner, dtype, device or input.device)
        return make(layout, index, values, input.shape, True).requires_grad_(requires_grad)
    inner = input.dense_dim()
    values = wisp.zeros((0, *input.shape[input.dim() - inner :]), dtype=dtype, device=device or input.device)
    index = wisp.zeros((input.dim() - inner, 0), dtype=wisp.int64, device=values.device)
    return make(_COO, (index,), values, input.shape, True).requires_grad_(requires_grad)


BY_VALUES.update((zeros_like, empty_like, copy_))


# ---- reductions


@_operator("sum")
def reduce_sum(input, dim=None, keepdim=False, *, dtype=None):
    if isinstance(dim, (tuple, list)) and not dim:
        dim = None
    if dim is None:
        return input._sparse_values.sum(dtype=dtype)
    dims = sorted({_dim(input, d) for d in ([dim] if isinstance(dim, int) else dim)})
    if input._kind is not _COO:
        if not keepdim:
            raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
        total = _coo_sum(_coo(input), dims, True, dtype)
        return total.coalesce()._converted(layout=input._kind) if _is_sparse(total) else total
    return _coo_sum(input, dims, keepdim, dtype)


def _coo_sum(input, dims, keepdim, dtype):
    sparse, index, values = input.sparse_dim(), input._index[0], input._sparse_values
    inner = [d - sparse + 1 for d in dims if d >= sparse]
    values = values.sum(inner, keepdim=keepdim, dtype=dtype) if inner else values if dtype is None else values.to(dtype)
    if values.dtype in (wisp.bool, wisp.uint8, wisp.int8, wisp.int16, wisp.int32) and dtype is None:
        values = values.long()
    outer = [d for d in dims if d < sparse]
    left = [d for d in range(sparse) if d not in outer]
    if outer and not left:
        total = values.sum(0)
        return total.reshape([1] * sparse + list(total.shape)) if keepdim else total
    size = [input.size(d) for d in left]
    result = make(_COO, (index[left],), values, (*size, *values.shape[1:]), input._coalesced and not outer).coalesce()
    if keepdim:
        for d in outer:
            result = OPERATORS["unsqueeze"](result, d)
    return result


@_operator("any")
def any_(input, dim=None, keepdim=False):
    if dim is not None:
        raise refused("any(dim)")
    return input._sparse_values.any()


@_operator("norm", "linalg_vector_norm", "vector_norm")
def norm(input, p="fro", dim=None, keepdim=False, dtype=None, **kwargs):
    p = 2 if p in ("fro", None) else kwargs.pop("ord", p)
    if dim is not None or keepdim or kwargs or p <= 0:
        raise refused("norm with dim, keepdim or an order that counts zeros")
    return wisp.linalg.vector_norm((input.coalesce() if input._kind is _COO else input)._sparse_values, p, dtype=dtype)


# ---- products


def _matrix_product(matrix, dense):
    crow, col, values, transposed = matrix._matrix(dense.requires_grad)
    return wisp._core._csr_product(crow, col, values, dense, transposed)


def _check_product(a, b):
    if a.size(-1) != b.size(-2):
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.size(-2)}x{a.size(-1)} and {b.size(-2)}x{b.size(-1)})")


@_operator("mm")
def mm(input, mat2):
    for matrix in (input, mat2):
        if matrix.dim() != 2 or _is_sparse(matrix) and matrix.sparse_dim() != 2:
            raise RuntimeError(
                f"mm: expected two matrices without dense dimensions, got shapes {tuple(input.shape)} and {tuple(mat2.shape)}"
            )
    _check_product(input, mat2)
    if _is_sparse(input) and _is_sparse(mat2):
        return _sparse_product(input, mat2)
    if _is_sparse(input):
        return _matrix_product(input, mat2)
    return _matrix_product(mat2.t(), input.t()).t()


def _sparse_product(a, b):
    """Each entry of `a` with the entries of the row of `b` that its column names; equal places are added up."""
    kind = a._kind
    start, inner, left, _ = a._matrix()
    rows = wisp.arange(a.size(0), device=inner.device).repeat_interleave(start.long().diff(), output_size=inner.numel())
    other, columns, right, _ = b._matrix()
    inner, other = inner.long(), other.long()
    count = other.diff()[inner]
    entry = wisp.arange(inner.numel(), device=inner.device).repeat_interleave(count)
    within = wisp.arange(entry.numel(), device=entry.device) - (count.cumsum(0) - count)[entry]
    place = other[inner[entry]] + within
    values = left.index_select(0, entry) * right.index_select(0, place)
    product = make(_COO, (wisp.stack([rows[entry], columns.long()[place]]),), values, (a.size(0), b.size(1)), False)
    return product.coalesce()._converted(layout=kind if kind is b._kind else _COO if _COO in (kind, b._kind) else wisp.sparse_csr)


def mm_reduced(matrix, dense, reduce):
    """The sum, mean, largest or smallest of the products that make up each element of matrix @ dense; 0 for an empty row."""
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise RuntimeError(f"sparse.mm: reduce must be 'sum', 'mean', 'amax' or 'amin', got {reduce!r}")
    if not _is_sparse(matrix) or _is_sparse(dense) or matrix.dim() != 2 or dense.dim() != 2:
        raise RuntimeError("sparse.mm: with `reduce`, expected a sparse and a dense matrix")
    _check_product(matrix, dense)
    crow, col, values, transposed = matrix._matrix(dense.requires_grad)
    count = crow.long().diff()

    def reduced(values, dense):
        if reduce in ("sum", "mean"):
            total = wisp._core._csr_product(crow, col, values, dense, transposed)
            return total if reduce == "sum" else total / count.clamp(min=1).to(dense.dtype).unsqueeze(1)
        row = wisp.arange(count.numel(), device=count.device).repeat_interleave(count)
        products = values.unsqueeze(1) * dense.index_select(0, col.long())
        result = dense.new_zeros((count.numel(), dense.size(1)))
        return result.scatter_reduce(0, row.unsqueeze(1).expand(products.shape), products, reduce, include_self=False)

    return wisp._core._whole("SparseMmReduceImplBackward0", reduced, values, dense)


@_operator("addmv")
def addmv(input, mat, vec, *, beta=1, alpha=1):
    if _is_sparse(input):
        raise refused("addmv(sparse input)")
    product = mv(mat, vec) * alpha
    return product if beta == 0 else product + input * beta


@_operator("mv")
def mv(input, vec):
    if not _is_sparse(input) or _is_sparse(vec) or vec.dim() != 1:
        raise RuntimeError("mv: expected a sparse matrix and a dense vector")
    if input.dim() != 2 or input.size(1) != vec.size(0):
        raise RuntimeError(f"mv: size mismatch, got a matrix of shape {tuple(input.shape)} and a vector of {vec.size(0)} elements")
    return mm(input, vec.unsqueeze(1)).squeeze(1)


@_operator("bmm")
def bmm(input, mat2):
    """A batch of products, as one product with the block-diagonal matrix."""
    if not _is_sparse(input) or _is_sparse(mat2) or input.dim() != 3 or mat2.dim() != 3 or input.sparse_dim() != 3:
        raise RuntimeError("bmm: expected a sparse tensor of 3 sparse dimensions and a dense tensor of 3 dimensions")
    _check_product(input, mat2)
    batch, rows, inner = input.shape
    if batch != mat2.size(0):
        raise RuntimeError(f"bmm: expected batches of one size, got {batch} and {mat2.size(0)}")
    b, i, j = input._index[0]
    blocks = make(_COO, (wisp.stack([b * rows + i, b * inner + j]),), input._sparse_values, (batch * rows, batch * inner), input._coalesced)
    return mm(blocks, mat2.reshape(batch * inner, mat2.size(2))).reshape(batch, rows, mat2.size(2))


@_operator("matmul")
def matmul(input, other):
    if input.dim() == 1 and other.dim() == 2 and _is_sparse(other) and not _is_sparse(input):
        return mv(other.t(), input)
    if other.dim() == 1:
        return mv(input, other)
    return bmm(input, other) if input.dim() == 3 else mm(input, other)


@_operator("addmm")
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    if _is_sparse(product) or _is_sparse(input):
        return add(input if beta == 1 else input * beta, product)
    return wisp.add(product, input, alpha=beta)


@_operator("linear")
def linear(input, weight, bias=None):
    """input @ weight^T + bias, with a sparse input or weight."""
    product = mm(input, weight.t())
    return product if bias is None else product + bias


@_operator("addmm_")
def addmm_(input, mat1, mat2, *, beta=1, alpha=1):
    result = addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return input._become(result) if _is_sparse(input) else input.copy_(result)


OPERATORS["smm"] = lambda input, mat: mm(input, mat).to_sparse()
OPERATORS["hspmm"] = lambda mat1, mat2: mm(mat1, mat2).to_sparse(1)


@_operator("sspaddmm")
def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1):
    return add(input * beta, mm(mat1, mat2).to_sparse() * alpha)


# ---- softmax over the stored elements


def softmax(input, dim, dtype, log):
    input = _coo(input).coalesce()
    dim, sparse = _dim(input, dim), input.sparse_dim()
    values = input._sparse_values if dtype is None else input._sparse_values.to(dtype)
    if dim >= sparse:
        function = wisp.log_softmax if log else wisp.softmax
        return input._with(function(values, dim - sparse + 1))
    others = [d for d in range(sparse) if d != dim]
    index = input._index[0]
    keys = flat(index[others], [input.size(d) for d in others]) if others else index.new_zeros(index.size(1))
    _, group = keys.unique(return_inverse=True)
    groups = int(group.max()) + 1 if group.numel() else 0
    each = group.reshape(-1, *[1] * (values.dim() - 1)).expand(values.shape)
    shape = (groups, *values.shape[1:])
    largest = values.new_full(shape, -float("inf")).scatter_reduce(0, each, values.detach(), "amax").gather(0, each)
    shifted = values - largest
    total = values.new_zeros(shape).index_add(0, group, shifted.exp()).index_select(0, group)
    return input._with(shifted - total.log() if log else shifted.exp() / total)


@_operator("_clear_grads")
def _clear_grads(params):
    for parameter in params:
        parameter.grad = None
