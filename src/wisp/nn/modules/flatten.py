"""Flatten and Unflatten."""

from wisp.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Joins a range of dimensions, by default all but the first.

    >>> import wisp
    >>> tuple(wisp.nn.Flatten()(wisp.zeros(2, 3, 4)).shape)
    (2, 12)
    """

    __constants__ = ["start_dim", "end_dim"]

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits one dimension into several.

    >>> import wisp
    >>> tuple(wisp.nn.Unflatten(1, (3, 4))(wisp.zeros(2, 12)).shape)
    (2, 3, 4)
    """

    __constants__ = ["dim", "unflattened_size"]

    def __init__(self, dim, unflattened_size):
        super().__init__()
        if isinstance(dim, int):
            if not isinstance(unflattened_size, (tuple, list)):
                raise TypeError("unflattened_size must be a tuple of ints, but found type " + type(unflattened_size).__name__)
            for i, size in enumerate(unflattened_size):
                if not isinstance(size, int):
                    raise TypeError(f"unflattened_size must be tuple of ints, but found element of type {type(size).__name__} at pos {i}")
        elif isinstance(dim, str):
            raise TypeError("named dimensions are not supported; give the dimension as an int")
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input):
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
