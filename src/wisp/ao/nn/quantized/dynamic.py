"""Layers whose weights are kept in 8 bits: they are multiplied out when the layer is called."""

import wisp
from wisp import nn

__all__ = ["LSTM", "Linear"]


def _to_eight_bits(weight):
    """int8 numbers and one scale for each row, so that numbers times scale come close to the weight."""
    scale = (weight.detach().abs().amax(1, keepdim=True) / 127).clamp_min(1e-12)
    return (weight.detach() / scale).round().clamp(-127, 127).to(wisp.int8), scale


class Linear(nn.Module):
    """A linear layer whose weight is kept as int8 with a scale for each output.

    >>> import wisp
    >>> from wisp.ao.nn.quantized.dynamic import Linear
    >>> layer = Linear.from_float(wisp.nn.Linear(3, 2))
    >>> layer.weight_int8.dtype, layer(wisp.ones(1, 3)).shape
    (torch.int8, torch.Size([1, 2]))
    """

    def __init__(self, in_features, out_features, bias_=True, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("weight_int8", wisp.zeros(out_features, in_features, dtype=wisp.int8))
        self.register_buffer("scale", wisp.ones(out_features, 1))
        self.register_buffer("bias_value", wisp.zeros(out_features) if bias_ else None)

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """The quantized form of a linear layer."""
        layer = cls(mod.in_features, mod.out_features, mod.bias is not None)
        layer.weight_int8, layer.scale = _to_eight_bits(mod.weight)
        layer.bias_value = None if mod.bias is None else mod.bias.detach().clone()
        return layer

    def weight(self):
        """The weight, multiplied out."""
        return self.weight_int8.to(self.scale.dtype) * self.scale

    def bias(self):
        """The bias."""
        return self.bias_value

    def forward(self, x):
        return nn.functional.linear(x, self.weight(), self.bias_value)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, dtype=torch.qint8"

    def _get_name(self):
        return "DynamicQuantizedLinear"


class LSTM(nn.Module):
    """An LSTM (or another recurrent layer) whose weights are kept as int8 with a scale for each row."""

    def __init__(self, layer):
        super().__init__()
        import copy

        self.options = {name: getattr(layer, name) for name in ("input_size", "hidden_size", "num_layers", "bidirectional", "batch_first")}
        self._layer = copy.deepcopy(layer).eval().requires_grad_(False)
        for name, weight in list(self._layer.named_parameters()):
            if weight.dim() == 2:
                numbers, scale = _to_eight_bits(weight)
                self.register_buffer(f"{name}_int8", numbers)
                self.register_buffer(f"{name}_scale", scale)
            else:
                self.register_buffer(name, weight.detach().clone())
        self._names = [name for name, _ in self._layer.named_parameters()]
        object.__setattr__(self, "_shell", self._modules.pop("_layer"))  # not part of the state
        self.__dict__.pop("_layer", None)
        for name in self._names:
            getattr(self._shell, name).data = wisp.empty(0)

    @classmethod
    def from_float(cls, mod):
        """The quantized form of a recurrent layer."""
        return cls(mod)

    def forward(self, x, hx=None):
        weights = {
            name: getattr(self, name)
            if hasattr(self, name)
            else getattr(self, f"{name}_int8").to(getattr(self, f"{name}_scale").dtype) * getattr(self, f"{name}_scale")
            for name in self._names
        }
        return wisp.func.functional_call(self._shell, weights, (x,) if hx is None else (x, hx))

    def extra_repr(self):
        return ", ".join(f"{name}={value}" for name, value in self.options.items())

    def _get_name(self):
        return "DynamicQuantizedLSTM"
