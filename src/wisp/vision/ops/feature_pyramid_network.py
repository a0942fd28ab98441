"""Feature pyramids: the levels of a backbone, each with what the deeper ones know."""

from collections import OrderedDict

from wisp import nn
from wisp.nn import functional as F
from wisp.vision.ops.layers import Conv2dNormActivation

__all__ = ["ExtraFPNBlock", "FeaturePyramidNetwork", "LastLevelMaxPool", "LastLevelP6P7"]


class ExtraFPNBlock(nn.Module):
    """The base class of blocks that add levels: (results, inputs, names) -> (results, names)."""

    def forward(self, results, x, names):
        raise NotImplementedError(f"{type(self).__name__} has no forward")


class LastLevelMaxPool(ExtraFPNBlock):
    """One level more: every second place of the last."""

    def forward(self, x, y, names):
        return [*x, F.max_pool2d(x[-1], 1, 2)], [*names, "pool"]


class LastLevelP6P7(ExtraFPNBlock):
    """Two levels more, by convolutions."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.p6 = nn.Conv2d(in_channels, out_channels, 3, 2, 1)
        self.p7 = nn.Conv2d(out_channels, out_channels, 3, 2, 1)
        for module in (self.p6, self.p7):
            nn.init.kaiming_uniform_(module.weight, a=1)
            nn.init.zeros_(module.bias)
        self.use_P5 = in_channels == out_channels

    def forward(self, p, c, names):
        p6 = self.p6(p[-1] if self.use_P5 else c[-1])
        return [*p, p6, self.p7(F.relu(p6))], [*names, "p6", "p7"]


class FeaturePyramidNetwork(nn.Module):
    """Brings the levels of a backbone to `out_channels` and adds to each what the next deeper one knows.

    >>> import wisp
    >>> from wisp.vision.ops import FeaturePyramidNetwork
    >>> levels = {"a": wisp.rand(1, 8, 16, 16), "b": wisp.rand(1, 16, 8, 8)}
    >>> {name: tuple(level.shape) for name, level in FeaturePyramidNetwork([8, 16], 4)(levels).items()}
    {'a': (1, 4, 16, 16), 'b': (1, 4, 8, 8)}
    """

    _version = 2

    def __init__(self, in_channels_list, out_channels, extra_blocks=None, norm_layer=None):
        super().__init__()
        if 0 in in_channels_list:
            raise ValueError("in_channels=0 is currently not supported")
        if extra_blocks is not None and not isinstance(extra_blocks, ExtraFPNBlock):
            raise TypeError(f"extra_blocks should be of type ExtraFPNBlock not {type(extra_blocks)}")

        def blocks(kernel):
            return nn.ModuleList(
                Conv2dNormActivation(
                    count if kernel == 1 else out_channels,
                    out_channels,
                    kernel,
                    padding=kernel // 2,
                    norm_layer=norm_layer,
                    activation_layer=None,
                )
                for count in in_channels_list
            )

        self.inner_blocks, self.layer_blocks = blocks(1), blocks(3)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, a=1)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.extra_blocks = extra_blocks

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        if (local_metadata.get("version") or 1) < 2:  # files from when a block was a convolution
            for kind in ("inner_blocks", "layer_blocks"):
                for place in range(len(self.inner_blocks)):
                    for part in ("weight", "bias"):
                        old = f"{prefix}{kind}.{place}.{part}"
                        if old in state_dict:
                            state_dict[f"{prefix}{kind}.{place}.0.{part}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x):
        names, x = list(x), list(x.values())
        inner = self.inner_blocks[-1](x[-1])
        results = [self.layer_blocks[-1](inner)]
        for place in range(len(x) - 2, -1, -1):
            lateral = self.inner_blocks[place](x[place])
            inner = lateral + F.interpolate(inner, size=lateral.shape[-2:], mode="nearest")
            results.insert(0, self.layer_blocks[place](inner))
        if self.extra_blocks is not None:
            results, names = self.extra_blocks(results, x, names)
        return OrderedDict(zip(names, results))
