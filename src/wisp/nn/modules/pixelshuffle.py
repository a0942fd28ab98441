"""Moving elements between channels and pixels."""

from wisp.nn import functional as F
from wisp.nn.modules.module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """(*, C·r², H, W) to (*, C, H·r, W·r).

    >>> import wisp
    >>> tuple(wisp.nn.PixelShuffle(3)(wisp.zeros(1, 9, 4, 4)).shape)
    (1, 1, 12, 12)
    """

    __constants__ = ["upscale_factor"]

    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self):
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(*, C, H·r, W·r) to (*, C·r², H, W).

    >>> import wisp
    >>> tuple(wisp.nn.PixelUnshuffle(3)(wisp.zeros(1, 1, 12, 12)).shape)
    (1, 9, 4, 4)
    """

    __constants__ = ["downscale_factor"]

    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self):
        return f"downscale_factor={self.downscale_factor}"
