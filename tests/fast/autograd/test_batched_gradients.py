"""A batch of gradients goes backward at once: what comes out is what one pass for each of them gives."""

import pytest

import wisp
from wisp import nn

x, y, w = wisp.linspace(0.1, 1.2, 12).reshape(3, 4), wisp.linspace(-1.0, 1.0, 4), wisp.linspace(-1.0, 2.0, 20).reshape(4, 5)


class Doubled(wisp.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2

    @staticmethod
    def backward(ctx, g):
        assert g.shape == (3, 4)  # of one gradient
        return g * 2


FUNCTIONS = {
    "products and functions": lambda a, b: a * a.sin() + b.exp() / a,
    "an operand that is broadcast twice": lambda a, b: a * b + (b * b[:1]).unsqueeze(0),
    "a number": lambda a, b: a * b[0] + a.sum() ** 2,
    "matrices": lambda a, b: (a @ w).tanh(),
    "a matrix from the right": lambda a, b: w.t() @ a.t(),
    "vectors": lambda a, b: (b @ w).tanh() + (a @ b).sum(),
    "a layer": lambda a, b: nn.functional.linear(a, w.t(), w[0]),
    "a layer of weights": lambda a, b: nn.functional.linear(a, a * 2, a[:, 0]),
    "addmm": lambda a, b: wisp.addmm(b[:1], a, w, beta=2, alpha=3),
    "batches of matrices": lambda a, b: a.reshape(1, 3, 4).expand(2, 3, 4) @ w,
    "views": lambda a, b: a.t().reshape(2, 6).unsqueeze(1).permute(2, 0, 1).transpose(0, 2),
    "sums": lambda a, b: a.sum(0) * a.mean(1, keepdim=True) + a.mean() * a.sum(),
    "one by one": lambda a, b: a.softmax(1).cumsum(0) + a[[0, 2, 2]],
    "several results": lambda a, b: a.sort(1).values * a.max(1, keepdim=True).values,
    "writes": lambda a, b: (a * 1).index_fill_(0, wisp.tensor([1]), 2.0).mul_(b),
    "a slice that is written to": lambda a, b: wisp.zeros(3, 4).copy_(a).narrow(1, 1, 2).mul_(b[:2]),
    "a function of Python's": lambda a, b: Doubled.apply(a) * b,
    "another dtype": lambda a, b: a.double() * b,
    "a complex number": lambda a, b: (a * (1 + 2j)).abs(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_batch_is_its_gradients(name, create_graph):
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    out = FUNCTIONS[name](a, b)
    weights = wisp.randn(5, *out.shape, dtype=out.dtype)
    one = [wisp.autograd.grad(out, (a, b), g, retain_graph=True, allow_unused=True, create_graph=create_graph) for g in weights]
    all_at_once = wisp.autograd.grad(
        out, (a, b), weights, is_grads_batched=True, retain_graph=True, allow_unused=True, create_graph=create_graph
    )
    for made, expected in zip(all_at_once, zip(*one)):
        if expected[0] is None:
            assert made is None
            continue
        assert made.shape == (5, *expected[0].shape) and made.dtype == expected[0].dtype
        wisp.testing.assert_close(made, wisp.stack(expected))
    if create_graph and one[0][0].requires_grad:
        second = [
            wisp.autograd.grad((t * t).sum(), (a, b), retain_graph=True, materialize_grads=True)
            for t in (all_at_once[0], wisp.stack([r[0] for r in one]))
        ]
        wisp.testing.assert_close(second[0], second[1], rtol=1e-4, atol=1e-4)


def test_hooks_see_single_gradients():
    a = x.clone().requires_grad_()
    seen = []
    a.register_hook(lambda g: seen.append(g.shape) or g * 2)
    middle = a * 3
    middle.register_hook(lambda g: g + 1)
    middle.grad_fn.register_hook(lambda made, given: (made[0] * 10, None))
    made = wisp.autograd.grad(middle.sin().sum(1), a, wisp.eye(3), is_grads_batched=True)[0]
    assert seen == [(3, 4)] * 3
    expected = wisp.diag_embed((x * 3).cos().t()).permute(1, 2, 0) + 1
    wisp.testing.assert_close(made, expected * 60)


def test_an_output_without_a_gradient_in_a_batch():
    a = x.clone().requires_grad_()
    low, high = a.aminmax(dim=1)
    made = wisp.autograd.grad(high, a, wisp.eye(3), is_grads_batched=True)[0]
    assert made.sum((1, 2)).tolist() == [1.0, 1.0, 1.0] and made[:, :, 3].tolist() == wisp.eye(3).tolist()


@pytest.mark.parametrize("chunk_size", [None, 1, 3, 100])
def test_chunks_of_jacrev(chunk_size):
    calls = []

    def function(v):
        calls.append(v)
        return (v @ w).tanh() if v.sum().item() > 0 else v  # values decide: the function itself sees no batch

    made = wisp.func.jacrev(function, chunk_size=chunk_size)(x)
    assert len(calls) == 1 and made.shape == (3, 5, 3, 4)
    wisp.testing.assert_close(made, wisp.func.jacfwd(lambda v: (v @ w).tanh())(x))


def test_jacrev_inside_of_vmap_and_of_itself():
    cube = lambda v: v**3  # noqa: E731
    batch = wisp.vmap(wisp.func.jacrev(cube))(x)
    wisp.testing.assert_close(batch, wisp.stack([wisp.func.jacrev(cube)(row) for row in x]))
    second = wisp.func.jacrev(wisp.func.jacrev(cube))(y)
    wisp.testing.assert_close(second, wisp.func.jacfwd(wisp.func.jacrev(cube))(y))
    assert second[1, 1, 1] == 6 * y[1] and second[0, 1, 1] == 0
