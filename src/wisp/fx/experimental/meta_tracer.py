"""Tracing of programs that ask for shapes: values carry tensors without data."""

import contextlib

import wisp
from wisp import nn
from wisp.fx._shapes import Shapes, without_data
from wisp.fx._symbolic_trace import Tracer
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import map_aggregate
from wisp.fx.proxy import Attribute, Proxy

__all__ = ["MetaProxy", "MetaTracer", "symbolic_trace"]


class _Unknown(Exception):
    """A value without a tensor is among the arguments."""


@contextlib.contextmanager
def _as_always():
    """Inside, calls of modules are no steps."""
    taken = {name: vars(nn.Module)[name] for name in ("__call__", "__getattribute__") if name in vars(nn.Module)}
    for name in taken:
        delattr(nn.Module, name)
    try:
        yield
    finally:
        for name, function in taken.items():
            setattr(nn.Module, name, function)


class MetaProxy(Proxy):
    """A value that knows its shape and dtype, where they are known."""

    _meta = None

    def install_tensor_meta(self, tensor_meta):
        """Say what the value is: a tensor without data, or several."""
        self._meta = tensor_meta

    def size(self, dim=None):
        """The sizes, as numbers."""
        if not isinstance(self._meta, wisp.Tensor):
            return self.tracer.create_proxy("call_method", "size", (self,) if dim is None else (self, dim), {})
        return self._meta.size() if dim is None else self._meta.size(dim)

    def dim(self):
        """The number of dimensions."""
        return self._known("dim", lambda tensor: tensor.dim(), True)

    def numel(self):
        """The number of elements."""
        return self._known("numel", lambda tensor: tensor.numel(), True)

    def _known(self, name, ask, method=False):
        if isinstance(self._meta, wisp.Tensor):
            return ask(self._meta)
        return Attribute(self, name)() if method else Attribute(self, name)

    shape = property(lambda self: self._known("shape", lambda tensor: tensor.shape))
    ndim = property(lambda self: self._known("ndim", lambda tensor: tensor.ndim))
    dtype = property(lambda self: self._known("dtype", lambda tensor: tensor.dtype))

    def __len__(self):
        return self._meta.shape[0] if isinstance(self._meta, wisp.Tensor) else super().__len__()


class MetaTracer(Tracer):
    """A tracer of values with shapes: `trace(root, meta_args)` takes tensors on the device "meta" for inputs by name."""

    def proxy(self, node):
        """A value that may know its shape."""
        return MetaProxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        """Add a step, and find what it returns, if that is possible."""
        made = super().create_proxy(kind, target, args, kwargs, name, type_expr, proxy_factory_fn)
        if kind == "placeholder" and target in self.meta_args:
            made.install_tensor_meta(without_data(self.meta_args[target]))
        elif isinstance(made, MetaProxy) and kind not in ("placeholder", "output"):
            try:
                with _as_always():
                    made.install_tensor_meta(self._result(kind, target, args, kwargs))
            except _Unknown:
                pass
        return made

    def _result(self, kind, target, args, kwargs):
        def value(one):
            if isinstance(one, MetaProxy) and one._meta is not None:
                return one._meta
            if isinstance(one, Proxy):
                raise _Unknown
            return without_data(one)

        if kind == "get_attr":
            found = self.root
            for part in target.split("."):
                found = getattr(found, part)
            return without_data(found)
        args, kwargs = map_aggregate(tuple(args), value), map_aggregate({k: v for k, v in kwargs.items() if k != "device"}, value)
        if kind == "call_module":
            return self._shapes.module(self.root.get_submodule(target), args, kwargs)
        if kind == "call_method":
            return self._shapes.call(lambda first, *rest, **named: getattr(first, target)(*rest, **named), args, kwargs)
        return self._shapes.call(target, args, kwargs)

    def trace(self, root, meta_args=None, concrete_args=None):
        """The graph of a module or function."""
        self.meta_args, self._shapes = meta_args or {}, Shapes()
        return super().trace(root, concrete_args)


def symbolic_trace(root, meta_args=None, concrete_args=None):
    """As `fx.symbolic_trace`, for programs that branch on shapes: `meta_args` are tensors like the inputs, by name.

    >>> def f(x):
    ...     return wisp.relu(x) if x.shape[0] > 2 else wisp.neg(x)
    >>> symbolic_trace(f, {"x": wisp.empty(3, device="meta")}).graph.nodes[1].target is wisp.relu
    True
    """
    tracer = MetaTracer()
    graph = tracer.trace(root, meta_args, concrete_args)
    return GraphModule(tracer.root, graph, type(root).__name__ if isinstance(root, nn.Module) else root.__name__)
