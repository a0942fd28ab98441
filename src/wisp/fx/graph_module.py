"""A module whose `forward` is made from a graph."""

import copy
import inspect
import itertools
import linecache
import re

import wisp
from wisp import nn
from wisp.fx._text import PyTreeCodeGen

__all__ = ["GraphModule"]

_count = itertools.count()
_MADE = ("_graph", "_code", "_lineno_map", "_prologue_start", "_in_spec", "_out_spec")  # follow from the graph
_HOOKS = ("_create_node_hooks", "_erase_node_hooks", "_replace_hooks", "_deepcopy_hooks")


def _copy_attribute(source, target, path):
    *owners, name = path.split(".")
    for owner in owners:
        source = getattr(source, owner)
        if not isinstance(getattr(target, owner, None), nn.Module):
            target.add_module(owner, nn.Module())
        target = getattr(target, owner)
    value = getattr(source, name)
    if hasattr(target, name) and getattr(target, name) is value:
        return
    _place(target, name, value)


def _place(module, name, value):
    """An attribute of a module: a tensor that is no parameter is a buffer."""
    if isinstance(value, wisp.Tensor) and not isinstance(value, nn.Parameter) and not hasattr(module, name):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def _rebuild(attributes, graph, name):
    module = nn.Module()
    module.__dict__.update(attributes)
    made = GraphModule(module, graph, name)
    for key, value in attributes.items():  # those that no step names
        made.__dict__.setdefault(key, value)
    return made


class GraphModule(nn.Module):
    """A module that runs `graph`; after a change of the graph call `recompile()`.

    >>> import wisp.fx
    >>> graph = wisp.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_module("layer", (x,)))
    >>> wisp.fx.GraphModule({"layer": wisp.nn.Identity()}, graph)(3)
    3
    """

    def __new__(cls, *args, **kwargs):
        # each has a class of its own, which carries its forward
        names = {"__module__": cls.__module__, "__qualname__": "GraphModule.__new__.<locals>.GraphModuleImpl", "_graph_module_base": cls}
        own = type(cls.__name__, (cls,), names)  # accelerate knows one by its qualified name
        return super().__new__(own)

    def __init__(self, root, graph, class_name="GraphModule"):
        super().__init__()
        type(self).__name__ = re.sub(r"\W", "_", class_name)
        if isinstance(root, nn.Module):
            self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attribute(root, self, node.target)
        else:
            paths = dict.fromkeys(node.target for node in graph.nodes if node.op in ("get_attr", "call_module"))
            for path in sorted(paths, key=lambda p: p.count(".")):
                if path not in root:
                    raise RuntimeError(f"Node referenced target {path} but that target was not provided in `root`!")
                *owners, name = path.split(".")
                target = self
                for owner in owners:
                    if not hasattr(target, owner):
                        target.add_module(owner, nn.Module())
                    target = getattr(target, owner)
                _place(target, name, root[path])
        forward = getattr(inspect.unwrap(getattr(type(root), "forward", None)), "__code__", None) if isinstance(root, nn.Module) else None
        self._source = f"{forward.co_filename}:{forward.co_firstlineno}" if forward is not None else ""
        self.meta = dict(getattr(root, "meta", {})) if isinstance(root, GraphModule) else {}
        self._without_hooks()
        self.graph = graph

    @property
    def graph(self):
        """The steps; assigning another graph compiles it."""
        return self._graph

    @graph.setter
    def graph(self, graph):
        object.__setattr__(self, "_graph", copy.deepcopy(graph) if graph.owning_module not in (None, self) else graph)
        self._graph.owning_module = self
        self.recompile()

    @property
    def code(self):
        """The Python text of `forward`."""
        return self._code

    def recompile(self):
        """Make `forward` from the graph as it is now."""
        codegen = self._graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            object.__setattr__(self, "_in_spec", codegen.pytree_info.in_spec)
            object.__setattr__(self, "_out_spec", codegen.pytree_info.out_spec)
        made = self._graph.python_code("self")
        object.__setattr__(self, "_code", made.src)
        object.__setattr__(self, "_lineno_map", made._lineno_map)
        object.__setattr__(self, "_prologue_start", made._prologue_start)
        file = f"<wisp.fx graph {next(_count)} of {self._source}>" if self._source else f"<wisp.fx graph {next(_count)}>"
        linecache.cache[file] = (len(made.src), None, made.src.splitlines(True), file)
        names = dict(made.globals)
        exec(compile(made.src, file, "exec"), names)
        type(self).forward = names["forward"]
        return made

    def add_submodule(self, target, m):
        """Put a module at a dotted name; whether that was possible."""
        *owners, name = target.split(".")
        place = self
        for owner in owners:
            found = getattr(place, owner, None)
            if found is None:
                found = nn.Module()
                place.add_module(owner, found)
            if not isinstance(found, nn.Module):
                return False
            place = found
        place.add_module(name, m)
        return True

    def delete_submodule(self, target):
        """Remove the module at a dotted name; whether there was one."""
        *owners, name = target.split(".")
        place = self
        for owner in owners:
            place = getattr(place, owner, None)
            if not isinstance(place, nn.Module):
                return False
        if name not in place._modules:
            return False
        del place._modules[name]
        return True

    def delete_all_unused_submodules(self):
        """Remove modules that no step of the graph uses."""
        used = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
                if node.op == "call_module":
                    used.update(f"{node.target}.{name}" for name, _ in self.get_submodule(node.target).named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def print_readable(
        self, print_output=True, include_stride=False, include_device=False, colored=False, *, additional_meta=None, **options
    ):
        """The text of the module with the lines of the program and what is known of tensors, and of the graph modules inside; printed
        unless `print_output` is false. `additional_meta` names notes of the steps to show. There are no colours."""
        from wisp.fx._readable import readable

        text = readable(self, include_stride, include_device, additional_meta)
        if print_output:
            print(text)
        return text

    def _without_hooks(self):
        for name in _HOOKS:
            object.__setattr__(self, name, [])

    def _all_hooks(self):
        return [getattr(self, name) for name in _HOOKS]

    def to_folder(self, folder, module_name="FxModule"):
        """Write the module as Python text: `from folder import module_name`, and `module_name()` is one with these parameters."""
        from wisp.fx._folder import write

        write(self, folder, module_name)

    def _attributes(self):
        return {name: value for name, value in self.__dict__.items() if name not in (*_MADE, *_HOOKS)}

    def __deepcopy__(self, memo):
        copied = type(self)._graph_module_base.__new__(type(self)._graph_module_base)
        memo[id(self)] = copied
        type(copied).__name__ = type(self).__name__
        copied.__dict__.update(copy.deepcopy(self._attributes(), memo))
        graph = copy.deepcopy(self._graph, memo)
        object.__setattr__(copied, "_graph", graph)
        for name in _HOOKS:
            object.__setattr__(copied, name, list(getattr(self, name)))
        graph.owning_module = copied
        copied.recompile()
        for hook in self._deepcopy_hooks:
            hook(copied)
        return copied

    def __copy__(self):
        return GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)

    def __reduce__(self):
        graph = copy.deepcopy(self._graph)
        return _rebuild, (self._attributes(), _Frozen(graph), type(self).__name__)

    def __str__(self):
        return f"{super().__repr__()}\n{self._code}\n# To see more debug info, please use `graph_module.print_readable()`"


