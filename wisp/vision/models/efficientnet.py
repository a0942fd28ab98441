"""EfficientNet (B0 to B7) and EfficientNet V2."""
import functools
import math

import wisp
from wisp import nn
from wisp.vision.models._api import Weights, make_divisible, model, weights_of
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
        layers += [unit(wide, wide, kernel, stride=stride, groups=wide),
                   SqueezeExcitation(wide, max(1, inner // 4), activation=functools.partial(nn.SiLU, inplace=True)),
                   Conv2dNormActivation(wide, out, 1, norm_layer=norm_layer, activation_layer=None)]
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
                stage.append(block(expand, kernel, stride if first else 1, inner if first else out, out,
                                   stochastic_depth_prob * done / total, norm_layer))
                done += 1
            layers.append(nn.Sequential(*stage))
        width = rows[-1][5]
        last = last_channel or 4 * width
        layers.append(Conv2dNormActivation(width, last, 1, norm_layer=norm_layer, activation_layer=nn.SiLU))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(last, num_classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                bound = 1.0 / math.sqrt(module.out_features)
                nn.init.uniform_(module.weight, -bound, bound)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(wisp.flatten(self.avgpool(self.features(x)), 1))


_BASE = [(1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3),
         (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1)]
# width, depth, dropout, picture, file
_ALL = {"b0": (1.0, 1.0, 0.2, 224, "rwightman-7f5810bc"), "b1": (1.0, 1.1, 0.2, 240, "rwightman-bac287d4"),
        "b2": (1.1, 1.2, 0.3, 288, "rwightman-c35c1473"), "b3": (1.2, 1.4, 0.3, 300, "rwightman-b3899882"),
        "b4": (1.4, 1.8, 0.4, 380, "rwightman-23ab8bcd"), "b5": (1.6, 2.2, 0.4, 456, "lukemelas-1a07897c"),
        "b6": (1.8, 2.6, 0.5, 528, "lukemelas-24a108a5"), "b7": (2.0, 3.1, 0.5, 600, "lukemelas-c5b4e57e")}
_F, _M = FusedMBConv, MBConv
_V2 = {"s": ([(_F, 1, 3, 1, 24, 24, 2), (_F, 4, 3, 2, 24, 48, 4), (_F, 4, 3, 2, 48, 64, 4), (_M, 4, 3, 2, 64, 128, 6),
              (_M, 6, 3, 1, 128, 160, 9), (_M, 6, 3, 2, 160, 256, 15)], 0.2, "efficientnet_v2_s-dd5fe13b.pth"),
       "m": ([(_F, 1, 3, 1, 24, 24, 3), (_F, 4, 3, 2, 24, 48, 5), (_F, 4, 3, 2, 48, 80, 5), (_M, 4, 3, 2, 80, 160, 7),
              (_M, 6, 3, 1, 160, 176, 14), (_M, 6, 3, 2, 176, 304, 18), (_M, 6, 3, 1, 304, 512, 5)], 0.3, "efficientnet_v2_m-dc08266a.pth"),
       "l": ([(_F, 1, 3, 1, 32, 32, 4), (_F, 4, 3, 2, 32, 64, 7), (_F, 4, 3, 2, 64, 96, 7), (_M, 4, 3, 2, 96, 192, 10),
              (_M, 6, 3, 1, 192, 224, 19), (_M, 6, 3, 2, 224, 384, 25), (_M, 6, 3, 1, 384, 640, 7)], 0.4, "efficientnet_v2_l-59c71312.pth")}


def _make(name, title, rows, dropout, file, size, **fixed):
    kind = weights_of(title, IMAGENET1K_V1=Weights(file, size, size))

    def build(**options):
        return EfficientNet(rows, **{"dropout": dropout, **fixed, **options})
    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"The model {name}."
    return kind, model(kind)(build)


def _all():
    for name, (width, depth, dropout, size, file) in _ALL.items():
        rows = [(MBConv, expand, kernel, stride, make_divisible(inner * width), make_divisible(out * width), math.ceil(count * depth))
                for expand, kernel, stride, inner, out, count in _BASE]
        fixed = {"norm_layer": functools.partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)} if name in ("b5", "b6", "b7") else {}
        yield _make(f"efficientnet_{name}", f"EfficientNet_{name.upper()}", rows, dropout, f"efficientnet_{name}_{file}.pth", size, **fixed)
    for name, (rows, dropout, file) in _V2.items():
        yield _make(f"efficientnet_v2_{name}", f"EfficientNet_V2_{name.upper()}", rows, dropout, file, 384, last_channel=1280,
                    norm_layer=functools.partial(nn.BatchNorm2d, eps=1e-03))


for _kind, _build in _all():
    globals()[_kind.__name__], globals()[_build.__name__] = _kind, _build
    __all__ += [_kind.__name__, _build.__name__]
