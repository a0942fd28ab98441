"""Transforms inside of each other and of modes, and what they say of arguments that they cannot take."""

import copy
import functools

import pytest

import wisp
from wisp import nn
from wisp.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap


@pytest.mark.parametrize("name", ["__sub__", "__truediv__", "__matmul__", "__lt__", "__add__", "__floordiv__"])
def test_a_parameter_and_a_sample_of_a_batch(name):
    parameter, batch = nn.Parameter(wisp.tensor([1.0, 3.0])), wisp.tensor([[10.0, 2.0], [2.0, 4.0]])
    expected = wisp.stack([getattr(parameter, name)(row) for row in batch])
    operators = {"__sub__": lambda r: parameter - r, "__truediv__": lambda r: parameter / r, "__matmul__": lambda r: parameter @ r}
    operators |= {"__lt__": lambda r: parameter < r, "__add__": lambda r: parameter + r, "__floordiv__": lambda r: parameter // r}
    assert wisp.equal(vmap(operators[name])(batch), expected)


def test_a_step_of_gradient_descent_for_each_task():
    wisp.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), wisp.randn(4, 5, 2)
    parameters = dict(net.named_parameters())

    def loss(values, x):
        return (functional_call(net, values, (x,)) ** 2).mean()

    def after(x, slopes):
        return loss({name: parameters[name] - 0.1 * slope for name, slope in slopes.items()}, x)

    def plainly(x):
        return dict(zip(parameters, wisp.autograd.grad(loss(parameters, x), list(parameters.values()), create_graph=True)))

    together = vmap(lambda x: after(x, grad(loss)(parameters, x)))(x).sum()
    apart = sum(after(x[i], plainly(x[i])) for i in range(4))
    for a, b in zip(*(wisp.autograd.grad(t, list(parameters.values())) for t in (together, apart))):
        wisp.testing.assert_close(a, b)


def test_no_grad_around_an_inner_transform_hides_it_from_the_outer():
    def f(x):
        with wisp.no_grad():
            shift = grad(lambda x: 0.25 * x**4)(x)
        return x**3 - shift

    assert grad(f)(wisp.tensor(1.5)) == 3 * 1.5**2


def test_transforms_in_inference_mode():
    x = wisp.arange(3.0)
    with wisp.inference_mode():
        y = x * 1  # an inference tensor
        assert grad(lambda x: (x**2).sum())(y).tolist() == [0, 2, 4]
        assert jvp(lambda x: x**2, (y,), (wisp.ones(3),))[1].tolist() == [0, 2, 4]
        assert jacrev(grad(lambda x: (x**3).sum()))(y).diagonal().tolist() == [0, 6, 12]
        assert wisp.is_inference_mode_enabled()


def test_aux_of_jacfwd_and_what_cannot_be_aux():
    jacobian, aux = jacfwd(lambda x: (x * 2, {"x": x}), has_aux=True)(wisp.ones(2))
    assert jacobian.tolist() == [[2, 0], [0, 2]] and aux["x"].tolist() == [1, 1]
    for transform in (lambda f: grad(f, has_aux=True)(wisp.ones(())), lambda f: vjp(f, wisp.ones(()), has_aux=True)):
        with pytest.raises(RuntimeError, match="Expected tensors, got unsupported type"):
            transform(lambda x: (x, "text"))


def test_arguments_that_transforms_refuse():
    x = wisp.ones(2)
    with pytest.raises(RuntimeError, match="int or Tuple"):
        grad(wisp.mul, argnums=[0])(x, x)
    with pytest.raises(RuntimeError, match="Expected pytree structure"):
        vjp(lambda x: (x, (x, x)), x)[1](((x, (x, x)),))
    with pytest.raises(RuntimeError, match="jacrev: Expected all inputs to be real"):
        jacrev(lambda x: x)(x.to(wisp.complex64))
    with pytest.raises(ValueError, match="greater than 0"):
        jacrev(wisp.sin, chunk_size=0)
    models = [nn.Linear(1, 1), nn.Linear(1, 1)]
    models[0].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match="same .requires_grad"):
        stack_module_state(models)


def test_random_numbers_in_vmap():
    p, batch = wisp.full((4, 8), 0.5), wisp.zeros(4, 8)
    wisp.manual_seed(1)
    drawn = vmap(wisp.bernoulli, randomness="different")(p)
    wisp.manual_seed(1)
    assert wisp.equal(drawn, wisp.bernoulli(p))  # one draw for the whole batch
    with pytest.raises(RuntimeError, match="same randomness with a batched tensor input"):
        vmap(wisp.bernoulli, randomness="same")(p)
    same = vmap(lambda t: t.normal_(), randomness="same")(batch.clone())
    assert wisp.equal(same[0], same[3])
    with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched tensor"):
        vmap(lambda t: batch[0].normal_() + t, randomness="different")(batch)
    rows = vmap(lambda t: wisp.multinomial(t, 3), randomness="different")(p)
    assert rows.shape == (4, 3) and not wisp.equal(rows[0], rows[1])


