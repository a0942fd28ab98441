"""Composites of reductions: norms, histograms, and what PyTorch writes in Python too."""
from wisp import _core

_range = range  # some functions have a parameter of that name


def into(out, result):
    """`result`, written into `out` where that is given."""
    if out is None:
        return result
    if out.dtype != result.dtype and not _core.can_cast(result.dtype, out.dtype):
        raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {out.dtype}")
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result.detach())


def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """The p-norm of all elements, or along `dim`.

    >>> wisp.norm(wisp.tensor([3.0, 4.0]))
    tensor(5.)
    """
    from wisp import linalg
    if isinstance(dim, int):
        dim = (dim,)
    if p == "nuc":
        if dim is None:
            dim = (0, 1)
        return into(out, linalg.matrix_norm(input, "nuc", dim, keepdim, dtype=dtype))
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    return into(out, linalg.vector_norm(input, 2 if p is None or p == "fro" else p, dim, keepdim, dtype=dtype))


def _norm_method(self, p="fro", dim=None, keepdim=False, dtype=None):
    return norm(self, p, dim, keepdim, dtype=dtype)


_norm_method.__name__ = "norm"


def _bins_of(values, bins, range):
    """For each value its bin and whether it has one; and the edges of the bins."""
    if isinstance(bins, _core.Tensor):
        edges = bins.detach()
        at = _core.searchsorted(edges, values, right=True) - 1
        at = _core.where(values == edges[-1], edges.numel() - 2, at)
        return at, (values >= edges[0]) & (values <= edges[-1]), edges
    low, high = range if range is not None else (values.min().item(), values.max().item()) if values.numel() else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = _core.linspace(low, high, bins + 1, dtype=values.dtype)
    at = ((values - low) * bins / (high - low)).to(_core.int64).clamp(0, bins - 1)
    # The edges decide, not the division.
    at = _core.where((at > 0) & (values < edges[at]), at - 1, at)
    at = _core.where((at < bins - 1) & (values >= edges[at + 1]), at + 1, at)
    return at, (values >= low) & (values <= high), edges


def histogram(input, bins, *, range=None, weight=None, density=False, out=None):
    """Counts of the elements in `bins` intervals, and the edges of these: (hist, bin_edges)."""
    values = input.detach().reshape(-1)
    at, inside, edges = _bins_of(values, bins, range)
    counted = _core.ones_like(values) if weight is None else weight.detach().reshape(-1)
    hist = _core.zeros(edges.numel() - 1, dtype=input.dtype).index_add(0, at[inside], counted[inside].to(input.dtype))
    if density:
        hist = hist / hist.sum() / edges.diff()
    result = _core._operators[""]["_histogram_result"](hist, edges)
    return result if out is None else type(result)((into(out[0], hist), into(out[1], edges)))


def block_diag(*tensors):
    """A matrix with the given ones along its diagonal."""
    return _core._operators[""]["_block_diag"](tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)


def histogramdd(input, bins, *, range=None, weight=None, density=False):
    """The histogram of points in several dimensions, `input[..., d]` being a point: (hist, bin_edges)."""
    points = input.detach().reshape(-1, input.shape[-1])
    dims = points.shape[1]
    if isinstance(bins, int):
        bins = [bins] * dims
    if len(bins) != dims:
        raise RuntimeError(f"torch.histogramdd(): expected {dims} sequences of bins or bin counts, but got {len(bins)}")
    at = _core.zeros(points.shape[0], dtype=_core.int64)
    inside = _core.ones(points.shape[0], dtype=_core.bool)
    all_edges, shape = [], []
    for d in _range(dims):
        part = None if range is None else range[2 * d:2 * d + 2]
        place, within, edges = _bins_of(points[:, d].contiguous(), bins[d], part)
        at = at * (edges.numel() - 1) + place.clamp(0, edges.numel() - 2)
        inside = inside & within
        all_edges.append(edges)
        shape.append(edges.numel() - 1)
    counted = _core.ones(points.shape[0], dtype=input.dtype) if weight is None else weight.detach().reshape(-1).to(input.dtype)
    total = 1
    for n in shape:
        total *= n
    hist = _core.zeros(total, dtype=input.dtype).index_add(0, at[inside], counted[inside]).reshape(shape)
    if density:
        hist = hist / hist.sum()
        for d, edges in enumerate(all_edges):
            hist = hist / edges.diff().reshape([-1 if i == d else 1 for i in _range(dims)])
    from wisp import _return_types
    return _return_types.make("histogramdd", ["hist", "bin_edges"])((hist, tuple(all_edges)))


