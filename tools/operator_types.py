"""Types of the core's operators from their registered signatures: parameters, and the forms in which one may be called (make_stubs.py)."""

import itertools
import keyword
import re

TYPES = {  # of the parameters of operators
    "Tensor": "Tensor",
    "Operand": "Tensor | complex",
    "Tensor[]": "Sequence[Tensor]",
    "int...": "int",
    "any": "Any",
    "Tensor?[]": "Sequence[Tensor | None]",
    "Number": "complex",
    "int": "int",
    "int[]": "int | Sequence[int]",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dtype": "dtype",
    "device": "device | str | int",
    "format": "memory_format",
    "Generator": "Generator",
}
SWITCHES = ("return_indices", "return_inverse", "return_counts", "as_tuple")  # parameters that make more of a Tensor


def split_parameters(text):
    parts, depth, word = [], 0, ""
    for c in text + ",":
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(word.strip())
            word = ""
        else:
            word += c
    return [part for part in parts if part]


def operator_parameter(text):
    """`Tensor? out=None` -> ("out", "Tensor | None", True)"""
    declared, _, preset = text.partition("=")
    kind, name = declared.translate({ord(mark): None for mark in "!~^&"}).split()
    optional = kind.endswith("?") or name in ("pin_memory", "requires_grad")  # `**{"device": device, "dtype": None}` may stand for any
    kind = kind.removesuffix("?")
    return name + "_" * keyword.iskeyword(name), TYPES[kind] + " | None" * optional, bool(preset), kind == "int..."


def operator_forms(signature, result, method):
    """The forms of one registered signature as (parameters, result); several where one has several ways to be written."""
    inside = re.fullmatch(r"[\w.]+\((.*?)\)(\s*->\s*(.*))?", signature)[1]
    parts = [part if part == "*" else operator_parameter(part) for part in split_parameters(inside)][method:]
    named = [part[0] for part in parts if part != "*"]
    ways = [True, False] if any(part != "*" and part[3] for part in parts) else [False]  # zeros(2, 3) and zeros((2, 3))
    switches = [name for name in named if name in SWITCHES] if result == "Any" else []
    kinds = [(dict(zip(switches, values)), switched(switches, values)) for values in itertools.product((False, True), repeat=len(switches))]
    kinds = [*kinds, ({}, "Any")] if switches else [({}, result)]  # the last for switches that are not known when the program is read
    for spread in ways:
        for values, returned in kinds:
            written, keywords = ["self"] * method, False
            for part in parts:
                if part == "*":
                    if not keywords and not spread:
                        written.append("*")
                    keywords = True
                    continue
                name, kind, preset, several = part
                if several and not spread:
                    kind = "int | Sequence[int]"
                if name in values:
                    kind, preset = f"Literal[{values[name]}]", not values[name]
                    if not preset and not keywords:
                        written.append("*")
                        keywords = True
                written.append(("*" if several and spread else "") + f"{name}: {kind}" + " = ..." * preset)
            if written and written[-1] == "*":
                written.pop()
            yield written, returned


def switched(switches, values):
    """What an operator returns whose switches, which add to a Tensor, have these values."""
    if "as_tuple" in switches and any(values):
        return "tuple[Tensor, ...]"
    return f"tuple[{', '.join(['Tensor'] * (1 + sum(values)))}]" if any(values) else "Tensor"
