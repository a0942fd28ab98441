"""The steps of a traced program in order, and the Python text that runs them."""

import builtins
import keyword
import math
import operator
import re

from wisp.fx.node import Node, map_arg

__all__ = ["Graph", "PythonCode"]

_INFIX = {
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
_INPLACE = {
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
}
_PREFIX = {operator.neg: "-", operator.invert: "~", operator.not_: "not ", operator.pos: "+"}


def _wisp_name(function):
    import wisp

    name = getattr(function, "__name__", "")
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
    known = _wisp_name(function)
    if known is not None:
        return known
    name = getattr(function, "__qualname__", getattr(function, "__name__", "function"))
    return f"{getattr(function, '__module__', '')}.{name}".lstrip("._")


class PythonCode:
    """The text of a graph's `forward` and the objects that it names."""

    def __init__(self, src, globals):
        self.src, self.globals = src, globals


class _Names:
    """Names that are used once each."""

    def __init__(self):
        self.used = set(keyword.kwlist) | set(dir(builtins)) | {"self", "torch", "device"}

    def new(self, wanted):
        wanted = re.sub(r"\W+", "_", wanted) or "_"
        if wanted[0].isdigit():
            wanted = "_" + wanted
        name, count = wanted, 0
        if name in self.used:
            base = re.sub(r"_\d+$", "", wanted) or wanted
            while name in self.used:
                count += 1
                name = f"{base}_{count}"
        self.used.add(name)
        return name


class _NodeList:
    def __init__(self, graph, backwards=False):
        self.graph, self.backwards = graph, backwards

    def __iter__(self):
        root = self.graph._root
        node = root._prev if self.backwards else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self.backwards else node._next  # an erased node still knows its neighbours

    def __reversed__(self):
        return iter(_NodeList(self.graph, not self.backwards))

    def __len__(self):
        return self.graph._count

    def __getitem__(self, index):
        return list(self)[index]


class _InsertPoint:
    def __init__(self, graph, insert):
        self.graph, self.before = graph, graph._insert
        graph._insert = insert

    def __enter__(self):
        return self

    def __exit__(self, *details):
        self.graph._insert = self.before


class _Text:
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
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes)):
            return "..." if value is Ellipsis else repr(value)
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
        if full.startswith("torch.") or getattr(builtins, full, None) is value:
            return full
        return self.name_of(value, full)

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
        if target in _INFIX and len(args) == 2 and not node.kwargs:
            return f"{self.value(args[0])} {_INFIX[target]} {self.value(args[1])}"
        if target in _PREFIX and len(args) == 1:
            return f"{_PREFIX[target]}{self.value(args[0])}"
        if target is operator.getitem:
            return f"{self.value(args[0])}[{self.value(args[1])}]"
        if target is getattr and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
            return f"{self.value(args[0])}.{args[1]}"
        return f"{self.function(target)}({self.arguments(args, node.kwargs)})"

    def step(self, node):
        """The text of a step."""
        if node.target in _INPLACE and len(node.args) == 2:
            changed, other = map(self.value, node.args)
            return f"{changed} {_INPLACE[node.target]} {other};  {node.name} = {changed}"
        return f"{node.name} = {self.result(node)}"


