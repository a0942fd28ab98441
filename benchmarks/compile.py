"""Compiled regions beside eager Wisp and torch.compile, in one process and by turns; the least of many times counts.

python benchmarks/compile.py            # all rows that this machine can run
python benchmarks/compile.py chain      # rows whose name contains a word
"""

import sys
import time

import wisp

try:
    import torch
except ImportError:  # the columns of PyTorch stay empty
    torch = None


def chain(lib):
    x, y = lib.ones(1 << 20), lib.ones(1 << 20)
    return lambda: (lib.tanh(x * 2 + y) - x) * y


def norm(lib):
    x = lib.ones(1000, 1000).requires_grad_()
    w = lib.ones(1000).requires_grad_()

    def step():
        x.grad = w.grad = None
        y = lib.nn.functional.gelu(x * lib.rsqrt((x * x).mean(-1, keepdim=True)) * w) + x
        y.backward(g)

    g = lib.ones(1000, 1000)
    return step


def norm_forward(lib):
    x, w = lib.ones(1000, 1000), lib.ones(1000)
    return lambda: lib.nn.functional.gelu(x * lib.rsqrt((x * x).mean(-1, keepdim=True)) * w) + x


def swiglu(lib):
    class Block(lib.nn.Module):
        def __init__(self, width=512):
            super().__init__()
            self.weight = lib.nn.Parameter(lib.ones(width))
            self.gate, self.up = lib.nn.Linear(width, 4 * width, bias=False), lib.nn.Linear(width, 4 * width, bias=False)
            self.down = lib.nn.Linear(4 * width, width, bias=False)

        def forward(self, x):
            h = x * lib.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight
            return x + self.down(lib.nn.functional.silu(self.gate(h)) * self.up(h))

    lib.manual_seed(0)
    block, x = Block(), lib.randn(64, 512)

    def step():
        block.zero_grad()
        block(x).square().mean().backward()

    return step


def softmax(lib):
    x = lib.ones(1000, 1000)

    def by_hand():
        e = lib.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    return by_hand


def half(lib):
    x = lib.ones(1 << 20, dtype=lib.bfloat16)
    return lambda: (x.float() * 2 + 1).to(lib.bfloat16) * x


ROWS = {
    "chain of five, 1 M floats": chain,
    "gelu(x rsqrt(mean x²) w) + x, 1000 x 1000": norm_forward,
    "the same with backward": norm,
    "softmax by hand, 1000 x 1000": softmax,
    "casts from and to bfloat16, 1 M": half,
    "RMSNorm and SwiGLU of 512, batch 64, backward": swiglu,
}


def fastest(functions, seconds=1.5):
    """The least time of each in milliseconds, measured by turns."""
    best = [float("inf")] * len(functions)
    for f in functions:
        for _ in range(3):
            f()
    end = time.perf_counter() + seconds * len(functions)
    while time.perf_counter() < end:
        for i, f in enumerate(functions):
            start = time.perf_counter()
            f()
            best[i] = min(best[i], time.perf_counter() - start)
    return [1000 * t for t in best]


def main(words):
    print(f"{'':48}{'eager':>9}{'compiled':>9}{'torch':>9}{'t.compile':>10}   ms; compiled / t.compile")
    for name, make in ROWS.items():
        if words and not any(word in name for word in words):
            continue
        ours = make(wisp)
        functions = [ours, wisp.compile(ours)]
        if torch:
            theirs = make(torch)
            functions += [theirs, torch.compile(theirs)]
        times = fastest(functions)
        ratio = f"{times[1] / times[3]:10.2f}" if torch else ""
        print(f"{name:48}" + "".join(f"{t:9.3f}" for t in times) + ratio)


if __name__ == "__main__":
    main(sys.argv[1:])
