"""Swin Transformer: attention within windows that shift from block to block."""

import functools
import math

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import Weights, publish, weights_of
from wisp.vision.ops.layers import MLP, Permute, StochasticDepth

__all__ = ["SwinTransformer"]


class PatchMerging(nn.Module):
    """Four neighbours become one, with twice the channels."""

    def __init__(self, dim, norm_layer=nn.LayerNorm):
        super().__init__()
        self.dim = dim
        self.reduction, self.norm = nn.Linear(4 * dim, 2 * dim, bias=False), norm_layer(4 * dim)

    def _neighbours(self, x):
        height, width = x.shape[-3:-1]
        x = F.pad(x, (0, 0, 0, width % 2, 0, height % 2))
        return wisp.cat([x[..., row::2, column::2, :] for column in (0, 1) for row in (0, 1)], -1)

    def forward(self, x):
        return self.reduction(self.norm(self._neighbours(x)))


class PatchMergingV2(PatchMerging):
    """As above, the norm after the reduction."""

    def __init__(self, dim, norm_layer=nn.LayerNorm):
        super().__init__(dim, norm_layer)
        self.norm = norm_layer(2 * dim)

    def forward(self, x):
        return self.norm(self.reduction(self._neighbours(x)))


class ShiftedWindowAttention(nn.Module):
    """Attention within windows of the picture, which may be shifted."""

    _is_leaf_of_traces = True  # what it does depends on the size of the picture

    def __init__(self, dim, window_size, shift_size, num_heads, qkv_bias=True, proj_bias=True, attention_dropout=0.0, dropout=0.0):
        super().__init__()
        self.window_size, self.shift_size, self.num_heads = window_size, shift_size, num_heads
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.qkv, self.proj = nn.Linear(dim, dim * 3, bias=qkv_bias), nn.Linear(dim, dim, bias=proj_bias)
        self._make_bias()
        rows, columns = window_size
        places = wisp.stack(wisp.meshgrid(wisp.arange(rows), wisp.arange(columns), indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None, :]).permute(1, 2, 0)
        self.register_buffer(
            "relative_position_index", ((apart[..., 0] + rows - 1) * (2 * columns - 1) + apart[..., 1] + columns - 1).flatten()
        )

    def _make_bias(self):
        rows, columns = self.window_size
        self.relative_position_bias_table = nn.Parameter(wisp.zeros((2 * rows - 1) * (2 * columns - 1), self.num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def get_relative_position_bias(self):
        """What is added to the scores of two places of a window: [1, heads, size, size]."""
        size = math.prod(self.window_size)
        return self.relative_position_bias_table[self.relative_position_index].reshape(size, size, -1).permute(2, 0, 1).unsqueeze(0)

    def _scores(self, q, k):
        return (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)

    def _qkv(self, windows):
        return self.qkv(windows)

    def _windows(self, x, rows, columns):
        """[B, H, W, C] as [B * windows, rows * columns, C]."""
        batch, height, width, channels = x.shape
        x = x.reshape(batch, height // rows, rows, width // columns, columns, channels).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, rows * columns, channels)

    def _mask(self, height, width, rows, columns, shift):
        """Which places of a shifted window were neighbours before the shift."""
        regions = wisp.zeros(1, height, width, 1)
        number = 0
        for top in (slice(0, -rows), slice(-rows, -shift[0]), slice(-shift[0], None)) if shift[0] else (slice(None),):
            for left in (slice(0, -columns), slice(-columns, -shift[1]), slice(-shift[1], None)) if shift[1] else (slice(None),):
                regions[:, top, left] = number
                number += 1
        flat = self._windows(regions, rows, columns).squeeze(-1)
        return (flat[:, :, None] != flat[:, None, :]).float() * -100.0

    def forward(self, x):
        batch, true_height, true_width, channels = x.shape
        rows, columns = self.window_size
        x = F.pad(x, (0, 0, 0, -true_width % columns, 0, -true_height % rows))
        height, width = x.shape[1:3]
        shift = [0 if rows >= height else self.shift_size[0], 0 if columns >= width else self.shift_size[1]]
        if sum(shift):
            x = wisp.roll(x, (-shift[0], -shift[1]), (1, 2))
        windows = self._windows(x, rows, columns)
        size, heads = rows * columns, self.num_heads
        q, k, v = self._qkv(windows).reshape(-1, size, 3, heads, channels // heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = self._scores(q, k) + self.get_relative_position_bias()
        if sum(shift):
            mask = self._mask(height, width, rows, columns, shift)
            scores = (scores.reshape(batch, -1, heads, size, size) + mask[None, :, None]).reshape(-1, heads, size, size)
        scores = F.dropout(scores.softmax(-1), self.attention_dropout, self.training)
        out = F.dropout(self.proj((scores @ v).transpose(1, 2).reshape(-1, size, channels)), self.dropout, self.training)
        out = out.reshape(batch, height // rows, width // columns, rows, columns, channels).permute(0, 1, 3, 2, 4, 5)
        out = out.reshape(batch, height, width, channels)
        if sum(shift):
            out = wisp.roll(out, (shift[0], shift[1]), (1, 2))
        return out[:, :true_height, :true_width].contiguous()


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """Attention by the cosines of queries and keys; a small network tells the bias from how far two places are apart."""

    def __init__(self, dim, window_size, shift_size, num_heads, qkv_bias=True, proj_bias=True, attention_dropout=0.0, dropout=0.0):
        super().__init__(dim, window_size, shift_size, num_heads, qkv_bias, proj_bias, attention_dropout, dropout)
        self.logit_scale = nn.Parameter(wisp.log(10 * wisp.ones(num_heads, 1, 1)))
        self.cpb_mlp = nn.Sequential(nn.Linear(2, 512), nn.ReLU(inplace=True), nn.Linear(512, num_heads, bias=False))
        if qkv_bias:
            with wisp.no_grad():
                self.qkv.bias[dim : 2 * dim].zero_()

    def _make_bias(self):
        rows, columns = (wisp.arange(1 - size, size, dtype=wisp.float32) / (size - 1) * 8 for size in self.window_size)
        apart = wisp.stack(wisp.meshgrid(rows, columns, indexing="ij")).permute(1, 2, 0).unsqueeze(0)
        self.register_buffer("relative_coords_table", wisp.sign(apart) * wisp.log2(apart.abs() + 1.0) / 3.0)

    def get_relative_position_bias(self):
        """As above: between 0 and 16."""
        size = math.prod(self.window_size)
        table = self.cpb_mlp(self.relative_coords_table).reshape(-1, self.num_heads)
        return 16 * wisp.sigmoid(table[self.relative_position_index].reshape(size, size, -1).permute(2, 0, 1).unsqueeze(0))

    def _scores(self, q, k):
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1) * self.logit_scale.clamp(max=math.log(100.0)).exp()

    def _qkv(self, windows):
        bias = self.qkv.bias
        if bias is not None:  # keys have none
            dim = len(bias) // 3
            bias = wisp.cat([bias[:dim], wisp.zeros_like(bias[:dim]), bias[2 * dim :]])
        return F.linear(windows, self.qkv.weight, bias)


class SwinTransformerBlock(nn.Module):
    """Attention and MLP, each after a norm, each added to its input."""

    _attention = ShiftedWindowAttention

    def __init__(self, dim, num_heads, window_size, shift_size, mlp_ratio, dropout, attention_dropout, depth_prob, norm_layer):
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = self._attention(dim, window_size, shift_size, num_heads, attention_dropout=attention_dropout, dropout=dropout)
        self.stochastic_depth = StochasticDepth(depth_prob, "row")
        self.norm2 = norm_layer(dim)
        self.mlp = MLP(dim, [int(dim * mlp_ratio), dim], activation_layer=nn.GELU, inplace=None, dropout=dropout)
        for module in self.mlp.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=1e-6)

    def forward(self, x):
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class SwinTransformerBlockV2(SwinTransformerBlock):
    """Attention and MLP, each before a norm, each added to its input."""

    _attention = ShiftedWindowAttentionV2

    def forward(self, x):
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


class SwinTransformer(nn.Module):
    """Stages of blocks, each with half the size and twice the width of the one before."""

    def __init__(
        self,
        patch_size,
        embed_dim,
        depths,
        num_heads,
        window_size,
        mlp_ratio=4.0,
        dropout=0.0,
        attention_dropout=0.0,
        stochastic_depth_prob=0.1,
        num_classes=1000,
        norm_layer=None,
        block=None,
        downsample_layer=PatchMerging,
    ):
        super().__init__()
        self.num_classes, make_block = num_classes, block or SwinTransformerBlock
        norm_layer = norm_layer or functools.partial(nn.LayerNorm, eps=1e-5)
        layers = [
            nn.Sequential(nn.Conv2d(3, embed_dim, tuple(patch_size), tuple(patch_size)), Permute([0, 2, 3, 1]), norm_layer(embed_dim))
        ]
        total, done = sum(depths), 0
        for index, (depth, heads) in enumerate(zip(depths, num_heads)):
            width, stage = embed_dim * 2**index, []
            for block in range(depth):
                shift = [0 if block % 2 == 0 else size // 2 for size in window_size]
                stage.append(
                    make_block(
                        width,
                        heads,
                        window_size,
                        shift,
                        mlp_ratio,
                        dropout,
                        attention_dropout,
                        stochastic_depth_prob * done / (total - 1),
                        norm_layer,
                    )
                )
                done += 1
            layers.append(nn.Sequential(*stage))
            if index < len(depths) - 1:
                layers.append(downsample_layer(width, norm_layer))
        last = embed_dim * 2 ** (len(depths) - 1)
        self.features, self.norm, self.permute = nn.Sequential(*layers), norm_layer(last), Permute([0, 3, 1, 2])
        self.avgpool, self.flatten, self.head = nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(last, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.head(self.flatten(self.avgpool(self.permute(self.norm(self.features(x))))))


_ALL = {
    "t": (96, [2, 2, 6, 2], [3, 6, 12, 24], 0.2, "704ceda3", "b137f0e2"),
    "s": (96, [2, 2, 18, 2], [3, 6, 12, 24], 0.3, "5e29d889", "637d8ceb"),
    "b": (128, [2, 2, 18, 2], [4, 8, 16, 32], 0.5, "68c6b09e", "781e5279"),
}


for _size, (_width, _depths, _heads, _drop, *_hashes) in _ALL.items():
    for _version, _window, _parts in (("", 7, {}), ("v2_", 8, {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2})):
        _name, _edge = f"swin_{_version}{_size}", 272 if _size == "b" else 260
        _file = f"{_name}-{_hashes[bool(_version)]}.pth"
        _kind = weights_of(f"Swin_{_version}{_size}".title(), IMAGENET1K_V1=Weights(_file, 256, _edge) if _version else _file)
        _parts = {"stochastic_depth_prob": _drop, **_parts}
        publish(globals(), _name, _kind, SwinTransformer, [4, 4], _width, _depths, _heads, [_window] * 2, **_parts)
