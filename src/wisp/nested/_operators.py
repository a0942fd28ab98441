"""Operators on nested tensors, by name. Those on elements, or on dimensions that all parts share, work on the packed values."""

import wisp
from wisp import _core
from wisp._tensor.holder import elementwise
from wisp.nested import _shapes  # noqa: F401 (it enters its rules)
from wisp.nested._rules import RULES, _nested, _wrapped, refused, rule
from wisp.nested._tensor import NestedTensor, RaggedSize, _make

F = wisp.nn.functional


def call(function, args, kwargs):
    """Run an operator that was called with a nested tensor."""
    name = function.__name__
    if name == "__get__":
        return _attribute(args[0], function.__self__.__name__)
    inplace = name.endswith("_") and not name.endswith("__")
    base = name[:-1] if inplace else name
    with wisp.DisableTorchFunctionSubclass():
        if name in RULES:
            return RULES[name](*args, **kwargs)
        if base in elementwise():
            result = _on_values(function, base, args, kwargs)
            return args[0] if inplace else result
        if hasattr(function, "_unseen"):  # written in Python: what it calls comes here
            wisp.overrides._switch(False, -1)
            try:
                return function._unseen(*args, **kwargs)
            finally:
                wisp.overrides._switch(False, 1)
        own = vars(NestedTensor).get(name)
        if getattr(own, "__module__", None) == NestedTensor.__module__:  # not what is inherited, which would read the shell
            return own(*args, **kwargs)
    raise refused(name)


def _attribute(input, name):
    if name.startswith("is_"):
        return getattr(input._values, name)
    if name in ("real", "imag"):
        part = getattr(input._values, name)
        return input._with(part.view_as(part))
    raise refused(name)


# ---- elements
def _on_values(function, name, args, kwargs):
    found = [value for value in (*args, *kwargs.values()) if _nested(value)]
    first, binary = found[0], elementwise()[name] > 1
    for other in found[1:]:
        if other._shapes != first._shapes or other._ragged != first._ragged:

            def shown(tensor):
                return f"({', '.join(map(str, tensor._sizes))})"

            if binary and tensor_broadcasts(first, other):
                return _by_parts(function, args, kwargs, first)
            if name == "copy":
                told = "copy_ only supports tensors that are the same size for Nested implementations: "
                told = told if first._layout is wisp.strided else ""
                raise RuntimeError(f"{told}expected compatible input and src shapes, but got: {shown(first)} and {shown(other)}")
            raise RuntimeError(
                f"cannot call binary pointwise function {name}.Tensor with inputs of shapes {shown(first)} and {shown(other)}"
            )

    def values(value):
        if _nested(value):
            return value._values
        if isinstance(value, _core.Tensor) and value.dim() > 0 and binary:
            return _spread(first, value, name, value is args[0])
        return value

    if name == "to":
        made = function(*map(values, args), **kwargs)
        return first if made is first._values else first._with(made)
    if name == "fill" and len(args) > 1 and isinstance(args[1], _core.Tensor) and args[1].dim():
        raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {args[1].dim()} dimensions.")
    if name == "clone" and kwargs.get("memory_format") in (wisp.channels_last, wisp.channels_last_3d):
        told = "ChannelsLast" if kwargs["memory_format"] is wisp.channels_last else "ChannelsLast3d"
        raise RuntimeError(f"Nested tensor clone supports Preserve and Contiguous memory formats, called clone with memory format: {told}")
    if name in ("conj", "positive", "real") and len(args) == 1:  # of real numbers these are the tensor itself, and views of it here
        return first._with(function(first._values).view_as(first._values))
    if name == "embedding":
        return first._with(function(*map(values, args), **kwargs))
    return first._with(function(*map(values, args), **{key: values(value) for key, value in kwargs.items()}))


def tensor_broadcasts(one, other):
    """Whether the parts of two nested tensors go together, one by one."""
    return len(one) == len(other) and all(_go_together(a, b) for a, b in zip(one._shapes, other._shapes))


