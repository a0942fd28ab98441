"""What the functions of the package return, read from their source: `tools/make_stubs.py` asks where nothing else says it.

A type here is a class (of which the value is an object), `Of` for what has parts, or one of the words below. Whatever cannot be known
is ANY, which spreads: a function has a type only if all of its returns have one. Local names have the types of all that is bound to them.
"""

import ast
import builtins
import collections
import functools
import importlib
import inspect
import pathlib
import sys
import types

ANY, SELF, NEVER = "Any", "Self", "Never"  # nothing is known; an object of the class at hand; it does not return
# kind: tuple, tuple*, list, dict, set, Iterator, AbstractContextManager, Callable, | (one of the parts), given (the argument of this name)
Of = collections.namedtuple("Of", "kind parts")
NONE = type(None)
NUMBERS = (bool, int, float, complex)
HOLD = {list: "list", dict: "dict", set: "set", tuple: "tuple*"}
FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, staticmethod, classmethod, functools.partial)
CALLABLE = Of("Callable", ())
BUILTINS = dict.fromkeys((len, id, hash, ord), int) | dict.fromkeys((isinstance, issubclass, hasattr, callable, any, all), bool)
BUILTINS |= dict.fromkeys((repr, chr, format, hex, oct, bin, ascii), str) | {sorted: Of("list", (ANY,)), iter: Of("Iterator", (ANY,))}
METHODS = {  # of the builtin types
    str: dict.fromkeys("join format strip lstrip rstrip lower upper replace title capitalize ljust rjust center removeprefix".split(), str)
    | dict.fromkeys("startswith endswith isdigit isidentifier".split(), bool)
    | dict.fromkeys("find rfind count index".split(), int)
    | {"split": Of("list", (str,)), "splitlines": Of("list", (str,)), "encode": bytes},
    "list": {"append": NONE, "extend": NONE, "sort": NONE, "clear": NONE, "count": int, "index": int},
    "dict": {"clear": NONE, "update": NONE},
}


def union(kinds):
    parts = []
    for kind in kinds:
        for part in kind.parts if isinstance(kind, Of) and kind.kind == "|" else (kind,):
            if part == ANY:
                return ANY
            if part not in parts and part != NEVER:
                parts.append(part)
    if NEVER in kinds and not parts:
        return NEVER
    return parts[0] if len(parts) == 1 else Of("|", tuple(parts)) if parts else NEVER


def inside(kind):
    """The type of what an iteration over something gives."""
    if isinstance(kind, Of) and kind.kind in ("tuple", "tuple*", "list", "set", "dict", "Iterator") and kind.parts:
        return kind.parts[0] if kind.kind == "dict" else union(kind.parts)
    return {str: str, range: int}.get(kind, ANY)


