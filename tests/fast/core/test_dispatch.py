"""`__torch_dispatch__`: wrapper subclasses below autograd, modes that see operators as `torch.ops.aten` names them, custom parameters."""

import copy
import io
import pickle

import pytest

import wisp
from wisp.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing, transform_subclass
from wisp.utils._pytree import tree_map

aten = wisp.ops.aten
log = []


class Wrapped(wisp.Tensor):
    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        made = wisp.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device, requires_grad=requires_grad
        )
        made.inner = inner
        return made

    def __repr__(self):
        return super().__repr__(tensor_contents=f"inner={self.inner.tolist()}")

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        return Wrapped(parts["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        log.append(str(func))
        assert all(issubclass(kind, cls) for kind in types)

        def inner(value):
            return value.inner if isinstance(value, cls) else value

        out = tree_map(lambda v: cls(v) if isinstance(v, wisp.Tensor) else v, func(*tree_map(inner, args), **tree_map(inner, kwargs or {})))
        return return_and_correct_aliasing(func, args, kwargs, out)


def seen(call):
    log.clear()
    result = call()
    return result, list(log)


def test_operators_arrive_as_overloads():
    x, y = Wrapped(wisp.tensor([[1.0, 2.0], [3.0, 4.0]])), Wrapped(wisp.eye(2))
    assert x.device == wisp.device("cpu") and x.shape == (2, 2) and not x.is_meta and type(x * 2) is Wrapped
    for call, names in (
        (lambda: x * 2, ["aten.mul.Tensor"]),
        (lambda: 2 - x, ["aten.rsub.Scalar"]),
        (lambda: x > 1, ["aten.gt.Scalar"]),
        (lambda: x**2, ["aten.pow.Tensor_Scalar"]),
        (lambda: x.sum(0), ["aten.sum.dim_IntList"]),
        (lambda: x.view(4), ["aten.view.default"]),
        (lambda: wisp.nn.functional.linear(x, y), ["aten.t.default", "aten.mm.default"]),
        (lambda: x @ y, ["aten.mm.default"]),
        (lambda: x.softmax(-1), ["aten._softmax.default"]),
        (lambda: x[0, 1:], ["aten.select.int", "aten.slice.Tensor"]),
        (lambda: x.double(), ["aten._to_copy.default"]),
        (lambda: wisp.cat([x, y]), ["aten.cat.default"]),
        (lambda: x.T, ["aten.permute.default"]),
        (lambda: x.narrow(1, -1, 1), ["aten.slice.Tensor"]),
        (lambda: x.sort(stable=True)[0], ["aten.sort.stable"]),
        (lambda: list(x)[1], ["aten.unbind.int"]),
    ):
        result, found = seen(call)
        assert found == names and type(result) is Wrapped
    assert wisp.equal((2 - x).inner, 2 - x.inner) and wisp.equal(x[0, 1:].inner, x.inner[0, 1:])
    assert x.sum().item() == 10.0 and float(x.max()) == 4.0 and x.add_(1) is x and x.inner[0, 0] == 2.0
    assert "Wrapped(inner=[[2.0" in repr(x)
    with pytest.raises(RuntimeError, match="no memory of its own"):
        x.numpy()
    assert x.data_ptr() == 0 and wisp.equal(wisp.narrow(x, 1, -1, 1).inner, x.inner[:, 1:])
    assert transform_subclass(x, lambda name, part: part + 1).inner[0, 0] == 3.0


def test_pickled_without_memory():
    x = pickle.loads(pickle.dumps(Wrapped(wisp.tensor([[1.0, 2.0], [3.0, 4.0]]).T)))
    assert type(x) is Wrapped and x.device.type == "cpu" and x.stride() == (1, 2) and x.inner.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    meta = pickle.loads(pickle.dumps(wisp.empty(2, 3, dtype=wisp.int32, device="meta").T))
    assert meta.is_meta and meta.shape == (3, 2) and meta.stride() == (1, 3) and meta.dtype == wisp.int32


def test_a_reduced_product_is_asked_for():
    class Edges(Wrapped):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            assert func is aten._sparse_mm_reduce_impl.default and args[2] == "amax"
            return (args[0].inner.unsqueeze(-1) * args[1]).amax(1), None

    dense = wisp.tensor([[1.0], [2.0]])
    assert wisp.sparse.mm(Edges(wisp.tensor([[3.0, 1.0], [1.0, 1.0]])), dense, "amax").tolist() == [[3.0], [2.0]]


def test_gradients_are_of_the_class_and_have_gradients():
    inner = wisp.tensor([[1.0, 2.0], [3.0, 4.0]])
    plain = inner.clone().requires_grad_()
    x = Wrapped(inner, requires_grad=True)

    def f(x):
        return (x.exp() * x.t() + x.softmax(0) / 2 - x.sin()).cumsum(1).sum()

    f(x).backward()
    f(plain).backward()
    assert type(x.grad) is Wrapped
    wisp.testing.assert_close(x.grad.inner, plain.grad)
    f(x).backward()
    wisp.testing.assert_close(x.grad.inner, 2 * plain.grad)
    second = []
    for t in (x, plain):
        (g,) = wisp.autograd.grad(f(t), t, create_graph=True)
        second.append(wisp.autograd.grad((g * g).sum(), t)[0])
    wisp.testing.assert_close(second[0].inner, second[1])
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.mul_(2)


def test_they_are_parameters_copied_trained_and_saved():
    layer = wisp.nn.Linear(2, 2)
    layer.weight = wisp.nn.Parameter(Wrapped(wisp.ones(2, 2)))
    assert isinstance(layer.weight, wisp.nn.Parameter) and type(layer.weight) is Wrapped and len(list(layer.parameters())) == 2
    assert repr(layer.weight).startswith("Parameter(Wrapped(")
    for optimizer in (wisp.optim.SGD, wisp.optim.AdamW):
        before = layer.weight.inner.clone()
        layer(wisp.ones(1, 2)).sum().backward()
        optimizer(layer.parameters(), lr=0.1).step()
        assert (layer.weight.inner < before).all()
    twin = copy.deepcopy(layer)
    assert type(twin.weight) is Wrapped and twin.weight.inner is not layer.weight.inner
    buffer = io.BytesIO()
    wisp.save(layer.state_dict(), buffer)
    buffer.seek(0)
    with wisp.serialization.safe_globals([Wrapped]):
        loaded = wisp.load(buffer)["weight"]
    assert type(loaded) is Wrapped and wisp.equal(loaded.inner, layer.weight.inner)

    class Forgetful(Wrapped):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*tree_map(lambda v: v.inner if isinstance(v, cls) else v, args), **(kwargs or {}))

    with pytest.raises(RuntimeError, match="returns an instance of the same type"):
        wisp.nn.Parameter(Forgetful(wisp.ones(2)))


def test_modes_see_overloads_and_what_python_functions_call():
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(func)
            return func(*args, **(kwargs or {}))

    names, x = [], wisp.ones(2, requires_grad=True)
    with Names():
        y = (wisp.nn.functional.relu(x) * 2).sum()
    assert names == [aten.relu.default, aten.mul.Tensor, aten.sum.default]
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_classes_that_refuse():
    class Refusing(Wrapped):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="Multiple dispatch failed for 'aten.add.Tensor'"):
        Refusing(wisp.ones(2)) + 1
    with pytest.raises(RuntimeError, match="requires __torch_dispatch__"):
        wisp.Tensor._make_wrapper_subclass(type("Bare", (wisp.Tensor,), {}), (2,))


