"""A program in the style of PyTorch's ddp example: torchrun's environment, a toy model, one step per rank. Unmodified PyTorch code."""

import argparse
import os
import sys
from urllib.parse import urlparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank):
    print(f"[{os.getpid()}] rank = {dist.get_rank()}, world_size = {dist.get_world_size()}, backend = {dist.get_backend()}", flush=True)
    model = ToyModel()
    if torch.cuda.is_available():
        device_id = rank % torch.cuda.device_count()
        model = model.cuda(device_id)
        ddp_model = DDP(model, device_ids=[device_id])
    else:
        ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    device = next(ddp_model.parameters()).device
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10, device=device))
    labels = torch.randn(20, 5, device=device)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    print(f"training completed in rank {rank}!", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0)
    parser.parse_args()
    env_dict = {key: os.environ[key] for key in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    if sys.platform == "win32":
        url = urlparse(os.environ["INIT_METHOD"])
        print(url)
    print(f"[{os.getpid()}] Initializing process group with: {env_dict}")
    backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    dist.init_process_group(backend=backend)
    torch.manual_seed(1)
    demo_basic(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
