"""2:4 sparsity: of every four neighbours in a row at most two are not zero, so a matrix is kept as half its numbers and their places.

The places take two bits each. GPUs multiply such matrices in half the time; here the matrix is unfolded for a product, so the form saves
memory alone, on any device.
"""

import wisp
from wisp import _core

__all__ = [
    "SparseSemiStructuredTensor",
    "SparseSemiStructuredTensorCUSPARSELT",
    "SparseSemiStructuredTensorCUTLASS",
    "to_sparse_semi_structured",
]


class SparseSemiStructuredTensor(_core.Tensor):
    """A matrix of which two in four are kept. `to_sparse_semi_structured` makes one; products with it differentiate in the other factor."""

    BACKEND, _DEFAULT_ALG_ID = "wisp", 0
    _stays_itself = True  # as a Parameter

    def __new__(
        cls,
        shape,
        packed,
        meta,
        packed_t=None,
        meta_t=None,
        compressed_swizzled_bitmask=None,
        fuse_transpose_cusparselt=False,
        alg_id_cusparselt=0,
        requires_grad=False,
    ):
        shell = wisp.empty(shape, dtype=packed.dtype, device="meta")
        self = _core.Tensor._make_subclass(cls, shell, requires_grad)
        self._size, self.packed, self.meta, self._turned = wisp.Size(shape), packed, meta, False
        self.packed_t, self.meta_t, self.compressed_swizzled_bitmask = packed_t, meta_t, compressed_swizzled_bitmask
        return self

    def __init__(self, *args, **kwargs):
        pass

    shape = property(lambda self: self._size)
    device = property(lambda self: self.packed.device)

    @classmethod
    def from_dense(cls, original_tensor):
        """The matrix with its zeros left out; one that has more than two in four is refused."""
        if original_tensor.dim() != 2 or original_tensor.shape[1] % 4:
            raise RuntimeError(
                f"to_sparse_semi_structured: expected a matrix with rows of a multiple of 4, got shape {tuple(original_tensor.shape)}"
            )
        if not original_tensor.is_floating_point() and original_tensor.dtype is not wisp.int8:
            raise RuntimeError(f"to_sparse_semi_structured: expected floating point numbers or int8, got {original_tensor.dtype}")
        rows, columns = original_tensor.shape
        fours = original_tensor.detach().reshape(-1, 4)
        there = fours != 0
        if bool((there.sum(1) > 2).any()):
            raise RuntimeError("to_sparse_semi_structured: more than two of four neighbours in a row are not zero")
        # the places of the two, in order; where there are fewer, of zeros, which come last in the sort
        places = there.logical_not().to(wisp.uint8).argsort(1, stable=True)[:, :2].sort(1).values
        packed = fours.gather(1, places).reshape(rows, columns // 2)
        bits = places[:, 0] | places[:, 1] << 2
        return cls(original_tensor.shape, packed, bits.to(wisp.uint8).reshape(rows, columns // 4))

    def to_dense(self):
        """The matrix with its zeros."""
        rows, columns = self.packed.shape[0], self.packed.shape[1] * 2
        bits = self.meta.reshape(-1).long()
        places = wisp.stack([bits & 3, bits >> 2], 1)
        dense = self.packed.new_zeros(rows * columns // 4, 4).scatter(1, places, self.packed.reshape(-1, 2)).reshape(rows, columns)
        return dense.t() if self._turned else dense

    def t(self):
        """The transposed matrix, of the same memory."""
        turned = type(self)(self._size[::-1], self.packed, self.meta)
        turned._turned = not self._turned
        return turned

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, kwargs or {}
        with wisp.DisableTorchFunctionSubclass():
            if name == "__get__":
                attribute = func.__self__.__name__
                return getattr(args[0].packed, attribute) if attribute in ("is_cpu", "is_cuda", "is_meta") else func(*args)
            if name in ("__set__", "requires_grad_"):
                return func(*args, **kwargs)
            if name in ("to_dense", "t"):
                return getattr(args[0], name)()
            if name in ("dim", "size", "numel", "is_floating_point", "is_complex", "__len__"):
                return func(wisp.empty(args[0]._size, dtype=args[0].packed.dtype, device="meta"), *args[1:], **kwargs)
            if name == "detach":
                same = type(args[0])(args[0]._size, args[0].packed, args[0].meta)
                same._turned = args[0]._turned
                return same
            if name == "transpose" and sorted(d % 2 for d in args[1:]) == [0, 1]:
                return args[0].t()
            if name in ("mm", "matmul", "addmm", "linear", "__matmul__", "__rmatmul__"):
                dense = [a.to_dense() if isinstance(a, SparseSemiStructuredTensor) else a for a in args]
                return func(*dense, **{k: v.to_dense() if isinstance(v, SparseSemiStructuredTensor) else v for k, v in kwargs.items()})
        raise NotImplementedError(f"{name}: not supported for semi-structured sparse matrices, which multiply; call .to_dense()")

    def __hash__(self):
        return id(self)

    def __repr__(self, *, tensor_contents=None):
        return f"{type(self).__name__}(shape={self._size})"

    __str__ = __repr__


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """The class that PyTorch has for CUTLASS's kernels; the same here."""

    BACKEND = "cutlass"


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """The class that PyTorch has for cuSPARSELt's kernels; the same here."""

    BACKEND = "cusparselt"


def to_sparse_semi_structured(original_tensor, transposed=False, alg_id=0):
    """The matrix in which two of four neighbours in a row are kept, for products; the others must be zero.

    >>> import wisp
    >>> weight = wisp.tensor([[0.0, 1.0, 2.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
    >>> kept = wisp.sparse.to_sparse_semi_structured(weight)
    >>> kept.packed
    tensor([[1., 2.],
            [3., 0.]])
    >>> kept @ wisp.ones(4, 1)
    tensor([[3.],
            [3.]])
    """
    return SparseSemiStructuredTensorCUTLASS.from_dense(original_tensor)
