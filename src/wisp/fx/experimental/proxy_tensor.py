"""Graphs of operators: a function is run on tensors that note which of `torch.ops.aten` is called with them, gradients included."""

import functools
import inspect
import operator
import types

import wisp
from wisp.fx._symbolic_trace import Tracer
from wisp.fx.graph import Graph
from wisp.fx.graph_module import GraphModule
from wisp.fx.node import map_aggregate
from wisp.fx.passes.shape_prop import _extract_tensor_metadata
from wisp.overrides import TorchFunctionMode
from wisp.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["PythonKeyTracer", "get_proxy_mode", "make_fx"]

_modes = []


def get_proxy_mode():
    """The mode of the trace under way, or None.

    >>> print(get_proxy_mode())
    None
    """
    return _modes[-1] if _modes else None


class PythonKeyTracer(Tracer):
    """Adds operators to a graph; parameters and other tensors of the program become attributes."""

    def __init__(self):
        super().__init__(autowrap_modules=())
        self.root, self.graph, self.known = wisp.nn.Module(), Graph(tracer_cls=type(self)), []

    def create_arg(self, a):
        """As graphs keep it: a parameter is `_param_constantN`."""
        if isinstance(a, wisp.nn.Parameter) and id(a) not in self._attributes:
            name = f"_param_constant{len(self._attributes)}"
            setattr(self.root, name, a)
            self._attributes[id(a)] = name
        return super().create_arg(a)


class _Traced(wisp.Tensor):
    """A tensor whose operators are noted: a shell around `value`, which `proxy` computes."""

    @staticmethod
    def __new__(cls, value, proxy, requires_grad=False):
        made = wisp.Tensor._make_wrapper_subclass(
            cls, value.shape, strides=value.stride(), dtype=value.dtype, device=value.device, requires_grad=requires_grad
        )
        made.value, made.proxy = value.detach(), proxy
        return made

    def __repr__(self):
        return f"Traced({self.proxy.node}, {self.value})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return get_proxy_mode().note(func, args, kwargs or {})


def _shortened(func, kwargs):
    """The keyword arguments without those that are what they are when left out."""
    try:
        known = inspect.signature(func.op).parameters
    except (AttributeError, TypeError, ValueError):
        known = {}

    def left_out(name, value):
        if name == "keepdim":  # signatures show one form, maybe the other
            return value is False
        default = known[name].default if name in known else known
        return type(value) is type(default) and not isinstance(value, wisp.Tensor) and value == default

    return {name: value for name, value in kwargs.items() if not left_out(name, value)}


