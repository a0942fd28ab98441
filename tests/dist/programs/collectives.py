"""Every collective and message, for every kind of number; run as ranks by test_collectives.py."""

import sys

import wisp
import wisp.distributed as dist
from wisp.distributed.nn import functional as F

DTYPES = (wisp.float32, wisp.float64, wisp.int64, wisp.int16, wisp.uint8, wisp.bfloat16, wisp.float16, wisp.complex64)


def tensors(rank, size, dtype):
    def full(value, *shape):
        return wisp.full(shape or (3,), value).to(dtype)

    total = size * (size + 1) // 2
    x = full(rank + 1, 5, 3)
    dist.all_reduce(x)
    assert (x == total).all()
    x = full(rank + 1, 3, 5).t()  # not contiguous
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and work.is_completed() and (x == total).all()
    x = wisp.stack([full(rank + 1), full(0)])[:, ::2]
    dist.all_reduce(x)
    assert (x[0] == total).all() and (x[1] == 0).all()
    if dtype.is_floating_point:
        x = full(rank + 1)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        assert (x == total / size).all()
    if not dtype.is_complex:
        for op, value in ((dist.ReduceOp.MIN, 1), (dist.ReduceOp.MAX, size), (dist.ReduceOp.PRODUCT, [1, 1, 2, 6, 24][size])):
            x = full(rank + 1)
            dist.all_reduce(x, op)
            assert (x == value).all(), (op, x)
    out = [full(9) for _ in range(size)]
    dist.all_gather(out, full(rank))
    assert all((one == i).all() for i, one in enumerate(out))
    whole = full(9, size, 3)
    dist.all_gather_into_tensor(whole, full(rank))
    assert all((one == i).all() for i, one in enumerate(whole))
    x = full(9)
    dist.reduce_scatter(x, [full(i) for i in range(size)])
    assert (x == rank * size).all()
    dist.reduce_scatter_tensor(x, wisp.cat([full(i + 1) for i in range(size)]))
    assert (x == (rank + 1) * size).all()
    x = full(rank)
    dist.broadcast(x, 1)
    assert (x == 1).all()
    x = full(rank)
    dist.reduce(x, 1)
    assert (x == (size * (size - 1) // 2 if rank == 1 else rank)).all()
    out = [full(9) for _ in range(size)] if rank == 0 else None
    dist.gather(full(rank), out)
    assert rank or all((one == i).all() for i, one in enumerate(out))
    x = full(9)
    dist.scatter(x, [full(i + 3) for i in range(size)] if rank == 1 else None, src=1)
    assert (x == rank + 3).all()
    out = [full(9, rank + 1) for _ in range(size)]
    dist.all_to_all(out, [full(rank, i + 1) for i in range(size)])
    assert all((one == i).all() for i, one in enumerate(out))
    x = full(9, size)
    dist.all_to_all_single(x, full(rank, size))
    assert (x == wisp.arange(size)).all()


def others(rank, size):
    flags = wisp.tensor([rank == 0, False])
    dist.all_reduce(flags)
    assert flags.tolist() == [True, False]
    bits = wisp.tensor([1 << rank])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    assert bits.item() == (1 << size) - 1
    for empty in (wisp.empty(0), wisp.empty(0, dtype=wisp.bfloat16)):
        dist.all_reduce(empty)
        dist.all_gather([wisp.empty(0, dtype=empty.dtype) for _ in range(size)], empty)
    scalar = wisp.tensor(1.0)
    dist.all_reduce(scalar)
    assert scalar.item() == size
    works = [dist.all_reduce(wisp.full((4,), float(i)).to(wisp.bfloat16 if i % 2 else wisp.float32), async_op=True) for i in range(8)]
    for i in reversed(range(8)):  # waited for in another order than begun
        works[i].wait()
        assert (works[i].result()[0] == i * size).all()
    assert dist.all_reduce(wisp.ones(2), async_op=True).get_future().then(lambda f: f.value()[0] + 1).wait().tolist() == [size + 1.0] * 2


def objects(rank, size):
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    assert [one["rank"] for one in found] == list(range(size))
    found = [rank, "x"]
    dist.broadcast_object_list(found, 1)
    assert found == [1, "x"]
    found = [None]
    dist.scatter_object_list(found, list("abcd")[:size] if rank == 0 else None)
    assert found == ["abcd"[rank]]
    found = [None] * size if rank == 1 else None
    dist.gather_object(rank, found, dst=1)
    assert rank != 1 or found == list(range(size))


def messages(rank, size):
    if rank == 0:
        dist.send(wisp.arange(6).view(2, 3).t(), 1)
        dist.send_object_list([1, "b"], 1)
    if rank == 1:
        x = wisp.zeros(3, 2, dtype=wisp.int64)
        assert dist.recv(x) == 0 and x.tolist() == [[0, 3], [1, 4], [2, 5]]
        found = [None, None]
        dist.recv_object_list(found, 0)
        assert found == [1, "b"]
    x = wisp.empty(1)
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, wisp.tensor([float(rank)]), (rank + 1) % size), dist.P2POp(dist.irecv, x, (rank - 1) % size)]
    ):
        work.wait()
    assert x.item() == (rank - 1) % size


