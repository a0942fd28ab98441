"""MobileNet V2 and V3: small and quick, by depthwise convolutions."""

import functools

import wisp
from wisp import nn
from wisp.vision.models._api import initialize, make_divisible, model, weights_of
from wisp.vision.ops.layers import Conv2dNormActivation, SqueezeExcitation

__all__ = """
    MobileNetV2 MobileNetV3 MobileNet_V2_Weights MobileNet_V3_Large_Weights MobileNet_V3_Small_Weights mobilenet_v2
    mobilenet_v3_large mobilenet_v3_small""".split()
MobileNet_V2_Weights = weights_of("MobileNet_V2", IMAGENET1K_V1="mobilenet_v2-b0353104.pth", IMAGENET1K_V2="mobilenet_v2-7ebf99e0.pth")
MobileNet_V3_Large_Weights = weights_of(
    "MobileNet_V3_Large", IMAGENET1K_V1="mobilenet_v3_large-8738ca79.pth", IMAGENET1K_V2="mobilenet_v3_large-5c1a4163.pth"
)
MobileNet_V3_Small_Weights = weights_of("MobileNet_V3_Small", IMAGENET1K_V1="mobilenet_v3_small-047dcff4.pth")
_make_divisible = make_divisible


def _small(weight):
    nn.init.normal_(weight, 0, 0.01)


