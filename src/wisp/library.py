"""`torch.library`: operators that a program defines, with their gradients, under `torch.ops.<namespace>.<name>`."""

import contextlib as _contextlib
import functools
import inspect
import itertools
import typing

import wisp
from wisp import _reference, overrides
from wisp._ops import OpOverload, OpOverloadPacket, ops
from wisp.autograd import function as _function

__all__ = """
    CustomOpDef Library custom_op define fallthrough_kernel get_ctx get_kernel impl impl_abstract infer_schema opcheck
    register_autocast register_autograd register_fake register_kernel register_torch_dispatch register_vmap triton_op wrap_triton""".split()

_TYPES = {
    wisp.Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    complex: "Scalar",
    wisp.dtype: "ScalarType",
    wisp.device: "Device",
}


def _type_text(kind):
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _TYPES:
        return _TYPES[kind]
    if origin is typing.Union or (origin is not None and origin.__name__ == "UnionType"):
        return _type_text(next(part for part in inner if part is not type(None))) + "?"
    if origin in (list, list) or (origin is not None and getattr(origin, "__name__", "") == "Sequence"):
        return _type_text(inner[0]) + "[]"
    return getattr(kind, "__name__", str(kind))


def infer_schema(prototype_function, /, *, mutates_args=(), op_name=None):
    """The schema of a function with annotations.

    >>> import wisp
    >>> def f(x: wisp.Tensor, n: int = 2) -> wisp.Tensor: ...
    >>> wisp.library.infer_schema(f, mutates_args=())
    '(Tensor x, SymInt n=2) -> Tensor'
    """
    hints = typing.get_type_hints(prototype_function)
    parts, letters = [], iter("abcdefghijklmnopqrstuvwxyz")
    for name, parameter in inspect.signature(prototype_function).parameters.items():
        if name not in hints:
            raise ValueError(f"infer_schema(func): Parameter {name} must have a type annotation.")
        text = _type_text(hints[name])
        if mutates_args != () and (name in mutates_args or mutates_args == "unknown") and text.startswith("Tensor"):
            text = text.replace("Tensor", f"Tensor({next(letters)}!)")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(f"{text} {name}" + ("" if parameter.default is parameter.empty else f"={parameter.default}"))
    result = hints.get("return", type(None))
    if result is type(None):
        returned = "()"
    elif typing.get_origin(result) is tuple:
        returned = "(" + ", ".join(map(_type_text, typing.get_args(result))) + ")"
    else:
        returned = _type_text(result)
    return (op_name or "") + f"({', '.join(parts)}) -> {returned}"


