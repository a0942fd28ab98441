"""fully_shard and FullyShardedDataParallel in odd cases, and what they send; run as ranks by test_shard.py."""

import functools

import wisp
import wisp.distributed as dist
from wisp import nn
from wisp.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullStateDictConfig,
    FullyShardedDataParallel,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
    fully_shard,
    wrap,
)
from wisp.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from wisp.nn.parallel import DistributedDataParallel
from wisp.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Rows that no number of ranks divides, a shared layer, one that nobody uses, one that the input chooses, and a frozen one."""

    def __init__(self, again=False):
        super().__init__()
        self.first, self.left, self.right = nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 7)
        self.idle, self.frozen, self.last = nn.Linear(7, 1), nn.Linear(7, 7), nn.Linear(7, 1)
        self.tied = nn.Linear(5, 7, bias=False)
        self.tied.weight = self.first.weight
        self.frozen.requires_grad_(False)
        self.kept, self.again = None, again

    def forward(self, x, left=True):
        h = (self.first(x) + self.tied(x)).tanh()
        h = (self.left if left else self.right)(h).tanh()
        h = checkpoint(self.frozen, h, use_reentrant=False) if self.again else self.frozen(h)
        return self.last(h.tanh())


def data(rank, size):
    return wisp.randn(2 * size, 5, generator=wisp.Generator().manual_seed(7))[2 * rank : 2 * rank + 2]


def whole_gradients(size, left=lambda rank: True, again=False):
    wisp.manual_seed(1)
    model = Net(again)
    for rank in range(size):
        (model(data(rank, size), left(rank)).square().sum() / size).backward()
    return model


def same(ours, theirs):
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters()):
        assert (one.grad is None) == (other.grad is None), name
        assert isinstance(one, DTensor) and isinstance(one, nn.Parameter) and one.shape == other.shape
        if one.grad is not None:
            wisp.testing.assert_close(one.grad.full_tensor(), other.grad)
        wisp.testing.assert_close(one.full_tensor(), other.detach())


def gradients(rank, size):
    for make in (
        lambda model: fully_shard(model),
        lambda model: [fully_shard(model.frozen), fully_shard(model.last), fully_shard(model)][-1],
        lambda model: [fully_shard([model.frozen, model.last]), fully_shard(model, offload_policy=CPUOffloadPolicy())][-1],
    ):
        for again in (False, True):
            wisp.manual_seed(1)
            model = make(Net(again))
            for _ in range(2):
                model.zero_grad()
                model(data(rank, size)).square().sum().backward()
            same(model, whole_gradients(size, again=again))
            assert all(unit.state == "sharded" for unit in model._units())
    wisp.manual_seed(1)
    model = fully_shard(Net())  # each rank uses other parameters
    model(data(rank, size), left=rank == 0).square().sum().backward()
    same(model, whole_gradients(size, left=lambda rank: rank == 0))
    wisp.manual_seed(1)
    model = fully_shard(Net())  # two backwards add up, with and without sending in between
    for sync in (True, False, True):
        model.set_requires_gradient_sync(sync)
        model(data(rank, size)).square().sum().backward()
    other = whole_gradients(size)
    for (name, one), two in zip(model.named_parameters(), other.parameters()):
        if two.grad is not None:
            wisp.testing.assert_close(one.grad.full_tensor(), two.grad * 3, msg=name)


def norms(rank, size):
    wisp.manual_seed(1)
    model = fully_shard(Net())
    model(data(rank, size)).square().sum().backward()
    other = whole_gradients(size)
    grads = [parameter.grad for parameter in other.parameters() if parameter.grad is not None]
    for kind in (2.0, 1.0, float("inf"), 3.0):
        theirs = nn.utils.get_total_norm(grads, kind)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9, kind)
        wisp.testing.assert_close(norm.full_tensor(), theirs)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    same(model, other)
    weight = model.first.weight
    wisp.testing.assert_close(weight.norm(), other.first.weight.detach().norm())
    wisp.testing.assert_close(weight.sum(), other.first.weight.detach().sum())


def parts(rank, size):
    """Each rank has its rows and no more, in parameters, gradients and the optimizer's state; whole ones only while they are used."""
    model = nn.Sequential(*[nn.Linear(8, 8, bias=False) for _ in range(4)])
    seen = []
    for layer in model:
        fully_shard(layer)
        layer.register_forward_hook(
            lambda *_: seen.append([other.weight.to_local().shape[0] if isinstance(other.weight, DTensor) else 8 for other in model])
        )
    fully_shard(model)
    optimizer = wisp.optim.Adam(model.parameters())
    rows = len(range(rank * -(-8 // size), min((rank + 1) * -(-8 // size), 8)))
    for _ in range(2):
        model(wisp.ones(1, 8)).sum().backward()
        optimizer.step()
    for parameter in model.parameters():
        assert parameter.numel() == 64 and parameter.to_local().numel() == 8 * rows == parameter.grad.to_local().numel()
        assert optimizer.state[parameter]["exp_avg"].numel() in (8 * rows, 64)
        assert wisp.Tensor.numel(optimizer.state[parameter]["exp_avg"]) == 8 * rows
    assert all(row.count(8) <= 2 or rows == 8 for row in seen), seen
    assert len(model._units()) == 5 and isinstance(model, FSDPModule) and type(model).__name__ == "FSDPSequential"
    model.unshard()
    model[0].unshard()
    assert not isinstance(model[0].weight, DTensor) and model[0].weight.shape == (8, 8)
    model[0].reshard()
    assert isinstance(model[0].weight, DTensor)
    with wisp.no_grad():
        model(wisp.ones(1, 8))
    assert all(unit.state == "sharded" for unit in model._units())


def calls_of_all_kinds(rank, size):
    """A unit that is used twice, reentrant checkpoints, errors on the way, parameters that change by hand, frozen ones, meta."""
    wisp.manual_seed(2)
    layer, twice = nn.Linear(3, 3), nn.Linear(3, 3)
    twice.load_state_dict(layer.state_dict())
    model = nn.Sequential(fully_shard(layer))
    x = wisp.ones(2, 3, requires_grad=True)
    for use in (False, True):
        layer.zero_grad()
        twice.zero_grad()
        run = functools.partial(checkpoint, use_reentrant=True) if use else lambda f, x: f(x)
        run(model, run(model, x)).sum().backward()
        twice(twice(x)).sum().backward()
        wisp.testing.assert_close(layer.weight.grad.full_tensor(), twice.weight.grad)
    try:
        model(wisp.ones(2, 4))
    except RuntimeError:
        assert isinstance(layer.weight, DTensor)
    layer.load_state_dict({"weight": wisp.ones(3, 3), "bias": wisp.zeros(3)})  # whole values
    assert model(wisp.ones(1, 3)).tolist() == [[3, 3, 3]]
    with wisp.no_grad():
        layer.weight.mul_(2)
    assert model(wisp.ones(1, 3)).tolist() == [[6, 6, 6]]
    layer.weight.requires_grad_(False)
    layer.zero_grad()
    model(x).sum().backward()
    assert layer.weight.grad is None and (layer.bias.grad.full_tensor() == 2).all()
    layer.double()
    assert model(wisp.ones(1, 3).double()).dtype == wisp.float64
    with wisp.device("meta"):
        empty = nn.Linear(3, 5)
    fully_shard(empty)
    empty.to_empty(device="cpu")
    for fill in (
        nn.init.kaiming_uniform_,
        nn.init.trunc_normal_,
        nn.init.orthogonal_,
        lambda p: p.data.normal_(),
        lambda p: nn.init.sparse_(p, 0.5),
    ):
        whole = wisp.empty(5, 3)
        for tensor in (empty.weight, whole):
            wisp.manual_seed(9)
            fill(tensor)
        assert wisp.equal(empty.weight.full_tensor(), whole)  # as in one process
    for parameter in empty.parameters():
        nn.init.constant_(parameter, 2)
    assert (empty(wisp.ones(1, 3)) == 8).all() and (empty.weight.full_tensor() == 2).all()


def replicas(rank, size):
    """Gradients that are added up within the parts first, over the replicas at last; a checkpoint has each part once."""
    import tempfile

    from wisp.distributed import checkpoint as dcp

    mesh = dist.init_device_mesh("cpu", (2, size // 2) if size % 2 == 0 else (size, 1), mesh_dim_names=("replicate", "shard"))
    wisp.manual_seed(1)
    model = fully_shard(Net(), mesh=mesh)
    for last in (False, False, True):
        model.set_requires_all_reduce(last)
        model(data(rank, size)).square().sum().backward()
    for (name, one), two in zip(model.named_parameters(), whole_gradients(size).parameters()):
        if two.grad is not None:
            wisp.testing.assert_close(one.grad.full_tensor(), two.grad * 3, msg=name)
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    metadata = dcp.save(model.state_dict(), checkpoint_id=folder[0])
    assert len(metadata.tensors["left.weight"]["parts"]) == mesh.size(1)
    other = fully_shard(Net())
    dcp.load(other.state_dict(), checkpoint_id=folder[0])
    wisp.testing.assert_close(other.left.weight.full_tensor(), model.left.weight.full_tensor())
    futures = [dcp.async_save({"x": wisp.full((3,), float(i))}, checkpoint_id=folder[0]) for i in range(4)]  # in the same place
    for future in futures:
        future.result()
    dist.barrier()
    state = {"x": wisp.zeros(3)}
    dcp.load(state, checkpoint_id=folder[0])
    assert (state["x"] == 3).all()


def scaler(rank, size):
    """An infinity in one rank's part lets all ranks skip the step."""
    layer = fully_shard(nn.Linear(3, 4 * size))
    optimizer, scaler = wisp.optim.SGD(layer.parameters(), lr=1.0), wisp.amp.GradScaler("cpu", init_scale=8.0)
    for bad in (True, False):
        before = layer.weight.full_tensor().clone()
        optimizer.zero_grad()
        scaler.scale(layer(wisp.ones(1, 3)).sum()).backward()
        if bad and rank == size - 1:
            wisp.Tensor.detach(layer.weight.grad).fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        assert wisp.equal(before, layer.weight.full_tensor()) == bad and scaler.get_scale() == 4.0


def orders(rank, size):
    """Calls in unusual orders: a unit by itself, two forwards before a backward, backward again, gradients of inputs, changes on the way."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    with wisp.inference_mode():
        model(wisp.ones(2, 4))
    (model(wisp.ones(2, 4)).sum() + model(wisp.zeros(2, 4)).sum()).backward()
    once = model[0].weight.grad.full_tensor().clone()
    model.zero_grad()
    model[1](wisp.ones(1, 4)).sum().backward()
    assert model[1].weight.grad is not None and model[0].weight.grad is None
    model.zero_grad()
    loss = model(wisp.ones(2, 4)).sum()
    for _ in range(2):
        loss.backward(retain_graph=True)
    wisp.testing.assert_close(model[0].weight.grad.full_tensor(), 2 * once)
    x = wisp.ones(2, 4, requires_grad=True)
    assert wisp.autograd.grad(model(x).sum(), x)[0].shape == x.shape and all(unit.state == "sharded" for unit in model._units())
    loss = model(wisp.ones(2, 4)).sum()
    with wisp.no_grad():
        model[1].weight.add_(1)
    try:
        loss.backward()
    except RuntimeError as error:
        assert "weight, bias of FSDPLinear were changed between forward and backward" in str(error)
    else:
        raise AssertionError("a change between forward and backward was not seen")
    model(wisp.ones(2, 4)).sum().backward()  # and goes on


def refusals(rank, size):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    early = list(model[0].parameters())
    fully_shard(model[0])
    scalar = nn.Module()
    scalar.p = nn.Parameter(wisp.tensor(1.0))
    for action, words in (
        (lambda: fully_shard(model), "1.weight of Sequential is shared with a module that was sharded before"),
        (lambda: fully_shard(model[0]), "was sharded before"),
        (lambda: fully_shard(scalar), "scalar parameters"),
        (lambda: fully_shard(nn.ModuleList()), "containers"),
        (lambda: wisp.optim.SGD(early), "after fully_shard"),
        (lambda: wisp.optim.LBFGS(model[0].parameters()), "LBFGS needs whole parameters"),
    ):
        try:
            action()
        except (ValueError, NotImplementedError) as error:
            assert words in str(error), error
        else:
            assert size == 1, words


def tensors(rank, size):
    mesh = dist.init_device_mesh("cpu", (size,))
    whole = wisp.arange(30.0).view(5, 6)
    for dim in (0, 1):
        x = distribute_tensor(whole, mesh, [Shard(dim)])
        assert wisp.equal(x.full_tensor(), whole) and x.shape == whole.shape
        assert wisp.equal(x.redistribute(placements=[Shard(1 - dim)]).full_tensor(), whole)
        assert x.redistribute(placements=[Replicate()]).to_local().shape == whole.shape
        assert wisp.equal(DTensor.from_local(x.to_local(), mesh, [Shard(dim)]).full_tensor(), whole)
    if size == 4:
        grid = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        x = distribute_tensor(whole, grid, [Shard(0), Shard(0)])
        assert wisp.equal(x.full_tensor(), whole) and wisp.equal(x.redistribute(placements=[Shard(1), Replicate()]).full_tensor(), whole)
        assert grid["b"].size() == 2 and grid["b"].get_local_rank() == rank % 2 and grid.get_coordinate() == [rank // 2, rank % 2]


def wrapper(rank, size):
    wisp.manual_seed(1)
    other = whole_gradients(size)
    policies = [
        None,
        wrap.ModuleWrapPolicy({nn.Linear}),
        functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=50),
        functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={nn.Sequential}),
    ]
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
        for policy in policies:
            wisp.manual_seed(1)
            net = Net()
            if isinstance(policy, wrap.ModuleWrapPolicy):
                net.tied.weight = nn.Parameter(net.tied.weight.detach().clone())  # a shared one must stay in one unit
            model = FullyShardedDataParallel(net, auto_wrap_policy=policy, sharding_strategy=strategy, sync_module_states=True)
            assert isinstance(model, FullyShardedDataParallel) and len(model.fsdp_modules(model)) == len(net._units())
            assert isinstance(model.module, FullyShardedDataParallel) and not isinstance(fully_shard(Net()), FullyShardedDataParallel)
            with model.no_sync():
                model(data(rank, size)).square().sum().backward()
            model(data(rank, size)).square().sum().backward()
            wisp.testing.assert_close(net.left.weight.grad.full_tensor(), other.left.weight.grad * 2)
            assert list(model.state_dict()) == list(Net().state_dict())
            wisp.testing.assert_close(model.state_dict()["last.weight"], other.last.weight.detach())
    norm = model.clip_grad_norm_(0.1)
    assert norm.item() > 0.1 and not isinstance(norm, DTensor)
    with FullyShardedDataParallel.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    ):
        state = model.state_dict()
        assert (len(state) > 0) == (rank == 0)
    for kind in StateDictType:
        with FullyShardedDataParallel.state_dict_type(model, kind):
            state = {name: value.clone() for name, value in model.state_dict().items()}
            with wisp.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            assert not model.load_state_dict(state).missing_keys
        wisp.testing.assert_close(net.left.weight.full_tensor(), other.left.weight.detach())
    with FullyShardedDataParallel.summon_full_params(model):
        assert net.left.weight.shape == (7, 7) and not isinstance(net.left.weight, DTensor)
        with wisp.no_grad():
            net.left.weight.fill_(3)
    assert (net.left.weight.full_tensor() == 3).all()
    optimizer = wisp.optim.Adam(model.parameters(), lr=0.1)
    optimizer.step()
    state = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    assert state["state"]["left.weight"]["exp_avg"].shape == (7, 7)
    fresh = wisp.optim.Adam(model.parameters(), lr=0.1)
    fresh.load_state_dict(FullyShardedDataParallel.optim_state_dict_to_load(model, fresh, state))
    wisp.testing.assert_close(
        wisp.Tensor.detach(fresh.state[net.left.weight]["exp_avg"]), wisp.Tensor.detach(optimizer.state[net.left.weight]["exp_avg"])
    )
    low = FullyShardedDataParallel(nn.Sequential(nn.Linear(5, 4)), mixed_precision=MixedPrecision(wisp.bfloat16, wisp.float32))
    low(data(rank, size)).sum().backward()
    assert low.module[0].weight.grad.dtype == wisp.float32 and low(data(rank, size)).dtype == wisp.bfloat16
    nested = FullyShardedDataParallel(nn.Sequential(FullyShardedDataParallel(nn.Linear(5, 4)), nn.Linear(4, 1)))
    assert list(nested.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    nested.load_state_dict(nested.state_dict())
    nested(data(rank, size)).sum().backward()
    assert all(parameter.grad is not None for parameter in nested.parameters())


def traffic(rank, size):
    """What DistributedDataParallel, ZeroRedundancyOptimizer and fully_shard send in a step is what the textbook says."""
    from wisp.distributed.optim import ZeroRedundancyOptimizer

    layers, width = 3, 12
    elements = layers * (width * width + width)
    all_bytes = 4 * elements

    def make():
        return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])

    def count(model, optimizer):
        for _ in range(2):  # the second step: buckets and orders are known
            optimizer.zero_grad()
            with dist.count_traffic() as found:
                model(wisp.ones(2, width)).sum().backward()
                optimizer.step()
        return found

    model = DistributedDataParallel(make(), bucket_cap_mb=0.0005)
    found = count(model, wisp.optim.Adam(model.parameters()))
    assert found.payload["all_reduce"] == all_bytes and found.calls["all_reduce"] > 1
    assert abs(found.sent["all_reduce"] - 2 * (size - 1) / size * all_bytes) <= found.calls["all_reduce"]
    found = count(model, ZeroRedundancyOptimizer(model.parameters(), wisp.optim.Adam))
    assert abs(found.total_sent - 3 * (size - 1) / size * all_bytes) <= sum(found.calls.values())
    for keep, gathers in ((True, 1), (False, 2)):
        model = make()
        for layer in model:
            fully_shard(layer, reshard_after_forward=not keep)
        fully_shard(model)
        found = count(model, wisp.optim.Adam(model.parameters()))
        assert found.payload["all_gather"] == gathers * all_bytes and found.payload["reduce_scatter"] == all_bytes
        assert found.total_sent == (gathers + 1) * all_bytes * (size - 1) // size
        assert set(found.calls) == {"all_gather", "reduce_scatter", "header"}
    model = fully_shard(nn.Linear(4, 5, bias=False))  # padded rows travel too
    with dist.count_traffic() as found:
        model(wisp.ones(1, 4)).sum().backward()
    padded = 4 * 4 * size * -(-5 // size)
    assert found.payload == {"all_gather": padded, "reduce_scatter": padded, "header": found.payload["header"]}


def beside_zero(rank, size):
    """One half of a model cut, the other in DistributedDataParallel with a divided optimizer: the gradients of a whole one."""
    from wisp.distributed.optim import ZeroRedundancyOptimizer

    def train(cut):
        wisp.manual_seed(4)
        first, second = nn.Linear(5, 6), nn.Linear(6, 1)
        if cut:
            first, second = fully_shard(first), DistributedDataParallel(second)
            optimizers = [
                wisp.optim.Adam(first.parameters(), lr=0.01),
                ZeroRedundancyOptimizer(second.parameters(), wisp.optim.Adam, lr=0.01),
            ]
        else:
            optimizers = [wisp.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)]
        result = []
        for _ in range(5):
            for optimizer in optimizers:
                optimizer.zero_grad()
            x = data(rank, size) if cut else wisp.cat([data(other, size) for other in range(size)])
            loss = second(first(x).tanh()).square().mean()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            loss = loss.detach()
            if cut:
                dist.all_reduce(loss, dist.ReduceOp.AVG)
            result.append(loss)
        return wisp.stack(result)

    wisp.testing.assert_close(train(True), train(False), rtol=1e-6, atol=1e-6)


def main():
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    for case in (gradients, norms, parts, calls_of_all_kinds, replicas, scaler, orders, refusals, tensors, wrapper, traffic, beside_zero):
        case(rank, size)
    print("all is well in rank", rank)


if __name__ == "__main__":
    main()