class Graph:
    """The steps of a program: `nodes` in order, with methods that add, copy, replace and erase them.

    >>> import wisp.fx
    >>> graph = wisp.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(wisp.relu, (x,)))
    >>> print(graph.python_code("self").src.strip())
    def forward(self, x):
        relu = torch.relu(x);  x = None
        return relu
    """

    def __init__(self, owning_module=None, tracer_cls=None, tracer_extras=None):
        self._root = Node(self, "", "root", "", (), {})
        self._insert = self._root.prepend
        self._count, self._names = 0, _Names()
        self.owning_module, self._tracer_cls = owning_module, tracer_cls
        self._codegen = None

    @property
    def nodes(self):
        """All steps in order."""
        return _NodeList(self)

    def _position(self, node):
        return next(i for i, other in enumerate(self.nodes) if other is node)

    def create_node(self, op, target, args=None, kwargs=None, name=None, type_expr=None):
        """Add a step at the place where steps are inserted, the end unless `inserting_before` or `inserting_after` say otherwise."""
        if op not in ("call_function", "call_method", "get_attr", "call_module", "placeholder", "output"):
            raise AssertionError(f"create_node: unknown op {op!r}")
        wanted = name or (target if isinstance(target, str) else getattr(target, "__name__", "node"))
        if not name and op == "call_function":
            wanted = wanted.strip("_")
        node = Node(self, self._names.new(wanted.replace(".", "_")), op, target, args or (), kwargs or {}, type_expr)
        self._insert(node)
        self._count += 1
        return node

    def placeholder(self, name, type_expr=None, default_value=None):
        """Add an input."""
        return self.create_node("placeholder", name, () if default_value is None else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name, type_expr=None):
        """Add a read of a parameter, buffer or other attribute of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None):
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(self, method_name, args=None, kwargs=None, type_expr=None):
        """Add a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, None, type_expr)

    def call_module(self, module_name, args=None, kwargs=None, type_expr=None):
        """Add a call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, None, type_expr)

    def output(self, result, type_expr=None):
        """Add the output, the last step."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def output_node(self):
        """The output."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def find_nodes(self, *, op, target=None, sort=True):
        """The steps with this op, and with this target if one is given."""
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    def erase_node(self, to_erase):
        """Remove a step that nobody uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {list(to_erase.users)}!"
            )
        if to_erase._erased:
            return
        to_erase._set((), {})
        to_erase._remove()
        to_erase._erased = True
        self._count -= 1

    def inserting_before(self, n=None):
        """Add steps before `n` from now on, or inside of a `with`; without `n` at the beginning."""
        return _InsertPoint(self, (n or self._root._next).prepend)

    def inserting_after(self, n=None):
        """Add steps after `n` from now on, or inside of a `with`; without `n` at the end."""
        if n is None:
            return _InsertPoint(self, self._root.prepend)
        following = n._next
        return _InsertPoint(self, lambda node: following.prepend(node))

    def node_copy(self, node, arg_transform=lambda n: n):
        """Add a copy of a step of another graph; `arg_transform` says what its nodes are here."""
        copy = self.create_node(
            node.op, node.target, map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform), node.name, node.type
        )
        copy.meta = dict(node.meta)
        return copy

    def graph_copy(self, g, val_map, return_output_node=False):
        """Add copies of all steps of another graph; returns what stands for its output."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo=None):
        copy = Graph(tracer_cls=self._tracer_cls)
        values = {}
        result = copy.graph_copy(self, values)
        if any(node.op == "output" for node in self.nodes):
            output = copy.output(result)
            output.meta = dict(self.output_node().meta)
        return copy

    def eliminate_dead_code(self, is_impure_node=None):
        """Remove steps whose results nobody uses; whether there were any."""
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not (is_impure_node or Node.is_impure)(node):
                self.erase_node(node)
                changed = True
        return changed

    def lint(self):
        """Raise RuntimeError if a step uses one that comes later, or a name or target is not there."""
        seen, names = set(), set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node {node} does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used not in seen:
                    raise RuntimeError(
                        f"Argument {used} of Node {node} was used before it has been defined! "
                        "Please check that Nodes in the graph are topologically ordered"
                    )
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if self.owning_module is not None and node.op in ("call_module", "get_attr"):
                owner = self.owning_module
                for part in node.target.split("."):
                    if not hasattr(owner, part):
                        raise RuntimeError(
                            f"Node {node} target {node.target} references nonexistent attribute {part} of {type(owner).__name__}"
                        )
                    owner = getattr(owner, part)

    def print_tabular(self):
        """Print the steps as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(node.op, node.name, str(node.target), str(node.args), str(node.kwargs)) for node in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        for i, row in enumerate(rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
            if i == 0:
                print("  ".join("-" * width for width in widths))

    def __str__(self):
        inputs = ", ".join(f"%{node.name}" for node in self.nodes if node.op == "placeholder")
        return f"graph({inputs}):\n" + "\n".join("    " + node.format_node() for node in self.nodes)

    def on_generate_code(self, make_transformer):
        """Let a function change the lines of the text that runs the graph."""
        self._codegen = make_transformer(self._codegen)

    def process_inputs(self, *args):
        """The inputs as the graph takes them."""
        return args

    def python_code(self, root_module="self", *, verbose=False, include_stride=False, include_device=False):
        """The Python text that runs the graph, with the objects that it names."""
        text = _Text(root_module)
        last_use = {}
        for node in reversed(self.nodes):
            for used in node.all_input_nodes:
                last_use.setdefault(used, node)
        dying = {}
        for used, node in last_use.items():
            dying.setdefault(node, []).append(used)

        parameters, lines = [], []
        for node in self.nodes:
            if node.op == "placeholder":
                raw = str(node.target)
                plain = raw.lstrip("*")
                default = f" = {text.value(node.args[0])}" if node.args else ""
                parameters.append(raw[: len(raw) - len(plain)] + plain + default)
                if node.name != plain:
                    lines.append(f"{node.name} = {plain}")
                continue
            if node.op == "output":
                lines.append(f"return {text.value(node.args[0])}")
                continue
            line = text.step(node)
            finished = [used.name for used in dying.get(node, ()) if used is not node]
            if not node.users:
                finished.append(node.name)
            if finished:
                line += f";  {' = '.join(finished)} = None"
            lines.append(line)
        if self._codegen is not None:
            lines = self._codegen(lines)
        if not lines:
            lines = ["pass"]
        body = "\n".join("    " + line for line in lines)
        return PythonCode(f"\ndef forward({', '.join([root_module, *parameters])}):\n{body}\n", text.named)
