"""The `_foreach_*` functions: an operator applied to each tensor of a list. Those that work in place return the list itself."""

from wisp import _core

_BINARY = "add sub mul div clamp_max clamp_min maximum minimum pow"


def _each(other, count):
    """`other` for each of the tensors: a list has one for each, a number or tensor is for all."""
    if not isinstance(other, (list, tuple)):
        return [other] * count
    if len(other) != count:
        if not len(other) or not isinstance(other[0], _core.Tensor):
            raise RuntimeError("Tensor list must have same number of elements as scalar list.")
        raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(other)}")
    return other


def _apply(tensors, name, *lists, **kwargs):
    if len(tensors) == 0:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for other in lists:
        _each(other, len(tensors))
    result = _one_launch(tensors, lambda: tuple([getattr(t, name)(*rest, **kwargs) for t, *rest in zip(tensors, *lists)]))
    return tensors if name.endswith("_") else result


def _one_launch(tensors, apply):
    """What `apply` returns; on a GPU its pointwise calls are one launch."""
    if tensors[0].device.type != "cuda":
        return apply()
    _core._operators["_cuda"]["begin_list"]()
    try:
        return apply()
    finally:
        _core._operators["_cuda"]["end_list"]()


def _are_plain(*lists):
    from wisp.nn import Parameter

    return all({_core.Tensor, Parameter}.issuperset(map(type, tensors)) for tensors in lists)


def _named(function, name, text):
    function.__name__, function.__doc__ = "_foreach_" + name, text
    return function


def _unary(name):
    def function(self):
        return _apply(self, name)

    return _named(function, name, f"`{name}` of each tensor.")


def _binary(name):
    plain = name.rstrip("_")
    method = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(plain, plain) + ("_" if name.endswith("_") else "")

    def function(self, other=None, *, alpha=1, **named):
        if named:  # by the name that the overload has for it
            called, given = named.popitem()
            if other is not None or named or called not in ("scalar", "scalars", "exponent"):
                raise TypeError(f"_foreach_{name}() expects other, scalar, scalars or exponent, once, but got {called}={given!r}, too")
            other = given
        elif other is None:
            raise TypeError(f"_foreach_{name}() expects other, scalar, scalars or exponent, but got only tensors")
        if name == "pow" and not isinstance(self, (list, tuple)):  # one base for all exponents
            return tuple(_core._operators[""]["pow"](self, exponent) for exponent in other)
        extra = {} if alpha == 1 else {"alpha": alpha}
        return _apply(self, method, _each(other, len(self)), **extra)

    return _named(function, name, f"`{name}` of each tensor and its partner.")


def _ternary(name):
    def function(self, tensor1, tensor2, value=None, *, scalars=None):
        values, count = value if scalars is None else scalars, len(self)
        if isinstance(values, _core.Tensor):
            if values.dim() != 1:
                raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {values.dim()} instead.")
            if not values.is_contiguous():
                raise RuntimeError("Expected scalars to be contiguous.")
            if len(values) != count:
                raise RuntimeError(f"Expected length of scalars to match input of length {count} but got {len(values)} instead.")
            values = values.tolist()
        values = _each(1 if values is None else values, count)
        partners = zip(self, _each(tensor1, count), _each(tensor2, count), values)
        result = _one_launch(self, lambda: tuple([getattr(t, name)(a, b, value=v) for t, a, b, v in partners]))
        return self if name.endswith("_") else result

    return _named(function, name, f"`{name}` of each tensor and its partners.")


def _lerp(name):
    def function(self, tensors1, weight):
        # One call for all: moving averages of models do it at every step.
        if name == "lerp_" and isinstance(weight, (int, float)) and len(self) == len(tensors1) > 0 and _are_plain(self, tensors1):
            _one_launch(self, lambda: _core._operators[""]["_lerp_list_"](self, tensors1, weight))
            return self
        return _apply(self, name, tensors1, _each(weight, len(self)))

    return _named(function, name, "Each tensor moved towards its partner.")


def _foreach_norm(self, ord=2, dtype=None):
    """The norm of each tensor."""
    norm = _core._operators["linalg"]["vector_norm"]
    if ord == float("inf") and any(t.numel() == 0 for t in self):
        raise RuntimeError(
            "_foreach_norm cannot compute the infinity norm on an empty tensor because the operation does not have an identity"
        )
    return tuple(norm(t, ord, dtype=dtype) for t in self)


def _foreach_powsum(self, ord=2, dtype=None):
    """The sum of the powers of each tensor's elements."""
    return tuple(t.abs().pow(ord).sum(dtype=dtype) for t in self)


def _foreach_mm(self, mat2):
    """The product of each matrix and its partner."""
    return _apply(self, "mm", mat2)


def _foreach_max(self):
    """The largest element of each tensor."""
    if any(tensor.numel() == 0 for tensor in self):
        raise RuntimeError("_foreach_max cannot compute the maximum of an empty tensor; max over zero elements is undefined.")
    return _apply(self, "max")


def _foreach_clone(self, *, memory_format=None):
    """A copy of each tensor."""
    return _apply(self, "clone")


def _foreach_zero_(self):
    """Set each tensor to 0."""
    return _apply(self, "zero_")


def _foreach_copy_(self, src, non_blocking=False):
    """Copy each tensor of src into its partner."""
    return _apply(self, "copy_", src)


FUNCTIONS = [
    *(_unary(name + suffix) for name in _core._operators_with("in_foreach") for suffix in ("", "_")),
    *(_binary(name + suffix) for name in _BINARY.split() for suffix in ("", "_")),
    *(_ternary(name + suffix) for name in ("addcmul", "addcdiv") for suffix in ("", "_")),
    *(_lerp(name) for name in ("lerp", "lerp_")),
    _foreach_norm,
    _foreach_powsum,
    _foreach_mm,
    _foreach_max,
    _foreach_clone,
    _foreach_zero_,
    _foreach_copy_,
]
METHODS = []
INPLACE = []
