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
)
_FUNCTIONS = (
    "broadcast_to(input, shape)",
    "heaviside(input, values, *, out=None)",
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


def install(namespace):
    """Give the operators named above the first line of their documentation."""
    for signature in _METHODS:
        _document(_core.Tensor.__dict__, signature)
    for signature in _FUNCTIONS:
        _document(namespace, signature)
    _document(_core._operators["nn.functional"], "one_hot(tensor, num_classes=-1)")
    for name, operator in _core._operators["special"].items():
        if "_polynomial_" in name:
            operator.__doc__ = f"{name}(input, n, *, out=None) -> Tensor"
