"""Runs a module or function once on proxies, and writes down what it does."""

import builtins
import functools
import inspect
import math
import sys
import types

from wisp import nn
from wisp.fx.graph import Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.proxy import Proxy, TracerBase

__all__ = ["PH", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

PH = object()  # a concrete argument that stays an input
_wrapped = []  # (globals, name) that fx.wrap was told


def wrap(fn_or_name):
    """Let calls of a function of this module, or of a builtin, be steps of the graph instead of being traced through.

    >>> import wisp.fx
    >>> wisp.fx.wrap(abs) is abs
    True
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    place = sys._getframe(1).f_globals
    if not any(there is place and known == name for there, known in _wrapped):
        _wrapped.append((place, name))
    return fn_or_name


def _find_proxy(values):
    for value in values:
        if isinstance(value, Proxy):
            return value
        if isinstance(value, (tuple, list)):
            found = _find_proxy(value)
        elif isinstance(value, dict):
            found = _find_proxy(value.values())
        else:
            found = None
        if found is not None:
            return found
    return None


def _recording(function):
    @functools.wraps(function)
    def recorded(*args, **kwargs):
        proxy = _find_proxy((*args, *kwargs.values()))
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", function, args, kwargs)

    return recorded


class _Patches:
    """Names that mean something else while a program is traced."""

    def __init__(self):
        self.undo = []

    def put(self, owner, name, value):
        absent = name not in owner
        self.undo.append((owner, name, owner.get(name), absent))
        owner[name] = value

    def __enter__(self):
        return self

    def __exit__(self, *details):
        for owner, name, value, absent in reversed(self.undo):
            if absent:
                del owner[name]
            else:
                owner[name] = value


class ProxyableClassMeta(type):
    """A metaclass whose classes can be made of proxies: making one is a step of the graph."""

    def __call__(cls, *args, **kwargs):
        proxy = _find_proxy((*args, *kwargs.values()))
        if proxy is None:
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)


class Tracer(TracerBase):
    """Traces modules and functions; subclasses say with `is_leaf_module` which modules stay whole."""

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._modules, self._functions = tuple(autowrap_modules), tuple(autowrap_functions)
        self.param_shapes_constant = param_shapes_constant
        self.root, self.graph, self.tensor_attrs = None, None, {}

    def is_leaf_module(self, m, module_qualified_name):
        """Whether a module is one step of the graph: Wisp's own layers are, but for Sequential."""
        return m.__module__.startswith(("wisp.nn", "torch.nn", "wisp.ao")) and not isinstance(m, nn.Sequential)

    def path_of_module(self, mod):
        """The name of a submodule of the root."""
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m, forward, args, kwargs):
        """Called for every call of a module: a step if it is a leaf, else what its `forward` does."""
        name = self.path_of_module(m)
        if self.is_leaf_module(m, name):
            return self.create_proxy("call_module", name, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """Called for every tensor that is read from a module: the step that reads it."""
        return self._read(attr_val, parameter_proxy_cache)

    def _read(self, value, cache):
        import wisp

        if isinstance(value, nn.Parameter) or (isinstance(value, wisp.Tensor) and id(value) in self._attributes):
            if id(value) not in cache:
                if id(value) not in self._attributes:
                    return value
                cache[id(value)] = self.create_proxy("get_attr", self._attributes[id(value)], (), {})
            return cache[id(value)]
        return value

    def create_arg(self, a):
        """The argument as a graph keeps it; tensors become attributes of the module."""
        import wisp

        if isinstance(a, nn.Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, wisp.Tensor):
            name = self._attributes.get(id(a)) or self.tensor_attrs.get(id(a))
            if name is None:
                name = f"_tensor_constant{len(self.tensor_attrs)}"
                while hasattr(self.root, name):
                    name += "_"
                self.tensor_attrs[id(a)] = name
                setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """The proxies with which the function is called."""
        function = inspect.unwrap(root_fn)
        signature = list(inspect.signature(function).parameters.values())
        args, named = ([self.root] if is_module else []), {}
        for parameter in signature[1 if is_module else 0 :]:
            if concrete_args and parameter.name in concrete_args and concrete_args[parameter.name] is not PH:
                args.append(concrete_args[parameter.name])
                continue
            prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            default = () if parameter.default is parameter.empty else (parameter.default,)
            kind = None if parameter.annotation is parameter.empty else parameter.annotation
            proxy = self.create_proxy("placeholder", prefix + parameter.name, default, {}, parameter.name, kind)
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = proxy
            elif prefix == "":
                args.append(proxy)
            else:
                named[prefix] = proxy
        return function, args, named

    def trace(self, root, concrete_args=None):
        """The graph of a module or function."""
        import wisp

        if isinstance(root, nn.Module):
            self.root, function = root, type(root).forward
        else:
            self.root, function = nn.Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}
        self._attributes = {}
        for prefix, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, wisp.Tensor):
                    self._attributes[id(value)] = f"{prefix}.{name}".lstrip(".")
        for name, value in [*self.root.named_parameters(), *self.root.named_buffers()]:
            self._attributes[id(value)] = name
        function, args, named = self.create_args_for_root(function, isinstance(root, nn.Module), concrete_args)
        cache = {}
        call, get = nn.Module.__call__, nn.Module.__getattribute__

        def call_module(module, *args, **kwargs):
            return self.call_module(module, lambda *a, **k: call(module, *a, **k), args, kwargs)

        def get_attribute(module, name):
            value = get(module, name)
            return self.getattr(name, value, cache) if isinstance(value, wisp.Tensor) else value

        with _Patches() as patches:
            self._wrap_functions(patches)
            nn.Module.__call__, nn.Module.__getattribute__ = call_module, get_attribute
            try:
                rest = named.pop("*", None)
                extra = named.pop("**", None)
                if rest is not None or extra is not None:
                    extras = {"kwargs": extra} if extra is not None else {}
                    result = function(*args, *((rest,) if rest is not None else ()), **named, **extras)
                else:
                    result = function(*args, **named)
            finally:
                del nn.Module.__call__, nn.Module.__getattribute__
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    def _wrap_functions(self, patches):
        import wisp

        for place in (wisp, wisp.nn.functional, *self._modules):
            for name, value in list(vars(place).items()):
                python = isinstance(value, (types.FunctionType, types.BuiltinFunctionType))
                if python and not name.startswith("_") and name not in ("is_tensor", "typename"):
                    patches.put(vars(place), name, _recording(value))
        for place, name in _wrapped:
            value = place.get(name, getattr(builtins, name, None))
            if value is not None:
                patches.put(place, name, _recording(value))
        for function in self._functions:
            place = getattr(sys.modules.get(function.__module__), "__dict__", None)
            if place is not None and place.get(function.__name__) is function:
                patches.put(place, function.__name__, _recording(function))


def symbolic_trace(root, concrete_args=None):
    """The module or function as a `GraphModule`, whose steps can be looked at and changed.

    >>> import wisp.fx
    >>> traced = wisp.fx.symbolic_trace(lambda x: wisp.relu(x) + 1)
    >>> [node.op for node in traced.graph.nodes]
    ['placeholder', 'call_function', 'call_function', 'output']
    >>> traced(wisp.tensor([-1.0, 2.0]))
    tensor([1., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
