"""The examples in the docstrings of wisp.distributed, in a world of one process."""

import doctest
import importlib
import pkgutil

import pytest

import wisp.distributed

SKIPPED = ("_pmi", "launch", "run", "ray", "nccl")  # programs, and what needs more than Wisp
MODULES = [
    found.name
    for found in pkgutil.walk_packages(wisp.distributed.__path__, "wisp.distributed.")
    if not any(part.strip("_").startswith(SKIPPED) or part in SKIPPED for part in found.name.split(".")[2:])
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name), extraglobs={"wisp": wisp})
    assert not result.failed


def test_lists_groups_and_levels(monkeypatch):
    dist = wisp.distributed
    dist.init_process_group("mpi", rank=0, world_size=1)
    try:
        before = dist.get_pg_count()
        mine, groups = dist.new_subgroups_by_enumeration([[0]])
        assert mine is groups[0] and dist.get_pg_count() == before + 1 and dist.split_group(mine, [[0]]).size() == 1
        out = [[wisp.empty(2), wisp.empty(1)]]
        dist.all_gather_coalesced(out, [wisp.ones(2), wisp.zeros(1)], group=mine)
        assert out[0][0].tolist() == [1, 1] and out[0][1].tolist() == [0]
        x = [wisp.ones(2), wisp.ones(3)]
        work = dist.all_reduce_coalesced(x, async_op=True)
        assert work.wait() is not False and work.is_completed() and x[1].tolist() == [1, 1, 1]
        out = wisp.empty(2)
        dist.all_gather_single(out, wisp.full((2,), 3.0))
        dist.reduce_scatter_single(out, out + 1)
        assert out.tolist() == [4, 4]
        with dist.record_comm("gradients"):
            dist.barrier()
        for wrong in ([], [[0], [0]]):
            with pytest.raises(ValueError):
                dist.new_subgroups_by_enumeration(wrong)
        with pytest.raises(ValueError, match="results"):
            dist.all_gather_coalesced([[wisp.empty(2)]], [wisp.ones(2), wisp.ones(2)])
    finally:
        dist.destroy_process_group()
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
    dist.set_debug_level_from_env()
    assert dist.get_debug_level().name == "DETAIL" and not dist.is_backend_available("nothing")
    dist.set_debug_level(dist.DebugLevel.OFF)
