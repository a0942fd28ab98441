"""Times the same code on Wisp and on PyTorch, turn by turn in two processes, and prints Wisp's time as a fraction.

    python benchmarks/compare.py            every workload
    python benchmarks/compare.py lenet gpt  those whose names contain a word

Needs torch in the same environment and a quiet machine. The figures of the README come from here.
"""

import importlib
import json
import os
import subprocess
import sys
import time

ROUNDS, SECONDS = 7, 0.1


def small(torch):
    a, b = torch.randn(8), torch.randn(8)
    w = torch.randn(8, requires_grad=True)
    return {"a + b (8 elements)": lambda: a + b, "(a * b).sum().backward()": lambda: (w * b).sum().backward()}


def large(torch):
    a, b = torch.randn(1000, 1000), torch.randn(1000, 1000)
    F = torch.nn.functional
    return {
        "1M add": lambda: a + b,
        "1M exp": lambda: a.exp(),
        "1M gelu": lambda: F.gelu(a),
        "1M softmax": lambda: a.softmax(-1),
        "1M layer_norm": lambda: F.layer_norm(a, (1000,)),
        "1M transposed copy": lambda: a.t().contiguous(),
        "1M sort": lambda: a.sort(-1),
        "1000³ product": lambda: a @ b,
    }


def trainer(torch, model, optimizer, inputs, targets):
    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def mlp(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return {
        "MLP step, batch 64": trainer(torch, model, torch.optim.Adam(model.parameters()), torch.randn(64, 784), torch.randint(0, 10, (64,)))
    }


def lenet(torch):
    nn, work = torch.nn, {}
    for batch in (4, 128):
        model = nn.Sequential(
            nn.Conv2d(3, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
        work[f"LeNet step, batch {batch}"] = trainer(torch, model, optimizer, torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,)))
    return work


def gpt(torch):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads = heads
            self.ln1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.ln2, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(d, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    def make(vocabulary, d, heads, layers, batch, length):
        model = nn.Sequential(
            nn.Embedding(vocabulary, d),
            *[Block(d, heads) for _ in range(layers)],
            nn.LayerNorm(d),
            nn.Linear(d, vocabulary),
            nn.Flatten(0, 1),
        )
        return trainer(
            torch,
            model,
            torch.optim.AdamW(model.parameters()),
            torch.randint(0, vocabulary, (batch, length)),
            torch.randint(0, vocabulary, (batch * length,)),
        )

    return {"GPT step, 2 layers of 32": make(64, 32, 2, 2, 4, 16), "GPT step, 4 layers of 256": make(512, 256, 4, 4, 8, 128)}


MAKERS = {"small": small, "large": large, "mlp": mlp, "lenet": lenet, "gpt": gpt}


def serve(package, makers):
    """Answers requests `maker, workload, count` with seconds per call."""
    torch = importlib.import_module(package)
    torch.manual_seed(0)
    work = {}
    for line in sys.stdin:
        maker, name, count = json.loads(line)
        if maker not in work:
            work = {maker: makers[maker](torch)}
        run = work[maker].get(name)
        if run is None:
            print(json.dumps(list(work[maker])), flush=True)
            continue
        start = time.perf_counter()
        for _ in range(count):
            run()
        print(json.dumps((time.perf_counter() - start) / count), flush=True)


class Side:
    def __init__(self, script, package):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(script), "--serve", package], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, *request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def compare(script, makers, words):
    """Prints the best times for each workload of `makers` whose name contains one of the words; `script` serves them."""
    sides = [Side(script, "torch"), Side(script, "wisp")]
    print(f"{'':32}{'PyTorch µs':>12}{'Wisp µs':>10}{'ratio':>8}")
    for maker in makers:
        names = [side.ask(maker, None, 0) for side in sides][0]
        for name in names:
            if words and not any(word.lower() in name.lower() for word in words):
                continue
            for side in sides:
                side.ask(maker, name, 2)
            counts = [max(1, int(SECONDS / side.ask(maker, name, 1))) for side in sides]
            times = [[side.ask(maker, name, count) for side, count in zip(sides, counts)] for _ in range(ROUNDS)]
            best = [min(column) * 1e6 for column in zip(*times)]
            print(f"{name:32}{best[0]:12.1f}{best[1]:10.1f}{best[1] / best[0]:8.2f}", flush=True)


def main(script, makers):
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], makers)
    else:
        compare(script, makers, sys.argv[1:])


if __name__ == "__main__":
    main(__file__, MAKERS)
