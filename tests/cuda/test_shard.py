"""fully_shard on a GPU in a world of one: devices, dtypes and checkpoints; what travels between ranks is tested in tests/dist."""

import pytest

import wisp
from wisp import distributed, nn
from wisp.distributed import checkpoint
from wisp.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from wisp.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard


@pytest.fixture(autouse=True)
def world():
    distributed.init_process_group("gloo", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def net():
    wisp.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).cuda()


def cut(model, **options):
    fully_shard(model[0], **options)
    return fully_shard(model, **options)


def train(model, steps=3):
    optimizer = wisp.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(wisp.full((2, 5), step + 1.0, device="cuda")).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return loss.item(), optimizer


@pytest.mark.parametrize(
    "make",
    [cut, FullyShardedDataParallel, lambda model: cut(model, offload_policy=CPUOffloadPolicy())],
    ids=["fully_shard", "wrapper", "offload"],
)
def test_training(make):
    ours, theirs = make(net()), net()
    assert train(ours)[0] == pytest.approx(train(theirs)[0], rel=1e-5)
    for one, other in zip(ours.parameters(), theirs.parameters()):
        wisp.testing.assert_close(one.full_tensor().cpu(), other.detach().cpu())


def test_bfloat16():
    model = net()
    fully_shard(model[0], mp_policy=MixedPrecisionPolicy(param_dtype=wisp.bfloat16))
    fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=wisp.bfloat16, reduce_dtype=wisp.float32, output_dtype=wisp.float32))
    assert train(model)[0] == pytest.approx(train(net())[0], rel=0.05)
    assert all(parameter.dtype == wisp.float32 and parameter.is_cuda for parameter in model.parameters())


def test_checkpoint(tmp_path):
    model = cut(net())
    loss, optimizer = train(model)
    checkpoint.save(dict(zip(("model", "optimizer"), get_state_dict(model, optimizer))), checkpoint_id=tmp_path)
    other = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).cuda()
    fresh = wisp.optim.Adam(other.parameters(), lr=0.01)
    state = dict(zip(("model", "optimizer"), get_state_dict(other, fresh)))
    checkpoint.load(state, checkpoint_id=tmp_path)
    set_state_dict(other, fresh, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    wisp.testing.assert_close(other[0].weight.detach().cpu(), model[0].weight.full_tensor().cpu())
    average = fresh.state[other[0].weight]["exp_avg"]
    assert average.is_cuda and average.abs().sum().item() > 0
