"""What is known of unknown sizes: that one is another."""

from dataclasses import dataclass

__all__ = ["Equality", "Var"]


@dataclass(frozen=True)
class Var:
    """An unknown size.

    >>> Var(0)
    ~0
    """

    token: int

    def __str__(self):
        return f"~{self.token}"

    __repr__ = __str__


class Equality:
    """Two sizes are the same.

    >>> Equality(Var(0), 3)
    ~0 = 3
    """

    def __init__(self, lhs, rhs):
        self.lhs, self.rhs = lhs, rhs

    def __repr__(self):
        return f"{self.lhs} = {self.rhs}"

    def __eq__(self, other):
        return isinstance(other, Equality) and (self.lhs, self.rhs) == (other.lhs, other.rhs)

    __hash__ = None
