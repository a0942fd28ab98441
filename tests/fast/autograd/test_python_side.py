"""The Python side of autograd: modes, grad, hooks on several gradients, checkpoint. Functions: test_function.py."""

import pytest

import wisp
from wisp.autograd import graph
from wisp.utils.checkpoint import checkpoint


def leaf(*values):
    return wisp.tensor(values, dtype=wisp.float64, requires_grad=True)


def test_modes():
    assert wisp.is_grad_enabled()
    with wisp.no_grad():
        assert not wisp.is_grad_enabled()
        with wisp.enable_grad():
            assert wisp.is_grad_enabled()
        assert not wisp.is_grad_enabled()

    @wisp.no_grad()
    def decorated():
        return wisp.is_grad_enabled()

    @wisp.no_grad
    def bare():
        return wisp.is_grad_enabled()

    assert not decorated() and not bare() and wisp.is_grad_enabled()
    with pytest.raises(KeyError):
        with wisp.no_grad():
            raise KeyError
    assert wisp.is_grad_enabled()
    wisp.set_grad_enabled(False)
    assert not wisp.is_grad_enabled()
    wisp.set_grad_enabled(True)
    with wisp.set_grad_enabled(False):
        assert not wisp.is_grad_enabled()
    with wisp.inference_mode():
        assert not wisp.is_grad_enabled() and wisp.is_inference_mode_enabled()
    assert wisp.is_grad_enabled() and not wisp.is_inference_mode_enabled()


def test_mode_on_a_generator():
    seen = []

    @wisp.no_grad()
    def generator():
        try:
            while True:
                seen.append(wisp.is_grad_enabled())
                got = yield len(seen)
                seen.append(got)
        except ValueError:
            yield "caught"
        return "end"

    iterator = generator()
    assert next(iterator) == 1 and wisp.is_grad_enabled()
    assert iterator.send("x") == 3 and wisp.is_grad_enabled()
    assert iterator.throw(ValueError) == "caught"
    with pytest.raises(StopIteration) as end:
        next(iterator)
    assert end.value.value == "end" and seen == [False, "x", False]


def test_grad():
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    assert [g.item() for g in wisp.autograd.grad(z, (x, y), retain_graph=True)] == [3.0, 2.0]
    unused = leaf(1.0)
    assert wisp.autograd.grad(z, (x, unused), allow_unused=True, retain_graph=True)[1] is None
    assert wisp.autograd.grad(z, (x, unused), materialize_grads=True, retain_graph=True)[1].tolist() == [0.0]
    with pytest.raises(RuntimeError, match="implicitly created only for scalar"):
        wisp.autograd.grad(leaf(1.0, 2.0) * 2, x)
    v = leaf(1.0, 2.0)
    (rows,) = wisp.autograd.grad(v * v, v, wisp.eye(2, dtype=wisp.float64), is_grads_batched=True)
    assert rows.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    wisp.autograd.backward([x * y, x * 2], inputs=[x])
    assert x.grad.item() == 5.0 and y.grad is None


def test_multi_grad_hook():
    a, b, c = leaf(1.0), leaf(2.0), leaf(3.0)
    seen = []
    handle = graph.register_multi_grad_hook((a, b, c), lambda grads: seen.append([g is not None for g in grads]))
    (a * b).sum().backward()
    assert seen == [[True, True, False]]
    handle.remove()
    (a * b).sum().backward()
    assert len(seen) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    from wisp.utils.checkpoint import checkpoint, checkpoint_sequential

    calls = []

    def block(x, scale=2):
        calls.append(1)
        noise = wisp.rand(3, dtype=wisp.float64)
        return (x * scale).sin() * x.exp() * noise

    x = leaf(0.1, 0.2, 0.3)
    wisp.manual_seed(5)
    block(x).sum().backward()
    expected, x.grad = x.grad.tolist(), None
    wisp.manual_seed(5)
    y = checkpoint(block, x, use_reentrant=reentrant)
    after = wisp.rand(1).item()
    y.sum().backward()
    assert x.grad.tolist() == expected and len(calls) == 3
    wisp.manual_seed(5)
    block(x)
    assert wisp.rand(1).item() == after  # recomputation leaves the generator alone
    z = checkpoint_sequential([wisp.sin, wisp.exp, wisp.tanh, wisp.cos], 2, x, use_reentrant=reentrant)
    (gradient,) = wisp.autograd.grad(wisp.cos(wisp.tanh(wisp.exp(wisp.sin(x)))).sum(), x)
    x.grad = None
    z.sum().backward()
    assert wisp.allclose(x.grad, gradient)


