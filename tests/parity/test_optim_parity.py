"""Optimizers and schedulers follow PyTorch's step by step, and read each other's state."""

import copy
import pickle

import numpy as np
import pytest
import torch

import wisp

CASES = [
    ("SGD", dict(lr=0.1)),
    ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.1, weight_decay=0.01)),
    ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True, maximize=True)),
    ("Adam", {}),
    ("Adam", dict(amsgrad=True)),
    ("Adam", dict(weight_decay=0.1, maximize=True)),
    ("AdamW", dict(lr=0.01)),
    ("Adamax", dict(weight_decay=0.1)),
    ("NAdam", dict(decoupled_weight_decay=True, weight_decay=0.1)),
    ("RAdam", dict(lr=0.1, betas=(0.8, 0.9))),
    ("Adagrad", dict(lr_decay=0.1, initial_accumulator_value=0.5)),
    ("Adadelta", dict(weight_decay=0.1)),
    ("RMSprop", dict(centered=True, momentum=0.9)),
    ("RMSprop", {}),
    ("Rprop", {}),
    ("ASGD", dict(t0=3)),
]
SHAPES = [(4, 3), (5,), (), (0, 2), (2, 3, 4)]


def start(package, optimizer, options, dtype="float32"):
    random = np.random.default_rng(0)
    params = [package.nn.Parameter(package.from_numpy(np.asarray(random.standard_normal(shape), dtype))) for shape in SHAPES]
    return params, getattr(package.optim, optimizer)(params, **options)


def advance(package, params, optimizer, steps, seed=1):
    random = np.random.default_rng(seed)
    for _ in range(steps):
        for p in params:
            p.grad = package.from_numpy(np.asarray(random.standard_normal(tuple(p.shape)), str(p.dtype).split(".")[1]))
        optimizer.step()


def same(ours, theirs, tolerance=1e-5):
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name, options", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps(name, options, dtype):
    ours, theirs = start(wisp, name, options, dtype), start(torch, name, options, dtype)
    assert repr(ours[1]) == repr(theirs[1])
    for package, (params, optimizer) in ((wisp, ours), (torch, theirs)):
        advance(package, params, optimizer, 7)
    same(ours[0], theirs[0], 1e-5 if dtype == "float32" else 1e-10)


