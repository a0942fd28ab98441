"""Custom Functions, anomaly mode, hooks on saved tensors, gradcheck, functional: the parts of autograd written in Python."""

import gc
import warnings

import pytest

import wisp
from wisp import autograd
from wisp.autograd import Function
from wisp.autograd.function import once_differentiable


def leaf(*values):
    return wisp.tensor(values, dtype=wisp.float64, requires_grad=True)


class Product(Function):
    """x * y * scale, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x, y, scale):
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return x * y * scale

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y * ctx.scale, grad * x * ctx.scale, None


def test_the_node_of_a_function():
    x, y = leaf(2.0), leaf(3.0)
    assert Product.apply(x, y, 2).grad_fn.name() == "ProductBackward"
    assert not Product.apply(x.detach(), y.detach(), 2).requires_grad
    with pytest.warns(DeprecationWarning, match="should not be instantiated"), pytest.raises(RuntimeError, match="is deprecated"):
        Product()(wisp.ones(1))


def test_nothing_is_left_behind():
    def use(backward):
        y = Product.apply(leaf(1.0, 2.0), leaf(3.0, 4.0), 2).sum()
        if backward:
            y.backward()

    gc.collect()
    gc.disable()
    try:
        before = wisp._core._live_tensors()
        use(True)
        use(False)
        assert wisp._core._live_tensors() == before  # without the help of the garbage collector
    finally:
        gc.enable()


def test_gradients_arrive_element_by_element():
    x, y = leaf(1.0, 2.0, 3.0), leaf(4.0, 5.0, 6.0)
    weights = wisp.tensor([1.0, 10.0, 100.0], dtype=wisp.float64)
    (Product.apply(x, y, 2) * weights).sum().backward()
    assert x.grad.tolist() == [8.0, 100.0, 1200.0] and y.grad.tolist() == [2.0, 40.0, 600.0]
    assert autograd.gradcheck(lambda a, b: Product.apply(a, b, 3.0), (x, y))
    assert autograd.gradgradcheck(lambda a, b: Product.apply(a, b, 3.0), (x, y))


def test_inputs_with_tangents_need_gradients_where_backward_finds_the_tangents():
    class Square(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * x * y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return 2 * grad * x * y if ctx.needs_input_grad[0] else None, grad * x * x if ctx.needs_input_grad[1] else None

    with wisp.autograd.forward_ad.dual_level():
        x = wisp.autograd.forward_ad.make_dual(wisp.full((2,), 3.0), wisp.ones(2))
        assert wisp.autograd.forward_ad.unpack_dual(Square.apply(x, wisp.full((2,), 5.0))).tangent.tolist() == [30.0, 30.0]


def test_the_tangent_of_distances_by_a_product():
    x, y = wisp.randn(30, 4, dtype=wisp.float64), wisp.randn(28, 4, dtype=wisp.float64)
    tangent = wisp.randn(30, 4, dtype=wisp.float64)
    found = wisp.func.jvp(lambda x: wisp.cdist(x, y), (x,), (tangent,))[1]
    expected = wisp.func.jvp(lambda x: (x[:, None] - y).norm(dim=-1), (x,), (tangent,))[1]
    assert wisp.allclose(found, expected)


def test_needs_input_grad():
    seen = []

    class Watch(Function):
        @staticmethod
        def forward(ctx, a, b, c, d):
            return a + b + d

        @staticmethod
        def backward(ctx, grad):
            seen.append(ctx.needs_input_grad)
            return tuple(grad if needed else None for needed in ctx.needs_input_grad)

    x, y = leaf(1.0), leaf(2.0)
    Watch.apply(x, y.detach(), "text", y).sum().backward()
    assert seen == [(True, False, False, True)] and y.grad.tolist() == [1.0]


def test_none_gradients():
    class Half(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2 + y

        @staticmethod
        def backward(ctx, grad):
            return grad * 2, None

    x, y = leaf(1.0), leaf(1.0)
    Half.apply(x, y).sum().backward()
    assert x.grad.tolist() == [2.0] and y.grad is None


def test_several_outputs_and_materialised_gradients():
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append(None if b is None else b.tolist())
            return a * 2 + (0 if b is None else b * 3), None

    x = leaf(1.0, 2.0)
    Two.apply(x, True)[0].sum().backward()
    Two.apply(x, False)[0].sum().backward()
    a, b = Two.apply(x, True)
    (a + 10 * b).sum().backward()
    assert seen == [[0.0, 0.0], None, [10.0, 10.0]] and x.grad.tolist() == [36.0, 36.0]
    assert a.grad_fn is b.grad_fn and (a.output_nr, b.output_nr) == (0, 1)


class Double(Function):
    """Twice x, in place."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_mark_dirty():
    x = leaf(1.0, 2.0)
    y = x * 3
    version = y._version
    assert Double.apply(y) is y and y._version > version
    (y * wisp.tensor([1.0, 10.0], dtype=wisp.float64)).sum().backward()
    assert x.grad.tolist() == [6.0, 60.0]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        Double.apply(x)
    y = x.exp()
    Double.apply(y)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


