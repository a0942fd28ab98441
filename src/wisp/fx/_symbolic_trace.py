"""Runs a module or function once on proxies, and writes down what it does."""

import builtins
import functools
import inspect
import math
import os
import sys
import traceback
import types
from copy import deepcopy

from wisp import nn
from wisp._compat import module_of
from wisp.fx._compatibility import compatibility as compatibility
from wisp.fx._functional import arranged
from wisp.fx._text import PyTreeCodeGen, _PyTreeInfo
from wisp.fx.graph import Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from wisp.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["PH", "PHBase", "PHWithMeta", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

_HERE = os.path.dirname(os.path.dirname(__file__))  # whose frames are no lines of the program, but for those of layers
_LAYERS = os.path.join(_HERE, "nn", "")
_wrapped = []  # (globals, name) that fx.wrap was told
_wrapped_methods_to_patch = []  # (class, name) whose calls are to be steps


class PHBase:
    """A concrete argument that stays an input."""

    def __repr__(self):
        return "PH"


PH = PHBase()
_tracing = 0


def is_fx_tracing():
    """Whether a program is traced now.

    >>> is_fx_tracing()
    False
    """
    return _tracing > 0


is_fx_symbolic_tracing = is_fx_tracing


class PHWithMeta(PHBase):
    """An argument that stays an input, whose node gets its attributes."""

    def __init__(self, ph_key=None):
        self.ph_key = ph_key


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


def _is_none(value):
    return value is None


def _with_plain_arguments(function, count):
    """The function with its *args and **kwargs as arguments like any other, behind the others."""
    flags = function.__code__.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    code = function.__code__.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)
    return types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


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
        return proxy.tracer.create_proxy("call_function", function, *arranged(function, args, kwargs))

    return recorded


def _recording_method(method, name):
    """A method that is a step when a value of the trace is among its arguments."""

    @functools.wraps(method)
    def recorded(*args, **kwargs):
        proxy = _find_proxy((*args, *kwargs.values()))
        if proxy is None:
            return method(*args, **kwargs)
        return proxy.tracer.create_proxy("call_method", name, args, kwargs)

    return recorded


def _late(find, patches, place):
    """The `__getattr__` of a module whose functions are steps, too, when they are first asked for while a program is traced."""

    def found(name):
        value = find(name)
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
            patches.put(place, name, _recording(value))
            value = place[name]
        return value

    return found


class _Patcher:
    """Names that mean something else while a program is traced. Libraries with tracers of their own use it too."""

    def __init__(self):
        self.undo, self.methods = [], []

    def patch(self, frame_dict, name, new_fn, deduplicate=True):
        """Another function under a name of a module."""
        self.put(frame_dict, name, new_fn)

    def patch_method(self, cls, name, new_fn, deduplicate=True):
        """Another method of a class."""
        self.methods.append((cls, name, vars(cls).get(name)))
        setattr(cls, name, new_fn)

    def put(self, owner, name, value):
        absent = name not in owner
        self.undo.append((owner, name, owner.get(name), absent))
        owner[name] = value

    def __enter__(self):
        return self

    def __exit__(self, *details):
        for cls, name, value in reversed(self.methods):
            if value is None:
                delattr(cls, name)
            else:
                setattr(cls, name, value)
        for owner, name, value, absent in reversed(self.undo):
            if absent:
                del owner[name]
            else:
                owner[name] = value


class ScriptObject:
    """An object of TorchScript's: there are none."""


FunctionType = types.FunctionType
_orig_module_call, _orig_module_getattr = nn.Module.__call__, nn.Module.__getattr__


def _autowrap_check(patcher, frame_dict, function_ids):
    """Let functions that are to be steps be ones in a module, too."""
    for name, value in list(frame_dict.items()):
        if id(value) in function_ids and not name.startswith("_") and callable(value):
            patcher.put(frame_dict, name, _recording(value))


def _patch_wrapped_functions(patcher):
    """Let the functions that `wrap` was told, and Wisp's own, be steps."""
    Tracer()._wrap_functions(patcher)


class ProxyableClassMeta(type):
    """A metaclass whose classes can be made of proxies: making one is a step of the graph."""

    def __call__(cls, *args, **kwargs):
        proxy = _find_proxy((*args, *kwargs.values()))
        if proxy is None:
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)


