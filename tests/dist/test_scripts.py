"""Programs written for PyTorch run unmodified under `wisp launch` and `wisp run`."""

import pathlib

import pytest
from ranks import command, free_port, good, run

pytest.importorskip("mpi4py")

SCRIPTS = pathlib.Path(__file__).parent / "scripts"


def test_ddp_example():
    good(run(command("launch", "-n", 2, SCRIPTS / "ddp_example.py")), ["training completed in rank 0!", "training completed in rank 1!"])


def test_mingpt_ddp(tmp_path):
    snapshot = tmp_path / "snapshot.pt"
    good(
        run(command("launch", "--standalone", "--nproc_per_node=2", SCRIPTS / "mingpt_ddp.py", snapshot, 1)), ["Snapshot saved at epoch 1"]
    )
    good(
        run(command("launch", "-n", 2, SCRIPTS / "mingpt_ddp.py", snapshot, 2)),
        ["[1] Resuming training from snapshot at Epoch 1", "Snapshot saved at epoch 2"],
    )


def test_fsdp_tutorial(tmp_path):
    good(
        run(command("run", SCRIPTS / "fsdp_mnist.py", "--port", free_port(), "--save", tmp_path / "model.pt")), ["saved 9604", "FSDPConv2d"]
    )


def test_fsdp2_example(tmp_path):
    good(run(command("launch", "-n", 2, SCRIPTS / "fsdp2_train.py", tmp_path / "run")), ["FSDPTransformer("])
    good(run(command("launch", "-n", 3, SCRIPTS / "fsdp2_train.py", tmp_path / "run", "--mixed-precision")), ["[2] resumed"])
