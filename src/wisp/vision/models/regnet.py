"""RegNet: stages of blocks whose widths lie near a straight line."""

import functools
import math
from collections import OrderedDict

from wisp import nn
from wisp.vision.models._api import Weights, make_divisible, publish, weights_of
from wisp.vision.ops.layers import Conv2dNormActivation, SqueezeExcitation

__all__ = ["RegNet"]


class SimpleStemIN(Conv2dNormActivation):
    """The first layers: one convolution that halves the picture."""

    def __init__(self, width_in, width_out, norm_layer, activation_layer):
        super().__init__(width_in, width_out, 3, 2, norm_layer=norm_layer, activation_layer=activation_layer)


class BottleneckTransform(nn.Sequential):
    """1 x 1, 3 x 3 in groups, the weighing of channels, and 1 x 1."""

    def __init__(self, width_in, width_out, stride, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio):
        inner = int(round(width_out * bottleneck_multiplier))
        unit = functools.partial(Conv2dNormActivation, norm_layer=norm_layer)
        layers = OrderedDict(a=unit(width_in, inner, 1, 1, activation_layer=activation_layer))
        layers["b"] = unit(inner, inner, 3, stride, groups=inner // group_width, activation_layer=activation_layer)
        if se_ratio:
            layers["se"] = SqueezeExcitation(inner, int(round(se_ratio * width_in)), activation=activation_layer)
        layers["c"] = unit(inner, width_out, 1, 1, activation_layer=None)
        super().__init__(layers)


class ResBottleneckBlock(nn.Module):
    """A bottleneck, and its input added."""

    def __init__(self, width_in, width_out, stride, norm_layer, activation_layer, group_width=1, bottleneck_multiplier=1.0, se_ratio=None):
        super().__init__()
        self.proj = None
        if width_in != width_out or stride != 1:
            self.proj = Conv2dNormActivation(width_in, width_out, 1, stride, norm_layer=norm_layer, activation_layer=None)
        self.f = BottleneckTransform(
            width_in, width_out, stride, norm_layer, activation_layer, group_width, bottleneck_multiplier, se_ratio
        )
        self.activation = activation_layer(inplace=True)

    def forward(self, x):
        return self.activation((x if self.proj is None else self.proj(x)) + self.f(x))


class AnyStage(nn.Sequential):
    """Blocks of one width, the first of which halves the picture."""

    def __init__(
        self,
        width_in,
        width_out,
        stride,
        depth,
        block_constructor,
        norm_layer,
        activation_layer,
        group_width,
        bottleneck_multiplier,
        se_ratio=None,
        stage_index=0,
    ):
        super().__init__()
        for index in range(depth):
            first = index == 0
            block = block_constructor(
                width_in if first else width_out,
                width_out,
                stride if first else 1,
                norm_layer,
                activation_layer,
                group_width,
                bottleneck_multiplier,
                se_ratio,
            )
            self.add_module(f"block{stage_index}-{index}", block)


class BlockParams:
    """What the stages are: depths, widths, widths of groups, bottlenecks, strides, and the part of channels that weigh."""

    def __init__(self, depths, widths, group_widths, bottleneck_multipliers, strides, se_ratio=None):
        self.depths, self.widths, self.group_widths = depths, widths, group_widths
        self.bottleneck_multipliers, self.strides, self.se_ratio = bottleneck_multipliers, strides, se_ratio

    @classmethod
    def from_init_params(cls, depth, w_0, w_a, w_m, group_width, bottleneck_multiplier=1.0, se_ratio=None, **options):
        """Widths near w_0 + w_a * block, each w_0 times a power of w_m, in multiples of 8."""
        if w_a < 0 or w_0 <= 0 or w_m <= 1 or w_0 % 8 != 0:
            raise ValueError("Invalid RegNet settings")
        powers = [round(math.log((w_0 + w_a * block) / w_0) / math.log(w_m)) for block in range(depth)]
        of_blocks = [int(round(w_0 * w_m**power / 8) * 8) for power in powers]
        widths, depths = sorted(set(of_blocks)), []
        for width in widths:
            depths.append(of_blocks.count(width))
        groups = [min(group_width, int(width * bottleneck_multiplier)) for width in widths]
        inner = [make_divisible(int(width * bottleneck_multiplier), group) for width, group in zip(widths, groups)]
        widths, count = [int(width / bottleneck_multiplier) for width in inner], len(widths)
        return cls(depths, widths, groups, [bottleneck_multiplier] * count, [2] * count, se_ratio)

    def _get_expanded_params(self):
        return zip(self.widths, self.strides, self.depths, self.group_widths, self.bottleneck_multipliers)


class RegNet(nn.Module):
    """A stem, four stages, and a linear layer.

    >>> from wisp.vision.models import regnet_y_400mf
    >>> regnet_y_400mf(num_classes=5).fc
    Linear(in_features=440, out_features=5, bias=True)
    """

    def __init__(self, block_params, num_classes=1000, stem_width=32, stem_type=None, block_type=None, norm_layer=None, activation=None):
        super().__init__()
        norm_layer, activation = norm_layer or nn.BatchNorm2d, activation or nn.ReLU
        self.stem = (stem_type or SimpleStemIN)(3, stem_width, norm_layer, activation)
        stages, width = [], stem_width
        for index, (wide, stride, depth, group, factor) in enumerate(block_params._get_expanded_params(), 1):
            stage = AnyStage(
                width,
                wide,
                stride,
                depth,
                block_type or ResBottleneckBlock,
                norm_layer,
                activation,
                group,
                factor,
                block_params.se_ratio,
                index,
            )
            stages.append((f"block{index}", stage))
            width = wide
        self.trunk_output = nn.Sequential(OrderedDict(stages))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, 0.0, math.sqrt(2.0 / (math.prod(module.kernel_size) * module.out_channels)))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.fc(self.avgpool(self.trunk_output(self.stem(x))).flatten(1))


