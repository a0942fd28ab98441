"""Inputs of `grad` and `backward` by name and by place in the graph; arguments and results of Functions."""

import pytest

import wisp
from wisp.autograd.graph import GradientEdge, allow_mutation_on_saved_tensors, get_gradient_edge


def test_dicts_of_inputs():
    x, y = wisp.tensor(2.0, requires_grad=True), wisp.tensor(3.0, requires_grad=True)
    assert wisp.autograd.grad(x * y, {"x": x, "y": y}) == {"x": 3.0, "y": 2.0}
    (x * y).backward(inputs={"y": y})
    assert x.grad is None and y.grad == 2.0
    with pytest.raises(RuntimeError, match="cannot be empty"):
        wisp.autograd.grad(x * y, {})
    with pytest.raises(RuntimeError, match="at index 1 appears to not have been used"):
        wisp.autograd.grad(x * x, [x, y])


def test_edges_stand_for_tensors():
    x = wisp.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    edge = get_gradient_edge(y)
    out = (y * y).sum()
    assert wisp.autograd.grad(out, edge, retain_graph=True)[0].tolist() == [6.0, 12.0]
    assert wisp.autograd.grad(edge, x, wisp.ones(2), retain_graph=True)[0].tolist() == [3.0, 3.0]
    wisp.autograd.backward(out, inputs=[GradientEdge(edge.node, edge.output_nr), x])
    assert x.grad.tolist() == [18.0, 36.0]
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        wisp.autograd.grad(edge, x, wisp.ones(3))


def test_arguments_by_name_and_results_that_are_no_tensors():
    class Scaled(wisp.autograd.Function):
        @staticmethod
        def forward(x, factor=2.0):
            return "text", x * factor, 7

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.factor = inputs[1]

        @staticmethod
        def backward(ctx, text, grad, number):
            assert text is None and number is None
            return grad * ctx.factor, None

        @staticmethod
        def _backward(*args):
            raise AssertionError("a program's own name")

    x = wisp.tensor(1.0, requires_grad=True)
    Scaled.apply(x)[1].backward()
    Scaled.apply(factor=5.0, x=x)[1].backward()
    assert x.grad == 7.0


def test_what_is_saved_may_change():
    x = wisp.tensor([1.0, 2.0], requires_grad=True)
    with allow_mutation_on_saved_tensors() as context:
        y = x.clone()
        out = (y**2).sum()
        y.sin_()
        assert len(context.cloned) == 1
        out.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_strict_mode_says_what_is_independent():
    x = wisp.ones(2)
    with pytest.raises(RuntimeError, match="The output of the user-provided function is independent of input 1"):
        wisp.autograd.functional.vjp(lambda a, b: a * 2, (x, x), x, strict=True)
    with pytest.raises(RuntimeError, match="jacobian of the user-provided function with respect to input 0 is"):
        wisp.autograd.functional.hessian(lambda a: (3 * a).sum(), x, strict=True)


def test_checkpoint_computes_again_under_the_same_autocast():
    layer, x = wisp.nn.Linear(4, 4), wisp.ones(2, 4, requires_grad=True)
    with wisp.autocast("cpu", dtype=wisp.bfloat16):
        y = wisp.utils.checkpoint.checkpoint(lambda x: layer(x) * layer(x), x, use_reentrant=False)
    y.float().sum().backward()
    assert y.dtype is wisp.bfloat16 and x.grad is not None
