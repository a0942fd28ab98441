"""Products that take lists of operands or dimensions: einsum, tensordot, chain_matmul."""

from wisp import _core

_einsum, _tensordot, _chain_matmul = (_core._operators[""][name] for name in ("_einsum", "_tensordot", "_chain_matmul"))


def _letter(index):
    if not 0 <= index < 52:
        raise ValueError("einsum(): subscripts in sublist format must be in the range [0, 52)")
    return chr(ord("A") + index) if index < 26 else chr(ord("a") + index - 26)


def _subscripts(sublist):
    return "".join("..." if s is Ellipsis else _letter(s) for s in sublist)


def einsum(*args):
    """Sums of products named by subscripts: `einsum("ij,jk->ik", a, b)`, or `einsum(a, [0, 1], b, [1, 2], [0, 2])`.

    >>> import wisp
    >>> wisp.einsum("i,i->", wisp.arange(3.), wisp.ones(3))
    tensor(3.)
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )
    if isinstance(args[0], str):
        equation, operands = args[0], args[1:]
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            return einsum(equation, *operands[0])
    else:
        equation = ",".join(_subscripts(s) for s in args[1::2])
        operands = args[0 : len(args) - len(args) % 2 : 2]
        if len(args) % 2:
            equation = ",".join(_subscripts(s) for s in args[1:-1:2]) + "->" + _subscripts(args[-1])
            operands = args[0:-1:2]
    return _einsum(equation, list(operands))


def tensordot(a, b, dims=2, out=None):
    """The product of a and b summed over `dims`: a number of dimensions at a's end and b's beginning, or two lists."""
    if isinstance(dims, _core.Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims.item())
    if isinstance(dims, (tuple, list)):
        dims_a, dims_b = dims if len(dims) == 2 else (dims[0], dims[0])
        dims_a = [dims_a] if isinstance(dims_a, int) else list(dims_a)
        dims_b = [dims_b] if isinstance(dims_b, int) else list(dims_b)
    else:
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims_a, dims_b = list(range(-dims, 0)), list(range(dims))
    result = _tensordot(a, b, dims_a, dims_b)
    return result if out is None else _into(result, out)


def chain_matmul(*matrices, out=None):
    """The product of matrices, multiplied in the cheapest order."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = matrices[0]
    result = _chain_matmul(list(matrices))
    return result if out is None else _into(result, out)


def _int_mm(input, mat2, *, out=None):
    """The product of matrices of 8-bit integers, in 32 bits."""
    for matrix in (input, mat2):
        if matrix.dim() != 2 or matrix.dtype not in (_core.int8, _core.uint8):
            raise RuntimeError(f"_int_mm: expected matrices of 8-bit integers, got shape {tuple(matrix.shape)} of {matrix.dtype}")
    result = input.to(_core.int32) @ mat2.to(_core.int32)
    return result if out is None else _into(result, out)


def _into(result, out):
    if out.dtype != result.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {str(result.dtype)[6:]}, but got {str(out.dtype)[6:]} instead")
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


FUNCTIONS = [einsum, tensordot, chain_matmul, _int_mm]
METHODS = []
INPLACE = []
