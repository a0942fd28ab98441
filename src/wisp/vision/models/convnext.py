"""ConvNeXt: convolutions in the shape of a transformer."""

import functools

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import publish, weights_of
from wisp.vision.ops.layers import Conv2dNormActivation, Permute, StochasticDepth

__all__ = ["ConvNeXt"]


class LayerNorm2d(nn.LayerNorm):
    """Layer normalisation over the channels of pictures."""

    def forward(self, x):
        return F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """A 7 x 7 depthwise convolution, a norm, two linear layers over the channels; the input added."""

    def __init__(self, dim, layer_scale, stochastic_depth_prob, norm_layer=None):
        super().__init__()
        norm_layer = norm_layer or functools.partial(nn.LayerNorm, eps=1e-6)
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim),
            Permute([0, 2, 3, 1]),
            norm_layer(dim),
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
            Permute([0, 3, 1, 2]),
        )
        self.layer_scale = nn.Parameter(wisp.ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input):
        return self.stochastic_depth(self.layer_scale * self.block(input)) + input


class ConvNeXt(nn.Module):
    """Stages of (width, number of blocks), each half as large as the one before."""

    def __init__(self, block_setting, stochastic_depth_prob=0.0, layer_scale=1e-6, num_classes=1000, block=None, norm_layer=None):
        super().__init__()
        block, norm_layer = block or CNBlock, norm_layer or functools.partial(LayerNorm2d, eps=1e-6)
        first, total, done = block_setting[0][0], sum(count for _, count in block_setting), 0
        layers = [Conv2dNormActivation(3, first, 4, stride=4, padding=0, norm_layer=norm_layer, activation_layer=None, bias=True)]
        for index, (width, count) in enumerate(block_setting):
            stage = []
            for _ in range(count):
                stage.append(block(width, layer_scale, stochastic_depth_prob * done / (total - 1.0)))
                done += 1
            layers.append(nn.Sequential(*stage))
            if index + 1 < len(block_setting):
                layers.append(nn.Sequential(norm_layer(width), nn.Conv2d(width, block_setting[index + 1][0], 2, stride=2)))
        self.features, self.avgpool = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(1)
        last = block_setting[-1][0]
        self.classifier = nn.Sequential(norm_layer(last), nn.Flatten(1), nn.Linear(last, num_classes))
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)))


_ALL = {
    "tiny": ((96, 192, 384, 768), (3, 3, 9, 3), 0.1, "convnext_tiny-983f1562.pth"),
    "small": ((96, 192, 384, 768), (3, 3, 27, 3), 0.4, "convnext_small-0c510722.pth"),
    "base": ((128, 256, 512, 1024), (3, 3, 27, 3), 0.5, "convnext_base-6075fbad.pth"),
    "large": ((192, 384, 768, 1536), (3, 3, 27, 3), 0.5, "convnext_large-ea097f82.pth"),
}


for _size, (_widths, _counts, _depth, _file) in _ALL.items():
    _kind = weights_of(f"ConvNeXt_{_size.title()}", IMAGENET1K_V1=_file)
    publish(globals(), f"convnext_{_size}", _kind, ConvNeXt, list(zip(_widths, _counts)), stochastic_depth_prob=_depth)
