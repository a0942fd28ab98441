"""Optimizers: the base class, hooks, errors, and that they minimise."""

import pickle

import pytest

import wisp

ALL = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "Adafactor"]


def parameter(*values):
    return wisp.nn.Parameter(wisp.tensor(values))


@pytest.mark.parametrize("name", ALL)
def test_minimises(name):
    p = parameter(1.0, -2.0)
    optimizer = getattr(wisp.optim, name)([p], lr=1.0 if name == "Adadelta" else 0.05)

    def closure():
        optimizer.zero_grad()
        loss = ((p - 0.5) ** 2).sum()
        loss.backward()
        return loss

    first = optimizer.step(closure)
    for _ in range(30):
        last = optimizer.step(closure)
    assert last < first


def test_lbfgs():
    p = parameter(-1.0, 1.5)
    optimizer = wisp.optim.LBFGS([p], line_search_fn="strong_wolfe", max_iter=100)

    def rosenbrock():
        optimizer.zero_grad()
        loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(rosenbrock)
    assert (p - 1).abs().max() < 1e-2


def test_zero_grad():
    p = parameter(1.0)
    optimizer = wisp.optim.SGD([p], lr=0.1)
    (p * 2).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0]
    optimizer.zero_grad()
    assert p.grad is None
    optimizer.step()  # without gradients nothing happens
    assert p.tolist() == [1.0]


def test_hooks_run_once_around_a_step():
    calls = []

    class Outer(wisp.optim.SGD):
        def step(self, closure=None):
            calls.append("outer")
            return super().step(closure)

    optimizer = Outer([parameter(1.0)], lr=0.1)
    handle = optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.step()
    assert calls == ["before", "outer", "after"]
    handle.remove()
    optimizer.step()
    assert calls[3:] == ["outer", "after"]


