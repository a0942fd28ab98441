"""The Python side of autograd: modes, Function, functional, gradcheck, checkpoint, hooks on saved tensors."""
import pytest

import wisp
from wisp.autograd import Function, functional, gradcheck, gradgradcheck, graph
from wisp.autograd.function import once_differentiable


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


class Cube(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x ** 3

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False)
        return 3 * ctx.factor * x * x * grad, None


def test_function():
    x = leaf(2.0, 3.0)
    y = Cube.apply(x, 2)
    assert y.grad_fn.name() == "CubeBackward"
    y.sum().backward()
    assert x.grad.tolist() == [24.0, 54.0]
    assert not Cube.apply(x.detach(), 2).requires_grad
    assert gradcheck(lambda x: Cube.apply(x, 2), x) and gradgradcheck(lambda x: Cube.apply(x, 2), x)


def test_function_forms():
    class Pair(Function):
        @staticmethod
        def forward(x, y):
            return x * y, x + y, "text"

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, product, total):
            x, y = ctx.saved_tensors
            assert total is None
            return product * y, product * x
    x, y = leaf(2.0), leaf(5.0)
    first, second, text = Pair.apply(x, y)
    assert text == "text" and second.requires_grad
    first.backward()
    assert (x.grad.item(), y.grad.item()) == (5.0, 2.0)

    class InPlace(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 2
    a = leaf(1.0)
    b = a * 3
    c = InPlace.apply(b)
    assert c is b
    c.sum().backward()
    assert a.grad.item() == 6.0

    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_non_differentiable(rounded := x.round())
            return x, rounded, wisp.tensor([1, 2])

        @staticmethod
        def backward(ctx, grad, *_):
            return grad * 10
    a = leaf(1.5)
    b, rounded, integers = Same.apply(a)
    assert b is not a and not rounded.requires_grad and not integers.requires_grad
    b.sum().backward()
    assert a.grad.item() == 10.0


def test_function_errors():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, grad):
            return grad
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Wrong.apply(leaf(1.0), leaf(1.0)).sum().backward()
    with pytest.raises(RuntimeError, match="should not be instantiated"):
        Wrong()

    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            return grad * 2 * ctx.saved_tensors[0]
    x = leaf(3.0)
    gradient, = wisp.autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    assert gradient.item() == 6.0
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


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
    rows, = wisp.autograd.grad(v * v, v, wisp.eye(2, dtype=wisp.float64), is_grads_batched=True)
    assert rows.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    wisp.autograd.backward([x * y, x * 2], inputs=[x])
    assert x.grad.item() == 5.0 and y.grad is None


def test_functional():
    def f(x):
        return (x ** 3).sum()
    x = wisp.tensor([1.0, 2.0], dtype=wisp.float64)
    v = wisp.tensor([1.0, -1.0], dtype=wisp.float64)
    assert functional.jacobian(lambda x: x ** 2, x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert functional.hessian(f, x).tolist() == [[6.0, 0.0], [0.0, 12.0]]
    assert functional.vjp(lambda x: x ** 2, x, v)[1].tolist() == [2.0, -4.0]
    assert functional.jvp(lambda x: x ** 2, x, v)[1].tolist() == [2.0, -4.0]
    assert functional.hvp(f, x, v)[1].tolist() == functional.vhp(f, x, v)[1].tolist() == [6.0, -12.0]
    both = functional.hessian(lambda a, b: (a * b).sum(), (x, x))
    assert both[0][1].tolist() == [[1.0, 0.0], [0.0, 1.0]] and both[0][0].abs().sum() == 0
    x.requires_grad_()
    jacobian = functional.jacobian(lambda x: x ** 2, x, create_graph=True)
    jacobian.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_gradcheck_finds_errors():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2.01
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(Bad.apply, x)
    assert not gradcheck(Bad.apply, x, raise_exception=False)
    assert gradcheck(lambda x, y: (x * y, x.sum()), (x, leaf(0.5, 1.5)))
    z = wisp.tensor([1 + 2j, -0.5j], dtype=wisp.complex128, requires_grad=True)
    assert gradcheck(lambda z: z * z, z) and gradcheck(lambda z: (z * z.conj()).real, z)


def test_saved_tensors_hooks():
    packed = []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor.detach().numpy().copy()
    x = leaf(2.0, 3.0)
    with graph.saved_tensors_hooks(pack, wisp.from_numpy):
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 6.0] and len(packed) == 2
    with graph.save_on_cpu():
        y = (x * 2).exp()
    y.sum().backward()


def test_multi_grad_hook():
    a, b, c = leaf(1.0), leaf(2.0), leaf(3.0)
    seen = []
    handle = graph.register_multi_grad_hook((a, b, c), lambda grads: seen.append([g is not None for g in grads]))
    (a * b).sum().backward()
    assert seen == [[True, True, False]]
    handle.remove()
    (a * b).sum().backward()
    assert len(seen) == 1


def test_anomaly():
    with pytest.warns(UserWarning, match="Anomaly"), pytest.raises(RuntimeError, match="nan"):
        with wisp.autograd.detect_anomaly():
            x = leaf(0.0)
            (x * 0 / x).sqrt().sum().backward()


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
    gradient, = wisp.autograd.grad(wisp.cos(wisp.tanh(wisp.exp(wisp.sin(x)))).sum(), x)
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


def test_nothing_is_left_behind():
    def use(backward):
        y = Cube.apply(leaf(1.0, 2.0), 2).sum()
        if backward:
            y.backward()
    import gc
    gc.collect()
    gc.disable()
    try:
        before = wisp._core._live_tensors()
        use(True)
        use(False)
        assert wisp._core._live_tensors() == before  # without the help of the garbage collector
    finally:
        gc.enable()
