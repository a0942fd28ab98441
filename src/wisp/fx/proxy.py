"""The values that a traced program computes with: each operation on one becomes a step of the graph."""

import copy
import dataclasses
import operator
import sys

from wisp.fx.node import map_aggregate
from wisp.overrides import see_python_functions

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "Scope", "ScopeContextManager", "TraceError", "TracerBase"]


class TraceError(ValueError):
    """The program does something that depends on values which are not known while it is traced."""


class Proxy:
    """Stands for a value while a program is traced."""

    def __init__(self, node, tracer=None):
        see_python_functions()
        self.node = node
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __deepcopy__(self, memo):
        # without this, Proxy's __getattr__ would be asked for what copy looks for
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for name, value in vars(self).items():
            copied.__dict__[name] = copy.deepcopy(value, memo)
        return copied

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        return self.tracer.iter(self)

    def __bool__(self):
        return self.tracer.to_bool(self)

    def __len__(self):
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    def keys(self):
        """The keys, of `**value`."""
        return self.tracer.keys(self)

    def __abs__(self):
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        from wisp import Tensor
        from wisp.fx._functional import arranged

        kwargs = kwargs or {}
        tracers = []
        map_aggregate((args, kwargs), lambda value: tracers.append(value.tracer) if isinstance(value, Proxy) else None)
        name = getattr(func, "__name__", "")
        if getattr(Tensor, name, None) is func and func not in (Tensor.__getitem__,):
            return tracers[0].create_proxy("call_method", name, args, kwargs)
        return tracers[0].create_proxy("call_function", func, *arranged(func, args, kwargs))


def _operator(name, reflected):
    function = getattr(operator, name)

    def method(self, *others):
        args = (others[0], self) if reflected else (self, *others)
        return self.tracer.create_proxy("call_function", function, args, {})

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "xor"):
    setattr(Proxy, f"__{_name}__", _operator(_name, False))
    setattr(Proxy, f"__r{_name}__", _operator(_name, True))
for _name in ("and_", "or_"):
    setattr(Proxy, f"__{_name[:-1]}__", _operator(_name, False))
    setattr(Proxy, f"__r{_name[:-1]}__", _operator(_name, True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert", "getitem", "setitem"):  # x += 1 is x = x + 1, as in PyTorch
    setattr(Proxy, f"__{_name}__", _operator(_name, False))
Proxy.__hash__ = object.__hash__


class Attribute(Proxy):
    """`value.name`: a method once it is called, otherwise an attribute."""

    def __init__(self, root, attr):
        self.root, self.attr, self.tracer, self._node = root, attr, root.tracer, None

    @property
    def node(self):
        """The step that reads the attribute, made when it is first needed."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape is known while the program is traced."""

    def __init__(self, tracer, node, name, param):
        super().__init__(node, tracer)
        self.param, self.name = param, name

    def __repr__(self):
        return f"ParameterProxy({self.name})"

    shape = property(lambda self: self.param.shape)
    ndim = property(lambda self: self.param.ndim)

    def size(self, *args):
        """The size of the parameter."""
        return self.param.size(*args)

    def dim(self):
        """The number of its dimensions."""
        return self.param.dim()

    def numel(self):
        """The number of its elements."""
        return self.param.numel()

    def nelement(self):
        """The number of its elements."""
        return self.param.nelement()


class Scope:
    """In which module a step is made: its name and class."""

    def __init__(self, module_path, module_type):
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Inside, a `Scope` is another one.

    >>> import wisp.fx
    >>> scope = Scope("", None)
    >>> with ScopeContextManager(scope, Scope("layer", wisp.nn.ReLU)):
    ...     scope.module_path
    'layer'
    """

    def __init__(self, scope, current_scope):
        self._scope, self._before, self._now = scope, (scope.module_path, scope.module_type), current_scope

    def __enter__(self):
        self._scope.module_path, self._scope.module_type = self._now.module_path, self._now.module_type
        return self._scope

    def __exit__(self, *details):
        self._scope.module_path, self._scope.module_type = self._before


class TracerBase:
    """What turns operations on proxies into steps of `graph`."""

    graph = None
    record_stack_traces = False
    check_mutable_operations = False

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        """Add a step; RuntimeError for one that writes to its arguments where `check_mutable_operations` is set."""
        if kind == "call_function" and self.check_mutable_operations:
            from wisp.fx.operator_schemas import check_for_mutable_operation

            check_for_mutable_operation(target, args, kwargs)
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        notes = sys.modules.get("wisp.fx.traceback")
        if notes is not None and notes.should_preserve_node_meta:
            node.meta.update(notes.current_meta)
        return node

    def proxy(self, node):
        """The proxy of a node."""
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        """Add a step whose arguments are proxies and other values, and return the proxy of its result."""
        node = self.create_node(kind, target, self.create_arg(tuple(args)), self.create_arg(dict(kwargs)), name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a):
        """The argument as a graph keeps it: nodes for proxies, inside of containers too."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(type(a), "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            parts = [self.create_arg(item) for item in a]
            return type(a)(*parts) if hasattr(a, "_make") else tuple(parts)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            if any(isinstance(key, Proxy) for key in a):
                raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got keys: {list(a)}")
            return {key: self.create_arg(item) for key, item in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if dataclasses.is_dataclass(a) and not isinstance(a, type):
            fields = {field.name: self.create_arg(getattr(a, field.name)) for field in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        return a

    def to_bool(self, obj):
        """Called for `if value:`, which cannot be traced."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj):
        """Called for `for x in value:`; possible where the program unpacks a known number of values."""
        import dis

        frame = sys._getframe(2)
        instructions = list(dis.get_instructions(frame.f_code))
        at = next((i for i, step in enumerate(instructions) if step.offset == frame.f_lasti), None)
        if at is not None and instructions[at].opname == "UNPACK_SEQUENCE":
            return (obj[i] for i in range(instructions[at].arg))
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument."
        )

    def keys(self, obj):
        """Called for `**value`."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds steps to a graph that exists."""

    def __init__(self, graph):
        self.graph = graph
