"""Ranks with different numbers of batches; run as ranks by test_ddp.py."""

import wisp
import wisp.distributed as dist
from wisp import nn
from wisp.distributed.algorithms import Join
from wisp.distributed.optim import ZeroRedundancyOptimizer
from wisp.nn.parallel import DistributedDataParallel


def net():
    wisp.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5).eval(), nn.Tanh(), nn.Linear(5, 1))


def batch(rank, step):
    return wisp.randn(4, 3, generator=wisp.Generator().manual_seed(100 * rank + step))


def reference(counts, by_active):
    """What one process computes that sees the batches of all ranks that have one."""
    model = net()
    optimizer = wisp.optim.Adam(model.parameters(), lr=0.01)
    for step in range(max(counts)):
        active = [rank for rank, count in enumerate(counts) if step < count]
        optimizer.zero_grad()
        for rank in active:
            (model(batch(rank, step)).square().mean() / (len(active) if by_active else len(counts))).backward()
        optimizer.step()
    return model


def main():
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    for counts in (
        [1 + 2 * other for other in range(size)],
        [5 - 2 * (other > 0) for other in range(size)],
        [0, *[2] * (size - 1)],
        [2] * size,
    ):
        for by_active in (False, True):
            for divided in (False, True):
                for options in ({}, {"find_unused_parameters": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 0.00001}):
                    model = DistributedDataParallel(net(), **options)
                    optimizer = (
                        ZeroRedundancyOptimizer(model.parameters(), wisp.optim.Adam, lr=0.01)
                        if divided
                        else wisp.optim.Adam(model.parameters(), lr=0.01)
                    )
                    with Join([model, optimizer] if divided else [model], divide_by_initial_world_size=not by_active):
                        for step in range(counts[rank]):
                            optimizer.zero_grad()
                            model(batch(rank, step)).square().mean().backward()
                            optimizer.step()
                    for ours, theirs in zip(model.module.parameters(), reference(counts, by_active).parameters()):
                        wisp.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    model = DistributedDataParallel(net())
    with model.join():
        for step in range(2 * (rank + 1)):
            if step % 2:
                model(batch(rank, step)).sum().backward()
            else:
                with model.no_sync():
                    model(batch(rank, step)).sum().backward()
    try:
        with model.join(throw_on_early_termination=True):
            for step in range(rank + 1):
                model(batch(rank, step)).sum().backward()
    except RuntimeError as error:
        assert "exhausted inputs" in str(error)
    else:
        raise AssertionError("no error in rank", rank)
    model(batch(rank, 0)).sum().backward()  # and after it
    print("all is well in rank", rank)


if __name__ == "__main__":
    main()