def _regnet(num_classes=1000, stem_width=32, stem_type=None, block_type=None, norm_layer=None, activation=None, **given):
    # the norms of published weights were trained with these
    norm_layer = norm_layer or functools.partial(nn.BatchNorm2d, eps=1e-05, momentum=0.1)
    return RegNet(BlockParams.from_init_params(**given), num_classes, stem_width, stem_type, block_type, norm_layer, activation)


# the size: depth, w_0, w_a, w_m, width of groups, and the files of the two published weights
_Y = {
    "400MF": (16, 48, 27.89, 2.09, 8, "c65dace8", "e6988f5f"),
    "800MF": (14, 56, 38.84, 2.4, 16, "1b27b58c", "58fc7688"),
    "1_6GF": (27, 48, 20.71, 2.65, 24, "b11a554e", "0d7bc02a"),
    "3_2GF": (21, 80, 42.63, 2.66, 24, "b5a9779c", "9180c971"),
    "8GF": (17, 192, 76.82, 2.19, 56, "d0d0e4a8", "dc2b1b54"),
    "16GF": (18, 200, 106.23, 2.48, 112, "9e6ed7dd", "3e4a00f9"),
    "32GF": (20, 232, 115.89, 2.53, 232, "4dee3f7a", "8db6d4b5"),
    "128GF": (27, 456, 160.83, 2.52, 264),
}
_X = {
    "400MF": (22, 24, 24.48, 2.54, 16, "adf1edd5", "62229a5f"),
    "800MF": (16, 56, 35.73, 2.28, 16, "ad17e45c", "94a99ebd"),
    "1_6GF": (18, 80, 34.01, 2.25, 24, "e3633e7f", "a12f2b72"),
    "3_2GF": (25, 88, 26.31, 2.25, 48, "f342aeae", "7071aa85"),
    "8GF": (23, 80, 49.56, 2.88, 120, "03ceed89", "2b70d774"),
    "16GF": (22, 216, 55.59, 2.1, 128, "2007eb11", "ba3796d7"),
    "32GF": (23, 320, 69.86, 2.0, 168, "9d47f8d0", "6eb8fdc6"),
}
_SWAG = {"16GF": ("43afe44d", "f3ec0043"), "32GF": ("04fdfa75", "e1583746"), "128GF": ("c8ce3e52", "cbe8ce12")}  # of RegNetY
for _letter, _ratio, _sizes in (("Y", 0.25, _Y), ("X", None, _X)):
    for _size, (_depth, _w_0, _w_a, _w_m, _group, *_hashes) in _sizes.items():
        _name = f"regnet_{_letter}_{_size}".lower()
        _files = {f"IMAGENET1K_V{index}": f"{_name}-{text}.pth" for index, text in enumerate(_hashes, 1)}
        if _letter == "Y" and _size in _SWAG:
            _files["IMAGENET1K_SWAG_E2E_V1"] = Weights(f"{_name}_swag-{_SWAG[_size][0]}.pth", 384, 384)
            _files["IMAGENET1K_SWAG_LINEAR_V1"] = Weights(f"{_name}_lc_swag-{_SWAG[_size][1]}.pth", 224, 224)
        _default = "IMAGENET1K_V2" if _hashes else "IMAGENET1K_SWAG_E2E_V1"
        _kind = weights_of(f"RegNet_{_letter}_{_size}", _default, **_files)
        _given = {"depth": _depth, "w_0": _w_0, "w_a": _w_a, "w_m": _w_m, "group_width": _group, "se_ratio": _ratio}
        publish(globals(), _name, _kind, _regnet, **_given)
