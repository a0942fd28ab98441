"""Forward mode: tangents through operators, views, in-place writes, modes, levels and custom functions."""

import gc

import pytest

import wisp
import wisp.autograd.forward_ad as fwAD
from wisp.autograd import Function, gradcheck
from wisp.autograd.functional import hessian as functional_hessian
from wisp.autograd.functional import jacobian
from wisp.func import grad, hessian, jacfwd, jacrev, jvp, vjp

X, T = wisp.tensor([0.3, 1.2], dtype=wisp.float64), wisp.tensor([1.0, 2.0], dtype=wisp.float64)


def close(actual, expected):
    wisp.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_dual_numbers():
    with fwAD.dual_level():
        x = fwAD.make_dual(X, T)
        assert not x.requires_grad and x.is_leaf and x.grad_fn is None
        assert "tangent=" in repr(x)
        y = (x * 3).sin()
        close(fwAD.unpack_dual(y).tangent, 3 * T * (3 * X).cos())
        close(fwAD.unpack_dual(y).primal, (3 * X).sin())
        assert fwAD.unpack_dual(X).tangent is None
        assert fwAD.unpack_dual(y.detach()).tangent is None
    assert fwAD.unpack_dual(y) == (y, None)
    with fwAD.dual_level():
        assert fwAD.unpack_dual(y * 2).tangent is None  # the tangents of a level end with it


def test_errors():
    with pytest.raises(RuntimeError, match="no level exists"):
        fwAD.make_dual(X, T)
    with pytest.raises(RuntimeError, match="enter_dual_level"):
        fwAD.exit_dual_level()
    with fwAD.dual_level():
        with pytest.raises(ValueError, match="floating point or complex"):
            fwAD.make_dual(wisp.arange(2), T)
        with pytest.raises(RuntimeError, match="different size"):
            fwAD.make_dual(X, wisp.ones(3))
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            fwAD.make_dual(fwAD.make_dual(X, T), T)
    with pytest.raises(RuntimeError, match="to be a tuple"):
        jvp(wisp.sin, X, (T,))
    with pytest.raises(RuntimeError, match="same python structure"):
        jvp(wisp.sin, (X,), ())
    with pytest.raises(RuntimeError, match="to only contain Tensors"):
        jvp(wisp.sin, (X,), (3,))
    with pytest.raises(RuntimeError, match="only tensors"):
        jvp(lambda x: 3, (X,), (T,))


def test_views_and_writes():
    def program(x):
        y = wisp.zeros(2, 2, dtype=wisp.float64)
        y[0] = x
        y[1].copy_(x * x)
        v = y.t()
        y.mul_(x)
        z = v.sum(1)
        v[0] = 1.0
        w = y.clone() * x
        y[1].zero_()
        w += x
        return z, v * 1, w, y.exp_()

    for i, tangent in enumerate(jvp(program, (X,), (T,))[1]):
        close(tangent, jacrev(lambda x: program(x)[i])(X) @ T)  # noqa: B023


def test_levels_nest():
    def derivative(f, times):
        return f if not times else lambda x: jvp(derivative(f, times - 1), (x,), (T,))[1]

    close(derivative(wisp.sin, 1)(X), X.cos() * T)
    close(derivative(wisp.sin, 2)(X), -X.sin() * T**2)
    close(derivative(wisp.sin, 3)(X), -X.cos() * T**3)
    # an inner derivative does not see the outer direction
    outer = jvp(lambda x: x * jvp(lambda y: x + y, (wisp.ones_like(x),), (wisp.ones_like(x),))[1], (X,), (T,))[1]
    close(outer, T)


