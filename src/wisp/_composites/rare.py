"""Operators that few programs use: control flow as functions, segments, fake quantisation, files as tensors."""

import wisp
from wisp import _core
from wisp._composites.reduce import functions_of, into


def cond(pred, true_fn, false_fn, operands=()):
    """`true_fn(*operands)` if `pred` holds, else `false_fn(*operands)`.

    >>> import wisp
    >>> wisp.cond(wisp.tensor(True), lambda x: x + 1, lambda x: x - 1, (wisp.tensor(1.0),))
    tensor(2.)
    """
    if not callable(true_fn) or not callable(false_fn) or not isinstance(operands, (tuple, list)):
        raise RuntimeError("cond: expected two functions and a tuple or list of operands")
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn, body_fn, carried_inputs):
    """Apply `body_fn` to the carried inputs as long as `cond_fn` of them holds.

    >>> import wisp
    >>> wisp.while_loop(lambda x: x < 10, lambda x: (x * 2,), (wisp.tensor(3),))
    (tensor(12),)
    """
    carried = tuple(carried_inputs)
    while bool(cond_fn(*carried)):
        result = body_fn(*carried)
        carried = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return carried


def conv_tbc(input, weight, bias, pad=0):
    """A 1-D convolution of (time, batch, channels) with a weight of (width, channels in, channels out).

    >>> import wisp
    >>> wisp.conv_tbc(wisp.ones(3, 1, 1), wisp.ones(2, 1, 1), wisp.zeros(1)).flatten()
    tensor([2., 2.])
    """
    return _core.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


def native_channel_shuffle(input, groups):
    """`channel_shuffle` under another name.

    >>> import wisp
    >>> wisp.native_channel_shuffle(wisp.arange(4.0).view(1, 4, 1), 2).flatten()
    tensor([0., 2., 1., 3.])
    """
    return wisp.nn.functional.channel_shuffle(input, groups)


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of groups of rows (or columns) of one matrix with matrices of their own; group i ends at `offs[i]`.

    >>> import wisp
    >>> wisp.nn.functional.grouped_mm(wisp.ones(3, 1), wisp.tensor([[[1.0]], [[2.0]]]), offs=wisp.tensor([1, 3])).flatten()
    tensor([1., 2., 2.])
    """
    dims = mat_a.dim(), mat_b.dim()
    if dims not in ((2, 2), (2, 3), (3, 2), (3, 3)) or (offs is None) != (dims == (3, 3)) or bias is not None:
        raise RuntimeError(
            "grouped_mm: expected matrices or batches of them, `offs` where one is a matrix, and no bias; got shapes "
            f"{tuple(mat_a.shape)} and {tuple(mat_b.shape)}"
        )
    if dims == (3, 3):
        result = mat_a @ mat_b
    else:
        ends = offs.tolist()
        spans = list(zip([0, *ends], ends))
        if dims == (2, 3):
            parts = [mat_a[start:end] @ matrix for (start, end), matrix in zip(spans, mat_b)]
        elif dims == (3, 2):
            parts = [matrix @ mat_b[:, start:end] for (start, end), matrix in zip(spans, mat_a)]
        else:
            parts = [mat_a[:, start:end] @ mat_b[start:end] for start, end in spans]
        result = wisp.stack(parts) if dims == (2, 2) else wisp.cat(parts, 0 if dims == (2, 3) else 1)
    return result if out_dtype is None else result.to(out_dtype)


def lobpcg(
    A,
    k=None,
    B=None,
    X=None,
    n=None,
    iK=None,
    niter=None,
    tol=None,
    largest=None,
    method=None,
    tracker=None,
    ortho_iparams=None,
    ortho_fparams=None,
    ortho_bparams=None,
):
    """The k largest (or smallest) eigenvalues, with eigenvectors, of symmetric A, or of A x = e B x.

    The whole spectrum is computed, so the arguments that steer PyTorch's iteration have no effect.

    >>> import wisp
    >>> wisp.lobpcg(wisp.diag(wisp.tensor([1.0, 3.0, 2.0])))[0]
    tensor([3.])
    """
    A, B = A.to_dense(), None if B is None else B.to_dense()
    k = k if k is not None else 1 if X is None else X.size(-1)
    if B is None:
        values, vectors = wisp.linalg.eigh((A + A.mT) / 2)  # both triangles count, and share the gradient
    else:
        lower = wisp.linalg.cholesky(B)
        half = wisp.linalg.solve_triangular(lower, A, upper=False)
        values, vectors = wisp.linalg.eigh(wisp.linalg.solve_triangular(lower, half.mT, upper=False))
        vectors = wisp.linalg.solve_triangular(lower.mT, vectors, upper=True)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :k], vectors[..., :k]


def _fake_quantize(input, scale, zero_point, quant_min, quant_max):
    if quant_min > quant_max:
        raise RuntimeError("`quant_min` should be less than or equal to `quant_max`.")
    with wisp.no_grad():
        levels = (input / scale).round() + zero_point
        inside = (levels >= quant_min) & (levels <= quant_max)
        result = (levels.clamp(quant_min, quant_max) - zero_point) * scale
    # The gradient goes straight through where nothing was cut off.
    return wisp.where(inside, input, result) + (result - input).detach() * inside


def fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max):
    """What quantising to integers and back makes of the values; the gradient passes where nothing was cut off.

    >>> import wisp
    >>> wisp.fake_quantize_per_tensor_affine(wisp.tensor([0.26, 9.0]), 0.1, 0, 0, 10)
    tensor([0.3000, 1.0000])
    """
    return _fake_quantize(input, scale, zero_point, quant_min, quant_max)


def fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max):
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each slice along `axis`.

    >>> import wisp
    >>> wisp.fake_quantize_per_channel_affine(wisp.tensor([0.26, 0.26]), wisp.tensor([0.1, 1.0]), wisp.tensor([0, 0]), 0, 0, 10)
    tensor([0.3000, 0.0000])
    """
    shape = [-1 if d == axis % input.dim() else 1 for d in range(input.dim())]
    return _fake_quantize(input, scale.reshape(shape), zero_point.reshape(shape), quant_min, quant_max)


