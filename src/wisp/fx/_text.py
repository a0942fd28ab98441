"""The Python text that runs a graph: how steps and values are written, and how `forward` takes its arguments."""

import builtins
import inspect
import keyword
import math
import operator
import re
from collections import namedtuple

from wisp.fx.node import Node

INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
INPLACE = {
    operator.iadd: "+=",
    operator.isub: "-=",
    operator.imul: "*=",
    operator.itruediv: "/=",
    operator.ifloordiv: "//=",
    operator.imod: "%=",
    operator.ipow: "**=",
    operator.imatmul: "@=",
    operator.iand: "&=",
    operator.ior: "|=",
    operator.ixor: "^=",
    operator.ilshift: "<<=",
    operator.irshift: ">>=",
}
# as PyTorch has them, for tracers of programs that give their proxies the same operators
_form = lambda table, names: {name: f"{{}} {table[getattr(operator, name)]} {{}}" for name in names.split()}
reflectable_magic_methods = {
    **_form(INFIX, "add sub mul floordiv truediv mod pow lshift rshift and_ or_ xor matmul"),
    "div": "{} / {}",
    "getitem": "{}[{}]",
}
magic_methods = {**_form(INFIX, "eq ne lt gt le ge"), "pos": "+{}", "neg": "-{}", "invert": "~{}", **reflectable_magic_methods}
inplace_methods = {
    **_form(INPLACE, "iadd iand ifloordiv ilshift imod imul imatmul ior ipow irshift isub itruediv ixor"),
    "setitem": "{}[{}] = {}",
}
PREFIX = {operator.neg: "-", operator.invert: "~", operator.not_: "not ", operator.pos: "+"}


def _wisp_name(function):
    import wisp

    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        return None
    module = getattr(function, "__module__", None) or ""
    for place in ("wisp", "wisp.nn.functional", module.replace("torch", "wisp", 1), "wisp._core"):
        if not place.startswith("wisp"):
            continue
        owner = wisp
        for part in place.split(".")[1:]:
            owner = getattr(owner, part, None)
        if owner is not None and getattr(owner, name, None) is function:
            return "torch" + place.removeprefix("wisp").removeprefix("._core") + "." + name
    return None


def qualified_name(function):
    """The dotted name of a function, under PyTorch's names for Wisp's."""
    if getattr(builtins, getattr(function, "__name__", ""), None) is function:
        return function.__name__
    from wisp._ops import OpOverload

    if isinstance(function, OpOverload):
        return f"torch.ops.{function.namespace}.{function.__name__}"
    known = _wisp_name(function)
    if known is not None:
        return known
    name = getattr(function, "__qualname__", getattr(function, "__name__", "function"))
    return f"{getattr(function, '__module__', None) or ''}.{name}".lstrip(".")


class Names:
    """Names that are used once each."""

    def __init__(self):
        self.counts = {}  # the last number behind a name
        self.used = set(keyword.kwlist) | set(dir(builtins)) | {"self", "torch", "device", "inf", "nan"}

    def new(self, wanted):
        wanted = re.sub(r"\W+", "_", wanted) or "_"
        if wanted[0].isdigit():
            wanted = "_" + wanted
        name = wanted
        if name in self.used:
            base, _, number = wanted.rpartition("_")
            if not base or not number.isdigit():
                base, number = wanted, 0
            count = int(number) or self.counts.get(base, 0)
            while name in self.used:
                count += 1
                name = f"{base}_{count}"
            self.counts[base] = count
        self.used.add(name)
        return name


