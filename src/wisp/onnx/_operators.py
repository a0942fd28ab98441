"""Translations of operators that work on elements, shapes, reductions and indices. A rule has its operator's parameters."""

import math

import wisp
from wisp.onnx import _proto
from wisp.onnx._graph import fixed
from wisp.onnx._trace import Value, Varying, int_of
from wisp.onnx.errors import UnsupportedOperatorError

RULES = {}


def rule(*names):
    def enter(function):
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


# ---- one operand
def _floating(g, input):
    """Integers as the float in which the operator computes."""
    return input if g.result.dtype == input.dtype or not g.result.dtype.is_floating_point else g.cast(input, g.result.dtype)


def _unary(kind):
    return lambda g, input, *unused, **ignored: g.op(kind, _floating(g, input))


# Those that ONNX has as they are say so where they are registered.
RULES.update({name: _unary(op._onnx) for space in wisp._core._operators.values() for name, op in space.items() if op._onnx})


@rule("logical_not", "bitwise_not")
def logical_not(g, input):
    if g.call.name == "bitwise_not" and input.dtype != wisp.bool:
        raise UnsupportedOperatorError("onnx.export: bitwise_not of integers has no translation")
    return g.op("Not", g.cast(input, wisp.bool))


@rule("contiguous", "clone", "detach", "alias", "positive", "requires_grad", "cpu", "cuda")
def identity(g, input, *unused, **ignored):
    return g.op("Identity", input)


