"""Signatures of operators, and calls with their arguments by name and their defaults written out."""

import ast
import functools
import inspect
import keyword
import numbers
import types
import typing
import warnings
from typing import Any, NamedTuple

import wisp
from wisp._compat.schema import AliasInfo, Argument, FunctionSchema, _split

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]


class ArgsKwargsPair(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


_NUMBER = int | float | bool | complex
_TYPES = {  # of the signatures of operators
    "Tensor": wisp.Tensor,
    "Operand": wisp.Tensor | _NUMBER,
    "Tensor[]": list[wisp.Tensor],
    "Tensor?[]": list[wisp.Tensor],
    "Number": _NUMBER,
    "int": int,
    "int...": int | list[int],
    "int[]": int | list[int],
    "float": float | int,
    "bool": bool,
    "str": str,
    "dtype": wisp.dtype,
    "device": wisp.device | str | int,
    "format": wisp.memory_format,
    "Generator": wisp.Generator,
}


def _function_of(op):
    """The function behind an operator of `torch.ops`."""
    from wisp._ops import OpOverload, OpOverloadPacket

    return op.op if isinstance(op, OpOverload) else op._function if isinstance(op, OpOverloadPacket) else op


@functools.lru_cache(4096)
def _signatures(function):
    """The signatures of an operator's forms; those that write to `out` apart."""
    found = []
    for text in getattr(function, "_signatures", ()):
        parameters, kind, out = [], inspect.Parameter.POSITIONAL_OR_KEYWORD, None
        text = text.partition(" -> ")[0]
        for part in _split(text[text.index("(") + 1 : text.rindex(")")]):
            if part == "*":
                kind = inspect.Parameter.KEYWORD_ONLY
                continue
            declared, _, preset = part.partition("=")
            declared, name = declared.rsplit(" ", 1)
            if keyword.iskeyword(name):
                break
            default = _preset(preset) if preset else inspect.Parameter.empty
            annotation = _TYPES.get(declared.translate(_MARKS).removesuffix("?"), Any)
            one = inspect.Parameter(name, kind, default=default, annotation=annotation)
            if name == "out":
                out = one.replace(default=inspect.Parameter.empty, kind=inspect.Parameter.KEYWORD_ONLY)
            else:
                parameters.append(one)
        else:
            found.append(inspect.Signature(parameters))
            if out is not None:
                found.append(inspect.Signature([*parameters, out]))
    return found


_MARKS = {ord(mark): None for mark in "!~^&"}


def _preset(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return getattr(wisp, text, text)


def _schema(op, signature):
    """The signature as PyTorch's text of an operator, as far as types are known here."""
    name, arguments = _function_of(op).__name__, []
    for parameter in signature.parameters.values():
        written = parameter.name == "out" or (not arguments and name.endswith("_") and not name.endswith("__"))
        alias = AliasInfo({"a"}, {"a"}, True) if written else None
        default = None if parameter.default is parameter.empty else parameter.default
        only = parameter.kind is parameter.KEYWORD_ONLY
        arguments.append(Argument(parameter.name, "Any", default, parameter.default is not parameter.empty, only, None, alias))
    form = "out" if "out" in signature.parameters else ""
    text = f"aten::{name}{form and '.' + form}{signature}"
    return FunctionSchema(text, f"aten::{name}", form, arguments, [])


def get_signature_for_torch_op(op, return_schemas=False):
    """The signatures of an operator, one for each form that it has; None of a function that is none.

    >>> [list(signature.parameters) for signature in get_signature_for_torch_op(wisp.relu)]
    [['input'], ['input', 'out']]
    """
    function = _function_of(op)
    found = _signatures(function) if function is not op or hasattr(function, "_facts") else []
    if not found and function is not op:
        found = [inspect.signature(function)]
    found = found or None
    return (found, found and [_schema(op, one) for one in found]) if return_schemas else found


def _binding(signatures, args, kwargs):
    found = []
    for one in signatures or ():
        try:
            one.bind(*args, **kwargs)
        except TypeError:
            continue
        found.append(one)
    return found


def check_for_mutable_operation(target, args, kwargs):
    """Raise RuntimeError for a call that writes to its arguments, as far as that is known.

    >>> check_for_mutable_operation(wisp.relu, (wisp.ones(1),), {})
    """
    signatures, schemas = get_signature_for_torch_op(target, return_schemas=True)
    found = _binding(signatures, args, kwargs)
    if len(found) != 1:
        return
    schema = schemas[signatures.index(found[0])]
    if schema.is_mutable:
        raise RuntimeError(
            f"Tried to trace mutable operation {schema}. FX only supports functional code, so operations that mutate operands in-place "
            "(e.g. via `out` arguments) are not supported"
        )


def create_type_hint(x):
    """The type of a list or tuple of types: that of an item whose type all others are of. Anything else stays what it is.

    >>> create_type_hint([int, int]), create_type_hint((wisp.Tensor, wisp.nn.Parameter))
    (list[int], tuple[torch.Tensor, ...])
    """
    if not isinstance(x, (list, tuple)):
        return x
    try:
        common = next((one for one in x if all(issubclass(other, one) for other in x)), Any)
    except TypeError:
        warnings.warn(f"We were not able to successfully create type hint from the type {x}", stacklevel=2)
        return x
    return list[common] if isinstance(x, list) else tuple[common, ...]


def type_matches(signature_type, argument_type):
    """Whether an argument of a type may be given for a parameter of a type.

    >>> type_matches(list[int], int), type_matches(int | float, str)
    (True, False)
    """
    if signature_type is argument_type or signature_type is Any:
        return True
    origin, inner = typing.get_origin(signature_type), typing.get_args(signature_type)
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(one, argument_type) for one in inner)
    if origin is list:
        if argument_type is int and inner[0] is int:
            return True
        items = [item for item in typing.get_args(argument_type) if item is not Ellipsis]
        listed = typing.get_origin(argument_type) in (list, tuple)
        return listed and all(item is Any or (isinstance(item, type) and issubclass(item, inner[0])) for item in items if item != ())
    if signature_type is int and argument_type is wisp.dtype:  # its number, in PyTorch
        return True
    if signature_type is numbers.Number:
        return argument_type in (int, float)
    return isinstance(signature_type, type) and isinstance(argument_type, type) and issubclass(argument_type, signature_type)


def _written_out(signature, args, kwargs, only_kwargs):
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if kinds - {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}:
        return None
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    placed = 0 if only_kwargs else len(args)
    values = list(bound.arguments.items())
    return ArgsKwargsPair(tuple(value for _, value in values[:placed]), dict(values[placed:]))


def normalize_function(target, args, kwargs=None, arg_types=None, kwarg_types=None, normalize_to_only_use_kwargs=False):
    """The arguments of a call as those of the function's signature: by name behind those that were given by place, or all, and with
    what was left out. None where that is not known. Types choose between the forms of an operator.

    >>> normalize_function(wisp.nn.functional.linear, (1, 2), normalize_to_only_use_kwargs=True).kwargs
    {'input': 1, 'weight': 2, 'bias': None}
    """
    args, kwargs = tuple(args), dict(kwargs or {})
    signatures = get_signature_for_torch_op(target)
    if signatures is None:
        try:
            signature = inspect.signature(inspect.unwrap(getattr(target, "_unseen", target)))
        except (TypeError, ValueError):
            return None
        return _written_out(signature, args, kwargs, normalize_to_only_use_kwargs)
    found = _binding(signatures, args, kwargs)
    if len(found) > 1 and (arg_types is not None or kwarg_types is not None):
        found = [one for one in found if _fits(one, arg_types or (), kwarg_types or {})][:1]
    if len(found) > 1:
        wanted = _shortest(found, args, kwargs)
        if wanted is None:
            forms = "\n".join(map(str, found))
            raise RuntimeError(
                f"Tried to normalize arguments to {wisp.typename(target)} but the schema match was ambiguous! Please provide argument "
                f"types to the normalize_arguments() call. Available schemas:\n{forms}"
            )
        found = [wanted]
    return _written_out(found[0], args, kwargs, normalize_to_only_use_kwargs) if found else None


def _fits(signature, arg_types, kwarg_types):
    try:
        bound = signature.bind(*arg_types, **kwarg_types).arguments
    except TypeError:
        return False
    unknown = (None, type(None), wisp.fx.Node, wisp.fx.Proxy)
    return all(kind in unknown or type_matches(signature.parameters[name].annotation, kind) for name, kind in bound.items())


def _shortest(signatures, args, kwargs):
    """The one form in which what was given is all that must be, if they mean the same by it."""
    names = {tuple(one.bind(*args, **kwargs).arguments) for one in signatures}
    return min(signatures, key=lambda one: len(one.parameters)) if len(names) == 1 else None


def normalize_module(root, target, args, kwargs=None, normalize_to_only_use_kwargs=False):
    """As `normalize_function`, for a call of a layer of `torch.nn` at a dotted name of `root`; None for other modules.

    >>> normalize_module(wisp.nn.Sequential(wisp.nn.ReLU()), "0", (1,), normalize_to_only_use_kwargs=True)
    ArgsKwargsPair(args=(), kwargs={'input': 1})
    """
    try:
        module = root.get_submodule(target)
    except AttributeError as error:
        raise RuntimeError(f"Tried to normalize node with target {target} but root did not have that target!") from error
    if getattr(wisp.nn, type(module).__name__, None) is not type(module):
        return None
    signature = inspect.signature(inspect.unwrap(module.forward))
    return _written_out(signature, tuple(args), dict(kwargs or {}), normalize_to_only_use_kwargs)
