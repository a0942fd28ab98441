"""Masks of attention as objects."""

import wisp

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant:
    """Where the triangle of a causal mask lies in a matrix that is not square."""

    UPPER_LEFT, LOWER_RIGHT = 1, 2


def causal_upper_left(*size):
    """The mask whose triangle begins in the upper left corner.

    >>> import wisp
    >>> wisp.nn.attention.bias.causal_upper_left(2, 3).int()
    tensor([[1, 0, 0],
            [1, 1, 0]], dtype=torch.int32)
    """
    return wisp.ones(*size, dtype=wisp.bool).tril().as_subclass(CausalBias)


def causal_lower_right(*size):
    """The mask whose triangle ends in the lower right corner.

    >>> import wisp
    >>> wisp.nn.attention.bias.causal_lower_right(2, 3).int()
    tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return wisp.ones(*size, dtype=wisp.bool).tril(size[-1] - size[-2]).as_subclass(CausalBias)


class CausalBias(wisp.Tensor):
    """Such a mask: a tensor of booleans, which goes to the device of what it is used with."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        others = [x for x in (*args, *kwargs.values()) if isinstance(x, wisp.Tensor) and not isinstance(x, cls)]

        def plain(x):
            if not isinstance(x, cls):
                return x
            x = x.as_subclass(wisp.Tensor)
            return x.to(others[0].device) if others else x

        with wisp.DisableTorchFunctionSubclass():
            return func(*map(plain, args), **{name: plain(x) for name, x in kwargs.items()})