@rule("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "native_dropout", "feature_alpha_dropout")
def dropout(g, input, p=0.5, training=True, inplace=False, **ignored):
    if training and p > 0:
        return g.op("Dropout", input, g.number(float(p), wisp.float32), g.number(True, wisp.bool))
    return g.op("Identity", input)


@rule("square")
def square(g, input):
    return g.op("Mul", input, input)


@rule("rsqrt")
def rsqrt(g, input):
    return g.op("Reciprocal", g.op("Sqrt", _floating(g, input)))


RULES["log1p"] = lambda g, input: g.op("Log", g.op("Add", _floating(g, input), g.number(1.0, g.result.dtype)))
RULES["expm1"] = lambda g, input: g.op("Sub", g.op("Exp", _floating(g, input)), g.number(1.0, g.result.dtype))
RULES["log2"] = lambda g, input: g.op("Div", g.op("Log", _floating(g, input)), g.number(math.log(2.0), g.result.dtype))
RULES["log10"] = lambda g, input: g.op("Div", g.op("Log", _floating(g, input)), g.number(math.log(10.0), g.result.dtype))
RULES["exp2"] = lambda g, input: g.op("Pow", g.number(2.0, g.result.dtype), _floating(g, input))
RULES["trunc"] = lambda g, input: g.op("Mul", g.op("Sign", input), g.op("Floor", g.op("Abs", input)))
RULES["isfinite"] = lambda g, input: g.op("Not", g.op("Or", g.op("IsNaN", input), g.op("IsInf", input)))


@rule("round")
def round_(g, input, decimals=0):
    if decimals:
        raise UnsupportedOperatorError("onnx.export: round(decimals=) has no translation")
    return g.op("Round", input)


@rule("gelu")
def gelu(g, input, approximate="none"):
    dtype = input.dtype
    half, one = g.number(0.5, dtype), g.number(1.0, dtype)
    if approximate == "none":
        inner = g.op("Erf", g.op("Mul", input, g.number(math.sqrt(0.5), dtype)))
    else:
        cube = g.op("Mul", g.op("Mul", input, g.op("Mul", input, input)), g.number(0.044715, dtype))
        inner = g.op("Tanh", g.op("Mul", g.op("Add", input, cube), g.number(math.sqrt(2 / math.pi), dtype)))
    return g.op("Mul", g.op("Mul", input, half), g.op("Add", inner, one))


@rule("silu")
def silu(g, input, inplace=False):
    return g.op("Mul", input, g.op("Sigmoid", input))


@rule("leaky_relu")
def leaky_relu(g, input, negative_slope=0.01, inplace=False):
    return g.op("LeakyRelu", input, alpha=float(negative_slope))


@rule("elu")
def elu(g, input, alpha=1.0, inplace=False, **ignored):
    return g.op("Elu", input, alpha=float(alpha))


@rule("celu")
def celu(g, input, alpha=1.0, inplace=False):
    return g.op("Celu", input, alpha=float(alpha))


@rule("hardsigmoid")
def hardsigmoid(g, input, inplace=False):
    return g.op("HardSigmoid", input, alpha=1 / 6, beta=0.5)


@rule("softplus")
def softplus(g, input, beta=1.0, threshold=20.0):
    if beta == 1:
        return g.op("Softplus", input)
    scale = g.number(float(beta), input.dtype)
    return g.op("Div", g.op("Softplus", g.op("Mul", input, scale)), scale)


@rule("logsigmoid")
def logsigmoid(g, input):
    return g.op("Neg", g.op("Softplus", g.op("Neg", input)))


@rule("prelu")
def prelu(g, input, weight):
    if weight.ndim == 1 and input.ndim > 2:
        weight = g.reshape(weight, [-1] + [1] * (input.ndim - 2))
    return g.op("PRelu", input, weight)


@rule("clamp", "clip", "hardtanh", "relu6")
def clamp(g, input, min=None, max=None, inplace=False, min_val=None, max_val=None):
    if g.call.name == "relu6":
        min, max = 0.0, 6.0
    elif g.call.name == "hardtanh":
        min = next(bound for bound in (min_val, min, -1.0) if bound is not None)
        max = next(bound for bound in (max_val, max, 1.0) if bound is not None)
    dtype = g.result.dtype
    result = g.cast(input, dtype)
    for bound, kind in ((min, "Max"), (max, "Min")):
        if bound is not None:
            result = g.op(kind, result, g.cast(bound, dtype))
    return result


RULES["clamp_min"] = lambda g, input, min: clamp(g, input, min)
RULES["clamp_max"] = lambda g, input, max: clamp(g, input, None, max)


# ---- two operands
def _common(g, *items):
    """The operands in the dtype in which PyTorch computes."""
    tensors = [item.tensor if isinstance(item, Value) else int_of(item) for item in items]
    dtype = tensors[0].dtype if len(items) == 1 else wisp.result_type(*tensors)
    return [_scalar(g, item, dtype) for item in items]


def _scalar(g, item, dtype):
    if isinstance(item, Varying):
        return g.op("Cast", g.op("Squeeze", g.size(item), g.ints([0])), to=_proto.number_of(dtype))
    return g.cast(item, dtype)


def _arithmetic(kind):
    def translate(g, input, other, *, alpha=1):
        dtype = g.result.dtype
        a, b = _scalar(g, input, dtype), _scalar(g, other, dtype)
        if dtype == wisp.bool:
            return g.op({"Add": "Or", "Mul": "And"}[kind], a, b)
        return g.op(kind, a, b if alpha == 1 else g.op("Mul", b, g.number(alpha, dtype)))

    return translate


for _names, _kind in ((("add", "__radd__"), "Add"), (("sub",), "Sub"), (("mul",), "Mul"), (("maximum",), "Max"), (("minimum",), "Min")):
    rule(*_names)(_arithmetic(_kind))
RULES["rsub"] = lambda g, input, other, alpha=1: RULES["sub"](g, other, input, alpha=alpha)


@rule("div")
def div(g, input, other, *, rounding_mode=None):
    dtype = g.result.dtype
    a, b = _scalar(g, input, dtype), _scalar(g, other, dtype)
    if rounding_mode is None or not dtype.is_floating_point and rounding_mode == "trunc":
        return g.op("Div", a, b)
    if dtype.is_floating_point:
        result = g.op("Div", a, b)
        return g.op("Floor", result) if rounding_mode == "floor" else RULES["trunc"](g, result)
    rest = g.op("Mod", a, b)  # has the sign of the divisor
    return g.op("Div", g.op("Sub", a, rest), b)


RULES["floor_divide"] = lambda g, input, other: div(g, input, other, rounding_mode="floor")


@rule("remainder")
def remainder(g, input, other):
    dtype = g.result.dtype
    a, b = _scalar(g, input, dtype), _scalar(g, other, dtype)
    if not dtype.is_floating_point:
        return g.op("Mod", a, b)
    return g.op("Sub", a, g.op("Mul", g.op("Floor", g.op("Div", a, b)), b))


RULES["fmod"] = lambda g, input, other: g.op("Mod", *(_scalar(g, item, g.result.dtype) for item in (input, other)), fmod=1)


@rule("pow")
def pow(g, input, exponent):
    dtype = g.result.dtype
    if exponent == 2 and not isinstance(exponent, Value):
        wide = g.cast(input, dtype)
        return g.op("Mul", wide, wide)
    return g.op("Pow", _scalar(g, input, dtype), _scalar(g, exponent, dtype))


def _comparison(kind, negated):
    def translate(g, input, other):
        result = g.op(kind, *_common(g, input, other))
        return g.op("Not", result) if negated else result

    return translate


for _name, _kind, _negated in (
    ("eq", "Equal", False),
    ("ne", "Equal", True),
    ("lt", "Less", False),
    ("le", "LessOrEqual", False),
    ("gt", "Greater", False),
    ("ge", "GreaterOrEqual", False),
):
    RULES[_name] = _comparison(_kind, _negated)


def _logical(kind):
    def translate(g, input, other):
        if g.result.dtype != wisp.bool:
            raise UnsupportedOperatorError(f"onnx.export: {g.call.name} of integers has no translation")
        return g.op(kind, g.cast(input, wisp.bool), g.cast(other, wisp.bool))

    return translate


for _kind in ("And", "Or", "Xor"):
    for _name in (f"logical_{_kind.lower()}", f"bitwise_{_kind.lower()}", f"__{_kind.lower()}__"):
        RULES[_name] = _logical(_kind)


@rule("where")
def where(g, condition, input, other):
    return g.op("Where", condition, g.cast(input, g.result.dtype), g.cast(other, g.result.dtype))


@rule("masked_fill")
def masked_fill(g, input, mask, value):
    return g.op("Where", mask, g.cast(value, input.dtype), input)


@rule("lerp")
def lerp(g, input, end, weight):
    return g.op("Add", input, g.op("Mul", g.op("Sub", end, input), g.cast(weight, input.dtype)))


@rule("addcmul")
def addcmul(g, input, tensor1, tensor2, *, value=1):
    return g.op("Add", input, g.op("Mul", g.op("Mul", tensor1, tensor2), g.number(value, input.dtype)))


# ---- dtypes
def _cast_to_result(g, input, *unused, **ignored):
    return g.op("Identity", input) if input.dtype == g.result.dtype else g.cast(input, g.result.dtype)


for _name in ("to", "type_as", "type", "float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool"):
    RULES[_name] = _cast_to_result


# ---- shapes: the result's own shape says it
@rule("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as", "ravel")
def reshape(g, input, *unused, **ignored):
    return g.reshape(input, g.result.shape)


@rule("expand", "expand_as", "broadcast_to")
def expand(g, input, *unused, **ignored):
    return g.op("Expand", input, g.ints(g.result.shape))


def _dims(dims):
    return list(dims[0]) if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else list(dims)


@rule("permute")
def permute(g, input, *dims, **named):
    return g.op("Transpose", input, perm=[dim % input.ndim for dim in _dims(dims or (named["dims"],))])


@rule("transpose", "swapaxes", "swapdims", "t")
def transpose(g, input, dim0=0, dim1=1):
    order = list(range(input.ndim))
    if input.ndim > 1:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return g.op("Transpose", input, perm=order)


@rule("movedim", "moveaxis")
def movedim(g, input, source, destination):
    order = wisp.arange(input.tensor.numel()).reshape(input.tensor.shape).movedim(source, destination)
    strides = wisp.empty(input.tensor.shape).stride()
    return g.op("Transpose", input, perm=[strides.index(stride) for stride in order.stride()])


@rule("repeat", "tile")
def repeat(g, input, *repeats, **named):
    repeats = _dims(repeats or tuple(named.values()))
    missing = len(repeats) - input.ndim
    source = g.reshape(input, [1] * missing + list(input.shape)) if missing > 0 else input
    return g.op("Tile", source, g.ints([1] * max(-missing, 0) + repeats))


@rule("cat")
def cat(g, tensors, dim=0, **named):
    parts = [g.cast(tensor, g.result.dtype) for tensor in tensors if tensor.ndim == g.result.ndim]
    return g.op("Concat", *parts, axis=named.get("axis", dim))


@rule("stack")
def stack(g, tensors, dim=0):
    dim %= g.result.ndim
    return g.op("Concat", *(g.op("Unsqueeze", g.cast(tensor, g.result.dtype), g.ints([dim])) for tensor in tensors), axis=dim)


@rule("chunk", "split", "split_with_sizes", "tensor_split")
def split(g, input, sections=None, dim=0, **named):
    sizes = [fixed(part.shape[dim], "the size of a part") for part in g.call.results]
    if len(sizes) == 1:
        return g.op("Identity", input)
    return g.op("Split", input, g.ints(sizes), outputs=len(sizes), axis=dim)


@rule("unbind")
def unbind(g, input, dim=0):
    return [g.op("Gather", input, g.number(i, wisp.int64), axis=dim) for i in range(len(g.call.results))]


@rule("select")
def select(g, input, dim, index):
    return g.op("Gather", input, _scalar(g, index, wisp.int64), axis=dim)


@rule("narrow")
def narrow(g, input, dim, start, length):
    whole = isinstance(start, Varying) or isinstance(length, Varying)
    stop = Varying(int_of(start) + int_of(length), _second(start) + _second(length)) if whole else start + length
    return g.op("Slice", input, g.ints([start]), g.ints([stop]), g.ints([dim]))


def _second(number):
    return number.second if isinstance(number, Varying) else number


_END = 2**62


@rule("__getitem__")
def getitem(g, input, key):
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(item, (list, Value)) and (not isinstance(item, Value) or item.dtype == wisp.bool) for item in keys):
        raise UnsupportedOperatorError("onnx.export: indexing with a mask or a list has no translation; use torch.where or index_select")
    if Ellipsis in [item for item in keys if not isinstance(item, (Value, slice))]:
        place = next(i for i, item in enumerate(keys) if item is Ellipsis)
        used = sum(item is not None for item in keys) - 1
        keys[place : place + 1] = [slice(None)] * (input.ndim - used)
    dim, current, slices, picks, new = 0, input, [], [], []
    for item in keys:
        if item is None:
            new.append(None)
        elif isinstance(item, slice):
            if item != slice(None):
                slices.append((item.start or 0, _END if item.stop is None else item.stop, dim, item.step or 1))
            new.append(dim)
            dim += 1
        else:
            picks.append((dim, item))
            dim += 1
    if slices:
        current = g.op("Slice", current, *(g.ints(column) for column in zip(*slices)))
    tensors = [item for _, item in picks if isinstance(item, Value) and item.ndim > 0]
    if len(tensors) > 1 or tensors and (None in new or len(picks) > 1):
        raise UnsupportedOperatorError("onnx.export: indexing with several tensors has no translation; use torch.gather")
    for place, item in reversed(picks):
        current = g.op("Gather", current, g.cast(item, wisp.int64) if isinstance(item, Value) else _scalar(g, item, wisp.int64), axis=place)
    return g.reshape(current, g.result.shape) if None in new else current if current is not input else g.op("Identity", input)


