"""ResNets of films: 3D convolutions (`r3d_18`), mixed ones (`mc3_18`), and space and time apart (`r2plus1d_18`)."""

from wisp import nn
from wisp.vision.models._api import Weights, publish, weights_of

__all__ = ["VideoResNet"]


class Conv3DSimple(nn.Conv3d):
    """A 3 x 3 x 3 convolution."""

    def __init__(self, in_planes, out_planes, midplanes=None, stride=1, padding=1):
        super().__init__(in_planes, out_planes, (3, 3, 3), stride, padding, bias=False)

    @staticmethod
    def get_downsample_stride(stride):
        """The strides of the convolution beside a block."""
        return stride, stride, stride


class Conv2Plus1D(nn.Sequential):
    """A convolution of each picture, and one along time."""

    get_downsample_stride = Conv3DSimple.get_downsample_stride

    def __init__(self, in_planes, out_planes, midplanes, stride=1, padding=1):
        super().__init__(
            nn.Conv3d(in_planes, midplanes, (1, 3, 3), (1, stride, stride), (0, padding, padding), bias=False),
            nn.BatchNorm3d(midplanes),
            nn.ReLU(inplace=True),
            nn.Conv3d(midplanes, out_planes, (3, 1, 1), (stride, 1, 1), (padding, 0, 0), bias=False),
        )


class Conv3DNoTemporal(nn.Conv3d):
    """A convolution of each picture."""

    def __init__(self, in_planes, out_planes, midplanes=None, stride=1, padding=1):
        super().__init__(in_planes, out_planes, (1, 3, 3), (1, stride, stride), (0, padding, padding), bias=False)

    @staticmethod
    def get_downsample_stride(stride):
        """The strides of the convolution beside a block."""
        return 1, stride, stride


def _between(inplanes, planes):
    """The width between space and time with which a block has as many weights as one of 3 x 3 x 3."""
    return (inplanes * planes * 27) // (inplanes * 9 + 3 * planes)


class BasicBlock(nn.Module):
    """Two convolutions, and the input added."""

    expansion = 1

    def __init__(self, inplanes, planes, conv_builder, stride=1, downsample=None):
        super().__init__()
        middle = _between(inplanes, planes)
        self.conv1 = nn.Sequential(conv_builder(inplanes, planes, middle, stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True))
        self.conv2 = nn.Sequential(conv_builder(planes, planes, middle), nn.BatchNorm3d(planes))
        self.relu, self.downsample, self.stride = nn.ReLU(inplace=True), downsample, stride

    def forward(self, x):
        return self.relu(self.conv2(self.conv1(x)) + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1 x 1 x 1, the convolution, and 1 x 1 x 1; the input added."""

    expansion = 4

    def __init__(self, inplanes, planes, conv_builder, stride=1, downsample=None):
        super().__init__()
        wide = planes * self.expansion
        self.conv1 = nn.Sequential(nn.Conv3d(inplanes, planes, 1, bias=False), nn.BatchNorm3d(planes), nn.ReLU(inplace=True))
        self.conv2 = nn.Sequential(
            conv_builder(planes, planes, _between(inplanes, planes), stride), nn.BatchNorm3d(planes), nn.ReLU(inplace=True)
        )
        self.conv3 = nn.Sequential(nn.Conv3d(planes, wide, 1, bias=False), nn.BatchNorm3d(wide))
        self.relu, self.downsample, self.stride = nn.ReLU(inplace=True), downsample, stride

    def forward(self, x):
        return self.relu(self.conv3(self.conv2(self.conv1(x))) + (x if self.downsample is None else self.downsample(x)))


class BasicStem(nn.Sequential):
    """The first layers."""

    def __init__(self):
        super().__init__(nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(64), nn.ReLU(inplace=True))


class R2Plus1dStem(nn.Sequential):
    """The first layers, space and time apart."""

    def __init__(self):
        super().__init__(
            nn.Conv3d(3, 45, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False),
            nn.BatchNorm3d(45),
            nn.ReLU(inplace=True),
            nn.Conv3d(45, 64, (3, 1, 1), 1, (1, 0, 0), bias=False),
            nn.BatchNorm3d(64),
            nn.ReLU(inplace=True),
        )


class VideoResNet(nn.Module):
    """Four stages of blocks on films of [batch, 3, time, height, width]; `conv_makers` has a kind of convolution for each.

    >>> from wisp.vision.models.video import r3d_18
    >>> r3d_18(num_classes=5).fc
    Linear(in_features=512, out_features=5, bias=True)
    """

    def __init__(self, block, conv_makers, layers, stem, num_classes=400, zero_init_residual=False):
        super().__init__()
        self.inplanes, self.stem = 64, stem()
        for index, (planes, convolution, count) in enumerate(zip((64, 128, 256, 512), conv_makers, layers)):
            setattr(self, f"layer{index + 1}", self._make_layer(block, convolution, planes, count, 1 if index == 0 else 2))
        self.avgpool, self.fc = nn.AdaptiveAvgPool3d((1, 1, 1)), nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv3d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0, 0.01)
                nn.init.zeros_(module.bias)
            elif isinstance(module, Bottleneck) and zero_init_residual:
                nn.init.zeros_(module.conv3[1].weight)

    def _make_layer(self, block, convolution, planes, count, stride):
        wide, beside = planes * block.expansion, None
        if stride != 1 or self.inplanes != wide:
            strides = convolution.get_downsample_stride(stride)
            beside = nn.Sequential(nn.Conv3d(self.inplanes, wide, 1, strides, bias=False), nn.BatchNorm3d(wide))
        first = block(self.inplanes, planes, convolution, stride, beside)
        self.inplanes = wide
        return nn.Sequential(first, *(block(wide, planes, convolution) for _ in range(count - 1)))

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(self.avgpool(x).flatten(1))


for _title, _file, _makers, _stem in (
    ("R3D_18", "r3d_18-b3b3357e.pth", [Conv3DSimple] * 4, BasicStem),
    ("MC3_18", "mc3_18-a90a0ba3.pth", [Conv3DSimple] + [Conv3DNoTemporal] * 3, BasicStem),
    ("R2Plus1D_18", "r2plus1d_18-91a641e6.pth", [Conv2Plus1D] * 4, R2Plus1dStem),
):
    _weights = weights_of(_title, KINETICS400_V1=Weights(_file, (112, 112), (128, 171)))
    publish(globals(), _title.lower(), _weights, VideoResNet, BasicBlock, _makers, [2, 2, 2, 2], _stem, fitting={"num_classes": 400})
