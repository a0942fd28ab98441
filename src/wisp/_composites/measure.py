"""Composites that measure: distances, covariances, cross products, integrals and derivatives of samples."""

import math
import warnings

from wisp import _core, return_types
from wisp._composites._autocast import in_float32
from wisp._composites._samples import by_samples
from wisp._composites.reduce import _check_histogram, functions_of, into
from wisp._composites.shape import broadcast_shapes
from wisp._tensor import TYPE_NAMES

_op = _core._operators[""]
_vector_norm = _core._operators["linalg"]["vector_norm"]


def _real(input):
    return input if input.is_floating_point() or input.is_complex() else input.to(_core.get_default_dtype())


# --- distances -------------------------------------------------------------------------------------------------------

_euclidean = None


def _euclidean_function():
    """Euclidean distances by a matrix product: quick, with a gradient that is 0 where points coincide."""
    global _euclidean
    if _euclidean is None:
        from wisp.autograd import Function

        class EuclideanDistBackward0(Function):
            @staticmethod
            def forward(ctx, x, y):
                # The squares are part of the product; rows of a multiple of four are read faster.
                x_one, y_one = x.new_ones(x.shape[:-1] + (1,)), y.new_ones(y.shape[:-1] + (1,))
                x_rest, y_rest = (one.new_zeros(one.shape[:-1] + (-(x.shape[-1] + 2) % 4,)) for one in (x_one, y_one))
                left = _core.cat([x * -2, (x * x).sum(-1, keepdim=True), x_one, x_rest], -1)
                right = _core.cat([y, y_one, (y * y).sum(-1, keepdim=True), y_rest], -1)
                distance = (left @ right.mT).relu_().sqrt_()  # rounding may leave a square below zero
                ctx.save_for_backward(x, y, distance)
                return distance

            @staticmethod
            @in_float32
            def backward(ctx, grad):
                x, y, distance = ctx.saved_tensors
                weight = _core.where(distance == 0, 0.0, grad / distance)
                grad_x = weight.sum(-1, keepdim=True) * x - weight @ y if ctx.needs_input_grad[0] else None
                grad_y = weight.sum(-2).unsqueeze(-1) * y - weight.mT @ x if ctx.needs_input_grad[1] else None
                return grad_x, grad_y

        _euclidean = EuclideanDistBackward0.apply
    return _euclidean


def _norm_of(difference, p):
    if difference.shape[-1] == 0:
        return difference.sum(-1)
    if p == 0:  # how many differ; the norm would count a NaN
        return difference.abs().clamp(max=1).ceil().sum(-1)
    return _vector_norm(difference, p, -1)


