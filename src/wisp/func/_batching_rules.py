"""The rules by which operators work on a whole batch inside of vmap: see _batching.py.

A rule gets a Call, calls the operator on physical tensors (the batch is their first dimension) or composes other
operators, and returns the result as a sample; NotImplemented sends the call to the loop over samples.
"""

import wisp
from wisp import _core
from wisp.func._batching import (
    BY_FACT,
    RULES,
    Call,
    aligned,
    check_format,
    ints,
    is_batched,
    one_by_one,
    physical_of,
    refuse_dynamic,
    wrapped,
)

Tensor = wisp.Tensor


def _wrap_dim(dim, rank):
    low, high = -max(rank, 1), max(rank, 1) - 1
    if not low <= dim <= high:
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return dim % max(rank, 1)


def _pointwise(call):
    tensors = {k: v for k, v in call.arguments.items() if isinstance(v, Tensor)}
    rank = max(v.dim() for v in tensors.values())
    if len({v.dtype for v in tensors.values() if v.dtype != wisp.bool}) > 1 and any(v.dim() == 0 for v in tensors.values()):
        return NotImplemented  # a sample without dimensions is weak in promotion, a batch of them is not
    if call.inplace and call.input.dim() < rank:
        return NotImplemented
    return call(**{k: aligned(v, rank, call.level.number) for k, v in tensors.items()})


def _masked_fill(call):
    input, mask, value = (call.arguments[k] for k in (call.first, "mask", "value"))
    if isinstance(value, Tensor) and value.dim():
        raise RuntimeError(f"masked_fill only supports a 0-dimensional value tensor, but got tensor with {value.dim()} dimension(s).")
    if isinstance(value, Tensor) and value.is_complex() and not input.is_complex():
        raise RuntimeError(f"value cannot be converted to type {input.dtype} without overflow: it is complex")
    if not isinstance(value, Tensor) or not call.has(value):
        return _pointwise(call)
    return NotImplemented if call.inplace else _core.where(mask, value.to(input.dtype), input)


_OF_MATRICES = set("cholesky cholesky_inverse det inverse logdet matrix_exp pinverse qr slogdet svd tril triu".split())


def _check_matrix(call):
    """Samples that are no matrices, though their batch is one."""
    if call.input.dim() < 2 and call.name not in _OF_VECTORS:
        raise RuntimeError(
            f"{call.name}: The input tensor A must have at least 2 dimensions, got a sample of shape {tuple(call.input.shape)}"
        )


_OF_VECTORS = {"linalg.cross", "linalg.norm", "linalg.vector_norm", "linalg.vecdot", "linalg.vander", "linalg.diagonal"}


def _unary(call):
    """Works on the last dimensions, or on each element."""
    if call.input.dim() < 2 and (call.name.startswith("linalg.") or call.name in _OF_MATRICES):
        _check_matrix(call)
        return NotImplemented
    return call(**{call.first: call.physical(call.input)})


def _takes_many_dims(op):
    return any("int[]? dim" in signature or "int[] dim" in signature for signature in op._signatures)


def _reduction(call):
    x, short = call.input, call.name.rsplit(".", 1)[-1]
    if isinstance(call.arguments.get("other"), Tensor):
        return _pointwise(call)
    if not call.has(x):
        return NotImplemented
    physical, rank, dim, many = x._physical, x.dim(), call.arguments.get("dim"), _takes_many_dims(call.op)
    if rank == 0:
        if call.arguments.get("keepdim") or (dim is not None and not many):
            return NotImplemented
        physical, rank, dim = physical.unsqueeze(1), 1, None
    if dim is None or dim in ((), []):
        if many:
            return call(**{call.first: physical, "dim": tuple(range(1, rank + 1))})
        if call.arguments.get("keepdim") or short in ("median", "nanmedian", "aminmax"):
            return NotImplemented
        flat = physical.flatten(1)
        if short in ("max", "min"):
            return wrapped(_core.amax(flat, 1) if short == "max" else _core.amin(flat, 1), call.level.number)
        return call(**{call.first: flat, "dim": 1})
    shifted = tuple(_wrap_dim(d, rank) + 1 for d in ints(dim))
    return call(**{call.first: physical, "dim": shifted[0] if isinstance(dim, int) else shifted})


