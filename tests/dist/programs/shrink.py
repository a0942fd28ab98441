"""Ranks that leave: the rest goes on as a smaller world."""

import wisp
import wisp.distributed as dist

dist.init_process_group("mpi")
rank = dist.get_rank()
if rank == 1:
    try:
        dist.shrink_group([1])
    except RuntimeError as error:
        assert "must not call it" in str(error)
else:
    for bad in ([], [3], [0, 0], [0, 1, 2]):
        try:
            dist.shrink_group(bad)
        except ValueError as error:
            assert "at least one and not all" in str(error)
        else:
            raise AssertionError(f"{bad} was taken")
    whole = dist.group.WORLD
    smaller = dist.shrink_group([1])
    assert (dist.get_world_size(), dist.get_rank()) == (2, rank // 2) and dist.get_process_group_ranks(smaller) == [0, 1]
    x = wisp.tensor([float(rank)])
    dist.all_reduce(x)
    assert x.item() == 2.0
    dist.barrier()
print(f"all is well in rank {rank}", flush=True)
