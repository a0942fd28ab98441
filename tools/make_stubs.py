"""Writes the type stubs of the package: what pyright, mypy and editors know of it.

    python tools/make_stubs.py [--core FILE] FOLDER    write them below FOLDER, with the core in FILE if it is not beside the sources

Every public module gets a stub with the names that it has when it is imported. Operators of the core get the types of their registered
signatures. What is written in Python gets its parameters from the source, with types where they are annotated, or where a default tells
them, and Any elsewhere. What it returns is read from its source (tools/return_types.py) where neither an annotation nor
tools/types/results.txt says it. The classes for which that is too little are described by hand in tools/types/*.pyi, each file for the
module of its name: a member that stands there replaces the one found.
"""

import argparse
import ast
import builtins
import enum
import fnmatch
import functools
import importlib
import importlib.util
import inspect
import keyword
import pathlib
import pkgutil
import re
import sys
import types
import warnings

import return_types
from operator_types import operator_forms
from return_types import ANY, NONE, SELF, Of

ROOT = pathlib.Path(__file__).resolve().parent.parent
PIECES = ROOT / "tools" / "types"
PLAIN = {kind.__name__: kind for kind in (bool, int, float, complex, str, bytes, object)} | {"None": NONE, "Self": SELF}
TYPING = "Any Generic Literal NamedTuple NoReturn ParamSpec Protocol Self SupportsIndex TypeIs TypeVar overload".split()
ABSTRACT = "Callable ItemsView Iterable Iterator KeysView Mapping Sequence Sized ValuesView".split()
VARIABLES = {
    "_T": '_T = TypeVar("_T")',
    "_T_co": '_T_co = TypeVar("_T_co", covariant=True)',
    "_R": '_R = TypeVar("_R", covariant=True)',
    "_P": '_P = ParamSpec("_P")',
    "_F": '_F = TypeVar("_F", bound=Callable[..., Any])',
    "_M": '_M = TypeVar("_M", bound=Module)',
    "_Indexed": "class _Indexed(Protocol[_T_co]):\n    def __getitem__(self, i: int, /) -> _T_co: ...\n    def __len__(self) -> int: ...",
    "_Forward": "class _Forward(Protocol[_P, _R]):\n    def forward(self, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...",
}
MUTE = """
    __repr__ __str__ __dir__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __getnewargs__ __copy__ __deepcopy__ __del__ __new__
    __init_subclass__ __class_getitem__ __subclasshook__ __instancecheck__ __signature__ __annotate_func__""".split()
OF_OBJECT = set(dir(object)) - {"__init__", "__eq__"}  # described where every class has them from
HOLDERS = {list: "list[Any]", dict: "dict[Any, Any]", set: "set[Any]", frozenset: "frozenset[Any]", tuple: "tuple[Any, ...]"}
INNER = {  # names that programs import although they are not public
    "wisp": ["__version__", "_assert"],
    "wisp.nn.init": ["_calculate_fan_in_and_fan_out", "_calculate_correct_fan"],
    "wisp.optim.lr_scheduler": ["_LRScheduler"],
    "wisp.nn.modules.utils": ["_ntuple", "_single", "_pair", "_triple", "_quadruple"],
}
MARK = "# Written by tools/make_stubs.py.\n"
SILENT = ("wisp.__main__", "wisp.as_torch", "wisp.run", "wisp.cli", "wisp.sklearn", "wisp.distributed.ray")


class Core:
    """Finds the core in a file that is not beside the package."""

    def __init__(self, file):
        self.file = file

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, self.file) if name == "wisp._core" else None


def has_place(name):
    """Whether a stub can stand where the module's source would be. Modules that a table makes (wisp.xpu.amp) have no folder, and get none:
    the import system would take it for the module."""
    folder = ROOT.joinpath("src", *name.split(".")[:-1])
    return name == "wisp" or (folder / "__init__.py").exists()


def public_modules():
    """Name -> module, of all modules that a program may import."""
    import wisp
    from wisp import _compat

    names = {"wisp", *(f"wisp.{name}" for name in _compat.NAMES)}
    names |= {info.name for info in pkgutil.walk_packages(wisp.__path__, "wisp.", onerror=lambda name: None)}
    found = {}
    for name in sorted(names):
        if "._" not in name and not name.startswith(SILENT):
            found[name] = importlib.import_module(name)
    made = {name: module for name, module in sys.modules.items() if name.startswith("wisp.") and "._" not in name}  # wisp.backends.cudnn
    found = {**{name: module for name, module in made.items() if not name.startswith(SILENT)}, **found}
    return {name: module for name, module in sorted(found.items()) if has_place(name)}


