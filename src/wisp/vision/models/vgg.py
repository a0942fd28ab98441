"""VGG: stacks of 3 x 3 convolutions."""

import wisp
from wisp import nn
from wisp.vision.models._api import publish, weights_of

__all__ = ["VGG"]

# channels of the convolutions; M is a pooling
_PLANS = {
    11: "64 M 128 M 256 256 M 512 512 M 512 512 M",
    13: "64 64 M 128 128 M 256 256 M 512 512 M 512 512 M",
    16: "64 64 M 128 128 M 256 256 256 M 512 512 512 M 512 512 512 M",
    19: "64 64 M 128 128 M 256 256 256 256 M 512 512 512 512 M 512 512 512 512 M",
}
_FILES = {
    "11": "8a719046",
    "11_bn": "6002323d",
    "13": "19584684",
    "13_bn": "abd245e5",
    "16": "397923af",
    "16_bn": "6c64b313",
    "19": "dcbb9e9d",
    "19_bn": "c79401a0",
}


def make_layers(depth, batch_norm=False):
    """The convolutions of a VGG of the given depth."""
    layers, channels = [], 3
    for word in _PLANS[depth].split():
        if word == "M":
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers.append(nn.Conv2d(channels, int(word), 3, padding=1))
        channels = int(word)
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)] if batch_norm else [nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class VGG(nn.Module):
    """Convolutions (`features`), then three linear layers (`classifier`)."""

    def __init__(self, features, num_classes=1000, init_weights=True, dropout=0.5):
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                    nn.init.zeros_(module.bias)
                elif isinstance(module, nn.Linear):
                    nn.init.normal_(module.weight, 0, 0.01)
                    nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.classifier(wisp.flatten(self.avgpool(self.features(x)), 1))


def _with_layers(depth, batch_norm, **options):
    return VGG(make_layers(depth, batch_norm), **options)


for _depth in _PLANS:
    for _norm in (False, True):
        _suffix = f"{_depth}_bn" if _norm else str(_depth)
        _kind = weights_of(f"VGG{_suffix.upper()}", IMAGENET1K_V1=f"vgg{_suffix}-{_FILES[_suffix]}.pth")
        publish(globals(), f"vgg{_suffix}", _kind, _with_layers, _depth, _norm, fitting={"init_weights": False})
