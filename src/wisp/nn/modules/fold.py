"""Sliding windows as columns, and back."""

from wisp.nn import functional as F
from wisp.nn.modules.module import Module

__all__ = ["Fold", "Unfold"]


class Fold(Module):
    """Sums columns (N, C·kh·kw, L) into an image (N, C, H, W).

    >>> import wisp
    >>> tuple(wisp.nn.Fold(output_size=(4, 5), kernel_size=(2, 2))(wisp.zeros(1, 12, 12)).shape)
    (1, 3, 4, 5)
    """

    __constants__ = ["output_size", "kernel_size", "dilation", "padding", "stride"]

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size, self.kernel_size, self.dilation = output_size, kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input):
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class Unfold(Module):
    """Takes the windows of an image (N, C, H, W) as columns (N, C·kh·kw, L).

    >>> import wisp
    >>> tuple(wisp.nn.Unfold(kernel_size=(2, 3))(wisp.zeros(2, 5, 3, 4)).shape)
    (2, 30, 4)
    """

    __constants__ = ["kernel_size", "dilation", "padding", "stride"]

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
