"""Unused and shared parameters, buffers, names and refusals of DistributedDataParallel; run as ranks by test_ddp.py."""

import wisp
import wisp.distributed as dist
from wisp import nn
from wisp.nn.parallel import DistributedDataParallel


class Branches(nn.Module):
    """Two layers of which the input chooses one, a third that nobody uses, and a shared one."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.idle, self.shared = (nn.Linear(2, 2) for _ in range(4))
        self.again = self.shared

    def forward(self, x, left):
        return self.again(self.shared((self.left if left else self.right)(x)))


def unused(rank, size):
    wisp.manual_seed(0)
    model = Branches()
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    for _ in range(3):
        model.zero_grad()
        parallel(wisp.full((1, 2), rank + 1.0), left=rank == 0).sum().backward()
    wisp.manual_seed(0)
    alone = Branches()
    for other in range(size):
        (alone(wisp.full((1, 2), other + 1.0), left=other == 0).sum() / size).backward()
    for (name, ours), theirs in zip(model.named_parameters(), alone.parameters()):
        if name.startswith("idle"):
            assert ours.grad is None, name
        else:
            wisp.testing.assert_close(ours.grad, theirs.grad)


def memory_of_gradients(rank, size):
    """A gradient is the user's once backward is over: not written to again, added to where it is, the same object when it is zeroed."""
    mean = (size + 1) / 2
    for view in (False, True):
        model = nn.Linear(3, 1, bias=False)
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=view)
        x = wisp.full((1, 3), rank + 1.0)
        parallel(x).sum().backward()
        first = model.weight.grad
        assert first.tolist() == [[mean] * 3]
        parallel(x).sum().backward()
        assert model.weight.grad.tolist() == [[2 * mean] * 3]
        assert view or model.weight.grad is first  # (buckets are made anew once, when the order is known)
        model.zero_grad()
        parallel(2 * x).sum().backward()
        assert model.weight.grad.tolist() == [[2 * mean] * 3]
        model.zero_grad(set_to_none=False)
        kept = model.weight.grad
        output = parallel(3 * x).sum()
        output.backward()
        assert model.weight.grad is kept and kept.tolist() == [[3 * mean] * 3]
        held = kept.clone() if view else kept
        output = parallel(5 * x).sum()
        model.zero_grad()  # between forward and backward
        output.backward()
        assert model.weight.grad.tolist() == [[5 * mean] * 3] and held.tolist() == [[3 * mean] * 3]
    table = nn.Embedding(4, 2, sparse=True)
    DistributedDataParallel(table)(wisp.tensor([rank, 3])).sum().backward()
    assert table.weight.grad[3].tolist() == [1, 1] and table.weight.grad[0].tolist() == [1 / size] * 2


def forgotten(rank):
    parallel = DistributedDataParallel(Branches())
    parallel(wisp.ones(1, 2), left=True).sum().backward()
    try:
        parallel(wisp.ones(1, 2), left=True)
    except RuntimeError as error:
        text = str(error)
        assert "find_unused_parameters=True" in text and "right.weight, right.bias, idle.weight" in text and "left" not in text, text
    else:
        raise AssertionError("unused parameters were not found")


def state(rank):
    wisp.manual_seed(rank)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[1].running_mean.fill_(rank)
    parallel = DistributedDataParallel(model)
    assert list(parallel.state_dict()) == ["module." + name for name in model.state_dict()]
    assert model[1].running_mean.tolist() == [0, 0]
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {name: value.tolist() for name, value in model.state_dict().items()})
    assert all(one == everyone[0] for one in everyone)
    model[1].running_mean.fill_(rank + 1)
    parallel.eval()
    parallel(wisp.ones(2, 2))
    assert model[1].running_mean.tolist() == [1, 1]  # rank 0's buffers, at every forward


def different_models(rank):
    try:
        DistributedDataParallel(nn.Linear(2, 3 + (rank == 1)))
    except dist.DistBackendError as error:
        assert "2 parameters of 9 elements" in str(error) and "2 parameters of 12 elements" in str(error), error
    else:
        raise AssertionError("different models were not found")


def batch_norm(rank, size):
    """SyncBatchNorm is BatchNorm of the whole batch: values, gradients and running statistics, with parts of different size."""
    generator = wisp.Generator().manual_seed(1)
    whole = wisp.randn(2 * size + 1, 3, 4, generator=generator) * 0.1 + 100
    bounds = [0, *(2 * i + 3 for i in range(size))]
    one, many = nn.BatchNorm1d(3).double(), nn.SyncBatchNorm(3).double()
    x, part = whole.double().requires_grad_(), whole.double()[bounds[rank] : bounds[rank + 1]].clone().requires_grad_()
    weights = wisp.arange(x.numel()).view_as(x).double().sin()
    (one(x) * weights).sum().backward()
    result = many(part)
    (result * weights[bounds[rank] : bounds[rank + 1]]).sum().backward()
    wisp.testing.assert_close(result, one(x)[bounds[rank] : bounds[rank + 1]], rtol=1e-7, atol=1e-7)
    wisp.testing.assert_close(part.grad, x.grad[bounds[rank] : bounds[rank + 1]], rtol=1e-6, atol=1e-6)
    fresh = nn.BatchNorm1d(3).double()
    fresh(x)
    wisp.testing.assert_close(many.running_var, fresh.running_var)
    wisp.testing.assert_close(many.running_mean, fresh.running_mean)


def divided_state(rank, size):
    """ZeroRedundancyOptimizer steps as the optimizer itself, and its state is that one's."""
    from wisp.distributed.optim import ZeroRedundancyOptimizer

    def train(make, wrap, part):
        wisp.manual_seed(5)
        module = nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3))
        model = wrap(module)
        optimizer = make([{"params": module[0].parameters()}, {"params": module[2].parameters(), "lr": 0.02}])
        schedule = wisp.optim.lr_scheduler.StepLR(optimizer, 2)
        for step in range(6):
            if step == 3 and make is divided:  # saved and loaded on the way
                optimizer.consolidate_state_dict()
                states = [optimizer.state_dict() if rank == 0 else None]
                dist.broadcast_object_list(states)
                optimizer.load_state_dict(states[0])
            optimizer.zero_grad()
            x = wisp.rand(4 * size, 4, generator=wisp.Generator().manual_seed(step))
            model(x[part]).square().mean().backward()
            optimizer.step()
            schedule.step()
        return module, optimizer

    def divided(groups):
        return ZeroRedundancyOptimizer(groups, wisp.optim.Adam, lr=0.01)

    many, optimizer = train(divided, DistributedDataParallel, slice(4 * rank, 4 * rank + 4))
    one, whole = train(lambda groups: wisp.optim.Adam(groups, lr=0.01), lambda module: module, slice(None))
    for ours, theirs in zip(many.parameters(), one.parameters()):
        wisp.testing.assert_close(ours, theirs)
    assert len(optimizer.optim.state) == 4 // size
    optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        ours, theirs = optimizer.state_dict(), whole.state_dict()
        assert ours["param_groups"] == theirs["param_groups"]
        for number, values in theirs["state"].items():
            wisp.testing.assert_close(ours["state"][number], values)
    else:
        try:
            optimizer.state_dict()
        except RuntimeError as error:
            assert "consolidate_state_dict" in str(error)


def main():
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    unused(rank, size)
    memory_of_gradients(rank, size)
    forgotten(rank)
    state(rank)
    batch_norm(rank, size)
    divided_state(rank, size)
    different_models(rank)
    print("all is well in rank", rank)


if __name__ == "__main__":
    main()
