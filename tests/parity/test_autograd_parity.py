"""autograd's functions of functions and its errors, against PyTorch's."""

import numpy as np
import pytest
import torch

import wisp

POINT = np.random.default_rng(0).standard_normal((2, 3))


def functions(p):
    yield lambda x: x.sin() * x
    yield lambda x: (x.sum(0), (x * x).sum())
    yield lambda x: x.detach() * 2
    yield lambda x: x.exp().prod(1)


def plain(value):
    return [plain(item) for item in value] if isinstance(value, tuple) else value.detach().numpy()


def compare(ours, theirs):
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for pair in zip(ours, theirs):
            compare(*pair)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("number", range(4))
def test_jacobian(number):
    results = []
    for p in (wisp, torch):
        f = list(functions(p))[number]
        results.append(plain(p.autograd.functional.jacobian(f, p.from_numpy(POINT.copy()))))
    compare(*results)


@pytest.mark.parametrize("name", ["hessian", "vhp", "hvp"])
def test_hessians(name):
    results = []
    for p in (wisp, torch):
        x, y = p.from_numpy(POINT.copy()), p.from_numpy(POINT.copy() + 1)
        v = () if name == "hessian" else ((x * 2, y),)
        results.append(plain(getattr(p.autograd.functional, name)(lambda x, y: (x * x * y).sin().sum(), (x, y), *v)))
    compare(*results)


@pytest.mark.parametrize("name", ["vjp", "jvp"])
def test_products(name):
    results = []
    for p in (wisp, torch):
        x = p.from_numpy(POINT.copy())
        results.append(plain(getattr(p.autograd.functional, name)(lambda x: x.tanh() * x, x, x + 1)))
    compare(*results)


def errors(p):
    x = p.ones(2, requires_grad=True)
    other = p.ones(2, requires_grad=True)
    yield lambda: p.autograd.grad(x * 2, x)
    yield lambda: p.autograd.grad((x * 2).sum(), other)
    yield lambda: p.autograd.grad((x * 2).sum(), p.ones(2))
    yield lambda: p.autograd.grad(x * 2, x, p.ones(3))
    yield lambda: p.autograd.grad(p.ones(1), x)
    yield lambda: p.autograd.backward(x.sum(), inputs=[])
    yield lambda: p.autograd.grad((x * 2).sum(), x, materialize_grads=True, allow_unused=False)
    yield lambda: p.autograd.functional.jacobian(lambda x: 3, x)
    yield lambda: p.autograd.functional.hessian(lambda x: x, x)
    yield lambda: p.autograd.gradcheck(lambda x: x, p.ones(2))


@pytest.mark.parametrize("number", range(len(list(errors(torch)))))
def test_errors(number):
    kinds = []
    for p in (torch, wisp):
        with pytest.raises(Exception) as info:
            list(errors(p))[number]()
        kinds.append(info.type)
    assert kinds[1] is kinds[0]
