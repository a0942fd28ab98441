"""Two networks play against each other until one of them can forge handwritten digits (a DCGAN).

    python examples/dcgan.py

The generator turns noise into images by transposed convolutions; the discriminator is shown real and forged ones and says which are
which. How good the forgeries are, we ask a third network that has learnt to read real digits: in the end it recognises more than
half of them with more than 90 % confidence, and all ten digits are among them. (Of noise it recognises about a fifth.)
"""

import argparse

import wisp
from wisp import Tensor, nn, progress
from wisp.nn import functional as F


class Generator(nn.Module):
    """Noise -> 8 x 8 image."""

    def __init__(self, noise: int = 32, channels: int = 32) -> None:
        super().__init__()
        self.noise = noise
        self.net = nn.Sequential(
            nn.ConvTranspose2d(noise, channels * 2, 2, bias=False),
            nn.BatchNorm2d(channels * 2),
            nn.ReLU(),  # 2 x 2
            nn.ConvTranspose2d(channels * 2, channels, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),  # 4 x 4
            nn.ConvTranspose2d(channels, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )  # 8 x 8

    def forward(self, count: int) -> Tensor:
        return self.net(wisp.randn(count, self.noise, 1, 1))


class Discriminator(nn.Module):
    """8 x 8 image -> a score: positive if it takes it for real."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, channels, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),  # 4 x 4
            nn.Conv2d(channels, channels * 2, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.3),  # 2 x 2
            nn.Conv2d(channels * 2, 1, 2),
            nn.Flatten(0),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def reader(x: Tensor, y: Tensor, steps: int = 300) -> nn.Sequential:
    """A network that reads digits, to judge the forgeries."""
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    optimizer = wisp.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        chosen = wisp.randint(0, len(x), (64,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[chosen]), y[chosen]).backward()
        optimizer.step()
    return model.eval()


@wisp.no_grad()
def judge(judge_model: nn.Sequential, images: Tensor) -> tuple[float, int]:
    """-> (the share of images that are read with more than 90 % confidence, how many different digits are among them)."""
    confidence, digit = judge_model(images).softmax(dim=1).max(dim=1)
    sure = confidence > 0.9
    return sure.float().mean().item(), len(digit[sure].unique())


def train(generator: Generator, discriminator: Discriminator, x: Tensor, steps: int, batch: int = 64) -> None:
    # The low momentum of DCGAN: either network must react quickly to the other.
    generator_optimizer = wisp.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.99))
    discriminator_optimizer = wisp.optim.Adam(discriminator.parameters(), lr=5e-4, betas=(0.5, 0.99))
    real, forged = wisp.full((batch,), 0.9), wisp.zeros(batch)  # nobody should be too sure of what is real
    bar = progress.bar(range(steps), "training", unit="steps")
    for step in bar:
        images = x[wisp.randint(0, len(x), (batch,))]
        forgeries = generator(batch)

        discriminator_optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(discriminator(images), real) + F.binary_cross_entropy_with_logits(
            discriminator(forgeries.detach()), forged
        )
        loss.backward()
        discriminator_optimizer.step()

        generator_optimizer.zero_grad()
        fooling = F.binary_cross_entropy_with_logits(discriminator(forgeries), wisp.ones(batch))
        fooling.backward()
        generator_optimizer.step()
        if step % 20 == 0:
            bar.set(discriminator=loss, generator=fooling)


def picture(images: Tensor) -> str:
    """Images side by side, as characters."""
    shades = " .:-=+*#%@"
    rows = ("   ".join("".join(shades[min(9, int(value * 10))] * 2 for value in image[y]) for image in images.tolist()) for y in range(8))
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> tuple[float, int]:
    parser = argparse.ArgumentParser(description="Train a DCGAN on handwritten digits.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    wisp.manual_seed(options.seed)
    x, y, test_x, test_y = wisp.vision.datasets.digits()
    judge_model = reader(x, y)
    with wisp.no_grad():
        print(f"the judge reads {(judge_model(test_x).argmax(1) == test_y).float().mean().item():.1%} of real digits right")
    print(f"of noise it recognises {judge(judge_model, wisp.rand(1000, 1, 8, 8))[0]:.1%}")

    generator, discriminator = Generator(), Discriminator()
    train(generator, discriminator, x, options.steps)

    generator.eval()
    with wisp.no_grad():
        forgeries = generator(1000)
    recognised, kinds = judge(judge_model, forgeries)
    print("\n" + picture(forgeries[:6, 0]) + "\n")
    print(f"of the forgeries it recognises {recognised:.1%}, and {kinds} different digits are among them")
    return recognised, kinds


if __name__ == "__main__":
    main()