def test_tangents_and_jacobians():
    x, y = wisp.rand(2, 3), wisp.rand(3, 4)
    tangents = wisp.rand(2, 3), wisp.rand(3, 4)

    def function(a, b):
        return (a.relu() * a) @ b.sin()

    _, expected = wisp.func.jvp(function, (x, y), tangents)
    _, got = wisp.func.jvp(function, (Wrapped(x), Wrapped(y)), tangents)
    assert type(got) is Wrapped
    wisp.testing.assert_close(got.inner, expected)
    jacobian = wisp.autograd.functional.jacobian(function, (Wrapped(x), Wrapped(y)), vectorize=True, strategy="forward-mode")
    for got, expected in zip(jacobian, wisp.autograd.functional.jacobian(function, (x, y))):
        wisp.testing.assert_close(got.inner, expected)


def test_gradients_of_the_class_arrive_at_plain_nodes():
    x = Wrapped(wisp.rand(2, 2)).requires_grad_()
    weight = wisp.rand(2, requires_grad=True)
    (first,) = wisp.autograd.grad(x.exp().sum(1), x, weight, create_graph=True)  # expands the weight, which is plain
    (second,) = wisp.autograd.grad(first, weight, wisp.ones(2, 2))
    wisp.testing.assert_close(second.inner, x.detach().inner.exp().sum(1))


def test_changes_in_place_have_the_gradient_of_what_was_there():
    x, other = Wrapped(wisp.tensor([2.0, 3.0])).requires_grad_(), Wrapped(wisp.tensor([5.0, 7.0])).requires_grad_()
    y = x.clone()
    y.mul_(other)
    y.sum().backward()
    assert x.grad.inner.tolist() == [5, 7] and other.grad.inner.tolist() == [2, 3]


def test_nodes_can_be_called():
    x = wisp.tensor([2.0, 3.0], requires_grad=True)
    node = (x * x).grad_fn
    left, right = node(wisp.ones(2))
    assert left.tolist() == right.tolist() == [2, 3]
    with pytest.raises(TypeError, match="expected 1 arguments, got 0 instead"):
        node()


def test_jacobians_by_rows():
    x = wisp.rand(2, 2)
    for jacobian in (wisp.func.jacrev(wisp.exp), lambda t: wisp.autograd.functional.jacobian(wisp.exp, t, vectorize=True)):
        wisp.testing.assert_close(jacobian(Wrapped(x)).inner, jacobian(x))


def test_higher_order_operators_are_what_py_impl_says():
    from wisp._compat.modules._C import DispatchKey
    from wisp._compat.modules._ops import HigherOrderOperator

    total = HigherOrderOperator("total")
    with pytest.raises(NotImplementedError, match="py_impl"):
        total(wisp.ones(2))
    total.py_impl(DispatchKey.AutogradCPU)(lambda x: (x * x).sum())
    assert total(wisp.ones(2)).item() == 2 and wisp.func.grad(total)(wisp.ones(2)).tolist() == [2, 2]


def test_products_of_many_reach_the_class():
    x = Wrapped(wisp.arange(4.0).reshape(2, 2))
    expected = x.inner @ x.inner
    for made in (wisp.einsum("ij,jk->ik", x, x), wisp.tensordot(x, x, 1), wisp.chain_matmul(x, x)):
        assert type(made) is Wrapped and wisp.equal(made.inner, expected)
    assert wisp.equal(wisp.block_diag(x, x).inner, wisp.block_diag(x.inner, x.inner))
    assert wisp.equal(wisp.nn.functional.prelu(x, wisp.ones(1)).inner, x.inner)
