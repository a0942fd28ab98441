"""U-Net: down, up, and bridges between equal sizes."""

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import model

__all__ = ["UNet", "unet"]


def _double(inner, out):
    return nn.Sequential(
        nn.Conv2d(inner, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1, bias=False),
        nn.BatchNorm2d(out),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """U-Net with batch normalisation; any picture size, the result has it too.

    >>> import wisp
    >>> from wisp.vision.models import unet
    >>> unet(in_channels=1, num_classes=2, width=8)(wisp.zeros(1, 1, 40, 36)).shape
    torch.Size([1, 2, 40, 36])
    """

    def __init__(self, in_channels=3, num_classes=1, width=64, depth=4):
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.encoder = nn.ModuleList([_double(inner, out) for inner, out in zip([in_channels, *widths], widths)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(inner, out, 2, stride=2) for inner, out in zip(widths[:0:-1], widths[-2::-1])])
        self.decoder = nn.ModuleList([_double(2 * out, out) for out in widths[-2::-1]])
        self.head = nn.Conv2d(width, num_classes, 1)

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.encoder):
            x = block(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, block, bridge in zip(self.up, self.decoder, kept[-2::-1]):
            x = up(x)
            rows, columns = bridge.shape[-2] - x.shape[-2], bridge.shape[-1] - x.shape[-1]
            if rows or columns:
                x = F.pad(x, (0, columns, 0, rows))
            x = block(wisp.cat((bridge, x), 1))
        return self.head(x)


@model()
def unet(**options):
    """U-Net."""
    return UNet(**options)