def groups(rank, size):
    group = dist.new_group([0, 1])
    if rank < 2:
        x = wisp.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == 2 and dist.get_world_size(group) == 2 and dist.get_group_rank(group, 1) == 1
    else:
        assert group is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(group) == -1
    last = dist.new_group([size - 1])
    x = wisp.ones(1)
    if rank == size - 1:
        dist.all_reduce(x, group=last)
    assert x.item() == 1
    dist.barrier()
    dist.monitored_barrier()


def gradients(rank, size):
    weights = [wisp.arange(1.0, 4) * (i + 1) for i in range(size)]  # each rank makes another loss of what it gets
    total = sum(weights)

    def gradient(function):
        x = wisp.full((3,), rank + 1.0, requires_grad=True)
        y = function(x)
        loss = sum((part * weights[rank] * (i + 1)).sum() for i, part in enumerate(y if isinstance(y, tuple) else (y,)))
        loss.backward()
        return x.grad

    assert wisp.equal(gradient(F.all_reduce), total)
    assert wisp.equal(gradient(lambda x: F.broadcast(x, 1)), total if rank == 1 else total * 0)
    assert wisp.equal(gradient(lambda x: F.reduce(x, 1)), weights[1])
    assert wisp.equal(gradient(F.all_gather), total * (rank + 1))
    assert wisp.equal(gradient(lambda x: F.gather(x, 1)), weights[1] * (rank + 1))
    assert wisp.equal(
        gradient(lambda x: F.scatter([x * (i + 1) for i in range(size)], 1)),
        sum(weights[i] * (i + 1) for i in range(size)) if rank == 1 else total * 0,
    )
    assert wisp.equal(
        gradient(lambda x: F.reduce_scatter(wisp.empty(3), [x * (i + 1) for i in range(size)])),
        sum(weights[i] * (i + 1) for i in range(size)),
    )
    assert wisp.equal(gradient(lambda x: F.all_to_all([wisp.empty(3) for _ in range(size)], [x] * size)), total * (rank + 1))


def main(rank=-1, size=-1, method=None):
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    rank, size = dist.get_rank(), dist.get_world_size()
    assert dist.get_backend() == "gloo" and dist.is_initialized()
    for dtype in DTYPES:
        tensors(rank, size, dtype)
    for part in (others, objects, messages, groups, gradients):
        part(rank, size)
    dist.destroy_process_group()
    dist.init_process_group("mpi", rank=rank, world_size=size)  # and again
    dist.barrier()
    sys.stdout.write(f"all is well in rank {rank}\n")  # one write, that ranks do not mix


def on_spawned(rank, size, method):
    main(rank, size, method)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
