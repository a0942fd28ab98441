"""nn.utils, nn.init, nn.grad, swa_utils, schedulers and GradScaler beside PyTorch's."""

import math

import numpy as np
import pytest
import torch
import torch.nn.utils.prune

import wisp


def paired(make, seed=0):
    """The same module in both packages, with the same weights."""
    torch.manual_seed(seed)
    theirs, ours = make(torch), make(wisp)
    copy_state(theirs, ours)
    return theirs, ours


def copy_state(theirs, ours):
    ours.load_state_dict(
        {
            name: wisp.from_numpy(value.detach().numpy().copy()) if value.dim() else wisp.tensor(value.item())
            for name, value in theirs.state_dict().items()
        }
    )


def same(ours, theirs, tolerance=1e-5):
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


def both(*shape, seed=0):
    array = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return torch.from_numpy(array), wisp.from_numpy(array.copy())


def same_gradients(ours, theirs):
    names = [name for name, _ in theirs.named_parameters()]
    assert names == [name for name, _ in ours.named_parameters()]
    for (_, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            same(a.grad, b.grad, 1e-4)


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, math.inf, -math.inf, 0.0])
def test_clip(norm):
    theirs, ours = paired(lambda p: p.nn.Linear(5, 4))
    x, y = both(6, 5)
    for model, data in ((theirs, x), (ours, y)):
        (model(data) ** 2).sum().backward()
    same(wisp.nn.utils.clip_grad_norm_(ours.parameters(), 0.7, norm), torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.7, norm))
    same_gradients(ours, theirs)
    same(
        wisp.nn.utils.get_total_norm([p.grad for p in ours.parameters()], norm),
        torch.nn.utils.get_total_norm([p.grad for p in theirs.parameters()], norm),
    )
    wisp.nn.utils.clip_grad_value_(ours.parameters(), 0.1), torch.nn.utils.clip_grad_value_(theirs.parameters(), 0.1)
    same_gradients(ours, theirs)
    same(wisp.nn.utils.parameters_to_vector(ours.parameters()), torch.nn.utils.parameters_to_vector(theirs.parameters()))


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("dim", [0, 1, None, -1])
def test_weight_norm(old, dim):
    theirs, ours = paired(lambda p: p.nn.Linear(5, 4))
    for package, model in ((torch, theirs), (wisp, ours)):
        (package.nn.utils.weight_norm if old else package.nn.utils.parametrizations.weight_norm)(model, dim=dim)
    x, y = both(3, 5)
    for model, data in ((theirs, x), (ours, y)):
        (model(data) ** 2).sum().backward()
    assert list(theirs.state_dict()) == list(ours.state_dict())
    for (_, a), (_, b) in zip(ours.state_dict().items(), theirs.state_dict().items()):
        same(a, b)
    same_gradients(ours, theirs)


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("kind", ["Linear", "Conv2d", "ConvTranspose2d"])
def test_spectral_norm(old, kind):
    def make(p):
        model = p.nn.Linear(5, 4) if kind == "Linear" else getattr(p.nn, kind)(3, 4, 3)
        return (p.nn.utils.spectral_norm if old else p.nn.utils.parametrizations.spectral_norm)(model, n_power_iterations=2)

    theirs, ours = paired(make)
    x, y = both(*((3, 5) if kind == "Linear" else (2, 3, 6, 6)))
    for _ in range(2):
        for model, data in ((theirs, x), (ours, y)):
            model.zero_grad()
            (model(data) ** 2).sum().backward()
        same(ours.weight, theirs.weight)
        same_gradients(ours, theirs)
    same(ours.eval()(y), theirs.eval()(x), 1e-4)
    assert list(theirs.state_dict()) == list(ours.state_dict())


