"""Quantised tensors: integers with a scale and a zero point, for all of them or for each channel.

They keep the integers, can be reshaped, and give the numbers they stand for with `dequantize()`; arithmetic is done on those.
"""

import wisp
from wisp import _core
from wisp.utils._pytree import tree_flatten, tree_map

__all__ = "dequantize int_repr q_scale q_zero_point qscheme quantize_per_channel quantize_per_tensor".split()


class qscheme:
    """How integers stand for numbers: one of `wisp.per_tensor_affine` and its like."""

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


per_tensor_affine, per_channel_affine = qscheme("per_tensor_affine"), qscheme("per_channel_affine")
per_tensor_symmetric, per_channel_symmetric = qscheme("per_tensor_symmetric"), qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
_INTEGERS = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
_KEEP_SCALE = set("clone detach contiguous view reshape flatten squeeze unsqueeze permute transpose t __getitem__ select narrow".split())


# computed with the numbers; the result has the scale of the first input, which holds all of its numbers
_SAME_RANGE = set(
    """relu relu_ relu6 hardtanh hardtanh_ clamp clip max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d mean cat concat interpolate pad dropout
    upsample pixel_shuffle pixel_unshuffle channel_shuffle stack flip roll expand repeat unfold max min sort""".split()
)
_FIXED_RANGE = {
    "sigmoid": (1 / 256, 0),
    "sigmoid_": (1 / 256, 0),
    "tanh": (2 / 256, 128),
    "tanh_": (2 / 256, 128),
    "hardsigmoid": (1 / 256, 0),
}


