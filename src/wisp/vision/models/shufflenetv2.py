"""ShuffleNet V2 and MNASNet: small models for small machines."""

import wisp
from wisp import nn
from wisp.vision.models._api import publish, weights_of

__all__ = ["MNASNet", "ShuffleNetV2"]


def channel_shuffle(x, groups):
    """The channels of the groups, interleaved."""
    count, channels, height, width = x.shape
    return x.reshape(count, groups, channels // groups, height, width).transpose(1, 2).reshape(count, channels, height, width)


class InvertedResidual(nn.Module):
    """Half of the channels pass, the other half goes through convolutions; then all are shuffled."""

    def __init__(self, inp, oup, stride):
        super().__init__()
        if not 1 <= stride <= 3:
            raise ValueError("illegal stride value")
        half = oup // 2
        if stride == 1 and inp != half << 1:
            raise ValueError(f"Invalid combination of stride {stride}, inp {inp} and oup {oup} values.")
        self.stride = stride
        depthwise = lambda width: nn.Conv2d(width, width, 3, stride, 1, bias=False, groups=width)
        self.branch1 = (
            nn.Sequential(
                depthwise(inp), nn.BatchNorm2d(inp), nn.Conv2d(inp, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True)
            )
            if stride > 1
            else nn.Sequential()
        )
        self.branch2 = nn.Sequential(
            nn.Conv2d(inp if stride > 1 else half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
            depthwise(half),
            nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        if self.stride == 1:
            passed, worked = x.chunk(2, 1)
            return channel_shuffle(wisp.cat((passed, self.branch2(worked)), 1), 2)
        return channel_shuffle(wisp.cat((self.branch1(x), self.branch2(x)), 1), 2)


class ShuffleNetV2(nn.Module):
    """Three stages of blocks."""

    def __init__(self, stages_repeats, stages_out_channels, num_classes=1000, inverted_residual=InvertedResidual):
        super().__init__()
        width, *stages, last = stages_out_channels
        self.conv1 = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for index, (count, out) in enumerate(zip(stages_repeats, stages)):
            blocks = [inverted_residual(width, out, 2)] + [inverted_residual(out, out, 1) for _ in range(count - 1)]
            setattr(self, f"stage{index + 2}", nn.Sequential(*blocks))
            width = out
        self.conv5 = nn.Sequential(nn.Conv2d(width, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU(inplace=True))
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x):
        x = self.stage4(self.stage3(self.stage2(self.maxpool(self.conv1(x)))))
        return self.fc(self.conv5(x).mean([2, 3]))


_SHUFFLE = {
    "x0_5": ([24, 48, 96, 192, 1024], "shufflenetv2_x0.5-f707e7126e.pth"),
    "x1_0": ([24, 116, 232, 464, 1024], "shufflenetv2_x1-5666bf0f80.pth"),
    "x1_5": ([24, 176, 352, 704, 1024], "shufflenetv2_x1_5-3c479a10.pth"),
    "x2_0": ([24, 244, 488, 976, 2048], "shufflenetv2_x2_0-8be3c8ee.pth"),
}


def _round(value, divisor=8):
    result = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return result if result >= 0.9 * value else result + divisor


class _MNASBlock(nn.Module):
    def __init__(self, inner, out, kernel, stride, expand):
        super().__init__()
        wide = inner * expand
        norm = lambda width: nn.BatchNorm2d(width, momentum=1 - 0.9997)
        self.apply_residual = inner == out and stride == 1
        self.layers = nn.Sequential(
            nn.Conv2d(inner, wide, 1, bias=False),
            norm(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, wide, kernel, padding=kernel // 2, stride=stride, groups=wide, bias=False),
            norm(wide),
            nn.ReLU(inplace=True),
            nn.Conv2d(wide, out, 1, bias=False),
            norm(out),
        )

    def forward(self, x):
        return self.layers(x) + x if self.apply_residual else self.layers(x)


class MNASNet(nn.Module):
    """MNASNet with all widths scaled by `alpha`."""

    _version = 2

    def __init__(self, alpha, num_classes=1000, dropout=0.2):
        super().__init__()
        if alpha <= 0.0:
            raise ValueError(f"alpha should be greater than 0.0 instead of {alpha}")
        self.alpha, self.num_classes = alpha, num_classes
        w = [_round(width * alpha) for width in (32, 16, 24, 40, 80, 96, 192, 320)]
        norm = lambda width: nn.BatchNorm2d(width, momentum=1 - 0.9997)
        layers = [
            nn.Conv2d(3, w[0], 3, padding=1, stride=2, bias=False),
            norm(w[0]),
            nn.ReLU(inplace=True),
            nn.Conv2d(w[0], w[0], 3, padding=1, groups=w[0], bias=False),
            norm(w[0]),
            nn.ReLU(inplace=True),
            nn.Conv2d(w[0], w[1], 1, bias=False),
            norm(w[1]),
        ]
        for index, (kernel, stride, expand, count) in enumerate(
            ((3, 2, 3, 3), (5, 2, 3, 3), (5, 2, 6, 3), (3, 1, 6, 2), (5, 2, 6, 4), (3, 1, 6, 1))
        ):
            inner, out = w[index + 1], w[index + 2]
            layers.append(
                nn.Sequential(*[_MNASBlock(inner if i == 0 else out, out, kernel, stride if i == 0 else 1, expand) for i in range(count)])
            )
        layers += [nn.Conv2d(w[7], 1280, 1, bias=False), norm(1280), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(1280, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="sigmoid")
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(self.layers(x).mean([2, 3]))


for _size, (_widths, _file) in _SHUFFLE.items():
    _kind = weights_of(f"ShuffleNet_V2_{_size.upper()}", **({"IMAGENET1K_V1": _file} if _file else {}))
    publish(globals(), f"shufflenet_v2_{_size}", _kind, ShuffleNetV2, [4, 8, 4], _widths)
for _size, _alpha, _file in (
    ("0_5", 0.5, "mnasnet0.5_top1_67.823-3ffadce67e.pth"),
    ("0_75", 0.75, "mnasnet0_75-7090bc5f.pth"),
    ("1_0", 1.0, "mnasnet1.0_top1_73.512-f206786ef8.pth"),
    ("1_3", 1.3, "mnasnet1_3-a4c69d6f.pth"),
):
    publish(globals(), f"mnasnet{_size}", weights_of(f"MNASNet{_size}", IMAGENET1K_V1=_file), MNASNet, _alpha)
