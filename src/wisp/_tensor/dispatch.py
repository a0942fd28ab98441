"""`__torch_dispatch__`: subclasses of Tensor that answer operators below autograd, as `torch.ops.aten` names them.

Such a tensor is mostly a shell (`_make_wrapper_subclass`): a shape and a dtype without memory, around tensors that its class knows of.
The core hands over every operator that meets one, once modes and `__torch_function__` had their say (csrc/python/overrides.cpp).
What is recorded for backward is a Function around the call, so gradients are tensors of the class too, and their operators come here
in turn. The derivative of an operator is written out for the common ones, in operators; for any other it is one more operator, which
the class is asked to run and which computes it on whatever the class has inside.
"""

import functools

import wisp
from wisp import _core
from wisp._tensor import _disabled_torch_dispatch_impl
from wisp.utils import _pytree

_private = _core._operators[""]
_off = 0


class no_dispatch:
    """A context in which `__torch_dispatch__` of classes is not asked."""

    def __enter__(self):
        global _off
        _off += 1

    def __exit__(self, *details):
        global _off
        _off -= 1


def make_wrapper_subclass(
    cls,
    size,
    strides=None,
    storage_offset=None,
    memory_format=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    dispatch_sizes_strides_policy=None,
    dispatch_device=False,
    dispatch_layout=False,
    _extra_dispatch_keys=None,
    storage_size=None,
):
    """A tensor of a class with `__torch_dispatch__`: shape, dtype and device, and no memory."""
    if not (isinstance(cls, type) and issubclass(cls, _core.Tensor)):
        raise TypeError(f"_make_wrapper_subclass: expected a subclass of Tensor, got {cls!r}")
    if not dispatches(cls):
        raise RuntimeError(f"{cls.__name__} requires __torch_dispatch__ to be defined: it has no memory that operators could read")
    dtype, size = dtype or _core.get_default_dtype(), tuple(size)
    if strides is not None:
        shell = _core.empty_strided(size, tuple(strides), dtype=dtype, device="meta")
    else:
        shell = _core.empty(size, dtype=dtype, device="meta", memory_format=memory_format or _core.contiguous_format)
    made = _core.Tensor._make_subclass(cls, shell, requires_grad)
    made.__dict__["_wrapper_device"] = _core.device(device) if device is not None else _core.empty(0).device
    return made


def dispatches(cls):
    return getattr(cls, "__torch_dispatch__", _disabled_torch_dispatch_impl) is not _disabled_torch_dispatch_impl


def is_shell(tensor):
    """Whether a tensor was made by `_make_wrapper_subclass`."""
    return "_wrapper_device" in tensor.__dict__


# --- asking the classes ---------------------------------------------------------------------------------------------------


def _asked(leaves):
    """The tensors whose classes dispatch: one of each class, subclasses first."""
    found = []
    for value in leaves:
        if isinstance(value, _core.Tensor) and dispatches(type(value)) and all(type(value) is not type(other) for other in found):
            place = next((i for i, other in enumerate(found) if isinstance(value, type(other))), len(found))
            found.insert(place, value)
    return found


def ask(overload, args, kwargs):
    """The result of the first class that answers."""
    found = _asked(_pytree.tree_leaves((args, kwargs)))
    if not found:
        return overload(*args, **kwargs)
    types = tuple(type(value) for value in found)
    for value in found:
        result = type(value).__torch_dispatch__(overload, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"Multiple dispatch failed for '{overload}'; all __torch_dispatch__ handlers returned NotImplemented:\n"
        + "\n".join(f"  - tensor subclass {kind}" for kind in types)
    )


def run(overload, args, kwargs):
    """The operator with what autograd does for it."""
    if _off:
        return overload(*args, **kwargs)
    leaves, spec = _pytree.tree_flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, _core.Tensor)]
    name = overload.overloadpacket.__name__
    recorded = _core.is_grad_enabled() and any(leaves[i].requires_grad for i in places)
    if name in _PLAIN or not (recorded or any(_core._has_tangent(leaves[i]) for i in places)):
        return ask(overload, args, kwargs)

    def rebuild(tensors):
        filled = list(leaves)
        for i, tensor in zip(places, tensors):
            filled[i] = tensor
        return _pytree.tree_unflatten(filled, spec)

    changes = name.endswith("_") and not name.endswith("__")
    if changes and leaves[places[0]].is_leaf and leaves[places[0]].requires_grad:
        raise RuntimeError(f"a leaf Variable that requires grad is being used in an in-place operation. ({name})")
    return _Dispatched.apply(overload, rebuild, changes, *(leaves[i] for i in places))


