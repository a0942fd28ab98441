"""What the stubs say that functions of Python return is what they return in the examples of their documentation."""

import contextlib
import dis
import doctest
import importlib
import io
import pathlib
import pkgutil
import sys

import pytest

import wisp

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))
import make_stubs  # noqa: E402
from return_types import ANY, NEVER, SELF, Of  # noqa: E402

ABSTRACT = {"tuple*": tuple, "tuple": tuple, "list": list, "dict": dict, "set": set}
METHODS = {"Iterator": "__next__", "AbstractContextManager": "__enter__", "Callable": "__call__"}


def fits(value, kind, owner):
    """Whether a value is of a type as tools/return_types.py has it; owner: the class of the method that returned it."""
    if kind in (ANY, NEVER):
        return True
    if kind == SELF:
        return isinstance(value, owner)
    if isinstance(kind, type):
        return isinstance(value, (int, float) if kind is float else kind)
    if kind.kind == "given":
        return True
    if kind.kind == "|":
        return any(fits(value, part, owner) for part in kind.parts)
    if kind.kind in METHODS:
        return hasattr(value, METHODS[kind.kind])
    if not isinstance(value, ABSTRACT[kind.kind]):
        return False
    if kind.kind == "dict":
        return all(fits(k, kind.parts[0], owner) and fits(v, kind.parts[1], owner) for k, v in value.items())
    parts = kind.parts if kind.kind == "tuple" else kind.parts * len(value)
    return len(value) == len(parts) and all(fits(each, part, owner) for each, part in zip(value, parts))


class Watch:
    """Looks at what functions return while it is on."""

    def __init__(self):
        stubs = make_stubs.Stubs(make_stubs.public_modules())
        for name in stubs.modules:
            stubs.add_module(name)
        self.declared, self.seen, self.wrong = stubs.declared, set(), set()

    def __call__(self, frame, event, value):
        code = frame.f_code
        if event != "return" or code not in self.declared or code.co_flags & 0x20:  # a generator has its type already
            return
        if not dis.opname[code.co_code[frame.f_lasti]].startswith(("RETURN", "INSTRUMENTED_RETURN")):
            return  # by an exception
        if value is NotImplemented:
            return  # an operator leaves the answer to the other operand, which types do not show
        where, kind, owner = self.declared[code]
        if kind != ANY:
            self.seen.add(where)
        if "MaxPool" in where and isinstance(value, tuple) or where.endswith("Identity::forward") or type(value).__name__ == "Proxy":
            return  # return_indices is an argument of the class, which has one type for its objects; Identity is used with tensors
        if not fits(value, kind, owner):
            self.wrong.add(f"{where} returned {type(value).__name__}, not {kind}")


@pytest.mark.filterwarnings("ignore")
def test_results():
    watch = Watch()
    modules = [wisp]
    for found in pkgutil.walk_packages(wisp.__path__, "wisp.", onerror=lambda name: None):
        if not found.name.startswith((*make_stubs.SILENT, "wisp._compat", "wisp.distributed", "wisp.hub")):
            modules.append(importlib.import_module(found.name))
    sys.setprofile(watch)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # whether they print what they say is for other tests
            for module in modules:
                doctest.testmod(module, report=False, extraglobs={"wisp": wisp})
    finally:
        sys.setprofile(None)
    assert not watch.wrong, "\n".join(sorted(watch.wrong))
    assert len(watch.seen) > 500, len(watch.seen)


def test_what_the_source_tells():
    """The rules by which results are read from functions."""
    import return_types

    inference = return_types.Inference(lambda value, owner: None)
    space = {"wisp": wisp}
    source = pathlib.Path(wisp.__file__).parent / "_never_written.py"

    def read(text):
        code = compile(text, str(source), "exec")
        tree = compile(text, str(source), "exec", 0x400)
        nodes = {(node.lineno, node.name): node for node in tree.body}
        exec(code, space)
        name = tree.body[-1].name
        return return_types.Body(inference, space[name], None, nodes[tree.body[-1].lineno, name]).result()

    assert read("def f(x):\n    x.append(1)") is type(None)
    assert read("def f(x):\n    return x in (1, 2)") is bool
    assert read("def f(x):\n    return x == 1") == ANY  # tensors compare by element
    assert read("def f(x):\n    return f'{x}'") is str
    assert read("def f(x):\n    return len(x), None") == Of("tuple", (int, type(None)))
    assert read("def f(x):\n    if x:\n        return 1") == Of("|", (int, type(None)))
    assert read("def f(x):\n    if x:\n        return 1\n    raise ValueError") is int
    assert read("def f(x):\n    while True:\n        if x:\n            return 1") is int
    assert read("def f(x):\n    y = []\n    y.append(1)\n    return y") == Of("list", (ANY,))
    assert read("def f(x):\n    yield 1") == Of("Iterator", (int,))
    assert read("def f(x, y):\n    return x") == Of("given", ("x",))
    assert read("def f(x, y):\n    x = y.z\n    return x") == ANY
    wraps = "import functools\n    @functools.wraps(x)\n    def g(): ..."
    assert read(f"def f(x):\n    {wraps}\n    return g") == Of("given", ("x",))
    assert read("def f(x):\n    for i in range(3):\n        x = i\n        y = i\n    return y * 2.0") is float