def _go_together(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def _by_parts(function, args, kwargs, first):
    parts = [value._parts() if _nested(value) else [value] * len(first) for value in args]
    return first._again([function(*items, **kwargs) for items in zip(*parts)])


def _spread(nested, dense, name, first=False):
    """A dense operand in the shape of the values: one for all, or one for each part."""
    if nested._ragged is None:
        told = "non-nested self and nested other" if first else "nested self and non-nested other"
        raise RuntimeError(
            f"Expected both self and other to be nested, but got a {told}, for {name} of parts that differ in several sizes; use unbind()"
        )
    extra = nested.dim() - dense.dim()
    if extra < 0:
        raise RuntimeError(f"{name}: a dense tensor of {dense.dim()} dimensions and a nested one of {nested.dim()}")
    shape = (1,) * extra + tuple(dense.shape)
    if shape[nested._ragged] != 1:
        raise RuntimeError(
            f"cannot call binary pointwise function {name} with inputs of shapes ({', '.join(map(str, nested._sizes))}) and "
            f"{tuple(dense.shape)}: the ragged dimension fits 1 alone"
        )
    dense = dense.reshape(shape)
    if shape[0] == 1:
        return dense.squeeze(0)
    if shape[0] != len(nested):
        raise RuntimeError(f"{name}: a dense tensor for {shape[0]} parts and a nested one of {len(nested)}")
    return dense.squeeze(nested._ragged).index_select(0, nested._segments()).movedim(0, nested._ragged - 1)


for _name in ("is_floating_point", "is_complex", "is_signed", "element_size", "is_pinned"):
    RULES[_name] = lambda input, _name=_name: getattr(input._values, _name)()
RULES["is_same_size"] = lambda input, other: input._shapes == other._shapes
RULES["masked_select"] = lambda input, mask: _chosen(input, mask)
RULES["is_tensor"] = lambda obj: True
RULES["_has_tangent"] = lambda input: input._values._has_tangent()
RULES["numel"] = lambda input: input._values.numel()
RULES["equal"] = lambda input, other: input._shapes == other._shapes and wisp.equal(input._values, other._values)


@rule("allclose")
def allclose(input, other, *args, **kwargs):
    return input._shapes == other._shapes and wisp.allclose(input._values, other._values, *args, **kwargs)


def _drawn(name):
    """Random values of the parts: of the strided layout one part after the other, as PyTorch draws them."""
    draw = getattr(wisp, name)

    def like(input, *args, **kwargs):
        if input._layout is wisp.jagged or kwargs.get("layout") is wisp.jagged:
            kwargs.pop("layout", None)
            return input._with(draw(input._values, *args, **kwargs))
        return input._again([draw(part, *args, **kwargs) for part in input._parts()])

    return like


for _name in ("rand_like", "randn_like", "randint_like"):
    RULES[_name] = _drawn(_name)


def _chosen(input, mask):
    """The elements of each part at the places where a mask is true, as parts of one dimension."""
    mask = mask._values if _nested(mask) else _spread(input, mask, "masked_select")
    values, mask = wisp.broadcast_tensors(input._values, mask)
    counts = [int(part.sum()) for part in input._with(mask)._parts()]
    parts = [v.masked_select(m) for v, m in zip(input._with(values)._parts(), input._with(mask)._parts())]
    return _make(wisp.cat(parts), [(n,) for n in counts], 1, input._layout)


# ---- layers
@rule("linear")
def linear(input, weight, bias=None):
    if _nested(weight):
        raise RuntimeError("Linear does not support nested weight when input is a nested tensor.")
    if input._layout is wisp.strided and (input.dim() != 3 or weight.dim() != 2):
        raise RuntimeError(
            "Linear requires nested_tensor.dim == 3 and dense_matrix.dim == 2. "
            f"Nested tensor dim: {input.dim()}. Dense tensor dim: {weight.dim()}"
        )
    if input._layout is wisp.strided and isinstance(input._sizes[-1], RaggedSize) and input.is_contiguous():
        last = [shape[-1] for shape in input._shapes]
        raise RuntimeError(
            f"Expected all tensors in nested tensor to have the same trailing dimension, instead last dimension equals: {last}"
        )
    if input._layout is wisp.strided and input.is_contiguous() and input._sizes[-1] != weight.shape[1]:
        raise RuntimeError(
            "Shape mismatch for NestedTensor Linear: Expected input's (a nested tensor) 'last_dim' to equal 'weight.size(1), but got: "
            f"last_dim = {input._sizes[-1]}, and weight.size(1) = {weight.shape[1]}"
        )
    if input._layout is wisp.strided and not input.is_contiguous():
        raise RuntimeError("for now linear only supports contiguous nested tensor; call contiguous()")
    if input._ragged == input.dim() - 1:
        raise RuntimeError("linear(): the last dimension is ragged")
    if input._ragged is None:
        return input._again([F.linear(part, weight, bias) for part in input._parts()])
    return input._with(F.linear(input._values, weight, bias))


@rule("layer_norm")
def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    first = input.dim() - len(normalized_shape)
    if input._layout is wisp.strided and (input._ragged is None or input._ragged >= first):
        raise RuntimeError("layer_norm(): normalized_shape extends into irregular dimensions for the nested tensor")
    if input._layout is wisp.strided and 0 < first and tuple(input._sizes[first:]) != tuple(normalized_shape):
        at = next(i for i, (have, want) in enumerate(zip(input._sizes[first:], normalized_shape)) if have != want)
        raise RuntimeError(
            f"The shape at dimension {at} of normalized_shape doesn't match the input: expected {input._sizes[first + at]}, "
            f"got {normalized_shape[at]}"
        )
    if input.dim() <= 2:
        raise RuntimeError("layer_norm(): not supported for NestedTensor objects with 2 or fewer dimensions")
    if first <= 0:
        raise RuntimeError("layer_norm(): not supported when normalizing over the batch dimension for NestedTensor")
    if input._ragged < first:
        return input._with(F.layer_norm(input._values, normalized_shape, weight, bias, eps))
    if weight is not None or bias is not None:
        raise RuntimeError("layer_norm(): a weight or bias has no place for the ragged dimension")
    return input._again([F.layer_norm(part, part.shape[first - 1 :], eps=eps) for part in input._parts()])


@rule("rms_norm")
def rms_norm(input, normalized_shape, weight=None, eps=None):
    if input._ragged is None or input._ragged >= input.dim() - len(normalized_shape):
        raise RuntimeError("rms_norm(): normalizing over ragged dim not supported for nested tensors")
    return input._with(F.rms_norm(input._values, normalized_shape, weight, eps))


def _softmax(name):
    function = getattr(F, name)

    def softmax(input, dim, _stacklevel=3, dtype=None, **ignored):
        if not len(input) and dim:
            return input._with(input._values.clone())
        place = _wrapped(input, dim)
        if place == 0:
            told = "Cannot apply softmax across nested dimension 0" if input._layout is wisp.strided else ""
            raise RuntimeError(told or "softmax(): not supported when reducing across the batch dimension for NestedTensor")
        if input._ragged is None or place == input._ragged:
            return input._again([function(part, place - 1, dtype=dtype) for part in input._parts()])
        return input._with(function(input._values, place - 1, dtype=dtype))

    return softmax


for _name in ("softmax", "log_softmax"):
    RULES[_name] = _softmax(_name)


@rule("bmm")
def bmm(input, mat2):
    for place, operand in enumerate((input, mat2), 1):
        if operand.dim() != 3:
            raise RuntimeError(f"batch{place} must be a 3D tensor, got {operand.dim()} dimensions")
    parts = zip(*(operand._parts() if _nested(operand) else operand for operand in (input, mat2)))
    for i, (a, b) in enumerate(parts if len(input) == len(mat2) else ()):
        if a.shape[1] != b.shape[0]:
            told = f"({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})"
            raise RuntimeError(f"{i}-th nested matrices in batch cannot be multiplied {told}")
    if len(input) != len(mat2):
        raise RuntimeError(f"Expected size for the 1st dimension of batch2 tensor to be: {len(input)} but got: {len(mat2)}.")
    return matmul(input, mat2)


@rule("matmul", "mm", "__matmul__", "__rmatmul__")
def matmul(input, other):
    if _nested(input) and _nested(other) and input._layout is wisp.strided and min(input.dim(), other.dim()) < 3:
        at, rank = ("1st", input.dim()) if input.dim() < 3 else ("2nd", other.dim())
        raise RuntimeError(f"matmul: For nested tensors, only inputs with >= 3 dims are currently supported. {at} input has rank: {rank}")
    if _nested(input) and not _nested(other) and other.dim() == 2 and input._ragged not in (None, input.dim() - 1):
        return input._with(input._values @ other)
    nested = input if _nested(input) else other
    if not (_nested(input) and _nested(other)) and min(input.dim(), other.dim()) < 2:
        told = "nested self and non-nested other" if _nested(input) else "non-nested self and nested other"
        raise RuntimeError(f"Expected both to be nested, but got a {told} of {input.dim()} and {other.dim()} dimensions")

    def parts(operand):
        if _nested(operand):
            return operand._parts()
        return operand.unbind(0) if operand.dim() == nested.dim() else [operand] * len(nested)

    one, two = parts(input), parts(other)
    if len(one) != len(two):
        raise RuntimeError(f"matmul: Expected size for the 1st dimension of 2nd input tensor to be: {len(one)} but got: {len(two)}.")
    if nested._layout is wisp.strided:
        for a, b in zip(one, two):
            if a.shape[:-2] != b.shape[:-2] and _nested(input) and _nested(other):
                raise RuntimeError(
                    f"matmul: For nested tensors, batch dimensions must have the same sizes, got {list(a.shape)} and {list(b.shape)}"
                )
            if a.shape[-1] != b.shape[-2]:
                raise RuntimeError(f"matmul: Nested tensors cannot be matrix multiplied: parts of {list(a.shape)} and {list(b.shape)}")
    results = [a @ b for a, b in zip(one, two)]
    rows_differ = _nested(input) and input._ragged == input.dim() - 2
    if len({tuple(part.shape) for part in results}) == 1 and nested._layout is wisp.jagged and not rows_differ:
        return wisp.stack(results)  # what was ragged is summed over
    return nested._again(results)


@rule("scaled_dot_product_attention")
def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if attn_mask is not None:
        raise RuntimeError(
            "scaled_dot_product_attention: Nested tensors for query / key are not supported when an explicit attn_mask is set: each part "
            "attends to itself alone"
        )
    if is_causal and query._layout is wisp.strided:
        raise RuntimeError(
            "scaled_dot_product_attention: Nested tensors for query / key are not supported when is_causal=True; use layout=torch.jagged"
        )
    parts = zip(*(part._parts() for part in (query, key, value)))
    made = [
        F.scaled_dot_product_attention(q[None], k[None], v[None], None, dropout_p, is_causal, scale, enable_gqa)[0] for q, k, v in parts
    ]
    if query._ragged is None or not made:
        return query._again(made)
    # as the queries are: parts of one length would not tell which dimension is ragged
    values = wisp.cat(made, query._ragged - 1)
    return _make(values, [tuple(part.shape) for part in made], query._ragged, query._layout, query._offsets)


# ---- reductions
def _reduction(name):
    operator = wisp.linalg.vector_norm if name == "vector_norm" else getattr(wisp, name)

    def reduce(input, dim=None, keepdim=False, **kwargs):
        if dim is None or dim == () or dim == []:
            return operator(input._values, **kwargs)
        if input._layout is wisp.strided and dim in (0, [0], (0,)):
            raise RuntimeError(f"NestedTensor can only be reduced across the last dimension, got dim 0 for {name}() of {input.dim()}")
        dims = sorted({_wrapped(input, d) for d in ([dim] if isinstance(dim, int) else dim)})
        if input._layout is wisp.strided and len(dims) > 1 and 0 in dims:
            raise RuntimeError(f"NestedTensor only allows reduction of a single dimension with the strided layout, got {dims} for {name}()")
        if input._ragged is None:
            if 0 in dims:
                raise RuntimeError(f"{name}(): reducing along the batch dimension is not supported for parts that differ in several sizes")
            return input._again([operator(part, dim=[d - 1 for d in dims], keepdim=keepdim, **kwargs) for part in input._parts()])
        if 0 in dims and input._ragged not in dims:
            raise RuntimeError(
                f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested tensors"
            )
        if 0 in dims:
            result = operator(input._values, dim=[d - 1 for d in dims if d], keepdim=keepdim, **kwargs)
            return result.unsqueeze(0) if keepdim else result
        if input._ragged not in dims:
            kept = 0 if keepdim else sum(d < input._ragged for d in dims)
            values = operator(input._values, dim=[d - 1 for d in dims], keepdim=keepdim, **kwargs)
            shapes = [(*values.shape[: input._ragged - 1 - kept], n, *values.shape[input._ragged - kept :]) for n in input._part_lengths()]
            return _make(values, shapes, input._ragged - kept, input._layout, input._offsets)
        if name in ("sum", "mean") and len(dims) == 1:
            return _segment_sum(input, name, keepdim, **kwargs)
        return wisp.stack([operator(part, dim=[d - 1 for d in dims], keepdim=keepdim, **kwargs) for part in input._parts()])

    order = {"var": ("dim", "unbiased", "keepdim"), "std": ("dim", "unbiased", "keepdim"), "norm": ("p", "dim", "keepdim")}
    order["vector_norm"] = ("ord", "dim", "keepdim")
    names = order.get(name, ("dim", "keepdim"))

    def call(input, *args, **kwargs):
        if name in ("var", "std") and args and isinstance(args[0], bool):
            return reduce(input, unbiased=args[0], **kwargs)
        return reduce(input, **dict(zip(names, args)), **kwargs)

    return call


def _segment_sum(input, name, keepdim, dtype=None):
    values = input._values if dtype is None else input._values.to(dtype)
    if not values.is_floating_point() and not values.is_complex():
        if name == "mean":
            raise RuntimeError(
                f"mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {values.dtype}"
            )
        values = values.long()
    values = values.movedim(input._ragged - 1, 0)
    result = values.new_zeros((len(input), *values.shape[1:])).index_add(0, input._segments(), values)
    if name == "mean":
        result = result / input._offsets.diff().reshape(-1, *[1] * (result.dim() - 1)).to(result.dtype)
    return result.unsqueeze(input._ragged) if keepdim else result


for _name in ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "any", "all", "norm", "vector_norm"):
    RULES[_name] = _reduction(_name)