# what has no derivative
_PLAIN = set(
    """detach detach_ _local_scalar_dense equal zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros
    new_ones new_empty new_full eq ne lt le gt ge argmax argmin""".split()
)


class _Dispatched(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, overload, rebuild, changes, *tensors):
        ctx.overload, ctx.rebuild, ctx.tensors = overload, rebuild, tensors
        if changes:  # backward sees the values from before
            ctx.tensors = (tensors[0].clone(), *tensors[1:])
        args, kwargs = rebuild(tensors)
        result = ask(overload, args, kwargs)
        if changes:
            result = tensors[0]
            ctx.mark_dirty(result)
        ctx.set_materialize_grads(False)
        ctx.many = isinstance(result, (tuple, list))
        return tuple(result) if ctx.many else result

    @staticmethod
    def backward(ctx, *grads):
        needs, tensors = ctx.needs_input_grad[3:], ctx.tensors
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        formula = _FORMULAS.get(ctx.overload.overloadpacket.__name__)
        found = None
        if formula is not None and len(grads) == 1:
            args, kwargs = ctx.rebuild(tensors)
            found = formula(grads[0], needs, *args, **kwargs)
        if found is None:
            found = run(Derivative.of(ctx.overload, ctx.rebuild, needs, ctx.many), (list(grads), list(tensors)), {})
        wanted = iter(found)
        results = [next(wanted) if need else None for need in needs]
        return (None, None, None, *results)

    @staticmethod
    def jvp(ctx, *tangents):
        found = run(Tangents(ctx.overload, ctx.rebuild, ctx.many), (list(tangents[3:]), list(ctx.tensors)), {})
        return tuple(found) if ctx.many else found[0]


class _MadeOperator:
    """An operator that stands for a part of the derivative of another one: named after it, and known to no library."""

    def __init__(self, name, namespace="aten"):
        self.overloadpacket, self.namespace, self._overloadname = self, namespace, "default"
        self.__name__, self._qualified_op_name = name, f"{namespace}::{name}"
        self.__module__, self.tags, self._schema = f"torch._ops.{namespace}", [], None

    def name(self):
        return self._qualified_op_name

    def __repr__(self):
        return f"{self.namespace}.{self.__name__}.default"


class Tangents(_MadeOperator):
    """The tangents of an operator's results from those of its tensors."""

    def __init__(self, overload, rebuild, many):
        super().__init__(f"{overload.overloadpacket.__name__}_jvp", overload.overloadpacket.namespace)
        self._overload, self._rebuild, self._many = overload, rebuild, many

    def __call__(self, tangents, tensors):
        from wisp.autograd import forward_ad

        hidden = _core._hide_tangents((1 << 63) - 1)  # the level under way hides inner ones, and here is one
        try:
            with forward_ad.dual_level() as level:
                inputs = [x if t is None else forward_ad.make_dual(x, t, level=level) for x, t in zip(tensors, tangents)]
                args, kwargs = self._rebuild(inputs)
                made = self._overload(*args, **kwargs)
                parts = [forward_ad.unpack_dual(x, level=level) for x in (made if self._many else [made])]
        finally:
            _core._hide_tangents(hidden)
        return [wisp.zeros_like(part.primal) if part.tangent is None else part.tangent for part in parts]


class _Inner(_MadeOperator):
    """An operator of the core that a function of Python calls, whose name it has but for the underscore."""

    def __init__(self, function):
        super().__init__(function.__name__.removeprefix("_"))
        self._function = function

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)


class NodeBackward(_MadeOperator):
    """The backward of a node of the core, whose incoming gradients are of such a class."""

    def __init__(self, node):
        super().__init__(node.name())
        self._node = node

    def __call__(self, grads):
        if _off == 0 and _asked(grads):
            return run(self, (list(grads),), {})
        made = self._node(*grads)
        return list(made) if isinstance(made, tuple) else [made]


def node_backward(node, *grads):
    """Called by the engine: one gradient, or None, for each input of the node."""
    return tuple(run(NodeBackward(node), (list(grads),), {}))