def test_groups_and_errors():
    a, b = parameter(1.0), parameter(2.0)
    optimizer = wisp.optim.SGD([{"params": [a]}, {"params": b, "lr": 0.5}], lr=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": a})
    with pytest.raises(ValueError, match="empty parameter list"):
        wisp.optim.SGD([])
    with pytest.raises(TypeError, match="iterable of Tensors or dicts"):
        wisp.optim.SGD(a)
    with pytest.raises(ValueError, match="can't optimize a non-leaf Tensor"):
        wisp.optim.SGD([a * 2])
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        wisp.optim.Adam([a], lr=-1)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(wisp.optim.SGD([a]).state_dict())
    named = wisp.optim.SGD([("first", a), ("second", b)])
    assert named.state_dict()["param_groups"][0]["param_names"] == ["first", "second"]


def test_schedulers():
    optimizer = wisp.optim.SGD([parameter(1.0)], lr=1.0)
    warm = wisp.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    decay = wisp.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    both = wisp.optim.lr_scheduler.SequentialLR(optimizer, [warm, decay], [2])
    rates = []
    for _ in range(5):
        rates.append(both.get_last_lr()[0])
        optimizer.step()
        both.step()
    assert rates == pytest.approx([0.1, 0.55, 1.0, 0.5, 0.25])


def test_plateau():
    optimizer = wisp.optim.SGD([parameter(1.0)], lr=1.0)
    scheduler = wisp.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for loss in (1.0, 1.0, 1.0):
        scheduler.step(loss)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_averaged_model():
    model = wisp.nn.Linear(1, 1, bias=False)
    average = wisp.optim.swa_utils.AveragedModel(model)
    for value in (1.0, 2.0, 6.0):
        with wisp.no_grad():
            model.weight.fill_(value)
        average.update_parameters(model)
    assert average.module.weight.item() == 3.0


def test_a_fused_step_heeds_the_scale_and_the_mark_of_a_program():
    for kind in (wisp.optim.SGD, wisp.optim.Adam, wisp.optim.AdamW, wisp.optim.Adagrad):
        p, q = (wisp.nn.Parameter(wisp.ones(3)) for _ in "ab")
        optimizers = kind([p], lr=0.1, fused=True), kind([q], lr=0.1, fused=True)
        p.grad, q.grad = wisp.full((3,), 8.0), wisp.full((3,), 2.0)
        optimizers[0].grad_scale, optimizers[0].found_inf = wisp.tensor(4.0), wisp.tensor(1.0)
        optimizers[0].step()
        assert p.tolist() == [1, 1, 1] and p.grad.tolist() == [8, 8, 8]
        optimizers[0].found_inf = wisp.tensor(0.0)
        for o in optimizers:
            o.step()
        assert p.grad.tolist() == [2, 2, 2] and wisp.equal(p, q)


def test_optimizers_as_functions():
    from wisp.optim import _functional

    wisp.manual_seed(0)
    start, grads = wisp.randn(4), [wisp.randn(4) for _ in range(3)]

    def state(name, o, p):
        return o.state[p].get({"state_steps": "step", "state_sums": "sum", "momentum_buffer_list": "momentum_buffer"}.get(name, name[:-1]))

    for name, (lists, _, numbers) in _functional._FORMS.items():
        kind = {"adadelta": "Adadelta", "adagrad": "Adagrad", "adam": "Adam", "adamax": "Adamax", "adamw": "AdamW", "asgd": "ASGD"}.get(
            name, {"nadam": "NAdam", "radam": "RAdam", "rmsprop": "RMSprop", "rprop": "Rprop", "sgd": "SGD"}.get(name)
        )
        p = wisp.nn.Parameter(start.clone())
        o = getattr(wisp.optim, kind)([p])
        p.grad = grads[0]
        o.step()
        group = o.param_groups[0]
        settings = dict(group) | dict(zip(("beta1", "beta2"), group.get("betas", ())))
        settings |= dict(zip(("etaminus", "etaplus"), group.get("etas", ()))) | dict(
            zip(("step_size_min", "step_size_max"), group.get("step_sizes", ()))
        )
        q = p.detach().clone()
        kept = [[None if (s := state(n, o, p)) is None else s.clone()] for n in lists.split()[2:]]
        kept = [[] if k == [None] and name != "sgd" else k for k in kept]
        function = getattr(getattr(wisp.optim, name), name)
        for g in grads[1:]:
            p.grad = g
            o.step()
            function([q], [g], *kept, **{n: settings[n] for n in numbers.split()})
        assert wisp.allclose(q, p), name
    with pytest.raises(TypeError, match="lr"):
        wisp.optim.sgd.sgd([], [], [])


def test_a_generator_in_a_pickle_goes_on_where_it_stood():
    g = wisp.Generator().manual_seed(3)
    wisp.rand(5, generator=g)
    again = pickle.loads(pickle.dumps(g))
    assert wisp.equal(wisp.rand(7, generator=again), wisp.rand(7, generator=g)) and again.device == g.device


def test_steps_of_a_programs_own_optimizer_stay_numbers():
    class Own(wisp.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self):
            for p in self.param_groups[0]["params"]:
                self.state[p]["step"] = self.state[p].get("step", 0) + 1

    p = wisp.nn.Parameter(wisp.ones(2))
    first, second = Own([p]), Own([p])
    first.step()
    second.load_state_dict(first.state_dict())
    assert second.state[p]["step"] == 1 and type(second.state[p]["step"]) is int


@pytest.mark.parametrize("kind", [wisp.optim.SGD, wisp.optim.Adam, wisp.optim.AdamW])
def test_gradients_reach_hyperparameters(kind):
    def after(lr, decay, *betas):
        parameter = wisp.ones(3, dtype=wisp.float64, requires_grad=True).clone()
        more = {"betas": betas} if kind is not wisp.optim.SGD else {"momentum": 0.5}
        optimizer = kind([parameter], lr=lr, weight_decay=decay, differentiable=True, **more)
        for _ in range(3):
            ((parameter.sum() - 2) ** 2).backward(inputs=(parameter,), create_graph=True)
            optimizer.step()
            optimizer.zero_grad()
        return parameter

    numbers = [wisp.tensor(n, dtype=wisp.float64, requires_grad=True) for n in (0.1, 0.01, 0.9, 0.99)]
    assert wisp.autograd.gradcheck(after, numbers[: 2 if kind is wisp.optim.SGD else 4])


def test_nadam_differentiates_the_product_of_its_momenta():
    def step(p, grad, product):
        p = p.clone()
        p.grad = grad
        optimizer = wisp.optim.NAdam([p], lr=0.1, differentiable=True)
        optimizer.state[p] = {
            "step": wisp.tensor(10.0, dtype=wisp.float64),
            "exp_avg": wisp.full((3,), 0.5, dtype=wisp.float64),
            "exp_avg_sq": wisp.ones(3, dtype=wisp.float64),
            "mu_product": product.clone(),
        }
        optimizer.step()
        return p

    p, grad = (wisp.rand(3, dtype=wisp.float64, requires_grad=True) for _ in range(2))
    assert wisp.autograd.gradcheck(step, (p, grad, wisp.tensor(0.7, dtype=wisp.float64, requires_grad=True)))


@pytest.mark.parametrize("make", [lambda p: wisp.optim.AdamW(p, lr=0.1), lambda p: wisp.optim.SGD(p, lr=wisp.tensor(0.1), momentum=0.9)])
def test_state_before_the_first_step(make):
    from wisp.distributed.checkpoint.state_dict import _init_optim_state

    x = wisp.nn.Parameter(wisp.ones(3))
    optimizer = make([x])
    _init_optim_state(optimizer)
    (state,) = optimizer.state_dict()["state"].values()
    assert all((value == 0).all() for name, value in state.items() if name != "step")
    assert x.grad is None and x.tolist() == [1, 1, 1] and float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.1)
    x.grad = wisp.ones(3)
    fresh = make([x])
    _init_optim_state(fresh)  # gradients are the program's
    assert not fresh.state and x.grad.tolist() == [1, 1, 1]
