"""EfficientNet (B0 to B7) and EfficientNet V2."""

import functools
import math

import wisp
from wisp import nn
from wisp.vision.models._api import Weights, initialize, make_divisible, publish, weights_of
from wisp.vision.ops.layers import Conv2dNormActivation, SqueezeExcitation, StochasticDepth

__all__ = ["EfficientNet"]


class MBConv(nn.Module):
    """Expand, depthwise convolution, squeeze-and-excitation, project."""

    def __init__(self, expand, kernel, stride, inner, out, depth_prob, norm_layer):
        super().__init__()
        self.use_res_connect = stride == 1 and inner == out
        wide = make_divisible(inner * expand)
        unit = functools.partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        layers = [unit(inner, wide, 1)] if wide != inner else []
        layers += [
            unit(wide, wide, kernel, stride=stride, groups=wide),
            SqueezeExcitation(wide, max(1, inner // 4), activation=functools.partial(nn.SiLU, inplace=True)),
            Conv2dNormActivation(wide, out, 1, norm_layer=norm_layer, activation_layer=None),
        ]
        self.block, self.stochastic_depth, self.out_channels = nn.Sequential(*layers), StochasticDepth(depth_prob, "row"), out

    def forward(self, x):
        result = self.block(x)
        return self.stochastic_depth(result) + x if self.use_res_connect else result


class FusedMBConv(nn.Module):
    """As MBConv, with one full convolution in place of expansion and depthwise convolution."""

    def __init__(self, expand, kernel, stride, inner, out, depth_prob, norm_layer):
        super().__init__()
        self.use_res_connect = stride == 1 and inner == out
        wide = make_divisible(inner * expand)
        unit = functools.partial(Conv2dNormActivation, norm_layer=norm_layer)
        if wide != inner:
            layers = [unit(inner, wide, kernel, stride=stride, activation_layer=nn.SiLU), unit(wide, out, 1, activation_layer=None)]
        else:
            layers = [unit(inner, out, kernel, stride=stride, activation_layer=nn.SiLU)]
        self.block, self.stochastic_depth, self.out_channels = nn.Sequential(*layers), StochasticDepth(depth_prob, "row"), out

    def forward(self, x):
        result = self.block(x)
        return self.stochastic_depth(result) + x if self.use_res_connect else result


def _uniform(weight):
    bound = 1.0 / math.sqrt(weight.shape[0])
    nn.init.uniform_(weight, -bound, bound)


class EfficientNet(nn.Module):
    """Groups of blocks: rows of (block, expansion, kernel, stride, channels in, channels out, repetitions)."""

    def __init__(self, rows, dropout=0.2, stochastic_depth_prob=0.2, num_classes=1000, norm_layer=None, last_channel=None):
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        layers = [Conv2dNormActivation(3, rows[0][4], 3, stride=2, norm_layer=norm_layer, activation_layer=nn.SiLU)]
        total, done = sum(row[6] for row in rows), 0
        for block, expand, kernel, stride, inner, out, count in rows:
            stage = []
            for index in range(count):
                first = index == 0
                stage.append(
                    block(
                        expand,
                        kernel,
                        stride if first else 1,
                        inner if first else out,
                        out,
                        stochastic_depth_prob * done / total,
                        norm_layer,
                    )
                )
                done += 1
            layers.append(nn.Sequential(*stage))
        width = rows[-1][5]
        last = last_channel or 4 * width
        layers.append(Conv2dNormActivation(width, last, 1, norm_layer=norm_layer, activation_layer=nn.SiLU))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(last, num_classes))
        initialize(self, _uniform)

    def forward(self, x):
        return self.classifier(wisp.flatten(self.avgpool(self.features(x)), 1))


_BASE = [
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
]
# width, depth, dropout, picture, file
_ALL = {
    "b0": (1.0, 1.0, 0.2, 224, "rwightman-7f5810bc"),
    "b1": (1.0, 1.1, 0.2, 240, "rwightman-bac287d4"),
    "b2": (1.1, 1.2, 0.3, 288, "rwightman-c35c1473"),
    "b3": (1.2, 1.4, 0.3, 300, "rwightman-b3899882"),
    "b4": (1.4, 1.8, 0.4, 380, "rwightman-23ab8bcd"),
    "b5": (1.6, 2.2, 0.4, 456, "lukemelas-1a07897c"),
    "b6": (1.8, 2.6, 0.5, 528, "lukemelas-24a108a5"),
    "b7": (2.0, 3.1, 0.5, 600, "lukemelas-c5b4e57e"),
}
_F, _M = FusedMBConv, MBConv
_V2 = {
    "s": (
        [
            (_F, 1, 3, 1, 24, 24, 2),
            (_F, 4, 3, 2, 24, 48, 4),
            (_F, 4, 3, 2, 48, 64, 4),
            (_M, 4, 3, 2, 64, 128, 6),
            (_M, 6, 3, 1, 128, 160, 9),
            (_M, 6, 3, 2, 160, 256, 15),
        ],
        0.2,
        "efficientnet_v2_s-dd5fe13b.pth",
    ),
    "m": (
        [
            (_F, 1, 3, 1, 24, 24, 3),
            (_F, 4, 3, 2, 24, 48, 5),
            (_F, 4, 3, 2, 48, 80, 5),
            (_M, 4, 3, 2, 80, 160, 7),
            (_M, 6, 3, 1, 160, 176, 14),
            (_M, 6, 3, 2, 176, 304, 18),
            (_M, 6, 3, 1, 304, 512, 5),
        ],
        0.3,
        "efficientnet_v2_m-dc08266a.pth",
    ),
    "l": (
        [
            (_F, 1, 3, 1, 32, 32, 4),
            (_F, 4, 3, 2, 32, 64, 7),
            (_F, 4, 3, 2, 64, 96, 7),
            (_M, 4, 3, 2, 96, 192, 10),
            (_M, 6, 3, 1, 192, 224, 19),
            (_M, 6, 3, 2, 224, 384, 25),
            (_M, 6, 3, 1, 384, 640, 7),
        ],
        0.4,
        "efficientnet_v2_l-59c71312.pth",
    ),
}


for _name, (_width, _depth, _dropout, _size, _file) in _ALL.items():
    _rows = [
        (MBConv, expand, kernel, stride, make_divisible(inner * _width), make_divisible(out * _width), math.ceil(count * _depth))
        for expand, kernel, stride, inner, out, count in _BASE
    ]
    _fixed = {"norm_layer": functools.partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)} if _name in ("b5", "b6", "b7") else {}
    _kind = weights_of(f"EfficientNet_{_name.upper()}", IMAGENET1K_V1=Weights(f"efficientnet_{_name}_{_file}.pth", _size, _size))
    publish(globals(), f"efficientnet_{_name}", _kind, EfficientNet, _rows, dropout=_dropout, **_fixed)
for _name, (_rows, _dropout, _file) in _V2.items():
    _kind = weights_of(f"EfficientNet_V2_{_name.upper()}", IMAGENET1K_V1=Weights(_file, 384, 384))
    _fixed = {"dropout": _dropout, "last_channel": 1280, "norm_layer": functools.partial(nn.BatchNorm2d, eps=1e-03)}
    publish(globals(), f"efficientnet_v2_{_name}", _kind, EfficientNet, _rows, **_fixed)