def _by_part(name):
    operator = getattr(wisp, name)

    def reduce(input, dim=None, keepdim=False, **kwargs):
        if name in ("max", "min") and isinstance(dim, _core.Tensor):  # of two tensors, by element
            larger = getattr(wisp, name + "imum")
            return _on_values(larger, larger.__name__, (input, dim), kwargs)
        if dim is None:
            return operator(input._values)
        place = _wrapped(input, dim)
        if place == 0:
            raise RuntimeError(f"{name}(): reducing along the batch dimension is not supported for nested tensors")
        results = [operator(part, place - 1, keepdim=keepdim, **kwargs) for part in input._parts()]
        join = wisp.stack if place == input._ragged else input._again
        if isinstance(results[0], tuple):
            return type(results[0])([join(column) for column in zip(*results)])
        return join(results)

    return reduce


for _name in ("max", "min", "argmax", "argmin", "prod"):
    RULES[_name] = _by_part(_name)


def _along(name):
    def along(input, dim=-1, *args, **kwargs):
        place = _wrapped(input, dim)
        if place == 0:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on the batch dimension (dim=0)")
        return input._again([getattr(part, name)(place - 1, *args, **kwargs) for part in input._parts()])

    return along


for _name in ("cumsum", "cumprod", "argsort"):
    RULES[_name] = _along(_name)