@pytest.mark.parametrize("name", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_orthogonal(name, shape):
    theirs, ours = paired(lambda p: p.nn.Linear(*shape))
    same(torch_weight := ours.weight, theirs.weight)
    assert torch_weight is ours.weight
    for package, model in ((torch, theirs), (wisp, ours)):
        package.nn.utils.parametrizations.orthogonal(model, orthogonal_map=name, use_trivialization=False)
    copy_state(theirs, ours)
    same(ours.weight, theirs.weight, 1e-4)
    for model in (theirs, ours):
        (model.weight**3).sum().backward()
    same_gradients(ours, theirs)


PRUNING = [
    ("l1_unstructured", {"amount": 0.4}),
    ("l1_unstructured", {"amount": 3}),
    ("ln_structured", {"amount": 0.5, "n": 2, "dim": 0}),
    ("ln_structured", {"amount": 1, "n": math.inf, "dim": 1}),
    ("identity", {}),
]


@pytest.mark.parametrize("name,options", PRUNING)
def test_prune(name, options):
    theirs, ours = paired(lambda p: p.nn.Conv2d(3, 4, 3))
    for package, model in ((torch, theirs), (wisp, ours)):
        prune = package.nn.utils.prune
        getattr(prune, name)(model, "weight", **options)
        prune.l1_unstructured(model, "weight", amount=0.2)  # on top of it
        assert prune.is_pruned(model)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    same(ours.weight_mask, theirs.weight_mask)
    same(ours.weight, theirs.weight)
    x, y = both(2, 3, 5, 5)
    for model, data in ((theirs, x), (ours, y)):
        model(data).sum().backward()
    same_gradients(ours, theirs)
    for package, model in ((torch, theirs), (wisp, ours)):
        package.nn.utils.prune.remove(model, "weight")
    assert sorted(theirs.state_dict()) == sorted(ours.state_dict())
    same(ours.weight, theirs.weight)


def test_global_pruning():
    theirs, ours = paired(lambda p: p.nn.Sequential(p.nn.Linear(5, 4), p.nn.Linear(4, 3)))
    for package, model in ((torch, theirs), (wisp, ours)):
        prune = package.nn.utils.prune
        prune.global_unstructured([(model[0], "weight"), (model[1], "weight")], pruning_method=prune.L1Unstructured, amount=0.3)
    for i in (0, 1):
        same(ours[i].weight_mask, theirs[i].weight_mask)
    for package, model in ((torch, theirs), (wisp, ours)):
        package.nn.utils.prune.custom_from_mask(model[0], "bias", package.tensor([1.0, 0.0, 1.0, 0.0]))
    same(ours[0].bias, theirs[0].bias)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_fusion(transposed, bias):
    theirs, ours = paired(
        lambda p: p.nn.Sequential((p.nn.ConvTranspose2d if transposed else p.nn.Conv2d)(3, 4, 3, bias=bias), p.nn.BatchNorm2d(4))
    )
    x, y = both(2, 3, 6, 6)
    for model, data in ((theirs, x), (ours, y)):
        model(data)
        model.eval()
    a, b = wisp.nn.utils.fuse_conv_bn_eval(*ours, transpose=transposed), torch.nn.utils.fuse_conv_bn_eval(*theirs, transpose=transposed)
    same(a.weight, b.weight), same(a.bias, b.bias), same(a(y), ours(y), 1e-4)


def test_functional_call():
    theirs, ours = paired(lambda p: p.nn.Sequential(p.nn.Linear(5, 4), p.nn.BatchNorm1d(4)))
    x, y = both(6, 5)
    results = []
    for package, model, data in ((torch, theirs, x), (wisp, ours, y)):
        state = {name: (value.detach() * 2) for name, value in model.state_dict().items()}
        results.append(package.func.functional_call(model, state, (data,)))
        with pytest.raises((RuntimeError, KeyError)):
            package.nn.utils.stateless.functional_call(model, {"nothing": data}, (data,), strict=True)
    same(results[1], results[0])
    same(ours[1].running_mean, theirs[1].running_mean)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("enforce", [False, True])
def test_packing(batch_first, enforce):
    lengths = [5, 3, 2] if enforce else [3, 5, 2]
    x, y = both(*((3, 5, 2) if batch_first else (5, 3, 2)))
    packed = [p.nn.utils.rnn.pack_padded_sequence(data, p.tensor(lengths), batch_first, enforce) for p, data in ((torch, x), (wisp, y))]
    same(packed[1].data, packed[0].data)
    assert packed[1].batch_sizes.tolist() == packed[0].batch_sizes.tolist()
    unpacked = [p.nn.utils.rnn.pad_packed_sequence(data, batch_first, -1.0, 7) for p, data in ((torch, packed[0]), (wisp, packed[1]))]
    same(unpacked[1][0], unpacked[0][0])
    assert unpacked[1][1].tolist() == unpacked[0][1].tolist()
    parts = [[data[i, :n] if batch_first else data[:n, i] for i, n in enumerate(lengths)] for data in (x, y)]
    for side in ("right", "left"):
        padded = [p.nn.utils.rnn.pad_sequence(part, batch_first, 2.0, side) for p, part in zip((torch, wisp), parts)]
        same(padded[1], padded[0])
    packed = [p.nn.utils.rnn.pack_sequence(part, enforce) for p, part in zip((torch, wisp), parts)]
    same(packed[1].data, packed[0].data)
    for a, b in zip(wisp.nn.utils.rnn.unpack_sequence(packed[1]), torch.nn.utils.rnn.unpack_sequence(packed[0])):
        same(a, b)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_gradients_of_convolutions(dimensions):
    sizes = (5, 6, 7)[:dimensions]
    x, y = both(2, 4, *sizes)
    w, v = both(6, 2, *[3] * dimensions, seed=1)
    options = {"stride": 2, "padding": 1, "groups": 2}
    g = getattr(torch.nn.functional, f"conv{dimensions}d")(x, w, **options).detach()
    h = wisp.from_numpy(g.numpy().copy())
    same(
        getattr(wisp.nn.grad, f"conv{dimensions}d_input")(y.shape, v, h, **options),
        getattr(torch.nn.grad, f"conv{dimensions}d_input")(x.shape, w, g, **options),
        1e-4,
    )
    same(
        getattr(wisp.nn.grad, f"conv{dimensions}d_weight")(y, v.shape, h, **options),
        getattr(torch.nn.grad, f"conv{dimensions}d_weight")(x, w.shape, g, **options),
        1e-4,
    )


INIT = [("eye_", (3, 4), {}), ("dirac_", (4, 3, 3), {}), ("dirac_", (4, 2, 3, 3), {"groups": 2}), ("constant_", (2,), {"val": 3.0})]


@pytest.mark.parametrize("name,shape,options", INIT)
def test_init(name, shape, options):
    same(getattr(wisp.nn.init, name)(wisp.empty(shape), **options), getattr(torch.nn.init, name)(torch.empty(shape), **options))


@pytest.mark.parametrize("name", ["linear", "conv1d", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "conv_transpose2d"])
def test_gain(name):
    assert wisp.nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)


