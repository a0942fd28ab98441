"""Python's operators for classes that are tensors to the outside and handled by name inside."""

from wisp import _core

_PAIRS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "matmul": "matmul",
    "pow": "pow",
}


def by_name(cls):
    """Gives `cls` arithmetic and comparisons by way of the named operators."""
    for short, name in _PAIRS.items():
        op = getattr(_core, name)
        setattr(cls, f"__{short}__", lambda self, other, op=op: op(self, other))
        setattr(cls, f"__r{short}__", lambda self, other, op=op: op(other, self))
        if short != "matmul":
            setattr(cls, f"__i{short}__", lambda self, other, name=name: getattr(self, name + "_")(other))
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(cls, f"__{name}__", lambda self, other, op=getattr(_core, name): op(self, other))
    for short, name in {"neg": "neg", "pos": "positive", "abs": "abs", "invert": "bitwise_not"}.items():
        setattr(cls, f"__{short}__", lambda self, op=getattr(_core, name): op(self))
    cls.__hash__ = _core.Tensor.__hash__
