"""What goes wrong, by name; run as ranks by test_faults.py."""

import os
import signal
import sys
import time
from datetime import timedelta

import wisp
import wisp.distributed as dist

what = sys.argv[1]
dist.init_process_group("mpi", timeout=timedelta(seconds=3 if what == "never" else 600))
rank = dist.get_rank()
dist.barrier()
if what == "shape":
    dist.all_reduce(wisp.ones(3 + (rank == 1)))
elif what == "dtype":
    dist.all_reduce(wisp.ones(3, dtype=wisp.float64 if rank == 1 else wisp.float32), async_op=True).wait()
elif what == "call":
    if rank == 1:
        dist.broadcast(wisp.ones(3), 0)
    else:
        dist.all_reduce(wisp.ones(3))
elif what == "kill":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(wisp.ones(3))
elif what == "midstep":  # in the middle of backward, with a bucket on its way
    model = wisp.nn.parallel.DistributedDataParallel(wisp.nn.Sequential(*[wisp.nn.Linear(64, 64) for _ in range(4)]), bucket_cap_mb=0.01)
    optimizer = wisp.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        loss = model(wisp.randn(8, 64)).sum()
        if rank == 1 and step == 2:
            model.module[1].weight.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))
        loss.backward()
        optimizer.step()
elif what == "error":
    if rank == 1:
        raise ValueError("bad luck")
    dist.all_reduce(wisp.ones(3))
elif what == "never":
    if rank == 1:
        time.sleep(600)
    dist.all_reduce(wisp.ones(3))
elif what == "leave":
    if rank != 1:
        dist.all_reduce(wisp.ones(3))
elif what == "wait":
    print("waits", flush=True)
    time.sleep(600)
