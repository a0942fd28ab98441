"""What data parallelism costs.

    python benchmarks/distributed.py [--steps 15] [--rounds 3]

A step of a GPT (4 layers of 256, 8 x 128 tokens, AdamW) in one process with all threads, in two ranks with half of them each, and the
same with PyTorch's DDP on gloo. The whole batch is the same in all rows. The runs take turns; a row is the median over the rounds of the
fastest quarter of the steps, since a step that another program disturbed tells nothing. Efficiency is the time of one process over that
of two ranks at equal threads in all.

    python benchmarks/distributed.py --shard

The same with fully_shard, on each layer and on the model, in the place of DDP.

    python benchmarks/distributed.py --cuda

A step of GPT-2 (124 million parameters, 8 x 1024 tokens, bfloat16) on a GPU: bare, in DDP on NCCL in a world of one, and in DDP whose
gradients take the whole way through buckets and NCCL all the same (by way of a communication hook).
"""

import argparse
import os
import statistics
import subprocess
import sys
import time


def make_gpt(torch, words, length, width, heads, layers, tied=False):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, tokens, _ = x.shape
            parts = self.qkv(self.first(x)).view(batch, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            x = x + self.join(mixed.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.narrow(F.gelu(self.wide(self.second(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(layers)]), nn.LayerNorm(width)
            self.head = nn.Linear(width, words, bias=False)
            if tied:
                self.head.weight = self.words.weight

        def forward(self, tokens):
            return self.head(self.norm(self.blocks(self.words(tokens) + self.places.weight[: tokens.shape[1]]))).flatten(0, 1)

    return GPT()


def best_quarter(times):
    times = sorted(times)
    return times[len(times) // 8]  # the middle of the fastest quarter


def distribute(torch, model, shard):
    if not shard:
        return torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def rank_program(package, steps, size, shard):
    if package == "wisp":
        import wisp.as_torch  # noqa: F401
    import torch
    import torch.distributed as dist

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    torch.manual_seed(0)
    words, length, batch = 512, 128, 8
    model = make_gpt(torch, words, length, 256, 4, 4)
    if size > 1:
        dist.init_process_group("gloo")
        model = distribute(torch, model, shard)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, words, (batch // size, length + 1))
    times = []
    for _ in range(steps + 3):
        begin = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if size == 1 or dist.get_rank() == 0:
        print(f"RESULT {best_quarter(times[3:])}")
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()


def measure(package, steps, size, shard):
    launcher = {"wisp": ["-m", "wisp.distributed.run"], "torch": ["-m", "torch.distributed.run", "--standalone"]}[package]
    start = [] if size == 1 else [*launcher, "--nproc_per_node", str(size)]
    command = [
        sys.executable,
        *start,
        os.path.abspath(__file__),
        "--rank-program",
        package,
        "--steps",
        str(steps),
        "--size",
        str(size),
        *(["--shard"] if shard else []),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    found = [line for line in result.stdout.splitlines() if "RESULT" in line]
    return float(found[0].split()[-1]) if found else None


def compare(options):
    rows = {(package, size): [] for package in options.packages.split(",") for size in (1, options.size)}
    for _ in range(options.rounds):
        for (package, size), times in rows.items():
            seconds = measure(package, options.steps, size, options.shard)
            if seconds:
                times.append(seconds)
    rows = {row: statistics.median(times) if times else None for row, times in rows.items()}
    for (package, size), seconds in rows.items():
        print(f"{package:6} {size} ranks: " + (f"{seconds * 1000:7.1f} ms a step" if seconds else "not measured"))
    for package in ("wisp", "torch"):
        if rows.get((package, 1)) and rows[package, options.size]:
            print(f"{package} efficiency {rows[package, 1] / rows[package, options.size]:.2f}")
    if rows.get(("wisp", options.size)) and rows.get(("torch", options.size)):
        print(f"wisp / torch at {options.size} ranks {rows['wisp', options.size] / rows['torch', options.size]:.2f}")


def on_gpu(steps, layers, batch):
    import wisp.as_torch  # noqa: F401, I001
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    torch.manual_seed(0)
    dist.init_process_group("nccl", init_method="tcp://localhost:29511", rank=0, world_size=1)
    words, length = 50304, 1024
    tokens = torch.randint(0, words, (batch, length + 1)).cuda()
    inner = make_gpt(torch, words, length, 768, 12, layers, tied=True).cuda()
    optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-4)
    count = sum(parameter.numel() for parameter in inner.parameters())
    hooked = torch.nn.parallel.DistributedDataParallel(inner, device_ids=[0])
    hooked.register_comm_hook(None, default_hooks.allreduce_hook)
    models = {"bare": inner, "DDP": torch.nn.parallel.DistributedDataParallel(inner, device_ids=[0]), "DDP, the whole way": hooked}
    times = {name: [] for name in models}
    for turn in range(7):
        for name, model in models.items():
            # (the hooks of a wrapper that is not called do nothing)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                optimizer.zero_grad()
                with torch.autocast("cuda", torch.bfloat16):
                    loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:].flatten())
                loss.backward()
                optimizer.step()
            torch.cuda.synchronize()
            if turn:
                times[name].append((time.perf_counter() - begin) / steps)
    for name, found in times.items():
        seconds = statistics.median(found)
        ratio = statistics.median(each / bare for each, bare in zip(found, times["bare"]))
        print(f"GPT of {count / 1e6:.0f} million parameters on the GPU, {name:19} {seconds * 1e3:7.2f} ms a step, {ratio:.3f} of bare")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--packages", default="wisp,torch")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--shard", action="store_true", help="fully_shard instead of DDP")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rank-program", choices=["wisp", "torch"])
    options = parser.parse_args()
    if options.rank_program:
        rank_program(options.rank_program, options.steps, options.size, options.shard)
    elif options.cuda:
        on_gpu(options.steps, options.layers, options.batch)
    else:
        compare(options)


if __name__ == "__main__":
    main()
