"""`torch.ops`: operators by namespace and overload, `torch.ops.aten.add.Tensor`, and those that programs define with `torch.library`.

Wisp's operators choose their overload by their arguments, so every overload of a name is the same operator.
"""

import os
import sys
import types

__all__ = ["HigherOrderOperator", "OpOverload", "OpOverloadPacket", "ops"]

# names of PyTorch's internal operators whose public counterpart is called otherwise
_OTHER_NAMES = {
    "_unsafe_view": "view",
    "constant_pad_nd": "pad",
    "native_layer_norm": "layer_norm",
    "upsample_nearest2d": "interpolate",
    "_reshape_alias": "reshape",
    "sym_size": "size",
    "sym_numel": "numel",
    "sym_stride": "stride",
    "sym_storage_offset": "storage_offset",
}


class HigherOrderOperator:
    """An operator of functions; Wisp's own (`cond`, `scan`, ...) are plain functions, so none of them is one.

    >>> isinstance(wisp.cond, wisp._ops.HigherOrderOperator)
    False
    """

    def __init__(self, name, *, cacheable=False):
        self._name = self.__name__ = name
        self._written = {}

    def name(self):
        """Its name."""
        return self._name

    def py_impl(self, key):
        """A decorator: what the operator is for one key of PyTorch's dispatcher. Wisp asks the one that computes on tensors, which
        transforms and gradients pass through as through any function."""

        def enter(function):
            self._written[key] = function
            return function

        return enter

    def __call__(self, *args, **kwargs):
        from wisp._compat.modules._C import DispatchKey as keys

        for key in (keys.CompositeExplicitAutograd, keys.CompositeImplicitAutograd, keys.AutogradCPU, keys.Autograd, keys.CPU):
            if key in self._written:
                return self._written[key](*args, **kwargs)
        raise NotImplementedError(f"{self._name}: a higher-order operator says what it does in __call__, or by py_impl")


def _function(name):
    import wisp
    from wisp._compat import aten

    if name in vars(aten) and getattr(vars(aten)[name], "__module__", None) == aten.__name__:
        return vars(aten)[name]
    name = _OTHER_NAMES.get(name, name)
    for place in (wisp, wisp.nn.functional, wisp.linalg, wisp.special, wisp.fft, wisp.Tensor, wisp._core._operators[""]):
        found = place.get(name) if isinstance(place, dict) else getattr(place, name, None)
        if callable(found) and not isinstance(found, type):
            return found
    return None


# --- which operator of PyTorch's a call is --------------------------------------------------------------------------------

