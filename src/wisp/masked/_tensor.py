"""The masked tensor: a tensor and a mask of the elements that count.

Operators on elements keep the mask; reductions leave masked-out elements aside (`wisp.masked`); operators on shapes work on both.
"""

import warnings

import wisp
from wisp import _core
from wisp._tensor.holder import Holder, elementwise

_SHAPES = set(
    """view reshape flatten unflatten transpose swapaxes swapdims permute t movedim moveaxis unsqueeze squeeze expand expand_as
    select narrow split split_with_sizes chunk tensor_split unbind __getitem__ cat concat concatenate stack hstack vstack roll flip fliplr
    flipud rot90 repeat tile repeat_interleave diagonal diag_embed index_select ravel broadcast_to view_as reshape_as contiguous clone
    unfold""".split()
)
_REDUCTIONS = {"sum", "mean", "prod", "amax", "amin", "argmax", "argmin", "var", "std", "norm", "logsumexp", "median"}


class MaskedTensor(Holder, _core.Tensor):
    """A tensor with a mask; True says that an element counts. Make one with `wisp.masked.masked_tensor`.

    >>> import wisp
    >>> x = wisp.masked.masked_tensor(wisp.tensor([1.0, 2.0, 4.0]), wisp.tensor([True, False, True]))
    >>> x * 2
    MaskedTensor(
      [  2.0000,       --,   8.0000]
    )
    >>> x.mean().get_data()
    tensor(2.5000)
    """

    def __new__(cls, data, mask, requires_grad=False):
        """A copy of the data, as a leaf of the graph."""
        _check(data, mask, leaf=True)
        return _make(data.detach().clone().requires_grad_(requires_grad), mask)

    def __init__(self, *args, **kwargs):
        pass

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with wisp.DisableTorchFunctionSubclass():
            return _call(func, args, kwargs or {})

    _held = property(lambda self: self._masked_data)
    shape = property(lambda self: self._masked_data.shape)
    dtype = property(lambda self: self._masked_data.dtype)
    device = property(lambda self: self._masked_data.device)
    layout = property(lambda self: self._masked_data.layout)
    ndim = property(lambda self: self._masked_data.ndim)
    data = property(lambda self: self.detach())
    T = property(lambda self: self._both(lambda part: part.T))
    mT = property(lambda self: self._both(lambda part: part.mT))
    is_cuda = property(lambda self: self._masked_data.is_cuda)
    is_cpu = property(lambda self: self._masked_data.is_cpu)
    is_meta = property(lambda self: self._masked_data.is_meta)

    def _with(self, values):
        return _make(values, self._mask)

    def _both(self, change):
        return _make(change(self._masked_data), change(self._mask))

    def _gradient_of_values(self, grad):
        self._expect_shape(grad)
        return grad.to_tensor(0) if isinstance(grad, MaskedTensor) else grad

    def get_data(self):
        """The tensor without its mask."""
        if self._masked_data.layout is not wisp.strided:
            return self._masked_data
        return _WithMaskedGradient.apply(self._masked_data, self._mask)

    def get_mask(self):
        """The mask: True where an element counts."""
        return self._mask

    def to_tensor(self, value):
        """The tensor with a value in place of what is masked out.

        >>> import wisp
        >>> wisp.masked.masked_tensor(wisp.ones(2), wisp.tensor([True, False])).to_tensor(0)
        tensor([1., 0.])
        """
        return self._masked_data.masked_fill(~self._mask, value)

    def to_dense(self):
        """Data and mask as they lie in memory without gaps."""
        return self._both(lambda part: part.to_dense())

    def to_sparse_coo(self):
        """Data and mask as coordinates of what counts.

        >>> import wisp
        >>> x = wisp.masked.masked_tensor(wisp.ones(2), wisp.tensor([True, False])).to_sparse_coo()
        >>> x.get_data().indices(), x.sum().item()
        (tensor([[0]]), 1.0)
        """
        return self._at_mask(lambda mask: mask.to_sparse_coo().coalesce())

    def to_sparse_csr(self):
        """Data and mask as compressed rows of what counts."""
        return self._at_mask(lambda mask: mask.to_sparse_csr())

    to_sparse = to_sparse_coo

    def _at_mask(self, change):
        if self._masked_data.layout is not wisp.strided:
            self = self.to_dense()
        mask = change(self._mask)
        return _make(self._masked_data.sparse_mask(mask), mask)

    def size(self, dim=None):
        return self._masked_data.size() if dim is None else self._masked_data.size(dim)

    def dim(self):
        return self._masked_data.dim()

    def numel(self):
        return self._masked_data.numel()

    def stride(self, dim=None):
        return self._masked_data.stride() if dim is None else self._masked_data.stride(dim)

    def is_contiguous(self, memory_format=None):
        return self._masked_data.is_contiguous()

    def __len__(self):
        return len(self._masked_data)

    def __iter__(self):
        return iter(self.unbind(0))

    def __hash__(self):
        return id(self)

    def __bool__(self):
        return bool(self._single())

    def __float__(self):
        return float(self._single())

    def __int__(self):
        return int(self._single())

    def item(self):
        return self._single()

    def _single(self):
        if self.numel() != 1 or not bool(self._mask.all()):
            raise RuntimeError("only a MaskedTensor of one element that is not masked out becomes a number; use to_tensor(value)")
        return self._masked_data.item()

    def tolist(self):
        raise RuntimeError(".tolist() is not supported for tensor subclasses, got MaskedTensor; use to_tensor(value).tolist()")

    def numpy(self, *, force=False):
        raise RuntimeError(".numpy() is not supported for tensor subclasses; use to_tensor(value).numpy()")

    def __repr__(self, *, tensor_contents=None):
        if self.dim() == 0:
            counts = bool(self._mask)
            return f"MaskedTensor({_shown(self._masked_data.item()) if counts else '--'}, {counts})"
        lines = "\n".join("  " + line for line in _rows(self._masked_data.detach(), self._mask).split("\n"))
        return f"MaskedTensor(\n{lines}\n)"

    __str__ = __repr__

    def __format__(self, spec):
        return format(repr(self), spec)

    def __deepcopy__(self, memo):
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
        if id(self) not in memo:
            memo[id(self)] = MaskedTensor(self._masked_data.detach(), self._mask.clone(), self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        return MaskedTensor, (self._masked_data.detach(), self._mask, self.requires_grad)


class _WithMaskedGradient(wisp.autograd.Function):
    """The same values; gradients of elements that are masked out are zero."""

    @staticmethod
    def forward(ctx, values, mask):
        ctx.save_for_backward(mask)
        return values.view_as(values)

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return grad.masked_fill(~mask, 0), None


def _shown(value):
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _rows(values, mask):
    if values.dim() == 1:
        return "[" + ", ".join(_shown(v) if m else "      --" for v, m in zip(values.tolist(), mask.tolist())) + "]"
    inner = ",\n".join(_rows(v, m) for v, m in zip(values, mask))
    return "[\n" + "\n".join("  " + line for line in inner.split("\n")) + "\n]"


def _check(data, mask, leaf=False):
    for name, value in (("data", data), ("mask", mask)):
        if not isinstance(value, _core.Tensor) or isinstance(value, MaskedTensor):
            raise TypeError(f"{name} must be a Tensor, got {type(value).__name__}")
    if data.layout is not mask.layout:
        raise TypeError(f"data and mask must have the same layout, got {data.layout} and {mask.layout}")
    if data.requires_grad and wisp.is_grad_enabled() and leaf:
        warnings.warn(
            "It is not recommended to create a MaskedTensor with a tensor that requires_grad. To avoid this, you can use "
            "data.detach().clone(), or as_masked_tensor(data, mask), whose gradient goes on to data",
            stacklevel=4,
        )
    if mask.dtype != wisp.bool:
        raise TypeError("mask must have dtype bool.")
    if data.dim() != mask.dim():
        raise ValueError("data.dim() must equal mask.dim()")
    if tuple(data.shape) != tuple(mask.shape):
        raise ValueError("data.size() must equal mask.size()")


def _same_masks(one, other):
    if one.shape != other.shape or one.layout is not other.layout:
        return False
    return wisp.equal(*((mask if mask.layout is wisp.strided else mask.to_dense()) for mask in (one, other)))


def _make(values, mask):
    self = _core.Tensor._make_subclass(MaskedTensor, wisp.empty(values.shape, dtype=values.dtype, device="meta"))
    self._masked_data, self._mask = values, mask
    return self


def _masked(value):
    return isinstance(value, MaskedTensor)


def _data(value):
    if _masked(value):
        return value._masked_data
    return type(value)(map(_data, value)) if type(value) in (list, tuple) else value


def _mask_of(value):
    if _masked(value):
        return value._mask
    if type(value) in (list, tuple):
        return type(value)(map(_mask_of, value))
    return wisp.ones(value.shape, dtype=wisp.bool, device=value.device) if isinstance(value, _core.Tensor) else value


def _call(function, args, kwargs):
    """Run an operator that was called with a masked tensor."""
    name = function.__name__
    inplace = name.endswith("_") and not name.endswith("__")
    base = name[:-1] if inplace else name
    if base in _SHAPES:
        values, masks = (function(*map(part, args), **{key: part(value) for key, value in kwargs.items()}) for part in (_data, _mask_of))
        return type(values)(map(_make, values, masks)) if isinstance(values, (tuple, list)) else _make(values, masks)
    if name == "__get__":  # an attribute
        value = getattr(_data(args[0]), function.__self__.__name__)
        return args[0]._with(value) if isinstance(value, _core.Tensor) else value
    if base in ("all", "any") and not inplace:
        input, *rest = args
        values = getattr(input.to_tensor(base == "all"), base)(*rest, **kwargs)
        return _make(values, input._mask.any(*rest, **kwargs))
    if base in _REDUCTIONS and not inplace:
        return _reduced(base, *args, **kwargs)
    if base in ("softmax", "log_softmax", "softmin", "cumsum", "cumprod", "normalize"):
        options = {key: value for key, value in kwargs.items() if key in ("dim", "dtype", "eps")}
        return args[0]._with(getattr(wisp.masked, base)(_data(args[0]), *args[1:2], **options, mask=args[0]._mask))
    if base == "where" and len(args) == 3 and not _masked(args[0]) and all(isinstance(value, _core.Tensor) for value in args):
        return _make(*(wisp.where(args[0], *map(part, args[1:])) for part in (_data, _mask_of)))  # each element with its own mask
    if base in elementwise():
        found = [value for value in (*args, *kwargs.values()) if _masked(value)]
        for other in found[1:]:
            if not _same_masks(other._mask, found[0]._mask):
                raise ValueError(f"{name}: Input masks must match; combine the masks, or use to_tensor(value) first.")
        first = found[0]._masked_data
        if len(found) > 1 and first.layout is not wisp.strided and not inplace:  # sparse, at the places of one mask: by their values

            def stored(value):
                return value._masked_data._sparse_values if _masked(value) else value

            return _make(first._with(function(*map(stored, args), **{k: stored(v) for k, v in kwargs.items()})), found[0]._mask)
        values = function(*map(_data, args), **{key: _data(value) for key, value in kwargs.items()})
        if inplace:
            return args[0]
        mask = found[0]._mask
        return _make(values, mask if values.shape == mask.shape else mask.expand(values.shape))
    if base in ("is_floating_point", "is_complex", "is_signed", "element_size"):
        return getattr(_data(args[0]), base)()
    own = vars(MaskedTensor).get(name)
    if getattr(own, "__module__", None) == MaskedTensor.__module__:
        return own(*args, **kwargs)
    if base in ("max", "min") and len(args) == 1 and not kwargs:
        return _reduced("a" + base, *args)
    raise TypeError(f"{name}: not supported for MaskedTensor; use to_tensor(value), which gives an ordinary tensor")


def _reduced(name, input, dim=None, *rest, **options):
    if name == "norm":
        options["ord"] = options.pop("p", 2 if dim is None else dim)
        dim = rest[0] if rest else options.pop("dim", None)
        rest = rest[1:]
    if rest:
        options["keepdim" if name not in ("var", "std") else "unbiased"] = rest[0]
    if name in ("var", "std") and isinstance(dim, bool):
        dim, options["unbiased"] = None, dim
    options["dim"] = dim if dim is not None or name != "median" else -1
    values = getattr(wisp.masked, name)(input._masked_data, mask=input._mask, **options)
    dims = list(range(input.dim())) if dim is None or dim == () else dim
    values = values if values.dim() else values.to_dense()
    mask = input._mask if input._mask.layout is wisp.strided else input._mask.to_dense()
    mask = mask.any(dims, keepdim=bool(options.get("keepdim"))) if input.dim() else mask
    return _make(values, mask if values.layout is wisp.strided else mask.to_sparse(layout=values.layout))
