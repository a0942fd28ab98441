"""The names that a checkpoint may refer to, and what may be done with each.

A pickle names functions and classes; `Finder` maps the names that PyTorch's files use to functions of ours, which check
what they are given, and refuses all others.
"""

import abc
import collections
import contextlib
import enum
import functools
import importlib
import inspect
import math
import pickle
import sys
import types
import typing

import numpy

import wisp
from wisp._compat import module_of
from wisp._compat.dtypes import DTYPES as ABSENT_DTYPES
from wisp.serialization._rebuild import (
    finish_generator,
    named_layout,
    new_generator,
    rebuild_jagged,
    rebuild_meta,
    rebuild_nested,
    rebuild_parameter,
    rebuild_parameter_with_state,
    rebuild_sparse,
    rebuild_tensor,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    rebuild_wrapper,
)
from wisp.serialization._unpickle import BLANK, CALL, TRUSTED, Unpickler, brief, check_keys
from wisp.utils.hooks import RemovableHandle

__all__ = ["Finder", "StorageKind", "STORAGES", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]

STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}
_DTYPES = frozenset(
    """
    float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128 complex32 float8_e4m3fn
    float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()
)
_OLD_MODULES = {"__builtin__": "builtins", "torch.tensor": "torch"}
_OLD_NAMES = {"builtins xrange": "range"}


class StorageKind:
    """The type of a storage in a file."""

    __slots__ = ("dtype", "untyped")

    def __init__(self, dtype, untyped=False):
        self.dtype, self.untyped = dtype, untyped


# ---------------------------------------------------------------- plain values
def _encode(text, encoding):
    if encoding != "latin1" or type(text) is not str:
        raise pickle.UnpicklingError(f"encoding {brief(encoding)} is not expected")
    return text.encode("latin1")


def _scalar(kind):
    def make(*args):
        if any(type(value) not in (str, int, float, bool, complex, type(None)) for value in args):
            raise pickle.UnpicklingError(f"{kind.__name__} of something that is no number or text")
        return kind(*args)

    return make


def _container(kind, keyed):
    """Makes a container from another one; `keyed`: its elements are hashed ("items": pairs of keys and values)."""

    def make(*args):
        if len(args) > 1 or args and type(args[0]) not in (list, tuple, set, frozenset, dict, collections.OrderedDict):
            raise pickle.UnpicklingError(f"{kind.__name__} of something that is no container")
        content = args[0] if args else ()
        if keyed == "items" and not isinstance(content, dict):
            content = [tuple(pair) for pair in content if type(pair) in (list, tuple) and len(pair) == 2]
            check_keys([key for key, _ in content])
        elif keyed:
            check_keys(content)
        return kind(content)

    return make


def _bytes(content=b"", encoding=None):
    if encoding == "latin1" and type(content) is str:
        content = content.encode("latin1")
    if type(content) not in (bytes, bytearray):
        raise pickle.UnpicklingError("bytes of something that is no text")
    return bytes(content)


def _default_dict(factory=None, *content):
    if content or factory is not None and factory not in (int, float, bool, str, list, dict, tuple, set):
        raise pickle.UnpicklingError("a defaultdict whose default is no plain type")
    return collections.defaultdict(factory)


def _deque(content=(), maxlen=None):
    if type(content) not in (list, tuple) or not (maxlen is None or type(maxlen) is int):
        raise pickle.UnpicklingError("a deque of something that is no list")
    return collections.deque(content, maxlen)


# ---------------------------------------------------------------- numbers of NumPy
def _numpy_dtype(name, *_):
    if type(name) is not str or name[:1] not in "biufc" or not name[1:].isdigit():
        raise pickle.UnpicklingError(f"an array in the file has the dtype {brief(name)}, which is not one of numbers")
    return numpy.dtype(name, False, True)  # an object of its own, which may get another byte order


def _numpy_order(dtype, state):
    if type(state) is not tuple or state[2:] != (None, None, None, -1, -1, 0) or state[0] != 3 or state[1] not in ("<", ">", "|", "="):
        raise pickle.UnpicklingError("a dtype in the file is not one of numbers")
    if dtype.isbuiltin != 1:
        dtype.__setstate__(state)


def _numpy_scalar(dtype, content):
    if not isinstance(dtype, numpy.dtype) or type(content) is not bytes or len(content) != dtype.itemsize:
        raise pickle.UnpicklingError("a number of NumPy in the file is incomplete")
    return numpy.frombuffer(content, dtype)[0]


def _numpy_array(kind, *_):
    if kind is not numpy.ndarray:
        raise pickle.UnpicklingError("an array in the file is of a class that is not known")
    return numpy.empty(0)


def _numpy_content(array, state):
    """Fill an array: version, shape, dtype, whether by columns, bytes."""
    if type(state) is not tuple or len(state) != 5:
        raise pickle.UnpicklingError("an array in the file is incomplete")
    version, shape, dtype, columns, content = state
    if (
        version != 1
        or not isinstance(dtype, numpy.dtype)
        or dtype.kind not in "biufc"
        or type(content) is not bytes
        or type(columns) is not bool
    ):
        raise pickle.UnpicklingError("an array in the file holds no numbers")
    if (
        type(shape) is not tuple
        or len(shape) > 32
        or not all(type(size) is int and 0 <= size < 1 << 62 for size in shape)
        or math.prod(shape) * dtype.itemsize != len(content)
    ):
        raise pickle.UnpicklingError(f"an array in the file of shape {brief(shape)} has {len(content)} bytes")
    array.__setstate__(state)


def _partial_arguments(partial, state):
    """Function, positional and named arguments, attributes."""
    kinds = (object, tuple, dict, (dict, type(None)))
    if type(state) is not tuple or len(state) != 4 or not all(map(isinstance, state, kinds)) or not callable(state[0]):
        raise pickle.UnpicklingError("functools.partial with arguments that it does not take")
    partial.__setstate__(state)


def _handle_of_hook(handle, state):
    """A dict of hooks, the number of one, and further dicts that have it."""
    if not (type(state) is tuple and len(state) == 3 and type(state[1]) is int and 0 <= state[1] < 1 << 62 and type(state[2]) is tuple):
        raise pickle.UnpicklingError("the state of a hook's handle in the file is not one")
    handle.__setstate__(state)


Unpickler.finishers.update(
    {
        numpy.ndarray: _numpy_content,
        numpy.dtype: _numpy_order,
        functools.partial: _partial_arguments,
        wisp.Generator: finish_generator,
        RemovableHandle: _handle_of_hook,
    }
)


_SCALARS = (int, float, bool, str, complex, slice, range)
_CONTAINERS = {list: False, tuple: False, set: True, frozenset: True, dict: "items"}

# name -> (what it stands for, what is called in its stead)
_NAMES = {
    "torch._utils _rebuild_tensor": (rebuild_tensor, rebuild_tensor),
    "torch._utils _rebuild_tensor_v2": (rebuild_tensor_v2, rebuild_tensor_v2),
    "torch._utils _rebuild_tensor_v3": (rebuild_tensor_v3, rebuild_tensor_v3),
    "torch._utils _rebuild_meta_tensor_no_storage": (rebuild_meta, rebuild_meta),
    "torch._utils _rebuild_sparse_tensor": (rebuild_sparse, rebuild_sparse),
    "torch._utils _rebuild_nested_tensor": (rebuild_nested, rebuild_nested),
    "torch.nested._internal.nested_tensor _rebuild_njt": (rebuild_jagged, rebuild_jagged),
    "torch.serialization _get_layout": (named_layout, named_layout),
    "torch._utils _rebuild_parameter": (rebuild_parameter, rebuild_parameter),
    "torch._utils _rebuild_parameter_with_state": (rebuild_parameter_with_state, rebuild_parameter_with_state),
    "torch._utils _rebuild_wrapper_subclass": (rebuild_wrapper, rebuild_wrapper),
    "torch._tensor _rebuild_from_type_v2": (CALL, CALL),
    "torch device": (wisp.device, lambda *args: wisp.device(*args)),
    "torch Size": (wisp.Size, lambda size=(): wisp.Size(tuple(size))),
    "torch Tensor": (wisp.Tensor, None),
    "collections OrderedDict": (collections.OrderedDict, _container(collections.OrderedDict, "items")),
    "collections Counter": (collections.Counter, lambda content: collections.Counter(_container(dict, "items")(content))),
    "collections defaultdict": (collections.defaultdict, _default_dict),
    "collections deque": (collections.deque, _deque),
    "_codecs encode": (_encode, _encode),
    "builtins bytes": (bytes, _bytes),
    "builtins bytearray": (bytearray, lambda *args: bytearray(_bytes(*args))),
    **{f"builtins {kind.__name__}": (kind, _scalar(kind)) for kind in _SCALARS},
    **{f"builtins {kind.__name__}": (kind, _container(kind, keyed)) for kind, keyed in _CONTAINERS.items()},
    **{
        f"numpy{package}.multiarray {name}": (function, function)
        for package in (".core", "._core")
        for name, function in (("scalar", _numpy_scalar), ("_reconstruct", _numpy_array))
    },
    "numpy dtype": (numpy.dtype, _numpy_dtype),
    "numpy ndarray": (numpy.ndarray, None),
    **{f"torch {name}": (StorageKind(dtype, name == "UntypedStorage"), None) for name, dtype in STORAGES.items()},
    "torch.storage UntypedStorage": (StorageKind("uint8", True), None),
}


_STORAGE_NAMES = {name for name, (value, _) in _NAMES.items() if isinstance(value, StorageKind)}

# What no file may name, whatever add_safe_globals was told.
_BLOCKED = {"sys", "os", "posix", "nt"}


class Finder:
    """Finds what a name in a file stands for; `refused` lists the names that it would not give."""

    def __init__(self, weights_only, collect=False, encoding="utf-8", pickle_module=None):
        self.weights_only, self.collect, self.refused = weights_only, collect, []
        self.named = []  # what the file refers to, while names are collected
        self.pickle_module = pickle_module  # the program's own, which reads the pickle in our stead
        self.encoding = encoding  # of the strings of Python 2

    def is_safe(self, value):
        """Whether add_safe_globals was told of a value: what a file has reached by `getattr` has no name of its own."""
        bound = isinstance(value, (types.MethodType, types.BuiltinMethodType))
        return any(value is kind or (bound and value == kind) for kind in _safe.values())

    def __call__(self, module, name):
        if self.weights_only and not self.collect and module.partition(".")[0] in _BLOCKED:
            raise pickle.UnpicklingError(
                f"Weights only load failed: unsupported GLOBAL {module}.{name} whose module {module} is blocked: it reaches the system."
            )
        module = _OLD_MODULES.get(module, module)
        name = _OLD_NAMES.get(f"{module} {name}", name)
        if module == "wisp" or module.startswith("wisp."):
            module = ("torchvision" + module[11:]) if module.startswith("wisp.vision.") else "torch" + module[4:]
        if self.collect:
            self.named.append(f"{module}.{name}")
        known = _NAMES.get(f"{module} {name}")
        if known is not None:
            return known
        if f"{module} {name}" == "torch.nn.parameter Parameter":
            return wisp.nn.Parameter, rebuild_parameter
        if module == "torch" and name in _DTYPES:
            return getattr(wisp, name), None
        for spelling in (module, "wisp" + module[5:] if module.startswith("torch") else module):
            if f"{spelling}.{name}" in _safe:
                return _safe[f"{spelling}.{name}"], TRUSTED
        found = None if self.weights_only else _of_a_model(module, name)
        if found is not None:
            return found
        if self.collect:
            self.refused += [f"{module}.{name}"] * (f"{module}.{name}" not in self.refused)
            return _Refused, TRUSTED
        if module == "torch" and name in ABSENT_DTYPES or name == "_rebuild_qtensor":
            what = "quantized tensors" if name == "_rebuild_qtensor" else f"tensors of dtype {name}"
            raise pickle.UnpicklingError(
                f"the file holds {what}, which Wisp does not read: convert them (say, to bfloat16) with PyTorch and save again"
            )
        hint = ""
        if self.weights_only and _of_a_model(module, name) is not None:
            hint = (
                " It is a class of your program: wisp.load(..., weights_only=False) reads whole models and plain objects. A file of"
                " model.state_dict() needs neither."
            )
        raise pickle.UnpicklingError(
            f"Weights only load failed: Unsupported global: GLOBAL {module}.{name} was not an allowed global by default. Files never run "
            f"code here. If you trust this type, import it and use `torch.serialization.add_safe_globals([{module}.{name}])` or the "
            f"context `torch.serialization.safe_globals([{module}.{name}])` to allowlist it before loading.{hint}"
        )


def unpickled(file, finder, load_persistent):
    """The value in a file, read by our unpickler, or by that of a module which the program asked for."""
    if finder.pickle_module is None:
        return Unpickler(file, finder, load_persistent).load()

    class Asked(finder.pickle_module.Unpickler):
        def persistent_load(self, identifier):
            return load_persistent(identifier)

        def find_class(self, module, name):
            if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):
                return wisp._tensor._rebuild_from_type_v2
            if module.startswith(("torch._utils", "torch.serialization", "torch.nested")) or f"{module} {name}" in _STORAGE_NAMES:
                return finder(module, name)[0]
            return super().find_class("wisp" + module[5:] if module.partition(".")[0] == "torch" else module, name)

    return Asked(file, encoding=finder.encoding).load()


class _Refused(dict):
    """Stands for a value of a type that is not known, while names are collected."""

    __hash__ = object.__hash__

    def __new__(cls, *_):
        return dict.__new__(cls)

    def __init__(self, *_):
        pass

    def append(self, value):
        pass

    def __setstate__(self, state):
        pass


def _plain(kind):
    """Makes a value of a class of the standard library whose arguments are numbers, texts or bytes."""

    def make(*args):
        if any(type(value) not in (str, int, float, bytes, type(None)) for value in args):
            raise pickle.UnpicklingError(f"{kind.__name__} of something that is no number or text")
        return kind(*args)

    return make


# With `weights_only=False`: what training scripts like to put into checkpoints.
_HARMLESS = {
    "argparse Namespace": BLANK,
    "types SimpleNamespace": BLANK,
    **dict.fromkeys(
        (
            "datetime date",
            "datetime time",
            "datetime datetime",
            "datetime timedelta",
            "pathlib PosixPath",
            "pathlib PurePosixPath",
            "pathlib WindowsPath",
            "pathlib PureWindowsPath",
        ),
        _plain,
    ),
}


def _of_a_model(module, name):
    """With `weights_only=False` whole models and optimizers can be read: a class of layers which the program has loaded, an
    optimizer or schedule of ours, an operator, a function that the program has loaded, a plain class of the standard library, or
    one of the program that is nothing but its attributes. Files may not call their code."""
    if module == "torch" or module.startswith("torch."):
        operator = wisp._core._operators.get(module[6:], {}).get(name)
        if operator is not None and not name.startswith("_"):
            return operator, None
        module = "wisp" + module[5:]
    if module.startswith(("torchvision.models.", "torchvision.ops.")):
        module = _of_vision(module)
    if f"{module} {name}" == "builtins getattr":  # by which Python 3.11.0 to 3.11.3 write an enum's member
        return getattr, _member
    if f"{module} {name}" == "functools partial":
        return functools.partial, _partial
    if module == "pathlib._local":  # where Python 3.13 has its paths
        module = "pathlib"
    harmless = _HARMLESS.get(f"{module} {name}")
    if harmless is not None:
        kind = getattr(importlib.import_module(module), name)
        if name == "WindowsPath":  # on other systems there is only the pure form
            kind = importlib.import_module(module).PureWindowsPath
        return kind, BLANK if harmless is BLANK else harmless(kind)
    if f"{module} {name}" in ("wisp Generator", "wisp._C Generator"):
        return wisp.Generator, new_generator
    if f"{module} {name}" in ("wisp.nn.parameter UninitializedParameter", "wisp.nn.parameter UninitializedBuffer"):
        kind = getattr(wisp.nn.parameter, name)
        return kind, lambda *args: kind(*args)
    if f"{module} {name}" == "wisp.utils.hooks RemovableHandle":  # lazy layers hold that of their first call
        return RemovableHandle, lambda: RemovableHandle.__new__(RemovableHandle)
    if f"{module} {name}" == "wisp.nn.utils.rnn PackedSequence":
        kind = wisp.nn.utils.rnn.PackedSequence
        return kind, lambda *args: kind(*args)
    # The layers are known even if the program has used none.
    importlib.import_module("wisp.nn.modules")
    bases = [wisp.nn.Module]
    if f"{module}.".startswith("wisp.optim."):
        bases += [wisp.optim.Optimizer, wisp.optim.lr_scheduler.LRScheduler]
    if module == "wisp.distributions.constraints":
        bases.append(importlib.import_module(module).Constraint)
    kind = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    if isinstance(kind, type) and issubclass(kind, tuple(bases)):
        return kind, BLANK
    if isinstance(kind, type) and issubclass(kind, wisp.Tensor) and _is_own(kind):
        return kind, BLANK
    if isinstance(kind, types.FunctionType) and (kind.__module__, kind.__qualname__) == (module, name) and _may_be_held(module):
        return kind, None  # an activation or a hook that a model holds; the file itself may not call it
    return _of_the_program(kind) or (kind, None) if _is_own(kind) else None


def _of_vision(module):
    """Our module behind one of torchvision's; it is imported, as by PyTorch. The layers of all `ops` are in one place."""
    if module == "torchvision.models.mobilenetv3":  # whose blocks are made otherwise here
        return ""
    module = "wisp.vision" + module.removeprefix("torchvision")
    try:
        importlib.import_module(module)
    except (ImportError, ValueError):
        module = "wisp.vision.ops" if module.startswith("wisp.vision.ops.") else module
        importlib.import_module("wisp.vision.ops")
    return module


def _may_be_held(module):
    return module.startswith("wisp.nn.") or module.partition(".")[0] not in (*sys.stdlib_module_names, "wisp")


def _partial(function):
    """A function with arguments, which come as its state; nothing is called."""
    return functools.partial(function)


def _member(kind, name):
    """A member of an enum, or a method of a model, by its name."""
    if type(name) is not str:
        raise pickle.UnpicklingError(f"the file calls getattr with the name {brief(name)}, which is no text")
    if isinstance(kind, wisp.nn.Module) and isinstance(method := inspect.getattr_static(type(kind), name, None), types.FunctionType):
        return types.MethodType(method, kind)
    if not (_is_own(kind) and issubclass(kind, enum.Enum)):
        raise pickle.UnpicklingError(
            "the file calls getattr on something else than an enum or a method of a model, which may not be called"
        )
    return kind._member_map_[name]


def _is_own(kind):
    return isinstance(kind, type) and module_of(kind).partition(".")[0] not in (*sys.stdlib_module_names, "wisp")


def _of_the_program(kind):
    """How to make a value of a class of the program, if none of the class's code runs by it: an enum's member, a named tuple,
    or an object that is nothing but its attributes."""
    if issubclass(kind, enum.Enum):
        return kind, kind._value2member_map_.__getitem__
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):

        def make(*values):
            if len(values) != len(kind._fields):
                raise pickle.UnpicklingError(f"{kind.__name__} has {len(kind._fields)} fields, not {len(values)}")
            return tuple.__new__(kind, values)

        return kind, make
    bare = all(
        base in (object, abc.ABC, typing.Generic)
        or _is_own(base)
        and not {"__new__", "__del__", "__setstate__", "__slots__"} & vars(base).keys()
        for base in kind.__mro__
    )
    return (kind, BLANK) if bare and type(kind) in (type, abc.ABCMeta) else None


