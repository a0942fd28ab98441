"""A variational autoencoder that learns to draw handwritten digits.

    python examples/vae.py

The encoder describes an image by a distribution over a few numbers, the decoder draws an image from such numbers. The loss is the
negative evidence lower bound (ELBO): how badly the image is drawn again, plus how much the description says (its divergence from a
standard normal). On images it has not seen, it comes to less than 18.5 nats per image (a model that knows only how bright each pixel
is on average, to 25). At the end it draws digits that nobody wrote.
"""

import argparse

import wisp
from wisp import Tensor, nn, progress
from wisp.distributions import Bernoulli, Independent, Normal, kl_divergence
from wisp.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self, pixels: int = 64, hidden: int = 256, latent: int = 10) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2 * latent)
        )
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, pixels))

    def describe(self, x: Tensor) -> Normal:
        """The distribution over the latent numbers that an image gives."""
        mean, log_scale = self.encoder(x).chunk(2, dim=1)
        return Normal(mean, log_scale.clamp(-6, 3).exp())

    def draw(self, z: Tensor) -> Independent:
        """The distribution over images that latent numbers give: each pixel is on with some probability."""
        return Independent(Bernoulli(logits=self.decoder(z), validate_args=False), 1)

    def loss(self, x: Tensor) -> Tensor:
        """The negative ELBO of every image, in nats."""
        posterior = self.describe(x)
        z = posterior.rsample()  # gradients flow through the sample
        divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(dim=1)
        return divergence - self.draw(z).log_prob(x.flatten(1))


def baseline(train_x: Tensor, test_x: Tensor) -> float:
    """The loss of a model that knows only how bright each pixel is on average."""
    mean = train_x.flatten(1).mean(dim=0).clamp(1e-4, 1 - 1e-4)
    return -Independent(Bernoulli(mean, validate_args=False), 1).log_prob(test_x.flatten(1)).mean().item()


def picture(images: Tensor) -> str:
    """Images side by side, as characters."""
    shades = " .:-=+*#%@"
    rows = ("   ".join("".join(shades[min(9, int(value * 10))] * 2 for value in image[y]) for image in images.tolist()) for y in range(8))
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train a variational autoencoder on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    wisp.manual_seed(options.seed)
    train_x, _, test_x, _ = wisp.vision.datasets.digits()
    train_x, test_x = (train_x > 0.4).float(), (test_x > 0.4).float()  # pixels are on or off
    model = VAE()
    print(f"a model that knows only the mean of each pixel: {baseline(train_x, test_x):.2f} nats per image")

    loader = DataLoader(TensorDataset(train_x), batch_size=options.batch, shuffle=True)
    optimizer = wisp.optim.Adam(model.parameters(), lr=2e-3)
    schedule = wisp.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    bar = progress.bar(range(options.epochs), "training", unit="epochs")
    for _ in bar:
        for (x,) in loader:
            optimizer.zero_grad()
            loss = model.loss(x).mean()
            loss.backward()
            optimizer.step()
        schedule.step()
        bar.set(loss=loss)

    model.eval()
    with wisp.no_grad():
        reached = wisp.stack([model.loss(test_x).mean() for _ in range(10)]).mean().item()
        again = model.draw(model.describe(test_x[:5]).mean).mean
        new = model.draw(wisp.randn(5, model.latent)).mean
    print(f"\nimages it has not seen\n{picture(test_x[:5, 0])}\n\nas it draws them again\n{picture(again.view(-1, 8, 8))}")
    print(f"\ndigits that nobody wrote\n{picture(new.view(-1, 8, 8))}\n")
    print(f"loss on images it has not seen: {reached:.2f} nats per image")
    return reached


if __name__ == "__main__":
    main()