class CustomOpDef:
    """An operator of a program: call it, or `torch.ops.<namespace>.<name>`, and register what else it has."""

    def __init__(self, namespace, name, function=None, schema=None, mutates_args=()):
        self._namespace, self._name, self._schema, self._mutates = namespace, name, schema, mutates_args
        self._kernels = {None: function} if function is not None else {}
        self._init_fn = function
        self._fake = self._backward = self._setup = self._vmap = None
        self._autocast, self._off, self._wrapped, self._composite = {}, set(), None, False
        self._qualname = f"{namespace}::{name}"
        self.__name__ = name
        if function is not None:
            functools.update_wrapper(self, function)
        packet = OpOverloadPacket(namespace, name, self)
        packet._overloads["default"] = OpOverload(packet, "default")
        packet.default._text = schema
        setattr(getattr(ops, namespace), name, packet)
        self._opoverload = packet.default
        _defined[self._qualname] = self
        for types, given in _waiting.pop(self._qualname, ()):
            impl(self._qualname, types, given)

    def _kernel(self, tensors):
        kind = next((t.device.type for t in tensors), None)
        if kind == "meta" and self._fake is not None:
            return self._fake
        if kind not in self._off and kind in self._kernels:
            return self._kernels[kind]
        if None in self._kernels:
            return self._kernels[None]
        raise NotImplementedError(
            f"Could not run '{self._qualname}' with arguments on {kind!r}: it has kernels for "
            f"{[str(k) for k in self._kernels]}; register one with torch.library.register_kernel"
        )

    def _run(self, *args, **kwargs):
        tensors = [a for a in _leaves((args, kwargs)) if isinstance(a, wisp.Tensor)]
        return self._kernel(tensors)(*args, **kwargs)

    def __call__(self, *args, **kwargs):
        if overrides._local.modes and overrides.has_torch_function(()):
            return overrides.handle_torch_function(self._opoverload, (), *args, **kwargs)
        tensors = [a for a in _leaves((args, kwargs)) if isinstance(a, wisp.Tensor)]
        if any(type(t) is _function._BatchedTensor for t in tensors):
            from wisp.func._batching import apply_operator

            bound = self._bound(args, kwargs)
            return apply_operator(self, bound.args, bound.kwargs)
        kind = tensors[0].device.type if tensors else "cpu"
        if kind in self._autocast and wisp.is_autocast_enabled(kind):
            dtype = self._autocast[kind]
            args, kwargs = wisp.utils._pytree.tree_map(
                lambda a: a.to(dtype) if isinstance(a, wisp.Tensor) and a.is_floating_point() else a, (args, kwargs)
            )
        if self._backward is None or not wisp.is_grad_enabled() or not any(t.requires_grad for t in tensors):
            if self._composite or self._backward is not None or not any(t.requires_grad for t in tensors):
                return self._run(*args, **kwargs)
            return self._without_gradient(*args, **kwargs)
        return _Call().apply(self, self._bound(args, kwargs))

    def _bound(self, args, kwargs):
        function = next(iter(self._kernels.values()), None)
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
        except (TypeError, ValueError):
            return inspect.BoundArguments(inspect.Signature(), {}) if not args and not kwargs else _Plain(args, kwargs)
        return bound

    def _without_gradient(self, *args, **kwargs):
        with wisp.no_grad():
            result = self._run(*args, **kwargs)
        name = self._qualname

        class NoGradient(wisp.autograd.Function):
            @staticmethod
            def forward(ctx, value, *sources):
                return value.view_as(value)

            @staticmethod
            def backward(ctx, *grads):
                raise RuntimeError(
                    f"Trying to backward through {name} but no autograd formula was registered. Please use register_autograd to add one."
                )

        sources = [a for a in _leaves((args, kwargs)) if isinstance(a, wisp.Tensor) and a.requires_grad]
        return wisp.utils._pytree.tree_map(
            lambda t: NoGradient.apply(t, *sources) if isinstance(t, wisp.Tensor) and t.is_floating_point() else t, result
        )

    def register_kernel(self, device_types, func=None, /):
        """Set the function for devices ("cpu", "cuda", a list of them, or None and "default" for those that have none of their own)."""

        def register(function):
            for kind in [device_types] if isinstance(device_types, str) or device_types is None else device_types:
                self._kernels[None if kind == "default" else kind] = function
            return function

        return register if func is None else register(func)

    def register_fake(self, fn, /):
        """Set the function for tensors without memory (device "meta")."""
        self._fake = fn
        return fn

    def register_autograd(self, backward, /, *, setup_context=None):
        """Set `backward(ctx, *grads)`, and `setup_context(ctx, inputs, output)` that saves what it needs."""
        self._backward, self._setup = backward, setup_context

    def register_vmap(self, func=None, /):
        """Set the rule for `torch.vmap`, `func(info, in_dims, *args) -> (output, out_dims)`; without one samples are taken one by one."""

        def register(function):
            self._vmap = function
            return function

        return register if func is None else register(func)

    def register_autocast(self, device_type, cast_inputs):
        """Under autocast, give the operator its floating tensors in this dtype."""
        self._autocast[device_type] = cast_inputs

    def register_torch_dispatch(self, torch_dispatch_class, fn=None, /):
        """Not available: Wisp has no dispatch below its functions."""
        raise NotImplementedError("register_torch_dispatch: Wisp has no __torch_dispatch__; use __torch_function__")

    def set_kernel_enabled(self, device_type, enabled=True):
        """Switch the kernel of a device off or on, inside of a `with`."""
        import contextlib

        @contextlib.contextmanager
        def switched():
            before = set(self._off)
            (self._off.discard if enabled else self._off.add)(device_type)
            try:
                yield
            finally:
                self._off = before

        return switched()

    def __repr__(self):
        return f"<CustomOpDef({self._qualname})>"


