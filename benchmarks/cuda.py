"""Operators, training steps and a replayed graph on the GPU, beside PyTorch's: python benchmarks/cuda.py.

`pytest tests/cuda && python benchmarks/cuda.py` is all that a machine with a GPU can tell.
"""

import time

import torch

import wisp


def per_call(f, sync, n):
    """Microseconds of one call, the best of three rounds."""
    for _ in range(10):  # compiles kernels, fills caches
        f()
    sync()
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(n):
            f()
        sync()
        best = min(best, (time.perf_counter() - start) / n)
    return best * 1e6


def compare(name, make, n):
    """make(t) gives what is timed, in the package t."""
    ours, theirs = (per_call(make(t), t.cuda.synchronize, n) for t in (wisp, torch))
    print(f"{name:24} wisp {ours:10.1f} us   torch {theirs:10.1f} us   {ours / theirs:.2f}", flush=True)


def backward(t):
    p, b = t.randn(8).cuda().requires_grad_(), t.randn(8).cuda()
    return lambda: (p * b).sum().backward()


def linear(t):
    x, w, b = t.randn(64, 64).cuda(), t.randn(64, 64).cuda(), t.randn(64).cuda()
    return lambda: t.nn.functional.linear(x, w, b)


def small(f):
    return lambda t: (lambda a, b: lambda: f(a, b))(t.randn(8).cuda(), t.randn(8).cuda())


def large(f):
    return lambda t: (lambda x: lambda: f(t, x))(t.randn(8192, 8192).cuda())


def product(size, dtype):
    return lambda t: (lambda m: lambda: m @ m)(t.randn(size, size).cuda().to(getattr(t, dtype)))


def mlp(t):
    nn = t.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    return model, t.randn(64, 784).cuda(), t.randint(0, 10, (64,)).cuda()


def lenet(t, batch):
    nn = t.nn
    model = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)).cuda()
    return model, t.randn(batch, 3, 32, 32).cuda(), t.randint(0, 10, (batch,)).cuda()


def gpt(t):
    nn, F = t.nn, t.nn.functional

    class Block(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.a, self.b = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            self.heads = heads

        def forward(self, x):
            b, n, d = x.shape
            q, k, v = (y.reshape(b, n, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.a(x)).chunk(3, -1))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, d))
            return x + self.down(F.gelu(self.up(self.b(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(1000, 256), nn.Embedding(64, 256)
            self.blocks = nn.Sequential(*[Block(256, 4) for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 1000)

        def forward(self, x):
            h = self.tokens(x) + self.places(t.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(h))).flatten(0, 1)

    return GPT().cuda(), t.randint(0, 1000, (8, 64)).cuda(), t.randint(0, 1000, (512,)).cuda()


def training(make):
    """One step with Adam."""

    def made(t):
        t.manual_seed(0)
        model, x, y = make(t)
        optimizer = t.optim.Adam(model.parameters())

        def step():
            optimizer.zero_grad()
            t.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        return step

    return made


def replayed(batch):
    """LeNet's step with plain descent: as a replayed graph in Wisp, eager in PyTorch."""

    def made(t):
        t.manual_seed(0)
        model, x, y = lenet(t, batch)
        parameters = list(model.parameters())

        def step():
            loss = t.nn.functional.cross_entropy(model(x), y)
            for p, g in zip(parameters, t.autograd.grad(loss, parameters)):
                p.detach().sub_(g, alpha=1e-3)

        if t is torch:
            return step
        for _ in range(3):
            step()
        graph = t.cuda.CUDAGraph()
        with t.cuda.graph(graph):
            step()
        return graph.replay

    return made


if __name__ == "__main__":
    compare("add, 8 elements", small(lambda a, b: a + b), 2000)
    compare("mul-sum-backward", backward, 1000)
    compare("linear 64", linear, 1000)
    compare("add 64M", large(lambda t, x: x + x), 50)
    compare("exp 64M", large(lambda t, x: x.exp()), 50)
    compare("gelu 64M", large(lambda t, x: t.nn.functional.gelu(x)), 50)
    compare("sum 64M", large(lambda t, x: x.sum()), 50)
    compare("sum 64M over dim 0", large(lambda t, x: x.sum(0)), 50)
    compare("softmax 64M", large(lambda t, x: x.softmax(1)), 50)
    compare("layer_norm 64M", large(lambda t, x: t.nn.functional.layer_norm(x, (8192,))), 50)
    compare("transposed copy 64M", large(lambda t, x: x.t().contiguous()), 50)
    compare("product bf16 8192", product(8192, "bfloat16"), 20)
    compare("product f32 4096", product(4096, "float32"), 20)
    compare("mlp step", training(mlp), 300)
    compare("lenet step b4", training(lambda t: lenet(t, 4)), 300)
    compare("lenet step b128", training(lambda t: lenet(t, 128)), 300)
    compare("gpt 4x256 step", training(gpt), 60)
    compare("lenet b4 as a graph", replayed(4), 300)
    compare("lenet b128 as a graph", replayed(128), 300)