class ProxyTorchDispatchMode(TorchFunctionMode):
    """The trace: what is called with noted tensors, and what makes tensors from nothing."""

    def __init__(self, tracer, decompositions):
        self.tracer, self.decompositions = tracer, decompositions

    def __enter__(self):
        _modes.append(self)
        return super().__enter__()

    def __exit__(self, *details):
        _modes.pop()
        return super().__exit__(*details)

    def __torch_function__(self, func, classes, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not hasattr(func, "_facts"):
            if not isinstance(func, types.FunctionType):  # a slot, say __getitem__, which asks the tensors' classes
                return func(*args, **kwargs)
            with self:  # written in Python: what it calls is seen
                return getattr(func, "_unseen", func)(*args, **kwargs)
        if "shape_only" in func._facts or any(isinstance(leaf, wisp.Tensor) for leaf in tree_leaves((args, kwargs))):
            return func(*args, **kwargs)  # asks the tensors' classes
        made = func(*args, **kwargs)
        if not isinstance(made, wisp.Tensor) or isinstance(made, _Traced) or made.device.type == "meta":  # shells are made there
            return made
        from wisp._ops import overload_of

        overload, args, kwargs = overload_of(func, args, {name: value for name, value in kwargs.items() if name != "requires_grad"})
        name = overload.overloadpacket.__name__
        if len(args) > 1 and all(type(arg) is int for arg in args) and name in ("empty", "ones", "rand", "randn", "zeros"):
            args = (list(args),)
        proxy = self.tracer.create_proxy("call_function", overload, args, kwargs, name=name)
        return _Traced(made, proxy, made.requires_grad)

    def _max_pool(self, dims, input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        """The operator that returns the indices too, without arguments at the end that are what they are when left out."""
        windows = [list(w) if isinstance(w, (list, tuple)) else [w] * dims for w in (kernel_size, stride or kernel_size, padding, dilation)]
        args = [*windows, ceil_mode]
        for usual in (False, [1] * dims, [0] * dims):
            if args[-1] != usual:
                break
            args.pop()
        made = self.note(getattr(wisp.ops.aten, f"max_pool{dims}d_with_indices").default, (input, *args), {})
        return made if return_indices else made[0]

    def note(self, func, args, kwargs):
        """The operator as a step of the graph, and its result."""
        instead = self.decompositions.get(func)
        if instead is not None:
            made = instead(*args, **kwargs)
            if made is not NotImplemented:
                return made
        name = func.overloadpacket.__name__
        if name in ("max_pool2d", "max_pool3d"):
            return self._max_pool(int(name[-2]), *args, **kwargs)
        values = tree_map(lambda v: v.value if isinstance(v, _Traced) else v, (args, kwargs))
        if name in ("_local_scalar_dense", "equal"):
            raise RuntimeError(
                "It appears that you're trying to get value out of a tracing tensor - erroring out! It's likely that this is caused by "
                "data-dependent control flow or similar: a graph holds the same steps for all values."
            )
        kwargs = _shortened(func, kwargs)
        noted = tree_map(lambda v: v.proxy if isinstance(v, _Traced) else v, (args, kwargs))
        proxy = self.tracer.create_proxy("call_function", func, *noted, name=name)
        made = func(*values[0], **values[1])
        if name.endswith("_") and not name.endswith("__"):
            args[0].proxy = proxy
            return args[0]
        _tell(proxy.node, made)
        if isinstance(made, (tuple, list)):
            parts = [_Traced(part, proxy[i]) if isinstance(part, wisp.Tensor) else part for i, part in enumerate(made)]
            return type(made)(parts) if type(made) in (tuple, list) else tuple(parts)
        return _Traced(made, proxy) if isinstance(made, wisp.Tensor) else made


def _tell(node, made):
    """Note what an operator returned, without data."""

    def like(value):
        return wisp.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta") if plain(value) else None

    def plain(value):
        return isinstance(value, wisp.Tensor) and value.layout == wisp.strided

    if plain(made) or (isinstance(made, (tuple, list)) and all(map(plain, made))):
        node.meta["val"], node.meta["tensor_meta"] = map_aggregate(made, like), map_aggregate(made, _extract_tensor_metadata)


def _names(function, count):
    """Names for `count` arguments."""
    inner = inspect.unwrap(function.forward if isinstance(function, wisp.nn.Module) else function)
    try:
        kinds = inspect.signature(inner).parameters.values()
    except (TypeError, ValueError):
        kinds = ()
    names = [kind.name for kind in kinds if kind.kind in (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD)]
    return names[:count] if len(names) >= count else [f"arg{i}" for i in range(count)]


def make_fx(
    f,
    decomposition_table=None,
    tracing_mode="real",
    _allow_non_fake_inputs=False,
    *,
    pre_dispatch=False,
    record_module_stack=False,
    _allow_fake_constant=False,
    _error_on_data_dependent_ops=True,
    record_stack_traces=False,
    proxy_module_inputs=False,
):
    """A function that runs `f` on example tensors and returns a GraphModule of the operators that ran, those of `autograd.grad` too.

    `decomposition_table` maps operators to functions that are noted in their place. The sizes of the examples are part of the
    graph: `tracing_mode` may be "real" or "fake", which is the same here, and not "symbolic".

    >>> traced = make_fx(lambda x: wisp.sin(x) * 2)(wisp.ones(2))
    >>> print(traced.code.strip())
    def forward(self, x_1):
        sin = torch.ops.aten.sin.default(x_1);  x_1 = None
        mul = torch.ops.aten.mul.Tensor(sin, 2);  sin = None
        return mul
    """
    if tracing_mode not in ("real", "fake"):
        raise NotImplementedError(f"make_fx: tracing_mode={tracing_mode!r} is not supported, since sizes are numbers here; use 'real'")

    @functools.wraps(f)
    def traced(*args):
        tracer = PythonKeyTracer()
        tracer.record_stack_traces = record_stack_traces
        inputs = []
        for name, arg in zip(_names(f, len(args)), args):
            leaves, spec = tree_flatten(arg)
            for i, leaf in enumerate(leaves):
                proxy = tracer.create_proxy("placeholder", f"{name}_{i + 1}", (), {})
                if isinstance(leaf, wisp.Tensor):
                    proxy.node.meta["val"] = leaf.detach()
                    leaves[i] = _Traced(leaf, proxy, leaf.requires_grad)
            inputs.append(tree_unflatten(leaves, spec))
        with ProxyTorchDispatchMode(tracer, decomposition_table or {}):
            result = f(*inputs)
        found = tree_map(lambda v: v.proxy if isinstance(v, _Traced) else v, result)
        tracer.create_node("output", "output", (tracer.create_arg(found),), {})
        for node in tracer.graph.find_nodes(op="call_function", target=operator.getitem):
            if not node.users:  # a part of a result that nobody uses
                tracer.graph.erase_node(node)
        name = type(f).__name__ if isinstance(f, wisp.nn.Module) else getattr(f, "__name__", "GraphModule")
        made = GraphModule(tracer.root, tracer.graph, name)
        leaves, spec = tree_flatten(tuple(args))
        if len(leaves) != len(args):
            _take_trees(made, f, args, spec, result)
        return made

    return traced


def _take_trees(made, function, args, spec, result):
    """Arguments that hold several tensors are taken and returned as the function does."""
    from wisp.fx._text import PyTreeCodeGen, _PyTreeInfo

    out, out_spec = tree_flatten(result)
    output = made.graph.output_node()
    output.args = (tree_flatten(output.args[0])[0],)
    made.graph.set_codegen(PyTreeCodeGen(_PyTreeInfo(_names(function, len(args)), spec, out_spec)))
    made.recompile()
