"""A program in the style of PyTorch's tutorials: it starts its own ranks; run by test_launch.py under `wisp run`."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", sys.argv[1]
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))
    model = DDP(model)
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    for _ in range(3):
        optimizer.zero_grad()
        nn.MSELoss()(model(torch.randn(20, 10)), torch.randn(20, 5)).backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.state_dict(), sys.argv[2])
    dist.barrier()
    model.load_state_dict(torch.load(sys.argv[2], map_location="cpu", weights_only=True))
    if len(sys.argv) > 3 and rank == 1:
        raise ValueError("bad luck")
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write(f"done {rank}\n")


if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2, join=True)