def test_with_reverse_mode():
    def f(x):
        return (x.sin() * x.prod()).sum()

    full = jacrev(jacrev(f))(X)
    close(hessian(f)(X), full)
    close(jacfwd(jacfwd(f))(X), full)
    close(jacrev(jacfwd(f))(X), full)
    close(jvp(grad(f), (X,), (T,))[1], full @ T)
    close(grad(lambda x: jvp(f, (x,), (T,))[1])(X), full @ T)
    x = X.clone().requires_grad_()
    with fwAD.dual_level():
        f(fwAD.make_dual(x, T)).backward()
        close(fwAD.unpack_dual(x.grad).tangent, full @ T)
    close(x.grad, grad(f)(X))
    _, pull = vjp(lambda x: jvp(wisp.exp, (x,), (T,))[1], X)
    close(pull(T)[0], X.exp() * T * T)


def test_modes():
    weight = wisp.randn(2, 3, dtype=wisp.float64, requires_grad=True)

    def f(x):
        return (x @ weight).softmax(-1)

    expected = jacrev(f)(X).detach() @ T
    with wisp.no_grad():
        value, tangent = jvp(f, (X,), (T,))
        assert not wisp.is_grad_enabled()
    assert not value.requires_grad and not tangent.requires_grad
    close(tangent, expected)
    value, tangent = jvp(f, (X,), (T,))
    assert value.requires_grad and tangent.requires_grad
    tangent.square().sum().backward()
    assert weight.grad.abs().sum() > 0

    def inside(x):
        with wisp.no_grad():
            y = f(x)
        return y * x.sum()

    close(jvp(inside, (X,), (T,))[1], jacfwd(lambda x: f(x) * x.sum())(X).detach() @ T)


def test_custom_functions():
    class Square(Function):
        @staticmethod
        def forward(x, factor):
            return factor * x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.factor = inputs
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * ctx.factor * x * g, None

    class Marked(Square):
        @staticmethod
        def jvp(ctx, tangent, _):
            (x,) = ctx.saved_tensors
            return 100 * ctx.factor * x * tangent

    close(jvp(lambda x: Square.apply(x, 3.0), (X,), (T,))[1], 6 * X * T)
    close(jvp(lambda x: Marked.apply(x, 3.0), (X,), (T,))[1], 300 * X * T)
    close(jvp(lambda x: jvp(lambda y: Square.apply(y, 3.0), (x,), (T,))[1], (X,), (T,))[1], 6 * T * T)
    close(jvp(lambda x: jvp(lambda y: Marked.apply(y, 3.0), (x,), (T,))[1], (X,), (T,))[1], 300 * T * T)
    close(jvp(grad(lambda x: Square.apply(x, 3.0).sum()), (X,), (T,))[1], 6 * T)


def test_complex():
    z = wisp.tensor([1 + 2j, -0.5 + 0.3j], dtype=wisp.complex128)
    dz = wisp.tensor([0.2 - 1j, 0.7 + 0.1j], dtype=wisp.complex128)
    close(jvp(wisp.exp, (z,), (dz,))[1], z.exp() * dz)
    close(jvp(lambda z: z * z.conj(), (z,), (dz,))[1], dz * z.conj() + z * dz.conj())
    close(jvp(wisp.abs, (z,), (dz,))[1], (z.conj() * dz).real / z.abs())


def test_checks_and_jacobians():
    def f(x, y):
        return (x @ y).tanh(), x.cumsum(0)

    x = wisp.randn(2, 3, dtype=wisp.float64, requires_grad=True)
    y = wisp.randn(3, 2, dtype=wisp.float64, requires_grad=True)
    assert gradcheck(f, (x, y), check_forward_ad=True)
    assert gradcheck(lambda z: z.exp().abs(), (wisp.randn(2, dtype=wisp.complex128, requires_grad=True),), check_forward_ad=True)
    with pytest.raises(AssertionError):
        gradcheck(f, (x, y), check_backward_ad=False)
    for forward, reverse in zip(jacobian(f, (x, y), strategy="forward-mode"), jacobian(f, (x, y))):
        for a, e in zip(forward, reverse):
            close(a, e)

    def loss(x):
        return x.sin().prod()

    close(functional_hessian(loss, X, outer_jacobian_strategy="forward-mode"), functional_hessian(loss, X))


