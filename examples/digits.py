"""Teaches a small convolutional network to read handwritten digits.

    python examples/digits.py            or            wisp demo

The images (1797 of them, 8 x 8 pixels) come with the package. It takes a few seconds.
"""

import argparse
import time

import wisp
from wisp import Tensor, nn, progress
from wisp.nn import functional as F
from wisp.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


def train(model: Net, loader: DataLoader[tuple[Tensor, ...]], epochs: int) -> float:
    """Train, and return how many images were seen per second."""
    optimizer = wisp.optim.Adam(model.parameters(), lr=2e-3)
    schedule = wisp.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=8e-3, total_steps=epochs * len(loader))
    images, start = 0, time.perf_counter()
    for epoch in range(epochs):
        bar = progress.bar(loader, f"epoch {epoch + 1:2}/{epochs}", len(loader.dataset), "images", count=lambda batch: len(batch[0]))
        for x, y in bar:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            bar.set(loss=loss)
        images += bar.done
    return images / (time.perf_counter() - start)


@wisp.no_grad()
def evaluate(model: Net, x: Tensor, y: Tensor) -> Tensor:
    """-> which of the predictions are right."""
    model.eval()
    return model(x).argmax(1) == y


def picture(image: Tensor) -> str:
    """An image as characters, two for each pixel."""
    shades = " .:-=+*#%@"
    return "\n".join("".join(shades[min(9, int(value * 10))] * 2 for value in row) for row in image[0].tolist())


def main(arguments: list[str] | None = None, parser: argparse.ArgumentParser | None = None) -> float:
    parser = parser or argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if min(options.epochs, options.batch) < 1:
        parser.error("--epochs and --batch are numbers from 1 on")

    wisp.manual_seed(options.seed)
    train_x, train_y, test_x, test_y = wisp.vision.datasets.digits()
    model = Net()
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(train_x)} images to train with, {len(test_x)} to test with; a network of {count:,} parameters")

    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=options.batch, shuffle=True)
    speed = train(model, loader, options.epochs)
    right = evaluate(model, test_x, test_y)
    accuracy = right.float().mean().item()

    wrong = (~right).nonzero().flatten().tolist()
    if wrong:
        first = wrong[0]
        guess = model(test_x[first : first + 1]).argmax().item()
        print(f"\nOne of the {len(wrong)} it got wrong, a {test_y[first].item()} that it took for a {guess}:\n")
        print(picture(test_x[first]))
    print(f"\naccuracy on images it has not seen: {accuracy:.1%}   ({speed:,.0f} images/s in training)")
    return accuracy


if __name__ == "__main__":
    main()