@in_float32
def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The p-norm distances of every row of x1 to every row of x2, over leading batch dimensions.

    >>> import wisp
    >>> wisp.cdist(wisp.tensor([[0., 0.]]), wisp.tensor([[3., 4.], [0., 1.]]))
    tensor([[5., 1.]])
    """
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    for x, name in ((x1, "X1"), (x2, "X2")):
        if not x.is_floating_point():
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
        if x.dim() < 2:
            raise RuntimeError("cdist only supports at least 2D tensors, " + f"{name} got: {x.dim()}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    rows, columns, width = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    if p == 2 and compute_mode != modes[2] and (compute_mode == modes[1] or rows > 25 or columns > 25):
        flat = math.prod(batch)
        left = x1.expand(*batch, rows, width).reshape(flat, rows, width)
        right = x2.expand(*batch, columns, width).reshape(flat, columns, width)
        return _euclidean_function()(left, right).view(*batch, rows, columns)
    needs_grad = _core.is_grad_enabled() and (x1.requires_grad or x2.requires_grad)
    step = max(1, (1 << 24) // max(1, math.prod(batch) * columns * width))
    if needs_grad or step >= rows:
        return _core._whole("CdistBackward0", lambda a, b: _norm_of(a.unsqueeze(-2) - b.unsqueeze(-3), p), x1, x2)
    parts = [_norm_of(x1[..., i : i + step, :].unsqueeze(-2) - x2.unsqueeze(-3), p) for i in range(0, rows, step)]
    return _core.cat(parts, -2)


def pdist(input, p=2.0):
    """The p-norm distances of every pair of rows, as a vector: row 0 to 1, 2, ..., row 1 to 2, ..."""
    if input.dim() != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.is_floating_point():
        raise RuntimeError("pdist only supports floating-point dtypes")
    if p < 0:
        raise RuntimeError("pdist only supports non-negative p values")
    first, second = _core.triu_indices(input.shape[0], input.shape[0], 1, device=input.device).unbind(0)
    return _core._whole("PdistBackward0", lambda x: _norm_of(x[first] - x[second], p), input)


def dist(input, other, p=2):
    """The p-norm of input - other."""
    return _core._whole("DistBackward0", lambda a, b: _vector_norm(a - b, p), input, other)


def renorm(input, p, dim, maxnorm, *, out=None):
    """Each slice along `dim` whose p-norm exceeds maxnorm is scaled down to it."""
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if input.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.dim()} dimensions")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    dim = _wrapped(dim, input.dim())
    wide = input.dtype in (_core.float16, _core.bfloat16)
    dims = [d for d in range(input.dim()) if d != dim]

    def scaled(x):
        norm = _vector_norm(x, p, dims, True, dtype=_core.float32 if wide else None)
        return (x * _core.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0).to(x.dtype)).contiguous()

    return into(out, _core._whole("RenormBackward0", scaled, input), exact=True)


def _wrapped(dim, ndim):
    if not -ndim <= dim < max(ndim, 1):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-max(ndim, 1)}, {max(ndim, 1) - 1}], but got {dim})")
    return dim % max(ndim, 1)


# --- vectors ---------------------------------------------------------------------------------------------------------


def linalg_cross(input, other, *, dim=-1, out=None):
    """The cross products of vectors of three elements along `dim`."""
    if input.dim() != other.dim():
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    dim = _wrapped(dim, input.dim())
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and {other.shape[dim]}")

    def product(a, b):
        return a.roll(-1, dim) * b.roll(-2, dim) - a.roll(-2, dim) * b.roll(-1, dim)

    return into(out, _core._whole("LinalgCrossBackward0", product, input, other), exact=True)


def cross(input, other, dim=None, *, out=None):
    """The cross products along `dim`, by default the first dimension of size 3."""
    if dim is None:
        sizes = broadcast_shapes(input.shape, other.shape)
        if input.dim() == other.dim() and 3 not in sizes:
            raise RuntimeError("no dimension of size 3 in input")
        dim = list(sizes).index(3) if 3 in sizes else -1
    return linalg_cross(input, other, dim=dim, out=out)


def linalg_vander(x, N=None):
    """Vandermonde matrices: the powers 0 .. N-1 of each element, a row each."""
    x = x.unsqueeze(0) if x.dim() == 0 else x
    n = x.shape[-1] if N is None else N
    if n < 2 and N is not None:
        raise RuntimeError(f"N must be greater than 1, got {n}")
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(_core.int64)
    ones = _core.ones_like(x).unsqueeze(-1)
    if n <= 1:
        return ones[..., :n]
    return _core.cat([ones, x.unsqueeze(-1).expand(*x.shape, n - 1).cumprod(-1)], -1)


def vander(x, N=None, increasing=False):
    """The Vandermonde matrix of a vector, its powers falling unless `increasing`."""
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(_core.int64)
    ones = _core.ones_like(x).unsqueeze(-1)
    result = _core.cat([ones, x.unsqueeze(-1).expand(x.shape[0], n - 1).cumprod(-1)], -1) if n > 1 else ones[:, :n]
    return result if increasing else result.flip(1)


# --- statistics ------------------------------------------------------------------------------------------------------


def _weights(weights, name, floating, count):
    if weights is None:
        return
    if weights.dim() > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.dim()} dimensions")
    if weights.is_floating_point() != floating:
        kind = "floating point" if floating else "integral"
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {TYPE_NAMES.get(weights.dtype, weights.dtype)} dtype"
        )
    if weights.numel() != count:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got {weights.numel()} != {count}"
        )
    if count and weights.min().item() < 0:
        raise RuntimeError(f"cov(): {name} cannot be negative")


@by_samples
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables (rows) over observations (columns)."""
    if input.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    if input.dtype == _core.bool:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    count = x.shape[1]
    _weights(fweights, "fweights", False, count)
    _weights(aweights, "aweights", True, count)
    weight = None
    if fweights is not None:
        weight = fweights.reshape(-1)
    if aweights is not None:
        weight = aweights.reshape(-1) if weight is None else weight * aweights.reshape(-1)
    total = count if weight is None else weight.sum()
    if weight is not None and count and total.item() == 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    average = ((x if weight is None else x * weight).sum(1) / total).unsqueeze(1)
    if correction == 0 or weight is None or aweights is None:
        norm = total - correction
    else:
        norm = total - correction * (weight * aweights.reshape(-1)).sum() / total
    if (norm.item() if isinstance(norm, _core.Tensor) else norm) <= 0:
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.", stacklevel=2
        )
        norm = 0 if not isinstance(norm, _core.Tensor) else _core.zeros_like(norm)
    centred = x - average
    weighted = centred if weight is None else centred * weight
    return (centred @ weighted.mT.conj() / norm).squeeze()


