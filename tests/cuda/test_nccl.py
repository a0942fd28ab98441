"""NCCL with one rank on one GPU: every collective goes through the library, on its own stream, and the CPU's tensors stay with MPI."""

import pytest

import wisp
import wisp.distributed as dist
from wisp import nn

pytestmark = pytest.mark.skipif(not dist.is_nccl_available(), reason="NCCL is not installed")


@pytest.fixture(scope="module", autouse=True, params=["nccl", "cpu:gloo,cuda:nccl", None])
def group(request):
    dist.init_process_group(request.param, rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_names(group):
    assert dist.get_backend() in ("nccl", "cpu:gloo,cuda:nccl", "mpi")
    assert type(group.backend(wisp.ones(1, device="cuda"))).__name__ == "NcclBackend"
    assert type(group.backend(wisp.ones(1))).__name__ == "AloneBackend"
    assert wisp.cuda.nccl.version() >= (2, 10)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool", "complex64"])
def test_collectives(dtype):
    values = (wisp.arange(24, device="cuda") % 7).to(getattr(wisp, dtype))
    for x in (values.clone(), values.view(4, 6).t(), values[::2], values[:0], values[3].clone()):
        for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
            if (dtype == "complex64" and op not in ("SUM", "AVG")) or (dtype == "bool" and op == "AVG"):
                continue
            y = x.clone()
            dist.all_reduce(y, op)
            assert (y == x).all()
            dist.reduce(y, 0, op)
            out = wisp.empty_like(y)
            dist.reduce_scatter_tensor(out, y, op)
            assert (y == x).all() and (out == x).all()
        y = x.clone()
        dist.broadcast(y, 0)
        gathered, listed, scattered, exchanged = wisp.empty_like(x), [wisp.empty_like(x)], wisp.empty_like(x), wisp.empty_like(x)
        dist.all_gather_into_tensor(gathered, x)
        dist.all_gather(listed, x)
        assert (gathered == x).all() and (listed[0] == x).all() and (y == x).all()
        dist.gather(x, listed)
        dist.scatter(scattered, [x])
        assert (scattered == x).all() and (listed[0] == x).all()
        if x.dim():
            dist.all_to_all_single(exchanged, x)
            assert (exchanged == x).all()
    moved = wisp.arange(5, device="cuda").to(wisp.int16)  # what is not reduced may be of any type
    dist.broadcast(moved, 0)
    assert moved.tolist() == [0, 1, 2, 3, 4]


def test_refusals():
    with pytest.raises(RuntimeError, match="Cannot use ReduceOp.BAND on tensors of int32 with NCCL"):
        dist.all_reduce(wisp.ones(2, dtype=wisp.int32, device="cuda"), dist.ReduceOp.BAND)
    with pytest.raises(RuntimeError, match="Cannot use ReduceOp.SUM on tensors of int16 with NCCL"):
        dist.all_reduce(wisp.ones(2, dtype=wisp.int16, device="cuda"))
    from wisp.distributed import _nccl

    with pytest.raises(dist.DistBackendError, match="ncclAllReduce: NCCL error 4, invalid argument"):
        _nccl.check(4, "ncclAllReduce")


def test_its_own_stream(group):
    """An asynchronous operation starts after the work before it, and waiting for it orders later work, also on another stream."""
    x = wisp.ones(1 << 22, device="cuda")
    for _ in range(20):
        x.mul_(1.5).mul_(2 / 3)
    x.fill_(3)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait()
    x.add_(1)
    side = wisp.cuda.Stream()
    with wisp.cuda.stream(side):
        other = dist.all_reduce(x.clone(), async_op=True)
    del other
    side.wait_stream(wisp.cuda.current_stream())
    with wisp.cuda.stream(side):
        y = x * 2
        again = dist.all_reduce(y, async_op=True)
    again.wait()
    assert (y == 8).all() and x[0] == 4
    while not again.is_completed():
        pass
    assert not group.pending or all(work.is_completed() for work in list(group.pending))
    communicator = group.backend(x).communicators[0]
    assert communicator.stream != wisp.cuda.current_stream()


def test_from_the_cpu():
    x = wisp.ones(3)
    dist.all_reduce(x)
    objects = [None]
    dist.all_gather_object(objects, "a")
    dist.barrier()
    assert x.tolist() == [1, 1, 1] and objects == ["a"]


def test_in_a_graph(group):
    x = wisp.ones(1000, device="cuda")
    dist.all_reduce(x)
    graph = wisp.cuda.CUDAGraph()
    with wisp.cuda.graph(graph):
        y = x * 2
        dist.all_reduce(y)
        z = y + 1
    x.fill_(5)
    graph.replay()
    assert (z == 11).all()


@pytest.mark.parametrize("hook", [False, True])
def test_ddp(hook):
    from wisp.distributed.algorithms.ddp_comm_hooks import default_hooks

    wisp.manual_seed(0)
    plain = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4)).cuda()
    copy = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4)).cuda()
    copy.load_state_dict(plain.state_dict())
    model = nn.parallel.DistributedDataParallel(copy, device_ids=[0], bucket_cap_mb=0.001)
    if hook:  # with a hook gradients take their whole way, also in a world of one
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    optimizers = [wisp.optim.AdamW(m.parameters(), lr=0.01) for m in (plain, model)]
    for _ in range(5):
        x = wisp.randn(16, 32, device="cuda")
        losses = []
        for m, optimizer in zip((plain, model), optimizers):
            optimizer.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == losses[1]