class Tracer(TracerBase):
    """Traces modules and functions; subclasses say with `is_leaf_module` which modules stay whole."""

    traced_func_name = "forward"
    record_stack_traces = False
    proxy_buffer_attributes = False  # whether reading a buffer is a step, too; else it is one where it meets a traced value

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._modules, self._functions = tuple(autowrap_modules), tuple(autowrap_functions)
        self._autowrap_search, self._autowrap_function_ids = list(self._modules), {id(f) for f in self._functions}
        self.param_shapes_constant = param_shapes_constant
        self.root, self.graph, self.tensor_attrs, self._attributes = None, None, {}, {}
        self.module_stack, self.submodule_paths = {}, None
        self.scope, self.node_name_to_scope = Scope("", None), {}

    def __deepcopy__(self, memo):
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for name, value in vars(self).items():
            # modules of Python cannot be copied, and functions need not be
            copied.__dict__[name] = value if name in ("_modules", "_functions", "_autowrap_search") else deepcopy(value, memo)
        return copied

    def is_leaf_module(self, m, module_qualified_name):
        """Whether a module is one step of the graph: Wisp's own layers are, but for Sequential."""
        ours = module_of(type(m)).startswith(("wisp.nn", "wisp.ao")) and not isinstance(m, nn.Sequential)
        return ours or getattr(m, "_is_leaf_of_traces", False)

    def path_of_module(self, mod):
        """The name of a submodule of the root."""
        if self.submodule_paths is not None and mod in self.submodule_paths:
            return self.submodule_paths[mod]
        for name, module in self.root.named_modules():  # one that was added while the program was traced
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m, forward, args, kwargs):
        """Called for every call of a module: a step if it is a leaf, else what its `forward` does."""
        name = self.path_of_module(m)
        self.module_stack[name] = (name, type(m))
        try:
            with ScopeContextManager(self.scope, Scope(name, type(m))):
                if self.is_leaf_module(m, name):
                    return self.create_proxy("call_module", name, args, kwargs)
                return forward(*args, **kwargs)
        finally:
            self.module_stack.pop(name, None)

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        """Add a step, which knows in which modules it was made."""
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        if self.record_stack_traces:
            frames = [
                frame for frame in traceback.extract_stack() if not frame.filename.startswith(_HERE) or frame.filename.startswith(_LAYERS)
            ]
            node.stack_trace = "".join(traceback.format_list(frames)).strip()
        return node

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """Called for every tensor that is read from a module: the step that reads it."""
        return self._read(attr_val, parameter_proxy_cache)

    def _read(self, value, cache):
        import wisp

        is_step = isinstance(value, nn.Parameter) or (self.proxy_buffer_attributes and isinstance(value, wisp.Tensor))
        if is_step and id(value) in self._attributes:
            if id(value) not in cache:
                name, factory = self._attributes[id(value)], None
                if self.param_shapes_constant:

                    def factory(node):
                        return ParameterProxy(self, node, name, value)

                cache[id(value)] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
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
                name = self.get_fresh_qualname("_tensor_constant")
                self.tensor_attrs[id(a)] = name
                setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    def get_fresh_qualname(self, prefix):
        """A name that the root has no attribute of yet: the prefix with a number."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """The function to call, and the proxies to call it with; *args and **kwargs are one proxy each."""
        inner = inspect.unwrap(root_fn)
        try:
            signature = inspect.signature(inner)
        except ValueError:
            from wisp.fx.operator_schemas import get_signature_for_torch_op

            known = get_signature_for_torch_op(inner)
            if not known:
                raise
            signature = known[0].replace(parameters=[p for p in known[0].parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD])
        code = getattr(inner, "__code__", None)
        if code is None:  # an operator of the core
            return root_fn, [self._placeholder(name, parameter) for name, parameter in signature.parameters.items()]
        count = code.co_argcount + code.co_kwonlyargcount
        varying = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        if is_module and count == 0:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        names = list(code.co_varnames[1 if is_module else 0 : count])
        args = [self.root] if is_module else []
        if isinstance(concrete_args, tuple):
            if concrete_args and varying and not names:
                return root_fn, args + [self._input(f"input_{i}", value) for i, value in enumerate(concrete_args)]
            if len(names) != len(concrete_args):
                raise RuntimeError(f"Tracing expected {len(names)} arguments but got {len(concrete_args)} concrete arguments")
            concrete_args = dict(zip(names, concrete_args))
        concrete_args = concrete_args or {}
        for name in names:
            if name in concrete_args:
                args.append(self._concrete(name, concrete_args[name], signature.parameters.get(name)))
            else:
                args.append(self._placeholder(name, signature.parameters.get(name)))
        if varying or code.co_kwonlyargcount:
            rest = iter(code.co_varnames[count:])
            if varying & inspect.CO_VARARGS:
                args.append(self._placeholder("*" + next(rest)))
            if varying & inspect.CO_VARKEYWORDS:
                args.append(self._placeholder("**" + next(rest)))
            root_fn = _with_plain_arguments(inner, len(args))
        leaves, spec = tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children()):
            return root_fn, args
        self.graph.set_codegen(PyTreeCodeGen(_PyTreeInfo(list(code.co_varnames[:count]), spec, None)))

        def on_leaves(*leaves):
            out, out_spec = tree_flatten(root_fn(*tree_unflatten(list(leaves), spec)))
            self.graph._codegen.pytree_info = self.graph._codegen.pytree_info._replace(out_spec=out_spec)
            return out

        return on_leaves, leaves

    def _placeholder(self, name, parameter=None):
        default, kind = (), None
        if parameter is not None:
            default = () if parameter.default is parameter.empty else (parameter.default,)
            kind = None if parameter.annotation is parameter.empty else parameter.annotation
        return self.create_proxy("placeholder", name, default, {}, type_expr=kind)

    def _input(self, name, placeholder):
        proxy = self.create_proxy("placeholder", name, (), {})
        for attribute, value in vars(placeholder).items():
            if not hasattr(proxy.node, attribute):
                setattr(proxy.node, attribute, value)
        return proxy

    def _concrete(self, name, value, parameter):
        """A concrete argument: its leaves that are `PH` are inputs, and the graph checks that the others are what they were."""
        import wisp

        leaves, spec = tree_flatten(value)
        if spec.is_leaf() and value is PH:
            return self._placeholder(name, parameter)
        made = []
        for number, leaf in enumerate(leaves, 1):
            if isinstance(leaf, PHBase):
                made.append(self._input(f"{name}_{number}", leaf))
                continue
            default = () if parameter is None or parameter.default is parameter.empty else (parameter.default,)
            given = self.create_proxy("placeholder", f"{name}_{number}", default, {})
            if isinstance(leaf, (bool, int, float)) and not isinstance(leaf, wisp.Tensor):
                self._check(given == leaf, f"{name} has been specialized to have value {leaf} but got another value")
            elif leaf is None:
                self._check(
                    self.create_proxy("call_function", _is_none, (given,), {}),
                    f"{name} has been specialized to have value None but got another value",
                )
            else:
                import warnings

                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the user to "
                    "make sure that your inputs match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            made.append(leaf)
        return tree_unflatten(made, spec)

    def _check(self, proxy, message):
        import wisp

        self.create_proxy("call_function", wisp._assert, (proxy, message), {})

    def trace(self, root, concrete_args=None):
        """The graph of a module or function."""
        import wisp

        global _tracing
        if isinstance(root, nn.Module):
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            self.root, function = root, getattr(type(root), self.traced_func_name)
        else:
            self.root, function = nn.Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs, self.module_stack = {}, {}
        self.scope, self.node_name_to_scope = Scope("", None), {}
        self.submodule_paths = {module: name for name, module in self.root.named_modules()}
        self._attributes = {}
        for prefix, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, wisp.Tensor):
                    self._attributes[id(value)] = f"{prefix}.{name}".lstrip(".")
        for name, value in [*self.root.named_parameters(), *self.root.named_buffers()]:
            self._attributes[id(value)] = name
        returned = getattr(inspect.unwrap(function), "__annotations__", {}).get("return")
        function, args = self.create_args_for_root(function, isinstance(root, nn.Module), concrete_args)
        cache = {}
        call, get = nn.Module.__call__, nn.Module.__getattribute__

        def call_module(module, *args, **kwargs):
            if self._functions:  # which its file may have imported by name
                _autowrap_check(patches, getattr(module.forward, "__globals__", {}), self._autowrap_function_ids)
            return self.call_module(module, lambda *a, **k: call(module, *a, **k), args, kwargs)

        def get_attribute(module, name):
            value = get(module, name)
            return self.getattr(name, value, cache) if isinstance(value, wisp.Tensor) else value

        with _Patcher() as patches:
            self._wrap_functions(patches, getattr(inspect.unwrap(function), "__globals__", {}))
            nn.Module.__call__, nn.Module.__getattribute__ = call_module, get_attribute
            _tracing += 1
            try:
                result = function(*args)
            finally:
                _tracing -= 1
                del nn.Module.__call__, nn.Module.__getattribute__
        self.create_node("output", "output", (self.create_arg(result),), {}, type_expr=returned)
        return self.graph

    def _wrap_functions(self, patches, program=None):
        import wisp

        given = {id(value) for place in self._modules for value in vars(place).values() if callable(value)} | self._autowrap_function_ids
        for name, value in list((program or {}).items()):  # `from math import sqrt`, or one of the functions
            if id(value) in given and not name.startswith("_"):
                patches.put(program, name, _recording(value))
        patches.put(vars(wisp), "_assert", _recording(wisp._assert))
        for place in (wisp, wisp.nn.functional, wisp.linalg, wisp.fft, wisp.special, *self._modules):
            for name, value in list(vars(place).items()):
                python = isinstance(value, (types.FunctionType, types.BuiltinFunctionType))
                if python and not name.startswith("_") and name not in ("is_tensor", "typename"):
                    patches.put(vars(place), name, _recording(value))
        for cls, name in _wrapped_methods_to_patch:
            patches.patch_method(cls, name, _recording_method(getattr(cls, name), name))
        patches.put(vars(wisp), "__getattr__", _late(wisp.__getattr__, patches, vars(wisp)))
        functions = {id(place[name]) for place, name in _wrapped if name in place}
        modules = () if self.root is None else self.root.modules()
        graphs = {id(m): type(m).forward.__globals__ for m in modules if isinstance(m, GraphModule)}
        again = [(place, name) for place in graphs.values() for name, value in place.items() if id(value) in functions]
        for place, name in [*_wrapped, *again]:
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