def snake_case(text):
    """`PascalCase` as `pascal_case`."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    return re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()


def type_name(kind):
    """A type as annotations show it."""
    if isinstance(kind, str):
        return kind
    text = re.sub(r"\bwisp\.(_core\.|_tensor\.)?", "torch.", inspect.formatannotation(kind))
    return text if "typing" not in str(kind) or text.startswith("typing.") else re.sub(r"^", "typing.", text)


class Text:
    """Steps as Python text, and the objects that the text names."""

    def __init__(self, root_module):
        import wisp

        self.root_module = root_module
        self.named = {"torch": wisp, "device": wisp.device, "inf": math.inf, "nan": math.nan, "NoneType": type(None)}
        self.plain = (wisp.dtype, wisp.memory_format, wisp.layout)
        self.device, self.size = wisp.device, wisp.Size

    def name_of(self, value, wanted):
        """A name for an object that has no text of its own."""
        name = re.sub(r"\W+", "_", wanted)
        while name in self.named and self.named[name] is not value:
            name += "_"
        self.named[name] = value
        return name

    def value(self, value):
        """The text of an argument."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple) and type(value) is not self.size:
            if hasattr(value, "_fields"):
                return f"{self.name_of(type(value), type(value).__name__)}({self.values(value)})"
            return "(" + self.values(value) + ("," if len(value) == 1 else "") + ")"
        if isinstance(value, list):
            return "[" + self.values(value) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key!r}: {self.value(item)}" for key, item in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.values((value.start, value.stop, value.step))})"
        if isinstance(value, self.plain):
            return str(value)
        if isinstance(value, self.device):
            return f"device(type={value.type!r}" + ("" if value.index is None else f", index={value.index}") + ")"
        if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes):
            return repr(value)
        if callable(value) and hasattr(value, "__name__"):
            return self.function(value)
        return self.name_of(value, f"_constant_{type(value).__name__}")

    def values(self, values):
        return ", ".join(map(self.value, values))

    def arguments(self, args, kwargs):
        return ", ".join([self.value(a) for a in args] + [f"{key} = {self.value(a)}" for key, a in kwargs.items()])

    def function(self, value):
        """The text of a function: its name in PyTorch if it has one."""
        full = qualified_name(value)
        if (full.startswith("torch.") and not full.startswith("torch._ops.")) or getattr(builtins, full, None) is value:
            return full
        return self.name_of(value, full)

    def annotation(self, kind):
        """The text of a type, or of nothing: ` : torch.Tensor`."""
        if kind is None:
            return ""
        if isinstance(kind, str):
            return f" : {self.name_of(kind, f'_{kind}_')}"
        arguments = getattr(kind, "__args__", None)
        if arguments and isinstance(getattr(kind, "__origin__", None), type) and all(isinstance(a, type) for a in arguments):
            if not hasattr(kind, "_name"):  # list[str]; those of typing are named as one
                return f" : {kind.__origin__.__name__}[{','.join(self.annotation(a)[3:] for a in arguments)}]"
            name = self.name_of(getattr(__import__("typing"), kind._name), f"typing_{kind._name}")
            return f" : {name}[{', '.join(self.annotation(a)[3:] for a in arguments)}]"
        full = type_name(kind)
        if getattr(builtins, full, None) is kind or full in ("torch.Tensor", "torch.device", "torch.dtype"):
            return f" : {full}"
        return f" : {self.name_of(kind, full)}"

    def path(self, target):
        """The text of an attribute of the root module."""
        result = self.root_module
        for step in target.split("."):
            result = f"{result}.{step}" if step.isidentifier() else f'getattr({result}, "{step}")'
        return result

    def result(self, node):
        """The text of what a step computes."""
        target, args = node.target, node.args
        if node.op == "get_attr":
            return self.path(target)
        if node.op == "call_module":
            return f"{self.path(target)}({self.arguments(args, node.kwargs)})"
        if node.op == "call_method":
            return f"{self.value(args[0])}.{target}({self.arguments(args[1:], node.kwargs)})"
        if target in INFIX and len(args) == 2 and not node.kwargs:
            return f"{self.value(args[0])} {INFIX[target]} {self.value(args[1])}"
        if target in PREFIX and len(args) == 1:
            return f"{PREFIX[target]}{self.value(args[0])}"
        if target is operator.getitem and len(args) == 2:
            return f"{self.value(args[0])}[{self.value(args[1])}]"
        if target is getattr and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
            return f"{self.value(args[0])}.{args[1]}"
        return f"{self.function(target)}({self.arguments(args, node.kwargs)})"

    def step(self, node):
        """The text of a step."""
        if node.target in INPLACE and len(node.args) == 2:
            changed, other = map(self.value, node.args)
            return f"{changed} {INPLACE[node.target]} {other};  {node.name} = {changed}"
        return f"{node.name}{self.annotation(node.type)} = {self.result(node)}"


class PythonCode:
    """The text of a graph's `forward`, the objects that it names, and which step each of its lines is."""

    def __init__(self, src, globals, lineno_map=None, prologue_start=0):
        self.src, self.globals = src, globals
        self._lineno_map, self._prologue_start = lineno_map or {}, prologue_start


