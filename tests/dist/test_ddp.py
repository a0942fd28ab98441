"""DistributedDataParallel on 2 and 4 ranks."""

import pytest
from ranks import good, launch

pytest.importorskip("mpi4py")


def test_losses_of_two_ranks():
    good(launch(2, "curves", "--more"), ["GPT", "SyncBatchNorm", "no_sync", "bf16_compress_hook"])


def test_losses_of_four_ranks():
    good(launch(4, "curves"), ["GPT", "SyncBatchNorm", "no_sync"])


def test_unused_shared_and_refused():
    good(launch(2, "ddp_cases"), ["all is well in rank 0", "all is well in rank 1"])


def test_different_numbers_of_batches():
    good(launch(3, "join"), [f"all is well in rank {rank}" for rank in range(3)])


def test_a_backward_that_joins_after_forwards_that_did_not():
    good(launch(2, "late_sync"), ["late sync"])
