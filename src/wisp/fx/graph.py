"""The steps of a traced program in order, and the Python text that runs them."""

import warnings
from copy import deepcopy

import wisp
from wisp.fx._text import CodeGen, Names, PythonCode, inplace_methods, magic_methods, reflectable_magic_methods, snake_case  # noqa: F401
from wisp.fx._text import PyTreeCodeGen as _PyTreeCodeGen  # noqa: F401
from wisp.fx._text import _PyTreeInfo as _PyTreeInfo
from wisp.fx._text import qualified_name as _get_qualified_name  # noqa: F401
from wisp.fx.node import Node, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode"]


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


def _has(owner, path):
    for part in path.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


class _Transforming:
    def __init__(self, codegen, before):
        self.codegen, self.before = codegen, before

    def __enter__(self):
        return None

    def __exit__(self, *details):
        self.codegen._body_transformer = self.before


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
        self._count, self._names = 0, Names()
        self.owning_module, self._tracer_cls = owning_module, tracer_cls
        self._tracer_extras, self._codegen = tracer_extras or {}, CodeGen()

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
            wanted = wanted.strip("_") if wanted.startswith("__") and wanted.endswith("__") else wanted
        if not name:
            wanted = snake_case(wanted)
        node = Node(self, self._names.new(wanted.replace(".", "_")), op, target, args or (), kwargs or {}, type_expr)
        self._insert(node)
        self._count += 1
        for hook in getattr(self.owning_module, "_create_node_hooks", ()):
            hook(node)
        return node

    def placeholder(self, name, type_expr=None, default_value=None):
        """Add an input."""
        return self.create_node("placeholder", name, () if default_value is None else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name, type_expr=None):
        """Add a read of a parameter, buffer or other attribute of the module."""
        if self.owning_module is not None and not _has(self.owning_module, qualified_name):
            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None):
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(self, method_name, args=None, kwargs=None, type_expr=None):
        """Add a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, None, type_expr)

    def call_module(self, module_name, args=None, kwargs=None, type_expr=None):
        """Add a call of a submodule."""
        if self.owning_module is not None and not _has(self.owning_module, module_name):
            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the owning GraphModule! Call "
                "GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, None, type_expr)

    def _of_tensor(self, overload, args, value):
        node = self.call_function(overload, args)
        key = next((key for key in ("val", "example_value") if key in args[0].meta), None)
        if key is not None:
            node.meta[key] = value(args[0].meta[key])
        return node

    def create_size_node(self, tensor_node, dim):
        """Add a step that is one size of a tensor."""
        return self._of_tensor(wisp.ops.aten.sym_size.int, (tensor_node, dim), lambda tensor: tensor.size(dim))

    def create_stride_node(self, tensor_node, dim):
        """Add a step that is one stride of a tensor."""
        return self._of_tensor(wisp.ops.aten.sym_stride.int, (tensor_node, dim), lambda tensor: tensor.stride(dim))

    def create_storage_offset_node(self, tensor_node):
        """Add a step that is where a tensor begins in its storage."""
        return self._of_tensor(wisp.ops.aten.sym_storage_offset.default, (tensor_node,), lambda tensor: tensor.storage_offset())

    def output(self, result, type_expr=None):
        """Add the output, the last step."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def output_node(self):
        """The output."""
        return next(node for node in reversed(self.nodes) if node.op == "output")

    def create_name(self, candidate):
        """A name that no step has yet."""
        return self._names.new(candidate)

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
        for hook in getattr(self.owning_module, "_erase_node_hooks", ()):
            hook(to_erase)
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
        memo = {} if memo is None else memo
        copy = Graph(tracer_cls=self._tracer_cls)
        memo[id(self)] = copy
        copy._codegen = deepcopy(self._codegen, memo)
        values = {}
        result = copy.graph_copy(self, values)
        memo.update((id(old), new) for old, new in values.items())
        if any(node.op == "output" for node in self.nodes):
            old = self.output_node()
            output = copy.output(result, old.type)
            output.meta = dict(old.meta)
            memo[id(old)] = output
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
                if used.graph is not self:
                    raise RuntimeError(f"Argument '{used}' of Node '{node}' does not belong to this Graph, but was used as an argument!")
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
        return "graph():\n" + "\n".join("    " + node.format_node() for node in self.nodes)

    def set_codegen(self, codegen):
        """Let a `CodeGen` write the text that runs the graph."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer):
        """Let a function change the lines of the text that runs the graph; returns a context at whose end it no longer does."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        return _Transforming(self._codegen, before)

    def process_inputs(self, *args):
        """The arguments of `forward` as the inputs of the graph."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out):
        """The result of the graph as that of `forward`."""
        return self._codegen.process_outputs(out)

    def python_code(self, root_module="self", *, verbose=False, include_stride=False, include_device=False):
        """The Python text that runs the graph, with the objects that it names."""
        return self._codegen._gen_python_code(self.nodes, root_module)
