"""Layers that belong together: a convolution with its normalisation and its ReLU, as `fuse_modules` joins them."""

from wisp import nn

__all__ = ["BNReLU2d", "BNReLU3d", "LinearBn1d", "LinearReLU"]


class _FusedModule(nn.Sequential):
    pass


class LinearReLU(_FusedModule):
    """A linear layer and a ReLU."""


class LinearBn1d(_FusedModule):
    """A linear layer and a normalisation."""


class BNReLU2d(_FusedModule):
    """A normalisation and a ReLU."""


class BNReLU3d(_FusedModule):
    """A normalisation and a ReLU."""


for _dims in (1, 2, 3):
    for _kind, _text in {"ConvReLU": "a ReLU", "ConvBn": "a normalisation", "ConvBnReLU": "a normalisation and a ReLU"}.items():
        _name = f"{_kind}{_dims}d"
        globals()[_name] = type(_name, (_FusedModule,), {"__doc__": f"A convolution and {_text}.", "__module__": __name__})
        __all__ += [_name]
from wisp.ao.nn.intrinsic import qat as qat  # noqa: E402