def exported(home, own, name):
    """A name of another module: under a name of its own an import makes it known to others, under a new one only an assignment does."""
    return [f"from {home} import {own} as {own}"] if own == name else [f"from {home} import {own} as _as_{name}", f"{name} = _as_{name}"]


class Stubs:
    def __init__(self, modules):
        from wisp import _core
        from wisp._tensor import legacy

        self.old_tensors = {*legacy.TYPES.values(), *legacy.CUDA_TYPES.values()}
        self.core, self.modules = _core, modules
        self.texts = {}  # module -> {name: lines}
        core_classes = [name for name, value in vars(_core).items() if isinstance(value, type)]
        self.classes = dict.fromkeys(core_classes, "wisp._core")  # name of a class -> the module that defines it
        self.named = {}  # results of operators whose parts have names
        self.imports = {}  # module -> {(home, name, alias)}
        self.declared = {}  # code of a function -> (where it is, what it is said to return, its class): tests look whether it does
        self.inference = return_types.Inference(self.known)
        self.results = []
        for line in (PIECES / "results.txt").read_text().splitlines():
            kind, _, patterns = line.partition(": ")
            if not line.startswith("#"):
                self.results += [(re.compile(fnmatch.translate(pattern)), kind.strip()) for pattern in patterns.split()]
        self.pieces = {}  # id of an object -> its nodes
        for path in sorted(PIECES.glob("*.pyi")):
            space = _core if path.stem == "core" else importlib.import_module(path.stem if path.stem == "wisp" else f"wisp.{path.stem}")
            for node in ast.parse(path.read_text()).body:
                self.pieces.setdefault(id(getattr(space, node.name)), []).append(node)

    # Where things are defined.

    def home(self, value, found_in):
        """The module whose stub defines a value that is public in `found_in`."""
        if hasattr(value, "_signatures"):
            for space, operators in self.core._operators.items():
                if value in operators.values():
                    return f"wisp.{space}" if space and not space.startswith("_") else "wisp._core"
            return "wisp._core" if getattr(self.core, value.__name__, None) is value else found_in
        if isinstance(value, type) and vars(self.core).get(value.__name__) is value:
            return "wisp._core"
        if vars(self.core).get(getattr(value, "__name__", "")) is value:
            return "wisp._core"
        module = sys.modules.get(getattr(value, "__module__", None) or "")
        if module is None or module.__name__.partition(".")[0] != "wisp" or not has_place(module.__name__):
            return found_in
        return module.__name__ if vars(module).get(value.__name__) is value else found_in

    def add_module(self, name):
        module = self.modules[name]
        self.texts.setdefault(name, {})
        members = set(dir(module)) | set(dir(type(module))) - set(dir(types.ModuleType))  # switches are properties of a module's class
        public = {n for n in members if not n.startswith("_")} | set(getattr(module, "__all__", ()))
        lazy = vars(module).get("_LAZY", ())  # some modules answer to any name
        public |= {*(n for n in lazy if not n.startswith("_")), *INNER.get(name, ())}
        for public_name in sorted(public):
            if keyword.iskeyword(public_name) or not public_name.isidentifier():
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(module, public_name, None)
            declared = public_name in (*getattr(module, "__all__", ()), *lazy)
            self.add(name, public_name, value, declared)

    def add(self, module, name, value, declared=True):
        if name in self.texts[module]:
            return
        if isinstance(value, types.ModuleType):
            if value.__name__ in self.modules:
                parent, _, last = value.__name__.rpartition(".")
                self.texts[module][name] = [f"from {parent or last} import {last} as {name}"] if parent else []
            elif declared and type(value) is not types.ModuleType:  # wisp.ops
                self.texts[module][name] = [f"{name}: Any"]
            return
        if isinstance(value, (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)) or hasattr(value, "_signatures"):
            mine = hasattr(value, "_signatures") or str(getattr(value, "__module__", "")).partition(".")[0] in ("wisp", "torch")
            mine = mine or vars(self.core).get(getattr(value, "__name__", "")) is value
            if not mine:
                known = isinstance(value, type) and getattr(sys.modules.get(value.__module__), value.__name__, None) is value
                if declared and known and value.__module__ != "builtins":
                    self.texts[module][name] = [f"from {value.__module__} import {value.__name__} as {name}"]
                elif declared:
                    self.texts[module][name] = [f"{name}: Any"]
                return
            home = self.home(value, module)
            own = name if hasattr(value, "_signatures") else value.__name__
            if home == module and own != name and self.texts[module].get(own) is None and vars(sys.modules[module]).get(own) is not value:
                own = name  # a second name of something that has no place under its own
            if home != module or own != name:
                if home != module:
                    self.define(home, own, value)
                    self.texts[module][name] = exported(home, own, name)
                else:
                    self.define(home, own, value)
                    self.texts[module][name] = [f"{name} = {own}"]
                return
            self.define(module, name, value)
            return
        self.texts[module][name] = [f"{name}: {self.kind(value)}"]

    def kind(self, value):
        """The type of a plain value."""
        if type(value) in (bool, int, float, str):
            return type(value).__name__
        if isinstance(value, (self.core.dtype, self.core.layout, self.core.memory_format, self.core.Generator)):
            return type(value).__name__
        return "Any"

    def define(self, module, name, value):
        texts = self.texts.setdefault(module, {})
        if name in texts:
            return
        texts[name] = []  # a class may be reached again from its bases
        if isinstance(value, type):
            self.classes.setdefault(name, module)
            texts[name] = self.class_lines(module, name, value)
        elif id(value) in self.pieces:
            texts[name] = [line for node in self.pieces[id(value)] for line in ast.unparse(node).splitlines()]
        elif hasattr(value, "_signatures"):
            texts[name] = self.operator_lines(name, value, False)
        else:
            texts[name] = self.function_lines(name, value, f"{module.partition('.')[2]}:{name}", module)

    # What they look like.

    def result_of(self, path):
        found = [kind for pattern, kind in self.results if pattern.match(path)]
        return found[-1] if found else "Any"

    def known(self, value, owner):
        """What is known of a function, or of a member of a class by its name (`name()` if it is called), without reading its source."""
        if isinstance(value, str):
            return self.known_member(value, owner)
        if hasattr(value, "_signatures"):
            results = {"Any" if "->" in signature else result for signature, result in zip(value._signatures, value._results)}
            return self.parsed(results.pop()) if len(results) == 1 else ANY
        if id(value) in self.pieces and not isinstance(value, type):
            results = {ast.unparse(node.returns) for node in self.pieces[id(value)]}
            return self.parsed(results.pop()) if len(results) == 1 else ANY
        given = getattr(value, "__annotations__", {}).get("return", "")
        home = getattr(value, "__module__", None) or ""
        path = f"{home.partition('.')[2]}" + (f".{owner.__name__}::" if owner else ":") + getattr(value, "__name__", "")
        said = given if isinstance(given, str) and given else self.result_of(path)
        return None if said == "Any" else self.parsed(said)

    def known_member(self, name, owner):
        for cls in owner.__mro__:
            for node in self.pieces[id(cls)][0].body if id(cls) in self.pieces else ():
                if isinstance(node, ast.AnnAssign) and node.target.id == name:
                    return self.parsed(ast.unparse(node.annotation))
                if isinstance(node, ast.FunctionDef) and name in (node.name, node.name + "()"):
                    overloaded = any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)
                    return ANY if overloaded or name == node.name else self.parsed(ast.unparse(node.returns))
            if name.removesuffix("()") in vars(cls):
                return None  # another member of this name
        return None

    def parsed(self, text):
        """A type as it is written -> as return_types has it."""

        def read(node):
            if isinstance(node, ast.Constant) and node.value is None:
                return NONE
            if isinstance(node, ast.Name):
                home = self.classes.get(node.id)
                return PLAIN.get(node.id) or (vars(sys.modules[home])[node.id] if home else ANY)
            if isinstance(node, ast.BinOp):
                return return_types.union([read(node.left), read(node.right)])
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                if node.value.id == "tuple" and isinstance(parts[-1], ast.Constant) and parts[-1].value is Ellipsis:
                    return Of("tuple*", (read(parts[0]),))
                if node.value.id in ("tuple", "list", "dict", "set", "Iterator"):
                    return Of(node.value.id, tuple(map(read, parts)))
                return return_types.CALLABLE if node.value.id == "Callable" else ANY
            return ANY

        return read(ast.parse(text, mode="eval").body)

    def written(self, module, kind):
        """A type as the stub of a module writes it."""
        if kind in (ANY, return_types.NEVER):
            return "Any"
        if kind in (SELF, NONE):
            return "Self" if kind == SELF else "None"
        if isinstance(kind, type):
            if kind.__module__ == "builtins":
                return kind.__name__
            if self.classes.get(kind.__name__) == "wisp._core":
                return kind.__name__
            return self.base(module, kind) or "Any"
        if kind.kind == "given":
            return "Any"
        parts = [self.written(module, part) for part in kind.parts]
        if kind.kind == "|":
            # A choice of two things is a burden to those who call: only what may be missing, and numbers, are told.
            several = [part for part in kind.parts if part is not NONE]
            simple = len(several) == 1 or all(part in PLAIN.values() for part in several)
            return " | ".join(parts) if simple and "Any" not in parts else "Any"
        if kind.kind == "Callable":
            return "Callable[..., Any]"
        if kind.kind == "tuple*":
            return f"tuple[{parts[0]}, ...]"
        return f"{kind.kind}[{', '.join(parts) or '()'}]"

    def read_result(self, function, owner, name):
        """What a function returns as its source tells it, or the base of its class."""
        kind = self.inference.read(function, owner)
        for cls in subclasses(owner) if owner else ():
            other = vars(cls).get(name)
            other = getattr(other, "fget", getattr(other, "__func__", other))
            if isinstance(other, types.FunctionType) and self.inference.read(other, cls) not in (kind, ANY):
                return ANY  # it depends on the class
        if kind == ANY and owner and issubclass(owner, self.core.Tensor):
            kind = self.inherited(owner, name)
        return kind if owner or kind != SELF else ANY

    def inherited(self, owner, name):
        for base in owner.__mro__[1:]:
            if name in vars(base) or id(base) in self.pieces:
                known = self.known_member(name + "()", base) or self.known_member(name, base)
                value = vars(base).get(name)
                value = getattr(value, "fget", value)
                if known is None and (isinstance(value, types.FunctionType) or hasattr(value, "_signatures")):
                    known = self.inference.function(value, base)
                if known not in (None, ANY):
                    return known
        return ANY

    def operator_lines(self, name, operator, method):
        seen = []
        for signature, result in zip(operator._signatures, operator._results):
            fields = re.search(r"->\s*\((.*)\)", signature)
            if fields:
                kind = "_" + "".join(word.capitalize() for word in signature[: signature.index("(")].split("_"))
                self.named[kind] = [f"class {kind}(NamedTuple):", *(f"    {field}: Tensor" for field in re.findall(r"\w+", fields[1]))]
                result = kind
            for parameters, returned in operator_forms(signature, result, method):
                line = f"def {name}({', '.join(parameters)}) -> {returned}: ..."
                if line not in seen:
                    seen.append(line)
        return [line for each in seen for line in (["@overload"] if len(seen) > 1 else []) + [each]]

    def annotation(self, parameter):
        given, default = parameter.annotation, parameter.default
        if given is not parameter.empty:
            return given if isinstance(given, str) else given.__name__ if isinstance(given, type) else "Any"
        if isinstance(default, bool):
            return "bool"
        if isinstance(default, (float, str)) and parameter.name not in ("lr", "device", "ord", "padding", "value", "p", "dtype", "out"):
            return type(default).__name__
        return "Any"

    def function_lines(self, name, function, path, module, decorator=None, owner=None):
        try:
            signature = inspect.signature(function)
        except (ValueError, TypeError):
            signature = None
        written, starred, positional = [], False, False
        for parameter in signature.parameters.values() if signature else ():
            text = parameter.name
            if positional and parameter.kind != parameter.POSITIONAL_ONLY:
                written.append("/")
            positional = parameter.kind == parameter.POSITIONAL_ONLY
            if parameter.kind == parameter.KEYWORD_ONLY and not starred:
                written.append("*")
            starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
            text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + text
            if decorator is not None and not written and decorator != "staticmethod":
                written.append(parameter.name)
                continue
            written.append(f"{text}: {self.annotation(parameter)}" + " = ..." * (parameter.default is not parameter.empty))
        if positional:
            written.append("/")
        if signature is None:
            written = ["self"] * (decorator in ("", "property")) + ["cls"] * (decorator == "classmethod") + ["*args: Any", "**kwargs: Any"]
        given = signature.return_annotation if signature else inspect.Signature.empty
        result = given if isinstance(given, str) else self.result_of(path) if given is inspect.Signature.empty else "Any"
        plain = isinstance(function, types.FunctionType)
        kind = self.parsed(result)
        if name == "__init__":
            result = "None"
        elif result == "Any" and given in (inspect.Signature.empty, "Any") and plain:
            kind = self.read_result(function, owner, name)
            result = self.written(module, kind)
            if return_types.is_given(kind) and not owner:
                argument = f"{kind.parts[0]}: "
                same = [argument + "_T" + text[len(argument) + 3 :] if text.startswith(argument + "Any") else text for text in written]
                written, result = (same, "_T") if same != written else (written, "Any")
        if given is inspect.Signature.empty and plain and function.__code__.co_name == name:  # not the code of a decorator
            self.declared[function.__code__] = path, kind, owner
        return ([f"@{decorator}"] if decorator else []) + [f"def {name}({', '.join(written)}) -> {result}: ..."]

    def base(self, module, cls):
        """How a base class is written, or None if nothing is known of it."""
        if cls.__module__ == "builtins":
            return None if cls is object else HOLDERS.get(cls, cls.__name__)
        if cls.__module__.partition(".")[0] in ("wisp", "torch"):
            home = self.home(cls, module)
            if vars(sys.modules[home]).get(cls.__name__) is not cls:
                return None
            self.define(home, cls.__name__, cls)
            return cls.__name__ if home == module else self.imported(module, home, cls.__name__)
        if cls.__module__ == "typing" or getattr(sys.modules.get(cls.__module__), cls.__name__, None) is not cls:
            return None
        return self.imported(module, cls.__module__, cls.__name__)

    def imported(self, module, home, name):
        """The name of a class of another module: one of its own, since the module may have a class that is called like its base."""
        alias = f"_{home.replace('.', '_')}_{name}"
        self.imports.setdefault(module, set()).add((home, name, alias))
        return alias

    def class_lines(self, module, name, cls):
        nodes = self.pieces.get(id(cls), [])
        piece = nodes[0] if nodes else None
        if cls in self.old_tensors:
            return [f"class {name}(Tensor): ..."]
        members, header = {}, f"class {name}"
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return [f"class {name}(NamedTuple):", *(f"    {field}: Any" for field in cls._fields)] + ["    ..."] * (not cls._fields)
        bases = [written for base in cls.__bases__ if (written := self.base(module, base))]
        if piece is not None and piece.bases:
            bases = [ast.unparse(base) for base in piece.bases]
        if bases:
            header += f"({', '.join(bases)})"
        described = {}
        for node in piece.body if piece is not None else ():
            if isinstance(node, (ast.FunctionDef, ast.AnnAssign)):
                target = node.name if isinstance(node, ast.FunctionDef) else node.target.id
                described.setdefault(target, []).extend(ast.unparse(node).splitlines())
        for member in () if name == "Node" else (dir(cls) if module == "wisp._core" else vars(cls)):
            if member.startswith("_") and not (re.fullmatch("__[a-z_]+__", member) and callable(getattr(cls, member, None))):
                continue
            if member in MUTE or keyword.iskeyword(member) or member in OF_OBJECT:
                continue
            if member in described or member == "__init__" and module == "wisp._core":
                continue
            if issubclass(cls, self.core.Tensor) and is_passed_on(cls, member):
                continue
            if issubclass(cls, tuple) and hasattr(tuple, member) and not isinstance(vars(cls).get(member), types.FunctionType):
                continue  # described where tuples are
            members[member] = self.member_lines(module, name, cls, member)
        if "__eq__" in {*members, *described} and "__hash__" not in described and cls.__hash__ is not None:
            members["__hash__"] = ["def __hash__(self) -> int: ..."]  # one that is equal to others has none unless it says so
        if module != "wisp._core":
            for attribute, kind in self.attributes(module, cls).items():
                members.setdefault(attribute, [f"{attribute}: {kind}"])
        members.update(described)
        body = ["    " + line for lines in members.values() for line in lines]
        return [header + ":", *(body or ["    ..."])]

    def member_lines(self, module, name, cls, member):
        value = inspect.getattr_static(cls, member)
        path = f"{name}::{member}" if module == "wisp._core" else f"{module.partition('.')[2]}.{name}::{member}"
        if hasattr(value, "_signatures"):
            return self.operator_lines(member, value, True)
        if isinstance(value, (staticmethod, classmethod)):
            return self.function_lines(member, value.__func__, path, module, type(value).__name__, cls)
        if isinstance(value, property):
            result = self.result_of(path)
            if result == "Any" and isinstance(value.fget, types.FunctionType):
                kind = self.read_result(value.fget, cls, member)
                result = self.written(module, kind)
                if value.fget.__code__.co_name == member:  # not code that many share
                    self.declared[value.fget.__code__] = path, kind, cls
            lines = ["@property", f"def {member}(self) -> {result}: ..."]
            return lines + ([f"@{member}.setter", f"def {member}(self, value: Any) -> None: ..."] if value.fset else [])
        if issubclass(cls, enum.Enum) and isinstance(value, cls):
            return [f"{member} = ..."]
        if isinstance(value, type):
            return [f"{member}: type[Any]"]
        if callable(value):
            return self.function_lines(member, value, path, module, "", cls)
        return [f"{member}: {self.kind(value)}"]

    def attributes(self, module, cls):
        """Public attributes that the methods of a class give its objects -> their types: of `__init__`'s parameters, or of the package."""
        found, parameters = {}, {}
        init = vars(cls).get("__init__")
        if isinstance(init, types.FunctionType):
            parameters = {p.name: self.annotation(p) for p in inspect.signature(init).parameters.values()}
        for attribute in attributes_set(getattr(sys.modules.get(cls.__module__), "__file__", None)).get(cls.__name__, ()):
            found[attribute] = parameters.get(attribute, "Any")
            kind = self.inference.attribute(cls, attribute) if found[attribute] == "Any" else ANY
            if isinstance(kind, type) and kind.__module__.partition(".")[0] in ("wisp", "torch"):
                found[attribute] = self.written(module, kind)
        for attribute, annotation in getattr(cls, "__dict__", {}).get("__annotations__", {}).items():
            if not attribute.startswith("_"):
                found[attribute] = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")
        return found

    # The files.

    def text(self, module):
        texts = self.texts[module]
        lines = [line for name in sorted(texts) for line in texts[name]]
        if module == "wisp._core":
            lines += [line for kind in sorted(self.named) for line in self.named[kind]]
        tree = unshadow(ast.parse("\n".join(lines)))
        defined = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        defined |= {n.target.id for n in tree.body if isinstance(n, ast.AnnAssign)}
        defined |= {alias.asname for n in tree.body if isinstance(n, ast.ImportFrom) for alias in n.names}
        head, variables, wanted = [], [], names_in(tree)
        for home, name, alias in sorted(self.imports.get(module, ())):
            head.append(f"from {home} import {name} as {alias}")
            defined.add(alias)
        for name in list(wanted):
            if name in VARIABLES:
                variables.append(name)
        if variables:
            wanted |= set().union(*(names_in(ast.parse(VARIABLES[name])) for name in variables))
            variables = [name for name in VARIABLES if name in wanted]
            wanted |= set().union(*(names_in(ast.parse(VARIABLES[name])) for name in variables))
        for name in sorted(wanted - defined):
            if name in TYPING:
                head.append(f"from {'typing_extensions' if name in ('Self', 'TypeIs') else 'typing'} import {name}")
            elif name == "AbstractContextManager":
                head.append("from contextlib import AbstractContextManager")
            elif name in ABSTRACT:
                head.append(f"from collections.abc import {name}")
            elif name == "np":
                head.append("import numpy as np")
            elif name == "builtins":
                head.append("import builtins")
            elif name in self.named:
                head.append(f"from wisp._core import {name}")
            elif name in self.classes:
                head.append(f"from {self.classes[name]} import {name}")
            elif not hasattr(builtins, name) and name not in VARIABLES and not name.startswith("_the_"):
                raise SystemExit(f"make_stubs: nothing is known of {name}, in the stub of {module}")
        aliases = [f"{name} = {name[5:]}" for name in sorted(wanted) if name.startswith("_the_")]
        parts = [*head, *(VARIABLES[name] for name in VARIABLES if name in variables), ast.unparse(tree), *aliases]
        return MARK + "\n".join(parts) + "\n"


