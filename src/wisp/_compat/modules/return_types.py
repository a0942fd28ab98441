"""The named tuples that operators return, `x.max(1).values`, by name: `wisp.return_types.max`.

>>> isinstance(wisp.max(wisp.tensor([[1, 2]]), dim=1), wisp.return_types.max)
True
"""

_MADE = {}  # by name


def _make(name, fields):
    """A tuple class with named items, printed as PyTorch prints its own."""

    def show(self):
        return f"torch.return_types.{name}(\n" + ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self)) + ")"

    def construct(cls, values):
        return tuple.__new__(cls, values)

    body = {
        "__slots__": (),
        "__repr__": show,
        "__new__": construct,
        "_fields": tuple(fields),
        "__match_args__": tuple(fields),
        "__module__": "wisp.return_types",
        "n_fields": len(fields),
        "__reduce__": lambda self: (tuple, (tuple(self),)),
    }
    for i, field in enumerate(fields):
        body[field] = property(lambda self, i=i: self[i])
    _MADE[name] = type(name, (tuple,), body)
    return _MADE[name]


def __getattr__(name):
    short = name.removesuffix("_out").removeprefix("linalg_")  # with out=, and in linalg, it is the same class here
    if short in _MADE:
        return _MADE[short]
    raise AttributeError(f"module 'wisp.return_types' has no attribute {name!r}")


def __dir__():
    return sorted(_MADE)
