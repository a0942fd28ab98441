"""In-place writes through views of another dtype and of Functions, dtypes and strides of leaves' gradients, what nodes keep alive."""

import gc
import weakref

import pytest

import wisp
from wisp.autograd import Function, forward_ad, graph


class Narrowed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.narrow(0, 0, 2)

    @staticmethod
    def backward(ctx, grad):
        return wisp.cat([grad, wisp.zeros(1)])


def test_writes_to_real_views_of_complex_numbers_reach_the_base():
    x = wisp.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    base = x.clone()
    wisp.view_as_real(base).mul_(wisp.tensor([[2.0, 3.0], [4.0, 5.0]]))
    (base * base.conj()).real.sum().backward()
    wisp.testing.assert_close(x.grad, wisp.tensor([2 * (4 + 2 * 9j), 2 * (3 * 16 - 25j)]))


def test_writes_to_complex_views_of_reals():
    x = wisp.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    base = x.clone()
    view = wisp.view_as_complex(base.view(2, 2))
    view *= 2j
    view.abs().pow(2).sum().backward()
    wisp.testing.assert_close(x.grad, 8 * x.detach())


@pytest.mark.parametrize("needs", [True, False])
def test_views_that_a_function_made_are_not_written_to(needs):
    x = wisp.ones(3, requires_grad=needs)
    view = Narrowed.apply(x * 1)
    with pytest.raises(RuntimeError, match="created inside a custom Function"):
        view += wisp.ones(2, requires_grad=True)


def test_values_beside_tensors_have_a_place_among_gradients():
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor, factor, x + 1

        @staticmethod
        def backward(ctx, first, none, second):
            assert none is None
            return first * ctx.factor + second, None

    x = wisp.ones(2, requires_grad=True)
    a, factor, b = Scaled.apply(x, 3)
    seen = []
    a.grad_fn.register_prehook(lambda grads: seen.append(len(grads)))
    (a + b).sum().backward()
    assert factor == 3 and seen == [3] and b.output_nr == 2 and x.grad.tolist() == [4.0, 4.0]


def test_grad_dtype():
    x = wisp.ones(2, requires_grad=True)
    x.grad_dtype = wisp.float16
    (x * 2).sum().backward()
    assert x.grad.dtype is x.grad_dtype is wisp.float16
    with pytest.raises(RuntimeError, match="already a gradient"):
        x.grad_dtype = wisp.float64
    with pytest.raises(RuntimeError, match="leaf"):
        (x * 2).grad_dtype
    x.grad, x.grad_dtype = None, None
    x.grad = wisp.ones(2, dtype=wisp.float64)
    assert x.grad.dtype is wisp.float64


def test_grad_layout_policy():
    x = wisp.ones(2, 3).t().requires_grad_()
    for enforced, strides in ((True, (1, 3)), (False, (2, 1))):
        x.grad = None
        with wisp.autograd.enforce_grad_layout_policy(enforced):
            x.backward(wisp.ones(3, 2))
        assert x.grad.stride() == strides


def test_graphs_do_not_wait_for_the_collector():
    class Dirty(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

    def scope():
        x = wisp.ones(1, requires_grad=True).clone()
        Dirty.apply(x.view_as(x))
        return weakref.ref(x)

    gc.disable()
    try:
        assert scope()() is None
    finally:
        gc.enable()


def test_nodes_have_an_abstract_class():
    y = wisp.ones(1, requires_grad=True) * 2
    assert isinstance(y.grad_fn, graph.Node) and graph.Node not in type(y.grad_fn).mro()
    assert y.grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


def test_tangents_are_not_shared():
    tangent = wisp.ones(2)
    with forward_ad.dual_level():
        to = wisp.zeros(2)
        to.copy_(forward_ad.make_dual(wisp.ones(2), tangent))
        forward_ad.unpack_dual(to).tangent.mul_(2)
        with pytest.raises(RuntimeError, match="out= function"):
            wisp.add(to, to, out=wisp.empty(2))
    assert tangent.tolist() == [1.0, 1.0]


def test_errors_in_double_backward_tell_both_origins():
    class Inner(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * float("nan")

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return Inner.apply(grad * 2)

    with wisp.autograd.detect_anomaly(), pytest.warns(UserWarning) as told:
        x = wisp.ones(2, requires_grad=True)
        weight = wisp.ones(2, requires_grad=True)
        (grad,) = wisp.autograd.grad(Outer.apply(x), x, weight, create_graph=True)
        with pytest.raises(RuntimeError, match="InnerBackward' returned nan"):
            grad.sum().backward()
    texts = [str(warning.message) for warning in told]
    assert any("Error detected in InnerBackward" in text for text in texts)
    assert any("induced by OuterBackward" in text for text in texts)


def test_set_leaves_older_graphs_alone():
    x = wisp.ones(2, requires_grad=True)
    edge, y = graph.get_gradient_edge(x), x * 3
    with wisp.no_grad():
        x.set_(wisp.zeros(2))
    with pytest.raises(RuntimeError, match="not have been used"):
        wisp.autograd.grad(y.sum(), x, retain_graph=True)
    assert wisp.autograd.grad(y.sum(), edge)[0].tolist() == [3.0, 3.0]


def test_gradients_in_a_box_are_freed_when_it_is_emptied():
    class Boxed(Function):
        boxed_grads_call = True

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grads):
            result, seen = grads[0] * 2, weakref.ref(grads[0])
            grads.clear()
            assert seen() is None
            return result

    x = wisp.ones(2, requires_grad=True)
    Boxed.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_views_of_views_say_where_the_first_was_made():
    for mode, block in ((wisp.no_grad, "no_grad block"), (wisp.inference_mode, "inference_mode block")):
        x = wisp.zeros(2)
        with mode():
            y = x.view(2)
        y.requires_grad_()
        with pytest.raises(RuntimeError, match=f"a view of a view .* inside the {block}"):
            y.view(2).mul_(2)


def test_out_of_a_factory_may_require_grad():
    out = wisp.empty(3)
    assert wisp.zeros(3, out=out, requires_grad=True) is out and out.requires_grad and out.is_leaf
