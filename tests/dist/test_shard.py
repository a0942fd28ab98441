"""fully_shard, FullyShardedDataParallel and checkpoints of them, on 1 to 4 ranks."""

import pytest
from ranks import good, launch

pytest.importorskip("mpi4py")


def test_losses_of_two_ranks():
    good(launch(2, "curves", "--shard", "--more"), ["MLP", "GPT", "SyncBatchNorm", "no_sync", "Adam, fused", "replicas"])


def test_losses_of_four_ranks():
    good(launch(4, "curves", "--shard"), ["MLP", "GPT", "SyncBatchNorm", "no_sync"])


@pytest.mark.parametrize("count", [2, 3])
def test_cases(count):
    good(launch(count, "shard_cases"), [f"all is well in rank {rank}" for rank in range(count)])


@pytest.mark.parametrize("before, after", [(2, 4), (4, 1), (1, 2)])
def test_checkpoint_over_ranks(before, after, tmp_path):
    folder = tmp_path / "checkpoint"
    good(launch(before, "checkpoints", "save", folder))
    good(launch(after, "checkpoints", "load", folder), [f"all is well in rank {rank}" for rank in range(after)])


def test_checkpoint_cases(tmp_path):
    good(launch(3, "checkpoints", "cases", tmp_path / "checkpoint"))