def test_mark_dirty_on_a_view():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    Double.apply(y[1:])
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 2.0]


def test_non_differentiable_outputs():
    class Sort(Function):
        @staticmethod
        def forward(ctx, x):
            values, indices = x.sort()
            ctx.mark_non_differentiable(indices)
            ctx.save_for_backward(indices)
            return values, indices

        @staticmethod
        def backward(ctx, grad, _):
            (indices,) = ctx.saved_tensors
            return wisp.zeros_like(grad).scatter(0, indices, grad)

    x = leaf(3.0, 1.0, 2.0)
    values, indices = Sort.apply(x)
    assert values.requires_grad and not indices.requires_grad
    (values * wisp.tensor([1.0, 2.0, 3.0], dtype=wisp.float64)).sum().backward()
    assert x.grad.tolist() == [3.0, 1.0, 2.0]


def test_an_input_returned_as_it_is():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x, wisp.tensor([1, 2])

        @staticmethod
        def backward(ctx, grad, _):
            return grad * 10

    a = leaf(1.5)
    b, integers = Same.apply(a)
    assert b is not a and not integers.requires_grad
    b.sum().backward()
    assert a.grad.item() == 10.0


def test_setup_context():
    class Exp(Function):
        @staticmethod
        def forward(x):
            return x.exp()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    x = leaf(0.5, 1.5)
    assert autograd.gradcheck(Exp.apply, x) and autograd.gradgradcheck(Exp.apply, x)


def test_setup_context_with_several_outputs():
    class Pair(Function):
        @staticmethod
        def forward(x, y):
            return x * y, x + y, "text"

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, product, total, text):
            x, y = ctx.saved_tensors
            assert total is None and text is None
            return product * y, product * x

    x, y = leaf(2.0), leaf(5.0)
    first, second, text = Pair.apply(x, y)
    assert text == "text" and second.requires_grad
    first.backward()
    assert (x.grad.item(), y.grad.item()) == (5.0, 2.0)


def test_saving_an_intermediate_result():
    class SinExp(Function):
        @staticmethod
        def forward(ctx, x):
            inner = x.exp()
            ctx.save_for_backward(x, inner)
            return inner.sin(), inner

        @staticmethod
        def backward(ctx, grad, grad_inner):
            x, inner = ctx.saved_tensors
            return grad * inner.cos() * x.exp() + grad_inner * x.exp()

    x = leaf(0.5, 1.5)
    assert autograd.gradcheck(SinExp.apply, x) and autograd.gradgradcheck(SinExp.apply, x)


def test_saved_tensors_are_checked_and_freed():
    x, y = leaf(1.0), leaf(2.0)
    a = x * 1
    z = Product.apply(a, y, 1)
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
    z = Product.apply(x, y, 1)
    z.backward()
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()