def fills(x):
    z = wisp.zeros(3, dtype=x.dtype)
    z[0] = x[0] * x[1]
    z[1:].add_(x[1:] ** 3)
    return z


def branches(x):
    return x**3 if x.sum() > 0 else x


def counts(x):
    return x[x > 1.5].prod() * x * int(x[0].item()) * x.nonzero().numel()


@pytest.mark.parametrize("f", [fills, branches, counts])
def test_forward_derivatives_of_functions_that_look_at_values(f):
    x = wisp.tensor([1.0, 2.0, 3.0], dtype=wisp.float64)
    expected = jacrev(f)(x)
    close = functools.partial(wisp.testing.assert_close, rtol=1e-9, atol=1e-12)
    close(jacfwd(f)(x), expected)
    close(vmap(lambda t: jvp(f, (x,), (t,))[1])(wisp.eye(3, dtype=x.dtype)).T, expected)
    second = jacrev(jacrev(f))(x)
    for transformed in (jacfwd(jacrev(f)), jacfwd(jacfwd(f)), jacrev(jacfwd(f))):
        close(transformed(x), second)
    close(hessian(lambda x: f(x).sum())(x), second.sum(0))
    close(jacfwd(jacfwd(jacfwd(f)))(x), jacrev(jacrev(jacrev(f)))(x))


def test_forward_derivatives_of_such_functions_reach_what_they_use():
    x, weight = wisp.tensor([1.0, 2.0, 3.0]), wisp.tensor(2.0, requires_grad=True)
    jacobian, aux = jacfwd(lambda x: (wisp.zeros(3).add_(x * weight), x * 2), has_aux=True)(x)
    assert aux.tolist() == [2, 4, 6]
    assert wisp.autograd.grad(jacobian.sum(), weight)[0] == 3
    blocks = jacfwd(lambda a, b: {"sum": wisp.zeros(2, 3).add_(a * b)}, argnums=(0, 1))(x, 2 * x)["sum"]
    assert [b.shape for b in blocks] == [(2, 3, 3), (2, 3, 3)] and wisp.equal(blocks[0][1], wisp.diag(2 * x))
    strictly = vmap(lambda t: jvp(lambda x: wisp.full((3,), x.sum().item()), (x,), (t,), strict=True)[1])
    with pytest.raises(RuntimeError, match="independent of the inputs"):
        strictly(wisp.eye(3))
    with pytest.raises(RuntimeError, match="mapped over"):
        vmap(jacfwd(fills))(wisp.stack([x, x]))


def test_one_draw_for_all_columns_of_a_jacobian():
    x = wisp.full((3,), 0.5)
    jacobian = jacfwd(lambda x: wisp.bernoulli(x) * x, randomness="same")(x)
    assert set(jacobian.diagonal().tolist()) <= {0.0, 1.0} and jacobian.count_nonzero() == jacobian.diagonal().count_nonzero()
    with pytest.raises(RuntimeError, match="randomness error mode"):
        jacfwd(lambda x: wisp.bernoulli(x) * x)(x)


def test_inside_of_a_transform_programs_make_no_leaves_and_the_package_does():
    def requires(x):
        return x.requires_grad_().sin().sum()

    def retains(x):
        y = x.sin()
        y.retain_grad()
        return y.sum()

    x = wisp.tensor([0.5, 1.0, 2.0])
    for run in (grad(requires), vmap(requires), vmap(grad(requires)), lambda x: jvp(requires, (x,), (x,))):
        with pytest.raises(RuntimeError, match=r"call Tensor\.requires_grad_\(\) .*outside of a function"):
            run(x)
    with pytest.raises(RuntimeError, match=r"call Tensor\.retain_grad\(\) inside"):
        grad(retains)(x)
    assert requires(x.clone()).requires_grad

    def with_leaves_of_ours(x):
        copied = copy.deepcopy(wisp.nn.Linear(3, 1, bias=False))
        copied.weight = wisp.nn.Parameter(wisp.ones(1, 3))
        return copied(x).sum() * wisp.hann_window(3).sum()

    assert wisp.allclose(grad(with_leaves_of_ours)(x), wisp.hann_window(3).sum().expand(3))


def test_the_pull_back_of_vjp_records_in_the_mode_of_its_call():
    x = wisp.tensor(3.0, requires_grad=True)
    with wisp.no_grad():
        out, pull = vjp(lambda x: x**2, x)
    assert not out.requires_grad
    product = pull(wisp.tensor(1.0))[0]
    assert wisp.autograd.grad(product, x)[0] == 2.0
    with wisp.no_grad():
        assert not pull(wisp.tensor(1.0))[0].requires_grad


def test_the_gradient_of_a_function_of_a_sparse_tensor_is_sparse():
    x = wisp.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    for function in (lambda x: wisp.sparse.sum(x * x), lambda x: (x.to_dense() ** 2).sum()):
        found = grad(function)(x)
        assert found.layout is wisp.sparse_coo and not found.requires_grad
        assert found.to_dense().tolist() == (2 * x.to_dense()).tolist()
