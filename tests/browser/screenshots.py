"""Takes a screenshot of every picture of wisp.viz, on a desktop and on a phone, by day and by night:

python tests/browser/screenshots.py FOLDER [names...]
"""

import pathlib
import sys
import time

from chromium import BROWSER, Chromium

import wisp
from wisp import nn, vision, viz
from wisp.nn import functional as F
from wisp.profiler import profile, record_function

SCREENS = {"desktop": (1280, 800, False), "phone": (390, 844, True)}


class Block(nn.Module):
    """A layer of GPT."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, width)
        x = x + self.project(y)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, layers=12, width=48, heads=4, words=100):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(wisp.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.tags = nn.Embedding(20, 8), nn.LSTM(8, 16, bidirectional=True), nn.Linear(32, 5)

    def forward(self, words, mask):
        return self.tags(self.lstm(self.words(words))[0]) * mask


def small():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


def profiled():
    model, x, y = small(), wisp.rand(32, 1, 8, 8), wisp.randint(10, (32,))
    optimizer = wisp.optim.Adam(model.parameters())
    loader = wisp.utils.data.DataLoader(wisp.utils.data.TensorDataset(x, y), batch_size=16)
    with profile(record_shapes=True, profile_memory=True, with_modules=True) as prof:
        for step, (x, y) in enumerate(loader):
            with record_function(f"step {step}"):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                loss.item()
    return prof


def curves():
    wisp.manual_seed(0)
    chart = viz.curves(log="loss", smooth=0.8)
    for step in range(400):
        noise = wisp.randn(2).mul(0.15).exp().tolist()
        chart.add(step=step, **{"loss/train": 2 * 0.99**step * noise[0] + 0.02, "loss/valid": 2 * 0.991**step * noise[1] + 0.05})
        if step % 20 == 0:
            chart.add(step=step, accuracy=1 - 0.99**step, lr=1e-3 * (1 - step / 400))
    return chart


def gradients():
    model = small()
    model(wisp.rand(4, 1, 8, 8)).sum().backward()
    return viz.gradient_flow(model)


def swiglu(x, gate):
    return F.layer_norm(gate * gate.sigmoid() * x + 1, (300,)).exp().sum(1)


class _Page:
    """What a notebook shows, in a page."""

    def __init__(self, html):
        self._html = html

    def html(self):
        return f"<!DOCTYPE html><meta charset='utf-8'><meta name='viewport' content='width=device-width'><meta name='color-scheme' content='light dark'><body>{self._html}"

    def save(self, path):
        pathlib.Path(path).write_text(self.html(), encoding="utf-8")


PICTURES = {
    "graph-small": lambda: viz.graph(small(), wisp.rand(2, 1, 8, 8)),
    "graph-resnet50": lambda: viz.graph(vision.models.resnet50(), wisp.rand(1, 3, 64, 64)),
    "graph-gpt": lambda: viz.graph(GPT(), wisp.randint(100, (1, 16))),
    "graph-lstm": lambda: viz.graph(Tagger(), wisp.randint(20, (6, 2)), wisp.ones(6, 2, 1)),
    "timeline": lambda: viz.timeline(profiled()),
    "curves": curves,
    "gradient-flow": gradients,
    "activations": lambda: viz.activations(small(), wisp.rand(4, 1, 8, 8)),
    "summary": lambda: viz.summary(vision.models.resnet18(), wisp.rand(1, 3, 64, 64)),
    "fusions": lambda: viz.fusions(wisp.compiler.explain(swiglu)(wisp.randn(200, 300), wisp.randn(200, 300))),
    "image": lambda: _Page(viz.image(wisp.linspace(0, 1, 16 * 64).view(16, 1, 8, 8))._repr_html_()),
    "tensor": lambda: _Page(wisp.randn(6, 8)._repr_html_()),
    "module": lambda: _Page(small()._repr_html_()),
}


def main(folder, names):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    browser = Chromium()
    for name in names or PICTURES:
        began = time.perf_counter()
        page = folder / f"{name}.html"
        PICTURES[name]().save(page)
        print(f"{name}: made in {time.perf_counter() - began:.1f} s, {page.stat().st_size / 1e6:.1f} MB")
        for screen, (width, height, phone) in SCREENS.items():
            for dark in (False, True):
                browser.screen(width, height, dark=dark, phone=phone)
                browser.open(page)
                browser.screenshot(folder / f"{name}-{screen}-{'dark' if dark else 'light'}.png")
        if browser.complaints():
            sys.exit(f"{name}: {browser.complaints()}")
    browser.close()


if __name__ == "__main__":
    if BROWSER is None or len(sys.argv) < 2:
        sys.exit(__doc__ if BROWSER else "no Chromium here")
    main(sys.argv[1], sys.argv[2:])
