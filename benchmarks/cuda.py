"""Operators, training steps and a replayed graph on the GPU, beside PyTorch's: python benchmarks/cuda.py [part of a name ...].

Each line has the ratio of the times, and the bound that it is to keep; where memory's speed is the limit, also the share of the bandwidth
of a copy that it reaches. `python tools/gpu.py` runs the tests that need a GPU, then these.
"""

import functools
import gc
import sys
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


# What our time may be in PyTorch's; 1 where nothing is said. Memory's peak may be PyTorch's.
BOUNDS = {
    "add, 8 elements": 0.6,
    "mul-sum-backward": 0.35,
    "mlp step": 0.35,
    "lenet step b4": 0.3,
    "lenet step b128": 0.3,
    "gpt 4x256 step": 0.35,
    "lenet b4 as a graph": 0.08,
    "lenet b128 as a graph": 0.08,
    "product bf16 8192": 1.03,
    "product f32 4096": 1.03,
    "product tf32 4096": 1.03,
    "sdpa bf16": 1.1,
    "sdpa bf16 + backward": 1.1,
    "gpt2 124M step": 0.9,
    "vit-b/16 step": 0.8,
    "gcn 100k step": 1.2,
    "dlrm 26 tables step": 0.6,
    "lstm 512x2 step": 0.9,
}
missed = []
LARGE = 16384 * 16384 * 4  # bytes of a large tensor
SHARE = 0.85  # of a copy's bandwidth that an operation is to reach that moves each byte once


@functools.cache
def copy_bandwidth():
    """Bytes per microsecond of a copy on the device, read and written: the better of the two packages'."""
    best = 0
    for t in (wisp, torch):
        best = max(best, 2 * LARGE / per_call(large(lambda t, x, y: y.copy_(x), 2)(t), t.cuda.synchronize, 20))
        gc.collect()
        t.cuda.empty_cache()
    print(f"{'copy 256M':24} {best / 1e6:.2f} TB/s", flush=True)
    return best


def compare(name, make, n, memory=False, moved=0):
    """make(t) gives what is timed, in the package t; with `memory`, the peaks of the memory that tensors held are shown too. `moved`:
    the large tensors that are read or written."""
    if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
        return
    times, peaks = [], []
    bandwidth = copy_bandwidth() if moved else 0
    for t in (wisp, torch):
        f = make(t)
        f()
        t.cuda.reset_peak_memory_stats()
        times.append(per_call(f, t.cuda.synchronize, n))
        peaks.append(t.cuda.max_memory_allocated() / 2**20)
        del f
        gc.collect()
        t.cuda.empty_cache()
    ours, theirs = times
    bound = BOUNDS.get(name, 1)
    print(f"{name:24} wisp {ours:10.1f} us   torch {theirs:10.1f} us   {ours / theirs:.2f} of {bound:.2f}", end="")
    print(f"   peak {peaks[0]:.0f} and {peaks[1]:.0f} MiB   {peaks[0] / peaks[1]:.2f}" if memory else "", end="")
    share = moved * LARGE / ours / bandwidth if moved else 1
    print(f"   {share:.0%} of the copy's bandwidth" if moved else "", flush=True)
    if round(ours / theirs, 2) > bound or (memory and peaks[0] > peaks[1]):
        missed.append(name)
    if share < SHARE:
        missed.append(f"{name} ({share:.0%} of the copy's bandwidth)")


def backward(t):
    p, b = t.randn(8).cuda().requires_grad_(), t.randn(8).cuda()
    return lambda: (p * b).sum().backward()


def linear(t):
    x, w, b = t.randn(64, 64).cuda(), t.randn(64, 64).cuda(), t.randn(64).cuda()
    return lambda: t.nn.functional.linear(x, w, b)


def small(f):
    return lambda t: (lambda a, b: lambda: f(a, b))(t.randn(8).cuda(), t.randn(8).cuda())


def large(f, count=1):
    return lambda t: (lambda x: lambda: f(t, *x))([t.randn(16384, 16384, device="cuda") for _ in range(count)])


def product(size, dtype, tf32=False):
    def made(t):
        m = t.randn(size, size).cuda().to(getattr(t, dtype))
        t.backends.cuda.matmul.allow_tf32 = tf32
        return lambda: m @ m

    return made


def attention(shape, dtype, backward):
    """Causal, of heads inside the rows as a layer makes them."""

    def made(t):
        b, h, n, d = shape
        q, k, v, g = (t.randn(b, n, h, d).cuda().to(getattr(t, dtype)).transpose(1, 2) for _ in range(4))
        if not backward:
            return lambda: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        inputs = [x.requires_grad_() for x in (q, k, v)]
        return lambda: t.autograd.grad(t.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True), inputs, g)

    return made


