"""DistributedDataParallel whose buckets are joined while backward goes on, with loader threads and the pool at work; run as ranks by test_races.py."""

import os

import wisp
import wisp.distributed as dist
from wisp import nn
from wisp.utils.data import DataLoader, TensorDataset

dist.init_process_group()
wisp.set_num_threads(2)
wisp.manual_seed(0)
layers = [part for _ in range(4) for part in (nn.Linear(96, 96), nn.ReLU())]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers, nn.Linear(96, 4)), bucket_cap_mb=0.04)  # about a layer each
optimizer = wisp.optim.SGD(model.parameters(), lr=0.1)
x = wisp.randn(64, 96, generator=wisp.Generator().manual_seed(dist.get_rank()))
for (batch,) in DataLoader(TensorDataset(x), batch_size=16):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
for parameter in model.parameters():
    everyone = [wisp.empty_like(parameter) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, parameter.detach())
    assert all(wisp.equal(other, parameter) for other in everyone)
print("the same in rank", dist.get_rank(), flush=True)
dist.barrier()
os._exit(0)  # MPI's own end does not survive the sanitizer
