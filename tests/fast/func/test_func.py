"""Transforms of functions: gradients, Jacobians, vmap, and how they nest."""

import pytest

import wisp
from wisp import func


def test_gradients_nest():
    x = wisp.tensor(1.0, dtype=wisp.float64)
    assert abs(func.grad(func.grad(wisp.sin))(x).item() + wisp.sin(x).item()) < 1e-12
    assert not func.grad(wisp.sin)(x).requires_grad


def test_gradient_keeps_what_others_track():
    weight = wisp.tensor([1.0, 2.0], requires_grad=True)
    func.grad(lambda x: (x * x * weight).sum())(wisp.tensor([3.0, 4.0])).sum().backward()
    assert weight.grad.tolist() == [6.0, 8.0]


def test_products_with_jacobians():
    x, v = wisp.tensor([1.0, 2.0]), wisp.tensor([1.0, 0.5])
    value, product = func.jvp(lambda t: t**2, (x,), (v,))
    assert value.tolist() == [1.0, 4.0] and product.tolist() == [2.0, 2.0]
    value, back = func.vjp(lambda t: t**2, x)
    assert back(v)[0].tolist() == [2.0, 2.0]
    assert func.linearize(lambda t: t**2, x)[1](v).tolist() == [2.0, 2.0]


def test_jacobians_and_hessians():
    x = wisp.tensor([1.0, 2.0])
    assert func.jacrev(lambda t: t**2)(x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert func.jacfwd(lambda t: t**2)(x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert func.hessian(lambda t: (t**3).sum())(x).tolist() == [[6.0, 0.0], [0.0, 12.0]]


def test_per_sample_gradients_of_a_module():
    layer = wisp.nn.Linear(3, 1)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    x = wisp.randn(4, 3)

    def loss(p, sample):
        return func.functional_call(layer, p, (sample,)).sum()

    grads = func.vmap(func.grad(loss), in_dims=(None, 0))(parameters, x)
    assert wisp.allclose(grads["weight"], x.unsqueeze(1))


def test_vmap_dims_and_errors():
    x = wisp.arange(6.0).reshape(2, 3)
    assert wisp.equal(func.vmap(lambda t: t * 2, in_dims=1, out_dims=1)(x), x * 2)
    assert wisp.equal(wisp.vmap(wisp.dot, in_dims=(0, None))(x, wisp.ones(3)), x.sum(1))
    with pytest.raises(ValueError, match="same size in the mapped dimension"):
        func.vmap(wisp.add)(x, wisp.ones(3, 3))
    with pytest.raises(ValueError, match="got no inputs"):
        func.vmap(lambda: x)()
    with pytest.raises(ValueError, match="must only return Tensors"):
        func.vmap(lambda t: 1.0)(x)


def test_vmap_randomness():
    x = wisp.zeros(3)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        func.vmap(lambda t: t + wisp.rand(()))(x)
    same = func.vmap(lambda t: t + wisp.rand(()), randomness="same")(x)
    assert (same == same[0]).all()
    assert len(set(func.vmap(lambda t: t + wisp.rand(()), randomness="different")(x).tolist())) == 3