def _register(name):
    def register(self, f):
        if not callable(f):
            raise AssertionError(f"{name}: a hook is a function")
        getattr(self, name).append(f)

    def unregister(self, f):
        if f not in getattr(self, name):
            raise AssertionError(f"{name}: no such hook was registered")
        getattr(self, name).remove(f)

    return register, unregister


for _name in _HOOKS:  # _register_create_node_hook, _unregister_create_node_hook, ...
    _word = {"_replace_hooks": "replace_node_hook"}.get(_name, _name[1:-1])
    for _way, _function in zip(("_register_", "_unregister_"), _register(_name)):
        setattr(GraphModule, _way + _word, _function)


class _Frozen:
    """A graph as pickle keeps it: a list of steps that name each other."""

    def __init__(self, graph):
        self.graph = graph

    def __reduce__(self):
        from wisp.fx.node import map_arg

        def named(value):
            return map_arg(value, lambda n: _Name(n.name))

        steps = [(node.op, node.target, named(node.args), named(node.kwargs), node.name, node.type) for node in self.graph.nodes]
        return _thaw, (steps, self.graph._codegen)


class _Name:
    def __init__(self, name):
        self.name = name


def _thaw(steps, codegen):
    from wisp.fx.graph import Graph
    from wisp.fx.node import map_aggregate

    graph, nodes = Graph(), {}
    graph.set_codegen(codegen)
    for op, target, args, kwargs, name, kind in steps:

        def known(value):
            return nodes[value.name] if isinstance(value, _Name) else value

        nodes[name] = graph.create_node(op, target, map_aggregate(args, known), map_aggregate(kwargs, known), name, kind)
    return graph
