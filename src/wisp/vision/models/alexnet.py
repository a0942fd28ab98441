"""LeNet-5 and AlexNet."""

import wisp
from wisp import nn
from wisp.vision.models._api import model, weights_of

__all__ = ["AlexNet", "AlexNet_Weights", "LeNet", "alexnet", "lenet"]
AlexNet_Weights = weights_of("AlexNet", IMAGENET1K_V1="alexnet-owt-7be5be79.pth")


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max pooling, for pictures of 32 x 32 (or 28 x 28 with `padding=2`).

    >>> import wisp
    >>> from wisp.vision.models import lenet
    >>> lenet()(wisp.zeros(1, 1, 32, 32)).shape
    torch.Size([1, 10])
    """

    def __init__(self, num_classes=10, in_channels=1, padding=0):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, 6, 5, padding=padding)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
        x = self.fc1(wisp.flatten(x, 1)).relu()
        return self.fc3(self.fc2(x).relu())


class AlexNet(nn.Module):
    """AlexNet, in the form of "One weird trick"."""

    def __init__(self, num_classes=1000, dropout=0.5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x):
        return self.classifier(wisp.flatten(self.avgpool(self.features(x)), 1))


@model()
def lenet(**options):
    """LeNet-5."""
    return LeNet(**options)


@model(AlexNet_Weights)
def alexnet(**options):
    """AlexNet."""
    return AlexNet(**options)