class Derivative(_MadeOperator):
    """The gradients of an operator with respect to some of its tensors, as an operator of its own: on plain tensors, autograd's."""

    def __init__(self, overload, rebuild, needs, many):
        packet = overload.overloadpacket
        super().__init__(f"{packet.__name__}_backward", packet.namespace)
        self.of_operator, self._rebuild, self._needs, self._many = overload, rebuild, needs, many

    @classmethod
    def of(cls, overload, rebuild, needs, many):
        return cls(overload, rebuild, needs, many)

    def __call__(self, grads, tensors):
        if _off == 0 and _asked([*grads, *tensors]):
            return run(self, (list(grads), list(tensors)), {})
        further = _core.is_grad_enabled() and any(t is not None and t.requires_grad for t in (*grads, *tensors))
        with wisp.enable_grad():
            inputs = [
                t if not need or (further and t.requires_grad) else t.detach().requires_grad_() for t, need in zip(tensors, self._needs)
            ]
            name = self.of_operator.overloadpacket.__name__
            changes = name.endswith("_") and not name.endswith("__")
            args, kwargs = self._rebuild([inputs[0].clone(), *inputs[1:]] if changes else inputs)
            made = self.of_operator(*args, **kwargs)
            pairs = [(o, g) for o, g in zip(made if self._many else [made], grads) if g is not None and o.requires_grad]
            wanted = [t for t, need in zip(inputs, self._needs) if need]
            if not pairs:
                return [wisp.zeros_like(t) for t in wanted]
            found = wisp.autograd.grad(
                [o for o, _ in pairs], wanted, [g.to(o.dtype) for o, g in pairs], create_graph=further, allow_unused=True
            )
        return [wisp.zeros_like(t) if g is None else g for t, g in zip(wanted, found)]


# --- derivatives in operators ---------------------------------------------------------------------------------------------


def _fit(grad, tensor):
    return grad if tuple(grad.shape) == tuple(tensor.shape) else grad.sum_to_size(tensor.shape)


def _binary(left, right):
    def formula(grad, needs, a, b, **kwargs):
        tensors = [t for t in (a, b) if isinstance(t, _core.Tensor)]
        if any(t.is_complex() or t.dtype != grad.dtype for t in (*tensors, grad)):
            return None
        pieces = [(a, left), (b, right)]
        wanted = [(t, make) for t, make in pieces if isinstance(t, _core.Tensor)]
        return [_fit(make(grad, a, b, **kwargs), t) for (t, make), need in zip(wanted, needs) if need]

    return formula


def _unary(make):
    def formula(grad, needs, x, *args, **kwargs):
        return None if x.is_complex() or x.dtype != grad.dtype else [make(grad, x, *args, **kwargs)]

    return formula


def _product(grad, needs, a, b):
    if a.is_complex() or a.dtype != grad.dtype:
        return None
    return [make() for make, need in zip((lambda: grad.mm(b.t()), lambda: a.t().mm(grad)), needs) if need]


_DIVISION = _binary(lambda g, a, b: g / b, lambda g, a, b: -g * a / (b * b))


def _quotient(grad, needs, a, b, rounding_mode=None):
    return None if rounding_mode else _DIVISION(grad, needs, a, b)


def _sum(grad, x, dim=None, keepdim=False, *, dtype=None):
    if dim is not None and not keepdim:
        for d in sorted(d % x.dim() for d in ([dim] if isinstance(dim, int) else dim)):
            grad = grad.unsqueeze(d)
    return grad.expand(x.shape)


_FORMULAS = {
    "add": _binary(lambda g, a, b, alpha=1: g, lambda g, a, b, alpha=1: g if alpha == 1 else g * alpha),
    "sub": _binary(lambda g, a, b, alpha=1: g, lambda g, a, b, alpha=1: -g if alpha == 1 else g * -alpha),
    "mul": _binary(lambda g, a, b: g * b, lambda g, a, b: g * a),
    "div": _quotient,
    "neg": _unary(lambda g, x: -g),
    "exp": _unary(lambda g, x: g * x.exp()),
    "t": _unary(lambda g, x: g.t()),
    "transpose": _unary(lambda g, x, a, b: g.transpose(a, b)),
    "view": _unary(lambda g, x, size: g.reshape(x.shape)),
    "expand": _unary(lambda g, x, size, implicit=False: g.sum_to_size(x.shape)),
    "clone": _unary(lambda g, x, memory_format=None: g),
    "alias": _unary(lambda g, x: g),
    "mm": _product,
    "sum": _unary(_sum),
}
# --- from the functions of this package to operators ------------------------------------------------------------------------


def _linear(input, weight, bias=None):
    if input.dim() == 2:
        return wisp.addmm(bias, input, weight.t()) if bias is not None else input.mm(weight.t())
    flat = input.reshape(-1, input.shape[-1])
    made = wisp.addmm(bias, flat, weight.t()) if bias is not None else flat.mm(weight.t())
    return made.view(*input.shape[:-1], weight.shape[0])