def convert(value, package):
    if isinstance(value, (torch.Tensor, wisp.Tensor)):
        return package.from_numpy(np.array(value.detach().numpy()))
    if isinstance(value, dict):
        return {key: convert(item, package) for key, item in value.items()}
    return [convert(item, package) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name, options", CASES)
def test_state_travels(name, options):
    ours, theirs = start(wisp, name, options), start(torch, name, options)
    advance(torch, *theirs, 3)
    with wisp.no_grad():
        for mine, other in zip(ours[0], theirs[0]):
            mine.copy_(convert(other, wisp))
    ours[1].load_state_dict(convert(theirs[1].state_dict(), wisp))
    advance(wisp, *ours, 3, seed=2)
    advance(torch, *theirs, 3, seed=2)
    same(ours[0], theirs[0])
    again = start(torch, name, options)
    again[1].load_state_dict(convert(ours[1].state_dict(), torch))
    assert again[1].state_dict()["param_groups"] == theirs[1].state_dict()["param_groups"]


@pytest.mark.parametrize("name, options", CASES)
def test_differentiable_equals_fused(name, options):
    fused, plain = start(wisp, name, options, "float64"), start(wisp, name, options, "float64")
    for group in plain[1].param_groups:
        group["differentiable"] = True
    advance(wisp, *fused, 5)
    with wisp.no_grad():
        advance(wisp, *plain, 5)
    same(fused[0], plain[0], 1e-8 if name == "NAdam" else 1e-12)  # NAdam keeps a product in single precision


def test_gradient_through_a_step():
    def meta(package):
        rate = package.tensor(0.1, dtype=package.float64, requires_grad=True)
        w = package.tensor([1.0, 2.0], dtype=package.float64, requires_grad=True)
        p = w.clone()
        optimizer = package.optim.SGD([p], lr=rate, weight_decay=0.1, differentiable=True)
        for _ in range(3):
            p.grad = package.autograd.grad((p.clone() ** 3).sum(), p, create_graph=True)[0]
            optimizer.step()
        return package.autograd.grad((p**2).sum(), [rate, w])

    same(meta(wisp), meta(torch), 1e-10)


def test_half_and_complex():
    for dtype in ("complex64", "complex128"):
        random = np.random.default_rng(0)
        value = (random.standard_normal(6) + 1j * random.standard_normal(6)).astype(dtype)
        for name in ("SGD", "Adam", "RMSprop", "Adagrad", "Adamax"):
            results = []
            for package in (wisp, torch):
                p = package.nn.Parameter(package.from_numpy(value.copy()))
                optimizer = getattr(package.optim, name)([p], lr=0.1)
                for _ in range(3):
                    p.grad = package.from_numpy(value.copy())
                    optimizer.step()
                results.append(p)
            same(results[:1], results[1:], 1e-4)


def test_pickle_and_copy():
    params, optimizer = start(wisp, "Adam", {})
    advance(wisp, params, optimizer, 2)
    twin = copy.deepcopy(optimizer)
    assert twin.state_dict()["state"].keys() == optimizer.state_dict()["state"].keys()
    again = pickle.loads(pickle.dumps(optimizer))
    assert len(again.state) == len(SHAPES) and again.param_groups[0]["lr"] == 0.001


@pytest.mark.parametrize("name", ["Adafactor", "LBFGS", "SparseAdam", "SGD", "Adam"])
def test_loading_adds_no_hyperparameter(name):
    """A state dict that was loaded has the keys that it had."""

    def keys(lib):
        optimizer = getattr(lib.optim, name)([lib.nn.Parameter(lib.ones(2, 2))])
        optimizer.load_state_dict(optimizer.state_dict())
        return sorted(optimizer.state_dict()["param_groups"][0])

    assert keys(wisp) == keys(torch)


@pytest.mark.parametrize("name", ["Adafactor", "Muon"])
def test_sparse_gradients_are_refused(name):
    for lib in (wisp, torch):
        table = lib.nn.Embedding(4, 2, sparse=True)
        optimizer = getattr(lib.optim, name)(table.parameters())
        table(lib.tensor([1])).sum().backward()
        with pytest.raises(RuntimeError, match="does not support sparse gradients"):
            optimizer.step()


def test_an_optimizer_of_ones_own():
    """Written as PyTorch's own are, with the helpers that they share."""

    def trained(lib):
        from importlib import import_module

        tools = import_module(f"{lib.__name__}.optim.optimizer")

        class Signed(lib.optim.Optimizer):
            def __init__(self, params: tools.ParamsT, lr=0.1, *, differentiable=False):
                super().__init__(params, {"lr": lr, "beta": 0.9, "differentiable": differentiable})

            @tools._use_grad_for_differentiable
            def step(self, closure=None):
                loss = None
                if closure is not None:
                    with lib.enable_grad():
                        loss = closure()
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        state = self.state[p]
                        if not state:
                            state["step"] = lib.tensor(0.0, dtype=tools._get_scalar_dtype())
                            state["mean"] = lib.zeros_like(p)
                        state["step"] += 1
                        state["mean"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                        rate = group["lr"] / tools._get_value(state["step"]) ** 0.5
                        p.add_(state["mean"].sign(), alpha=-rate)
                return loss

        weight = lib.nn.Parameter(lib.tensor([1.0, -2.0, 0.5]))
        optimizer = Signed([{"params": [weight], "lr": 0.2}])
        scheduler = lib.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        losses = []
        for _ in range(5):

            def closure():
                optimizer.zero_grad()
                loss = (weight**2).sum()
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
            scheduler.step()
        other = Signed([weight])
        other.load_state_dict(optimizer.state_dict())
        return losses, weight.tolist(), other.param_groups[0]["lr"], float(other.state[weight]["step"])

    ours, theirs = trained(wisp), trained(torch)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    assert ours[2:] == theirs[2:]
