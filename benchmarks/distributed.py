"""The time of a training step of a small GPT: one process with all threads, two ranks with half of them each, and PyTorch's DDP on gloo.

    python benchmarks/distributed.py [--steps 10]

The whole batch is the same in all rows. Efficiency is the time of one process over that of two ranks at equal threads in all.
"""
import argparse
import os
import subprocess
import sys
import time


def rank_program(package, steps, size):
    if package == "wisp":
        import wisp.as_torch  # noqa: F401
    import torch
    import torch.distributed as dist
    from torch import nn
    rank = int(os.environ.get("RANK", 0))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    torch.manual_seed(0)
    words, width, length, batch = 512, 192, 64, 16

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.layers = nn.ModuleList([nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
                                         for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)
            self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

        def forward(self, tokens):
            x = self.words(tokens) + self.places.weight
            for layer in self.layers:
                x = layer(x, src_mask=self.mask)
            return self.head(self.norm(x)).flatten(0, 1)
    model = GPT()
    if size > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(0, words, (batch // size, length + 1))
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens[:, :-1]), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"RESULT {sorted(times[2:])[steps // 2]}")
    if size > 1:
        dist.barrier()
        dist.destroy_process_group()


def measure(package, steps, size):
    launcher = {"wisp": ["-m", "wisp.distributed.run"], "torch": ["-m", "torch.distributed.run", "--standalone"]}[package]
    start = [] if size == 1 else [*launcher, "--nproc_per_node", str(size)]
    command = [sys.executable, *start, os.path.abspath(__file__), "--rank-program", package, "--steps", str(steps), "--size", str(size)]
    result = subprocess.run(command, capture_output=True, text=True)
    found = [line for line in result.stdout.splitlines() if "RESULT" in line]
    return float(found[0].split()[-1]) if found else None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--size", type=int, default=2)
    parser.add_argument("--rank-program", choices=["wisp", "torch"])
    options = parser.parse_args()
    if options.rank_program:
        return rank_program(options.rank_program, options.steps, options.size)
    rows = {(package, size): measure(package, options.steps, size) for package in ("wisp", "torch") for size in (1, options.size)}
    for (package, size), seconds in rows.items():
        print(f"{package:6} {size} ranks: " + (f"{seconds * 1000:7.1f} ms a step" if seconds else "not measured"))
    for package in ("wisp", "torch"):
        if rows[package, 1] and rows[package, options.size]:
            print(f"{package} efficiency {rows[package, 1] / rows[package, options.size]:.2f}")
    if rows["wisp", options.size] and rows["torch", options.size]:
        print(f"wisp / torch at {options.size} ranks {rows['wisp', options.size] / rows['torch', options.size]:.2f}")


if __name__ == "__main__":
    main()
