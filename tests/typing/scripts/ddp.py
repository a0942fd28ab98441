"""Distributed data parallel, as one of its ranks sees it."""

import os
import tempfile

import wisp as torch
import wisp.distributed as dist
import wisp.nn as nn
import wisp.optim as optim
from wisp.nn.parallel import DistributedDataParallel as DDP
from wisp.utils.data import DataLoader, DistributedSampler, TensorDataset


def setup(rank: int, world_size: int) -> None:
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "12355")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup() -> None:
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank: int, world_size: int) -> None:
    setup(rank, world_size)
    model = ToyModel()
    ddp_model = DDP(model)
    dataset = TensorDataset(torch.randn(20, 10), torch.randn(20, 5))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=5, sampler=sampler)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            outputs = ddp_model(inputs)
            loss = loss_fn(outputs, labels)
            loss.backward()
            optimizer.step()
    total = torch.tensor([loss.item()])
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    total /= dist.get_world_size()
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            torch.save(ddp_model.module.state_dict(), os.path.join(folder, "model.pt"))
        print(f"mean loss {total.item():.3f}")
    dist.barrier()
    with ddp_model.no_sync():
        loss_fn(ddp_model(torch.randn(2, 10)), torch.randn(2, 5)).backward()
    cleanup()


if __name__ == "__main__":
    demo_basic(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
