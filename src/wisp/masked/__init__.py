"""Reductions and normalisations that leave masked-out elements (mask False) aside.

A slice without any element left gives the identity of its operation.

    >>> x = wisp.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> wisp.masked.sum(x, 1, mask=wisp.tensor([[True, False], [True, True]]))
    tensor([1., 7.])
"""

import functools
import math

from wisp import _core, _reference


def _chosen(input, mask, value):
    """`input` with `value` where the mask is False."""
    if mask is None:
        return input
    return _core.where(mask.expand(input.shape) if mask.shape != input.shape else mask, input, _core.full((), value, dtype=input.dtype))


def _dims(input, dim):
    if dim is None or dim == ():
        return tuple(range(input.dim()))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    limit = max(input.dim(), 1)
    for d in dims:
        if not -limit <= d < limit:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {d})")
    wrapped = tuple(d % limit for d in dims)
    if len(set(wrapped)) < len(wrapped):
        raise RuntimeError(f"dim={dim} appears multiple times in the list of dims")
    return wrapped if input.dim() else ()


def _cast(input, dtype):
    return input if dtype is None else input.to(dtype)


def _lowest(dtype):
    if dtype.is_floating_point:
        return -math.inf
    return False if dtype == _core.bool else _info(dtype).min


def _highest(dtype):
    if dtype.is_floating_point:
        return math.inf
    return True if dtype == _core.bool else _info(dtype).max


def _info(dtype):
    import wisp

    return wisp.iinfo(dtype)


def _sum_dtype(input, dtype):
    if dtype is not None:
        return dtype
    return input.dtype if input.is_floating_point() or input.is_complex() else _core.int64


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum of the elements where the mask is true; 0 where none is."""
    x = _chosen(input, mask, 0).to(_sum_dtype(input, dtype))
    return x.sum(_dims(x, dim), keepdim)


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product of the elements where the mask is true; 1 where none is."""
    x = _chosen(input, mask, 1).to(_sum_dtype(input, dtype))
    for d in sorted(_dims(x, dim), reverse=True):
        x = x.prod(d, keepdim)
    return x


def cumsum(input, dim, *, dtype=None, mask=None):
    """Sums of the elements up to each one, those that are masked as 0."""
    return _chosen(input, mask, 0).cumsum(_dims(input, dim)[0] if input.dim() else 0, dtype=dtype)


def cumprod(input, dim, *, dtype=None, mask=None):
    """Products of the elements up to each one, those that are masked as 1."""
    return _chosen(input, mask, 1).cumprod(_dims(input, dim)[0] if input.dim() else 0, dtype=dtype)


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The largest of the elements where the mask is true."""
    x = _cast(input, dtype)
    return _chosen(x, mask, _lowest(x.dtype)).amax(_dims(x, dim), keepdim)


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The smallest of the elements where the mask is true."""
    x = _cast(input, dtype)
    return _chosen(x, mask, _highest(x.dtype)).amin(_dims(x, dim), keepdim)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the largest of the elements is for which the mask is true."""
    x = _cast(input, dtype)
    return _chosen(x, mask, _lowest(x.dtype)).argmax(dim, keepdim).to(x.dtype)  # as PyTorch


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the smallest of the elements is for which the mask is true."""
    x = _cast(input, dtype)
    return _chosen(x, mask, _highest(x.dtype)).argmin(dim, keepdim).to(x.dtype)


def _count(input, dims, mask, keepdim=True):
    kept = _core.ones_like(input, dtype=_core.int64) if mask is None else mask.expand(input.shape).to(_core.int64)
    return kept.sum(dims, keepdim) if input.dim() else kept


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean of the elements where the mask is true; NaN where none is."""
    x = _cast(input, dtype)
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(f"masked.mean: expected a floating point or complex dtype, got {x.dtype}")
    dims = _dims(x, dim)
    total = _chosen(x, mask, 0)
    return total.sum(dims, keepdim) / _count(x, dims, mask, keepdim)


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The median of the elements where the mask is true; NaN where none is."""
    x = _cast(input, dtype)
    if not x.is_floating_point():
        raise ValueError(f"masked.median: expected a floating point dtype, got {x.dtype}")
    return _chosen(x, mask, math.nan).nanmedian(dim, keepdim).values