class _Plain:
    def __init__(self, args, kwargs):
        self.args, self.kwargs = args, kwargs


def _leaves(values):
    return wisp.utils._pytree.tree_leaves(values)


def _spread(values):
    """Lists of tensors as arguments one by one -> the arguments, and per value how many it became (None: it is one itself)."""
    counts = [len(v) if isinstance(v, (list, tuple)) and any(isinstance(t, wisp.Tensor) for t in v) else None for v in values]
    return [x for value, count in zip(values, counts) for x in ((value,) if count is None else value)], counts


def _gathered(flat, counts):
    """The values that `_spread` made `flat` of."""
    flat = iter(flat)
    return [next(flat) if count is None else list(itertools.islice(flat, count)) for count in counts]


class _Call:
    """A call of an operator with a gradient: how its arguments and results lie in those of the Function."""

    def apply(self, op, bound):
        self.names = tuple(bound.kwargs)
        flat, self.inputs = _spread(bound.args)
        results = _autograd_function(op).apply(self, *flat, *bound.kwargs.values())
        if self.outputs is None:
            return results
        results = _gathered(results, self.outputs)
        return tuple(results) if self.several else results[0]

    @_contextlib.contextmanager
    def own_needs(self, ctx):
        """`needs_input_grad` as the operator's functions know it: one entry for each of its arguments."""
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(_gathered(needs[1:], self.inputs))
        try:
            yield
        finally:
            ctx.needs_input_grad = needs


@functools.lru_cache(None)
def _autograd_function(op):
    class Defined(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, call, *flat):
            ctx._call, split = call, len(flat) - len(call.names)
            inputs, named = tuple(_gathered(flat[:split], call.inputs)), dict(zip(call.names, flat[split:]))
            result = op._run(*inputs, **named)
            if op._setup is not None:
                options = {"keyword_only_inputs": named} if named else {}
                with call.own_needs(ctx):
                    op._setup(ctx, inputs=inputs, output=result, **options)
            call.several = isinstance(result, tuple)
            flat, call.outputs = _spread(result if call.several else (result,))
            if call.several or call.outputs != [None]:
                return tuple(flat)
            call.outputs = None
            return result

        @staticmethod
        def backward(ctx, *grads):
            call = ctx._call
            with call.own_needs(ctx):
                found = op._backward(ctx, *(grads if call.outputs is None else _gathered(grads, call.outputs)))
            found = found if isinstance(found, tuple) else (found,)
            count = len(call.inputs)
            if len(found) < count or any(g is not None for g in found[count:]):
                raise RuntimeError(f"{op._qualname}: backward returned {len(found)} gradients, expected one for each of {count} inputs")
            lists = [(None,) * n if n is not None and g is None else (g,) if n is None else g for g, n in zip(found, call.inputs)]
            return None, *itertools.chain(*lists), *(None,) * len(call.names)

    Defined.__name__ = Defined.__qualname__ = op._name
    return Defined


_defined, _waiting = {}, {}  # operators by their names; what was registered for names that are defined later


def _split(name):
    namespace, colons, rest = name.partition("::")
    if not colons:
        raise ValueError(f"expected an operator's name such as 'mylib::myop', got {name!r}")
    return namespace, rest.partition("(")[0].partition(".")[0].strip()


