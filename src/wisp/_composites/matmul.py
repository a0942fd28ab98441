"""Products that take lists of operands or dimensions: einsum, tensordot, chain_matmul."""

from wisp import _core
from wisp._composites.reduce import into

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
    return into(out, result, exact=True)


def chain_matmul(*matrices, out=None):
    """The product of matrices, multiplied in the cheapest order."""
    if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)):
        matrices = matrices[0]
    result = _chain_matmul(list(matrices))
    return into(out, result, exact=True)


def _int_mm(input, mat2, *, out=None):
    """The product of matrices of 8-bit integers, of which the first may be unsigned, in 32 bits."""
    for name, matrix, dtypes in (("self", input, "int8 or uint8"), ("mat2", mat2, "of type int8")):
        if matrix.dim() != 2:
            raise RuntimeError(f"int_mm_out_cpu: Expected {name} to be of dimension 2 but got {matrix.dim()}")
        if matrix.dtype != _core.int8 and (name == "mat2" or matrix.dtype != _core.uint8):
            raise RuntimeError(f"int_mm_out_cpu: Expected {name} dtype to be {dtypes} but got {str(matrix.dtype)[6:]}")
    if input.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got {input.shape[1]} and {mat2.shape[0]}")
    result = input.to(_core.int32) @ mat2.to(_core.int32)
    return into(out, result, exact=True)


def _scaled_mm(input, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False, *, out=None):
    """The product of two matrices of float8, each multiplied by its scales: one number, or one for each row of the first and column of
    the second. `scale_result` and `use_fast_accum` change nothing on the CPU.

    >>> a = wisp.tensor([[1.0, 2.0]]).to(wisp.float8_e4m3fn)
    >>> wisp._scaled_mm(a, a.t(), wisp.tensor(0.5), wisp.tensor(2.0), out_dtype=wisp.float32)
    tensor([[5.]])
    """
    for name, matrix in (("mat1", input), ("mat2", mat2)):
        if matrix.dim() != 2:
            raise RuntimeError(f"{name} must be a matrix, got {matrix.dim()} dimensions")
    if input.shape[1] != mat2.shape[0]:
        shapes = "x".join(map(str, input.shape)), "x".join(map(str, mat2.shape))
        raise RuntimeError(f"mat_a and mat_b shapes cannot be multiplied ({shapes[0]} and {shapes[1]})")
    rows, columns = input.shape[0], mat2.shape[1]
    for matrix, scale, shape in ((input, scale_a, (rows, 1)), (mat2, scale_b, (1, columns))):
        if not (matrix.dtype.is_floating_point and matrix.dtype.itemsize == 1) or scale.dtype is not _core.float32:
            raise ValueError(
                f"Invalid scaling configuration.\n_scaled_mm: expected matrices of float8 with scales of float32, got a matrix of "
                f"{matrix.dtype} and scales of {scale.dtype}"
            )
        if scale.numel() != 1 and scale.shape != shape:
            raise ValueError(
                f"Invalid scaling configuration.\n_scaled_mm: the scales of a matrix of shape {tuple(matrix.shape)} must be one number "
                f"or of shape {shape}, got {tuple(scale.shape)}"
            )
    if bias is not None and bias.numel() != columns:
        raise RuntimeError(f"Bias must be size {columns} but got {bias.numel()}")
    result = _core.mm(input.float() * scale_a, mat2.float() * scale_b)
    result = (result if bias is None else result + bias).to(out_dtype or input.dtype)
    return into(out, result, exact=True)


FUNCTIONS = [einsum, tensordot, chain_matmul, _int_mm, _scaled_mm]
METHODS = []
INPLACE = []