def norm(input, ord=2, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The norm of the elements where the mask is true."""
    from wisp import linalg

    x = _cast(input, dtype)
    return linalg.vector_norm(_chosen(x, mask, math.inf if ord == -math.inf else 0), 2 if ord is None else ord, _dims(x, dim), keepdim)


def _spread(input, dim, unbiased, correction, keepdim, dtype, mask, root):
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    x = _cast(input, dtype)
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(_core.float32)
    dims = _dims(x, dim)
    count = _count(x, dims, mask)
    total = _chosen(x, mask, 0)
    mean_ = (total.sum(dims, True) if x.dim() else total) / count
    away = _chosen(x - mean_, mask, 0)
    squares = (away * away.conj()).real if x.is_complex() else away * away
    squares = squares.sum(dims, keepdim) if x.dim() else squares
    result = squares / (_count(x, dims, mask, keepdim) - correction).clamp(min=0)
    result = result.sqrt() if root else result
    return result.to(x.dtype if dtype is None else dtype)


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The variance of the elements where the mask is true."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, False)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    """The standard deviation of the elements where the mask is true."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, True)


def softmax(input, dim, *, dtype=None, mask=None):
    """Softmax over the elements where the mask is true; the others have no part in it."""
    x = _cast(input, dtype)
    return _chosen(x, mask, -math.inf).softmax(dim)


def log_softmax(input, dim, *, dtype=None, mask=None):
    """The logarithm of `softmax` over the elements where the mask is true."""
    x = _cast(input, dtype)
    return _chosen(x, mask, -math.inf).log_softmax(dim)


def softmin(input, dim, *, dtype=None, mask=None):
    """Softmax of the negated elements where the mask is true."""
    x = _cast(input, dtype)
    return (-_chosen(x, mask, math.inf)).softmax(dim)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """The elements divided by the norm of those where the mask is true."""
    x = _cast(input, dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return _chosen(x, mask, 0) / _core.maximum(size, _core.full((), eps, dtype=size.dtype, device=size.device))


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """`log(exp(input) + exp(other))` where both masks are true."""
    return _core.logaddexp(_chosen(_cast(input, dtype), input_mask, -math.inf), _chosen(_cast(other, dtype), other_mask, -math.inf))


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The logarithm of the sum of exponentials of the elements where the mask is true."""
    x = _cast(input, dtype)
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(_core.get_default_dtype())
    return _chosen(x, mask, -math.inf).logsumexp(_dims(x, dim), keepdim).to(input.dtype if dtype is None else dtype)


_REDUCTIONS = "sum prod amax amin argmax argmin mean median norm var std logsumexp".split()
_ALONG = "cumsum cumprod softmax log_softmax softmin normalize".split()


def _of_any_layout(function):
    """The same for sparse tensors and masks: what comes out has the layout of the input."""

    @functools.wraps(function)
    def masked(input, *args, mask=None, **kwargs):
        mask = mask if mask is None or mask.is_nested or mask.layout is _core.strided else mask.to_dense()
        if input.is_nested or input.layout is _core.strided:
            return function(input, *args, mask=mask, **kwargs)
        result = function(input.to_dense(), *args, mask=mask, **kwargs)
        return result.to_sparse(layout=input.layout if result.dim() >= 2 else _core.sparse_coo)

    return masked


globals().update({name: _of_any_layout(globals()[name]) for name in (*_REDUCTIONS, *_ALONG)})


def _canonical_dim(dim, ndim):
    """The dimensions that `dim` stands for, in order and counted from the beginning."""
    return tuple(sorted(_dims(_core.empty((0,) * ndim), dim)))


def _input_mask(input, *args, mask=None, **kwargs):
    """The mask of an operation in the shape of its input."""
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.dim() > input.dim():
        raise IndexError(f"_input_mask expected broadcastable mask (got mask dimensionality higher than of the input: {mask.dim()})")
    mask = mask.to_dense() if mask.layout is not _core.strided else mask
    return mask.expand(input.shape).bool()


def _output_mask(op, input, *args, mask=None, dim=None, keepdim=False, **kwargs):
    """Where the result of an operation of this module is defined."""
    name, given = op.__name__, _input_mask(input, mask=mask)
    if name in _ALONG:
        return given
    if name not in _REDUCTIONS:
        raise ValueError(f"_output_mask expected masked operation (got {name})")
    place = 1 if name == "norm" else 0
    dim = args[place] if len(args) > place else dim
    if name == "median" and dim is None:
        dim = -1
    dims = _canonical_dim(dim, input.dim())
    return given.any(dims, keepdim) if dims else given


def _where(mask, input, fill_value):
    """`input` where a sparse mask is true and the fill value where it is false, at the places that the mask has."""
    chosen = _core.where(mask.to_dense(), input.to_dense(), fill_value.to_dense().to(input.dtype))
    return chosen.sparse_mask(mask.coalesce() if mask.is_sparse else mask)


def masked_tensor(data, mask, requires_grad=False):
    """A copy of a tensor with a mask: elements where it is False count for nothing.

    >>> import wisp
    >>> wisp.masked.masked_tensor(wisp.tensor([1.0, 2.0]), wisp.tensor([True, False])).sum()
    MaskedTensor(  1.0000, True)
    """
    return _module().MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data, mask):
    """A tensor with a mask; its gradient goes on to the tensor.

    >>> import wisp
    >>> x = wisp.ones(2, requires_grad=True)
    >>> wisp.masked.as_masked_tensor(x, wisp.tensor([True, False])).sum().backward()
    >>> x.grad
    tensor([1., 0.])
    """
    _module()._check(data, mask)
    return _module()._make(data, mask)


def is_masked_tensor(obj):
    """Whether an object is a masked tensor.

    >>> import wisp
    >>> wisp.masked.is_masked_tensor(wisp.ones(2))
    False
    """
    return isinstance(obj, _module().MaskedTensor)


def _module():
    # Loaded on first use: a subclass of Tensor switches on the questions of __torch_function__.
    import wisp.masked._tensor

    return wisp.masked._tensor


def __getattr__(name):
    if name == "MaskedTensor":
        return _module().MaskedTensor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_reference.attach(__name__, globals())
