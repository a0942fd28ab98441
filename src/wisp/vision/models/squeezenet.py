"""SqueezeNet: few parameters, by narrow layers between wide ones."""

import wisp
from wisp import nn
from wisp.vision.models._api import model, weights_of

__all__ = ["SqueezeNet", "SqueezeNet1_0_Weights", "SqueezeNet1_1_Weights", "squeezenet1_0", "squeezenet1_1"]
SqueezeNet1_0_Weights = weights_of("SqueezeNet1_0", IMAGENET1K_V1="squeezenet1_0-b66bff10.pth")
SqueezeNet1_1_Weights = weights_of("SqueezeNet1_1", IMAGENET1K_V1="squeezenet1_1-b8a52dc0.pth")


class Fire(nn.Module):
    """A narrow 1 x 1 convolution, then wide 1 x 1 and 3 x 3 ones side by side."""

    def __init__(self, inplanes, squeeze_planes, expand1x1_planes, expand3x3_planes):
        super().__init__()
        self.inplanes = inplanes
        self.squeeze, self.squeeze_activation = nn.Conv2d(inplanes, squeeze_planes, 1), nn.ReLU(inplace=True)
        self.expand1x1, self.expand1x1_activation = nn.Conv2d(squeeze_planes, expand1x1_planes, 1), nn.ReLU(inplace=True)
        self.expand3x3, self.expand3x3_activation = nn.Conv2d(squeeze_planes, expand3x3_planes, 3, padding=1), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.squeeze_activation(self.squeeze(x))
        return wisp.cat([self.expand1x1_activation(self.expand1x1(x)), self.expand3x3_activation(self.expand3x3(x))], 1)


class SqueezeNet(nn.Module):
    """SqueezeNet of version "1_0" or "1_1"."""

    def __init__(self, version="1_0", num_classes=1000, dropout=0.5):
        super().__init__()
        self.num_classes = num_classes
        pool = lambda: nn.MaxPool2d(3, 2, ceil_mode=True)
        fires = [
            Fire(inner, squeeze, squeeze * 4, squeeze * 4)
            for inner, squeeze in (
                (96 if version == "1_0" else 64, 16),
                (128, 16),
                (128, 32),
                (256, 32),
                (256, 48),
                (384, 48),
                (384, 64),
                (512, 64),
            )
        ]
        if version == "1_0":
            layers = [nn.Conv2d(3, 96, 7, stride=2), nn.ReLU(inplace=True), pool(), *fires[:3], pool(), *fires[3:7], pool(), fires[7]]
        elif version == "1_1":
            layers = [nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(inplace=True), pool(), *fires[:2], pool(), *fires[2:4], pool(), *fires[4:]]
        else:
            raise ValueError(f"Unsupported SqueezeNet version {version}: 1_0 or 1_1 expected")
        self.features = nn.Sequential(*layers)
        last = nn.Conv2d(512, num_classes, 1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if module is last:
                    nn.init.normal_(module.weight, 0.0, 0.01)
                else:
                    nn.init.kaiming_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x):
        return wisp.flatten(self.classifier(self.features(x)), 1)


@model(SqueezeNet1_0_Weights)
def squeezenet1_0(**options):
    """SqueezeNet 1.0."""
    return SqueezeNet("1_0", **options)


@model(SqueezeNet1_1_Weights)
def squeezenet1_1(**options):
    """SqueezeNet 1.1."""
    return SqueezeNet("1_1", **options)
