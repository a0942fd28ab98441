"""Vision Transformer: a picture as a sequence of patches."""

import functools
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import wisp
from wisp import nn
from wisp.vision.models._api import publish, weights_of
from wisp.vision.ops.layers import MLP, Conv2dNormActivation

__all__ = ["VisionTransformer"]


class ConvStemConfig(NamedTuple):
    """One convolution of those that may stand in the place of the cut into patches."""

    out_channels: int
    kernel_size: int
    stride: int
    norm_layer: Callable = nn.BatchNorm2d
    activation_layer: Callable = nn.ReLU


class MLPBlock(MLP):
    """Two linear layers with GELU between them."""

    def __init__(self, in_dim, mlp_dim, dropout):
        super().__init__(in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Attention and MLP, each after a norm, each added to its input."""

    def __init__(self, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer):
        super().__init__()
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input):
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Places added, then blocks, then a norm."""

    def __init__(self, seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer):
        super().__init__()
        self.pos_embedding = nn.Parameter(wisp.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(
            OrderedDict(
                (f"encoder_layer_{index}", EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer))
                for index in range(num_layers)
            )
        )
        self.ln = norm_layer(hidden_dim)

    def forward(self, input):
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


def _stem(configs, hidden_dim):
    channels, layers = 3, nn.Sequential()
    for i, config in enumerate(configs):
        layer = Conv2dNormActivation(
            channels,
            config.out_channels,
            config.kernel_size,
            config.stride,
            norm_layer=config.norm_layer,
            activation_layer=config.activation_layer,
        )
        layers.add_module(f"conv_bn_relu_{i}", layer)
        channels = config.out_channels
    last = nn.Conv2d(channels, hidden_dim, 1)
    nn.init.normal_(last.weight, std=math.sqrt(2 / hidden_dim))
    nn.init.zeros_(last.bias)
    layers.add_module("conv_last", last)
    return layers


class VisionTransformer(nn.Module):
    """A transformer over the patches of a picture.

    >>> import wisp
    >>> from wisp.vision.models import VisionTransformer
    >>> VisionTransformer(8, 4, 1, 2, 16, 32, num_classes=3)(wisp.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        image_size,
        patch_size,
        num_layers,
        num_heads,
        hidden_dim,
        mlp_dim,
        dropout=0.0,
        attention_dropout=0.0,
        num_classes=1000,
        representation_size=None,
        norm_layer=functools.partial(nn.LayerNorm, eps=1e-6),
        conv_stem_configs=None,
    ):
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"Input shape indivisible by patch size! image_size={image_size}, patch_size={patch_size}")
        self.image_size, self.patch_size, self.hidden_dim, self.mlp_dim = image_size, patch_size, hidden_dim, mlp_dim
        self.attention_dropout, self.dropout, self.num_classes, self.representation_size = (
            attention_dropout,
            dropout,
            num_classes,
            representation_size,
        )
        self.conv_proj = (
            nn.Conv2d(3, hidden_dim, patch_size, patch_size) if conv_stem_configs is None else _stem(conv_stem_configs, hidden_dim)
        )
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(wisp.zeros(1, 1, hidden_dim))
        self.encoder = Encoder(self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer)
        if representation_size is None:
            layers = OrderedDict(head=nn.Linear(hidden_dim, num_classes))
        else:
            layers = OrderedDict(
                pre_logits=nn.Linear(hidden_dim, representation_size), act=nn.Tanh(), head=nn.Linear(representation_size, num_classes)
            )
        self.heads = nn.Sequential(layers)
        if conv_stem_configs is None:
            fan = self.conv_proj.in_channels * patch_size**2
            nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / fan))
            nn.init.zeros_(self.conv_proj.bias)
        if representation_size is not None:
            nn.init.trunc_normal_(self.heads.pre_logits.weight, std=math.sqrt(1 / hidden_dim))
            nn.init.zeros_(self.heads.pre_logits.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def _process_input(self, x):
        height, width = x.shape[-2], x.shape[-1]  # checks that torch.fx can write down
        wisp._assert(height == self.image_size, f"Wrong image height! Expected {self.image_size} but got {height}!")
        wisp._assert(width == self.image_size, f"Wrong image width! Expected {self.image_size} but got {width}!")
        return self.conv_proj(x).flatten(2).transpose(1, 2)

    def forward(self, x):
        x = self._process_input(x)
        x = wisp.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


# patch, layers, heads, width, inner width, file
_ALL = {
    "vit_b_16": (16, 12, 12, 768, 3072, "vit_b_16-c867db91.pth"),
    "vit_b_32": (32, 12, 12, 768, 3072, "vit_b_32-d86f8d99.pth"),
    "vit_l_16": (16, 24, 16, 1024, 4096, "vit_l_16-852ce7e3.pth"),
    "vit_l_32": (32, 24, 16, 1024, 4096, "vit_l_32-c7638314.pth"),
    "vit_h_14": (14, 32, 16, 1280, 5120, "vit_h_14_swag-80465313.pth"),
}


for _name, (*_numbers, _file) in _ALL.items():
    _version = "IMAGENET1K_SWAG_E2E_V1" if _name == "vit_h_14" else "IMAGENET1K_V1"
    _kind = weights_of("ViT_" + _name[4:].upper(), **{_version: _file})
    _sizes = dict(zip(("image_size", "patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim"), (224, *_numbers)))
    publish(globals(), _name, _kind, VisionTransformer, **_sizes)
