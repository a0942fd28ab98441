"""Hooks of modules: forward, backward, global, and those of the state dict."""

import pytest

import wisp
from wisp import nn
from wisp.nn.modules import module as module_hooks


def test_forward_hooks():
    layer = nn.Identity()
    pre = layer.register_forward_pre_hook(lambda m, args: args[0] + 1)
    post = layer.register_forward_hook(lambda m, args, out: out * 10)
    assert layer(wisp.zeros(1)).item() == 10
    post.remove()
    assert layer(wisp.zeros(1)).item() == 1
    pre.remove()
    assert layer(wisp.zeros(1)).item() == 0
    assert "_has_hooks" not in layer.__dict__  # back on the fast path


def test_order_kwargs_and_prepend():
    class Add(nn.Module):
        def forward(self, x, y=0):
            return x + y

    layer, seen = Add(), []
    layer.register_forward_pre_hook(lambda m, args, kwargs: (args, {"y": kwargs["y"] + 1}), with_kwargs=True)
    layer.register_forward_hook(lambda m, args, out: seen.append("second"))
    layer.register_forward_hook(lambda m, args, kwargs, out: seen.append(kwargs["y"]), with_kwargs=True, prepend=True)
    assert layer(1, y=2) == 4
    assert seen == [3, "second"]
    layer.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        layer(1, y=2)


def test_always_call():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    layer, seen = Broken(), []
    layer.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    layer.register_forward_hook(lambda m, args, out: seen.append("never"))
    with pytest.raises(ValueError, match="broken"):
        layer(1)
    assert seen == [None]


def test_full_backward_hooks():
    layer = nn.Linear(2, 3)
    seen = {}
    layer.register_full_backward_hook(lambda m, gi, go: seen.update(gi=gi, go=go))
    layer.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    x = wisp.ones(4, 2, requires_grad=True)
    layer(x).sum().backward()
    assert seen["go"][0].shape == (4, 3) and (seen["go"][0] == 2).all()
    assert wisp.allclose(seen["gi"][0], x.grad)
    assert wisp.allclose(x.grad, 2 * layer.weight.sum(0).expand(4, 2))


def test_backward_hook_replaces_and_checks():
    layer = nn.Identity()
    handle = layer.register_full_backward_hook(lambda m, gi, go: (gi[0] * 3,))
    x = wisp.ones(2, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    handle.remove()
    layer.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="invalid number of grad_input"):
        layer(x).sum().backward()


def test_backward_hook_without_input_gradient():
    layer, seen = nn.Linear(2, 2), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].shape)))
    layer(wisp.ones(1, 2)).sum().backward()
    assert seen == [((None,), (1, 2))]
    with wisp.no_grad():
        layer(wisp.ones(1, 2))


def test_backward_hook_with_several_outputs():
    class Two(nn.Module):
        def forward(self, x, n, y):
            return x * 2, n, y * 3

    layer, seen = Two(), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append((len(gi), gi[1], len(go), go[1])))
    x, y = wisp.ones(1, requires_grad=True), wisp.ones(1, requires_grad=True)
    a, n, b = layer(x, 5, y)
    (a + b).backward()
    assert n == 5 and seen == [(3, None, 3, None)]
    assert x.grad.item() == 2 and y.grad.item() == 3


def test_old_backward_hook():
    layer, seen = nn.ReLU(), []
    layer.register_backward_hook(lambda m, gi, go: seen.append(go[0].tolist()))
    layer(wisp.ones(2, requires_grad=True)).sum().backward()
    assert seen == [[1, 1]]
    with pytest.raises(RuntimeError, match="both regular backward hooks and full"):
        layer.register_full_backward_hook(lambda m, gi, go: None)


def test_global_hooks():
    seen = []
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    with module_hooks.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
        model(wisp.zeros(1))
    model(wisp.zeros(1))
    assert seen == ["ReLU", "Tanh", "Sequential"]
    assert not nn.Module._has_hooks
    seen.clear()
    with module_hooks.register_module_full_backward_hook(lambda m, gi, go: seen.append(type(m).__name__)):
        model(wisp.zeros(1, requires_grad=True)).sum().backward()
    assert seen == ["Tanh", "ReLU", "Sequential"]
    with module_hooks.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)):
        nn.Linear(1, 1)
    assert seen[3:] == ["weight", "bias"]


def test_state_dict_hooks():
    layer, seen = nn.Linear(1, 1), []
    layer.register_state_dict_pre_hook(lambda m, prefix, keep_vars: seen.append(("pre", prefix)))
    layer.register_state_dict_post_hook(lambda m, sd, prefix, meta: sd.update({prefix + "extra": wisp.ones(1)}))
    model = nn.Sequential(layer)
    state = model.state_dict()
    assert list(state) == ["0.weight", "0.bias", "0.extra"] and seen == [("pre", "0.")]
    layer.register_load_state_dict_pre_hook(lambda m, sd, prefix, *rest: sd.pop(prefix + "extra"))
    layer.register_load_state_dict_post_hook(lambda m, keys: seen.append(type(m).__name__))
    model.load_state_dict(state)
    assert seen[-1] == "Linear"


def test_backward_hooks_say_what_they_miss():
    layer = nn.Linear(2, 1)
    layer.register_full_backward_hook(lambda *args: None)
    with pytest.warns(UserWarning, match="firing when gradients are computed with respect to module outputs"):
        layer(wisp.ones(1, 2)).sum().backward()

    class Returns(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.forward = function

    x = wisp.ones(2, requires_grad=True)
    full = Returns(lambda a: {"x": a * 1})
    full.register_full_backward_hook(lambda *args: None)
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors"):
        full(x)
    for function, args, what in (
        (lambda a: [a.clone()], (x,), "does not return a single Tensor"),
        (lambda a: a[0].clone(), ([x],), "does not take as input"),
        (lambda a: (a.clone(), a.clone()), (x,), "different autograd Nodes"),
        (lambda a: a.clone().clone(), (x,), "multiple autograd Nodes"),
    ):
        old = Returns(function)
        old.register_backward_hook(lambda *args: None)
        with pytest.warns(FutureWarning, match=what):
            old(*args)


def test_hooks_of_a_module_with_a_getattr_of_its_own():
    class Closed(nn.Module):
        def __getattr__(self, name):
            raise AttributeError(name)

        def forward(self, x, scale=1):
            return x * scale

    module = Closed()
    module.register_forward_pre_hook(lambda module, args, kwargs: (args, {"scale": 2}), with_kwargs=True)
    module.register_forward_hook(lambda module, args, kwargs, output: output + kwargs["scale"], with_kwargs=True, always_call=True)
    assert module(wisp.ones(1)).item() == 4 and module.state_dict() == {}
