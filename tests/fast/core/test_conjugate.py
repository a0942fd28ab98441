"""Conjugate views: they share memory, read and write conjugates, and take part in autograd."""

import copy
import io
import pickle

import pytest

import wisp

X = wisp.tensor([[1 + 2j, 3 - 1j], [0.5j, 2 + 0j]], dtype=wisp.complex128)
C = X.conj_physical()


def close(actual, expected):
    wisp.testing.assert_close(actual.resolve_conj(), expected.resolve_conj(), rtol=1e-12, atol=1e-14)


def test_shares_memory():
    x = X.clone()
    z = x.conj()
    assert z.is_conj() and not x.is_conj() and isinstance(z, wisp.Tensor)
    assert z.data_ptr() == x.data_ptr() and z._is_view() and z.stride() == x.stride()
    x.mul_(2)
    close(z, 2 * C)
    assert not z.conj().is_conj() and z.conj().data_ptr() == x.data_ptr()
    assert not z.resolve_conj().is_conj() and x.resolve_conj() is x
    assert wisp.ones(2).conj().is_conj() is False


def test_views_stay_lazy():
    z = X.conj()
    for view in (
        z[0],
        z.t(),
        z.T,
        z.mT,
        z.reshape(4),
        z.view(4),
        z[:, 1],
        z.unsqueeze(0),
        z.detach(),
        z.expand(2, 2, 2),
        z.unbind(0)[1],
        z.transpose(0, 1).flatten()[1:],
        X.mH,
        X.H,
        X.adjoint(),
    ):
        assert view.is_conj()
    assert not z.mH.is_conj() and not z.adjoint().is_conj()
    close(X.mH, C.t())
    close(z.mH, X.t())
    close(z[0], C[0])
    close(wisp.stack(list(z)), C)
    with pytest.raises(RuntimeError, match="view_as_real"):
        wisp.view_as_real(z)


def test_values():
    z = X.conj()
    for f in (
        lambda t: t * 2,
        lambda t: 2j - t,
        lambda t: t / X,
        lambda t: X @ t,
        lambda t: t @ t.mH,
        lambda t: t.sum(0),
        lambda t: t.exp(),
        lambda t: t**2,
        lambda t: 2**t,
        lambda t: -t,
        lambda t: t == C,
        lambda t: t.abs(),
        lambda t: t.real + 0,
        lambda t: t.imag + 0,
        lambda t: wisp.cat([t, X]),
        lambda t: wisp.stack([X, t]),
        lambda t: wisp.tensor([t[0, 0], t[1, 1]]),
        lambda t: t.angle(),
        lambda t: wisp.einsum("ij,jk->ik", t, X),
        lambda t: wisp.linalg.inv(t),
        lambda t: wisp.fft.fft(t),
        lambda t: t.clone(),
        lambda t: wisp.as_tensor(t),
        lambda t: t.to(wisp.complex64),
        lambda t: t.contiguous(),
        lambda t: t[wisp.tensor([1, 0])],
        lambda t: wisp.where(X.real > 0, t, X),
        lambda t: wisp.vdot(t[0], X[0]),
        lambda t: wisp.nn.Parameter(t).detach(),
    ):
        close(f(z), f(C))
    assert z.tolist() == C.tolist() and z[0, 0].item() == 1 - 2j and complex(z[0, 0]) == 1 - 2j
    assert repr(z) == repr(C) and (z.numpy(force=True) == C.numpy()).all()
    with pytest.raises(RuntimeError, match="conjugate bit set. Use tensor.resolve_conj"):
        z.numpy()
    for copied in (copy.deepcopy(z), pickle.loads(pickle.dumps(z))):
        close(copied, C)
    file = io.BytesIO()
    wisp.save({"z": z, "x": X}, file)
    file.seek(0)
    close(wisp.load(file)["z"], C)


def test_writes_reach_the_base():
    x, plain = X.clone(), C.clone()
    z = x.conj()
    for write in (
        lambda t: t.mul_(1j),
        lambda t: t.add_(X),
        lambda t: t.__setitem__(0, 5 + 1j),
        lambda t: t[0].sub_(2j),
        lambda t: t.copy_(X),
        lambda t: t[:, 1].fill_(3 - 2j),
        lambda t: t.__iadd__(1j),
        lambda t: t.__setitem__((1, 1), X[0, 0]),
        lambda t: t.exp_(),
        lambda t: t.zero_(),
    ):
        write(z)
        write(plain)
        close(z, plain)
        close(x, plain.conj_physical())
    y = X.clone()
    y += y.conj()
    close(y, X + C)
    y[0] = X.conj()[1]
    close(y[0], C[1])
    assert wisp.add(X, X, out=z) is z
    close(z, X + X)


