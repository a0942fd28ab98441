"""Shapes as types of a graph's values, where some sizes may be unknown."""

__all__ = ["Dyn", "TensorType", "is_consistent", "is_more_precise"]


class _DynType:
    """What is not known: a size, or a whole shape."""

    __name__ = "_DynType"

    def __eq__(self, other):
        return isinstance(other, _DynType)

    def __hash__(self):
        return hash(_DynType)

    def __repr__(self):
        return "Dyn"


Dyn = _DynType()


class TensorType:
    """A tensor of known sizes, each a number or `Dyn`; annotations write `TensorType((1, Dyn))` or `TensorType[1, Dyn]`.

    >>> TensorType((2, Dyn))
    TensorType[2, Dyn]
    """

    def __init__(self, dim):
        self.dims = self.__args__ = tuple(dim)

    def __class_getitem__(cls, dims):
        return cls(dims if isinstance(dims, tuple) else (dims,))

    def __eq__(self, other):
        return isinstance(other, TensorType) and self.dims == other.dims

    def __hash__(self):
        return hash(self.dims)

    def __repr__(self):
        return f"TensorType[{', '.join(map(str, self.dims))}]"


def is_consistent(t1, t2):
    """Whether a value may be of both types.

    >>> is_consistent(TensorType((1, Dyn)), TensorType((1, 3)))
    True
    """
    if t1 == t2 or Dyn in (t1, t2):
        return True
    both = isinstance(t1, TensorType) and isinstance(t2, TensorType) and len(t1.dims) == len(t2.dims)
    return both and all(map(is_consistent, t1.dims, t2.dims))


def is_more_precise(t1, t2):
    """Whether the first type says at least as much as the second.

    >>> is_more_precise(TensorType((1, Dyn)), TensorType((1, 3)))
    False
    """
    if t1 == t2 or t2 == Dyn:
        return True
    both = isinstance(t1, TensorType) and isinstance(t2, TensorType) and len(t1.dims) == len(t2.dims)
    return both and all(map(is_more_precise, t1.dims, t2.dims))