@rule("gather")
def gather(g, input, dim, index, *, sparse_grad=False):
    return g.op("GatherElements", input, g.cast(index, wisp.int64), axis=dim)


@rule("index_select")
def index_select(g, input, dim, index):
    return g.op("Gather", input, g.cast(index, wisp.int64), axis=dim)


@rule("flip")
def flip(g, input, *dims, **named):
    dims = _dims(dims or (named["dims"],))
    return g.op("Slice", input, g.ints([-1] * len(dims)), g.ints([-_END] * len(dims)), g.ints(dims), g.ints([-1] * len(dims)))


@rule("roll")
def roll(g, input, shifts, dims=None):
    if dims is None:
        raise UnsupportedOperatorError("onnx.export: roll without dims has no translation")
    shifts, dims = ([item] if isinstance(item, int) else list(item) for item in (shifts, dims))
    current = g.op("Identity", input)
    for shift, dim in zip(shifts, dims):
        shift %= fixed(input.shape[dim], "the size of a rolled dimension")
        if shift:
            parts = [g.op("Slice", current, g.ints([a]), g.ints([b]), g.ints([dim])) for a, b in ((-shift, _END), (0, -shift))]
            current = g.op("Concat", *parts, axis=dim)
    return current


@rule("tril", "triu")
def triangle(g, input, diagonal=0):
    if input.dtype == wisp.bool:
        part = g.op("Trilu", g.cast(input, wisp.int64), g.number(diagonal, wisp.int64), upper=int(g.call.name == "triu"))
        return g.op("Cast", part, to=_proto.number_of(wisp.bool))
    return g.op("Trilu", input, g.number(diagonal, wisp.int64), upper=int(g.call.name == "triu"))