def mlp(t):
    nn = t.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    return model, t.randn(64, 784).cuda(), t.randint(0, 10, (64,)).cuda()


def lenet(t, batch):
    nn = t.nn
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
    ).cuda()
    return model, t.randn(batch, 3, 32, 32).cuda(), t.randint(0, 10, (batch,)).cuda()


def gpt_model(t, words, length, width, depth, heads):
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
            self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, x):
            h = self.tokens(x) + self.places(t.arange(x.shape[1], device=x.device))
            return self.head(self.norm(self.blocks(h))).flatten(0, 1)

    return GPT()


def gpt(t):
    return gpt_model(t, 1000, 64, 256, 4, 4).cuda(), t.randint(0, 1000, (8, 64)).cuda(), t.randint(0, 1000, (512,)).cuda()


def convolution(t):
    """Forward and backward."""
    x, w = t.randn(64, 64, 56, 56).cuda().requires_grad_(), t.randn(64, 64, 3, 3).cuda().requires_grad_()
    g = t.randn(64, 64, 56, 56).cuda()
    return lambda: t.autograd.grad(t.nn.functional.conv2d(x, w, padding=1), (x, w), g)


def resnet50(t):
    nn = t.nn

    class Block(nn.Module):
        def __init__(self, channels, width, stride):
            super().__init__()
            layers = []
            for a, b, k, s in ((channels, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)):
                layers += [nn.Conv2d(a, b, k, s, k // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
            self.main, self.last = nn.Sequential(*layers[:-1]), layers[-1]
            self.side = nn.Identity()
            if stride > 1 or channels != 4 * width:
                self.side = nn.Sequential(nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            return self.last(self.main(x) + self.side(x))

    layers, channels = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Block(channels, width, stride if i == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resnet_step(mixed):
    """A step with momentum on 64 images, channels last: all in bfloat16, or with autocast."""

    def made(t):
        t.manual_seed(0)
        model = resnet50(t).cuda().to(memory_format=t.channels_last)
        x = t.randn(64, 3, 224, 224).cuda().to(memory_format=t.channels_last)
        y = t.randint(0, 1000, (64,)).cuda()
        if not mixed:
            model, x = model.bfloat16(), x.bfloat16()
        optimizer = t.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

        def step():
            optimizer.zero_grad()
            with t.autocast("cuda", dtype=t.bfloat16, enabled=mixed):
                loss = t.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        return step

    return made


def gpt2_step(t):
    """GPT-2 124M on 8 x 1024 tokens: autocast to bfloat16, fused AdamW."""
    t.manual_seed(0)
    model = gpt_model(t, 50304, 1024, 768, 12, 12).cuda()
    x, y = t.randint(0, 50304, (8, 1024)).cuda(), t.randint(0, 50304, (8192,)).cuda()
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad()
        with t.autocast("cuda", dtype=t.bfloat16):
            loss = t.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def vit_step(t):
    """ViT-B/16 as PyTorch's encoder on 64 images: dropout 0.1, autocast to bfloat16, fused AdamW."""
    t.manual_seed(0)
    nn = t.nn

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 768, 16, 16)
            self.first, self.places = nn.Parameter(t.zeros(1, 1, 768)), nn.Parameter(t.randn(1, 197, 768) * 0.02)
            layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.1, "gelu", batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 12, nn.LayerNorm(768), enable_nested_tensor=False)
            self.dropout, self.head = nn.Dropout(0.1), nn.Linear(768, 1000)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = t.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.encoder(self.dropout(x))[:, 0])

    model, x, y = ViT().cuda(), t.randn(64, 3, 224, 224).cuda(), t.randint(0, 1000, (64,)).cuda()
    optimizer = t.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad()
        with t.autocast("cuda", dtype=t.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def gcn_step(t):
    """Two layers of graph convolution: 100,000 nodes, a million random edges, 128 features."""
    t.manual_seed(0)
    nodes, edges, width = 100_000, 1_000_000, 128
    source, target = t.randint(0, nodes, (edges,)).cuda(), t.randint(0, nodes, (edges,)).cuda()
    x, y = t.randn(nodes, width).cuda(), t.randint(0, 40, (nodes,)).cuda()
    first, second = t.nn.Linear(width, width).cuda(), t.nn.Linear(width, 40).cuda()
    optimizer = t.optim.Adam([*first.parameters(), *second.parameters()])

    def spread(h):
        return t.zeros(nodes, h.shape[1], device="cuda").index_add(0, target, h[source])

    def step():
        optimizer.zero_grad()
        loss = t.nn.functional.cross_entropy(spread(second(spread(first(x)).relu())), y)
        loss.backward()
        optimizer.step()

    return step


def dlrm_step(t):
    """Recommendation: 26 tables of 100,000 rows, bags of 4, the products of all pairs, and two small networks."""
    t.manual_seed(0)
    nn, batch, tables, width = t.nn, 2048, 26, 64
    bags = nn.ModuleList([nn.EmbeddingBag(100_000, width, mode="sum") for _ in range(tables)]).cuda()
    dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU()).cuda()
    pairs = (tables + 1) * tables // 2
    top = nn.Sequential(nn.Linear(width + pairs, 256), nn.ReLU(), nn.Linear(256, 1)).cuda()
    numbers, words = t.randn(batch, 13).cuda(), [t.randint(0, 100_000, (batch, 4)).cuda() for _ in range(tables)]
    clicked, places = t.randint(0, 2, (batch, 1)).float().cuda(), t.tril_indices(tables + 1, tables + 1, -1).cuda()
    optimizer = t.optim.SGD([*bags.parameters(), *dense.parameters(), *top.parameters()], lr=0.1)

    def step():
        optimizer.zero_grad()
        of_numbers = dense(numbers)
        all_of_them = t.stack([of_numbers, *(bag(w) for bag, w in zip(bags, words))], 1)
        products = (all_of_them @ all_of_them.transpose(1, 2))[:, places[0], places[1]]
        loss = nn.functional.binary_cross_entropy_with_logits(top(t.cat([of_numbers, products], 1)), clicked)
        loss.backward()
        optimizer.step()

    return step


def lstm_step(t):
    """Two layers of 512 on 64 sequences of 128 steps."""
    t.manual_seed(0)
    model, head = t.nn.LSTM(512, 512, 2, batch_first=True).cuda(), t.nn.Linear(512, 100).cuda()
    x, y = t.randn(64, 128, 512).cuda(), t.randint(0, 100, (64,)).cuda()
    optimizer = t.optim.Adam([*model.parameters(), *head.parameters()])

    def step():
        optimizer.zero_grad()
        t.nn.functional.cross_entropy(head(model(x)[0][:, -1]), y).backward()
        optimizer.step()

    return step


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
    compare("add 256M", large(lambda t, x, y: x + y, 2), 20, moved=3)
    compare("exp 256M", large(lambda t, x: x.exp()), 20, moved=2)
    compare("gelu 256M", large(lambda t, x: t.nn.functional.gelu(x)), 20, moved=2)
    compare("sum 256M", large(lambda t, x: x.sum()), 20, moved=1)
    compare("sum 256M over dim 0", large(lambda t, x: x.sum(0)), 20, moved=1)
    compare("softmax 256M", large(lambda t, x: x.softmax(1)), 20, moved=2)
    compare("layer_norm 256M", large(lambda t, x: t.nn.functional.layer_norm(x, (16384,))), 20, moved=2)
    compare("transposed copy 256M", large(lambda t, x: x.t().contiguous()), 20, moved=2)
    compare("product bf16 8192", product(8192, "bfloat16"), 20)
    compare("product tf32 4096", product(4096, "float32", True), 50)
    compare("product f32 4096", product(4096, "float32"), 20)
    compare("conv 64x64x56x56", convolution, 50)
    compare("sdpa bf16", attention((8, 12, 1024, 64), "bfloat16", False), 200)
    compare("sdpa bf16 + backward", attention((8, 12, 1024, 64), "bfloat16", True), 100)
    compare("sdpa bf16 128 wide", attention((4, 16, 2048, 128), "bfloat16", False), 100)
    compare("sdpa 128 wide + backward", attention((4, 16, 2048, 128), "bfloat16", True), 50)
    compare("sdpa f32 + backward", attention((8, 12, 1024, 64), "float32", True), 20)
    compare("mlp step", training(mlp), 300)
    compare("lenet step b4", training(lambda t: lenet(t, 4)), 300)
    compare("lenet step b128", training(lambda t: lenet(t, 128)), 300)
    compare("gpt 4x256 step", training(gpt), 60)
    compare("lenet b4 as a graph", replayed(4), 300)
    compare("lenet b128 as a graph", replayed(128), 300)
    compare("resnet50 step bf16", resnet_step(False), 10, True)
    compare("resnet50 step autocast", resnet_step(True), 10, True)
    compare("gpt2 124M step", gpt2_step, 10, True)
    compare("vit-b/16 step", vit_step, 10, True)
    compare("gcn 100k step", gcn_step, 20)
    compare("dlrm 26 tables step", dlrm_step, 20)
    compare("lstm 512x2 step", lstm_step, 10)
    print("over their bounds:", ", ".join(missed) or "none")