class InvertedResidual(nn.Module):
    """Wide within, narrow between: expand, depthwise convolution, project; the input added where the shapes agree."""

    def __init__(self, inp, oup, stride, expand_ratio, norm_layer=None):
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        norm_layer = norm_layer or nn.BatchNorm2d
        hidden = int(round(inp * expand_ratio))
        self.stride, self.use_res_connect = stride, stride == 1 and inp == oup
        act = functools.partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.ReLU6)
        layers = [act(inp, hidden, 1)] if expand_ratio != 1 else []
        layers += [act(hidden, hidden, stride=stride, groups=hidden), nn.Conv2d(hidden, oup, 1, bias=False), norm_layer(oup)]
        self.conv = nn.Sequential(*layers)
        self.out_channels, self._is_cn = oup, stride > 1

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """MobileNet V2; `width_mult` scales all widths."""

    def __init__(
        self, num_classes=1000, width_mult=1.0, inverted_residual_setting=None, round_nearest=8, block=None, norm_layer=None, dropout=0.2
    ):
        super().__init__()
        block, norm_layer = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        # expansion, channels, repetitions, stride
        setting = inverted_residual_setting or [
            [1, 16, 1, 1],
            [6, 24, 2, 2],
            [6, 32, 3, 2],
            [6, 64, 4, 2],
            [6, 96, 3, 1],
            [6, 160, 3, 2],
            [6, 320, 1, 1],
        ]
        if not all(len(row) == 4 for row in setting):
            raise ValueError(f"inverted_residual_setting should be non-empty or a 4-element list, got {setting}")
        width = make_divisible(32 * width_mult, round_nearest)
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        features = [Conv2dNormActivation(3, width, stride=2, norm_layer=norm_layer, activation_layer=nn.ReLU6)]
        for expand, channels, count, stride in setting:
            wide = make_divisible(channels * width_mult, round_nearest)
            for index in range(count):
                features.append(block(width, wide, stride if index == 0 else 1, expand_ratio=expand, norm_layer=norm_layer))
                width = wide
        features.append(Conv2dNormActivation(width, self.last_channel, 1, norm_layer=norm_layer, activation_layer=nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(self.last_channel, num_classes))
        initialize(self, _small)

    def forward(self, x):
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(wisp.flatten(x, 1))


class _Block3(nn.Module):
    """The block of MobileNet V3: as in V2, with squeeze-and-excitation and another activation."""

    def __init__(self, inner, kernel, expanded, out, use_se, activation, stride, dilation, norm_layer):
        super().__init__()
        act = nn.Hardswish if activation == "HS" else nn.ReLU
        self.use_res_connect = stride == 1 and inner == out
        unit = functools.partial(Conv2dNormActivation, norm_layer=norm_layer)
        layers = [unit(inner, expanded, 1, activation_layer=act)] if expanded != inner else []
        layers.append(
            unit(expanded, expanded, kernel, stride=1 if dilation > 1 else stride, dilation=dilation, groups=expanded, activation_layer=act)
        )
        if use_se:
            layers.append(SqueezeExcitation(expanded, make_divisible(expanded // 4), scale_activation=nn.Hardsigmoid))
        layers.append(unit(expanded, out, 1, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.out_channels, self._is_cn = out, stride > 1

    def forward(self, x):
        return x + self.block(x) if self.use_res_connect else self.block(x)


# kernel, expanded, out, squeeze-and-excitation, activation, stride; the rows of the last group may be dilated
_LARGE = """3 16 16 0 RE 1; 3 64 24 0 RE 2; 3 72 24 0 RE 1; 5 72 40 1 RE 2; 5 120 40 1 RE 1; 5 120 40 1 RE 1; 3 240 80 0 HS 2;
            3 200 80 0 HS 1; 3 184 80 0 HS 1; 3 184 80 0 HS 1; 3 480 112 1 HS 1; 3 672 112 1 HS 1; 5 672 160 1 HS 2; 5 960 160 1 HS 1;
            5 960 160 1 HS 1"""
_SMALL = """3 16 16 1 RE 2; 3 72 24 0 RE 2; 3 88 24 0 RE 1; 5 96 40 1 HS 2; 5 240 40 1 HS 1; 5 240 40 1 HS 1; 5 120 48 1 HS 1;
            5 144 48 1 HS 1; 5 288 96 1 HS 2; 5 576 96 1 HS 1; 5 576 96 1 HS 1"""


class MobileNetV3(nn.Module):
    """MobileNet V3 of a table of blocks."""

    def __init__(
        self, table, last_channel, num_classes=1000, width_mult=1.0, reduced_tail=False, dilated=False, dropout=0.2, norm_layer=None
    ):
        super().__init__()
        norm_layer = norm_layer or functools.partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        rows = [row.split() for row in table.split(";")]
        width = make_divisible(16 * width_mult)
        layers = [Conv2dNormActivation(3, width, 3, stride=2, norm_layer=norm_layer, activation_layer=nn.Hardswish)]
        tail = False
        for index, (kernel, expanded, out, use_se, act, stride) in enumerate(rows):
            tail = tail or index >= len(rows) - 3
            shrink = 2 if reduced_tail and tail else 1
            inner_shrink = 2 if reduced_tail and index > len(rows) - 3 else 1
            wide = make_divisible(int(expanded) // inner_shrink * width_mult)
            made = make_divisible(int(out) // shrink * width_mult)
            layers.append(
                _Block3(width, int(kernel), wide, made, use_se == "1", act, int(stride), 2 if dilated and tail else 1, norm_layer)
            )
            width = made
        layers.append(Conv2dNormActivation(width, 6 * width, 1, norm_layer=norm_layer, activation_layer=nn.Hardswish))
        last_channel = make_divisible(last_channel // (2 if reduced_tail else 1) * width_mult)
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * width, last_channel),
            nn.Hardswish(inplace=True),
            nn.Dropout(dropout, inplace=True),
            nn.Linear(last_channel, num_classes),
        )
        initialize(self, _small)

    def forward(self, x):
        return self.classifier(wisp.flatten(self.avgpool(self.features(x)), 1))


@model(MobileNet_V2_Weights)
def mobilenet_v2(**options):
    """MobileNet V2."""
    return MobileNetV2(**options)


@model(MobileNet_V3_Large_Weights)
def mobilenet_v3_large(**options):
    """MobileNet V3, large."""
    return MobileNetV3(_LARGE, 1280, **options)


@model(MobileNet_V3_Small_Weights)
def mobilenet_v3_small(**options):
    """MobileNet V3, small."""
    return MobileNetV3(_SMALL, 1024, **options)