def test_once_differentiable():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @once_differentiable
        def backward(ctx, grad):
            assert not wisp.is_grad_enabled()
            return 2 * grad * ctx.saved_tensors[0]

    x = leaf(3.0)
    Once.apply(x).sum().backward()
    assert x.grad.tolist() == [6.0]
    (g,) = autograd.grad(Once.apply(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()


def test_wrong_gradients():
    def make(result):
        class Wrong(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                return result(grad)

        return Wrong

    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="returned an incorrect number of gradients"):
        make(lambda g: (g, g)).apply(x).sum().backward()
    with pytest.raises(RuntimeError, match="returned an invalid gradient at index 0"):
        make(lambda g: g[:1].expand(3)).apply(x).sum().backward()
    with pytest.raises(TypeError):
        make(lambda g: "text").apply(x).sum().backward()
    make(lambda g: (g, None)).apply(x).sum().backward()  # Nones too many are forgiven


def test_an_error_in_backward_leaves_the_graph_usable():
    fail = [True]

    class Sometimes(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            if fail[0]:
                raise ValueError("not yet")
            return grad

    x = leaf(2.0)
    y = (Sometimes.apply(x) + x).sum()
    with pytest.raises(ValueError, match="not yet"):
        y.backward(retain_graph=True)
    fail[0] = False
    x.grad = None
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_forward_runs_without_recording():
    class Look(Function):
        @staticmethod
        def forward(ctx, x):
            assert not wisp.is_grad_enabled()
            y = x * 2
            assert not y.requires_grad
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = leaf(1.0)
    assert Look.apply(x).requires_grad
    with wisp.no_grad():
        assert not Look.apply(x).requires_grad


# --- anomaly mode -------------------------------------------------------------------------------------------------


def test_anomaly_mode_names_the_forward_line():
    def guilty(x):
        return (x - x).sqrt() * 0

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan values") as error:
            x = leaf(1.0)
            guilty(x).sum().backward()
    assert "SqrtBackward0" in str(error.value)
    text = "".join(str(w.message) for w in caught)
    assert "Traceback of forward call" in text and "in guilty" in text
    assert not wisp.is_anomaly_enabled()
    y = guilty(leaf(1.0)).sum()
    y.backward()


def test_set_detect_anomaly():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with autograd.set_detect_anomaly(True):
            assert wisp.is_anomaly_enabled()
        assert not wisp.is_anomaly_enabled()


def test_source_lines_of_nodes():
    x = leaf(1.0)
    y = x * 2
    assert y.grad_fn._source.endswith(f"test_function.py:{test_source_lines_of_nodes.__code__.co_firstlineno + 2}")


# --- hooks on saved tensors ---------------------------------------------------------------------------------------


def test_saved_tensors_hooks():
    calls = []

    def pack(t):
        calls.append("pack")
        return ("packed", t.clone())

    def unpack(value):
        calls.append("unpack")
        return value[1]

    x = leaf(2.0, 3.0)
    with autograd.graph.saved_tensors_hooks(pack, unpack):
        y = x * x
        z = y.exp()
    z.sum().backward()
    assert wisp.allclose(x.grad, 2 * x.detach() * (x.detach() ** 2).exp())
    assert calls.count("pack") == calls.count("unpack") == 3
    with autograd.graph.saved_tensors_hooks(pack, lambda value: 5):
        y = x * x
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor"):
        y.sum().backward()
    with autograd.graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            with autograd.graph.saved_tensors_hooks(pack, unpack):
                pass


def test_saved_tensors_elsewhere():
    x = leaf(2.0, 3.0)
    with autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy().copy(), wisp.from_numpy):
        y = x * x
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]
    x.grad = None
    with autograd.graph.save_on_cpu():
        y = (x * 2).exp()
    y.sum().backward()
    assert wisp.allclose(x.grad, 2 * (2 * x.detach()).exp())


def test_saved_tensors_hooks_keep_double_backward():
    x = leaf(0.7, 1.2)
    with autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        y = (x * 2).exp() * x
        (g,) = autograd.grad(y.sum(), x, create_graph=True)
        (h,) = autograd.grad(g.sum(), x)
    v = x.detach()
    assert wisp.allclose(h, (4 * v + 4) * (2 * v).exp())


# --- gradcheck ----------------------------------------------------------------------------------------------------


def test_gradcheck_catches_a_wrong_gradient():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            return grad * 3 * ctx.saved_tensors[0] ** 2 * 1.01

    x = leaf(1.0, 2.0)
    assert not autograd.gradcheck(Bad.apply, x, raise_exception=False)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        autograd.gradcheck(Bad.apply, x)


def test_gradgradcheck_catches_a_wrong_second_derivative():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            return grad * 3 * ctx.saved_tensors[0].detach() ** 2

    x = leaf(1.0, 2.0)
    assert autograd.gradcheck(Bad.apply, x)
    assert not autograd.gradgradcheck(Bad.apply, x, raise_exception=False)


def test_gradcheck_catches_what_only_one_element_shows():
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            grad = grad.clone() * 2
            grad[-1] = 0
            return grad

    assert not autograd.gradcheck(Bad.apply, leaf(1.0, 2.0, 3.0), raise_exception=False)


def test_gradcheck_of_several_outputs_and_of_complex_numbers():
    assert autograd.gradcheck(lambda x, y: (x * y, x.sum()), (leaf(1.0, 2.0), leaf(0.5, 1.5)))
    z = wisp.tensor([1 + 2j, -0.5j], dtype=wisp.complex128, requires_grad=True)
    assert autograd.gradcheck(lambda z: z * z, z) and autograd.gradcheck(lambda z: (z * z.conj()).real, z)


# --- functional ---------------------------------------------------------------------------------------------------


def test_functional():
    from wisp.autograd import functional as F

    a = wisp.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=wisp.float64)
    x = wisp.tensor([1.0, -1.0], dtype=wisp.float64)
    v = wisp.tensor([0.5, 2.0], dtype=wisp.float64)
    assert wisp.allclose(F.jacobian(lambda t: a @ t, x), a)
    jx, jy = F.jacobian(lambda t, s: (t * s).sum(), (x, v))
    assert jx.tolist() == v.tolist() and jy.tolist() == x.tolist()
    assert wisp.allclose(F.hessian(lambda t: t @ (a @ t), x), a + a.t())
    assert wisp.allclose(F.vjp(lambda t: a @ t, x, v)[1], a.t() @ v)
    assert wisp.allclose(F.jvp(lambda t: a @ t, x, v)[1], a @ v)
    assert wisp.allclose(F.hvp(lambda t: t @ (a @ t), x, v)[1], (a + a.t()) @ v)
    assert wisp.allclose(F.vhp(lambda t: t @ (a @ t), x, v)[1], (a + a.t()) @ v)
    both = F.hessian(lambda t, s: (t * s).sum(), (x, v))
    assert both[0][1].tolist() == [[1.0, 0.0], [0.0, 1.0]] and both[0][0].abs().sum() == 0
    assert not F.jacobian(lambda t: a @ t, x).requires_grad
    y = leaf(1.0, 2.0)
    F.jacobian(lambda t: t**2, y, create_graph=True).sum().backward()
    assert y.grad.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError):
        F.jacobian(lambda t: t.detach(), x, strict=True)


