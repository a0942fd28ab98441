"""Compiled regions beside eager Wisp and torch.compile; the least of many times counts.

python benchmarks/compile.py            # on the CPU, by turns in one process
python benchmarks/compile.py chain      # rows whose name contains a word
python benchmarks/compile.py --cuda     # on the GPU: a process for each package and row, with peaks of memory and the first step
"""

import json
import os
import subprocess
import sys
import time

try:
    import torch
except ImportError:  # the columns of PyTorch stay empty
    torch = None


def chain(lib):
    x, y = lib.ones(1 << 20), lib.ones(1 << 20)
    return lambda: (lib.tanh(x * 2 + y) - x) * y


def short_chain(lib):
    x, y = lib.ones(1 << 13), lib.ones(1 << 13)
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


def gpt(lib):
    """A training step of a small GPT: 3 layers of width 128, 8 sequences of 64 tokens."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            n, length, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, width)
            x = x + self.project(y)
            return x + self.mlp(self.norm2(x))

    lib.manual_seed(0)
    words, width = 256, 128
    body = nn.Sequential(nn.Embedding(words, width), *(Block(width, 4) for _ in range(3)), nn.LayerNorm(width), nn.Linear(width, words))
    optimizer = lib.optim.AdamW(body.parameters(), lr=1e-3)
    tokens = lib.randint(0, words, (8, 65))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(body(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

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
    "the same, 8192 floats": short_chain,
    "gelu(x rsqrt(mean x²) w) + x, 1000 x 1000": norm_forward,
    "the same with backward": norm,
    "softmax by hand, 1000 x 1000": softmax,
    "casts from and to bfloat16, 1 M": half,
    "RMSNorm and SwiGLU of 512, batch 64, backward": swiglu,
    "GPT step, 3 x 128, 8 x 64 tokens, AdamW": gpt,
}


def fastest(functions, seconds=1.5):
    """The least time of each in milliseconds, by turns of 20 ms: the other package's threads look for work for a while longer."""
    best = [float("inf")] * len(functions)
    for f in functions:
        for _ in range(3):
            f()
    end = time.perf_counter() + seconds * len(functions)
    while time.perf_counter() < end:
        for i, f in enumerate(functions):
            stop, now = time.perf_counter() + 0.02, 0.0
            while now < stop:
                start = time.perf_counter()
                f()
                now = time.perf_counter()
                best[i] = min(best[i], now - start)
    return [1000 * t for t in best]


def on_the_cpu(words):
    import wisp

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


# ---- the GPU

# By name: the function of compile_models.py, its arguments, the mode, steps of a round, what our time may be in torch.compile's.
ON_THE_GPU = {
    "chain of five, 64 M floats": ("chain", {}, None, 50, 1.0),
    "RMSNorm by hand, 8192 x 2048, backward": ("norm", {}, None, 100, 1.0),
    "Llama 350 M, 4 x 2048": ("llama", {}, None, 10, 0.9),
    "GPT-2 124 M, 8 x 1024": ("gpt2", {}, None, 20, 0.85),
    "1 B decode, batch 1": ("decode", {"batch": 1}, "reduce-overhead", 100, 1.0),
    "1 B decode, batch 16": ("decode", {"batch": 16}, "reduce-overhead", 100, 1.0),
    "ViT-B/16, batch 64": ("vit", {}, None, 20, 0.9),
    "ResNet-50 bf16, batch 64": ("resnet", {}, None, 20, 0.8),
    "diffusion UNet, batch 32": ("unet", {}, None, 10, 0.6),
    "PPO update, batch 256": ("ppo", {}, None, 100, 0.3),
}


def measured(package, name):
    """Milliseconds of a step, eager and compiled, megabytes at the peak of each, and seconds of the first compiled step."""
    lib = __import__(package)
    import compile_models

    make, arguments, mode, count, _ = ON_THE_GPU[name]
    lib.manual_seed(0)
    step, subject = getattr(compile_models, make)(lib, **arguments)
    found = {}
    for kind in ("eager", "compiled"):
        f = subject if kind == "eager" else lib.compile(subject, mode=mode)
        start = time.perf_counter()
        step(f)
        lib.cuda.synchronize()
        found[f"{kind} first"] = time.perf_counter() - start
        for _ in range(5):
            step(f)
        lib.cuda.synchronize()
        lib.cuda.reset_peak_memory_stats()
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(count):
                step(f)
            lib.cuda.synchronize()
            best = min(best, (time.perf_counter() - start) / count)
        found[kind] = 1000 * best
        found[f"{kind} peak"] = lib.cuda.max_memory_allocated() / 1e6
    return found


def in_a_process(package, name):
    done = subprocess.run([sys.executable, __file__, "--measure", package, name], capture_output=True, text=True)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        print(f"{name}, {package}: {done.stderr.strip().splitlines()[-1:] or done.returncode}")
        return {}


def on_the_gpu(words):
    heads = ["eager", "compiled", "torch", "t.compile"]
    print(f"{'':40}" + "".join(f"{h:>10}" for h in heads) + "   ms, MB, first step in s; compiled / t.compile of the bound, memory")
    for name, (*_, bound) in ON_THE_GPU.items():
        if words and not any(word in name for word in words):
            continue
        ours, theirs = in_a_process("wisp", name), in_a_process("torch", name) if torch else {}
        for what, form in (("", "10.3f"), (" peak", "10.0f"), (" first", "10.2f")):
            cells = [found.get(kind + what, float("nan")) for found in (ours, theirs) for kind in ("eager", "compiled")]
            line = f"{name if not what else '':40}" + "".join(f"{c:{form}}" for c in cells)
            print(line + (f"   {cells[1] / cells[3]:.2f}" + ("" if what else f" of {bound}") if what != " first" else ""), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        print(json.dumps(measured(*sys.argv[2:4])))
    elif sys.argv[1:2] == ["--cuda"]:
        on_the_gpu(sys.argv[2:])
    else:
        on_the_cpu(sys.argv[1:])