class CodeGen:
    """Writes `forward`: a subclass decides how it takes its arguments and returns its results.

    >>> import wisp.fx
    >>> wisp.fx.graph.CodeGen().gen_fn_def(["x"], "")
    'def forward(self, x):'
    """

    def __init__(self):
        self._body_transformer, self._func_name = None, "forward"

    def gen_fn_def(self, free_vars, maybe_return_annotation, *, expanded_def=False):
        """The first line; one that names the inputs of the graph otherwise can have several."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args, *, descs=None, repr_fn=repr):
        """The line that returns."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args):
        """Arguments of `forward` as the inputs of the graph."""
        return args

    def process_outputs(self, outputs):
        """The result of the graph as that of `forward`."""
        return outputs

    def additional_globals(self):
        """Pairs of names and objects that the text uses besides."""
        return []

    def _gen_python_code(self, nodes, root_module, namespace=None, **options):
        text = Text(root_module)
        text.named.update(self.additional_globals())
        last_use, dying = {}, {}
        for node in reversed(nodes):
            for used in node.all_input_nodes:
                last_use.setdefault(used, node)
        for used, node in last_use.items():
            dying.setdefault(node, []).append(used)
        parameters, lines, steps, returned = [], [], [], ""
        for number, node in enumerate(nodes):
            steps.append((len(lines), number))
            if node.op == "placeholder":
                raw = str(node.target)
                plain = raw.lstrip("*")
                default = f" = {text.value(node.args[0])}" if node.args else ""
                parameters.append(raw[: len(raw) - len(plain)] + plain + text.annotation(node.type) + default)
                if node.name != plain:
                    lines.append(f"{node.name} = {plain}")
                continue
            if node.op == "output":
                if node.type is not None:
                    returned = f" ->{text.annotation(node.type)[2:]}"
                lines.append(self._returning(node.args[0], text))
                continue
            line = text.step(node)
            finished = [used.name for used in dying.get(node, ()) if used is not node]
            if not node.users:
                finished.append(node.name)
            if finished:
                line += f";  {' = '.join(finished)} = None"
            lines.append(line)
        if not lines:
            lines = ["pass"]
        count = len(lines)
        if self._body_transformer is not None:
            lines = [line.rstrip("\n") for line in self._body_transformer(lines)]
        first = self.gen_fn_def(parameters, returned)
        shift = first.strip("\n").count("\n") + 1 + max(0, len(lines) - count)  # lines after the one of `def`, which is the fourth
        where = {shift + line: number for line, number in steps}
        body = "\n".join("    " + line for line in lines)
        return PythonCode(f"\n\n\n{first.strip(chr(10))}\n{body}\n    ", text.named, where, 4)

    def _returning(self, value, text):
        if "repr_fn" in inspect.signature(self.generate_output).parameters:
            return self.generate_output(value, repr_fn=text.value)
        return self.generate_output(value)


class _PyTreeInfo(namedtuple("_PyTreeInfo", ["orig_args", "in_spec", "out_spec"])):
    """The names of the arguments, and the structures of arguments and result."""


class PyTreeCodeGen(CodeGen):
    """For a graph whose inputs are the leaves of nested arguments."""

    def __init__(self, pytree_info):
        super().__init__()
        self.pytree_info = pytree_info

    def gen_fn_def(self, free_vars, maybe_return_annotation, *, expanded_def=False):
        """Takes the arguments as the program does, and their leaves from them."""
        names = list(self.pytree_info.orig_args)
        if names[:1] == ["self"]:
            free_vars.insert(0, "self")
        first = super().gen_fn_def(list(names), maybe_return_annotation)
        if free_vars:
            leaves = ", ".join(name.split(":")[0].split("=")[0].strip() for name in free_vars)
            first += f"\n    {leaves}, = fx_pytree.tree_flatten_spec([{', '.join(names)}], self._in_spec)"
        return first

    def generate_output(self, output_args, *, descs=None, repr_fn=repr):
        """Returns the result in its structure."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"

    def process_inputs(self, *args):
        """The leaves of the arguments."""
        from wisp.utils._pytree import tree_leaves

        return [leaf for value in args for leaf in tree_leaves(value)]

    def process_outputs(self, outputs):
        """The result in its structure."""
        from wisp.utils._pytree import tree_unflatten

        if self.pytree_info.out_spec is None:
            return outputs
        return tree_unflatten(outputs if isinstance(outputs, (list, tuple)) else [outputs], self.pytree_info.out_spec)

    def additional_globals(self):
        """The functions that take structures apart and put them together."""
        from wisp.fx import _pytree as fx_pytree
        from wisp.utils import _pytree as pytree

        return [("fx_pytree", fx_pytree), ("pytree", pytree)]
