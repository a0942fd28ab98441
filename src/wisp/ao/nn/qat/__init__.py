"""`torch.ao.nn.qat`: layers that compute with weights as 8 bits would round them, and train through the rounding."""

from wisp import nn
from wisp._compat import module_of

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Linear"]


def _like(cls, mod):
    """A module of a class with the settings and the parameters of another, and nothing else of it."""
    made = cls.__new__(cls)
    nn.Module.__init__(made)
    members = {*mod._parameters, *mod._buffers, *mod._modules, "qconfig"}
    made.__dict__.update({name: value for name, value in vars(mod).items() if name not in members and name not in vars(made)})
    for name, value in mod._parameters.items():
        made.register_parameter(name, value)
    return made.train(mod.training)


class _Rounding:
    """What these layers share: `weight_fake_quant`, which their configuration names."""

    def _set_qconfig(self, qconfig):
        if qconfig is None:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig, self.weight_fake_quant = qconfig, qconfig.weight()

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """A layer of this kind with the parameters of a plain one, which must have a `qconfig`."""
        made = _like(cls, mod)
        made._set_qconfig(mod.qconfig)
        return made

    def to_float(self):
        """The plain layer."""
        return _like(next(base for base in type(self).__mro__ if module_of(base).startswith("wisp.nn.")), self)


class Linear(_Rounding, nn.Linear):
    """A linear layer whose weights are rounded to 256 steps in every forward pass; gradients pass the rounding.

    >>> import wisp
    >>> from wisp.ao.quantization import get_default_qat_qconfig
    >>> layer = wisp.ao.nn.qat.Linear(3, 2, qconfig=get_default_qat_qconfig())
    >>> layer(wisp.ones(1, 3)).shape
    torch.Size([1, 2])
    """

    def __init__(self, in_features, out_features, bias=True, qconfig=None, device=None, dtype=None):
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self._set_qconfig(qconfig)

    def forward(self, input):
        return nn.functional.linear(input, self.weight_fake_quant(self.weight), self.bias)


class _Convolution(_Rounding):
    def __init__(self, *args, qconfig=None, **options):
        super().__init__(*args, **options)
        self._set_qconfig(qconfig)

    def forward(self, input):
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)


class Conv1d(_Convolution, nn.Conv1d):
    """A convolution with rounded weights."""


class Conv2d(_Convolution, nn.Conv2d):
    """A convolution with rounded weights."""


class Conv3d(_Convolution, nn.Conv3d):
    """A convolution with rounded weights."""
