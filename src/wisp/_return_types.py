"""Named tuples that operators return: `x.max(1).values`."""

MADE = {}  # by name


def make(name, fields):
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
    MADE[name] = type(name, (tuple,), body)
    return MADE[name]
