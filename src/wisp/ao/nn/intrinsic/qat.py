"""Joined layers in training for quantization: weights are rounded as they will be once the normalisation is folded into them."""

import wisp
from wisp import nn
from wisp.ao.nn import intrinsic
from wisp.ao.nn import qat as _plain

__all__ = ["LinearReLU", "freeze_bn_stats", "update_bn_stats"]


class _Joined:
    """A convolution or linear layer with `bn` (or None) and `relu` (or not)."""

    _relu = False

    @classmethod
    def from_float(cls, mod, use_precomputed_fake_quant=False):
        """One of joined layers, which must have a `qconfig`."""
        layer = mod[0]
        layer.qconfig = mod.qconfig
        made = super().from_float(layer)
        made.bn = mod[1] if isinstance(mod[1], nn.modules.batchnorm._BatchNorm) else None
        return made

    def forward(self, input):
        if self.bn is None:
            out = super().forward(input)
        else:
            # by running statistics, which are what is folded in; the statistics of the batch are those of the true results
            factor = self.bn.weight / wisp.sqrt(self.bn.running_var + self.bn.eps)
            shape = [1, -1] + [1] * (self.weight.dim() - 2)
            weight = self.weight_fake_quant(self.weight * factor.reshape([-1] + [1] * (self.weight.dim() - 1)))
            if isinstance(self, nn.Linear):
                out = nn.functional.linear(input, weight)
            else:
                out = self._conv_forward(input, weight, None)
            out = out / factor.reshape(shape)
            out = self.bn(out if self.bias is None else out + self.bias.reshape(shape))
        return nn.functional.relu(out) if self._relu else out

    def freeze_bn_stats(self):
        """Normalise by the running statistics from now on, and keep them."""
        if self.bn is not None:
            self._frozen = True
            self.bn.eval()

    def update_bn_stats(self):
        """Normalise by the statistics of each batch again."""
        if self.bn is not None:
            self._frozen = False
            self.bn.train(self.training)

    def train(self, mode=True):
        """Training or evaluation; frozen statistics stay."""
        super().train(mode)
        if self.__dict__.get("_frozen", False):
            self.bn.eval()
        return self


class LinearReLU(_Joined, _plain.Linear):
    """A linear layer and a ReLU."""

    _relu = True


_KINDS = {intrinsic.LinearReLU: LinearReLU}
for _dims in (1, 2, 3):
    for _kind in ("ConvReLU", "ConvBn", "ConvBnReLU"):
        _name = f"{_kind}{_dims}d"
        _members = {"__doc__": getattr(intrinsic, _name).__doc__, "__module__": __name__, "_relu": _kind != "ConvBn"}
        globals()[_name] = _KINDS[getattr(intrinsic, _name)] = type(_name, (_Joined, getattr(_plain, f"Conv{_dims}d")), _members)
        __all__ += [_name]


def freeze_bn_stats(mod):
    """Keep the running statistics, if the module has them: for `model.apply`."""
    if isinstance(mod, _Joined):
        mod.freeze_bn_stats()


def update_bn_stats(mod):
    """Update the running statistics, if the module has them: for `model.apply`."""
    if isinstance(mod, _Joined):
        mod.update_bn_stats()
