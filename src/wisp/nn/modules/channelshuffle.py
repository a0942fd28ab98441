"""ChannelShuffle."""

from wisp.nn import functional as F
from wisp.nn.modules.module import Module

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Deals the channels of (N, C, ...) round the groups, as ShuffleNet does.

    >>> import wisp
    >>> wisp.nn.ChannelShuffle(2)(wisp.arange(4.0).reshape(1, 4, 1, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    __constants__ = ["groups"]

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"
