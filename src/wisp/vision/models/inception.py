"""Inception v3."""

from collections import namedtuple

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import Weights, model, weights_of
from wisp.vision.models.googlenet import BasicConv2d, transform_input

__all__ = ["Inception3", "InceptionOutputs", "Inception_V3_Weights", "inception_v3"]
Inception_V3_Weights = weights_of("Inception_V3", IMAGENET1K_V1=Weights("inception_v3_google-0cc3c7bd.pth", 299, 342))
InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])
InceptionOutputs.__doc__ = "What Inception returns while it trains: its scores, and those of the branch in the middle."


def _unit(inner, out, kernel, padding=0, stride=1):
    return BasicConv2d(inner, out, kernel_size=kernel, padding=padding, stride=stride)


class InceptionA(nn.Module):
    def __init__(self, in_channels, pool_features):
        super().__init__()
        self.branch1x1 = _unit(in_channels, 64, 1)
        self.branch5x5_1, self.branch5x5_2 = _unit(in_channels, 48, 1), _unit(48, 64, 5, 2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _unit(in_channels, 64, 1), _unit(64, 96, 3, 1)
        self.branch3x3dbl_3 = _unit(96, 96, 3, 1)
        self.branch_pool = _unit(in_channels, pool_features, 1)

    def forward(self, x):
        return wisp.cat(
            [
                self.branch1x1(x),
                self.branch5x5_2(self.branch5x5_1(x)),
                self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x))),
                self.branch_pool(F.avg_pool2d(x, 3, 1, 1)),
            ],
            1,
        )


class InceptionB(nn.Module):
    def __init__(self, in_channels):
        super().__init__()
        self.branch3x3 = _unit(in_channels, 384, 3, stride=2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _unit(in_channels, 64, 1), _unit(64, 96, 3, 1)
        self.branch3x3dbl_3 = _unit(96, 96, 3, stride=2)

    def forward(self, x):
        return wisp.cat([self.branch3x3(x), self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x))), F.max_pool2d(x, 3, 2)], 1)


class InceptionC(nn.Module):
    def __init__(self, in_channels, channels_7x7):
        super().__init__()
        c = channels_7x7
        self.branch1x1 = _unit(in_channels, 192, 1)
        self.branch7x7_1, self.branch7x7_2, self.branch7x7_3 = (
            _unit(in_channels, c, 1),
            _unit(c, c, (1, 7), (0, 3)),
            _unit(c, 192, (7, 1), (3, 0)),
        )
        self.branch7x7dbl_1, self.branch7x7dbl_2, self.branch7x7dbl_3 = (
            _unit(in_channels, c, 1),
            _unit(c, c, (7, 1), (3, 0)),
            _unit(c, c, (1, 7), (0, 3)),
        )
        self.branch7x7dbl_4, self.branch7x7dbl_5 = _unit(c, c, (7, 1), (3, 0)), _unit(c, 192, (1, 7), (0, 3))
        self.branch_pool = _unit(in_channels, 192, 1)

    def forward(self, x):
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        return wisp.cat(
            [
                self.branch1x1(x),
                self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x))),
                self.branch7x7dbl_5(self.branch7x7dbl_4(double)),
                self.branch_pool(F.avg_pool2d(x, 3, 1, 1)),
            ],
            1,
        )


class InceptionD(nn.Module):
    def __init__(self, in_channels):
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = _unit(in_channels, 192, 1), _unit(192, 320, 3, stride=2)
        self.branch7x7x3_1, self.branch7x7x3_2 = _unit(in_channels, 192, 1), _unit(192, 192, (1, 7), (0, 3))
        self.branch7x7x3_3, self.branch7x7x3_4 = _unit(192, 192, (7, 1), (3, 0)), _unit(192, 192, 3, stride=2)

    def forward(self, x):
        seven = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return wisp.cat([self.branch3x3_2(self.branch3x3_1(x)), seven, F.max_pool2d(x, 3, 2)], 1)


class InceptionE(nn.Module):
    def __init__(self, in_channels):
        super().__init__()
        self.branch1x1 = _unit(in_channels, 320, 1)
        self.branch3x3_1 = _unit(in_channels, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = _unit(384, 384, (1, 3), (0, 1)), _unit(384, 384, (3, 1), (1, 0))
        self.branch3x3dbl_1, self.branch3x3dbl_2 = _unit(in_channels, 448, 1), _unit(448, 384, 3, 1)
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = _unit(384, 384, (1, 3), (0, 1)), _unit(384, 384, (3, 1), (1, 0))
        self.branch_pool = _unit(in_channels, 192, 1)

    def forward(self, x):
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        return wisp.cat(
            [
                self.branch1x1(x),
                self.branch3x3_2a(three),
                self.branch3x3_2b(three),
                self.branch3x3dbl_3a(double),
                self.branch3x3dbl_3b(double),
                self.branch_pool(F.avg_pool2d(x, 3, 1, 1)),
            ],
            1,
        )


class InceptionAux(nn.Module):
    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.conv0, self.conv1 = _unit(in_channels, 128, 1), _unit(128, 768, 5)
        self.conv1.stddev = 0.01
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x):
        x = self.conv1(self.conv0(F.avg_pool2d(x, 5, 3)))
        return self.fc(wisp.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class Inception3(nn.Module):
    """Inception v3 for pictures of 299 x 299; in training with `aux_logits` it returns InceptionOutputs."""

    def __init__(self, num_classes=1000, aux_logits=True, transform_input=False, inception_blocks=None, init_weights=None, dropout=0.5):
        super().__init__()
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3, self.Conv2d_2a_3x3 = _unit(3, 32, 3, stride=2), _unit(32, 32, 3)
        self.Conv2d_2b_3x3, self.maxpool1 = _unit(32, 64, 3, 1), nn.MaxPool2d(3, 2)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = _unit(64, 80, 1), _unit(80, 192, 3)
        self.maxpool2 = nn.MaxPool2d(3, 2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = InceptionA(192, 32), InceptionA(256, 64), InceptionA(288, 64)
        self.Mixed_6a, self.Mixed_6b, self.Mixed_6c = InceptionB(288), InceptionC(768, 128), InceptionC(768, 160)
        self.Mixed_6d, self.Mixed_6e = InceptionC(768, 160), InceptionC(768, 192)
        self.AuxLogits = InceptionAux(768, num_classes) if aux_logits else None
        self.Mixed_7a, self.Mixed_7b, self.Mixed_7c = InceptionD(768), InceptionE(1280), InceptionE(2048)
        self.avgpool, self.dropout, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(dropout), nn.Linear(2048, num_classes)
        if init_weights is None or init_weights:
            for module in self.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    nn.init.trunc_normal_(module.weight, 0.0, float(getattr(module, "stddev", 0.1)), -2, 2)

    def forward(self, x):
        x = transform_input(x) if self.transform_input else x
        x = self.maxpool1(self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x))))
        x = self.maxpool2(self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(x)))
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        training = self.training and self.aux_logits
        aux = self.AuxLogits(x) if training else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        x = self.fc(wisp.flatten(self.dropout(self.avgpool(x)), 1))
        return InceptionOutputs(x, aux) if training else x


@model(Inception_V3_Weights, fitting={"transform_input": True, "aux_logits": True, "init_weights": False})
def inception_v3(**options):
    """Inception v3."""
    return Inception3(**options)
