"""The signatures of PyTorch's documentation where they differ from those that the operators' overloads give.

`help(Tensor.matmul)` then says what PyTorch's does; the parser understands both names.
"""

from wisp import _core

_METHODS = (
    "bmm(batch2)",
    "broadcast_to(shape)",
    "div(value, *, rounding_mode=None)",
    "div_(value, *, rounding_mode=None)",
    "dot(other)",
    "floor_divide(value)",
    "floor_divide_(value)",
    "fmod(divisor)",
    "fmod_(divisor)",
    "heaviside(values)",
    "heaviside_(values)",
    "index_copy(dim, index, tensor2)",
    "index_copy_(dim, index, tensor)",
    "masked_scatter(mask, tensor)",
    "matmul(tensor2)",
    "max(dim=None, keepdim=False)",
    "mean(dim=None, keepdim=False, *, dtype=None)",
    "median(dim=None, keepdim=False)",
    "min(dim=None, keepdim=False)",
    "mul(value)",
    "mul_(value)",
    "nanmedian(dim=None, keepdim=False)",
    "narrow(dimension, start, length)",
    "polygamma(n)",
    "polygamma_(n)",
    "remainder(divisor)",
    "remainder_(divisor)",
    "round(decimals=0)",
    "round_(decimals=0)",
    "std(dim=None, *, correction=1, keepdim=False)",
    "take(indices)",
    "type_as(tensor)",
    "var(dim=None, *, correction=1, keepdim=False)",
    "where(condition, y)",
    "scatter_(dim, index, src, *, reduce=None)",
    "split(split_size, dim=0)",
    "nansum(dim=None, keepdim=False, dtype=None)",
    "atanh_(other)",
    "sum(dim=None, keepdim=False, dtype=None)",
    "prod(dim=None, keepdim=False, dtype=None)",
    "sort(dim=-1, descending=False, stable=False)",
    "cholesky_solve(input2, upper=False)",
    "orgqr(input2)",
    "ormqr(input2, input3, left=True, transpose=False)",
    "hsplit(split_size_or_sections)",
    "vsplit(split_size_or_sections)",
    "dsplit(split_size_or_sections)",
    "unsafe_split(split_size, dim=0)",
    "resize_as_(tensor, memory_format=torch.contiguous_format)",
)
# Names of parameters that PyTorch documents, and those that the functions have.
_RENAMED = {"split_size_or_sections": "indices_or_sections", "split_size": "split_size_or_sections", "tensor": "the_template", "A": "input"}
_FUNCTIONS = (
    "broadcast_to(input, shape)",
    "cholesky_solve(B, L, upper=False, *, out=None)",
    "heaviside(input, values, *, out=None)",
    "lu_solve(b, LU_data, LU_pivots, *, out=None)",
    "matrix_exp(A)",
    "searchsorted(sorted_sequence, values, *, out_int32=False, right=False, side=None, sorter=None, out=None)",
    "sort(input, dim=-1, descending=False, *, stable=False, out=None)",
    "std(input, dim=None, *, correction=1, keepdim=False, out=None)",
    "var(input, dim=None, *, correction=1, keepdim=False, out=None)",
    "std_mean(input, dim=None, *, correction=1, keepdim=False, out=None)",
    "var_mean(input, dim=None, *, correction=1, keepdim=False, out=None)",
)


def _document(home, signature):
    name = signature[: signature.index("(")]
    operator = home.get(name)
    if type(operator).__name__.startswith("builtin_") and hasattr(operator, "_signatures"):
        operator.__doc__ = signature + " -> Tensor"
    elif operator is not None:
        return {name: _renaming(operator, signature)}
    return {}


def _renaming(function, signature):
    """A function of Python that also takes its parameters by the names of `signature`."""

    def renamed(*args, **kwargs):
        return function(*args, **{_RENAMED.get(name, name): value for name, value in kwargs.items()})

    renamed.__name__, renamed.__module__, renamed.__qualname__ = function.__name__, function.__module__, function.__qualname__
    renamed.__doc__ = f"{signature} -> Tensor\n\n{function.__doc__}"
    return renamed


def install(namespace):
    """Give the operators named above the first line of their documentation."""
    for signature in _METHODS:
        _core._extend_tensor(_document(_core.Tensor.__dict__, signature))
    for signature in _FUNCTIONS:
        namespace.update(_document(namespace, signature))
    _document(_core._operators["nn.functional"], "one_hot(tensor, num_classes=-1)")
    for name, operator in _core._operators["special"].items():
        if "_polynomial_" in name:
            operator.__doc__ = f"{name}(input, n, *, out=None) -> Tensor"


def signature_of(operator):
    """The first line of a function's documentation as an `inspect.Signature`."""
    import ast
    import inspect

    line = (operator.__doc__ or "").partition("\n")[0].partition(" -> ")[0].replace("*size, *,", "*size,")
    if operator.__module__ != "wisp.nn.functional" or "(" not in line:  # elsewhere PyTorch has built-in functions too
        raise AttributeError("__signature__")
    try:
        parsed = ast.parse(f"def f{line[line.index('(') :]}: pass").body[0].args
        defaults = [ast.literal_eval(value) for value in parsed.defaults]
        named = [inspect.Parameter.empty if value is None else ast.literal_eval(value) for value in parsed.kw_defaults]
    except (SyntaxError, ValueError):
        raise AttributeError("__signature__") from None
    kinds = inspect.Parameter
    places = parsed.posonlyargs + parsed.args
    defaults = [kinds.empty] * (len(places) - len(defaults)) + defaults
    parameters = [kinds(a.arg, kinds.POSITIONAL_OR_KEYWORD, default=d) for a, d in zip(places, defaults)]
    if parsed.vararg:
        parameters.append(kinds(parsed.vararg.arg, kinds.VAR_POSITIONAL))
    parameters += [kinds(a.arg, kinds.KEYWORD_ONLY, default=d) for a, d in zip(parsed.kwonlyargs, named)]
    return inspect.Signature(parameters)
