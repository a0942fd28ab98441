"""Trains four models for 2,000 steps on Wisp and on PyTorch, from the same weights on the same batches, and compares their losses.

    python benchmarks/curves.py                  all models
    python benchmarks/curves.py lstm --save training.html     one, and a picture of its curves

Rounding differs between any two libraries, and training magnifies it. The measure is PyTorch itself: how far its curve with one thread lies
from its curve with two, which round differently, too. Each column is the mean, over all steps, of the distance between two curves
(running means of 50 steps), as a fraction of the loss; the last two are the losses at the end. Needs torch in the same environment.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile

STEPS, BATCH, MEAN = 2000, 64, 50


def models(torch):
    nn = torch.nn

    class Rows(nn.Module):
        """The rows of a picture as a sequence, for an LSTM."""

        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(8, 128, num_layers=2, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.lstm(x.reshape(-1, 8, 8))[0][:, -1])

    class Pixels(nn.Module):
        """Pairs of pixels as tokens, for a transformer."""

        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Linear(2, 64), nn.Parameter(torch.zeros(32, 64))
            layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
            self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 10)

        def forward(self, x):
            return self.head(self.layers(self.embed(x.reshape(-1, 32, 2)) + self.place).mean(1))

    def mlp():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 10))

    def cnn():
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1024, 10),
        )

    return {"mlp": mlp, "cnn": cnn, "lstm": Rows, "transformer": Pixels}


def train(package, threads, name, weights):
    """Prints the losses. The first run makes the weights."""
    import numpy

    torch = importlib.import_module(package)
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    model = models(torch)[name]()
    if os.path.exists(weights):
        model.load_state_dict({key: torch.from_numpy(value) for key, value in numpy.load(weights).items()})
    else:
        numpy.savez(weights, **{key: value.numpy() for key, value in model.state_dict().items()})
    import wisp.vision

    r = numpy.random.default_rng(0)
    pictures, labels = (part.numpy() for part in wisp.vision.datasets.digits()[:2])
    labels = numpy.where(r.random(len(labels)) < 0.2, r.integers(0, 10, len(labels)), labels)  # a loss that does not end at 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        chosen = r.integers(0, len(labels), BATCH)
        x, y = (
            torch.from_numpy(pictures[chosen] + r.normal(0, 0.3, (BATCH, 1, 8, 8)).astype(numpy.float32)),
            torch.from_numpy(labels[chosen]),
        )
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps(losses))


def smooth(losses):
    return [sum(losses[i : i + MEAN]) / MEAN for i in range(len(losses) - MEAN)]


def distance(a, b):
    a, b = smooth(a), smooth(b)
    return sum(abs(x - y) / y for x, y in zip(a, b)) / len(a)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--save", help="a page with the curves")
    options = parser.parse_args()
    curves = {}
    print(f"{'':14}{'PyTorch, 1 and 2 threads':>26}{'Wisp and PyTorch':>20}{'first 100 steps':>18}{'PyTorch ends':>14}{'Wisp ends':>12}")
    for name in options.models or ["mlp", "cnn", "lstm", "transformer"]:
        with tempfile.TemporaryDirectory() as folder:
            weights = os.path.join(folder, "weights.npz")
            runs = []
            for package, threads in (("torch", 1), ("torch", 2), ("wisp", 1)):
                command = [sys.executable, __file__, "--train", package, str(threads), name, weights]
                runs.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout))
        one, two, ours = runs
        curves.update({f"{name}/PyTorch": one, f"{name}/PyTorch, 2 threads": two, f"{name}/Wisp": ours})
        early = max(abs(x - y) for x, y in zip(one[:100], ours))
        print(
            f"{name:14}{distance(two, one):26.2e}{distance(ours, one):20.2e}{early:18.1e}{smooth(one)[-1]:14.4f}{smooth(ours)[-1]:12.4f}",
            flush=True,
        )
    if options.save:
        import wisp.viz

        wisp.viz.curves(curves, smooth=0.95, title="2,000 steps").save(options.save)


if __name__ == "__main__":
    train(*sys.argv[2:]) if sys.argv[1:2] == ["--train"] else main()