def test_tangents_are_freed():
    def run():
        jvp(lambda x: (x.exp() * x).cumsum(0).softmax(0), (X,), (T,))
        hessian(lambda x: x.exp().prod())(X)

    run()
    gc.collect()
    before = wisp._core._live_tensors()
    run()
    gc.collect()
    assert wisp._core._live_tensors() == before


@pytest.mark.parametrize(
    "write",
    [
        lambda y, x: y.transpose_(0, 1).mul_(x.t()),
        lambda y, x: y.unsqueeze_(0).squeeze_(0).mul_(x),
        lambda y, x: y[:, :2].transpose_(0, 1).mul_(x[:, 1:].t()),
        lambda y, x: y.view(3, 2).t_().mul_(x),
        lambda y, x: y.swapaxes_(0, 1).add_(x.t().sin()),
    ],
)
def test_tangents_of_tensors_that_change_their_shape_in_place(write):
    x = wisp.arange(6.0, dtype=wisp.float64).reshape(2, 3) + 0.5

    def f(x):
        y = x * 2
        write(y, x)
        return y.sum(0) * y.max()

    close(jacfwd(f)(x), jacrev(f)(x))
    samples = wisp.stack([x, x + 1, x * 3])
    close(wisp.vmap(f)(samples), wisp.stack([f(s) for s in samples]))


def test_detach_in_place_forgets_tangents():
    from wisp.autograd import forward_ad

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(wisp.ones(2), wisp.ones(2)).clone()
        dual.detach_()
        assert forward_ad.unpack_dual(dual * 2).tangent is None


def test_what_is_overwritten_keeps_a_tangent():
    writes = (lambda d: d.zero_(), lambda d: d.fill_(2.0), lambda d: d.copy_(wisp.ones(3)), lambda d: d.__setitem__(slice(None), 5.0))
    for write in writes:
        with fwAD.dual_level():
            dual = fwAD.make_dual(wisp.ones(3), wisp.ones(3))
            write(dual)
            assert fwAD.unpack_dual(dual).tangent.tolist() == [0, 0, 0]


def test_writes_to_one_primal_of_many_tangents():
    primal, tangents = wisp.tensor([1.0, 2.0, 3.0]), wisp.arange(6.0).reshape(2, 3)

    def pushed(write):
        def push(tangent):
            with fwAD.dual_level():
                dual = fwAD.make_dual(primal, tangent)
                write(dual)
                return fwAD.unpack_dual(dual).tangent

        return wisp.vmap(push)(tangents)

    assert wisp.equal(pushed(lambda d: d.mul_(d)), 2 * primal * tangents)
    assert wisp.equal(pushed(lambda d: d.__setitem__(0, 5.0)), tangents * wisp.tensor([0.0, 1.0, 1.0]))
    assert wisp.equal(pushed(lambda d: d.cumsum_(0)), tangents.cumsum(1))
    assert primal.tolist() == [1, 2, 3]


def test_fast_checks_of_forward_mode_take_one_pass_and_find_wrong_tangents():
    passes = []

    class Triples(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * 3

        @staticmethod
        def backward(ctx, grad):
            return grad * 3, None

        @staticmethod
        def jvp(ctx, tangent, _):
            passes.append(tangent)
            return tangent * ctx.factor

    x = wisp.randn(4, 5, dtype=wisp.complex128, requires_grad=True)
    options = {"check_forward_ad": True, "check_undefined_grad": False}
    assert wisp.autograd.gradcheck(Triples.apply, (x, 3.0), fast_mode=True, **options) and len(passes) == 1
    assert wisp.autograd.gradcheck(Triples.apply, (x, 3.0), **options) and len(passes) == 41
    for fast in (True, False):
        assert not wisp.autograd.gradcheck(Triples.apply, (x, 2.9), fast_mode=fast, raise_exception=False, **options)