_ARITHMETIC = set("add sub mul div".split())
_COMPARISONS = set("eq ne lt le gt ge remainder fmod bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split())
# name -> the overload by whether a dimension is given
_BY_DIM = {"sum": "dim_IntList", "mean": "dim", "prod": "dim_int", "all": "dim", "any": "dim", "max": "dim", "min": "dim", "median": "dim"}
_ALWAYS = {
    "transpose": "int",
    "select": "int",
    "unbind": "int",
    "where": "self",
    "split": "Tensor",
    "var": "correction",
    "std": "correction",
    "var_mean": "correction",
    "std_mean": "correction",
}
_SIZES = set("view expand permute repeat new_empty new_zeros new_ones tile flip".split())


def _is_tensor(value):
    import wisp

    return isinstance(value, wisp.Tensor)


def overload_of(function, args, kwargs):
    """The operator of `torch.ops.aten` that a call of a function of this package is, and its arguments."""
    import wisp

    name = function.__name__.replace(".", "_")
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    args, kwargs = tuple(args), {k: v for k, v in kwargs.items() if v is not None or k == "out"}
    for count, names in enumerate((("input", "self"), ("other", "exponent"))):  # vmap's rules call by name
        given = [key for key in names if key in kwargs] if len(args) == count else []
        if given:
            args = (*args, kwargs.pop(given[0]))
    other = args[1] if len(args) > 1 else None
    if plain in _SIZES and len(args) > 1 and all(isinstance(a, int) for a in args[1:]):
        args = args[0], list(args[1:])
    elif plain in _SIZES and len(args) == 2 and isinstance(args[1], tuple):
        args = args[0], list(args[1])
    if args and not _is_tensor(args[0]) and _is_tensor(other) and not isinstance(args[0], (list, tuple)):
        if plain in ("add", "mul"):
            args = (other, args[0], *args[2:])
        elif plain == "sub":
            name, plain, args = "rsub", "rsub", (other, args[0], *args[2:])
    if plain == "relu":  # the layer's function has `inplace`
        inplace = kwargs.pop("inplace", other)
        name, args = "relu_" if inplace else name, args[:1]
    if plain in ("softmax", "log_softmax"):
        dim, dtype = args[1] if len(args) > 1 else kwargs.get("dim"), kwargs.get("dtype")
        inner = args[0] if dtype is None else args[0].to(dtype)
        return getattr(wisp.ops.aten, f"_{plain}").default, (inner, dim, False), {}
    if plain in _ARITHMETIC:
        kind = "Tensor_mode" if "rounding_mode" in kwargs else "Tensor"
    elif plain in _COMPARISONS:
        kind = "Tensor" if _is_tensor(other) else "Scalar"
    elif plain == "rsub":
        kind = "Tensor" if _is_tensor(args[1]) else "Scalar"
    elif plain == "pow":
        kind = "Scalar" if not _is_tensor(args[0]) else "Tensor_Tensor" if _is_tensor(other) else "Tensor_Scalar"
    elif plain in ("masked_fill", "fill"):
        kind = "Tensor" if _is_tensor(args[-1]) else "Scalar"
    elif plain in ("max", "min") and _is_tensor(other):
        kind = "other"
    elif plain in _BY_DIM:
        given = len(args) > 1 or "dim" in kwargs
        kind = _BY_DIM[plain] if given else "default"
        if plain in ("sum", "mean") and given:
            dim = args[1] if len(args) > 1 else kwargs.pop("dim")
            args = (args[0], [dim] if isinstance(dim, int) else list(dim), *args[2:])
    elif plain == "sort":
        kind = "stable" if "stable" in kwargs else "default"
    elif plain == "squeeze":
        kind = "default" if other is None and "dim" not in kwargs else "dim"
    elif plain == "view":
        kind = "dtype" if isinstance(other, wisp.dtype) else "default"
    else:
        kind = _ALWAYS.get(plain, "default")
    return getattr(getattr(wisp.ops.aten, name), kind), args, kwargs


def _proxy_among(values):
    """A value of a trace, for which the operator itself is a step."""
    fx = sys.modules.get("wisp.fx.proxy")
    if fx is None:
        return None
    for value in values:
        if isinstance(value, (tuple, list)):
            value = _proxy_among(value)
        if isinstance(value, fx.Proxy):
            return value
    return None


class OpOverload:
    """One overload of an operator."""

    _text = None  # the signature that a program gave

    def __init__(self, packet, name):
        self.overloadpacket, self._overloadname = packet, name
        self.namespace, self.__name__ = packet.namespace, f"{packet.__name__}.{name}"
        self.__module__, self.__qualname__ = f"torch._ops.{packet.namespace}", self.name()
        self.tags = []

    def __call__(self, *args, **kwargs):
        proxy = _proxy_among((*args, *kwargs.values()))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", self, args, kwargs)
        return self.overloadpacket._function(*args, **kwargs)

    @property
    def _schema(self):
        """The signature: of a program's operator as it was given, of others with the types that are known here."""
        if self._text is None:
            from wisp.fx.operator_schemas import get_signature_for_torch_op

            return get_signature_for_torch_op(self, return_schemas=True)[1][0]
        from wisp._compat.schema import parse_schema

        return parse_schema(f"{self.namespace}::{self.overloadpacket.__name__}{self._text[self._text.index('(') :]}")

    @property
    def op(self):
        """The function itself."""
        return self.overloadpacket._function

    def name(self):
        """Such as "aten::add.Tensor"."""
        return f"{self.namespace}::{self.__name__}".removesuffix(".default")

    def overloads(self):
        """The names of the overloads: this one."""
        return [self._overloadname]

    def __repr__(self):
        return f"<OpOverload(op='{self.namespace}.{self.overloadpacket.__name__}', overload='{self._overloadname}')>"

    def __str__(self):
        return f"{self.namespace}.{self.__name__}"

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        return _operator, (self.namespace, self.overloadpacket.__name__, self._overloadname)


class OpOverloadPacket:
    """An operator with all its overloads."""

    def __init__(self, namespace, name, function):
        self.namespace, self.__name__, self._function, self._overloads = namespace, name, function, {}
        self._qualified_op_name = f"{namespace}::{name}"
        self.__module__ = f"torch.ops.{namespace}"

    def __call__(self, *args, **kwargs):
        proxy = _proxy_among((*args, *kwargs.values()))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", self, args, kwargs)
        return self._function(*args, **kwargs)

    def __reduce__(self):
        return _operator, (self.namespace, self.__name__)

    def __getattr__(self, name):
        if name.startswith("_") and not name[1:2].isupper():  # an overload may be of the class `_RecordFunction`
            raise AttributeError(f"'{self.__dict__.get('_qualified_op_name')}' has no overload {name!r}")
        return self._overloads.setdefault(name, OpOverload(self, name))

    def overloads(self):
        """The names of the overloads that were asked for."""
        return list(self._overloads) or ["default"]

    def __repr__(self):
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"

    def __str__(self):
        return f"{self.namespace}.{self.__name__}"

    def __deepcopy__(self, memo):
        return self


def _operator(namespace, name, overload=None):
    """As pickles name an operator."""
    packet = getattr(getattr(ops, namespace), name)
    return packet if overload is None else getattr(packet, overload)


class _Namespace(types.ModuleType):
    """The operators of one namespace."""

    def __init__(self, name):
        super().__init__(f"torch.ops.{name}")
        self._namespace = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self._namespace in ("aten", "prims"):
            function = _function(name) or _absent(self._namespace, name)  # libraries keep tables of operators that they may never call
        elif self._namespace in _KNOWN:
            function = _function_of(self._namespace, name) or _absent(self._namespace, name)
        elif self._namespace == "profiler":
            function = _function_of_profiler(name)
        elif self._namespace in ("torchaudio", "_torchaudio"):
            function = _function_of_audio(name)
        else:
            function = _function_of_vision(name, self._namespace)
        if function is None:
            raise AttributeError(f"'_OpNamespace' '{self._namespace}' object has no attribute {name!r}")
        packet = OpOverloadPacket(self._namespace, name, function)
        setattr(self, name, packet)
        return packet


# further namespaces of PyTorch's own
_KNOWN = set("_c10d_functional c10d c10d_functional higher_order mkldnn onednn prim quantized_decomposed symm_mem".split())


def _absent(namespace, name):
    def absent(*args, **kwargs):
        raise NotImplementedError(f"torch.ops.{namespace}.{name}: Wisp has no such operator")

    return absent


def _function_of(namespace, name):
    """Collectives that return new tensors, and operators that take functions; nothing of the other namespaces."""
    home = {"_c10d_functional": "wisp.distributed._functional_collectives", "higher_order": "wisp._higher_order_ops"}.get(namespace)
    if home is None:
        return None
    import importlib

    names = {"all_gather_into_tensor": None, "map_impl": "map"}
    return getattr(importlib.import_module(home), names.get(name, name) or "", None)


def _function_of_profiler(name):
    """Ranges of a profile by hand: what `record_function` does at its beginning and its end."""

    def enter(name, args=None):
        from wisp.profiler import record_function

        return record_function(name, args).__enter__()

    def leave(handle):
        handle.__exit__(None, None, None)

    return {"_record_function_enter": enter, "_record_function_enter_new": enter, "_record_function_exit": leave}.get(name)


def _function_of_audio(name):
    from wisp._compat import audio

    found = vars(audio).get(name)
    return found if getattr(found, "__module__", None) == audio.__name__ else None


def _function_of_vision(name, namespace):
    if namespace != "torchvision":
        return None
    from wisp.vision import ops as vision_ops

    return getattr(vision_ops, name, None)


_OpNamespace = _Namespace  # the name that libraries annotate with


class _Ops(types.ModuleType):
    """All namespaces; one that nobody defined is empty."""

    def __init__(self):
        super().__init__("torch.ops")
        self.loaded_libraries = set()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = _Namespace(name)
        setattr(self, name, namespace)
        return namespace

    def load_library(self, path):
        """Not possible: libraries of PyTorch's operators are made for PyTorch. Torchaudio's needs no loading: its operators are here."""
        if os.path.basename(path).startswith(("_torchaudio.", "libtorchaudio.")):
            return
        raise OSError(f"torch.ops.load_library({str(path)!r}): libraries of operators that were built for PyTorch do not load into Wisp")

    def import_module(self, module):
        """Import a module that defines operators."""
        import importlib

        importlib.import_module(module)


ops = _Ops()


class _Classes(types.ModuleType):
    """`torch.classes`: C++ classes of loaded libraries, of which there are none."""

    def __init__(self):
        super().__init__("torch.classes")
        self.loaded_libraries, self.__path__ = set(), []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _NoClasses(name)

    def load_library(self, path):
        """Not possible, as with `torch.ops`."""
        ops.load_library(path)


class _NoClasses:
    def __init__(self, name):
        self._name = name

    def __getattr__(self, name):
        raise RuntimeError(f"Class {self._name}::{name} could not be found: libraries that were built for PyTorch do not load into Wisp")


classes = _Classes()