def _find(op):
    if isinstance(op, CustomOpDef):
        return op
    name = op if isinstance(op, str) else getattr(op, "_qualified_op_name", None) or op.name()
    namespace, name = _split(name)
    found = _defined.get(f"{namespace}::{name}")
    if found is None:
        raise RuntimeError(f"operator {namespace}::{name} does not exist: define it with torch.library.custom_op or torch.library.define")
    return found


def custom_op(name, fn=None, /, *, mutates_args=(), device_types=None, schema=None, tags=None):
    """Make an operator of a function, as a decorator: `@custom_op("mylib::twice", mutates_args=())`.

    >>> import wisp
    >>> @wisp.library.custom_op("docs::twice", mutates_args=())
    ... def twice(x: wisp.Tensor) -> wisp.Tensor:
    ...     return x * 2
    >>> wisp.ops.docs.twice(wisp.ones(1))
    tensor([2.])
    """

    def make(function):
        namespace, short = _split(name)
        op = CustomOpDef(namespace, short, None, schema or infer_schema(function, mutates_args=mutates_args), mutates_args)
        functools.update_wrapper(op, function)
        op.register_kernel(device_types, function)
        return op

    return make if fn is None else make(fn)


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    """As `custom_op`; the function's own operators give the gradient."""

    def make(function):
        op = custom_op(name, function, mutates_args=mutates_args, schema=schema)
        op._composite = True
        return op

    return make if fn is None else make(fn)


def wrap_triton(triton_kernel, /):
    """The kernel as it is."""
    return triton_kernel


def define(qualname, schema=None, *, lib=None, tags=()):
    """Name an operator whose functions `impl` gives later."""
    if schema is None and "(" in qualname:
        qualname, schema = qualname.partition("(")[0], "(" + qualname.partition("(")[2]
    namespace, name = _split(qualname)
    CustomOpDef(namespace, name, None, schema)


_KEYS = {
    "CPU": "cpu",
    "CUDA": "cuda",
    "Meta": "meta",
    "CompositeExplicitAutograd": None,
    "CompositeImplicitAutograd": None,
    "default": None,
    "cpu": "cpu",
    "cuda": "cuda",
    "": None,
}


def impl(qualname, types, func=None, *, lib=None):
    """Set the function of an operator for devices ("cpu", "cuda", "default"); also as `impl(library, name, key)`."""
    if isinstance(qualname, Library):
        library, name, key = qualname, types, func or ""
        return lambda function: (library.impl(name, function, key), function)[1]

    def register(function):
        full = "::".join(_split(qualname)) if isinstance(qualname, str) else None
        if full and full not in _defined and not full.startswith(("aten::", "prims::", "wisp::")):  # it may be defined later
            _waiting.setdefault(full, []).append((types, function))
            return function
        op = _find(qualname)
        for kind in [types] if isinstance(types, str) else types:
            if kind == "Autograd" or kind.startswith("Autograd"):
                op._composite = True
                op._kernels[None] = function
            elif kind == "Meta":
                op._fake = function
            else:
                op._kernels[_KEYS.get(kind, kind.lower())] = function
                op._composite = op._composite or kind == "CompositeImplicitAutograd"
        return function

    return register if func is None else register(func)


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Set the function of an operator for devices."""
    return _find(op).register_kernel(device_types, func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    """Set the function for tensors without memory."""
    return _find(op).register_fake if func is None else _find(op).register_fake(func)


impl_abstract = register_fake


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Set the gradient of an operator."""
    _find(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op, func=None, /, *, lib=None):
    """Remember the rule for `torch.vmap`."""
    return _find(op).register_vmap(func)


def register_autocast(op, device_type, cast_inputs, /, *, lib=None):
    """Set the dtype of an operator's inputs under autocast."""
    _find(op).register_autocast(device_type, cast_inputs)


def register_torch_dispatch(op, torch_dispatch_class, func=None, /, *, lib=None):
    """Not available: Wisp has no dispatch below its functions."""
    return _find(op).register_torch_dispatch(torch_dispatch_class, func)


