"""Host cost of small operators on the GPU, beside PyTorch's: python tests/cuda/bench_host.py."""

import time

import torch

import wisp


def per_call(f, sync, n=2000):
    for _ in range(200):
        f()
    sync()
    best = 1e9
    for _ in range(5):
        t = time.perf_counter()
        for _ in range(n):
            f()
        sync()
        best = min(best, (time.perf_counter() - t) / n)
    return best * 1e6


for name in ("add", "mul-sum-backward", "linear 64", "add 64M", "exp 64M", "gelu 64M", "sum 64M", "sum dim 0", "transpose", "matmul bf16 8192", "matmul f32 4096"):
    times = []
    for t in (wisp, torch):
        a, b = t.randn(8).cuda(), t.randn(8).cuda()
        n = 2000
        if name == "add":
            f = lambda: a + b
        elif name == "mul-sum-backward":
            p = t.randn(8).cuda().requires_grad_()
            f = lambda: (p * b).sum().backward()
        elif name == "linear 64":
            x, w, c = t.randn(64, 64).cuda(), t.randn(64, 64).cuda(), t.randn(64).cuda()
            f = lambda: t.nn.functional.linear(x, w, c)
        elif name.endswith("64M") or name in ("sum dim 0", "transpose"):
            big = t.zeros(8192, 8192).cuda()
            n = 50
            f = {"add 64M": lambda: big + big, "exp 64M": lambda: big.exp(), "gelu 64M": lambda: t.nn.functional.gelu(big), "sum 64M": lambda: big.sum(),
                 "sum dim 0": lambda: big.sum(0), "transpose": lambda: big.t().contiguous()}[name]
        else:
            size, dtype = (8192, t.bfloat16) if "bf16" in name else (4096, t.float32)
            m = t.randn(size, size).cuda().to(dtype)
            n = 20
            f = lambda: m @ m
        times.append(per_call(f, t.cuda.synchronize, n))
    print(f"{name:20} wisp {times[0]:10.2f} us   torch {times[1]:10.2f} us   {times[0] / times[1]:.2f}", flush=True)
