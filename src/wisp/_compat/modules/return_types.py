"""The named tuples that operators return, `x.max(1).values`, by name: `wisp.return_types.max`.

>>> isinstance(wisp.max(wisp.tensor([[1, 2]]), dim=1), wisp.return_types.max)
True
"""

_MADE = {}  # by name


def _make(name, fields):
    """The class of a result with named items."""
    from wisp import _core

    return _enter(name, _core._struct_sequence(name, fields))


def _enter(name, kind):
    """Let a class print its values as PyTorch's do, and be found by name."""
    fields = kind.__match_args__
    kind._fields = fields
    kind.__repr__ = lambda self: f"torch.return_types.{name}(\n" + ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self)) + ")"
    kind.__reduce__ = lambda self: (tuple, (tuple(self),))  # files and copies hold plain tuples
    _MADE[name] = kind
    return kind


def __getattr__(name):
    short = name.removesuffix("_out").removeprefix("linalg_")  # with out=, and in linalg, it is the same class here
    if short in _MADE:
        return _MADE[short]
    raise AttributeError(f"module 'wisp.return_types' has no attribute {name!r}")


def __dir__():
    return sorted(_MADE)