@pytest.mark.parametrize(
    "name,options",
    [
        ("xavier_uniform_", {"gain": 2.0}),
        ("xavier_normal_", {}),
        ("kaiming_uniform_", {"a": 0.1}),
        ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "relu"}),
        ("trunc_normal_", {"a": -1, "b": 1}),
        ("normal_", {"mean": 2, "std": 3}),
        ("uniform_", {"a": -2}),
        ("sparse_", {"sparsity": 0.3}),
    ],
)
def test_init_statistics(name, options):
    a = getattr(wisp.nn.init, name)(wisp.empty(200, 300), **options)
    b = getattr(torch.nn.init, name)(torch.empty(200, 300), **options)
    for statistic in (lambda t: t.mean(), lambda t: t.std(), lambda t: (t == 0).float().mean(), lambda t: t.abs().max() / 4):
        assert statistic(a).item() == pytest.approx(statistic(b).item(), rel=0.05, abs=0.05)
    for orthogonal in (wisp.nn.init.orthogonal_(wisp.empty(5, 3)), wisp.nn.init.orthogonal_(wisp.empty(3, 5)).T):
        same(orthogonal.T @ orthogonal, torch.eye(3))


AVERAGES = [{}, {"ema": 0.9}, {"swa": True}, {"use_buffers": True}]