def _along(*names, extra=0, others=()):
    """Dimensions are those of a sample: shift them. `others`: further tensors, which get the batch too."""

    def rule(call):
        x = call.input
        if x.dim() == 0 and not extra:
            return NotImplemented
        changes = {call.first: call.physical(x)}
        for name in others:
            if isinstance(call.arguments.get(name), Tensor):
                changes[name] = call.physical(call.arguments[name])
        for name in names:
            dims = call.arguments.get(name)
            if dims is None or dims in ((), []):
                return NotImplemented
            shifted = tuple(_wrap_dim(d, x.dim() + extra) + 1 for d in ints(dims))
            changes[name] = shifted[0] if isinstance(dims, int) else shifted
        return call(**changes)

    return rule


_DIMENSIONS = ("dim", "dims", "dim0", "dim1", "dim2", "axis0", "axis1", "source", "destination")


def _along_dims(call):
    """Along whatever the operator calls its dimensions."""
    return _along(*(name for name in call.arguments if name in _DIMENSIONS))(call)


def _softmax(call):
    if call.arguments.get("dim") is None or call.input.dim() == 0:
        return NotImplemented
    return _along("dim")(call)


def _sized(name):
    """view and relatives: the sizes are those of a sample."""

    def rule(call):
        size = call.arguments.get(name)
        if size is None:  # view(dtype)
            return _unary(call) if call.input.dim() else NotImplemented
        physical, rank = call.physical(call.input), call.input.dim()
        size = ints(size)
        short = call.name.rsplit(".", 1)[-1]
        if short in ("expand", "broadcast_to", "repeat", "tile"):
            if len(size) < rank and short == "tile":
                size = (1,) * (rank - len(size)) + size
            if len(size) < rank:
                return NotImplemented
            physical = physical.reshape(call.level.size, *[1] * (len(size) - rank), *call.input.shape)
        first = 1 if short in ("repeat", "tile") else call.level.size
        return call(**{call.first: physical, name: (first, *size)})

    return rule


def _like(call):
    """view_as, expand_as, reshape_as: the other tensor is there for its shape."""
    name = call.name.rsplit(".", 1)[-1][:-3]
    return getattr(call.input, name)(tuple(call.arguments["other"].shape))


def _permute(call):
    rank = call.input.dim()
    dims = ints(call.arguments["dims"])
    if len(dims) != rank:
        return NotImplemented
    return call(**{call.first: call.physical(call.input), "dims": (0, *[_wrap_dim(d, rank) + 1 for d in dims])})


def _squeeze(call):
    dims, shape = call.arguments.get("dim"), call.input.shape
    if not shape and dims is not None and any(d not in (0, -1) for d in ints(dims)):
        raise RuntimeError(f"Dimension out of range (expected to be in range of [-1, 0], but got {dims})")
    dims = range(len(shape)) if dims is None else [_wrap_dim(d, len(shape)) for d in ints(dims)]
    chosen = tuple(d + 1 for d in dims if d < len(shape) and shape[d] == 1)
    physical = call.physical(call.input)
    return wrapped(physical.squeeze(chosen) if chosen else physical.view_as(physical), call.level.number)


def _flatten(call):
    if call.input.dim() == 0:
        return call.input.unsqueeze(0)
    return _along("start_dim", "end_dim")(call)


def _ravel(call):
    return call.input.flatten()


def _transposed(call):
    x = call.input
    if x.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.dim()}D")
    return x.transpose(0, 1) if x.dim() == 2 else x.view_as(x)