def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of the variables in the rows of `input`."""
    if input.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    x = input.reshape(1, -1) if input.dim() < 2 else input
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(_core.get_default_dtype())
    n = x.shape[1]
    weights = None
    for name, w, integral in (("fweights", fweights, True), ("aweights", aweights, False)):
        if w is None:
            continue
        if w.dim() > 1:
            raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w.dim()} dimensions")
        if integral and (w.is_floating_point() or w.is_complex()):
            raise RuntimeError(f"cov(): expected fweights to have integral dtype but got fweights with {w.dtype} dtype")
        if not integral and not w.is_floating_point():
            raise RuntimeError(f"cov(): expected aweights to have floating point dtype but got aweights with {w.dtype} dtype")
        if w.numel() != n:
            raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but got {w.numel()} != {n}")
        if w.numel() and w.min() < 0:
            raise RuntimeError(f"cov(): {name} cannot be negative")
        weights = w if weights is None else weights * w
    total = n if weights is None else weights.sum()
    if weights is not None and n and total == 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    mean = x.sum(1) / n if weights is None else (x * weights).sum(1) / total
    if weights is None:
        factor = n - correction
    elif aweights is None or correction == 0:
        factor = total - correction
    else:
        factor = total - correction * (weights * aweights).sum() / total
    if not isinstance(factor, _core.Tensor):
        factor = max(factor, 0)
    else:
        factor = factor.clamp(min=0)
    x = x - mean.unsqueeze(1)
    y = x if weights is None else x * weights
    return (x @ y.conj().t() / factor).squeeze()


def corrcoef(input):
    """The matrix of Pearson's correlation coefficients of the variables in the rows."""
    if input.dim() > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with {input.dim()} dimensions")
    c = cov(input)
    if c.dim() == 0:
        return c / c
    d = c.diag()
    root = (d.real if d.is_complex() else d).sqrt()
    c = c / root.unsqueeze(-1) / root
    if c.is_complex():
        return _core.complex(c.real.clamp(-1, 1), c.imag.clamp(-1, 1))
    return c.clamp(-1, 1)


def dist(input, other, p=2):
    """The p-norm of `input - other`."""
    from wisp import linalg
    return linalg.vector_norm(input - other, p)


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """Distances between each row of x1 and each row of x2."""
    from wisp import linalg
    for name, x in (("X1", x1), ("X2", x2)):
        if not x.is_floating_point():
            raise RuntimeError(f"cdist only supports floating-point dtypes, {name} got: {x.dtype}")
        if x.dim() < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.dim()}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    return linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)


def _spacing(y, x, dx, dim):
    if x is None:
        return dx
    if x.dim() == 1 and y.dim() > 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(f"trapezoid(): There must be one `x` value for each sample point, got {x.shape[0]} and {y.shape[dim]}")
        return x.diff().reshape([-1] + [1] * (y.dim() - 1 - dim % y.dim()))
    if x.dim() == y.dim():
        return x.diff(dim=dim)
    return x.expand(y.shape[y.dim() - x.dim():] if x.dim() < y.dim() else x.shape).diff(dim=dim)


