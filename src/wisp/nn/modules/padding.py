"""Padding at the borders of signals, images and volumes."""

from wisp.nn import functional as F
from wisp.nn.modules.module import Module
from wisp.nn.modules.utils import _ntuple

__all__ = [f"{kind}Pad{n}d" for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular") for n in (1, 2, 3)]


class _PadNd(Module):
    # Subclasses say in how many dimensions and in which mode; `padding` is (left, right, top, bottom, ...).
    __constants__ = ["padding"]
    dims, mode = 1, "constant"

    def __init__(self, padding):
        super().__init__()
        self.padding = _ntuple(2 * self.dims)(padding)

    def forward(self, input):
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self):
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]

    def __init__(self, padding, value):
        super().__init__(padding)
        self.value = value

    def forward(self, input):
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self):
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`.

    >>> import wisp
    >>> wisp.nn.ConstantPad1d((1, 2), 5.0)(wisp.zeros(1, 1, 2))
    tensor([[[5., 0., 0., 5., 5.]]])
    """


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`."""

    dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`."""

    dims = 3


class _ZeroPad:
    def __init__(self, padding):
        super().__init__(padding, 0.0)

    def extra_repr(self):
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads the last dimension with zeros."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads the last two dimensions with zeros.

    >>> import wisp
    >>> tuple(wisp.nn.ZeroPad2d(1)(wisp.ones(1, 1, 3, 3)).shape)
    (1, 1, 5, 5)
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads the last three dimensions with zeros."""


class _ReflectionPadNd(_PadNd):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last dimension with its mirror image, without repeating the border.

    >>> import wisp
    >>> wisp.nn.ReflectionPad1d(1)(wisp.arange(3.0).reshape(1, 1, 3))
    tensor([[[1., 0., 1., 2., 1.]]])
    """


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last two dimensions with their mirror image."""

    dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last three dimensions with their mirror image."""

    dims = 3


class _ReplicationPadNd(_PadNd):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last dimension by repeating its border.

    >>> import wisp
    >>> wisp.nn.ReplicationPad1d(1)(wisp.arange(3.0).reshape(1, 1, 3))
    tensor([[[0., 0., 1., 2., 2.]]])
    """


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last two dimensions by repeating their border."""

    dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last three dimensions by repeating their border."""

    dims = 3


class _CircularPadNd(_PadNd):
    mode = "circular"

    def forward(self, input):
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise ValueError(f"expected {self.dims + 1}D or {self.dims + 2}D input (got {input.dim()}D input)")
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """Pads the last dimension with its other end.

    >>> import wisp
    >>> wisp.nn.CircularPad1d(1)(wisp.arange(3.0).reshape(1, 1, 3))
    tensor([[[2., 0., 1., 2., 0.]]])
    """


class CircularPad2d(_CircularPadNd):
    """Pads the last two dimensions with their other ends."""

    dims = 2


class CircularPad3d(_CircularPadNd):
    """Pads the last three dimensions with their other ends."""

    dims = 3
