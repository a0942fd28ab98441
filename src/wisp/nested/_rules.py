"""The table of operators that nested tensors have rules for, and what the rules say of dimensions."""

from wisp.nested._tensor import NestedTensor

RULES = {}


def refused(name):
    return NotImplementedError(f"{name}: not supported for nested tensors; use unbind() and work on the parts, or to_padded_tensor(value)")


def rule(*names):
    def enter(function):
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def _nested(value):
    return isinstance(value, NestedTensor)


def _dim(input, dim, name, batch=False):
    """A dimension of a nested tensor that is neither the batch nor ragged, as one of the values."""
    dim = _wrapped(input, dim)
    if input._ragged is None or dim == 0 or dim == input._ragged:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on {'dim=0' if dim == 0 else 'ragged dim'}, got dim={dim}")
    return dim - 1


def _wrapped(input, dim):
    count = input.dim()
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but got {dim})")
    return dim % count
