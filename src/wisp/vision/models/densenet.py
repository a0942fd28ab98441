"""DenseNet: each layer sees the results of all before it."""

import re

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.utils.checkpoint import checkpoint
from wisp.vision.models._api import publish, weights_of

__all__ = ["DenseNet"]


class _DenseLayer(nn.Module):
    def __init__(self, num_input_features, growth_rate, bn_size, drop_rate, memory_efficient=False):
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(num_input_features), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, bn_size * growth_rate, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(bn_size * growth_rate), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, 3, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = float(drop_rate), memory_efficient

    def _narrow(self, *features):
        return self.conv1(self.relu1(self.norm1(wisp.cat(features, 1))))

    def forward(self, input):
        features = [input] if isinstance(input, wisp.Tensor) else input
        if self.memory_efficient and any(part.requires_grad for part in features):
            narrow = checkpoint(self._narrow, *features, use_reentrant=False)
        else:
            narrow = self._narrow(*features)
        result = self.conv2(self.relu2(self.norm2(narrow)))
        return F.dropout(result, self.drop_rate, self.training) if self.drop_rate > 0 else result


class _DenseBlock(nn.ModuleDict):
    def __init__(self, num_layers, num_input_features, bn_size, growth_rate, drop_rate, memory_efficient=False):
        super().__init__()
        for index in range(num_layers):
            self.add_module(
                f"denselayer{index + 1}",
                _DenseLayer(num_input_features + index * growth_rate, growth_rate, bn_size, drop_rate, memory_efficient),
            )

    def forward(self, init_features):
        features = [init_features]
        for layer in self.values():
            features.append(layer(features))
        return wisp.cat(features, 1)


class _Transition(nn.Sequential):
    def __init__(self, num_input_features, num_output_features):
        super().__init__()
        self.norm, self.relu = nn.BatchNorm2d(num_input_features), nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(num_input_features, num_output_features, 1, bias=False)
        self.pool = nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """Dense blocks with transitions between them."""

    def __init__(
        self,
        growth_rate=32,
        block_config=(6, 12, 24, 16),
        num_init_features=64,
        bn_size=4,
        drop_rate=0,
        num_classes=1000,
        memory_efficient=False,
    ):
        super().__init__()
        self.features = nn.Sequential()
        for name, layer in (
            ("conv0", nn.Conv2d(3, num_init_features, 7, stride=2, padding=3, bias=False)),
            ("norm0", nn.BatchNorm2d(num_init_features)),
            ("relu0", nn.ReLU(inplace=True)),
            ("pool0", nn.MaxPool2d(3, 2, 1)),
        ):
            self.features.add_module(name, layer)
        width = num_init_features
        for index, count in enumerate(block_config):
            self.features.add_module(f"denseblock{index + 1}", _DenseBlock(count, width, bn_size, growth_rate, drop_rate, memory_efficient))
            width += count * growth_rate
            if index != len(block_config) - 1:
                self.features.add_module(f"transition{index + 1}", _Transition(width, width // 2))
                width //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x):
        features = F.relu(self.features(x), inplace=True)
        return self.classifier(wisp.flatten(F.adaptive_avg_pool2d(features, (1, 1)), 1))

    def load_state_dict(self, state_dict, *args, **options):
        # the oldest published files have names such as "norm.1.weight"
        old = re.compile(r"^(.*denselayer\d+\.(?:norm|relu|conv))\.((?:[12])\.(?:weight|bias|running_mean|running_var))$")
        return super().load_state_dict({old.sub(r"\1\2", key): value for key, value in state_dict.items()}, *args, **options)


_ALL = {
    121: (32, (6, 12, 24, 16), 64, "a639ec97"),
    161: (48, (6, 12, 36, 24), 96, "8d451a50"),
    169: (32, (6, 12, 32, 32), 64, "b2777c0a"),
    201: (32, (6, 12, 48, 32), 64, "c1103571"),
}


for _depth, (_growth, _blocks, _first, _digest) in _ALL.items():
    _kind = weights_of(f"DenseNet{_depth}", IMAGENET1K_V1=f"densenet{_depth}-{_digest}.pth")
    publish(globals(), f"densenet{_depth}", _kind, DenseNet, _growth, _blocks, _first)