# ---- tensors that are made, and vary with the inputs
@rule("arange")
def arange(g, *bounds, start=0, end=None, step=1, **ignored):
    if bounds:
        start, end, step = ((0, *bounds) if len(bounds) == 1 else bounds)[:3] + ((step,) if len(bounds) < 3 else ())
    return g.op("Range", *(_scalar(g, item, g.result.dtype) for item in (start, end, step)))


@rule("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "empty", "empty_like")
def filled(g, *args, **named):
    first = g.result.tensor.flatten()[:1] if g.result.tensor.numel() else wisp.zeros(1, dtype=g.result.dtype)
    if g.call.name.startswith("empty"):
        first = wisp.zeros(1, dtype=g.result.dtype)
    return g.op("Expand", first, g.ints(g.result.shape))


# ---- reductions
def _axes(input, dim):
    dims = range(input.ndim) if dim is None or dim == () or dim == [] else [dim] if isinstance(dim, int) else dim
    return [d % max(input.ndim, 1) for d in dims] if input.ndim else []


def _reduction(kind):
    def translate(g, input, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=None):
        dim = axis if dim is None else dim
        wide = g.cast(input, g.result.dtype)
        if not input.ndim:
            return g.op("Identity", wide)
        return g.op(kind, wide, g.ints(_axes(input, dim)), keepdims=int(keepdim or bool(keepdims)))

    return translate


for _name, _kind in (
    ("sum", "ReduceSum"),
    ("mean", "ReduceMean"),
    ("amax", "ReduceMax"),
    ("amin", "ReduceMin"),
    ("prod", "ReduceProd"),
    ("logsumexp", "ReduceLogSumExp"),
):
    RULES[_name] = _reduction(_kind)


def _extreme(reduced, arg, elementwise):
    def translate(g, input, dim=None, keepdim=False, other=None):
        other = dim if isinstance(dim, Value) else other
        if isinstance(other, Value):
            return g.op(elementwise, *_common(g, input, other))
        if dim is None:
            return g.op(reduced, input, g.ints(_axes(input, None)), keepdims=0)
        return [g.op(reduced, input, g.ints([dim % input.ndim]), keepdims=int(keepdim)), g.op(arg, input, axis=dim, keepdims=int(keepdim))]

    return translate


RULES["max"], RULES["min"] = _extreme("ReduceMax", "ArgMax", "Max"), _extreme("ReduceMin", "ArgMin", "Min")


@rule("argmax", "argmin")
def argmax(g, input, dim=None, keepdim=False):
    kind = "ArgMax" if g.call.name == "argmax" else "ArgMin"
    if dim is None:
        return g.op(kind, g.reshape(input, [-1]), axis=0, keepdims=0)
    return g.op(kind, input, axis=dim, keepdims=int(keepdim))


@rule("any", "all")
def any_(g, input, dim=None, keepdim=False):
    kind = "ReduceMax" if g.call.name == "any" else "ReduceMin"
    bits = g.op("Cast", g.cast(input, wisp.bool), to=_proto.number_of(wisp.int32))
    return g.op("Cast", g.op(kind, bits, g.ints(_axes(input, dim)), keepdims=int(keepdim)), to=_proto.number_of(wisp.bool))


@rule("var", "std")
def var(g, input, dim=None, unbiased=True, keepdim=False, *, correction=None):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes = _axes(input, dim)
    correction = int(unbiased) if correction is None else correction
    centred = g.op("Sub", input, g.op("ReduceMean", input, g.ints(axes), keepdims=1))
    result = g.op("ReduceMean", g.op("Mul", centred, centred), g.ints(axes), keepdims=int(keepdim))
    if correction:
        count = math.prod(fixed(input.shape[axis], "the count of var") for axis in axes)
        result = g.op("Mul", result, g.number(count / (count - correction), input.dtype))
    return g.op("Sqrt", result) if g.call.name == "std" else result


@rule("norm", "vector_norm")
def norm(g, input, p=None, dim=None, keepdim=False, *, ord=None, dtype=None):
    order = ord if p is None else p
    if order not in (None, "fro", 1, 2):
        raise UnsupportedOperatorError(f"onnx.export: norm of order {order} has no translation")
    return g.op("ReduceL1" if order == 1 else "ReduceL2", input, g.ints(_axes(input, dim)), keepdims=int(keepdim))


@rule("cumsum")
def cumsum(g, input, dim, *, dtype=None):
    return g.op("CumSum", g.cast(input, g.result.dtype), g.number(dim, wisp.int64))


@rule("topk")
def topk(g, input, k, dim=-1, largest=True, sorted=True):
    return g.op("TopK", input, g.ints([k]), outputs=2, axis=dim, largest=int(largest), sorted=int(sorted))


@rule("sort")
def sort(g, input, dim=-1, descending=False, stable=False):
    return g.op("TopK", input, g.ints([input.shape[dim]]), outputs=2, axis=dim, largest=int(descending), sorted=1)


@rule("argsort")
def argsort(g, input, dim=-1, descending=False, stable=False):
    return sort(g, input, dim, descending)[1]
