"""Checkpoints of a cut model: `checkpoints.py save FOLDER` trains and saves, `load FOLDER` goes on with any number of ranks and compares with one
process that never stopped; `cases FOLDER` looks at what is refused. Run by test_shard.py."""

import os
import sys

import wisp
import wisp.distributed as dist
import wisp.distributed.checkpoint as dcp
from wisp import nn
from wisp.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from wisp.distributed.fsdp import FullyShardedDataParallel, fully_shard
from wisp.distributed.tensor import DTensor, Shard, distribute_tensor
from wisp.nn.parallel import DistributedDataParallel


def net():
    wisp.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.BatchNorm1d(7).eval(), nn.Linear(7, 3))


def cut(model):
    fully_shard(model[0])
    return fully_shard(model)


def train(model, optimizer, steps, rank=0, size=1):
    for step in steps:
        x = wisp.randn(12, 5, generator=wisp.Generator().manual_seed(step)).chunk(size)[rank]
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def adam(model):
    return wisp.optim.AdamW([{"params": list(model.parameters())[:2]}, {"params": list(model.parameters())[2:], "lr": 0.02}], lr=0.01)


class Training:
    """A model and its optimizer as one object that saves itself, as PyTorch's tutorial has it."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def save(folder, rank, size):
    model = cut(net())
    optimizer = adam(model)
    train(model, optimizer, range(3), rank, size)
    dcp.save({"app": Training(model, optimizer), "epoch": 3, "name": "run", "seen": [1, 2]}, checkpoint_id=folder)
    train(model, optimizer, range(3, 4), rank, size)
    future = dcp.async_save({"app": Training(model, optimizer), "epoch": 4}, checkpoint_id=folder + "-async")
    train(model, optimizer, range(4, 6), rank, size)  # goes on while it is written
    future.result()
    dist.barrier()
    files = [name for name in os.listdir(folder) if name.endswith(".distcp")]
    assert len(files) == size and ".metadata" in os.listdir(folder), files


def expected(steps):
    model = net()
    optimizer = adam(model)
    train(model, optimizer, range(steps))
    return model


def load(folder, rank, size):
    for kind in ("cut", "wrapper", "whole", "parallel"):
        for path, begin in ((folder, 3), (folder + "-async", 4)):
            model = net()
            with wisp.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            if kind != "whole":
                model = {"cut": cut, "wrapper": FullyShardedDataParallel, "parallel": DistributedDataParallel}[kind](model)
            optimizer = adam(model)
            state = {"app": Training(model, optimizer), "epoch": 0}
            dcp.load(state, checkpoint_id=path)
            assert state["epoch"] == begin
            train(model, optimizer, range(begin, 6), *((rank, size) if kind != "whole" else ()))
            for (name, ours), theirs in zip(model.named_parameters(), expected(6).parameters()):
                wisp.testing.assert_close(
                    ours.full_tensor() if isinstance(ours, DTensor) else ours.detach(),
                    theirs.detach(),
                    rtol=1e-5,
                    atol=1e-6,
                    msg=f"{kind} {name}",
                )


def cases(folder, rank, size):
    mesh = dist.init_device_mesh("cpu", (size,))
    whole = wisp.arange(35.0).view(5, 7)
    state = {
        "rows": distribute_tensor(whole, mesh, [Shard(0)]),
        "columns": distribute_tensor(whole, mesh, [Shard(1)]),
        "plain": whole.clone(),
        "again": whole,
        "view": whole[1:],
        "half": whole.bfloat16(),
        "complex": wisp.complex(whole, whole),
        "empty": wisp.empty(0, 3),
        "scalar": wisp.tensor(2.0),
        "number": 1.5,
        "text": "t",
        "none": None,
        "list": [whole.clone(), {"deep": whole.clone()}],
        "plainlist": [1, "a"],
    }
    dcp.save(state, checkpoint_id=folder)
    dcp.save(state, checkpoint_id=folder)  # over it

    def blank(value):
        return (
            wisp.Tensor.zero_(value.clone()) if not isinstance(value, DTensor) else value._like(wisp.zeros_like(wisp.Tensor.detach(value)))
        )

    target = {name: blank(value) if isinstance(value, wisp.Tensor) else None for name, value in state.items()}
    target["list"] = [wisp.zeros(5, 7), {"deep": wisp.zeros(5, 7)}]
    target["rows"], target["columns"] = target["columns"], target["rows"]  # cut in the other way
    dcp.load(target, checkpoint_id=folder)
    for name, value in state.items():
        if isinstance(value, wisp.Tensor):
            ours = target[name]
            wisp.testing.assert_close(
                ours.full_tensor() if isinstance(ours, DTensor) else ours,
                value.full_tensor() if isinstance(value, DTensor) else value,
                msg=name,
            )
    assert (target["number"], target["text"], target["none"], target["plainlist"]) == (1.5, "t", None, [1, "a"])
    assert wisp.equal(target["list"][1]["deep"], whole)
    for wrong, words in (
        ({"rows": wisp.zeros(4, 7)}, ["Size mismatch between saved [5, 7] and current: [4, 7] for rows", "The checkpoint also has: again"]),
        ({"lost": wisp.zeros(1), "gone": 3}, ["Missing key in checkpoint state_dict: lost.", "state_dict: gone."]),
        ({"text": wisp.zeros(1)}, ["text: no tensor in the checkpoint, but Tensor here"]),
        ({"plain": 1}, ["a tensor in the checkpoint"]),
    ):
        try:
            dcp.load(wrong, checkpoint_id=folder)
        except dcp.CheckpointException as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError(words)
    lenient = {"lost": wisp.ones(1)}
    dcp.load(lenient, checkpoint_id=folder, planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert lenient["lost"].item() == 1
    try:
        dcp.save({"different": wisp.zeros(1 + rank)}, checkpoint_id=folder)
    except dcp.CheckpointException as error:
        assert "needs a DTensor" in str(error)
    else:
        raise AssertionError("different shapes were saved as one")
    target = {"plain": wisp.zeros(5, 7)}
    dcp.load(target, checkpoint_id=folder)  # what was there before is there
    assert wisp.equal(target["plain"], whole)
    try:
        dcp.load(target, checkpoint_id=folder + "-nowhere")
    except (FileNotFoundError, dcp.CheckpointException) as error:
        assert "there is no checkpoint" in str(error)
    model = cut(net())
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(full) == (rank == 0)
    other = cut(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.BatchNorm1d(7), nn.Linear(7, 3)))
    set_model_state_dict(other, full, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    wisp.testing.assert_close(other[3].weight.full_tensor(), model[3].weight.full_tensor())
    flat = get_state_dict(model, adam(model), options=StateDictOptions(flatten_optimizer_state_dict=True))[1]
    assert "state.0.weight.exp_avg" in flat and flat["param_groups.3.bias.lr"] == 0.02
    try:
        set_model_state_dict(model, {"0.weight": wisp.zeros(7, 5), "more": wisp.zeros(1)})
    except RuntimeError as error:
        assert "Missing key(s) in state_dict: 0.bias" in str(error) and "Unexpected key(s) in state_dict: more" in str(error)
    else:
        raise AssertionError("missing keys were not found")


def main():
    dist.init_process_group("mpi")
    {"save": save, "load": load, "cases": cases}[sys.argv[1]](sys.argv[2], dist.get_rank(), dist.get_world_size())
    print("all is well in rank", dist.get_rank())


if __name__ == "__main__":
    main()
