"""Translations of the operators that layers are made of: products, convolutions, norms, pooling, attention, recurrence."""

import math

import wisp
from wisp.onnx import _proto
from wisp.onnx._graph import fixed, sizes_of
from wisp.onnx._operators import rule
from wisp.onnx._trace import int_of
from wisp.onnx.errors import UnsupportedOperatorError


def _per_dim(value, count):
    return [value] * count if isinstance(value, int) else list(value) * (count // len(value))


# ---- products
@rule("linear")
def linear(g, input, weight, bias=None):
    if input.ndim == 2 and bias is not None:
        return g.op("Gemm", input, weight, bias, transB=1)
    product = g.op("MatMul", input, g.op("Transpose", weight, perm=[1, 0]))
    return product if bias is None else g.op("Add", product, bias)


@rule("matmul", "mm", "bmm", "mv", "dot", "__matmul__")
def matmul(g, input, other):
    return g.op("MatMul", input, other)


@rule("outer", "ger")
def outer(g, input, vec2):
    return g.op("Mul", g.op("Unsqueeze", input, g.ints([1])), vec2)


@rule("addmm", "baddbmm")
def addmm(g, input, mat1, mat2, *, beta=1, alpha=1):
    product = g.op("MatMul", mat1, mat2)
    product = product if alpha == 1 else g.op("Mul", product, g.number(alpha, mat1.dtype))
    return g.op("Add", input if beta == 1 else g.op("Mul", input, g.number(beta, mat1.dtype)), product)


@rule("einsum")
def einsum(g, equation, *operands):
    operands = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    return g.op("Einsum", *operands, equation=equation.replace(" ", ""))


@rule("embedding")
def embedding(g, input, weight, *unused, **ignored):
    return g.op("Gather", weight, input, axis=0)


# ---- convolution
@rule("conv1d", "conv2d", "conv3d")
def conv(g, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    count = weight.ndim - 2
    dilation, kernel, stride = _per_dim(dilation, count), sizes_of(weight)[2:], _per_dim(stride, count)
    if padding == "same":
        total = [(k - 1) * d for k, d in zip(kernel, dilation)]
        pads = [n // 2 for n in total] + [n - n // 2 for n in total]
    else:
        pads = [0] * 2 * count if padding == "valid" else _per_dim(padding, count) * 2
    settings = {"kernel_shape": kernel, "strides": stride, "pads": pads, "dilations": dilation, "group": groups}
    return _batched(g, input, count, lambda x: g.op("Conv", x, weight, bias, **settings))


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(g, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    count = weight.ndim - 2
    settings = {"kernel_shape": sizes_of(weight)[2:], "strides": _per_dim(stride, count), "group": groups}
    settings |= {"pads": _per_dim(padding, count) * 2, "output_padding": _per_dim(output_padding, count)}
    settings["dilations"] = _per_dim(dilation, count)
    return _batched(g, input, count, lambda x: g.op("ConvTranspose", x, weight, bias, **settings))


def _batched(g, input, count, translate):
    """Layers of ONNX want a batch."""
    if input.ndim == count + 2:
        return translate(input)
    return g.op("Squeeze", translate(g.op("Unsqueeze", input, g.ints([0]))), g.ints([0]))


# ---- norms
@rule("batch_norm")
def batch_norm(g, input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    if training or running_mean is None:
        raise UnsupportedOperatorError("onnx.export: batch_norm with the statistics of the batch has no translation; call model.eval()")
    count = running_mean.shape
    weight = wisp.ones(count, dtype=input.dtype) if weight is None else weight
    bias = wisp.zeros(count, dtype=input.dtype) if bias is None else bias
    return g.op("BatchNormalization", input, weight, bias, running_mean, running_var, epsilon=float(eps))


@rule("layer_norm")
def layer_norm(g, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    shape = [fixed(size, "the shape of layer_norm") for size in normalized_shape]
    weight = wisp.ones(shape, dtype=input.dtype) if weight is None else weight
    return g.op("LayerNormalization", input, weight, bias, axis=-len(shape), epsilon=float(eps))


@rule("rms_norm")
def rms_norm(g, input, normalized_shape, weight=None, eps=None):
    axes = list(range(-len(normalized_shape), 0))
    eps = wisp.finfo(input.dtype).eps if eps is None else eps
    mean = g.op("ReduceMean", g.op("Mul", input, input), g.ints(axes), keepdims=1)
    result = g.op("Div", input, g.op("Sqrt", g.op("Add", mean, g.number(eps, input.dtype))))
    return result if weight is None else g.op("Mul", result, weight)


@rule("group_norm")
def group_norm(g, input, num_groups, weight=None, bias=None, eps=1e-5):
    channels = fixed(input.shape[1], "the number of channels")
    ones, zeros = wisp.ones(num_groups, dtype=input.dtype), wisp.zeros(num_groups, dtype=input.dtype)
    grouped = g.op("Reshape", input, g.ints([0, num_groups, -1]))
    result = g.reshape(g.op("InstanceNormalization", grouped, ones, zeros, epsilon=float(eps)), input.shape)
    shape = [channels] + [1] * (input.ndim - 2)
    for part, kind in ((weight, "Mul"), (bias, "Add")):
        if part is not None:
            result = g.op(kind, result, g.reshape(part, shape))
    return result


@rule("instance_norm")
def instance_norm(g, input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    if not use_input_stats:
        return batch_norm(g, input, running_mean, running_var, weight, bias, eps=eps)
    return group_norm(g, input, fixed(input.shape[1], "the number of channels"), weight, bias, eps)


@rule("softmax", "log_softmax", "softmin")
def softmax(g, input, dim=None, *unused, **named):
    kind = "LogSoftmax" if g.call.name == "log_softmax" else "Softmax"
    wide = g.cast(input, g.result.dtype)
    if g.call.name == "softmin":
        wide = g.op("Neg", wide)
    if dim is None:
        dim = 0 if input.ndim in (0, 1, 3) else 1
    return g.op(kind, wide, axis=dim)


@rule("normalize")
def normalize(g, input, p=2.0, dim=1, eps=1e-12, out=None):
    if p not in (1, 2):
        raise UnsupportedOperatorError(f"onnx.export: normalize(p={p}) has no translation")
    length = g.op("ReduceL1" if p == 1 else "ReduceL2", input, g.ints([dim]), keepdims=1)
    return g.op("Div", input, g.op("Max", length, g.number(float(eps), input.dtype)))


# ---- pooling
@rule("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(g, input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    count = int(g.call.name[-2])
    if return_indices:
        raise UnsupportedOperatorError("onnx.export: max_pool with return_indices has no translation")
    return _pool(g, "MaxPool", input, count, kernel_size, stride, padding, ceil_mode, dilations=_per_dim(dilation, count))


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(g, input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    count = int(g.call.name[-2])
    if divisor_override is not None:
        raise UnsupportedOperatorError("onnx.export: avg_pool with divisor_override has no translation")
    return _pool(g, "AveragePool", input, count, kernel_size, stride, padding, ceil_mode, count_include_pad=int(count_include_pad))


def _pool(g, kind, input, count, kernel_size, stride, padding, ceil_mode, **more):
    kernel = _per_dim(kernel_size, count)
    strides = _per_dim(stride, count) if stride not in (None, ()) else kernel
    settings = {"kernel_shape": kernel, "strides": strides, "pads": _per_dim(padding, count) * 2, "ceil_mode": int(ceil_mode), **more}
    return _batched(g, input, count, lambda x: g.op(kind, x, **settings))


@rule(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"
)
def adaptive_pool(g, input, output_size, return_indices=False):
    count, maximum = int(g.call.name[-2]), "max" in g.call.name
    wanted = sizes_of(g.result)[-count:]
    if wanted == [1] * count and not return_indices:
        return _batched(g, input, count, lambda x: g.op("GlobalMaxPool" if maximum else "GlobalAveragePool", x))
    sizes = [fixed(size, "adaptive pooling to more than one place") for size in input.shape[-count:]]
    if return_indices or any(size % want for size, want in zip(sizes, wanted)):
        raise UnsupportedOperatorError(f"onnx.export: {g.call.name} from {sizes} to {wanted} has no translation: no multiples")
    kernel = [size // want for size, want in zip(sizes, wanted)]
    return _batched(g, input, count, lambda x: g.op("MaxPool" if maximum else "AveragePool", x, kernel_shape=kernel, strides=kernel))


# ---- pictures
@rule("pad")
def pad(g, input, pad, mode="constant", value=None):
    count = len(pad) // 2
    before, after = [0] * input.ndim, [0] * input.ndim
    for i in range(count):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    kind = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    if kind == "wrap":
        raise UnsupportedOperatorError("onnx.export: circular padding has no translation before opset 19")
    return g.op("Pad", input, g.ints(before + after), g.cast(value or 0, input.dtype) if kind == "constant" else None, mode=kind)


@rule("interpolate", "upsample")
def interpolate(g, input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None, antialias=False):
    if mode == "area":
        raise UnsupportedOperatorError("onnx.export: interpolate(mode='area') has no translation")
    if scale_factor is not None and not recompute_scale_factor:
        scales = [scale_factor] * (input.ndim - 2) if isinstance(scale_factor, (int, float)) else list(scale_factor)
        where = [None, wisp.tensor([1.0, 1.0, *map(float, scales)])]
    else:
        where = [None, None, g.ints(g.result.shape)]
    nearest = mode.startswith("nearest")
    corners = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    return g.op(
        "Resize",
        input,
        *where,
        coordinate_transformation_mode=corners,
        mode="nearest" if nearest else "cubic" if mode == "bicubic" else "linear",
        nearest_mode=("floor" if mode == "nearest" else "round_prefer_ceil") if nearest else None,
        cubic_coeff_a=-0.75 if mode == "bicubic" else None,
        antialias=int(antialias) or None,
    )


@rule("pixel_shuffle")
def pixel_shuffle(g, input, upscale_factor):
    return g.op("DepthToSpace", input, blocksize=upscale_factor, mode="CRD")


@rule("one_hot")
def one_hot(g, input, num_classes=-1):
    return g.op("OneHot", input, g.ints([g.result.shape[-1]]), wisp.tensor([0, 1]), axis=-1)


# ---- attention
@rule("scaled_dot_product_attention")
def attention(g, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    dtype = query.dtype
    scale = 1 / math.sqrt(int_of(query.shape[-1])) if scale is None else scale
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = int_of(query.shape[-3]) // int_of(key.shape[-3])
        key, value = (_repeated(g, part, times) for part in (key, value))
        key_dims = query.ndim
    else:
        key_dims = key.ndim
    order = [*range(key_dims - 2), key_dims - 1, key_dims - 2]
    scores = g.op("MatMul", g.op("Mul", query, g.number(scale, dtype)), g.op("Transpose", key, perm=order))
    if is_causal:
        shape = g.op("Shape", scores, start=-2)
        causal = g.op("Trilu", g.op("Expand", g.number(1, wisp.int64), shape), upper=0)
        scores = g.op("Where", g.op("Cast", causal, to=_proto.number_of(wisp.bool)), scores, g.number(-math.inf, dtype))
    if attn_mask is not None:
        if attn_mask.dtype == wisp.bool:
            scores = g.op("Where", attn_mask, scores, g.number(-math.inf, dtype))
        else:
            scores = g.op("Add", scores, g.cast(attn_mask, dtype))
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), value)


def _repeated(g, part, times):
    """The heads of keys or values, each `times` in a row."""
    heads = list(part.shape)
    spread = g.op("Expand", g.op("Unsqueeze", part, g.ints([-3])), g.ints([*heads[:-2], times, *heads[-2:]]))
    return g.reshape(spread, [*heads[:-3], heads[-3] * times, *heads[-2:]])


# ---- recurrence: one direction of one layer
_KINDS = (("RNN", 1, [0], ["Tanh"]), ("RNN", 1, [0], ["Relu"]), ("LSTM", 4, [0, 3, 1, 2], None), ("GRU", 3, [1, 0, 2], None))


@rule("_rnn_layer")
def recurrent(g, mode, reverse, x, batch_sizes, w_ih, w_hh, b_ih, b_hh, w_hr, h=None, c=None, *unused):
    if batch_sizes is not None or w_hr is not None:
        raise UnsupportedOperatorError("onnx.export: recurrent layers of packed sequences, or with projections, have no translation")
    kind, gates, order, activations = _KINDS[mode]

    def reordered(weight):
        parts = weight.tensor.detach().chunk(gates)
        return wisp.cat([parts[i] for i in order])

    weights = [reordered(w)[None] for w in (w_ih, w_hh)]
    bias = None if b_ih is None else wisp.cat([reordered(b_ih), reordered(b_hh)])[None]
    states = [g.op("Unsqueeze", state, g.ints([0])) for state in (h, c) if state is not None]
    results = g.op(
        kind,
        x,
        *weights,
        bias,
        None,
        *states,
        outputs=2 + (kind == "LSTM"),
        hidden_size=int_of(w_hh.shape[-1]),
        direction="reverse" if reverse else "forward",
        activations=activations,
        linear_before_reset=1 if kind == "GRU" else None,
    )
    output = g.reshape(results[0], g.result.shape)
    last = [g.op("Squeeze", part, g.ints([0])) for part in results[1:]]
    return [output, *last, *[None] * (len(g.call.results) - 1 - len(last))]
