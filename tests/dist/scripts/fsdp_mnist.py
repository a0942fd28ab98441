"""A program in the style of PyTorch's FSDP tutorial: spawned ranks, a small CNN, policies, a full state_dict. Unmodified PyTorch code."""

import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributed.fsdp import CPUOffload, FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.fully_sharded_data_parallel import BackwardPrefetch, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import enable_wrap, size_based_auto_wrap_policy, wrap
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(0.05)
        self.dropout2 = nn.Dropout(0.1)
        self.fc1 = nn.Linear(256, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def train(model, rank, device, train_loader, optimizer, epoch, sampler=None):
    model.train()
    ddp_loss = torch.zeros(2).to(device)
    if sampler:
        sampler.set_epoch(epoch)
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target, reduction="sum")
        loss.backward()
        optimizer.step()
        ddp_loss[0] += loss.item()
        ddp_loss[1] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"Train Epoch: {epoch} \tLoss: {ddp_loss[0] / ddp_loss[1]:.6f}")


def test(model, rank, device, test_loader):
    model.eval()
    ddp_loss = torch.zeros(3).to(device)
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            ddp_loss[0] += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            ddp_loss[1] += pred.eq(target.view_as(pred)).sum().item()
            ddp_loss[2] += len(data)
    dist.all_reduce(ddp_loss, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"Test set: Average loss: {ddp_loss[0] / ddp_loss[2]:.4f}, Accuracy: {int(ddp_loss[1])}/{int(ddp_loss[2])}")
    return ddp_loss[1] / ddp_loss[2]


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    images = 0.3 * torch.randn(count, 1, 12, 12, generator=generator)
    for i, label in enumerate(labels.tolist()):
        images[i, 0, 3 * label : 3 * label + 3] += 1
    return TensorDataset(images, labels)


def fsdp_main(rank, world_size, args):
    setup(rank, world_size, args.port)
    torch.manual_seed(1)
    train_set, test_set = pictures(256, 0), pictures(64, 1)
    sampler1 = DistributedSampler(train_set, rank=rank, num_replicas=world_size, shuffle=True)
    sampler2 = DistributedSampler(test_set, rank=rank, num_replicas=world_size)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler1)
    test_loader = DataLoader(test_set, batch_size=32, sampler=sampler2)
    my_auto_wrap_policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
    device = torch.device("cuda", rank) if torch.cuda.is_available() else torch.device("cpu")
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
    model = FSDP(
        Net().to(device),
        auto_wrap_policy=my_auto_wrap_policy,
        cpu_offload=CPUOffload(offload_params=False),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=MixedPrecision(param_dtype=torch.float32, reduce_dtype=torch.float32, buffer_dtype=torch.float32),
    )
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
    for epoch in range(1, args.epochs + 1):
        train(model, rank, device, train_loader, optimizer, epoch, sampler=sampler1)
        accuracy = test(model, rank, device, test_loader)
        scheduler.step()
    if rank == 0:
        print(model)
    assert accuracy > 0.9, accuracy
    with enable_wrap(wrapper_cls=FSDP):
        head = wrap(nn.Linear(2, 2))
    assert isinstance(head, FSDP)
    dist.barrier()
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
        states = model.state_dict()
    if rank == 0:
        torch.save(states, args.save)
        alone = Net()
        alone.load_state_dict(torch.load(args.save))
        print("saved", sum(value.numel() for value in states.values()))
    cleanup()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--port", default="12355")
    parser.add_argument("--save", default="mnist_cnn.pt")
    args = parser.parse_args()
    WORLD_SIZE = 2
    mp.spawn(fsdp_main, args=(WORLD_SIZE, args), nprocs=WORLD_SIZE, join=True)
