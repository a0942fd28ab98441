"""Names of PyTorch's symbolic numbers. Wisp runs eagerly: sizes are plain numbers, and these do what Python does."""

import builtins


class SymInt:
    """A size that is not known yet: none is, here."""


class SymFloat:
    """A number that is not known yet: none is, here."""


class SymBool:
    """A truth that is not known yet: none is, here."""


def sym_int(a):
    """a cut to an integer."""
    return builtins.int(a)


def sym_float(a):
    """a as a float."""
    return builtins.float(a)


def sym_not(a):
    """Whether a is false."""
    return not a


def sym_max(a, b):
    """The larger of two numbers."""
    return builtins.max(a, b)


def sym_min(a, b):
    """The smaller of two numbers."""
    return builtins.min(a, b)


def sym_ite(b, t, f):
    """t if b, else f."""
    return t if b else f


def sym_sum(args):
    """The sum of numbers."""
    return builtins.sum(args)


class OutOfMemoryError(RuntimeError):
    """A device has no memory left for a tensor."""


class AcceleratorError(RuntimeError):
    """A device has failed."""
