"""Composites of reductions: norms, histograms, and what PyTorch writes in Python too."""

import math
import warnings

from wisp import _core, return_types
from wisp._composites._samples import by_samples
from wisp._tensor import TYPE_NAMES

_range = range  # some functions have a parameter of that name


def functions_of(namespace, *but):
    """The public functions that a family defines, all but those named: what its `FUNCTIONS` are."""
    own = {name: f for name, f in namespace.items() if getattr(f, "__module__", None) == namespace["__name__"] and callable(f)}
    return [f for name, f in own.items() if not name.startswith("_") and name not in but]


def into(out, result, exact=False):
    """`result`, written into `out` where that is given; `exact`: of the same dtype, and else of one that PyTorch casts to."""
    if out is None:
        return result
    if exact and out.dtype != result.dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {str(result.dtype)[6:]}, but got {str(out.dtype)[6:]} instead")
    if out.dtype != result.dtype and not _core.can_cast(result.dtype, out.dtype):
        kinds = TYPE_NAMES.get(result.dtype), TYPE_NAMES.get(out.dtype)
        raise RuntimeError(
            "result type {0} can't be cast to the desired output type {1}: Expected result to be safely castable from {0} dtype, but "
            "got result with dtype {1}".format(*kinds)
        )
    if out.shape != result.shape:
        if out.numel():
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape {list(result.shape)}. Call out.resize_(0) before.",
                stacklevel=3,
            )
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
        return into(out, linalg.matrix_norm(input, "nuc", dim, keepdim, dtype=dtype), exact=True)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"only valid string values are 'fro' and 'nuc', found {p}")
    return into(out, linalg.vector_norm(input, 2 if p is None or p == "fro" else p, dim, keepdim, dtype=dtype), exact=True)


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
    edges = _core.linspace(low, high, bins + 1, dtype=values.dtype, device=values.device)
    at = ((values - low) * bins / (high - low)).to(_core.int64).clamp(0, bins - 1)
    # The edges decide, not the division.
    at = _core.where((at > 0) & (values < edges[at]), at - 1, at)
    at = _core.where((at < bins - 1) & (values >= edges[at + 1]), at + 1, at)
    return at, (values >= low) & (values <= high), edges


def _check_histogram(name, input, range):
    """A histogram is of floats, within bounds that are finite."""
    if not input.is_floating_point():
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}; convert it with .float()')
    if range is not None and not all(map(math.isfinite, range)):
        raise RuntimeError(f"torch.{name}: range {list(range)} is not finite")


@by_samples
def histogram(input, bins=100, *, range=None, weight=None, density=False, out=None):
    """Counts of the elements in `bins` intervals, and the edges of these: (hist, bin_edges)."""
    _check_histogram("histogram", input, range)
    values = input.detach().reshape(-1)
    at, inside, edges = _bins_of(values, bins, range)
    counted = _core.ones_like(values) if weight is None else weight.detach().reshape(-1)
    hist = _core.zeros(edges.numel() - 1, dtype=input.dtype, device=input.device).index_add(0, at[inside], counted[inside].to(input.dtype))
    if density:
        hist = hist / hist.sum() / edges.diff()
    return _Histogram((hist, edges) if out is None else (into(out[0], hist, exact=True), into(out[1], edges, exact=True)))


_Histogram = return_types._make("histogram", ["hist", "bin_edges"])


def block_diag(*tensors):
    """A matrix with the given ones along its diagonal."""
    return _core._operators[""]["_block_diag"](tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors)


FUNCTIONS = [norm, histogram, block_diag]
METHODS = [_norm_method, histogram]
INPLACE = []