def test_checkpoint_notices_differences():
    from wisp.utils.checkpoint import CheckpointError, checkpoint

    sizes = iter([2, 3])

    def changing(x):
        return (x * x).expand(next(sizes), 1).exp()

    with pytest.raises(CheckpointError):
        checkpoint(changing, leaf(1.0), use_reentrant=False).sum().backward()


def test_hooks_see_gradients_that_never_arrived():
    seen = []
    first, second = wisp.ones(2, requires_grad=True).unbind()
    first.register_hook(seen.append)
    second.backward()
    assert seen == [None]

    def refuses(x):
        y = x.clone()
        y.register_hook(lambda grad: 1 / 0 if grad is None else None)
        return y

    x = wisp.ones(2, dtype=wisp.float64, requires_grad=True)
    assert wisp.autograd.gradcheck(refuses, (x,), check_undefined_grad=False)
    with pytest.raises(ZeroDivisionError):
        wisp.autograd.gradcheck(refuses, (x,))
    assert wisp.autograd.gradcheck(lambda x: (x * x, x + 1), (x,), check_forward_ad=True, check_batched_forward_grad=True)
    with pytest.raises(RuntimeError, match="batched gradients"):
        wisp.autograd.gradcheck(lambda x: x * 2 + 0 * wisp.rand_like(x), (x,), check_forward_ad=True, check_batched_forward_grad=True)


def test_what_has_no_place_in_transforms():
    x = wisp.randn(3)
    for transform in (wisp.func.grad, wisp.func.jacrev, wisp.func.hessian):
        with pytest.raises(RuntimeError, match="saved tensor hooks"), wisp.autograd.graph.save_on_cpu():
            transform(lambda x: x.sin().sum())(x)
    with pytest.raises(RuntimeError, match="autograd.functional.vjp"):
        wisp.func.vmap(lambda x: wisp.autograd.functional.vjp(wisp.sin, x))(x)
    inside = wisp.func.grad(lambda x: checkpoint(lambda x: x.sin().sum(), x, use_reentrant=False))(x)
    assert wisp.allclose(inside, x.cos())
    held = []
    wisp.func.vmap(wisp.func.vmap(lambda x: held.append(wisp.func.debug_unwrap(x)) or x))(y := wisp.ones(2, 3))
    assert held[0] is y


def test_checkpoints_say_what_differs():
    calls = []

    def other(x):
        calls.append(1)
        return x.sin().exp() if len(calls) % 2 else x.sin() * wisp.ones(2, 1)

    x = wisp.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="passed `debug=True`(.|\n)*sin, exp(.|\n)*sin, ones"):
        checkpoint(other, x, use_reentrant=False, debug=True).sum().backward()
    with pytest.raises(RuntimeError, match="incompatible with .grad"):
        wisp.autograd.grad(checkpoint(wisp.exp, x, use_reentrant=True), x)
    checkpoint(wisp.exp, x, use_reentrant=True).backward()
    y, seen = wisp.ones(2), []

    class Keeps(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx.saved_tensors[0])
            return grad, None

    checkpoint(Keeps.apply, x, y, use_reentrant=False).backward()
    assert seen[0] is y


def test_weak_dictionaries_by_identity():
    from wisp.utils.weak import WeakIdKeyDictionary

    x, y = wisp.ones(2), wisp.ones(2)
    table = WeakIdKeyDictionary({x: 1})
    both = table | {y: 2}
    assert table[x] == 1 and y not in table and both[y] == 2 and (both.copy())[x] == 1
    del y
    assert len(both) == 1


def test_gradcheck_leaves_the_random_numbers_of_the_function_alone():
    def noisy(x):
        state = wisp.get_rng_state()
        y = x * wisp.rand(x.shape, dtype=wisp.float64)
        wisp.set_rng_state(state)
        return y

    before = wisp.get_rng_state()
    assert wisp.autograd.gradcheck(noisy, (wisp.ones(3, dtype=wisp.float64, requires_grad=True),), fast_mode=True)
    assert before.equal(wisp.get_rng_state())
