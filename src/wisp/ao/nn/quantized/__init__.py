"""Layers of quantized models. Their weights, inputs and results are 8-bit integers; what they compute in between is float32."""

import wisp
from wisp import nn
from wisp._tensor.quantized import QuantizedTensor, _make
from wisp.ao.nn.qat import _like

__all__ = ["Conv1d", "Conv2d", "Conv3d", "DeQuantize", "FloatFunctional", "Linear", "QFunctional", "Quantize"]


def _numbers(x, who):
    if not isinstance(x, QuantizedTensor):
        raise NotImplementedError(
            f"Could not run '{who}' with a tensor of {x.dtype}: it takes quantized tensors. Put a QuantStub before it and a DeQuantStub "
            "behind the quantized part of the model."
        )
    return x.dequantize()


class _Scaled(nn.Module):
    """A module whose results have a scale and a zero point."""

    def _set_scale(self, scale, zero_point):
        self.register_buffer("scale", wisp.as_tensor(float(scale)))
        self.register_buffer("zero_point", wisp.as_tensor(int(zero_point)))

    def _quantized(self, x):
        return wisp.quantize_per_tensor(x.float(), float(self.scale), int(self.zero_point), wisp.quint8)

    def _get_name(self):
        return "Quantized" + type(self).__name__.lstrip("_")

    def extra_repr(self):
        return f"scale={float(self.scale):g}, zero_point={int(self.zero_point)}"


class Quantize(_Scaled):
    """Makes quantized tensors of plain ones.

    >>> import wisp
    >>> wisp.ao.nn.quantized.Quantize(0.5, 2, wisp.quint8)(wisp.tensor([1.0])).int_repr()
    tensor([4], dtype=torch.uint8)
    """

    def __init__(self, scale, zero_point, dtype=None, factory_kwargs=None):
        super().__init__()
        self._set_scale(scale, zero_point)
        self.dtype = wisp.quint8 if dtype is None else dtype

    def forward(self, X):
        return wisp.quantize_per_tensor(X, float(self.scale), int(self.zero_point), self.dtype)

    def _get_name(self):
        return "Quantize"


class DeQuantize(nn.Module):
    """Makes plain tensors of quantized ones."""

    def forward(self, Xq):
        return Xq.dequantize()


