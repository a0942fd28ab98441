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
    return wisp.ones(*size, dtype=wisp.bool).tril()


def causal_lower_right(*size):
    """The mask whose triangle ends in the lower right corner.

    >>> import wisp
    >>> wisp.nn.attention.bias.causal_lower_right(2, 3).int()
    tensor([[1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return wisp.ones(*size, dtype=wisp.bool).tril(size[-1] - size[-2])


class CausalBias:
    """The class of such masks in PyTorch; here they are ordinary tensors."""