class QuantizedTensor(_core.Tensor):
    """Integers that stand for `(integer - zero_point) * scale`. Make one with `wisp.quantize_per_tensor`."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name, kwargs = func.__name__, kwargs or {}
        with wisp.DisableTorchFunctionSubclass():
            if name in ("dequantize", "int_repr", "qscheme", "q_scale", "q_zero_point"):
                return getattr(args[0], name)()
            if name == "__get__":
                return getattr(args[0]._integers, func.__self__.__name__)
            if name in ("dim", "size", "numel", "stride", "is_contiguous", "element_size", "storage_offset", "__len__"):
                return func(args[0]._integers, *args[1:], **kwargs)
            if name in _KEEP_SCALE and args[0]._axis is None:
                return _make(func(args[0]._integers, *args[1:], **kwargs), *args[0]._law())
            if name in ("clone", "detach", "contiguous"):
                return _make(func(args[0]._integers, *args[1:], **kwargs), *args[0]._law())
            if name in _SAME_RANGE or name in _FIXED_RANGE:
                return _by_numbers(func, args, kwargs)
            if name == "equal":
                a, b = args
                same = isinstance(a, QuantizedTensor) and isinstance(b, QuantizedTensor) and a._dtype is b._dtype
                return same and wisp.equal(a._integers, b._integers) and wisp.equal(a.dequantize(), b.dequantize())
        raise NotImplementedError(f"{name}: not supported for quantised tensors; compute with x.dequantize(), and quantise the result")

    def __dlpack__(self, **options):
        raise BufferError("QUInt/QInt types are not supported by dlpack")

    def _law(self):
        return self._scale, self._zero_point, self._dtype, self._axis

    dtype = property(lambda self: self._dtype)
    shape = property(lambda self: self._integers.shape)
    device = property(lambda self: self._integers.device)
    is_quantized = property(lambda self: True)
    ndim = property(lambda self: self._integers.dim())

    def int_repr(self):
        """The integers."""
        return self._integers.clone()

    def qscheme(self):
        """Whether there is one scale, or one for each channel."""
        return per_tensor_affine if self._axis is None else per_channel_affine

    def _of_tensor(self, name):
        if self._axis is not None:
            raise RuntimeError(f"Expected quantizer->qscheme() == kPerTensorAffine to be true: {name} has a value for each channel here")

    def q_scale(self):
        """The scale of all numbers."""
        self._of_tensor("q_scale")
        return self._scale

    def q_zero_point(self):
        """The integer that stands for 0."""
        self._of_tensor("q_zero_point")
        return self._zero_point

    def q_per_channel_scales(self):
        """The scale of each channel."""
        return self._scale

    def q_per_channel_zero_points(self):
        """The integer of each channel that stands for 0."""
        return self._zero_point

    def q_per_channel_axis(self):
        """The dimension of the channels."""
        return self._axis

    def dequantize(self):
        """The numbers, in float32."""
        if self._axis is None:
            return (self._integers.to(wisp.float32) - self._zero_point) * self._scale
        shape = [-1 if dim == self._axis else 1 for dim in range(self.ndim)]
        shifted = self._integers.to(wisp.float32) - self._zero_point.reshape(shape).to(wisp.float32)
        return shifted * self._scale.reshape(shape).to(wisp.float32)

    def __hash__(self):
        return id(self)

    def __repr__(self, *, tensor_contents=None):
        law = f"scale={self._scale}, zero_point={self._zero_point}" + (f", axis={self._axis}" if self._axis is not None else "")
        return (
            f"{repr(self.dequantize())[:-1]}, size={tuple(self.shape)}, dtype={self._dtype}, quantization_scheme={self.qscheme()}, {law})"
        )


def _by_numbers(func, args, kwargs):
    (first, *_), tree = tree_flatten((args, kwargs))
    if not isinstance(first, QuantizedTensor) or first._axis is not None:
        raise NotImplementedError(f"{func.__name__}: takes quantised tensors with one scale for all; use x.dequantize()")
    args, kwargs = tree_map(lambda x: x.dequantize() if isinstance(x, QuantizedTensor) else x, (args, kwargs))
    name = func.__name__
    scale, zero_point = _FIXED_RANGE.get(name, (first._scale, first._zero_point))
    results = func(*args, **kwargs)
    return tree_map(
        lambda x: quantize_per_tensor(x, scale, zero_point, first._dtype) if isinstance(x, _core.Tensor) and x.is_floating_point() else x,
        results,
    )


def _make(integers, scale, zero_point, dtype, axis):
    shell = wisp.empty(integers.shape, dtype=integers.dtype, device="meta")
    self = _core.Tensor._make_subclass(QuantizedTensor, shell)
    self._integers, self._scale, self._zero_point, self._dtype, self._axis = integers, scale, zero_point, dtype, axis
    return self


def _kind(dtype):
    name = str(dtype).removeprefix("torch.")
    if name not in _INTEGERS:
        raise RuntimeError(f"quantize: dtype must be torch.qint8, torch.quint8 or torch.qint32, got {dtype}")
    return getattr(wisp, _INTEGERS[name])


def _rounded(input, scale, zero_point, kind):
    limits = wisp.iinfo(kind)
    scaled = input * (1.0 / wisp.as_tensor(scale, dtype=wisp.float32))  # by the inverse in float32, as PyTorch rounds
    return (scaled.to(wisp.float64).round() + zero_point).clamp(limits.min, limits.max).to(kind)


def quantize_per_tensor(input, scale, zero_point, dtype):
    """Integers for the numbers of a tensor, all with one scale and zero point.

    >>> import wisp
    >>> x = wisp.quantize_per_tensor(wisp.tensor([-1.0, 0.0, 1.04]), 0.1, 10, wisp.quint8)
    >>> x.int_repr(), x.dequantize()
    (tensor([ 0, 10, 20], dtype=torch.uint8), tensor([-1.,  0.,  1.]))
    """
    if isinstance(input, (list, tuple)):
        return [quantize_per_tensor(x, float(s), int(z), dtype) for x, s, z in zip(input, scale, zero_point)]
    if input.dtype is not wisp.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {input.dtype}")
    scale, zero_point, kind = float(scale), int(zero_point), _kind(dtype)
    limits = wisp.iinfo(kind)
    if not limits.min <= zero_point <= limits.max:
        raise RuntimeError(f"quantize_tensor_per_tensor_affine: zero_point {zero_point} is out of range for {dtype}")
    return _make(_rounded(input, scale, zero_point, kind), scale, zero_point, dtype, None)


def quantize_per_channel(input, scales, zero_points, axis, dtype):
    """Integers for the numbers of a tensor, with a scale and a zero point for each index of a dimension.

    >>> import wisp
    >>> x = wisp.quantize_per_channel(wisp.ones(2, 2), wisp.tensor([0.1, 0.01]), wisp.tensor([0, 5]), 0, wisp.qint8)
    >>> x.int_repr()
    tensor([[ 10,  10],
            [105, 105]], dtype=torch.int8)
    """
    if input.dtype is not wisp.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {input.dtype}")
    if scales.numel() != input.size(axis) or zero_points.numel() != input.size(axis):
        raise RuntimeError(
            f"quantize_per_channel: {scales.numel()} scales and {zero_points.numel()} zero points for {input.size(axis)} channels"
        )
    axis %= input.dim()
    shape, kind = [-1 if dim == axis else 1 for dim in range(input.dim())], _kind(dtype)
    integers = _rounded(input, scales.reshape(shape), zero_points.reshape(shape), kind)
    return _make(integers, scales.to(wisp.float64), zero_points.to(wisp.int64), dtype, axis)


def dequantize(tensor):
    """The numbers that quantised tensors stand for; other tensors in float32."""
    if isinstance(tensor, (list, tuple)):
        return [dequantize(one) for one in tensor]
    return tensor.dequantize() if isinstance(tensor, QuantizedTensor) else tensor.to(wisp.float32)


def _asked(name, text):
    def ask(input):
        if not isinstance(input, QuantizedTensor):
            raise NotImplementedError(f"Could not run 'aten::{name}' with a tensor that is not quantised; see torch.quantize_per_tensor")
        return getattr(input, name)()

    ask.__name__, ask.__doc__ = name, text
    return ask


int_repr = _asked("int_repr", "The integers of a quantised tensor.")
q_scale = _asked("q_scale", "The scale of a quantised tensor.")
q_zero_point = _asked("q_zero_point", "The integer that stands for 0 in a quantised tensor.")
