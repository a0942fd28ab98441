"""`torch.overrides`: classes that answer calls of Wisp's functions themselves (`__torch_function__`), and modes that see every call.

The core hands over a call of an operator when an argument's class answers, or when a mode is active (csrc/python/overrides.cpp).
Methods, operators and attributes of a subclass of Tensor are found in the subclass, where `subclassed` puts them. Functions that
Wisp writes in Python are seen as the operators that they call.
"""

import functools
import inspect
import sys
import threading
import types

from wisp import _core, _reference
from wisp._tensor import _disabled_torch_function_impl

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

_private = _core._operators[""]
_switch, _are_off, _count_mode = _private["_functions_off"], _private["_functions_are_off"], _private["_function_modes"]


class _Local(threading.local):
    def __init__(self):
        self.modes = []


_local = _Local()


class DisableTorchFunctionSubclass:
    """A context in which subclasses of Tensor answer no calls; modes still do.

    >>> import wisp
    >>> class Own(wisp.Tensor):
    ...     pass
    >>> with wisp.overrides.DisableTorchFunctionSubclass():
    ...     type(Own([1.0]) + 1) is wisp.Tensor
    True
    """

    _modes = False

    def __enter__(self):
        _switch(self._modes, 1)
        return self

    def __exit__(self, *details):
        _switch(self._modes, -1)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A context in which neither subclasses of Tensor nor modes answer calls."""

    _modes = True


def _answers(value):
    kind = type(value)
    if kind is _core.Tensor:
        return False
    found = getattr(kind, "__torch_function__", None)
    return (
        found is not None
        and found is not _disabled_torch_function_impl
        and getattr(found, "__func__", None) is not _disabled_torch_function_impl
    )


def _overloaded(values, found=None, seen=None):
    """The arguments, and items of lists and tuples, whose classes answer calls: one of each class, subclasses first."""
    if found is None:
        found, seen = [], set()
    for value in values:
        if isinstance(value, (tuple, list)) and not _answers(value):
            _overloaded(value, found, seen)
        elif _answers(value) and type(value) not in seen:
            seen.add(type(value))
            place = next((i for i, other in enumerate(found) if isinstance(value, type(other))), len(found))
            found.insert(place, value)
    return found


def _ask(function, overloaded, args, kwargs):
    types = tuple(type(value) for value in overloaded)
    for value in overloaded:
        result = type(value).__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(f"no implementation found for {_called_name(function)!r} on types that implement __torch_function__: {list(types)}")


def _called_name(function):
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__name__', function)}"


class _Popped:
    """The mode that is entered last, which sees no calls while it answers one."""

    def __enter__(self):
        _count_mode(-1)
        self.mode = _local.modes.pop()
        return self.mode

    def __exit__(self, *details):
        _local.modes.append(self.mode)
        _count_mode(1)


def _call(function, args, kwargs):
    """Ask the modes, then the classes of the arguments; `_call` itself if nobody wants to answer."""
    overloaded = [] if _are_off(False) else _overloaded((*args, *kwargs.values()))
    if _local.modes and not _are_off(True):
        with _Popped() as mode:
            result = mode.__torch_function__(function, tuple(map(type, overloaded)), args, kwargs)
        if result is not NotImplemented:
            return result
        if not overloaded:
            raise TypeError(f"no implementation found for {_called_name(function)!r}: {type(mode).__name__} returned NotImplemented")
    return _ask(function, overloaded, args, kwargs) if overloaded else _call


_private["_set_overrides"](_call, _disabled_torch_function_impl)


# --- functions that Wisp writes in Python ------------------------------------------------------------------------------------

_PLAIN = {_core.Tensor, int, float, bool, str, type(None), _core.dtype, _core.device, _core.Size}


def _trampoline(*args, _seen=None, **kwargs):
    return _seen(args, kwargs)


def _see(function):
    """Let a function ask before it runs. The object stays the same, because programs may hold it already.

    A wrapper from the start would do without another `__code__`, but costs every call 130 ns, in programs that override nothing
    too: `embedding` of two rows takes 470 ns instead of 335, `normalize` 2150 instead of 1980.
    """
    original = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    function._unseen = original  # what the function does, without asking first

    def seen(args, kwargs):
        if _local.modes or any(type(value) not in _PLAIN and _answers(value) for value in (*args, *kwargs.values())):
            result = _call(function, args, kwargs)
            if result is not _call:
                return result
        return original(*args, **kwargs)

    function.__signature__ = inspect.signature(function)
    function.__code__, function.__defaults__, function.__kwdefaults__ = _trampoline.__code__, None, {"_seen": seen}


@functools.lru_cache(None)
def see_python_functions():
    """From the first class, mode or proxy on that answers calls, public functions in Python ask like operators do."""
    import wisp

    for place in (wisp, wisp.nn.functional):
        for name, value in list(vars(place).items()):
            if not isinstance(value, types.FunctionType) or name.startswith(("_", "is_tensor", "is_storage", "typename")):
                continue
            if name in _KEPT:  # a method that a program has put there
                continue
            if value.__closure__ is None and value.__module__.startswith(("wisp._composites", "wisp.nn.functional")):
                _see(value)


# --- subclasses of Tensor --------------------------------------------------------------------------------------------------

_SLOTS = {
    "__add__": "add",
    "__radd__": "add",
    "__iadd__": "add_",
    "__sub__": "sub",
    "__isub__": "sub_",
    "__mul__": "mul",
    "__rmul__": "mul",
    "__imul__": "mul_",
    "__truediv__": "div",
    "__itruediv__": "div_",
    "__mod__": "remainder",
    "__imod__": "remainder_",
    "__pow__": "pow",
    "__ipow__": "pow_",
    "__matmul__": "matmul",
    "__neg__": "neg",
    "__abs__": "abs",
    "__invert__": "bitwise_not",
    "__and__": "__and__",
    "__or__": "__or__",
    "__xor__": "__xor__",
    "__eq__": "eq",
    "__ne__": "ne",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
    "__floordiv__": "floor_divide",
    "__ifloordiv__": "floor_divide_",
}
_SPECIAL = {
    *_SLOTS,
    "__rsub__",
    "__rtruediv__",
    "__rpow__",
    "__rmatmul__",
    "__rmod__",
    "__rfloordiv__",
    "__rand__",
    "__ror__",
    "__rxor__",
    "__lshift__",
    "__rshift__",
    "__rlshift__",
    "__rrshift__",
    "__pos__",
    "__getitem__",
    "__setitem__",
    "__len__",
    "__contains__",
    "__bool__",
    "__int__",
    "__float__",
    "__index__",
    "__complex__",
    "__repr__",
    "__deepcopy__",
    "__reversed__",
    "__format__",
}
_KEPT = {"as_subclass", "is_leaf"}
_TELLING = {"size", "stride", "shape", "dtype", "layout", "device", "requires_grad"}  # what gives no tensor


def _wrapped_method(name, original):
    function = getattr(_core.Tensor, _SLOTS.get(name, name))

    def method(self, *args, **kwargs):
        if _are_off(False) and not _local.modes:
            return original(self, *args, **kwargs)
        result = _call(function, (self, *args), kwargs)
        return original(self, *args, **kwargs) if result is _call else result

    method.__name__ = method.__qualname__ = name
    method.__doc__ = _reference.Text("", None, original)
    return method


def _wrapped_property(original):
    def get(self):
        result = _call(original.__get__, (self,), {})
        return original.__get__(self) if result is _call else result

    def put(self, value):
        result = _call(original.__set__, (self, value), {})
        return original.__set__(self, value) if result is _call else result

    return property(get, put)


@functools.lru_cache(None)
def _members():
    """What a subclass of Tensor gets in place of what it would inherit."""
    result = {"__iter__": lambda self: iter(self.unbind(0))}
    for name, value in vars(_core.Tensor).items():
        if name in _KEPT or (name.startswith("_") and name not in _SPECIAL) or isinstance(value, (staticmethod, classmethod)):
            continue
        if hasattr(type(value), "__set__") and not callable(value):
            result[name] = _wrapped_property(value)
        elif callable(value):
            result[name] = _wrapped_method(name, value)
    return result


def subclassed(cls):
    """Called for every new subclass of Tensor: let its methods, operators and attributes go through `__torch_function__`."""
    _private["_overriding"](1)
    if cls.__torch_function__.__func__ is not _core.Tensor.__torch_function__.__func__:
        see_python_functions()
    own = vars(_core.Tensor)
    plain = cls.__torch_function__.__func__ is _core.Tensor.__torch_function__.__func__
    for name, member in _members().items():
        if plain and name in _TELLING:  # the default would change nothing
            continue
        found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        if found is own.get(name):
            # a subclass with __eq__ of its own would lose its hash
            setattr(cls, name, member)
    if cls.__hash__ is None:
        cls.__hash__ = _core.Tensor.__hash__


def _convert(value, cls):
    if cls is _core.Tensor:
        return value
    if isinstance(value, _core.Tensor):
        return value if isinstance(value, cls) else value.as_subclass(cls)
    if isinstance(value, (tuple, list)) and not isinstance(value, _core.Size):
        parts = [_convert(item, cls) for item in value]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    return value


def _is_pytorchs(func):
    """Whether a program that imports both packages has called a function of the other one, which asks the tensor's class for an answer."""
    torch = sys.modules.get("torch")
    if torch is None or getattr(torch, "Tensor", None) is _core.Tensor:
        return False
    owner = getattr(func, "__objclass__", None) or getattr(func, "__self__", None)
    if owner is _core.Tensor:  # it is called torch.Tensor, too
        return False
    names = (getattr(func, "__module__", None), getattr(owner, "__module__", None), getattr(owner, "__name__", None))
    return any(isinstance(name, str) and name.partition(".")[0] == "torch" for name in names)


