"""The sparse tensor: indices and values in place of a memory of all elements.

The values are an ordinary tensor and carry the gradient: a sparse tensor requires grad when they do, its `grad` is theirs,
and every operator here is made of operators on values, so autograd needs nothing new. To the core a sparse tensor is a
shell (csrc/ops/sparse.h): whatever reads elements must be overridden here or in `_operators`, or is refused.
"""

import wisp
from wisp import _core
from wisp._tensor import TYPE_NAMES, _disabled_torch_function_impl
from wisp._tensor.holder import Holder
from wisp.sparse import _compressed

_STRIDED, _COO, _CSR, _CSC = wisp.strided, wisp.sparse_coo, wisp.sparse_csr, wisp.sparse_csc
_BSR, _BSC = wisp.sparse_bsr, wisp.sparse_bsc
_KINDS = {_STRIDED: "Strided", _COO: "Sparse", _CSR: "SparseCsr", _CSC: "SparseCsc", _BSR: "SparseBsr", _BSC: "SparseBsc"}


def refused(name):
    return NotImplementedError(f"{name}: sparse tensors are not supported here; call .to_dense()")


class SparseTensor(Holder, _core.Tensor):
    """A tensor that stores only some of its elements: by coordinates (COO), or compressed rows (CSR) or columns (CSC).

    >>> import wisp
    >>> matrix = wisp.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    >>> matrix.values(), (matrix @ wisp.ones(2, 1)).tolist()
    (tensor([2., 3.]), [[2.0], [3.0]])
    """

    __torch_function__ = _disabled_torch_function_impl

    # ---- what it is
    layout = property(lambda self: self._kind)
    is_sparse = property(lambda self: self._kind is _COO)
    is_sparse_csr = property(lambda self: self._kind is _CSR)
    T = property(lambda self: self.permute(*reversed(range(self.dim()))))
    mT = property(lambda self: self.transpose(-2, -1))
    H = property(lambda self: self.T.conj())
    mH = property(lambda self: self.mT.conj())
    real = property(lambda self: self._with(self._sparse_values.real))
    imag = property(lambda self: self._with(self._sparse_values.imag))

    @property
    def nbytes(self):
        raise RuntimeError("nbytes is not defined for sparse tensors. Add the nbytes of the indices and values instead.")

    def sparse_dim(self):
        """How many dimensions the indices have; the others are dense, in each value."""
        return 2 if self._kind is not _COO else self._index[0].size(0)

    def dense_dim(self):
        return self.dim() - self.sparse_dim() - self._batch_dim()

    def _batch_dim(self):
        return 0 if self._kind is _COO else self._index[0].dim() - 1

    def _blocksize(self):
        """The sizes of a block, or None."""
        return tuple(self._sparse_values.shape[self._batch_dim() + 1 :][:2]) if self._kind in _compressed.BLOCKED else None

    def _is_general(self):
        """Whether there are batches, blocks, or dense dimensions in a compressed layout."""
        return self._kind is not _COO and (self._sparse_values.dim() != 1 or self._index[0].dim() != 1)

    def _nnz(self):
        return self._sparse_values.size(self._batch_dim())

    def _expect(self, name, *kinds):
        if self._kind not in kinds:
            wanted = {_COO: "sparse coordinate", _CSR: "sparse row compressed", _CSC: "sparse column compressed"}[kinds[0]]
            raise RuntimeError(f"{name} expected {wanted} tensor layout but got {_KINDS[self._kind]}")

    def is_coalesced(self):
        """Whether the coordinates are sorted and each occurs once."""
        self._expect("is_coalesced", _COO)
        return self._coalesced

    def _coalesced_(self, coalesced):
        self._coalesced = bool(coalesced)
        return self

    def _indices(self):
        self._expect("_indices", _COO)
        return self._index[0]

    def _values(self):
        return self._sparse_values.detach()

    def indices(self):
        """The coordinates of a coalesced tensor, (sparse_dim, nnz)."""
        self._expect("indices", _COO)
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._index[0]

    def values(self):
        """The stored elements, (nnz, *dense sizes)."""
        if self._kind is _COO and not self._coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._sparse_values.view_as(self._sparse_values)

    def crow_indices(self):
        self._expect("crow_indices", _CSR, _BSR)
        return self._index[0]

    def col_indices(self):
        self._expect("col_indices", _CSR, _BSR)
        return self._index[1]

    def ccol_indices(self):
        self._expect("ccol_indices", _CSC, _BSC)
        return self._index[0]

    def row_indices(self):
        self._expect("row_indices", _CSC, _BSC)
        return self._index[1]

    # ---- the same pattern with other values, or other contents
    def _with(self, values):
        if self._is_general():
            lead = self._batch_dim() + (3 if self._kind in _compressed.BLOCKED else 1)
            size = (*self.shape[: self._batch_dim() + 2], *values.shape[lead:])
            return make(self._kind, self._index, values, size, True)
        return make(self._kind, self._index, values, (*self.shape[: self.sparse_dim()], *values.shape[1:]), self._coalesced)

    def _become(self, other):
        """Take over the contents of `other`, in place."""
        if self.requires_grad and self.is_leaf and wisp.is_grad_enabled():
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if other.dtype != self.dtype:
            kinds = TYPE_NAMES.get(other.dtype), TYPE_NAMES.get(self.dtype)
            raise RuntimeError("result type {} can't be cast to the desired output type {}".format(*kinds))
        if other.shape != self.shape:
            raise RuntimeError(
                f"in-place: a sparse tensor of shape {tuple(self.shape)} and {self.dtype} cannot become one of "
                f"shape {tuple(other.shape)} and {other.dtype}"
            )
        other = other._converted(layout=self._kind, blocksize=self._blocksize())
        same = all(a is b for a, b in zip(self._index, other._index, strict=True))
        if same and not (self._sparse_values.requires_grad or other._sparse_values.requires_grad):
            self._sparse_values.copy_(other._sparse_values)  # whoever views them sees it
        else:
            self._index, self._sparse_values, self._coalesced = other._index, other._sparse_values, other._coalesced
        return self

    # ---- views: transposed compressed tensors have the entries of another one
    _base = property(lambda self: self.__dict__.get("_viewed"))

    def _is_view(self):
        return "_viewed" in self.__dict__

    def _as_view_of(self, other):
        self._viewed = other.__dict__.get("_viewed", other)
        return self

    def new(self, *args, device=None):
        """A sparse tensor of this one's dtype: without entries, of a size, or of indices and values."""
        place = {"dtype": self.dtype, "device": device or self.device}
        if args and isinstance(args[0], wisp.Tensor):
            return wisp.sparse_coo_tensor(*args, **place)
        size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or (0,)
        return wisp.sparse_coo_tensor(tuple(size), **place)

    def resize_as_(self, tensor, memory_format=None):
        return wisp.sparse._operators.call("resize_as_", self, tensor)

    def _take(self, other):
        """Become `other`, of whatever shape, in place."""
        _core.Tensor.data.__set__(self, _core.zeros((), dtype=other.dtype, device=other.device).expand(tuple(other.shape)))
        other = other._converted(layout=self._kind, blocksize=self._blocksize())
        self._index, self._sparse_values, self._coalesced = other._index, other._sparse_values, other._coalesced
        return self

    # ---- gradients: those of the values
    _held = property(lambda self: self._sparse_values)

    def _gradient_of_values(self, grad):
        self._expect_shape(grad)
        if self._is_general():
            return _compressed.picked(grad.to_dense().detach(), self)
        return grad.sparse_mask(self)._sparse_values.detach()

    def detach_(self):
        self._sparse_values = self._sparse_values.detach()
        return self

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, other):
        with wisp.no_grad():
            self._become(other)

    # ---- conversions
    def _coordinates(self):
        """The coordinates of the entries, whatever the layout: (sparse_dim, nnz), int64."""
        if self._kind is _COO:
            return self._index[0]
        if self._is_general():
            raise refused("this operator of batches, blocks or dense dimensions")
        compressed, plain = (index.long() for index in self._index)
        expanded = wisp.arange(compressed.numel() - 1, device=plain.device).repeat_interleave(compressed.diff(), output_size=plain.numel())
        return wisp.stack((expanded, plain) if self._kind is _CSR else (plain, expanded))

    def coalesce(self):
        """The same tensor with sorted coordinates, the values of equal ones added."""
        self._expect("coalesce", _COO)
        if self._coalesced:
            return self
        index, values = self._index[0], self._sparse_values
        keys = flat(index, self.shape)
        if not bool((keys[1:] > keys[:-1]).all()):
            unique, place = keys.unique(return_inverse=True)
            index = unflat(unique, self.shape[: index.size(0)])
            values = summed(values, place, unique.numel())
        return make(_COO, (index,), values, self.shape, True)

    def to_dense(self, dtype=None, *, masked_grad=None):
        """The tensor with all its elements."""
        if self._is_general():
            index, values = _compressed.entries(self)
            size = self.shape[: index.size(0)]
            return summed(values if dtype is None else values.to(dtype), flat(index, size), wisp.Size(size).numel()).reshape(self.shape)
        values = self._sparse_values if dtype is None else self._sparse_values.to(dtype)
        place = flat(self._coordinates(), self.shape)
        size = self.shape[: self.sparse_dim()]
        return summed(values, place, wisp.Size(size).numel()).reshape(self.shape)

    def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
        self._check_conversion(layout)
        if sparse_dim is not None and sparse_dim != self.sparse_dim():
            raise RuntimeError(
                f"to_sparse: conversion from {_KINDS[self._kind]} to Sparse with sparse_dim argument !=self.sparse_dim() is not supported; "
                "go by to_dense()"
            )
        return self._converted(sparse_dim, layout=layout, blocksize=blocksize, dense_dim=dense_dim)

    def _check_conversion(self, layout):
        """What PyTorch has no conversion for is refused; operators convert as they need."""
        if layout in (None, _COO, _STRIDED, self._kind) or layout not in _KINDS:
            return
        blocked, name = layout in _compressed.BLOCKED, _KINDS[layout]
        if self._kind is _COO:
            if self.sparse_dim() != 2:
                raise RuntimeError(
                    f"to_sparse: conversion from Sparse to {name} for input tensors with sparse_dim()!=2 is not supported; go by to_dense()"
                )
        elif self._kind in _compressed.BLOCKED:
            if not blocked:
                raise RuntimeError(
                    f"sparse_compressed_to_sparse_{name[6:].lower()}: expected SparseCsr or SparseCsc layout but got "
                    f"{_KINDS[self._kind]}; go by to_sparse_coo()"
                )
        elif blocked and self.dim() > self.sparse_dim() + self.dense_dim():
            raise RuntimeError(
                f"to_sparse: conversion from {_KINDS[self._kind]} to {name} for batched inputs is not supported; go by to_dense()"
            )

    def _converted(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
        layout = _COO if layout is None else layout
        if layout not in _KINDS or layout is _STRIDED:
            raise NotImplementedError(f"to_sparse: the layout {layout} is not supported")
        if layout is self._kind and sparse_dim in (None, self.sparse_dim()) and blocksize in (None, self._blocksize()):
            return self
        if self._is_general() and layout is _COO:
            index, values = _compressed.entries(self)
            return make(_COO, (index,), values, self.shape, False).coalesce()
        if layout is not _COO and (self._is_general() or layout in _compressed.BLOCKED or self.dim() != 2 or self.sparse_dim() != 2):
            inner = self.dense_dim() if dense_dim is None else dense_dim
            if layout in _compressed.BLOCKED and None is not self._blocksize() != (blocksize or self._blocksize()):
                raise RuntimeError(
                    f"to_sparse: conversion from {_KINDS[self._kind]} to {_KINDS[layout]} with blocksize changed from "
                    f"{self._blocksize()} to {blocksize} is not supported"
                )
            blocksize = blocksize or (self._blocksize() if layout in _compressed.BLOCKED else None)
            compressed, plain, values = _compressed.parts(self.to_dense(), layout, blocksize, inner)
            kept = self._index[0].dtype
            return make(layout, (compressed.to(kept), plain.to(kept)), values, self.shape, True)
        if layout is not _COO:
            return self._compressed_as(layout)
        if sparse_dim not in (None, self.sparse_dim()):
            return self.to_dense().to_sparse(sparse_dim)
        return make(_COO, (self._coordinates(),), self._sparse_values, self.shape, self._kind is _CSR).coalesce()

    def to_sparse_coo(self):
        return self.to_sparse()

    def to_sparse_csr(self, dense_dim=None):
        return self.to_sparse(layout=_CSR)

    def to_sparse_csc(self, dense_dim=None):
        return self.to_sparse(layout=_CSC)

    def to_sparse_bsr(self, blocksize, dense_dim=None):
        return self.to_sparse(layout=_BSR, blocksize=_compressed.block_of(blocksize), dense_dim=dense_dim)

    def to_sparse_bsc(self, blocksize, dense_dim=None):
        return self.to_sparse(layout=_BSC, blocksize=_compressed.block_of(blocksize), dense_dim=dense_dim)

    def _compressed_as(self, layout):
        if self.dim() != 2 or self.sparse_dim() != 2:
            raise NotImplementedError(
                f"to_sparse: {layout} needs a sparse matrix, got shape {tuple(self.shape)} with {self.sparse_dim()} sparse dimensions"
            )
        if self._kind is not _COO:  # between rows and columns
            start, plain, order = _core._csr_transpose(*self._index, self.shape[self._kind is _CSR])
            kept = self._index[0].dtype
            return make(layout, (start.to(kept), plain.to(kept)), self._sparse_values.index_select(0, order), self.shape, True)
        entries = (self if layout is _CSR else self.t()).coalesce()
        rows, columns = entries._index[0]
        start = wisp.bincount(rows, minlength=entries.size(0)).cumsum(0)
        start = wisp.cat([start.new_zeros(1), start])
        return make(layout, (start, columns), entries._sparse_values, self.shape, True)

    def _matrix(self, transposed=False):
        """-> crow, col, values of a matrix for a product and, if wanted, what the product's gradient needs.

        Patterns are remembered: a graph network multiplies with the same matrix again and again."""
        if self._kind is _COO and not self._coalesced:
            return self.coalesce()._matrix(transposed)
        if self._is_general():
            return self.to_sparse()._matrix(transposed)
        key = tuple((index.data_ptr(), index._version) for index in self._index)
        if self.__dict__.get("_pattern_key") != key:
            self._pattern_key, self._pattern, self._transposed = key, None, ()
        if self._pattern is None:
            if self._kind is _CSC:
                self._pattern = _core._csr_transpose(*self._index, self.size(0))
            else:
                self._pattern = *(self._index if self._kind is _CSR else self._compressed_as(_CSR)._index), None
        crow, col, order = self._pattern
        if transposed and not self._transposed:
            self._transposed = _core._csr_transpose(crow, col, self.size(1))
        values = self._sparse_values if order is None else self._sparse_values.index_select(0, order)
        return crow, col, values, self._transposed

    def __setitem__(self, key, value):
        raise TypeError("Cannot assign to a sparse tensor; call .to_dense(), or make a new one of its indices and values")

    # ---- copies
    def clone(self, *, memory_format=None):
        """A copy of indices and values."""
        copy = self._with(self._sparse_values.clone())
        copy._index = tuple(index.clone() for index in self._index)
        return copy

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
        if id(self) not in memo:
            memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
            memo[id(self)].grad = None if self.grad is None else self.grad.clone()
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return make, (
            str(self._kind),
            self._index,
            self._sparse_values.detach().requires_grad_(self.requires_grad),
            tuple(self.shape),
            self._coalesced,
        )

    # ---- Python's protocols
    def __getitem__(self, key):
        return wisp.sparse._shapes.index(self, key)

    def __iter__(self):
        return iter(self.unbind(0))

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self.to_dense().item()

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        return self.to_dense().__index__()

    def __hash__(self):
        return id(self)

    def is_contiguous(self, memory_format=None):
        return False

    def stride(self, dim=None):
        return (0,) * self.dim() if dim is None else 0

    def numpy(self, *, force=False):
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def type(self, dtype=None, non_blocking=False, **kwargs):
        if dtype is not None:
            return self._with(self._sparse_values.type(dtype))
        return self._sparse_values.type().replace("torch.", "torch.sparse." if self._kind is _COO else "torch.sparse_csr.")

    def sparse_resize_(self, size, sparse_dim, dense_dim):
        """Change the shape to a larger one (or, without entries, to any), in place."""
        self._expect("sparse_resize_", _COO)
        if (sparse_dim, dense_dim) != (self.sparse_dim(), self.dense_dim()) and self._nnz():
            raise RuntimeError("sparse_resize_: the number of sparse and dense dimensions of a tensor with entries cannot change")
        if self._nnz() and any(new < old for new, old in zip(size, self.shape)):
            raise RuntimeError("sparse_resize_: a tensor with entries cannot shrink")
        index, values = self._index[0], self._sparse_values
        if not self._nnz():
            index, values = index.new_zeros((sparse_dim, 0)), values.new_zeros((0, *size[sparse_dim:]))
        elif tuple(size[sparse_dim:]) != tuple(self.shape[sparse_dim:]):
            raise RuntimeError("sparse_resize_: the dense sizes of a tensor with entries cannot change")
        return self._replace(index, values, size)

    def sparse_resize_and_clear_(self, size, sparse_dim, dense_dim):
        """Give up all entries and change the shape, in place."""
        self._expect("sparse_resize_and_clear_", _COO)
        return self._replace(self._index[0].new_zeros((sparse_dim, 0)), self._sparse_values.new_zeros((0, *size[sparse_dim:])), size)

    def _replace(self, index, values, size):
        _core.Tensor.data.__set__(self, _core.zeros((), dtype=values.dtype, device=values.device).expand(tuple(size)))
        self._index, self._sparse_values, self._coalesced = (index,), values, values.size(0) < 2
        return self


def make(kind, index, values, size, coalesced):
    """The sparse tensor of a layout, its index tensors, values and shape; nothing is checked."""
    shell = wisp.zeros((), dtype=values.dtype, device=values.device).expand(tuple(size))
    self = _core.Tensor._make_subclass(SparseTensor, shell)
    self._kind = getattr(wisp, kind.split(".")[-1]) if isinstance(kind, str) else kind
    self._index, self._sparse_values, self._coalesced = index, values, coalesced
    return self


def flat(index, sizes):
    """One number for each column of coordinates, in the order of the elements."""
    if index.size(0) == 0:
        return index.new_zeros(index.size(1))
    total, key = 1, None
    for row, size in zip(index, sizes):
        total *= max(size, 1)
        key = row if key is None else key * size + row
    if total > 2**63 - 1:
        raise RuntimeError(f"sparse tensors of more than 2**63 places cannot be sorted; got sizes {tuple(sizes)}")
    return key


def unflat(keys, sizes):
    rows = []
    for size in reversed(sizes):
        rows.append(keys % max(size, 1))
        keys = keys.div(max(size, 1), rounding_mode="floor")
    return wisp.stack(rows[::-1]) if rows else keys.new_zeros((0, keys.numel()))


def summed(values, place, count):
    """Values added up by their place in [0, count)."""
    if values.dtype == wisp.bool:
        return summed(values.to(wisp.uint8), place, count) != 0
    return values.new_zeros((count, *values.shape[1:])).index_add(0, place, values)


def _refusing(name):
    def method(self, *args, **kwargs):
        raise refused(name)

    method.__name__ = name
    return method


def _forwarding(name):
    operator = name.strip("_")
    reflected = operator[0] == "r" and operator[1:] in _ARITHMETIC
    target = (
        _ARITHMETIC.get(operator[reflected:], operator)
        if not operator.startswith("i") or operator == "invert"
        else _ARITHMETIC[operator[1:]] + "_"
    )

    def method(self, *args):
        from wisp.sparse import _operators

        if any(not isinstance(arg, (_core.Tensor, bool, int, float, complex)) for arg in args):
            return NotImplemented
        return _operators.call(target, *((*args, self) if reflected else (self, *args)))

    method.__name__ = name
    return method


_ARITHMETIC = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
_UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not", "pos": "positive"}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
for _name in (*(prefix + name for name in _ARITHMETIC for prefix in ("", "r", "i") if (prefix, name) != ("i", "matmul")), *_COMPARISONS):
    setattr(SparseTensor, f"__{_name}__", _forwarding(f"__{_name}__"))
for _name, _operator in _UNARY.items():
    setattr(SparseTensor, f"__{_name}__", lambda self, _operator=_operator: wisp.sparse._operators.call(_operator, self))
# What would look into the shell.
for _name in (
    "tolist",
    "data_ptr",
    "_storage_ptr",
    "_storage_bytes",
    "storage",
    "untyped_storage",
    "typed_storage",
    "_typed_storage",
    "storage_offset",
    "storage_type",
    "__array__",
    "_contains",
    "__reversed__",
    "is_set_to",
    "set_",
    "resize_",
    "apply_",
    "map_",
    "map2_",
    "as_strided",
    "as_strided_",
    "__rdiv__",
    "new_tensor",
):
    setattr(SparseTensor, _name, _refusing(_name))
_core._set_sparse_type(SparseTensor)