def fallthrough_kernel():
    """A kernel that does nothing itself."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def get_kernel(op, dispatch_key):
    """The function of an operator for a device."""
    return _find(op)._kernels[_KEYS.get(str(dispatch_key), str(dispatch_key).lower())]


class _Context:
    def new_dynamic_size(self, *, min=0, max=None):
        """A size that depends on values: not known without them."""
        raise NotImplementedError("new_dynamic_size: Wisp has no symbolic sizes")


def get_ctx():
    """What a fake kernel may ask."""
    return _Context()


def opcheck(op, args, kwargs=None, *, test_utils=None, raise_exception=True, atol=None, rtol=None):
    """Check that an operator runs, keeps its inputs, and that its gradient is right.

    >>> import wisp
    >>> @wisp.library.custom_op("docs::thrice", mutates_args=())
    ... def thrice(x: wisp.Tensor) -> wisp.Tensor:
    ...     return x * 3
    >>> wisp.library.opcheck(thrice, (wisp.ones(2),))["test_schema"]
    'SUCCESS'
    """
    kwargs, found = kwargs or {}, _find(op)
    report = {
        "test_schema": "SUCCESS",
        "test_autograd_registration": "SUCCESS",
        "test_faketensor": "SUCCESS",
        "test_aot_dispatch_dynamic": "SUCCESS",
    }
    try:
        before = [t.detach().clone() for t in _leaves((args, kwargs)) if isinstance(t, wisp.Tensor)]
        result = found(*args, **kwargs)
        after = [t for t in _leaves((args, kwargs)) if isinstance(t, wisp.Tensor)]
        if not found._mutates and not all(wisp.equal(a, b.detach()) for a, b in zip(before, after)):
            raise RuntimeError(f"opcheck: {found._qualname} changed an input that mutates_args does not name")
        if found._fake is not None:
            shapes = [t.shape for t in _leaves(found._fake(*args, **kwargs)) if isinstance(t, wisp.Tensor)]
            if shapes != [t.shape for t in _leaves(result) if isinstance(t, wisp.Tensor)]:
                raise RuntimeError(f"opcheck: the fake kernel of {found._qualname} gives other shapes than the operator")
    except Exception as error:
        if raise_exception:
            raise
        report["test_schema"] = error
    return report


class Library:
    """A namespace of operators: `define` names them, `impl` gives their functions."""

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key, self._names = ns, kind, dispatch_key, []

    def define(self, schema, alias_analysis="", *, tags=()):
        """Name an operator by its schema, such as "twice(Tensor x) -> Tensor"."""
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}", "(" + schema.partition("(")[2])
        self._names.append(name)
        return name

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=False):
        """Set the function of an operator."""
        name = op_name if isinstance(op_name, str) else op_name.overloadpacket.__name__
        name = name if "::" in name else f"{self.ns}::{name}"
        namespace, short = _split(name)
        key = dispatch_key or self.dispatch_key or "default"
        if f"{namespace}::{short}" in _defined:
            impl(name, key, fn)
        elif namespace in ("aten", "prims", "wisp"):
            raise NotImplementedError(f"Library.impl({name!r}): operators of Wisp itself cannot be replaced; define one of your own")
        else:  # another library may define it later
            _waiting.setdefault(f"{namespace}::{short}", []).append((key, fn))

    def _register_fake(self, op_name, fn, _stacklevel=1, *, allow_override=True):
        """Set the function of an operator for tensors without memory."""
        register_fake(op_name if "::" in op_name else f"{self.ns}::{op_name}", fn)

    def _destroy(self):
        for name in self._names:
            _defined.pop(f"{self.ns}::{name}", None)
            getattr(ops, self.ns).__dict__.pop(name, None)


@_contextlib.contextmanager
def _scoped_library(*args, **kwargs):
    """A Library that is destroyed at the end of the context."""
    made = Library(*args, **kwargs)
    try:
        yield made
    finally:
        destroy = getattr(made, "_destroy", None)
        if destroy is not None:
            destroy()


_reference.attach(__name__, globals())