def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integral along `dim` by the trapezoidal rule."""
    if x is not None and not isinstance(x, _core.Tensor):
        x, dx = None, x
    n = y.shape[dim] if y.dim() else 1
    if y.dim() == 0 or n == 0:
        return y.sum(dim) if y.dim() else _core.zeros_like(y)
    step = _spacing(y, x, 1 if dx is None else dx, dim)
    return ((y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) * step).sum(dim) / 2.0


def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """The running integral along `dim` by the trapezoidal rule."""
    if x is not None and not isinstance(x, _core.Tensor):
        x, dx = None, x
    n = y.shape[dim]
    step = _spacing(y, x, 1 if dx is None else dx, dim)
    return ((y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)) * step).cumsum(dim) / 2.0


def trapz(y, x=None, *, dx=None, dim=-1):
    return trapezoid(y, x, dx=dx, dim=dim)


def renorm(input, p, dim, maxnorm, *, out=None):
    """Slices along `dim` whose p-norm is above `maxnorm` are scaled down to it."""
    from wisp import linalg
    if input.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.dim()}")
    if p <= 0:
        raise RuntimeError("renorm: non-positive norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    dim %= input.dim()
    norms = linalg.vector_norm(input, p, [d for d in _range(input.dim()) if d != dim], True)
    return into(out, input * _core.where(norms > maxnorm, maxnorm / (norms + 1e-7), _core.ones_like(norms)))


def nonzero_static(input, *, size, fill_value=-1, out=None):
    """The first `size` coordinates that nonzero gives, filled up with `fill_value`."""
    found = input.nonzero()[:size]
    rest = _core.full((size - found.shape[0], input.dim()), fill_value, dtype=_core.int64)
    return into(out, _core.cat([found, rest]))


def gradient(input, *, spacing=1, dim=None, edge_order=1):
    """Estimates of the derivatives of samples along each of `dim`, by central differences."""
    if edge_order not in (1, 2):
        raise RuntimeError(f"torch.gradient only supports edge_order=1 and edge_order=2, got {edge_order}")
    dims = list(_range(input.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if len({d % input.dim() for d in dims}) < len(dims):
        raise RuntimeError(f"torch.gradient: a dim appears multiple times in the list of dims {dims}")
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(dims)
    if len(steps) != len(dims):
        raise RuntimeError(f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length {len(dims)}, got {len(steps)}")
    results = []
    for d, step in zip(dims, steps):
        n = input.shape[d]
        if n < edge_order + 1:
            raise RuntimeError(f"torch.gradient expected each dimension size to be at least edge_order+1, got {n}")

        def at(i, length, d=d):
            return input.narrow(d, i, length)
        if isinstance(step, _core.Tensor) and step.dim() == 1:
            shape = [-1 if i == d % input.dim() else 1 for i in _range(input.dim())]
            h = step.diff().reshape(shape)
            before, after = h.narrow(d, 0, n - 2), h.narrow(d, 1, n - 2)
            middle = (-after / (before * (before + after)) * at(0, n - 2) + (after - before) / (before * after) * at(1, n - 2)
                      + before / (after * (before + after)) * at(2, n - 2))
            first, last = h.narrow(d, 0, 1), h.narrow(d, n - 2, 1)
            if edge_order == 1:
                low, high = (at(1, 1) - at(0, 1)) / first, (at(n - 1, 1) - at(n - 2, 1)) / last
            else:
                a, b = first, h.narrow(d, 1, 1)
                low = -(2 * a + b) / (a * (a + b)) * at(0, 1) + (a + b) / (a * b) * at(1, 1) - a / (b * (a + b)) * at(2, 1)
                a, b = h.narrow(d, n - 3, 1), last
                high = b / (a * (a + b)) * at(n - 3, 1) - (a + b) / (a * b) * at(n - 2, 1) + (a + 2 * b) / (b * (a + b)) * at(n - 1, 1)
        else:
            middle = (at(2, n - 2) - at(0, n - 2)) / 2
            if edge_order == 1:
                low, high = at(1, 1) - at(0, 1), at(n - 1, 1) - at(n - 2, 1)
            else:
                low = -1.5 * at(0, 1) + 2 * at(1, 1) - 0.5 * at(2, 1)
                high = 0.5 * at(n - 3, 1) - 2 * at(n - 2, 1) + 1.5 * at(n - 1, 1)
            low, middle, high = low / step, middle / step, high / step
        results.append(_core.cat([low, middle, high], d))
    return tuple(results)


FUNCTIONS = [norm, histogram, histogramdd, block_diag, cov, corrcoef, dist, cdist, trapezoid, trapz, cumulative_trapezoid, renorm,
             nonzero_static, gradient]
METHODS = [_norm_method, histogram, cov, corrcoef, dist, renorm, nonzero_static]
INPLACE = [renorm]