def _adjoint(call):
    return call.input.transpose(-2, -1).conj()


def _joined(call):
    tensors, level = call.arguments["tensors"], call.level
    rank = tensors[0].dim()
    if any(t.dim() != rank for t in tensors) or (rank == 0 and not call.name.endswith("stack")):
        return NotImplemented
    dim = _wrap_dim(call.arguments["dim"], rank + call.name.endswith("stack")) + 1
    return call(tensors=[physical_of(t, level) for t in tensors], dim=dim)


_OPERANDS = {"mm": (2, 2), "bmm": (3, 3), "mv": (2, 1), "dot": (1, 1)}


def _matmul(call):
    names = list(call.arguments)
    a, b = call.arguments[names[0]], call.arguments[names[1]]
    wanted = _OPERANDS.get(call.name.rsplit(".", 1)[-1])  # physical tensors would fit where samples do not
    if wanted is not None and ((a.dim(), b.dim()) != wanted or wanted == (1, 1) and a.shape != b.shape):
        raise RuntimeError(
            f"{call.name}: Shape mismatch: expected tensors of {wanted[0]} and {wanted[1]} dimensions that fit, got samples of shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )
    if not a.dim() or not b.dim():
        return NotImplemented
    level, number = call.level, call.level.number
    if not is_batched(b, number) and b.dim() <= 2 and not (a.dim() == 1 and b.dim() == 1):
        return wrapped(wisp.matmul(a._physical, b), number)
    if a.dim() == 1 and b.dim() == 1:
        return (a * b).sum()
    rank = max(a.dim(), b.dim(), 2)
    left, right = physical_of(a, level) if a.dim() < 2 else a, physical_of(b, level) if b.dim() < 2 else b
    if a.dim() == 1:
        left = wrapped(left.unsqueeze(-2), number)
    if b.dim() == 1:
        right = wrapped(right.unsqueeze(-1), number)
    result = wisp.matmul(aligned(left, rank, number), aligned(right, rank, number))
    if a.dim() == 1:
        result = result.squeeze(-2)
    if b.dim() == 1:
        result = result.squeeze(-1)
    return wrapped(result, number)


def _linear(call):
    x, weight, bias = (call.arguments[k] for k in ("input", "weight", "bias"))
    if not call.has(weight) and (bias is None or not call.has(bias)):
        return call(input=call.physical(x))
    if weight.dim() != 2:
        return NotImplemented
    result = wisp.matmul(x, weight.transpose(-2, -1))
    return result if bias is None else result + bias


def _plus_product(call):
    """addmm, addmv, baddbmm."""
    input, a, b = list(call.arguments.values())[:3]
    beta, alpha = call.arguments["beta"], call.arguments["alpha"]
    product = wisp.matmul(a, b)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return (input if beta == 1 else input * beta) + product


def _outer(call):
    a, b = list(call.arguments.values())[:2]
    return a.unsqueeze(-1) * b.unsqueeze(-2)


def _einsum(call):
    equation, operands = call.arguments["equation"].replace(" ", ""), call.arguments["operands"]
    letter = next((c for c in "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in equation), None)
    if letter is None or "->" not in equation:
        return NotImplemented
    terms, result = equation.split("->")
    terms = [letter + term if call.has(t) else term for term, t in zip(terms.split(","), operands)]
    return call(equation=",".join(terms) + "->" + letter + result, operands=[t._physical if call.has(t) else t for t in operands])


def _image(spatial):
    """Samples of shape [C, ...] are a batch of images; of shape [N, C, ...] they are N times as many."""

    def rule(call):
        x = call.input
        rank = x.dim()
        k = spatial if spatial is not None else max(rank - 2, 1)
        physical = call.physical(x)
        if spatial is not None and rank == k + 1:
            return call(**{call.first: physical})
        result = call(**{call.first: physical.flatten(0, 1)})
        if result is NotImplemented:
            return result

        def split(part):
            return wrapped(part._physical.unflatten(0, (call.level.size, x.shape[0])), call.level.number)

        return split(result) if isinstance(result, Tensor) else type(result)([split(part) for part in result])

    return rule


def _convolution(spatial, transposed=False):
    def rule(call):
        x, weight, bias = (call.arguments[k] for k in ("input", "weight", "bias"))
        size, number = call.level.size, call.level.number
        if not call.has(weight) and (bias is None or not call.has(bias)):
            return _image(spatial)(call)
        if x.dim() == spatial + 1:
            return rule_of(call, x.unsqueeze(0), weight, bias, size, number).squeeze(0)
        return rule_of(call, x, weight, bias, size, number)

    def rule_of(call, x, weight, bias, size, number):
        channels = weight.shape[1] * call.arguments["groups"] if transposed else weight.shape[0]
        if bias is not None and tuple(bias.shape) != (channels,):  # it would broadcast
            raise RuntimeError(f"{call.name}: expected bias to be of shape [{channels}], got {list(bias.shape)}")
        if bias is not None and bias.dtype != x.dtype:
            raise RuntimeError(f"Input type ({x.dtype}) and bias type ({bias.dtype}) should be the same")
        # every sample has its own weights: they are groups of one convolution
        p = call.physical(x)
        images = p.transpose(0, 1).flatten(1, 2)
        weights = call.physical(weight).flatten(0, 1)
        groups = call.arguments["groups"] * size
        result = call(input=images, weight=weights, bias=None, groups=groups)
        y = result._physical.unflatten(1, (size, -1)).transpose(0, 1)
        y = wrapped(y, number)
        return y if bias is None else y + bias.reshape(-1, *[1] * spatial)

    return rule


def _layer_norm(call):
    x, weight, bias = call.input, call.arguments.get("weight"), call.arguments.get("bias")
    changes = {"input": call.physical(x), "weight": None}
    if "bias" in call.arguments:
        changes["bias"] = None
    if not any(t is not None and call.has(t) for t in (weight, bias)):
        return call(input=changes["input"])
    y = call(**changes)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _group_norm(call):
    x, weight, bias = call.input, call.arguments["weight"], call.arguments["bias"]
    if not any(t is not None and call.has(t) for t in (weight, bias)):
        return _image(None)(call)
    changed = Call(call.op, call.name, False, {**call.arguments, "weight": None, "bias": None}, call.level)
    y, shape = _image(None)(changed), [-1] + [1] * (x.dim() - 2)
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _batch_norm(call):
    x, mean, var = call.input, call.arguments["running_mean"], call.arguments["running_var"]
    if call.arguments["training"] and mean is not None and call.has(x) and not (call.has(mean) and call.has(var)):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
            "updated in place, were not batched. If you are using modules, call eval(), or use "
            "wisp.func.replace_all_batch_norm_modules_(model)."
        )
    shape = [1, -1] + [1] * (x.dim() - 2)
    if x.dim() < 2:
        return NotImplemented
    if call.arguments["training"]:
        running, momentum, count = (mean, var), call.arguments["momentum"], x.numel() // max(x.shape[1], 1)
        if mean is not None and count < 2:
            return NotImplemented
        var, mean = wisp.var_mean(x, [0, *range(2, x.dim())], correction=0)
        for kept, seen in zip(running, (mean, var * (count / max(count - 1, 1)))):
            if kept is not None:
                kept.mul_(1 - momentum).add_(seen.detach().to(kept.dtype) * momentum)
    y = (x - mean.reshape(shape)) * (var + call.arguments["eps"]).rsqrt().reshape(shape)
    weight, bias = call.arguments["weight"], call.arguments["bias"]
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _embedding(call):
    weight, indices = call.arguments["weight"], call.arguments["indices"]
    if call.arguments["scale_grad_by_freq"] or call.arguments["sparse"]:
        return NotImplemented
    if not call.has(weight):
        return call(indices=call.physical(indices))
    rows, size = weight.shape[0], call.level.size
    if call.arguments["padding_idx"] >= 0:
        return NotImplemented
    offsets = wisp.arange(size, device=indices.device).reshape(size, *[1] * indices.dim()) * rows
    return call(weight=weight._physical.flatten(0, 1), indices=call.physical(indices) + offsets)


def _reduced(loss, reduction):
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction; expected 'none', 'mean' or 'sum'")
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _elementwise_loss(call):
    arguments = {**call.arguments, "reduction": "none"}
    if arguments.get("size_average") is not None or arguments.get("reduce") is not None:
        return NotImplemented
    arguments["input"], arguments["target"] = (wrapped(call.physical(arguments[k]), call.level.number) for k in ("input", "target"))
    loss = _pointwise(Call(call.op, call.name, False, arguments, call.level))
    return loss if loss is NotImplemented else _reduced(loss, call.arguments["reduction"])


def _class_loss(call):
    x, target = call.input, call.arguments["target"]
    a = call.arguments
    if (
        a["weight"] is not None
        or a["size_average"] is not None
        or a["reduce"] is not None
        or a.get("label_smoothing")
        or target.is_floating_point()
        or x.dim() == 0
        or target.dim() != x.dim() - 1
    ):
        return NotImplemented
    dim = 0 if x.dim() == 1 else 1
    scores = wisp.log_softmax(x, dim) if call.name.endswith("cross_entropy") else x
    kept = target != a["ignore_index"]
    picked = scores.gather(dim, wisp.where(kept, target, 0).unsqueeze(dim)).squeeze(dim)
    loss = wisp.where(kept, -picked, 0.0)
    if a["reduction"] == "mean":
        return loss.sum() / kept.sum()
    return _reduced(loss, a["reduction"])


def _attention(call):
    a = call.arguments
    names = [n for n in ("query", "key", "value") if isinstance(a[n], Tensor)]
    rank = a["query"].dim()
    if a["dropout_p"] or a["enable_gqa"] or any(a[n].dim() != rank for n in names) or rank < 3:
        return NotImplemented
    if a["attn_mask"] is not None and a["is_causal"]:  # only some samples may have both
        return NotImplemented
    changes = {n: call.physical(a[n]) for n in names}
    if a["attn_mask"] is not None:
        changes["attn_mask"] = aligned(a["attn_mask"], rank, call.level.number)
    return call(**changes)


def _new(call):
    return call(**{call.first: call.physical(call.input), "size": (call.level.size, *ints(call.arguments["size"]))})


def _new_strided(call):
    size, stride = ints(call.arguments["size"]), ints(call.arguments["stride"])
    step = 1 + sum((n - 1) * s for n, s in zip(size, stride)) if all(size) else 0  # each sample has the memory that it needs
    return call(**{call.first: call.physical(call.input), "size": (call.level.size, *size), "stride": (step, *stride)})


def _strided(call):
    """as_strided of a sample; its offset is that of the first one."""
    size, stride = ints(call.arguments["size"]), ints(call.arguments["stride"])
    if len(size) != len(stride):
        raise RuntimeError(f"as_strided: size and stride must have the same length, got {size} and {stride}")
    physical = call.physical(call.input)
    first, sample = physical.storage_offset(), call.input
    begin = call.arguments.get("storage_offset")
    begin = first if begin is None else begin
    end, last = (
        start + sum((n - 1) * s for n, s in zip(*lengths))
        for start, lengths in ((begin, (size, stride)), (first, (sample.shape, sample.stride())))
    )
    if all(size) and (begin < first or end > last or not sample.numel()):
        raise RuntimeError(
            f"as_strided: with size {size}, stride {stride} and offset {begin} the result reaches beyond the memory of its sample, to "
            "that of others. This is not supported inside of vmap; use other views"
        )
    return call(**{call.first: physical, "size": (call.level.size, *size), "stride": (physical.stride(0), *stride)})


def _unfold(call):
    if call.input.dim():
        return _along("dimension")(call)
    if call.arguments["size"] != 1 or call.arguments["dimension"] not in (0, -1):
        return NotImplemented
    return call(**{call.first: call.physical(call.input), "dimension": 0})


def _contiguous(call):
    check_format(call.arguments.get("memory_format") or wisp.contiguous_format)
    return call.input if Tensor.is_contiguous(call.input) else _unary(call)


def _swapped(call):
    first, second = (v for k, v in call.arguments.items() if k != call.first)
    return call.input if not call.input.dim() and {first, second} <= {0, -1} else _along_dims(call)


def _clone(call):
    if call.arguments.get("memory_format") not in (None, wisp.preserve_format, wisp.contiguous_format):
        raise RuntimeError(
            "NYI: Tensor.clone(memory_format) inside vmap is only supported with memory_format torch.preserve_format or "
            f"torch.contiguous_format, got {call.arguments['memory_format']}"
        )
    return _unary(call)


def _view_as_complex(call):
    if call.input.dim() == 0:
        raise RuntimeError("view_as_complex: Input tensor must have one or more dimensions, got a sample without any")
    return _unary(call)


def _dynamic(call):
    refuse_dynamic(call.name.rsplit(".", 1)[-1])


def _masked_select(call):
    return _dynamic(call) if call.has(call.arguments["mask"]) else NotImplemented  # one mask for all chooses as many of each


def _one_hot(call):
    if call.arguments["num_classes"] < 0:
        raise RuntimeError("When vmap-ing torch.nn.functional.one_hot, please provide an explicit positive num_classes argument.")
    return _unary(call)


def _where(call):
    return _dynamic(call) if len(call.arguments) == 1 else _pointwise(call)


def _equal(call):
    raise RuntimeError("vmap: Batching rule not implemented for aten::equal: its result is one Python bool; compare with == and all()")


def _solve(call):
    _check_matrix(call)
    return _all_batched(call)


def _all_batched(call):
    """Every tensor gets the batch."""
    return call(**{k: call.physical(v) for k, v in call.arguments.items() if isinstance(v, Tensor)})


def _make_dual(call):
    result = _all_batched(call)
    result._is_primal_of_all = not call.has(call.arguments["primal"])
    return result


def _gradients(call):
    """autograd.grad: samples are independent, so one backward pass gives the gradients of all of them."""
    a, level = call.arguments, call.level
    outputs, given, inputs = a["outputs"], a["grad_outputs"], a["inputs"]
    if not all(call.has(t) for t in inputs) or not all(call.has(t) for t in outputs):
        if any(call.has(t) for t in (*outputs, *inputs)):
            raise RuntimeError(
                "vmap: the gradient of a tensor that is mapped over with respect to one that is not (or the "
                "other way round) inside of vmap; use wisp.func.grad or wisp.func.vjp in the mapped function"
            )
        if any(g is None for g in given):
            call.arguments = {**a, "retain_graph": True}
            return one_by_one(call)
        starts = [physical_of(g, level) for g in given]  # of one graph, a batch of gradients
        found = _core._grad_of_batch(**{**a, "grad_outputs": starts})
        return tuple(None if g is None else wrapped(g, level.number) for g in found)
    starts = [wisp.ones_like(o._physical) if g is None else physical_of(g, level) for o, g in zip(outputs, given)]
    return call(outputs=[t._physical for t in outputs], grad_outputs=starts, inputs=[t._physical for t in inputs])


def _gradients_of_batch(call):
    """The same for a batch of gradients inside of the samples: its dimension goes in front of theirs."""
    a, level = call.arguments, call.level
    outputs, inputs = a["outputs"], a["inputs"]
    if not all(call.has(t) for t in (*outputs, *inputs)):
        return _gradients(call)
    starts = [physical_of(g, level).transpose(0, 1) for g in a["grad_outputs"]]
    made = call.op(**{**a, "outputs": [t._physical for t in outputs], "grad_outputs": starts, "inputs": [t._physical for t in inputs]})
    return tuple(None if g is None else wrapped(g.transpose(0, 1), level.number) for g in made)


def _by_index(call):
    """index_select and relatives: the same index for all samples."""
    return NotImplemented if call.has(call.arguments["index"]) else _along("dim", others=("source",))(call)


def _rules(rule, names):
    for name in names.split():
        RULES[name] = rule


BY_FACT.update(elementwise=_pointwise, takes_batches=_unary, reduces=_reduction, along_dim=_along_dims)
_rules(_unary, "to fill")  # their second tensor is no operand
_rules(_masked_fill, "masked_fill")
_rules(_softmax, "softmax log_softmax softmin")
_rules(_along("dim", extra=1), "unsqueeze")
_rules(_along("dim1", "dim2", extra=1), "diag_embed")
_rules(_along("dim", others=("index", "src")), "gather scatter scatter_add scatter_reduce")
_rules(_by_index, "index_select index_add index_copy index_fill")
_rules(_sized("size"), "view expand broadcast_to")
_rules(_sized("shape"), "reshape")
_rules(_sized("repeats"), "repeat")
_rules(_sized("dims"), "tile")
_rules(_like, "view_as expand_as reshape_as")
_rules(_permute, "permute")
_rules(_squeeze, "squeeze")
_rules(_flatten, "flatten")
_rules(_ravel, "ravel")
_rules(_transposed, "t")
_rules(_swapped, "transpose swapaxes swapdims")
_rules(_contiguous, "contiguous")
_rules(_adjoint, "adjoint")
_rules(_joined, "cat stack")
_rules(_matmul, "matmul mm bmm mv dot linalg.matmul")
_rules(_linear, "linear")
_rules(_plus_product, "addmm addmv baddbmm")
_rules(_outer, "outer ger")
_rules(_einsum, "_einsum")
for _k in (1, 2, 3):
    _rules(_convolution(_k), f"conv{_k}d")
    _rules(_convolution(_k, transposed=True), f"conv_transpose{_k}d")
    _rules(
        _image(_k),
        f"avg_pool{_k}d max_pool{_k}d max_pool{_k}d_with_indices adaptive_avg_pool{_k}d "
        f"adaptive_max_pool{_k}d adaptive_max_pool{_k}d_with_indices lp_pool{_k}d",
    )
_rules(_image(None), "interpolate upsample")
_rules(lambda call: _unary(call) if call.arguments["mode"] == "constant" else _image(None)(call), "pad")
_rules(_layer_norm, "layer_norm rms_norm")
_rules(_group_norm, "group_norm")
_rules(_batch_norm, "batch_norm")
_rules(_embedding, "embedding")
_rules(_elementwise_loss, "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits")
_rules(_class_loss, "cross_entropy nll_loss")
_rules(_attention, "scaled_dot_product_attention")
_rules(_new, "new_zeros new_ones new_empty new_full")
_rules(_make_dual, "_make_dual")
_rules(_solve, "linalg.solve")
_rules(_new_strided, "new_empty_strided")
_rules(_strided, "as_strided")
_rules(_unfold, "unfold")
_rules(_clone, "clone")
_rules(_view_as_complex, "view_as_complex")
_rules(_along("dim", others=("prepend", "append")), "diff")
_rules(_masked_select, "masked_select")
_rules(_dynamic, "nonzero unique unique_consecutive")
_rules(_where, "where")
_rules(_one_hot, "one_hot")
_rules(_equal, "equal")
_rules(_gradients, "_grad")
_rules(_gradients_of_batch, "_grad_of_batch")