def test_what_forward_does_jvp_must_do():
    from wisp.autograd import forward_ad

    def applied(function, *args):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function.apply(forward_ad.make_dual(wisp.ones(4), wisp.ones(4)), *args)).tangent

    class View(Function):
        @staticmethod
        def forward(ctx, x, how):
            ctx.how = how
            return x[:2]

        @staticmethod
        def jvp(ctx, tangent, _):
            return ctx.how(tangent)

    assert applied(View, lambda t: t[:2]).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="jvp is not returning a view\\."):
        applied(View, lambda t: t[:2].clone())
    with pytest.raises(RuntimeError, match="jvp is not returning a view of the given"):
        applied(View, lambda t: t.clone()[:2])

    class Inplace(Function):
        @staticmethod
        def forward(ctx, x, inplace):
            ctx.inplace = inplace
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, tangent, _):
            return tangent.mul_(2) if ctx.inplace else tangent * 2

    assert applied(Inplace, True).tolist() == [2, 2, 2, 2]
    with pytest.raises(RuntimeError, match="must modify the corresponding gradient inplace"):
        applied(Inplace, False)

    class Neither(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

    with pytest.raises(RuntimeError, match="must implement the jvp function"):
        applied(Neither)

    class Dirty(Function):
        @staticmethod
        def forward(ctx, x, view):
            y = x.clone().view_as(x) if view else x.clone()
            ctx.mark_dirty(y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 3, None

    x = wisp.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="received a tensor that was not an input"):
        Dirty.apply(x, True)
    with pytest.warns(UserWarning, match="Only input Tensors should be given to ctx.mark_dirty"):
        Dirty.apply(x, False).backward()
    assert x.grad.item() == 3


def test_pack_hooks_may_not_write():
    with wisp.autograd.graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
        with pytest.raises(RuntimeError, match="pack hook is modifying its input in place"):
            wisp.ones(2, requires_grad=True).exp()


def test_backward_inside_of_a_checkpoint():
    from wisp.utils.checkpoint import checkpoint

    def inner(x):
        (grad,) = wisp.autograd.grad((x**3).sum(), x, create_graph=True)
        return grad.sin()

    for early_stop in (True, False):
        x, y = (wisp.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
        checkpoint(inner, x, use_reentrant=False, early_stop=early_stop).sum().backward()
        inner(y).sum().backward()
        wisp.testing.assert_close(x.grad, y.grad)


def test_second_derivatives_pass_module_hooks():
    loss, calls = wisp.nn.MSELoss(), []
    loss.register_full_backward_hook(lambda *args: calls.append(1))
    x = wisp.rand(1, requires_grad=True)
    (first,) = wisp.autograd.grad(loss(x, wisp.zeros(1)), x, create_graph=True)
    (second,) = wisp.autograd.grad(first, x)
    assert second.item() == 2 and len(calls) == 1


def test_anything_may_be_saved_where_no_graph_is_made():
    class Keeps(Function):
        @staticmethod
        def forward(ctx, x, options):
            ctx.save_for_backward(x, options)
            assert ctx.saved_tensors[1] is options
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2, None

    assert Keeps.apply(wisp.ones(1), {"a": 1}).item() == 2
    with pytest.raises(TypeError, match="can only save variables, but argument 1 is of type dict"):
        Keeps.apply(leaf(1.0), {"a": 1})