@pytest.mark.parametrize("options", AVERAGES)
def test_averaged_models(options):
    theirs, ours = paired(lambda p: p.nn.Sequential(p.nn.Linear(5, 4), p.nn.BatchNorm1d(4), p.nn.Linear(4, 1)))
    x, y = both(32, 5)
    averaged = []
    for package, model, data in ((torch, theirs, x), (wisp, ours, y)):
        swa = package.optim.swa_utils
        kwargs = {"use_buffers": options.get("use_buffers", False)}
        if "ema" in options:
            kwargs["multi_avg_fn"] = swa.get_ema_multi_avg_fn(0.9)
        if "swa" in options:
            kwargs["multi_avg_fn"] = swa.get_swa_multi_avg_fn()
        average = swa.AveragedModel(model, **kwargs)
        optimizer = package.optim.SGD(model.parameters(), lr=0.5)
        schedule = swa.SWALR(optimizer, swa_lr=0.05, anneal_epochs=3, anneal_strategy="cos")
        rates = []
        for _ in range(6):
            optimizer.zero_grad()
            (model(data) ** 2).mean().backward()
            optimizer.step()
            schedule.step()
            rates.append(optimizer.param_groups[0]["lr"])
            average.update_parameters(model)
        swa.update_bn([data[:16], data[16:]], average)
        averaged.append((average, rates))
    assert averaged[0][1] == pytest.approx(averaged[1][1])
    assert list(averaged[0][0].state_dict()) == list(averaged[1][0].state_dict())
    for (_, a), (_, b) in zip(averaged[1][0].state_dict().items(), averaged[0][0].state_dict().items()):
        same(a, b, 1e-4)


CHAINS = {
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=3), s.CosineAnnealingLR(o, 5), s.ExponentialLR(o, 0.5)], [3, 8]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9), s.StepLR(o, 3, 0.5)]),
    "nested": lambda s, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.9)]), s.MultiStepLR(o, [2, 4])], [4]
    ),
    "warm restarts": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.3, 2), s.CosineAnnealingWarmRestarts(o, 3, 2)], [2]),
    "product": lambda s, o: s.MultiplicativeLR(o, lambda epoch: 0.9),
    "lambda": lambda s, o: s.LambdaLR(o, [lambda e: 0.5**e, lambda e: 1 / (e + 1)]),
    "polynomial": lambda s, o: s.PolynomialLR(o, 5, 2.0),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, mode="triangular2"),
    "one cycle": lambda s, o: s.OneCycleLR(o, [0.3, 0.1], total_steps=13, three_phase=True),
}


@pytest.mark.parametrize("name", CHAINS)
def test_schedulers(name):
    rates = []
    for package in (torch, wisp):
        weights = [package.nn.Parameter(package.ones(1)) for _ in range(2)]
        optimizer = package.optim.SGD([{"params": [weights[0]], "lr": 0.1}, {"params": [weights[1]], "lr": 0.5}], momentum=0.9)
        scheduler = CHAINS[name](package.optim.lr_scheduler, optimizer)
        found = []
        for step in range(12):
            found += [group["lr"] for group in optimizer.param_groups] + [group["momentum"] for group in optimizer.param_groups]
            optimizer.step()
            scheduler.step()
            if step == 6 and name != "lambda":  # resume in the middle
                state = scheduler.state_dict()
                scheduler.load_state_dict(state)
        rates.append(found + list(scheduler.get_last_lr()))
    assert rates[1] == pytest.approx(rates[0], rel=1e-7)


def test_scaler():
    """The scale grows and shrinks as PyTorch's does, and steps with infinite gradients are left out."""
    histories = []
    for package in (torch, wisp):
        weight = package.nn.Parameter(package.ones(3))
        optimizer = package.optim.SGD([weight], lr=0.1)
        scaler = package.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        history = []
        for factor in (1.0, 1.0, math.inf, 1.0, math.nan, 1.0, 1.0, 1.0):
            optimizer.zero_grad()
            scaler.scale((weight * factor).sum()).backward()
            scaler.unscale_(optimizer)
            package.nn.utils.clip_grad_norm_([weight], 1.0)
            scaler.step(optimizer)
            scaler.update()
            history.append((scaler.get_scale(), weight.detach().tolist()))
        history.append(scaler.state_dict())
        histories.append(history)
    for a, b in zip(histories[1][:-1], histories[0][:-1]):
        assert a[0] == b[0] and a[1] == pytest.approx(b[1])
    assert histories[1][-1] == histories[0][-1]


