"""ResNet, ResNeXt and Wide ResNet: blocks that add to their input."""

import wisp
from wisp import nn
from wisp.vision.models._api import publish, weights_of

__all__ = ["BasicBlock", "Bottleneck", "ResNet"]


def conv3x3(in_planes, out_planes, stride=1, groups=1, dilation=1):
    """A 3 x 3 convolution with padding, without bias."""
    return nn.Conv2d(in_planes, out_planes, 3, stride, dilation, dilation, groups, bias=False)


def conv1x1(in_planes, out_planes, stride=1):
    """A 1 x 1 convolution, without bias."""
    return nn.Conv2d(in_planes, out_planes, 1, stride, bias=False)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, and the input added."""

    expansion = 1

    def __init__(self, inplanes, planes, stride=1, downsample=None, groups=1, base_width=64, dilation=1, norm_layer=None):
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        self.conv1, self.bn1 = conv3x3(inplanes, planes, stride), norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), norm_layer(planes)
        self.downsample, self.stride = downsample, stride

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions, and the input added; the stride is in the 3 x 3."""

    expansion = 4

    def __init__(self, inplanes, planes, stride=1, downsample=None, groups=1, base_width=64, dilation=1, norm_layer=None):
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1, self.bn1 = conv1x1(inplanes, width), norm_layer(width)
        self.conv2, self.bn2 = conv3x3(width, width, stride, groups, dilation), norm_layer(width)
        self.conv3, self.bn3 = conv1x1(width, planes * self.expansion), norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample, self.stride = downsample, stride

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Four groups of blocks.

    >>> import wisp
    >>> from wisp.vision.models import resnet18
    >>> resnet18(num_classes=10).eval()(wisp.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """

    def __init__(
        self,
        block,
        layers,
        num_classes=1000,
        zero_init_residual=False,
        groups=1,
        width_per_group=64,
        replace_stride_with_dilation=None,
        norm_layer=None,
    ):
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 64, 1, groups, width_per_group
        dilate = [False] * 3 if replace_stride_with_dilation is None else replace_stride_with_dilation
        if len(dilate) != 3:
            raise ValueError(f"replace_stride_with_dilation should be None or a 3-element tuple, got {dilate}")
        self.conv1 = nn.Conv2d(3, self.inplanes, 7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(self.inplanes)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
        if zero_init_residual:
            for module in self.modules():
                if isinstance(module, Bottleneck):
                    nn.init.zeros_(module.bn3.weight)
                elif isinstance(module, BasicBlock):
                    nn.init.zeros_(module.bn2.weight)

    def _make_layer(self, block, planes, blocks, stride=1, dilate=False):
        norm, downsample, before = self._norm_layer, None, self.dilation
        if dilate:
            self.dilation, stride = self.dilation * stride, 1
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(conv1x1(self.inplanes, planes * block.expansion, stride), norm(planes * block.expansion))
        layers = [block(self.inplanes, planes, stride, downsample, self.groups, self.base_width, before, norm)]
        self.inplanes = planes * block.expansion
        layers += [
            block(self.inplanes, planes, groups=self.groups, base_width=self.base_width, dilation=self.dilation, norm_layer=norm)
            for _ in range(1, blocks)
        ]
        return nn.Sequential(*layers)

    def _forward_impl(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(wisp.flatten(self.avgpool(x), 1))

    def forward(self, x):
        return self._forward_impl(x)


# name: (class of the weights, block, blocks, arguments, the digests in the names of the files)
_ALL = {
    "resnet18": ("ResNet18", BasicBlock, [2, 2, 2, 2], {}, "f37072fd"),
    "resnet34": ("ResNet34", BasicBlock, [3, 4, 6, 3], {}, "b627a593"),
    "resnet50": ("ResNet50", Bottleneck, [3, 4, 6, 3], {}, "0676ba61 11ad3fa6"),
    "resnet101": ("ResNet101", Bottleneck, [3, 4, 23, 3], {}, "63fe2227 cd907fc2"),
    "resnet152": ("ResNet152", Bottleneck, [3, 8, 36, 3], {}, "394f9c45 f82ba261"),
    "resnext50_32x4d": ("ResNeXt50_32X4D", Bottleneck, [3, 4, 6, 3], {"groups": 32, "width_per_group": 4}, "7cdf4587 1a0047aa"),
    "resnext101_32x8d": ("ResNeXt101_32X8D", Bottleneck, [3, 4, 23, 3], {"groups": 32, "width_per_group": 8}, "8ba56ff5 110c445d"),
    "resnext101_64x4d": ("ResNeXt101_64X4D", Bottleneck, [3, 4, 23, 3], {"groups": 64, "width_per_group": 4}, "173b62eb"),
    "wide_resnet50_2": ("Wide_ResNet50_2", Bottleneck, [3, 4, 6, 3], {"width_per_group": 128}, "95faca4d 9ba9bcbe"),
    "wide_resnet101_2": ("Wide_ResNet101_2", Bottleneck, [3, 4, 23, 3], {"width_per_group": 128}, "32ee1156 d733dc28"),
}


for _name, (_title, _block, _layers, _fixed, _digests) in _ALL.items():
    _files = {f"IMAGENET1K_V{version}": f"{_name}-{digest}.pth" for version, digest in enumerate(_digests.split(), 1)}
    publish(globals(), _name, weights_of(_title, **_files), ResNet, _block, _layers, **_fixed)
