"""The `_foreach_*` functions: an operator applied to each tensor of a list."""

from wisp import _core

_BINARY = "add sub mul div clamp_max clamp_min maximum minimum pow"


def _each(other, count):
    """`other` for each of the tensors: a list has one for each, a number or tensor is for all."""
    if isinstance(other, (list, tuple)):
        if len(other) != count:
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(other)}")
        return other
    return [other] * count


def _apply(tensors, name, *lists, **kwargs):
    if len(tensors) == 0:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return tuple(getattr(t, name)(*rest, **kwargs) for t, *rest in zip(tensors, *lists))


def _unary(name):
    def function(self):
        result = _apply(self, name)
        return None if name.endswith("_") else result

    function.__name__ = "_foreach_" + name
    function.__doc__ = f"`{name}` of each tensor."
    return function


def _binary(name):
    plain = name.rstrip("_")
    method = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(plain, plain) + ("_" if name.endswith("_") else "")

    def function(self, other, *, alpha=1):
        others = _each(other, len(self))
        extra = {} if alpha == 1 else {"alpha": alpha}
        result = _apply(self, method, others, **extra)
        return None if name.endswith("_") else result

    function.__name__ = "_foreach_" + name
    function.__doc__ = f"`{name}` of each tensor and its partner."
    return function


def _ternary(name):
    def function(self, tensor1, tensor2, value=None, *, scalars=None):
        values = value if scalars is None else scalars
        if isinstance(values, _core.Tensor):
            values = values.tolist()
        values = _each(1 if values is None else values, len(self))
        result = tuple(getattr(t, name)(a, b, value=v) for t, a, b, v in zip(self, tensor1, tensor2, values))
        return None if name.endswith("_") else result

    function.__name__ = "_foreach_" + name
    function.__doc__ = f"`{name}` of each tensor and its partners."
    return function


def _lerp(name):
    def function(self, tensors1, weight):
        result = _apply(self, name, tensors1, _each(weight, len(self)))
        return None if name.endswith("_") else result

    function.__name__ = "_foreach_" + name
    function.__doc__ = "Each tensor moved towards its partner."
    return function


def _foreach_norm(self, ord=2, dtype=None):
    """The norm of each tensor."""
    norm = _core._operators["linalg"]["vector_norm"]
    return tuple(norm(t, ord, dtype=dtype) for t in self)


def _foreach_max(self):
    """The largest element of each tensor."""
    return _apply(self, "max")


def _foreach_clone(self, *, memory_format=None):
    """A copy of each tensor."""
    return _apply(self, "clone")


def _foreach_zero_(self):
    """Set each tensor to 0."""
    _apply(self, "zero_")


def _foreach_copy_(self, src, non_blocking=False):
    """Copy each tensor of src into its partner."""
    _apply(self, "copy_", src)


FUNCTIONS = [
    *(_unary(name + suffix) for name in _core._operators_with("in_foreach") for suffix in ("", "_")),
    *(_binary(name + suffix) for name in _BINARY.split() for suffix in ("", "_")),
    *(_ternary(name + suffix) for name in ("addcmul", "addcdiv") for suffix in ("", "_")),
    *(_lerp(name) for name in ("lerp", "lerp_")),
    _foreach_norm,
    _foreach_max,
    _foreach_clone,
    _foreach_zero_,
    _foreach_copy_,
]
METHODS = []
INPLACE = []