def default_torch_function(cls, func, types, args=(), kwargs=None):
    """What subclasses of Tensor do that do not say otherwise: the result becomes an instance of the class."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    if _is_pytorchs(func):
        raise RuntimeError(  # no TypeError, after which an operator would ask the other side
            f"{resolve_name(func) or getattr(func, '__name__', func)}: this function is PyTorch's, and was called with a tensor of Wisp's; "
            "import it from wisp (`import wisp.nn.functional as F`), or run the program by `wisp run`, where torch is Wisp"
        )
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in get_default_nowrap_functions() else _convert(result, cls)


def redispatch_function(func, types, args=(), kwargs=None):
    """For a class's `__torch_function__`: the call as it would be without the class.

    >>> import wisp
    >>> wisp.overrides.redispatch_function(wisp.add, (), (wisp.ones(2), 1))
    tensor([2., 2.])
    """
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


# --- modes -----------------------------------------------------------------------------------------------------------------


class TorchFunctionMode:
    """A context whose `__torch_function__(func, types, args, kwargs)` sees every call of an operator.

    >>> import wisp
    >>> class Names(wisp.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = wisp.ones(2) * 2
    ones
    mul
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self):
        see_python_functions()
        _local.modes.append(self)
        _count_mode(1)
        return self

    def __exit__(self, *details):
        _local.modes.pop()
        _count_mode(-1)

    @classmethod
    def push(cls, *args, **kwargs):
        """A new mode of this class."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls the function as it is."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


# --- for functions that are written in Python ----------------------------------------------------------------------------


def has_torch_function(relevant_args):
    """Whether one of the arguments, or a mode, answers calls.

    >>> import wisp
    >>> wisp.overrides.has_torch_function((wisp.ones(1), 2))
    False
    """
    if _local.modes and not _are_off(True):
        return True
    return not _are_off(False) and any(_answers(value) for value in relevant_args)


def has_torch_function_unary(tensor):
    """Whether the argument, or a mode, answers calls."""
    return has_torch_function((tensor,))


def has_torch_function_variadic(*args):
    """Whether one of the arguments, or a mode, answers calls."""
    return has_torch_function(args)


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """Let the modes and the classes of the arguments answer a call of `public_api`."""
    if _local.modes and not _are_off(True):
        result = _call(public_api, args, kwargs)
        if result is not _call:
            return result
    overloaded = _overloaded(relevant_args)
    return _ask(public_api, overloaded, args, kwargs) if overloaded else public_api(*args, **kwargs)


def wrap_torch_function(dispatcher):
    """A decorator for functions whose relevant arguments are `dispatcher(*args, **kwargs)`."""

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp):
    """Whether the object is a tensor, or of a class with `__torch_function__`."""
    return isinstance(inp, _core.Tensor) or hasattr(inp, "__torch_function__")


def is_tensor_method_or_property(func):
    """Whether the function is a method of tensors, or the getter of an attribute."""
    return getattr(func, "__name__", "") == "__get__" or getattr(_core.Tensor, getattr(func, "__name__", ""), None) is func


@functools.lru_cache(None)
def get_default_nowrap_functions():
    """Functions whose results keep their class: gradients and the base of a view."""
    return {_core.Tensor._base.__get__, _core.Tensor.grad.__get__, _core.Tensor._grad.__get__}


def _get_current_function_mode():
    """The mode that was entered last, or None."""
    return _local.modes[-1] if _local.modes else None


def _get_current_function_mode_stack():
    """The modes that are active, the outermost first."""
    return list(_local.modes)


def get_ignored_functions():
    """Functions that cannot be answered by `__torch_function__`: those that take no tensors."""
    import wisp

    plain = {wisp.set_default_dtype, wisp.get_default_dtype, wisp.is_tensor, wisp.manual_seed, wisp.typename, wisp.set_num_threads}
    return plain | {f for functions in _operators().values() for f in functions if not _takes_tensors(f)}


def _takes_tensors(operator):
    """Whether an operator has another argument than `out` that is a tensor."""
    given = " ".join(operator._signatures).replace("Tensor? out", "").replace("Tensor out", "")
    return any(word in given for word in ("Tensor", "Operand"))


@functools.lru_cache(None)
def _operators():
    import wisp

    kinds = (type(wisp.add), type(_core.Tensor.add))
    places = (wisp, _core.Tensor, wisp.nn.functional, wisp.linalg, wisp.fft, wisp.special)
    return {
        place: [value for name, value in vars(place).items() if isinstance(value, kinds) and not name.startswith("_")] for place in places
    }


@functools.lru_cache(None)
def get_overridable_functions():
    """The functions and methods that the core hands over, by the place where they are found."""
    return {place: [f for f in functions if _takes_tensors(f)] for place, functions in _operators().items()}


@functools.lru_cache(None)
def get_testing_overrides():
    """For each function that can be answered one with its parameters that returns -1: for tests of classes that answer them all.

    >>> import wisp
    >>> wisp.overrides.get_testing_overrides()[wisp.add](wisp.ones(1), 2)
    -1
    """
    return {f: _answer(f, place is _core.Tensor) for place, functions in get_overridable_functions().items() for f in functions}


def _answer(function, method):
    from wisp._signatures import documented

    def answer(*args, **kwargs):
        return -1

    try:
        signature = documented(function)
    except AttributeError:
        return answer
    if method:
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        signature = signature.replace(parameters=[own, *signature.parameters.values()])
    answer.__signature__ = signature
    return answer


def resolve_name(f):
    """The name of a function, such as "torch.add".

    >>> import wisp
    >>> wisp.overrides.resolve_name(wisp.add)
    'torch.add'
    """
    for place, functions in get_overridable_functions().items():
        if any(f is function for function in functions):
            home = "torch.Tensor" if place is _core.Tensor else place.__name__.replace("wisp", "torch", 1)
            return f"{home}.{f.__name__}"
    return None


class enable_reentrant_dispatch:
    """A context that changes nothing: calls from inside of `__torch_function__` are answered as usual."""

    def __enter__(self):
        return self

    def __exit__(self, *details):
        return False
