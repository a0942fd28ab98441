"""GoogLeNet: convolutions of several sizes side by side."""

from collections import namedtuple

import wisp
from wisp import nn
from wisp.nn import functional as F
from wisp.vision.models._api import model, weights_of

__all__ = ["GoogLeNet", "GoogLeNetOutputs", "GoogLeNet_Weights", "googlenet"]
GoogLeNet_Weights = weights_of("GoogLeNet", IMAGENET1K_V1="googlenet-1378be20.pth")
GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
GoogLeNetOutputs.__doc__ = "What GoogLeNet returns while it trains: its scores, and those of the later and of the earlier branch."


class BasicConv2d(nn.Module):
    """A convolution, batch normalisation, ReLU."""

    def __init__(self, in_channels, out_channels, **options):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **options)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    """Four branches, joined by channels."""

    def __init__(self, in_channels, ch1x1, ch3x3red, ch3x3, ch5x5red, ch5x5, pool_proj):
        super().__init__()
        self.branch1 = BasicConv2d(in_channels, ch1x1, kernel_size=1)
        self.branch2 = nn.Sequential(
            BasicConv2d(in_channels, ch3x3red, kernel_size=1), BasicConv2d(ch3x3red, ch3x3, kernel_size=3, padding=1)
        )
        # the published weights have a 3 x 3 convolution here
        self.branch3 = nn.Sequential(
            BasicConv2d(in_channels, ch5x5red, kernel_size=1), BasicConv2d(ch5x5red, ch5x5, kernel_size=3, padding=1)
        )
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), BasicConv2d(in_channels, pool_proj, kernel_size=1))

    def forward(self, x):
        return wisp.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(nn.Module):
    """A classifier in the middle, for training."""

    def __init__(self, in_channels, num_classes, dropout=0.7):
        super().__init__()
        self.conv = BasicConv2d(in_channels, 128, kernel_size=1)
        self.fc1, self.fc2 = nn.Linear(2048, 1024), nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = wisp.flatten(self.conv(F.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(F.relu(self.fc1(x), inplace=True)))


class GoogLeNet(nn.Module):
    """GoogLeNet; in training with `aux_logits` it returns GoogLeNetOutputs."""

    def __init__(self, num_classes=1000, aux_logits=True, transform_input=False, init_weights=None, dropout=0.2, dropout_aux=0.7):
        super().__init__()
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = BasicConv2d(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.conv2 = BasicConv2d(64, 64, kernel_size=1)
        self.conv3 = BasicConv2d(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.inception3a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.maxpool3 = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.inception4a = Inception(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = Inception(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = Inception(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = Inception(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = Inception(528, 256, 160, 320, 32, 128, 128)
        self.maxpool4 = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.inception5a = Inception(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = Inception(832, 384, 192, 384, 48, 128, 128)
        self.aux1 = InceptionAux(512, num_classes, dropout_aux) if aux_logits else None
        self.aux2 = InceptionAux(528, num_classes, dropout_aux) if aux_logits else None
        self.avgpool, self.dropout, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Dropout(dropout), nn.Linear(1024, num_classes)
        if init_weights is None or init_weights:
            for module in self.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    nn.init.trunc_normal_(module.weight, 0.0, 0.01, -2, 2)

    def forward(self, x):
        if self.transform_input:
            x = transform_input(x)
        x = self.maxpool2(self.conv3(self.conv2(self.maxpool1(self.conv1(x)))))
        x = self.inception4a(self.maxpool3(self.inception3b(self.inception3a(x))))
        training = self.training and self.aux_logits
        aux1 = self.aux1(x) if training else None
        x = self.inception4d(self.inception4c(self.inception4b(x)))
        aux2 = self.aux2(x) if training else None
        x = self.inception5b(self.inception5a(self.maxpool4(self.inception4e(x))))
        x = self.fc(self.dropout(wisp.flatten(self.avgpool(x), 1)))
        return GoogLeNetOutputs(x, aux2, aux1) if training else x


def transform_input(x):
    """From ImageNet's normalisation to the one of -1 to 1 that the first published weights expect."""
    shift = wisp.tensor([(0.485 - 0.5) / 0.5, (0.456 - 0.5) / 0.5, (0.406 - 0.5) / 0.5]).reshape(1, 3, 1, 1)
    return x * wisp.tensor([0.229 / 0.5, 0.224 / 0.5, 0.225 / 0.5]).reshape(1, 3, 1, 1) + shift


@model(GoogLeNet_Weights, fitting={"transform_input": True, "aux_logits": True, "init_weights": False})
def googlenet(**options):
    """GoogLeNet."""
    return GoogLeNet(**options)
