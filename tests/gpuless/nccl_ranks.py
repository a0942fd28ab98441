"""The NCCL backend on stand-in GPUs that have memory and copies, but no kernels; run as ranks by test_nccl.py."""

import os
import signal
import sys
import threading
import time

import wisp
import wisp.distributed as dist

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
wisp.cuda.set_device(rank)
here = f"cuda:{rank}"


def on(values, dtype=wisp.float32):
    return wisp.tensor(values, dtype=dtype).to(here)


def whole_world():
    total = size * (size + 1) // 2
    for dtype in (wisp.float32, wisp.float64, wisp.int32, wisp.int64, wisp.uint8):
        for op, want in (("SUM", total), ("MIN", 1), ("MAX", size), ("AVG", total / size if dtype.is_floating_point else total // size)):
            x = on([rank + 1, rank + 1], dtype)
            work = dist.all_reduce(x, op, async_op=True)
            assert work.wait() and work.is_completed() and x.tolist() == [want, want], (x, op)
            x = on([rank + 1], dtype)
            dist.reduce(x, size - 1, op)
            assert x.tolist() == [want if rank == size - 1 else rank + 1]
            x, out = on([rank + 1] * size, dtype), on([0], dtype)
            dist.reduce_scatter_tensor(out, x, op)
            assert out.tolist() == [want]
    flags = on([rank == 0, True, False], wisp.bool)
    dist.all_reduce(flags)
    assert flags.tolist() == [True, True, False]
    numbers = wisp.tensor([1 + 2j * rank]).to(here)
    dist.all_reduce(numbers)
    assert numbers.tolist() == [size + 2j * sum(range(size))]
    for dtype in (wisp.float32, wisp.int16, wisp.bfloat16):
        x = on([rank, 5], dtype)
        dist.broadcast(x, 1)
        assert x.tolist() == [1, 5]
        out = on([0] * 2 * size, dtype)
        dist.all_gather_into_tensor(out, on([rank, 7], dtype))
        assert out.tolist() == [value for r in range(size) for value in (r, 7)]
        # lists of tensors are joined and divided by kernels, which do nothing here: the primitives themselves
        backend = dist.group.WORLD.backend(x)
        out = on([0] * 2 * size, dtype) if rank == 1 else None
        for request in backend.gather(out, on([rank, 3], dtype), 1):
            request.Join()
        assert rank != 1 or out.tolist() == [value for r in range(size) for value in (r, 3)]
        whole, out = on(range(2 * size), dtype) if rank == 1 else None, on([0, 0], dtype)
        for request in backend.scatter(out, whole, 1):
            request.Join()
        assert out.tolist() == [2 * rank, 2 * rank + 1]
        # to rank r go r + 1 elements
        sent = on([10 * rank + r for r in range(size) for _ in range(r + 1)], dtype)
        out = on([0] * size * (rank + 1), dtype)
        dist.all_to_all_single(out, sent, [rank + 1] * size, list(range(1, size + 1)))
        assert out.tolist() == [10 * r + rank for r in range(size) for _ in range(rank + 1)]
    x = on([])
    dist.all_reduce(x)
    cpu = wisp.ones(2)
    dist.all_reduce(cpu)  # MPI's
    assert cpu.tolist() == [size, size]
    some = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        x = on([rank + 1])
        dist.all_reduce(x, group=some)
        assert x.tolist() == [size + 1]


def messages():
    following, before = (rank + 1) % size, (rank - 1) % size
    sent, got = on([rank, 1.5]), on([0, 0])
    batch = [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert got.tolist() == [before, 1.5]
    if rank == 0:
        dist.send(sent, 1)
    elif rank == 1:
        assert dist.recv(got, 0) == 0 and got.tolist() == [0, 1.5]
    try:
        dist.irecv(got)
    except ValueError as error:
        assert "NCCL can't receive from any rank" in str(error)
    else:
        raise AssertionError


def gone():
    """A rank dies while the GPU waits for it, and the host for the GPU."""

    class Never:
        def query(self):
            return False

    x = on([1.0])
    dist.all_reduce(x)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    backend = dist.group.WORLD.backend(x)
    backend.watched.append((Never(), time.monotonic()))
    threading.Event().wait()


if sys.argv[1] == "gone":
    gone()
whole_world()
messages()
dist.barrier()
print(f"all is well in rank {rank}")
dist.destroy_process_group()