def test_swap_tensors():
    for package in (torch, wisp):
        a, b = package.nn.Parameter(package.ones(2)), package.nn.Parameter(package.zeros(3), requires_grad=False)
        a.grad, b.note = package.ones(2), "b"
        package.utils.swap_tensors(a, b)
        assert a.shape == (3,) and b.shape == (2,) and b.requires_grad and not a.requires_grad
        assert a.note == "b" and not hasattr(b, "note") and b.grad.tolist() == [1, 1] and a.grad is None


def test_functional_call_with_other_names():
    """A name that is no parameter is an attribute for the time of the call; strict calls refuse it."""

    def results(lib):
        class Scaled(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = lib.nn.Linear(2, 2)
                self.factor = lib.ones(1)

            def forward(self, x):
                return self.inner(x) * self.factor * getattr(self.inner, "extra", 1)

        module = Scaled()
        values = {"inner.weight": lib.eye(2), "inner.bias": lib.zeros(2), "factor": lib.ones(1) * 3, "inner.extra": lib.ones(1) * 2}
        found = [lib.func.functional_call(module, values, lib.ones(1, 2)).tolist(), module.factor.tolist(), hasattr(module.inner, "extra")]
        for call in (
            lambda: lib.func.functional_call(module, values, lib.ones(1, 2), strict=True),
            lambda: lib.func.functional_call(module, {"factor": lib.ones(1)}, lib.ones(1, 2), strict=True),
            lambda: lib.func.functional_call(module, {"factor": 3}, lib.ones(1, 2)),
            lambda: lib.func.functional_call(module, {"absent.x": lib.ones(1)}, lib.ones(1, 2)),
        ):
            with pytest.raises(Exception) as error:
                call()
            found.append((error.type, str(error.value) if error.type is RuntimeError else None))
        return found

    assert results(wisp) == results(torch)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_checks_of_recurrent_layers(kind, batch_first):
    def results(lib):
        layer = getattr(lib.nn, kind)(5, 2, num_layers=2, batch_first=batch_first)
        x, order = lib.ones(3, 3, 5), lib.tensor([2, 0, 1])
        size = layer.get_expected_hidden_size(x, None)
        h = lib.arange(12.0).reshape(size)
        state = (h, h) if kind == "LSTM" else h
        layer.check_forward_args(x, state, None)
        moved = layer.permute_hidden(state, order)
        return size, [part.tolist() for part in (moved if kind == "LSTM" else (moved,))]

    assert results(wisp) == results(torch)


def test_zero_padding_is_constant_padding():
    for dims in "123":
        assert issubclass(getattr(wisp.nn, f"ZeroPad{dims}d"), getattr(wisp.nn, f"ConstantPad{dims}d"))


def test_prefixes_of_state_dicts():
    def results(lib):
        from importlib import import_module

        consume = import_module(f"{lib.__name__}.nn.modules.utils").consume_prefix_in_state_dict_if_present
        state = lib.nn.DataParallel(lib.nn.Sequential(lib.nn.Linear(1, 1), lib.nn.BatchNorm1d(1))).state_dict()
        consume(state, "module.")
        return list(state), dict(state._metadata)

    assert results(wisp) == results(torch)


def test_steps_of_attention():
    def results(lib):
        F = lib.nn.functional
        mask = F._canonical_mask(lib.tensor([True, False]), "mask", F._none_or_dtype(None), "", lib.float32)
        x, w = lib.ones(2, 3), lib.arange(27.0).reshape(9, 3)
        return [
            mask.tolist(),
            [y.tolist() for y in F._in_projection_packed(x, x, x, w)],
            [y.tolist() for y in F._in_projection(x, x, x, w[:3], w[3:6], w[6:])],
        ]

    assert results(wisp) == results(torch)
