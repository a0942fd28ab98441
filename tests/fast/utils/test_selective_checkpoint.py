"""Checkpoints that keep the results of some operators: equal gradients, and what is computed again."""

import doctest
import functools

import pytest

import wisp
from wisp import nn
from wisp.utils import checkpoint as module
from wisp.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = wisp.ops.aten
POLICIES = {
    "products": [aten.mm.default, aten.addmm.default],
    "attention": [aten._scaled_dot_product_flash_attention.default],
    "everything": lambda context, operator, *args, **kwargs: CheckpointPolicy.MUST_SAVE,
    "nothing": lambda context, operator, *args, **kwargs: CheckpointPolicy.PREFER_RECOMPUTE,
    "random": [aten.dropout.default],
    "elementwise": [aten.gelu.default, aten.softmax.default, aten.sin.default],
}


def program():
    wisp.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 16), nn.Dropout(0.3), nn.Softmax(-1), nn.Dropout(0.2), nn.Linear(16, 4))
    x = wisp.randn(5, 8, requires_grad=True)

    def function(x):
        hidden = net(x)
        q = hidden.view(1, 1, 5, 4)
        return (nn.functional.scaled_dot_product_attention(q, q, q).sin() @ hidden.T).tanh().sum()

    return net, x, function


def gradients(net, x, run):
    wisp.manual_seed(1)
    net.zero_grad()
    x.grad = None
    run().backward()
    return [x.grad.clone(), *(p.grad.clone() for p in net.parameters())]


@pytest.mark.parametrize("name", POLICIES)
def test_gradients_stay(name):
    net, x, function = program()
    contexts = functools.partial(create_selective_checkpoint_contexts, POLICIES[name])
    expected = gradients(net, x, lambda: function(x))
    found = gradients(net, x, lambda: checkpoint(function, x, use_reentrant=False, context_fn=contexts))
    for a, b in zip(found, expected):
        assert wisp.equal(a, b)


def test_what_is_kept_is_not_computed_again():
    x = wisp.randn(4, 4, requires_grad=True)
    counted = []

    class Products(wisp.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            counted.append(func.__name__)
            return func(*args, **(kwargs or {}))

    for policy, times in (([aten.mm.default], 0), ([aten.sin.default], 1)):
        y = checkpoint(
            lambda x: (x @ x).sin().exp().sum(),
            x,
            use_reentrant=False,
            context_fn=functools.partial(create_selective_checkpoint_contexts, policy),
        )
        counted.clear()
        with Products():
            y.backward()
        assert counted.count("matmul") == times


def test_policies_are_asked_once():
    seen = []

    def policy(context, operator, *args, **kwargs):
        seen.append((context.is_recompute, str(operator)))
        return CheckpointPolicy.MUST_RECOMPUTE

    x = wisp.ones(2, requires_grad=True)
    checkpoint(
        lambda x: x.exp().sum(), x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, policy)
    ).backward()
    assert seen == [(False, "aten.exp.default"), (False, "aten.sum.default")] and x.grad is not None


def test_what_is_kept_is_handed_out_once_and_unchanged():
    def run(function, keep, **options):
        contexts = functools.partial(create_selective_checkpoint_contexts, [keep], **options)
        return checkpoint(function, wisp.ones(3, requires_grad=True), use_reentrant=False, context_fn=contexts, early_stop=False)

    sin = wisp.ops.aten.sin.default
    y = run(lambda x: x.sin().cos().exp(), sin)
    y.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward an extra time"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="has been mutated"):
        run(lambda x: x.sin().mul_(2).cos(), sin).sum().backward()
    run(lambda x: x.sin().mul_(2).cos(), sin, allow_cache_entry_mutation=True).sum().backward()
    calls = []

    def other(x):
        calls.append(1)
        return x.sin().cos() if len(calls) == 1 else x.sin().sin().cos()

    with pytest.raises(RuntimeError, match="invocation index 1 not found"):
        run(other, sin).sum().backward()
    asked = []

    def policy(context, operator, *args, **kwargs):
        asked.append(str(operator))
        return CheckpointPolicy.PREFER_SAVE

    x = wisp.randn(3, requires_grad=True)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    checkpoint(lambda x: wisp.pow(wisp.var(x), 2), x, use_reentrant=False, context_fn=contexts).backward()
    assert asked == ["aten.var.correction", "aten.pow.Tensor_Scalar"]


def test_errors_and_examples():
    with pytest.raises(ValueError, match="OpOverload"):
        create_selective_checkpoint_contexts([wisp.mm])
    with pytest.raises(TypeError, match="function or a list"):
        create_selective_checkpoint_contexts(3)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_what_a_checkpoint_notices():
    calls = []

    def changing(x):
        calls.append(1)
        return x.sin().exp() if len(calls) == 1 else x.sin().exp().sin()

    x = wisp.ones(2, requires_grad=True)
    with module.set_checkpoint_early_stop(False):
        out = checkpoint(changing, x, use_reentrant=False)  # what holds at the call holds in backward
    with pytest.raises(RuntimeError, match="trying to save more tensors during recomputation"):
        out.sum().backward()

    class Silent:
        def __enter__(self):
            return self

        def __exit__(self, *details):
            return True

    def failing(x):
        raise ValueError("no")

    with pytest.raises(RuntimeError, match="context_fn suppressed"):
        checkpoint(failing, x, use_reentrant=False, context_fn=lambda: (Silent(), Silent()))


def test_a_group_of_backward_calls_computes_again_once():
    calls = []

    def function(x):
        calls.append(1)
        y = x.sin().cos()
        return y, y.sin().cos()

    x = wisp.randn(3, requires_grad=True)
    y, z = checkpoint(function, x, use_reentrant=False)
    with module.GraphExecGroup():
        (grad,) = wisp.autograd.grad(z.sum(), y)
        wisp.autograd.grad(y, x, grad)
    assert len(calls) == 2
    out = checkpoint(lambda x: x.sin().cos(), x, use_reentrant=False)
    with module.GraphExecGroup():
        out.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="two backward calls that overlap"):
            out.sum().backward()


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_layers_are_computed_again_once(use_reentrant):
    layers, calls = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.LayerNorm(4), nn.Linear(4, 2)), []

    def run(x):
        calls.append(x)
        return layers(x)

    checkpoint(run, wisp.ones(2, 4, requires_grad=True), use_reentrant=use_reentrant).sum().backward()
    assert len(calls) == 2


def test_hooks_of_saved_tensors_are_asked_once():
    packed, unpacked = [], []
    with wisp.autograd.graph.saved_tensors_hooks(lambda t: (packed.append(t), t)[1], lambda t: (unpacked.append(t), t)[1]):
        y = nn.Linear(4, 4)(wisp.ones(2, 4, requires_grad=True))
    y.sum().backward()
    assert len(packed) == len(unpacked) == 2