def corrcoef(input):
    """The correlation coefficients of variables (rows) over observations (columns)."""
    if input.dim() > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    c = cov(input)
    if c.dim() == 0:
        return c / c
    diagonal = c.diagonal()
    deviation = (diagonal.real if c.is_complex() else diagonal).sqrt()
    c = c / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    return _core.complex(c.real.clamp(-1, 1), c.imag.clamp(-1, 1)) if c.is_complex() else c.clamp(-1, 1)


_HistogramDD = return_types._make("histogramdd", ["hist", "bin_edges"])


@by_samples
def histogramdd(input, bins, *, range=None, weight=None, density=False, out=None):
    """Counts of points (rows) in boxes of a grid, and the grid's edges: (hist, bin_edges)."""
    if input.dim() < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions, but got {input.dim()}")
    _check_histogram("histogramdd", input, range)
    points = input.detach().flatten(0, -2)
    count = points.shape[1]
    bins = [bins] * count if isinstance(bins, int) else list(bins)
    if len(bins) != count:
        raise RuntimeError(
            f"torch.histogramdd: expected {count} sequences of bin edges for a {count}-dimensional histogram but got {len(bins)}"
        )
    if range is not None and len(range) != 2 * count:
        raise RuntimeError(
            f"torch.histogramdd: for a {count}-dimensional histogram range should have {2 * count} elements, but got {len(range)}"
        )
    edges, at, inside = [], 0, _core.ones(points.shape[0], dtype=_core.bool, device=points.device)
    for d, b in enumerate(bins):
        column = points[:, d].contiguous()
        if isinstance(b, _core.Tensor):
            edge = b.detach()
        else:
            low, high = (
                range[2 * d : 2 * d + 2]
                if range is not None
                else (column.min().item(), column.max().item())
                if column.numel()
                else (0.0, 1.0)
            )
            if low == high:
                low, high = low - 0.5, high + 0.5
            edge = _core.linspace(low, high, b + 1, dtype=input.dtype, device=input.device)
        place = _core.where(column == edge[-1], edge.numel() - 2, _core.searchsorted(edge, column, right=True) - 1)
        inside = inside & (column >= edge[0]) & (column <= edge[-1])
        at = at * (edge.numel() - 1) + place
        edges.append(edge)
    shape = [e.numel() - 1 for e in edges]
    counted = (
        _core.ones(points.shape[0], dtype=input.dtype, device=input.device)
        if weight is None
        else weight.detach().reshape(-1).to(input.dtype)
    )
    hist = _core.zeros(math.prod(shape), dtype=input.dtype, device=input.device).index_add(0, at[inside], counted[inside]).reshape(shape)
    if density:
        hist = hist / hist.sum()
        for d, edge in enumerate(edges):
            hist = hist / edge.diff().reshape([-1 if i == d else 1 for i, _ in enumerate(shape)])
    return _HistogramDD((into(out[0] if out else None, hist), tuple(edges)))