def _matmul(input, other):
    if input.dim() == 2 and other.dim() == 2:
        return input.mm(other)
    if input.dim() > 2 and other.dim() == 2:
        return input.reshape(-1, input.shape[-1]).mm(other).view(*input.shape[:-1], other.shape[1])
    if input.dim() == 3 and other.dim() == 3 and input.shape[0] == other.shape[0]:
        return input.bmm(other)
    return NotImplemented


def _reshape(input, *shape, **kwargs):
    sizes = kwargs.get("shape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    sizes = list(sizes)
    if -1 in sizes:
        known = functools.reduce(lambda a, b: a * b, (s for s in sizes if s != -1), 1)
        sizes[sizes.index(-1)] = input.numel() // max(known, 1)
    return input.view(sizes) if input.is_contiguous() else input.contiguous().view(sizes)


def _sum_to_size(input, *size):
    size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    lead = input.dim() - len(size)
    dims = [*range(lead), *(i + lead for i, n in enumerate(size) if n == 1 and input.shape[i + lead] != 1)]
    made = input.sum(dims, keepdim=True) if dims else input
    return made.view(list(size)) if lead else made


def _contiguous(input, *, memory_format=None):
    form = memory_format or _core.contiguous_format
    return input if input.is_contiguous(memory_format=form) else input.clone(memory_format=form)


def _to(input, *args, **kwargs):
    kwargs.pop("non_blocking", None)
    copy, options = kwargs.pop("copy", False), {k: v for k, v in kwargs.items() if v is not None}
    for arg in args:
        if isinstance(arg, _core.Tensor):
            options.update(dtype=arg.dtype, device=arg.device)
        elif isinstance(arg, _core.dtype):
            options["dtype"] = arg
        elif isinstance(arg, (str, int, _core.device)) and not isinstance(arg, bool):
            options["device"] = _core.device(arg)
    if isinstance(options.get("device"), str):
        options["device"] = _core.device(options["device"])
    same = options.get("dtype", input.dtype) == input.dtype and options.get("device", input.device) == input.device
    if same and not copy and options.get("memory_format") in (None, _core.preserve_format):
        return input
    return run(wisp.ops.aten._to_copy.default, (input,), options)


def _cast(dtype):
    return lambda input, memory_format=None: _to(input, dtype)


def _getitem(input, key):
    keys = key if isinstance(key, tuple) else (key,)
    taken = sum(k is not None and k is not Ellipsis for k in keys)
    if Ellipsis in [k for k in keys if k is None or k is Ellipsis]:
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        keys = (*keys[:at], *[slice(None)] * (input.dim() - taken), *keys[at + 1 :])
    aten, dim, indices = wisp.ops.aten, 0, []
    for k in keys:
        if k is None:
            input = run(aten.unsqueeze.default, (input, dim), {})
            dim += 1
        elif isinstance(k, int) and not isinstance(k, bool):
            input = run(aten.select.int, (input, dim, k), {})
        elif isinstance(k, slice):
            if k != slice(None):
                input = run(aten.slice.Tensor, (input, dim, k.start or 0, (1 << 63) - 1 if k.stop is None else k.stop, k.step or 1), {})
            dim += 1
        else:
            index = k if isinstance(k, _core.Tensor) else wisp.tensor(k)
            indices += [None] * (dim - len(indices)) + [index]
            dim += index.dim() if index.dtype == _core.bool else 1
    if indices:
        return run(aten.index.Tensor, (input, indices), {})
    return (
        run(aten.alias.default, (input,), {}) if all(k == slice(None) for k in keys if isinstance(k, slice)) and dim == len(keys) else input
    )


def _narrow(input, dim, start, length):
    start = int(start)
    if start < 0:
        start += input.shape[dim]
    return run(wisp.ops.aten.slice.Tensor, (input, dim, start, start + length), {})


def _setitem(self, key, value):
    keys = key if isinstance(key, tuple) else (key,)
    if not isinstance(value, _core.Tensor):
        value = wisp.tensor(value, dtype=self.dtype)
    if all(k is None or k is Ellipsis or isinstance(k, (int, slice)) for k in keys):
        _getitem(self, key).copy_(value)
    else:
        indices = [None if isinstance(k, slice) else k for k in keys]
        run(wisp.ops.aten.index_put_.default, (self, indices, value), {})


_DECOMPOSED = {
    "linear": _linear,
    "matmul": _matmul,
    "reshape": _reshape,
    "flatten": lambda x, start_dim=0, end_dim=-1: _reshape(
        x, *x.shape[: start_dim % max(x.dim(), 1)], -1, *x.shape[end_dim % max(x.dim(), 1) + 1 :]
    ),
    "view_as": lambda x, other: x.view(other.shape),
    "reshape_as": lambda x, other: _reshape(x, *other.shape),
    "expand_as": lambda x, other: x.expand(other.shape),
    "sum_to_size": _sum_to_size,
    "contiguous": _contiguous,
    "to": _to,
    "type_as": lambda x, other: _to(x, other.dtype),
    "cpu": lambda x, memory_format=None: _to(x, "cpu"),
    "cuda": lambda x, device=None, non_blocking=False, memory_format=None: _to(x, device or "cuda"),
    "__getitem__": _getitem,
    "narrow": _narrow,
    **{name: _cast(getattr(_core, kind)) for name, kind in (("float", "float32"), ("double", "float64"), ("half", "float16"))},
    **{
        name: _cast(getattr(_core, kind))
        for name, kind in (("bfloat16", "bfloat16"), ("long", "int64"), ("int", "int32"), ("bool", "bool"))
    },
}
# What asks for shapes and the like alone, or is about history.
_UNSEEN = {"is_contiguous", "numel", "is_complex", "is_floating_point", "is_nonzero", "result_type", "promote_types", "is_same_size"}


def _dispatch(function, args, kwargs):
    """Called by the core for an operator with a tensor of such a class; `_dispatch` itself: go on."""
    name = function.__name__
    facts = getattr(function, "_facts", ())
    if _off or name in _UNSEEN or "shape_only" in facts:
        return _dispatch
    if "for_python" in facts:  # it computes the result by itself; what other inner operators call is seen
        return run(_Inner(function), args, kwargs)
    if name[0] == "_" != name[1]:
        return _dispatch
    decomposed = _DECOMPOSED.get(name)
    if decomposed is not None:
        result = decomposed(*args, **kwargs)
        if result is not NotImplemented:
            return result
    from wisp._ops import overload_of

    overload, args, kwargs = overload_of(function, args, kwargs)
    out, wanted = kwargs.pop("out", None), kwargs.pop("requires_grad", False)
    result = run(overload, args, kwargs)
    if wanted:
        result.requires_grad_()
    return result if out is None else out.copy_(result)


_private["_set_dispatch"](_dispatch, _disabled_torch_dispatch_impl)


# --- classes --------------------------------------------------------------------------------------------------------------


def _item(self):
    return run(wisp.ops.aten._local_scalar_dense.default, (self,), {})


def _no_memory(what):
    def refuse(self, *args, **kwargs):
        if not is_shell(self):
            return getattr(_core.Tensor, what)(self, *args, **kwargs)
        raise RuntimeError(f"{what}(): a {type(self).__name__} has no memory of its own")

    return refuse


_MEMBERS = {
    "item": _item,
    "__bool__": lambda self: bool(_item(self)),
    "__int__": lambda self: int(_item(self)),
    "__float__": lambda self: float(_item(self)),
    "__setitem__": _setitem,
    "__iter__": lambda self: iter(self.unbind(0)),
    "data_ptr": lambda self: 0 if is_shell(self) else _core.Tensor.data_ptr(self),
    "T": property(lambda self: self.permute(list(range(self.dim()))[::-1])),
    "mT": property(lambda self: self.transpose(-2, -1)),
    "data": property(lambda self: self.detach(), lambda self, value: _exchange(self, value)),
    **{name: _no_memory(name) for name in ("numpy", "tolist", "__array__")},
}


def _exchange(self, value):
    if type(value) is not type(self):
        raise RuntimeError(f"Tensor.data = ...: expected a {type(self).__name__}, got a {type(value).__name__}")
    _core.Tensor.data.__set__(self, value)
    self.__dict__.update(value.__dict__)


def dispatching_class(cls):
    """Called for every new subclass of Tensor that has `__torch_dispatch__`."""
    _private["_wrapper_classes"](1)
    from wisp.overrides import _members

    inherited = _members()  # what a base class without __torch_dispatch__ was given
    for name, member in _MEMBERS.items():
        found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        if found is vars(_core.Tensor).get(name) or found is inherited.get(name):
            setattr(cls, name, member)
    if cls.__hash__ is None:
        cls.__hash__ = _core.Tensor.__hash__