def hash_tensor(input, dim=None, *, keepdim=False, mode=0, out=None):
    """The exclusive or of all elements, or along dimensions, as bits of 64-bit numbers.

    >>> import wisp
    >>> wisp.hash_tensor(wisp.tensor([3, 5]))
    tensor(6, dtype=torch.uint64)
    """
    if mode != 0:
        raise RuntimeError(f"hash_tensor: Unknown hash_tensor mode: {mode}")
    if input.is_complex():
        raise NotImplementedError("hash_tensor: complex numbers are not supported")
    dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if input.numel() == 0 and not dims:
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if not -max(input.dim(), 1) <= d < max(input.dim(), 1):
            raise IndexError(f"Dimension out of range: hash_tensor got {d} for a tensor of {input.dim()} dimensions")
    dims = sorted({d % max(input.dim(), 1) for d in dims}) if dims else list(range(input.dim()))
    if input.dim() == 0:
        dims = []
    if dims and any(input.size(d) == 0 for d in dims) and dim is not None:
        raise IndexError(f"hash_tensor: Expected reduction dim {dims[0]} to have non-zero size.")
    bits = input.detach().to(wisp.float64 if input.is_floating_point() else wisp.int64).contiguous().view(wisp.int64)
    kept = [d for d in range(input.dim()) if d not in dims]
    rows = bits.permute(*dims, *kept).reshape(-1, *(input.size(d) for d in kept)) if dims else bits.unsqueeze(0)
    while rows.size(0) > 1:
        half = rows.size(0) // 2
        folded = rows[:half] ^ rows[half : 2 * half]
        rows = folded if rows.size(0) % 2 == 0 else wisp.cat([folded, rows[-1:]])
    result = rows[0].contiguous().view(wisp.uint64)
    if keepdim:
        result = result.reshape([1 if d in dims else n for d, n in enumerate(input.shape)])
    return into(out, result, exact=True)


def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None, pin_memory=False):
    """A tensor on the memory of a file of `size` elements; with `shared`, writing to it writes to the file.

    >>> import tempfile, wisp
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     written = wisp.from_file(file.name, shared=True, size=2, dtype=wisp.int32).fill_(7)
    ...     wisp.from_file(file.name, size=2, dtype=wisp.int32)
    tensor([7, 7], dtype=torch.int32)
    """
    import os

    import numpy

    like = wisp.empty(0, dtype=dtype)
    needed = size * like.element_size()
    if shared:
        open(filename, "ab").close()  # a new one, if there is none
    if os.path.getsize(filename) < needed:
        if not shared:
            raise RuntimeError(f"from_file: {filename} has fewer than the {needed} bytes of {size} elements")
        os.truncate(filename, needed)
    if size == 0:
        return like
    memory = numpy.memmap(filename, numpy.uint8, "r+" if shared else "c", shape=(needed,))
    return wisp.from_numpy(memory).view(like.dtype)


def get_device_module(device=None):
    """The module of a device: wisp.cuda, wisp.cpu and so on.

    >>> import wisp
    >>> wisp.get_device_module("cpu") is wisp.cpu
    True
    """
    kind = "cpu" if device is None else wisp.device(device).type
    module = getattr(wisp, kind, None)
    if module is None:
        raise RuntimeError(f"get_device_module: there is no device '{kind}'")
    return module


def compiled_with_cxx11_abi():
    """Whether the core uses C++11's string type.

    >>> import wisp
    >>> wisp.compiled_with_cxx11_abi()
    True
    """
    return True


def init_num_threads():
    """Nothing to do: the number of threads is known from the start.

    >>> import wisp
    >>> wisp.init_num_threads()
    """


def resize(self, *sizes):
    """An old name of `reshape` for a shape of as many elements."""
    import warnings

    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    return self.reshape(*sizes)


FUNCTIONS = functions_of(globals(), "grouped_mm", "resize")
METHODS = [resize, hash_tensor]
