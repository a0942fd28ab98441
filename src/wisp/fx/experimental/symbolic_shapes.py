"""Names of symbolic sizes: sizes are plain numbers here."""


def guard_size_oblivious(expr):
    """The truth of the expression."""
    return bool(expr)


guard_or_true = guard_or_false = guard_scalar = statically_known_true = guard_bool = guard_size_oblivious


def guard_int(value):
    """The number."""
    return int(value)


def is_symbolic(value):
    """False."""
    return False


def has_free_symbols(value):
    """False."""
    return False


free_symbols = free_unbacked_symbols = set


class ShapeEnv:
    """What is known of sizes: all."""
