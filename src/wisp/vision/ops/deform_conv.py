"""Convolution whose taps are moved by offsets (deformable convolution)."""

import wisp
import wisp.nn.functional as F
from wisp import nn

__all__ = ["DeformConv2d", "deform_conv2d"]


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def deform_conv2d(input, offset, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), mask=None):
    """A convolution that reads each tap where `offset` moves it, between pixels if need be, and multiplies it by `mask`.

    >>> x = wisp.arange(9.0).view(1, 1, 3, 3)
    >>> moved = wisp.zeros(1, 2, 3, 3)
    >>> moved[:, 1] = 0.5  # half a pixel to the right
    >>> wisp.vision.ops.deform_conv2d(x, moved, wisp.ones(1, 1, 1, 1))[0, 0, 0]
    tensor([0.5000, 1.5000, 1.0000])
    """
    (up, right), (above, beside), (far, wide) = map(_pair, (stride, padding, dilation))
    batch, channels, height, width = input.shape
    out_channels, per_group, kernel_height, kernel_width = weight.shape
    taps = kernel_height * kernel_width
    rows = (height + 2 * above - far * (kernel_height - 1) - 1) // up + 1
    columns = (width + 2 * beside - wide * (kernel_width - 1) - 1) // right + 1
    parts = offset.shape[1] // (2 * taps)  # groups of channels with offsets of their own
    if parts == 0 or offset.shape != (batch, 2 * parts * taps, rows, columns) or channels % parts:
        raise RuntimeError(
            f"deform_conv2d: expected offsets of shape ({batch}, 2 * groups * {taps}, {rows}, {columns}) for an input of shape "
            f"{tuple(input.shape)} and a kernel of {kernel_height} x {kernel_width}, got {tuple(offset.shape)}"
        )
    if mask is not None and mask.shape != (batch, parts * taps, rows, columns):
        raise RuntimeError(f"deform_conv2d: expected a mask of shape {(batch, parts * taps, rows, columns)}, got {tuple(mask.shape)}")

    def places(count, step, pad, kernel, apart):
        start = wisp.arange(count, dtype=input.dtype, device=input.device) * step - pad
        return start + (wisp.arange(kernel, dtype=input.dtype, device=input.device) * apart)[:, None]  # kernel x count

    moved = offset.view(batch * parts, kernel_height, kernel_width, 2, rows, columns)
    y = moved[:, :, :, 0] + places(rows, up, above, kernel_height, far)[:, None, :, None]
    x = moved[:, :, :, 1] + places(columns, right, beside, kernel_width, wide)[None, :, None, :]
    grid = wisp.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], -1).view(batch * parts, taps * rows, columns, 2)
    read = F.grid_sample(input.reshape(batch * parts, channels // parts, height, width), grid, align_corners=False)
    read = read.view(batch, parts, channels // parts, taps, rows, columns)
    if mask is not None:
        read = read * mask.view(batch, parts, 1, taps, rows, columns)
    groups = channels // per_group
    flat = weight.reshape(groups, out_channels // groups, per_group * taps)
    result = (flat @ read.reshape(batch, groups, per_group * taps, rows * columns)).view(batch, out_channels, rows, columns)
    return result if bias is None else result + bias.view(1, -1, 1, 1)


class DeformConv2d(nn.Module):
    """`deform_conv2d` with a weight of its own; the offsets, and the mask, come with the input.

    >>> layer = wisp.vision.ops.DeformConv2d(3, 8, kernel_size=3, padding=1)
    >>> layer(wisp.ones(1, 3, 4, 4), wisp.zeros(1, 18, 4, 4)).shape
    torch.Size([1, 8, 4, 4])
    """

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True):
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"DeformConv2d: in_channels={in_channels} and out_channels={out_channels} must be divisible by groups={groups}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding, self.dilation = map(_pair, (kernel_size, stride, padding, dilation))
        self.weight = nn.Parameter(wisp.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = nn.Parameter(wisp.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self):
        """The weights that a convolution begins with."""
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = self.weight[0].numel() ** -0.5
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input, offset, mask=None):
        """The convolution of the input with its taps moved."""
        return deform_conv2d(input, offset, self.weight, self.bias, self.stride, self.padding, self.dilation, mask)

    def extra_repr(self):
        """The sizes."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        return f"{text}, padding={self.padding}, dilation={self.dilation}, groups={self.groups}, bias={self.bias is not None}"