def subclasses(cls):
    return {below for each in type.__subclasses__(cls) for below in (each, *subclasses(each)) if below.__module__.startswith("wisp")}


def is_passed_on(cls, member):
    """Whether a class has a member of its base only to do something before it: it takes whatever comes."""
    if not isinstance(vars(cls).get(member), types.FunctionType) or not any(hasattr(base, member) for base in cls.__bases__):
        return False
    kinds = {parameter.kind for parameter in list(inspect.signature(vars(cls)[member]).parameters.values())[1:]}
    return kinds == {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


@functools.cache
def attributes_set(file):
    """Class -> the public attributes that its methods set, for the classes at the top of a source file."""
    found = {}
    for cls in ast.parse(pathlib.Path(file).read_text()).body if file and file.endswith(".py") else ():
        if isinstance(cls, ast.ClassDef):
            stores = [node for node in ast.walk(cls) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
            own = [node.attr for node in stores if isinstance(node.value, ast.Name) and node.value.id == "self"]
            found[cls.name] = sorted({name for name in own if not name.startswith("_")})
    return found


def names_in(tree):
    """The names that stand for something, not those that are given a type."""
    nodes = list(ast.walk(tree))
    setters = {node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "setter"}
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in setters}


def unshadow(tree):
    """Annotations mean what they say where a member or a name of the module is called like a type: `Tensor.dtype`, `wisp.float`."""

    class Rename(ast.NodeTransformer):
        def __init__(self, names, everywhere):
            self.names, self.everywhere = names, everywhere

        def visit_Name(self, node):
            if node.id not in self.names:
                return node
            if hasattr(builtins, node.id):
                return ast.Attribute(ast.Name("builtins", ast.Load()), node.id, ast.Load())
            return node if node.id in self.everywhere else ast.Name(f"_the_{node.id}", ast.Load())

        def annotations(self, node):
            for part in ast.walk(node):
                if isinstance(part, ast.arg) and part.annotation:
                    part.annotation = self.visit(part.annotation)
                elif isinstance(part, ast.FunctionDef) and part.returns:
                    part.returns = self.visit(part.returns)
                elif isinstance(part, ast.AnnAssign):
                    part.annotation = self.visit(part.annotation)

    top = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            top.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            top.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            top |= {alias.asname for alias in node.names}
    plain = {name for name in top if hasattr(builtins, name)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            members = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
            members |= {n.target.id for n in node.body if isinstance(n, ast.AnnAssign)}
            Rename(members | plain, set()).annotations(node)
            node.bases = [Rename(plain, set()).visit(base) for base in node.bases]
        else:
            Rename(plain, set()).annotations(node)
    return ast.fix_missing_locations(tree)


def write(folder):
    modules = public_modules()
    stubs = Stubs(modules)
    for name in modules:
        stubs.add_module(name)
    for name in list(vars(stubs.core)):
        if not name.startswith("_"):
            stubs.texts.setdefault("wisp._core", {})
            stubs.add("wisp._core", name, getattr(stubs.core, name))
    for old in folder.rglob("*.pyi"):
        if old.read_text().startswith(MARK):
            old.unlink()
    for name in stubs.texts:
        place = folder.joinpath(*name.split(".")[1:])
        package = ROOT.joinpath("src", *name.split("."), "__init__.py").exists()
        path = place / "__init__.pyi" if package else place.with_name(place.name + ".pyi")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(stubs.text(name))
    for below in {path.parent for path in folder.rglob("*.pyi")}:
        if not (below / "__init__.pyi").exists():  # a folder without one is taken for no package, where the sources are seen too
            (below / "__init__.pyi").write_text(MARK)
    return len(stubs.texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--core", help="the built core, if it is not in src/wisp")
    parser.add_argument("folder", type=pathlib.Path)
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    if given.core:
        sys.meta_path.insert(0, Core(given.core))
    print(f"{write(given.folder)} stubs in {given.folder}")


if __name__ == "__main__":
    main()