class _Weighted(_Scaled):
    """A layer with a quantized weight."""

    _relu = False

    @classmethod
    def _of(cls, layer, weight, scale, zero_point):
        """From a plain layer and its weight as a quantized tensor."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        plain = _like(type(layer), layer)  # its settings; the parameters are here
        for name in list(plain._parameters):
            delattr(plain, name)
        plain.__dict__["bias"] = None if layer.bias is None else True  # its text says whether there is one
        made.__dict__["_plain"] = plain
        made._set_scale(scale, zero_point)
        channels = weight.qscheme() is wisp.per_channel_affine
        made._dtype, made._axis = weight.dtype, weight.q_per_channel_axis() if channels else None
        made.register_buffer("weight_integers", weight.int_repr())
        made.register_buffer("weight_scale", wisp.as_tensor(weight.q_per_channel_scales() if channels else weight.q_scale()))
        made.register_buffer("weight_zero_point", wisp.as_tensor(weight.q_per_channel_zero_points() if channels else weight.q_zero_point()))
        made.register_buffer("bias_value", None if layer.bias is None else layer.bias.detach().clone())
        made.training = False
        return made

    def weight(self):
        """The weight, a quantized tensor."""
        channels = self._axis is not None
        scale = self.weight_scale if channels else float(self.weight_scale)
        return _make(
            self.weight_integers, scale, self.weight_zero_point if channels else int(self.weight_zero_point), self._dtype, self._axis
        )

    def bias(self):
        """The bias, in float32."""
        return self.bias_value

    def __getattr__(self, name):
        plain = self.__dict__.get("_plain")
        if plain is not None and name in vars(plain):  # in_features, kernel_size and the like
            return vars(plain)[name]
        return super().__getattr__(name)

    def _compute(self, x):
        return self._plain._conv_forward(x, self.weight().dequantize(), self.bias_value)

    def forward(self, input):
        out = self._compute(_numbers(input, f"quantized::{type(self).__name__.lower()}"))
        return self._quantized(nn.functional.relu(out) if self._relu else out)

    def extra_repr(self):
        return f"{self._plain.extra_repr()}, {super().extra_repr()}"


class Linear(_Weighted):
    """A linear layer in integers."""

    def _compute(self, x):
        return nn.functional.linear(x, self.weight().dequantize(), self.bias_value)


class LinearReLU(Linear):
    """A linear layer in integers and a ReLU."""

    _relu = True


class Conv1d(_Weighted):
    """A convolution in integers."""


class Conv2d(_Weighted):
    """A convolution in integers."""


class Conv3d(_Weighted):
    """A convolution in integers."""


class ConvReLU1d(Conv1d):
    """A convolution in integers and a ReLU."""

    _relu = True


class ConvReLU2d(Conv2d):
    """A convolution in integers and a ReLU."""

    _relu = True


class ConvReLU3d(Conv3d):
    """A convolution in integers and a ReLU."""

    _relu = True


class _Layer(_Scaled):
    """Any other layer: it computes with the numbers, and its result is quantized."""

    def __init__(self, layer, scale, zero_point):
        super().__init__()
        self.layer = layer
        self._set_scale(scale, zero_point)

    def forward(self, *inputs):
        return self._quantized(self.layer(*(_numbers(x, f"quantized::{type(self.layer).__name__.lower()}") for x in inputs)))


for (
    _name
) in "BatchNorm2d BatchNorm3d ELU GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU PReLU".split():
    _text = f"`nn.{_name}` between integers."
    globals()[_name] = type(_name, (_Layer,), {"__doc__": _text, "__module__": __name__})
    __all__ += [_name]


class FloatFunctional(nn.Module):
    """Operations on tensors that `prepare` and `convert` can see, because they are a module.

    >>> import wisp
    >>> wisp.ao.nn.quantized.FloatFunctional().add_relu(wisp.tensor([1.0, -3.0]), wisp.ones(2))
    tensor([2., 0.])
    """

    def __init__(self):
        super().__init__()
        self.activation_post_process = nn.Identity()

    def forward(self, x):
        raise RuntimeError(f"{type(self).__name__} is not intended to use the 'forward'. Please use the underlying operation")

    def _inputs(self, *tensors):
        return tensors

    def _result(self, x):
        return self.activation_post_process(x)

    def add(self, x, y):
        """x + y"""
        x, y = self._inputs(x, y)
        return self._result(wisp.add(x, y))

    def mul(self, x, y):
        """x * y"""
        x, y = self._inputs(x, y)
        return self._result(wisp.mul(x, y))

    def matmul(self, x, y):
        """x @ y"""
        x, y = self._inputs(x, y)
        return self._result(wisp.matmul(x, y))

    def add_relu(self, x, y):
        """relu(x + y)"""
        x, y = self._inputs(x, y)
        return self._result(nn.functional.relu(wisp.add(x, y)))

    def cat(self, x, dim=0):
        """Tensors behind each other."""
        return self._result(wisp.cat(self._inputs(*x), dim))

    def add_scalar(self, x, y):
        """x + a number"""
        (x,) = self._inputs(x)
        return self._result(wisp.add(x, y))

    def mul_scalar(self, x, y):
        """x * a number"""
        (x,) = self._inputs(x)
        return self._result(wisp.mul(x, y))


class QFunctional(FloatFunctional):
    """FloatFunctional on quantized tensors."""

    def __init__(self, scale=1.0, zero_point=0):
        super().__init__()
        self.scale, self.zero_point = float(scale), int(zero_point)

    def extra_repr(self):
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def _inputs(self, *tensors):
        return tuple(_numbers(x, "quantized::functional") for x in tensors)

    def _result(self, x):
        return wisp.quantize_per_tensor(x, self.scale, self.zero_point, wisp.quint8)

    def get_extra_state(self):
        """The scale and the zero point."""
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state):
        """Set the scale and the zero point."""
        self.scale, self.zero_point = state["scale"], state["zero_point"]
