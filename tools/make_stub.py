"""Writes wisp/_core.pyi, the type stub of the core, from the signatures that its operators were registered with.

python tools/make_stub.py            write the file
python tools/make_stub.py --check    fail if it is not what would be written
"""

import keyword
import pathlib
import re
import sys

import wisp
from wisp import _core

PATH = pathlib.Path(__file__).parent.parent / "src" / "wisp" / "_core.pyi"
TYPES = {
    "Tensor": "Tensor",
    "Operand": "Tensor | _Number",
    "Tensor[]": "Sequence[Tensor]",
    "int...": "int",
    "any": "Any",
    "Tensor?[]": "Sequence[Tensor | None]",
    "Number": "_Number",
    "int": "int",
    "int[]": "int | Sequence[int]",
    "float": "float",
    "bool": "_bool",
    "str": "str",
    "dtype": "dtype",
    "device": "device | str | int",
    "format": "memory_format",
    "Generator": "Generator",
}
RESULTS = {"bool": "_bool", "Number": "_Number"}  # names that mean something else in the stub
HEAD = """# Written by tools/make_stub.py from the registered signatures; a test checks that it is fresh.
# ruff: noqa: E501
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

_Number = int | float | complex
_bool = bool

"""


def parameter(text):
    """`Tensor? out=None` -> `out: Tensor | None = None`"""
    declared, _, preset = text.partition("=")
    kind, name = declared.replace("!", "").split()
    star = "*" if kind == "int..." else ""
    optional = kind.endswith("?")
    kind = kind[:-1] if optional else kind
    annotation = TYPES[kind] + (" | None" if optional else "")
    name += "_" if keyword.iskeyword(name) else ""
    return f"{star}{name}: {annotation}" + (" = ..." if preset else "")


def parse(signature):
    """-> the parameters as text, and the names of the parts of the result"""
    inside, _, names = re.fullmatch(r"[\w.]+\((.*?)\)(\s*->\s*(.*))?", signature).groups()
    parts, depth, word = [], 0, ""
    for c in inside + ",":
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(word.strip())
            word = ""
        else:
            word += c
    parts = [p if p == "*" else parameter(p) for p in parts if p]
    return parts, re.findall(r"\w+", names) if names and names.startswith("(") else []


def named(name, fields, classes):
    """The type of a result whose parts have names."""
    kind = "_" + "".join(word.capitalize() for word in name.split("_"))
    classes[kind] = [f"class {kind}(NamedTuple):", *(f"    {field}: Tensor" for field in fields)]
    return kind


def definitions(name, operator, method, classes):
    lines, seen = [], []
    for signature, result in zip(operator._signatures, operator._results):
        parameters, fields = parse(signature)
        result = named(signature[: signature.index("(")], fields, classes) if fields else RESULTS.get(result, result)
        if method:
            parameters = ["self", *parameters[1:]]
        if any(p.startswith("*") and len(p) > 1 for p in parameters):
            parameters = [p for p in parameters if p != "*"]
        if parameters and parameters[-1] == "*":
            parameters.pop()
        line = f"def {name}({', '.join(parameters)}) -> {result}: ..."
        if line not in seen:
            seen.append(line)
    for line in seen:
        lines += (["@overload"] if len(seen) > 1 else []) + [line]
    return lines


def make():
    lines, classes = [], {}
    for name in ("dtype", "device", "layout", "memory_format", "Generator", "Size", "Node"):
        lines.append(f"class {name}{'(tuple[int, ...])' if name == 'Size' else ''}: ...")
    lines += ["", "class Tensor:"]
    for name in sorted(set(dir(_core.Tensor)) - set(dir(object))):
        if name.startswith("__") and name not in ("__getitem__", "__setitem__", "__len__", "__iter__"):
            continue
        if keyword.iskeyword(name):
            continue
        value = getattr(_core.Tensor, name)
        if hasattr(value, "_signatures"):
            lines += ["    " + line for line in definitions(name, value, True, classes)]
        elif callable(value):
            lines.append(f"    def {name}(self, *args: Any, **kwargs: Any) -> Any: ...")
        else:
            lines.append(f"    {name}: Any")
    lines.append("    def __getattr__(self, name: str) -> Any: ...")
    lines.append("")
    known = {"Tensor", "dtype", "device", "layout", "memory_format", "Generator", "Size", "Node"}
    for name in sorted(set(vars(_core)) - known):
        value = getattr(_core, name)
        if name.startswith("__") or keyword.iskeyword(name):
            continue
        if hasattr(value, "_signatures"):
            lines += definitions(name, value, False, classes)
        elif isinstance(value, (_core.dtype, _core.layout, _core.memory_format)):
            lines.append(f"{name}: {type(value).__name__}")
        else:
            lines.append(f"{name}: Any")
    lines += ["", *(line for kind in sorted(classes) for line in classes[kind])]
    return HEAD + "\n".join(lines) + "\n"


def main():
    text = make()
    if "--check" in sys.argv[1:]:
        if not PATH.exists() or PATH.read_text() != text:
            raise SystemExit("wisp/_core.pyi is not fresh: run python tools/make_stub.py")
        return
    PATH.write_text(text)
    print(f"{PATH}: {len(text.splitlines())} lines, wisp {wisp.__version__}")


if __name__ == "__main__":
    main()
