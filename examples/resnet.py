"""A small residual network learns to tell shapes apart.

    python examples/resnet.py

The images are made as they are needed: 20 x 20 pixels in colour, a disc, a ring, a square, a triangle or a cross of any colour, size,
position and angle, under noise. Of images that it has not seen, the network gets more than 95 % right. No image comes twice.
"""

import argparse

import wisp
from wisp import Tensor, nn, progress
from wisp.nn import functional as F

SHAPES = ["disc", "ring", "square", "triangle", "cross"]
SIZE = 20


def make_images(count: int) -> tuple[Tensor, Tensor]:
    """-> (images (count, 3, 20, 20), which of SHAPES each shows)."""
    label = wisp.randint(0, len(SHAPES), (count,))
    axis = wisp.arange(SIZE) - (SIZE - 1) / 2
    centre, radius, angle = wisp.rand(count, 2, 1, 1) * 4 - 2, wisp.rand(count, 1, 1) * 2.5 + 5.5, wisp.rand(count, 1, 1) * 6.283
    x, y = axis.view(1, 1, SIZE) - centre[:, 0], axis.view(1, SIZE, 1) - centre[:, 1]
    u, v = (x * angle.cos() + y * angle.sin()) / radius, (y * angle.cos() - x * angle.sin()) / radius  # turned, and of size one
    distance, farthest = (u * u + v * v).sqrt(), wisp.maximum(u.abs(), v.abs())
    triangle = wisp.maximum(wisp.maximum(-v, 0.5 * v + 0.866 * u), 0.5 * v - 0.866 * u) * 1.7
    cross = wisp.maximum(farthest, wisp.minimum(u.abs(), v.abs()) * 3)
    # Every shape is where a function is below one.
    functions = wisp.stack([distance, wisp.maximum(distance, 1.55 - distance), farthest * 1.2, triangle, cross], dim=1)
    inside = functions[wisp.arange(count), label]
    shape = ((1.05 - inside) * 4).clamp(0, 1)[:, None]  # with soft edges
    front, back = wisp.rand(count, 3, 1, 1), wisp.rand(count, 3, 1, 1)
    back = wisp.where((front - back).abs().amax(dim=1, keepdim=True) < 0.4, 1 - front.round(), back)  # one must be able to see it
    return shape * front + (1 - shape) * back + 0.05 * wisp.randn(count, 3, SIZE, SIZE), label


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Identity | nn.Sequential = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.Sequential(
            Block(width, width),
            Block(width, 2 * width, stride=2),
            Block(2 * width, 2 * width),
            Block(2 * width, 4 * width, stride=2),
            Block(4 * width, 4 * width),
        )
        self.head = nn.Linear(4 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)).mean(dim=(2, 3)))


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train a small ResNet on shapes.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    wisp.manual_seed(options.seed)
    test_x, test_y = make_images(1000)
    model = ResNet(len(SHAPES))
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    optimizer = wisp.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = wisp.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=options.steps)
    bar = progress.bar(range(options.steps), "training", unit="steps")
    for _ in bar:
        x, y = make_images(options.batch)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        bar.set(loss=loss)

    model.eval()
    with wisp.no_grad():
        guess = wisp.cat([model(part) for part in test_x.split(100)]).argmax(dim=1)
    for i, shape in enumerate(SHAPES):
        print(f"{shape:>10}  {(guess[test_y == i] == i).float().mean().item():.1%}")
    accuracy = (guess == test_y).float().mean().item()
    print(f"accuracy on images it has not seen: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