def test_autograd():
    weight = wisp.tensor([[1j, 2.0], [0.3, -1j]], dtype=wisp.complex128)

    def gradient(f):
        x = X.clone().requires_grad_()
        f(x).abs().square().sum().backward()
        return x.grad

    close(gradient(lambda x: x.conj() * weight), gradient(lambda x: x.conj_physical() * weight))
    close(gradient(lambda x: x.mH @ x), gradient(lambda x: x.mT.conj_physical() @ x))
    close(gradient(lambda x: x.conj()[0].exp() * weight), gradient(lambda x: x.conj_physical()[0].exp() * weight))

    def write(conj):
        def f(x):
            y = x * 1
            z = conj(y)
            z.mul_(weight)
            y[0].mul_(2j)
            return (z if z.is_conj() else y.conj_physical()) * y

        return f

    def write_plainly(x):
        y = (x.conj_physical() * weight).conj_physical()
        y = wisp.stack([y[0] * 2j, y[1]])
        return y.conj_physical() * y

    close(gradient(write(lambda y: y.conj())), gradient(write_plainly))
    leaf = X.conj().requires_grad_()
    (leaf * weight).abs().square().sum().backward()
    close(leaf.grad, gradient(lambda x: x.conj_physical() * weight).conj())
    seen = []
    x = X.clone().requires_grad_()
    z = x.conj()
    z.register_hook(lambda g: seen.append(g) or g.conj())
    (z * weight).sum().abs().backward()
    assert len(seen) == 1
    x = X.clone().requires_grad_()
    (x * weight).backward(X.conj())
    close(x.grad, weight.conj_physical() * C)
    with pytest.raises(RuntimeError, match="leaf"):
        X.clone().requires_grad_().conj().mul_(2)


def test_with_transforms():
    close(wisp.func.jvp(lambda x: x.conj() * x, (X,), (C,))[1], C.conj_physical() * X + C * C)
    close(wisp.vmap(lambda row: row.conj() * 2)(X), 2 * C)
    close(wisp.vmap(lambda row: row.conj() * 2)(X.conj()), 2 * X)


def test_data_of_a_conjugate_view_has_versions_of_its_own():
    x = wisp.tensor([1 + 2j, 3 - 1j], dtype=wisp.complex128, requires_grad=True)
    y = x.conj()
    y.data.mul_(2)
    assert y._version == 0 and wisp.equal(y.detach(), wisp.tensor([2 - 4j, 6 + 2j], dtype=wisp.complex128))
    assert wisp.autograd.gradcheck(wisp.dot, (wisp.ones_like(x, requires_grad=True), y))


def test_parts_are_set_through_conjugates():
    x = wisp.tensor([1 + 2j, 3 - 4j])
    z = x.conj()
    z.real = wisp.tensor([7.0, 8.0])
    z.imag = wisp.tensor([1.0, 2.0])
    assert x.tolist() == [7 - 1j, 8 - 2j]
    z.imag = 3
    z.real[0] = 5
    assert x.tolist() == [5 - 3j, 8 - 3j] and z.tolist() == [5 + 3j, 8 + 3j]
    other = wisp.zeros(2, dtype=wisp.complex64)
    other.imag = z.imag
    assert other.tolist() == [3j, 3j]


def test_imaginary_part_of_a_conjugate_is_a_view():
    x = wisp.tensor([1 + 2j, 3 - 4j])
    n = x.conj().imag
    assert n.is_neg() and n.data_ptr() == x.imag.data_ptr() and n.tolist() == [-2, 4] and not n.resolve_neg().is_neg()
    assert n[:1].is_neg() and n.view(2, 1).is_neg() and n.detach().is_neg() and n.T.is_neg() and not n.clone().is_neg() and n.conj() is n
    n.mul_(2)
    n[0] = 5
    wisp.add(n[1:], 1, out=n[1:])
    assert x.tolist() == [1 - 5j, 3 - 9j] and (n + 1).tolist() == [6, 10] and (-n).tolist() == [-5, -9]
    n.real = wisp.tensor([1.0, 2.0])
    assert x.imag.tolist() == [-1, -2] and n.data.tolist() == [1, 2] and [v.item() for v in n] == [1, 2]
    with pytest.raises(RuntimeError, match="negative bit set"):
        n.numpy()
    assert n.numpy(force=True).tolist() == [1, 2] and copy.deepcopy(n).tolist() == pickle.loads(pickle.dumps(n)).tolist() == [1, 2]
    assert n.untyped_storage().data_ptr() == x.conj().untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    for refused, error in ((n.__dlpack__, BufferError), (lambda: n.view(wisp.int32), RuntimeError), (lambda: n.resize_(5), RuntimeError)):
        with pytest.raises(error, match="negative"):
            refused()


def test_gradients_through_negative_views():
    w = wisp.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    (w.conj().imag * wisp.tensor([1.0, 2.0])).sum().backward()
    assert w.grad.tolist() == [-1j, -2j]
    w.grad = None
    c = w * 1
    c.conj().imag.mul_(3)
    (c.real * 2 + c.imag * 5).sum().backward()
    assert w.grad.tolist() == [2 + 15j, 2 + 15j]
    w.grad = None
    c = w * 1
    n = c.conj().imag
    c.mul_(2j)
    (n * wisp.tensor([1.0, 2.0])).sum().backward()  # the view has its history again from the base
    assert w.grad.tolist() == [-2, -4]
