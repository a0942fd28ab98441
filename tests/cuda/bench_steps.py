"""Training steps on the GPU, beside PyTorch's: python tests/cuda/bench_steps.py."""

import time

import torch

import wisp


def per_step(step, sync, n):
    for _ in range(10):
        step()
    sync()
    best = 1e9
    for _ in range(3):
        t = time.perf_counter()
        for _ in range(n):
            step()
        sync()
        best = min(best, (time.perf_counter() - t) / n)
    return best * 1e6


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


for name, make, n in (("mlp", mlp, 300), ("lenet b4", lambda t: lenet(t, 4), 300), ("lenet b128", lambda t: lenet(t, 128), 300), ("gpt 4x256", gpt, 60)):
    times, losses = [], []
    for t in (wisp, torch):
        t.manual_seed(0)
        model, x, y = make(t)
        optimizer = t.optim.Adam(model.parameters())
        last = []

        def step():
            optimizer.zero_grad()
            loss = t.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            last[:] = [loss]

        try:
            times.append(per_step(step, t.cuda.synchronize, n))
            losses.append(last[0].item())
        except Exception:
            import traceback
            traceback.print_exc(limit=-3)
            times.append(float("nan"))
    print(f"{name:12} wisp {times[0]:10.1f} us   torch {times[1]:10.1f} us   {times[0] / times[1]:.2f}   losses {losses}", flush=True)

# LeNet's step captured once and replayed.
for batch in (4, 128):
    times = []
    for t in (wisp, torch):
        t.manual_seed(0)
        model, x, y = lenet(t, batch)
        parameters = list(model.parameters())

        def step():
            loss = t.nn.functional.cross_entropy(model(x), y)
            for p, g in zip(parameters, t.autograd.grad(loss, parameters)):
                p.detach().sub_(g, alpha=1e-3)

        if t is torch:
            times.append(per_step(step, t.cuda.synchronize, 200))
            break
        for _ in range(3):
            step()
        g = t.cuda.CUDAGraph()
        with t.cuda.graph(g):
            step()
        times.append(per_step(g.replay, t.cuda.synchronize, 300))
    print(f"lenet graph b{batch}: wisp {times[0]:.1f} us, torch eager {times[1]:.1f} us, {times[0] / times[1]:.3f}", flush=True)
