"""What the stubs say that functions of Python return is what they return in the examples of their documentation."""

import contextlib
import dis
import doctest
import importlib
import importlib.util
import io
import pathlib
import pkgutil
import sys

import pytest

import wisp

ROOT = pathlib.Path(__file__).parents[2]

FAMILIES = (
    "_composites",
    "nn.functional",
    "linalg",
    "fft",
    "special",
    "signal",
    "nn.init",
    "nn.modules",
    "nn.utils",
    "distributions",
    "sparse",
)
PLAIN = {"Tensor": wisp.Tensor, "Size": wisp.Size, "dtype": wisp.dtype, "device": wisp.device, "Generator": wisp.Generator}
PLAIN |= {"int": int, "float": float, "bool": bool, "str": str, "None": type(None), "dict[str, Any]": dict}


def fits(value, kind):
    """Whether a value is of a type as results.txt writes it."""
    if kind in PLAIN:
        return isinstance(value, PLAIN[kind])
    if kind.startswith(("tuple[", "list[")):
        container, _, inside = kind[:-1].partition("[")
        parts = inside.split(", ")
        parts = parts[:1] * len(value) if container == "list" or parts[-1] == "..." else parts
        return type(value).__mro__[-2].__name__ == container and len(value) == len(parts) and all(map(fits, value, parts))
    return callable(value) if kind.startswith("Callable") else type(value).__name__ == kind


@pytest.mark.filterwarnings("ignore")
def test_results():
    spec = importlib.util.spec_from_file_location("make_stubs", ROOT / "tools" / "make_stubs.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    stubs = tool.Stubs(tool.public_modules())
    for name in stubs.modules:
        stubs.add_module(name)
    seen, wrong = set(), set()

    def look(frame, event, value):
        code = frame.f_code
        if (
            event == "return"
            and code in stubs.declared
            and dis.opname[code.co_code[frame.f_lasti]].startswith(("RETURN", "INSTRUMENTED_RETURN"))
        ):
            where, kind = stubs.declared[code]
            seen.add(where)
            if "MaxPool" in where and isinstance(value, tuple):
                return  # return_indices is an argument of the class, which has one type for its objects
            if not fits(value, kind):
                wrong.add(f"{where} returned {type(value).__name__}, not {kind}")

    modules = [wisp, *(importlib.import_module(f"wisp.{name}") for name in FAMILIES)]
    for module in list(modules[1:]):
        modules += [
            importlib.import_module(found.name) for found in pkgutil.walk_packages(getattr(module, "__path__", ()), module.__name__ + ".")
        ]
    sys.setprofile(look)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # whether they print what they say is for other tests
            for module in modules:
                doctest.testmod(module, report=False, extraglobs={"wisp": wisp})
    finally:
        sys.setprofile(None)
    assert not wrong, "\n".join(sorted(wrong))
    assert len(seen) > 150, len(seen)
