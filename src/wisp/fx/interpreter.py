"""Runs a graph step by step, so that a subclass can look at, time or change what each step does."""

import sys

from wisp.fx.graph import Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import map_aggregate, map_arg
from wisp.fx.proxy import Proxy, TracerBase

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs the steps of a `GraphModule` one after another: `Interpreter(module).run(*args)`.

    >>> import wisp.fx
    >>> traced = wisp.fx.symbolic_trace(lambda x: x * 2 + 1)
    >>> wisp.fx.Interpreter(traced).run(3)
    7
    """

    def __init__(self, module, garbage_collect_values=True, graph=None):
        self.module, self.graph = module, graph if graph is not None else module.graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values, self.env, self.extra_traceback = garbage_collect_values, {}, True
        self._last_use = {}
        for node in reversed(self.graph.nodes):
            for used in node.all_input_nodes:
                if used not in self._last_use:
                    self._last_use[used] = node

    def run(self, *args, initial_env=None, enable_io_processing=True):
        """Run all steps; returns the output."""
        self.env = dict(initial_env or {})
        self.args_iter = iter(self.graph.process_inputs(*args) if enable_io_processing else args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                error.add_note(f"While executing {node.format_node()}")
                raise
            if self.garbage_collect_values:
                for used in node.all_input_nodes:
                    if self._last_use.get(used) is node:
                        self.env.pop(used, None)
            if node.op == "output":
                return self.graph.process_outputs(self.env[node]) if enable_io_processing else self.env[node]
        return None

    def boxed_run(self, args_list):
        """As `run`, with the inputs in a list that is emptied, so that they can be freed before the end."""
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        if len(args_list) != len(inputs):
            what = "extra" if len(args_list) > len(inputs) else "missing"
            raise RuntimeError(f"boxed_run: {what} arguments: the graph has {len(inputs)} inputs, got {len(args_list)} arguments")
        env = dict(zip(inputs, args_list))
        args_list.clear()
        return self.run(initial_env=env, enable_io_processing=False)

    def run_node(self, n):
        """Run one step; the method named as its op does it."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        notes = sys.modules.get("wisp.fx.traceback")
        if notes is None or not notes.should_preserve_node_meta:
            return getattr(self, n.op)(n.target, args, kwargs)
        with notes.set_current_meta(n, "Interpreter_" + type(self).__name__):
            return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n):
        """The values of a step's arguments."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args, n):
        """The arguments with values in place of nodes."""

        def value(node):
            if node not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to diagnose such issues")
            return self.env[node]

        result = map_arg(args, value)
        return tuple(result) if isinstance(args, tuple) else dict(result)

    def fetch_attr(self, target):
        """The attribute of the module at a dotted name."""
        value = self.module
        for part in target.split("."):
            value = getattr(value, part)
        return value

    def placeholder(self, target, args, kwargs):
        """The next input."""
        if target.startswith("*"):
            return {} if target.startswith("**") else list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!") from None

    def get_attr(self, target, args, kwargs):
        """Read an attribute."""
        return self.fetch_attr(target)

    def call_function(self, target, args, kwargs):
        """Call a function."""
        return target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        """Call a method of the first argument."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target, args, kwargs):
        """Call a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target, args, kwargs):
        """The value of the output."""
        return args[0]


class Transformer(Interpreter):
    """Makes a new graph by running the old one on proxies; the methods say what becomes of each step."""

    def __init__(self, module):
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        transformer = self

        class Adding(TracerBase):
            graph = self.new_graph

            def create_node(self, *args, **kwargs):
                made = super().create_node(*args, **kwargs)
                if transformer._current is not None:
                    made.meta = {**transformer._current.meta, **made.meta}
                return made

        self.tracer, self._current = Adding(), None

    def run_node(self, n):
        """Make the steps that stand for a step; they keep what was noted about it."""
        self._current = n
        return super().run_node(n)

    def placeholder(self, target, args, kwargs):
        """An input of the new graph."""
        return Proxy(self.new_graph.placeholder(target, default_value=args[0] if args else None), self.tracer)

    def get_attr(self, target, args, kwargs):
        """A read in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target, args, kwargs):
        """A call in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target, args, kwargs):
        """A call in the new graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target, args, kwargs):
        """A call in the new graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def transform(self):
        """The new module."""
        result = self.run()
        if result is not None:
            self._current = None
            self.new_graph.output(map_aggregate(result, lambda value: value.node if isinstance(value, Proxy) else value))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)

    def run(self, *args, **options):
        """Run all steps on proxies; inputs need no values."""
        self.env = {}
        for node in self.graph.nodes:
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
        return None
