"""The text of an operator's signature, taken apart: `torch.parse_schema`."""

import ast
import enum
import re

from wisp import jit


class AggregationType(enum.IntEnum):
    """How distributed autograd's statistics are put together."""

    SUM = 0
    AVG = 1


SUM, AVG = AggregationType.SUM, AggregationType.AVG


class FatalError(Exception):
    """An error after which a program should not go on."""


JITException = jit.Error


class AliasInfo:
    """Which memory an argument shares with others, by letters, and whether it is written to."""

    def __init__(self, before, after, is_write):
        self.before_set, self.after_set, self.is_write = before, after, is_write


class Argument:
    """An argument of an operator, or a result of it."""

    def __init__(self, name, type, default, has_default, kwarg_only, count, alias):
        self.name, self.type, self.real_type, self.default_value, self.kwarg_only = name, type, type, default, kwarg_only
        self.N, self.alias_info, self._has_default = count, alias, has_default
        self.is_write = alias is not None and alias.is_write
        self.is_out = self.kwarg_only and self.is_write

    def has_default_value(self):
        """Whether a call may leave it out."""
        return self._has_default


class FunctionSchema:
    """Name, arguments and results of an operator."""

    def __init__(self, text, name, overload_name, arguments, returns):
        self._text, self.name, self.overload_name, self.arguments, self.returns = text, name, overload_name, arguments, returns

    @property
    def is_mutable(self):
        """Whether an argument is written to."""
        return any(argument.is_write for argument in self.arguments)

    def is_backward_compatible_with(self, old_schema):
        """Whether calls for the older signature fit: the same arguments first, and a value for each that is new."""
        mine, theirs = self.arguments, old_schema.arguments
        kinds = lambda values: [(value.name, value.type) for value in values]
        return (
            (self.name, self.overload_name) == (old_schema.name, old_schema.overload_name)
            and [value.type for value in self.returns] == [value.type for value in old_schema.returns]
            and kinds(mine[: len(theirs)]) == kinds(theirs)
            and all(argument.has_default_value() for argument in mine[len(theirs) :])
        )

    def __str__(self):
        return self._text

    __repr__ = __str__

    def __eq__(self, other):
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self):
        return hash(self._text)


_TYPES = {"Scalar": "number", "ScalarType": "int", "Layout": "int", "Device": "Device", "MemoryFormat": "int", "SymInt": "int"}
_TYPE = re.compile(
    r"(\w+(?:\.\w+)*)(\(([a-z|*]+)(!?)(?:\s*->\s*([a-z|*]+))?!?\))?((?:\[\d*\]|\?)*)(\(([a-z|*]+)(!?)\))?\s*(\w+)?\s*(=\s*(.*))?$"
)


def _split(text):
    """The parts between commas that stand in no brackets."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _value(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a name such as contiguous_format or Mean


def _argument(text, kwarg_only=False):
    found = _TYPE.match(text.strip())
    if found is None:
        raise RuntimeError(f"parse_schema: {text!r} is no argument; expected a type and a name, such as `Tensor self` or `int[2] size=1`")
    kind, _, letters, written, after, suffix, _, late, late_written, name, _, default = found.groups()
    letters, written = letters or late, written or late_written
    alias = None if letters is None else AliasInfo(set(letters.split("|")), set((after or letters).split("|")), bool(written))
    kind, count = _TYPES.get(kind, kind), None
    for piece in re.findall(r"\[\d*\]|\?", suffix):
        kind = f"Optional[{kind}]" if piece == "?" else f"List[{kind}]"
        count = int(piece[1:-1]) if len(piece) > 2 else count
    return Argument(name or "", kind, None if default is None else _value(default), default is not None, kwarg_only, count, alias)


def parse_schema(schema, allow_typevars=True):
    """The parts of a signature such as `aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`.

    >>> import wisp
    >>> found = wisp.parse_schema("mine::scale(Tensor x, *, float by=2.0) -> Tensor")
    >>> found.name, [(argument.name, argument.default_value) for argument in found.arguments]
    ('mine::scale', [('x', None), ('by', 2.0)])
    """
    found = re.match(r"\s*([\w:]+)(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.+?)\s*$", schema, re.S)
    if found is None:
        raise RuntimeError(f"parse_schema: {schema!r} is no signature; expected `name(arguments) -> results`")
    name, overload, given, results = found.groups()
    arguments, kwarg_only = [], False
    for part in _split(given):
        if part == "*":
            kwarg_only = True
        elif part != "...":
            arguments.append(_argument(part, kwarg_only))
    listed = results.startswith("(") and results.endswith(")")
    returns = [_argument(part) for part in _split(results[1:-1] if listed else results)]
    unknown = [a.type for a in (*arguments, *returns) if len(a.type) == 1]  # a letter that stands for any type
    if unknown and not allow_typevars:
        raise RuntimeError(f"parse_schema: the types {unknown} are variables, which allow_typevars=False forbids")
    return FunctionSchema(" ".join(schema.split()), name, overload or "", arguments, returns)
