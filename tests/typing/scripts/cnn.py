"""A convolutional network with residual blocks, and what transfer learning does with its parts."""

import wisp as torch
import wisp.nn as nn
import wisp.nn.functional as F
import wisp.optim as optim
from wisp import Tensor


class ResidualBlock(nn.Module):
    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity() if stride == 1 else nn.AvgPool2d(1, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class Net(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.pool = nn.MaxPool2d(2, 2)
        self.blocks = nn.Sequential(ResidualBlock(6), ResidualBlock(6, stride=2))
        self.head = nn.AdaptiveAvgPool2d((1, 1))
        self.fc1 = nn.Linear(6, 84)
        self.fc = nn.Linear(84, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(x)))
        x = self.blocks(x)
        x = torch.flatten(self.head(x), 1)
        x = F.dropout(F.relu(self.fc1(x)), p=0.5, training=self.training)
        return F.log_softmax(self.fc(x), dim=1)


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01)
    inputs, labels = torch.randn(8, 3, 32, 32), torch.randint(10, (8,))
    running_loss = 0.0
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        outputs = net(inputs)
        loss = F.nll_loss(outputs, labels, reduction="mean")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        optimizer.step()
        running_loss += loss.item()
    values, predicted = torch.max(net(inputs), 1)
    print(running_loss, (predicted == labels).sum().item(), values.mean().item())

    for param in net.parameters():
        param.requires_grad = False
    net.fc = nn.Linear(net.fc.in_features, 2)
    optimizer = optim.AdamW([{"params": net.fc.parameters(), "lr": 1e-2}], lr=1e-3)
    x = F.interpolate(inputs, scale_factor=0.5, mode="bilinear", align_corners=False)
    x = F.pad(x, (1, 1, 1, 1))
    pooled, indices = F.max_pool2d(x, 2, return_indices=True)
    print(net(x).shape, pooled.shape, F.max_unpool2d(pooled, indices, 2).size(-1), inputs.permute(0, 2, 3, 1).contiguous().shape)


if __name__ == "__main__":
    main()