@functools.cache
def functions_in(file):
    """(first line, name) -> the node, of all functions of a source file; lambdas only where they are alone in their line."""
    found, lambdas = {}, collections.Counter()
    for node in ast.walk(ast.parse(pathlib.Path(file).read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.name] = node
        elif isinstance(node, ast.Lambda):
            found[node.lineno, "<lambda>"] = node
            lambdas[node.lineno] += 1
    return {key: node for key, node in found.items() if key[1] != "<lambda>" or lambdas[key[0]] == 1}


def own_nodes(body):
    """The nodes of a function's body, without those of functions and classes in it."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)


def ends(body):
    """Whether nothing comes after these statements: they return or raise."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return ends(last.body) and ends(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return ends(last.body)
    if isinstance(last, ast.Try):
        whole = (ends(last.body) or ends(last.orelse)) and all(ends(handler.body) for handler in last.handlers)
        return whole or ends(last.finalbody)
    if isinstance(last, ast.While):
        endless = isinstance(last.test, ast.Constant) and last.test.value
        return bool(endless) and not any(isinstance(node, ast.Break) for node in own_nodes(last.body))
    if isinstance(last, ast.Match):
        return all(ends(case.body) for case in last.cases) and isinstance(last.cases[-1].pattern, (ast.MatchAs,))
    return isinstance(last, (ast.Return, ast.Raise))


def is_trivial(node):
    """Whether a function is only there to be overridden."""
    return all(isinstance(part, (ast.Pass, ast.Expr)) and not isinstance(getattr(part, "value", None), ast.Call) for part in node.body)


class Inference:
    """`declared(value, owner)` is what is known of a function or a member without its source, as a type or None."""

    def __init__(self, declared):
        self.declared = declared
        self.known, self.under_way, self.bodies = {}, set(), {}
        self.circles = 0  # how often something was asked for that is under way: what is found then may be less than the whole

    def function(self, function, owner=None):
        """What a function returns that was found in the class `owner`."""
        if isinstance(function, (staticmethod, classmethod, types.MethodType)):
            function = function.__func__
        given = self.declared(function, owner)
        return given if given is not None else self.read(function, owner)

    def read(self, function, owner=None):
        manager = getattr(function, "__code__", None) and function.__code__.co_filename.endswith("contextlib.py")
        function = inspect.unwrap(function)
        code = getattr(function, "__code__", None)
        if code is None or "wisp" not in pathlib.Path(code.co_filename).parts:
            return ANY
        key = function, owner
        if key in self.under_way:
            self.circles += 1
            return NEVER
        kind = self.known.get(key)
        if kind is None:
            before = self.circles
            self.under_way.add(key)
            node = functions_in(code.co_filename).get((code.co_firstlineno, code.co_name))
            kind = ANY if node is None else self.body(function, owner, node).result()
            self.under_way.discard(key)
            if not self.under_way or self.circles == before:
                self.known[key] = kind
        if manager:
            return Of("AbstractContextManager", (inside(kind),))
        return kind

    def body(self, function, owner, node):
        key = function, owner
        if key not in self.bodies:
            self.bodies[key] = Body(self, function, owner, node)
        return self.bodies[key]

    def member(self, cls, name):
        """(the function that it is or None, the type of the attribute or ANY) of an object's member."""
        given = self.declared(name, cls)
        if given is not None:
            return None, given
        for base in cls.__mro__:
            if name in vars(base):
                value = vars(base)[name]
                if isinstance(value, property):
                    return None, self.function(value.fget, cls)
                if isinstance(value, FUNCTIONS) or hasattr(value, "_signatures"):
                    return value, CALLABLE
                break
        return None, self.attribute(cls, name)

    def attribute(self, cls, name):
        """The type of what the methods of a class store in an attribute."""
        before, kinds = self.circles, []
        if (cls, name) in self.known:
            return self.known[cls, name]
        for base in cls.__mro__:
            if name in vars(base):
                kinds.append(type(vars(base)[name]) if type(vars(base)[name]) in (*NUMBERS, str, NONE) else ANY)
            for function in vars(base).values():
                code = getattr(function, "__code__", None)
                if code is None or name not in code.co_names or "wisp" not in pathlib.Path(code.co_filename).parts:
                    continue
                node = functions_in(code.co_filename).get((code.co_firstlineno, code.co_name))
                key = function, cls, name
                if node is None or key in self.under_way:
                    self.circles += node is not None
                    continue
                self.under_way.add(key)
                kinds += self.body(function, cls, node).stored(name)
                self.under_way.discard(key)
        kind = union(kinds) if kinds else ANY
        if self.circles == before:
            self.known[cls, name] = kind
        return kind


class Body:
    """One function: its names, and the types of its expressions."""

    def __init__(self, inference, function, owner, node):
        self.inference, self.owner, self.node = inference, owner, node
        self.globals = function.__globals__
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        self.outer = {name: cell.cell_contents for name, cell in cells if cell_is_full(cell)}
        self.bindings, self.values = {}, {}  # local name -> what gives it a type; local name -> what it is, for imports
        self.under_way = set()
        arguments = node.args
        self.first = None
        for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            kind = self.annotated(each.annotation, Of("given", (each.arg,)))
            if owner is not None and self.first is None and not self.bindings and not is_static(owner, function):
                self.first, kind = each.arg, SELF
            self.bindings[each.arg] = [lambda kind=kind: kind]
        if arguments.vararg:
            self.bindings[arguments.vararg.arg] = [lambda: Of("tuple*", (ANY,))]
        if arguments.kwarg:
            self.bindings[arguments.kwarg.arg] = [lambda: Of("dict", (str, ANY))]
        self.is_class_method = owner is not None and isinstance(inspect.getattr_static(owner, function.__name__, None), classmethod)
        self.is_class_method |= function.__name__ == "__new__"
        self.nodes = list(own_nodes(self.statements()))
        for part in self.nodes:
            self.bind_in(part)

    def statements(self):
        return self.node.body if isinstance(self.node.body, list) else [ast.Return(self.node.body)]

    def annotated(self, annotation, otherwise):
        if annotation is None:
            return otherwise
        value = self.value(annotation.value) if isinstance(annotation, ast.Subscript) else self.value(annotation)
        if isinstance(annotation, ast.Constant) and annotation.value is None:
            return NONE
        return value if isinstance(value, type) and value not in HOLD else otherwise

    def bind_in(self, part):
        if isinstance(part, ast.Assign):
            for target in part.targets:
                self.bind(target, functools.partial(self.kind, part.value))
        elif isinstance(part, ast.AnnAssign) and part.value is not None:
            self.bind(part.target, functools.partial(self.kind, part.value))
        elif isinstance(part, ast.AugAssign):
            self.bind(part.target, lambda: self.arithmetic(part.op, self.kind(load(part.target)), self.kind(part.value)))
        elif isinstance(part, ast.NamedExpr):
            self.bind(part.target, functools.partial(self.kind, part.value))
        elif isinstance(part, (ast.For, ast.comprehension)):
            self.bind(part.target, lambda: inside(self.kind(part.iter)))
        elif isinstance(part, ast.withitem) and part.optional_vars is not None:
            self.bind(part.optional_vars, lambda: ANY)
        elif isinstance(part, ast.ExceptHandler) and part.name:
            self.bindings.setdefault(part.name, []).append(lambda: ANY)
        elif isinstance(part, (ast.MatchAs, ast.MatchStar)) and part.name:
            self.bindings.setdefault(part.name, []).append(lambda: ANY)
        elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.bindings.setdefault(part.name, []).append(functools.partial(self.inner_function, part.decorator_list))
        elif isinstance(part, ast.ClassDef):
            self.bindings.setdefault(part.name, []).append(lambda: ANY)
        elif isinstance(part, (ast.Import, ast.ImportFrom)):
            self.bind_import(part)

    def inner_function(self, decorators):
        if len(decorators) == 1 and isinstance(decorators[0], ast.Call) and self.value(decorators[0].func) is functools.wraps:
            return self.kind(decorators[0].args[0])  # it stands for what it wraps
        return ANY if decorators else CALLABLE

    def bind_import(self, part):
        for alias in part.names:
            name = alias.asname or alias.name.partition(".")[0]
            try:
                if isinstance(part, ast.Import):
                    value = importlib.import_module(alias.name if alias.asname else name)
                else:
                    package = self.globals.get("__package__") if part.level else None
                    home = importlib.import_module("." * part.level + (part.module or ""), package)
                    value = getattr(home, alias.name, None) or importlib.import_module(f"{home.__name__}.{alias.name}")
            except ImportError:
                value = None
            self.values[name] = value

    def bind(self, target, give):
        if isinstance(target, ast.Name):
            self.bindings.setdefault(target.id, []).append(give)
        elif isinstance(target, (ast.Tuple, ast.List)):
            starred = any(isinstance(each, ast.Starred) for each in target.elts)
            for place, each in enumerate(target.elts):
                if isinstance(each, ast.Starred):
                    self.bind(each.value, lambda: Of("list", (ANY,)))
                else:
                    self.bind(each, functools.partial(self.part, give, None if starred else place, len(target.elts)))

    @staticmethod
    def part(give, place, count):
        kind = give()
        if isinstance(kind, Of) and kind.kind == "tuple":
            return kind.parts[place] if place is not None and len(kind.parts) == count else ANY
        return inside(kind)

    # What the function returns.

    def result(self):
        nodes = self.nodes
        if isinstance(self.node, ast.AsyncFunctionDef):
            return ANY
        if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in nodes):
            kinds = [self.kind(node.value) if node.value is not None else NONE for node in nodes if isinstance(node, ast.Yield)]
            kinds += [inside(self.kind(node.value)) for node in nodes if isinstance(node, ast.YieldFrom)]
            return Of("Iterator", (union(kinds),))
        if isinstance(self.node, ast.FunctionDef) and self.owner is not None and is_trivial(self.node):
            return ANY
        returns = [node for node in nodes if isinstance(node, ast.Return)]
        kinds = [NONE if node.value is None else self.kind(node.value) for node in returns]
        if isinstance(self.node, ast.FunctionDef) and not ends(self.node.body):
            kinds.append(NONE)
        found = union(kinds)
        return ANY if found == NEVER and not returns else found

    def stored(self, name):
        """The types of what is stored in an attribute of self."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id == self.first:
                    plain = [each for each in self.nodes if isinstance(each, ast.Assign) and node in each.targets]
                    found.append(self.kind(plain[0].value) if plain else ANY)
        return found

    # What an expression is.

    def value(self, node):
        """The very thing that an expression names, where that does not change; None if it is not known."""
        if isinstance(node, ast.Name):
            if node.id in self.values:
                return self.values[node.id]
            if node.id in self.bindings:
                return None
            for space in (self.outer, self.globals, vars(builtins)):
                if node.id in space:
                    return space[node.id]
        if isinstance(node, ast.Attribute):
            home = self.value(node.value)
            if isinstance(home, (types.ModuleType, type)) and getattr(home, "__name__", "").partition(".")[0] in sys.modules:
                return inspect.getattr_static(home, node.attr, None) or getattr(home, node.attr, None)
            if isinstance(home, type):
                return inspect.getattr_static(home, node.attr, None)
        return None

    def kind(self, node):
        return getattr(self, f"kind_of_{type(node).__name__}", lambda node: ANY)(node)

    def kind_of_Constant(self, node):
        return ANY if node.value is Ellipsis else type(node.value)

    def kind_of_JoinedStr(self, node):
        return str

    def kind_of_Lambda(self, node):
        return CALLABLE

    def kind_of_Name(self, node):
        if node.id == self.first:
            return ANY if self.is_class_method else SELF
        if node.id in self.bindings:
            if node.id in self.under_way:
                return NEVER
            self.under_way.add(node.id)
            kind = union([give() for give in self.bindings[node.id]])
            self.under_way.discard(node.id)
            return filled(kind)
        return self.kind_of_value(self.value(node))

    def kind_of_value(self, value):
        if value is None:
            return ANY
        if type(value) in (*NUMBERS, str, bytes) or type(value).__name__ in ("dtype", "device") and type(value).__module__ != "numpy":
            return type(value)
        return CALLABLE if isinstance(value, types.FunctionType) else ANY

    def kind_of_Compare(self, node):
        if all(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
            return bool
        plain = (*NUMBERS, str, NONE)
        kinds = [self.kind(each) for each in (node.left, *node.comparators)]
        whole = {part for kind in kinds for part in (kind.parts if isinstance(kind, Of) and kind.kind == "|" else (kind,))}
        return bool if all(part in plain or isinstance(part, Of) and part.kind in ("tuple", "list", "tuple*") for part in whole) else ANY

    def kind_of_BoolOp(self, node):
        return union([self.kind(each) for each in node.values])

    def kind_of_IfExp(self, node):
        return union([self.kind(node.body), self.kind(node.orelse)])

    def kind_of_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            return bool
        kind = self.kind(node.operand)
        return int if kind is bool else kind if kind in NUMBERS or is_tensor(kind) else ANY

    def kind_of_BinOp(self, node):
        return self.arithmetic(node.op, self.kind(node.left), self.kind(node.right))

    def arithmetic(self, op, left, right):
        if left is str and isinstance(op, (ast.Add, ast.Mod, ast.Mult)):
            return str
        if is_tensor(left) and (is_tensor(right) or right in NUMBERS or right == ANY):
            return tensor_class(left)
        if is_tensor(right) and left in NUMBERS:
            return tensor_class(right)
        if left in NUMBERS and right in NUMBERS:
            if isinstance(op, ast.Div):
                return complex if complex in (left, right) else float
            if isinstance(op, ast.Pow) or left is bool and right is bool and isinstance(op, (ast.BitAnd, ast.BitOr)):
                return bool if left is bool else ANY
            return NUMBERS[max(1, NUMBERS.index(left), NUMBERS.index(right))]
        if isinstance(left, Of) and isinstance(right, Of) and isinstance(op, ast.Add) and left.kind == right.kind:
            if left.kind == "list":
                return Of("list", (union([*left.parts, *right.parts]),))
            if left.kind == "tuple":
                return Of("tuple", left.parts + right.parts)
        both = [each.kind for each in (left, right) if isinstance(each, Of)]
        if len(both) == 2 and set(both) <= {"tuple", "tuple*"} and isinstance(op, ast.Add):
            return Of("tuple*", (union([inside(left), inside(right)]),))
        if isinstance(left, Of) and left.kind == "list" and isinstance(op, ast.Mult):
            return left
        return ANY

    def kind_of_Tuple(self, node):
        if any(isinstance(each, ast.Starred) for each in node.elts):
            kinds = [inside(self.kind(each.value)) if isinstance(each, ast.Starred) else self.kind(each) for each in node.elts]
            return Of("tuple*", (union(kinds),))
        return Of("tuple", tuple(self.kind(each) for each in node.elts))

    def kind_of_List(self, node):
        kinds = [inside(self.kind(each.value)) if isinstance(each, ast.Starred) else self.kind(each) for each in node.elts]
        return Of("list", (union(kinds) if kinds else ANY,))

    def kind_of_ListComp(self, node):
        return Of("list", (self.kind(node.elt),))

    def kind_of_GeneratorExp(self, node):
        return Of("Iterator", (self.kind(node.elt),))

    def kind_of_Set(self, node):
        return Of("set", (union([self.kind(each) for each in node.elts]),))

    def kind_of_SetComp(self, node):
        return Of("set", (self.kind(node.elt),))

    def kind_of_Dict(self, node):
        if not node.keys or None in node.keys:
            return Of("dict", (ANY, ANY))
        values = union([self.kind(each) for each in node.values])
        return Of("dict", (union([self.kind(each) for each in node.keys]), ANY if isinstance(values, Of) else values))

    def kind_of_DictComp(self, node):
        return Of("dict", (self.kind(node.key), self.kind(node.value)))

    def kind_of_Subscript(self, node):
        kind = self.kind(node.value)
        slices = isinstance(node.slice, ast.Slice)
        if is_tensor(kind):
            return tensor_class(kind)
        if kind is str:
            return str
        if getattr(kind, "__name__", "") == "Size":
            return kind if slices else int if isinstance(node.slice, (ast.Constant, ast.UnaryOp)) else ANY
        if isinstance(kind, Of):
            if kind.kind == "dict":
                return kind.parts[1]
            if kind.kind == "tuple" and isinstance(node.slice, ast.Constant) and type(node.slice.value) is int:
                return kind.parts[node.slice.value] if node.slice.value < len(kind.parts) else ANY
            if kind.kind in ("list", "tuple*"):
                return kind if slices else kind.parts[0] if isinstance(node.slice, (ast.Constant, ast.UnaryOp)) else ANY
        return ANY

    def kind_of_Attribute(self, node):
        value = self.value(node)
        if value is not None:
            return self.kind_of_value(value)
        owner = self.class_of(self.kind(node.value))
        return ANY if owner is None else self.inference.member(owner, node.attr)[1]

    def class_of(self, kind):
        return self.owner if kind == SELF else kind if isinstance(kind, type) else None

    def kind_of_Call(self, node):
        called = node.func
        if isinstance(called, ast.Name) and called.id == self.first and self.is_class_method:
            return SELF
        if isinstance(called, ast.Call) and self.value(called.func) is type and called.args and self.kind(called.args[0]) == SELF:
            return SELF  # type(self)(...)
        if isinstance(called, ast.Attribute) and called.attr == "__class__" and self.kind(called.value) == SELF:
            return SELF
        value = self.value(called)
        if value is not None:
            return self.kind_of_call(value, node)
        if isinstance(called, ast.Attribute):
            return self.kind_of_method(called, node)
        return ANY

    def kind_of_method(self, called, node):
        if isinstance(called.value, ast.Call) and self.value(called.value.func) is super and not called.value.args and self.owner:
            home = next((base for base in self.owner.__mro__ if self.node.name in vars(base) and self.is_mine(base)), self.owner)
            for base in self.owner.__mro__[self.owner.__mro__.index(home) + 1 :]:
                if called.attr in vars(base):
                    found = self.inference.function(vars(base)[called.attr], base) if base.__module__ != "builtins" else ANY
                    return ANY if is_given(found) else found
            return ANY
        kind = self.kind(called.value)
        if isinstance(kind, Of) or kind in METHODS:
            return METHODS.get(kind.kind if isinstance(kind, Of) else kind, {}).get(called.attr, ANY)
        owner = self.class_of(kind)
        if owner is None:
            return ANY
        function, _ = self.inference.member(owner, called.attr)
        if function is None:
            found = self.inference.declared(f"{called.attr}()", owner)
        elif hasattr(function, "_signatures"):
            found = self.kind_of_call(function, node)
        else:
            found = self.inference.function(function, owner)
        found = ANY if found is None or is_given(found) else found
        return replaced_self(found, kind)

    def with_arguments(self, found, function, node):
        """What a call returns, where the function gives one of its arguments back."""
        if not is_given(found):
            return found
        try:
            bound = inspect.signature(getattr(function, "__func__", function)).bind_partial(
                *node.args, **{k.arg: k.value for k in node.keywords}
            )
        except TypeError:
            return ANY
        argument = bound.arguments.get(found.parts[0])
        return self.kind(argument) if isinstance(argument, ast.expr) and not isinstance(argument, ast.Starred) else ANY

    def is_mine(self, base):
        function = vars(base)[self.node.name]
        function = inspect.unwrap(getattr(function, "__func__", getattr(function, "fget", function)))
        return getattr(getattr(function, "__code__", None), "co_firstlineno", 0) in (
            self.node.lineno,
            *(each.lineno for each in self.node.decorator_list),
        )

    def kind_of_call(self, value, node):
        if isinstance(value, type):
            if value in HOLD:
                given = inside(self.kind(node.args[0])) if len(node.args) == 1 and value is not dict else ANY
                return Of(HOLD[value], (given,) * (2 if value is dict else 1))
            if value is type:
                return ANY
            if value in (map, filter, zip, reversed, enumerate):
                return Of("Iterator", (ANY,))
            plain = value.__module__ == "builtins" or type(value) is type and "__new__" not in vars(value)
            mine = value.__module__.partition(".")[0] == "wisp" and value.__name__ in vars(sys.modules[value.__module__])
            return value if plain and (value in (*NUMBERS, str, bytes, range) or mine) or value.__name__ in ("Tensor", "Parameter") else ANY
        try:
            if value in BUILTINS:
                return BUILTINS[value]
        except TypeError:
            return ANY
        if value in (max, min, abs):
            kinds = union([self.kind(each) for each in node.args])
            return kinds if kinds in NUMBERS else ANY
        if value is functools.partial:
            return CALLABLE
        if hasattr(value, "_signatures"):
            given = {each.arg for each in node.keywords}
            found = self.inference.declared(value, None)
            return ANY if found is None or None in given else found
        if isinstance(value, (types.FunctionType, staticmethod)) or hasattr(value, "__wrapped__"):
            found = self.inference.function(value)
            return ANY if found == SELF else self.with_arguments(found, value, node)
        return ANY


def load(target):
    return ast.copy_location(ast.Name(target.id, ast.Load()), target) if isinstance(target, ast.Name) else target


def cell_is_full(cell):
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def is_static(owner, function):
    return isinstance(inspect.getattr_static(owner, function.__name__, None), staticmethod)


def is_tensor(kind):
    return isinstance(kind, type) and any(base.__name__ == "Tensor" for base in kind.__mro__)


def tensor_class(kind):
    """An operator on a Parameter gives a plain Tensor."""
    return next(base for base in kind.__mro__ if base.__name__ == "Tensor")


def is_given(kind):
    return isinstance(kind, Of) and kind.kind == "given"


def filled(kind):
    """The type of a name: what it was bound to may get other parts later."""
    return kind._replace(parts=(ANY,) * len(kind.parts)) if isinstance(kind, Of) and kind.kind in ("list", "dict", "set") else kind


def replaced_self(found, kind):
    if found == SELF:
        return kind
    return found._replace(parts=tuple(replaced_self(part, kind) for part in found.parts)) if isinstance(found, Of) else found