# ---------------------------------------------------------------- names that the user adds
_safe = {}


def allowed_names():
    """What every file may name: {name: what it stands for}."""
    return {
        **{name.replace(" ", "."): value for name, (value, _) in _NAMES.items()},
        **{f"torch.{name}": getattr(wisp, name) for name in _DTYPES},
        "torch.nn.parameter.Parameter": wisp.nn.Parameter,
    }


def added_names():
    """What the program has added to it."""
    return dict(_safe)


def _full_name(item):
    if isinstance(item, tuple):
        return item
    return item, f"{item.__module__}.{item.__qualname__}"


def add_safe_globals(safe_globals):
    """Let files refer to these classes and functions. Each is a class, or a pair of it and its name in files.

    >>> import fractions, wisp
    >>> wisp.serialization.add_safe_globals([fractions.Fraction])
    >>> wisp.serialization.get_safe_globals()
    [<class 'fractions.Fraction'>]
    >>> wisp.serialization.clear_safe_globals()
    """
    for item in safe_globals:
        kind, name = _full_name(item)
        _safe[name] = kind


def get_safe_globals():
    """What `add_safe_globals` has added.

    >>> import wisp
    >>> wisp.serialization.get_safe_globals()
    []
    """
    return list(_safe.values())


def clear_safe_globals():
    """Forget what `add_safe_globals` has added.

    >>> import wisp
    >>> wisp.serialization.clear_safe_globals()
    """
    _safe.clear()


@contextlib.contextmanager
def safe_globals(safe_globals):
    """A context in which files may refer to these classes and functions.

    >>> import fractions, wisp
    >>> with wisp.serialization.safe_globals([fractions.Fraction]):
    ...     wisp.serialization.get_safe_globals()
    [<class 'fractions.Fraction'>]
    """
    before = dict(_safe)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe.clear()
        _safe.update(before)