def native_group_norm(input, weight, bias, N, C, HxW, group, eps):
    """Group normalisation with the mean and the reciprocal deviation of every group."""

    def parts(input, weight, bias):
        result = _op["group_norm"](input, group, weight, bias, eps)
        groups = input.reshape(N, group, C * HxW // group if group else 0)
        wide = groups.float() if input.dtype in (_core.float16, _core.bfloat16) else groups
        mean = wide.mean(-1)
        deviation = (wide.var(-1, unbiased=False) + eps).rsqrt()
        kept = weight.dtype if weight is not None else input.dtype
        return result, mean.to(kept), deviation.to(kept)

    return _core._whole("NativeGroupNormBackward0", parts, input, weight, bias)


# --- integrals and derivatives of samples ----------------------------------------------------------------------------


def _steps(y, x, dx, dim, name):
    """y, and the widths of the intervals between samples."""
    if y.dtype == _core.bool:
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")
    dim = _wrapped(dim, y.dim())
    if x is None:
        if isinstance(dx, _core.Tensor):  # a number for all, which has no say in the dtype
            dx = dx.item()
        if isinstance(dx, complex):
            raise RuntimeError(f"{name}: Currently, we only support dx as a real number.")
        if isinstance(dx, bool):
            raise RuntimeError(f"{name}: received a bool input for `dx`, but bool is not supported")
        return dim, dx
    if x.dtype == _core.bool:
        raise RuntimeError(f"{name}: received a bool input for `x`, but bool is not supported")
    if x.dim() == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        x = x.reshape([-1 if d == dim else 1 for d in range(y.dim())])
    elif x.dim() < y.dim():
        x = x.reshape([1] * (y.dim() - x.dim()) + list(x.shape))
    widths = max(x.shape[dim] - 1, 0)
    return dim, x.narrow(dim, min(1, x.shape[dim]), widths) - x.narrow(dim, 0, widths)


def _pairs(y, dim):
    n = y.shape[dim] - 1
    return y.narrow(dim, 1, n) + y.narrow(dim, 0, n)


def _halved(total):
    return _core._whole("DivBackward1", lambda x: x / 2, total)


def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of samples by the trapezoidal rule."""
    if isinstance(x, (int, float)):
        x, dx = None, x
    dim, step = _steps(y, x, dx, dim, "trapezoid")
    if y.shape[dim] == 0:
        return _core.zeros([n for d, n in enumerate(y.shape) if d != dim], dtype=_real(y).dtype, device=y.device)
    if x is None:
        return _core._whole("MulBackward1", lambda total: total * (step / 2), _pairs(y, dim).sum(dim))
    return _halved((_pairs(y, dim) * step).sum(dim))


def trapz(y, x=None, *, dx=1, dim=-1):
    """Another name of `trapezoid`."""
    return trapezoid(y, x, dx=dx, dim=dim)


def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of samples up to each of them by the trapezoidal rule."""
    if isinstance(x, (int, float)):
        x, dx = None, x
    dim, step = _steps(y, x, dx, dim, "cumulative_trapezoid")
    if y.shape[dim] == 0:
        return _core.zeros(y.shape, dtype=_real(y).dtype, device=y.device)
    if x is None:
        return _core._whole("MulBackward1", lambda pairs: pairs * (step / 2), _pairs(y, dim)).cumsum(dim)
    return _halved((_pairs(y, dim) * step).cumsum(dim))


def _derivative(f, dim, spacing, edge_order):
    """Central differences inside, one-sided ones at both ends."""
    n = f.shape[dim]

    def at(start, length=1):
        return f.narrow(dim, start, length)

    if not isinstance(spacing, _core.Tensor):
        middle = (at(2, n - 2) - at(0, n - 2)) / 2
        if edge_order == 1:
            first, last = at(1) - at(0), at(n - 1) - at(n - 2)
        else:
            first = -1.5 * at(0) + 2 * at(1) - 0.5 * at(2)
            last = 1.5 * at(n - 1) - 2 * at(n - 2) + 0.5 * at(n - 3)
        return _core.cat([part / spacing for part in (first, middle, last)], dim)
    step = spacing.diff().reshape([-1 if d == dim else 1 for d in range(f.dim())])
    left, right = step.narrow(dim, 0, n - 2), step.narrow(dim, 1, n - 2)
    middle = (
        at(0, n - 2) * (-right / (left * (left + right)))
        + at(1, n - 2) * ((right - left) / (left * right))
        + at(2, n - 2) * (left / (right * (left + right)))
    )
    if edge_order == 1:
        first = (at(1) - at(0)) / step.narrow(dim, 0, 1)
        last = (at(n - 1) - at(n - 2)) / step.narrow(dim, n - 2, 1)
    else:
        a, b = step.narrow(dim, 0, 1), step.narrow(dim, 1, 1)
        first = at(0) * (-(2 * a + b) / (a * (a + b))) + at(1) * ((a + b) / (a * b)) - at(2) * (a / (b * (a + b)))
        a, b = step.narrow(dim, n - 3, 1), step.narrow(dim, n - 2, 1)
        last = at(n - 3) * (b / (a * (a + b))) - at(n - 2) * ((a + b) / (a * b)) + at(n - 1) * ((2 * b + a) / (b * (a + b)))
    return _core.cat([first, middle, last], dim)


def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """The derivatives of samples along each of the dims; `spacing` is a width, or coordinates, for all or for each."""
    dims = [_wrapped(d, input.dim()) for d in (range(input.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim)]
    if input.dtype == _core.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if len(set(dims)) != len(dims):
        repeated = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if spacing is None or isinstance(spacing, (int, float, complex)):
        spacings = [1 if spacing is None else spacing] * len(dims)
    else:
        spacings = list(spacing)
        if len(spacings) != len(dims):
            raise RuntimeError(
                "torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to 'self.dim() = "
                f"{input.dim()}', since dim argument was not given, but got a list of length {len(spacings)}"
                if dim is None
                else "torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to "
                f"have the same length, but got a spacing argument of length {len(spacings)} and a dim "
                "argument of length "
                f"{len(dims)}."
            )
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple(_derivative(input, d, s, edge_order) for d, s in zip(dims, spacings))


FUNCTIONS = functions_of(globals(), "linalg_cross", "linalg_vander")
METHODS = [dist, renorm, cross, cov, corrcoef]
INPLACE = [renorm]
