"""In-place writes and views under autograd: versions, errors that name the lines, histories of bases and views."""

import re

import pytest

import wisp
from wisp import autograd


def leaf(*values):
    return wisp.tensor(values, dtype=wisp.float64, requires_grad=True)


def ramp(*shape):
    n = 1
    for s in shape:
        n *= s
    return wisp.arange(1.0, n + 1, dtype=wisp.float64).view(shape).clone().requires_grad_()


# --- versions -----------------------------------------------------------------------------------------------------


def test_what_fills_a_new_tensor_is_no_change_of_it():
    x = wisp.ones(2, 2)
    made = [wisp.full((2,), 3.0), wisp.eye(2), wisp.full_like(x, 2), wisp.zeros_like(x), wisp.ones_like(x), x.new_full((2,), 3)]
    assert [t._version for t in (*made, wisp.nn.functional.pad(x, (1, 1)))] == [0] * 7


def test_other_memory_is_no_change_of_a_tensor():
    w = wisp.ones(2, requires_grad=True)
    with wisp.no_grad():
        w.add_(1)
    version = w._version
    y = (w * w).sum()
    w.data = wisp.full((2,), 3.0)  # what backward sees, as in PyTorch
    assert w._version == version
    y.backward()
    assert w.grad.tolist() == [6, 6]
    y = (w * w).sum()
    w.data = wisp.full((2,), 4.0)
    with wisp.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_versions_are_shared_by_views():
    x = wisp.zeros(4)
    view, detached = x[1:], x.detach()
    start = x._version
    x.add_(1)
    view.mul_(2)
    detached[0] = 5
    x[2] = 1
    assert x._version == view._version == detached._version == start + 4
    assert x.clone()._version == 0
    x.data.fill_(3)
    assert x._version == start + 4


def test_error_names_the_operator_and_both_lines():
    x = leaf(1.0, 2.0)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError) as error:
        z.sum().backward()
    text = str(error.value)
    assert text.startswith("one of the variables needed for gradient computation has been modified by an inplace operation: ")
    assert "an input of Mul, is" in text and "is at version 1; expected version 0 instead" in text
    lines = [int(n) for n in re.findall(r"test_inplace\.py:(\d+)", text)]
    first = test_error_names_the_operator_and_both_lines.__code__.co_firstlineno
    assert lines == [first + 3, first + 4]  # where it was saved, where it was changed
    assert "clone()" in text


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y.add_(1),
        lambda y: y.__setitem__(0, 5.0),
        lambda y: y[0:1].zero_(),
        lambda y: y.detach().mul_(2),
        lambda y: y.view(1, 2).fill_(1),
        lambda y: wisp.add(wisp.ones(2), 1, out=y.detach()),
    ],
)
def test_every_kind_of_write_is_noticed(change):
    for make in (lambda t: t * t, lambda t: wisp.sin(t), lambda t: t @ t, lambda t: wisp.softmax(t, 0)):
        x = leaf(1.0, 2.0)
        y = x * 1
        z = make(y)
        with wisp.no_grad():
            change(y)
        if z.grad_fn.name() == "SoftmaxBackward0":
            z.sum().backward()  # keeps its result, not its input
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                z.sum().backward()


def test_writing_to_a_saved_result():
    for f in (wisp.exp, wisp.tanh, wisp.sigmoid, wisp.sqrt, lambda t: wisp.softmax(t, 0)):
        x = leaf(1.0, 2.0)
        y = f(x)
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_writes_that_do_no_harm():
    x = leaf(1.0, 2.0)
    y = x + 1  # keeps nothing
    y.mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    x.grad = None
    y = x * 2
    y.add_(5).mul_(2).sub_(1).div_(4)
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_parameters_changed_between_forward_and_backward():
    w = leaf(1.0, 2.0)
    loss = (w * w).sum()
    with wisp.no_grad():
        w.sub_(0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- in place on a whole tensor -----------------------------------------------------------------------------------


def test_in_place_history():
    x = leaf(1.0, 2.0)
    y = x * 2
    before = y.grad_fn
    assert y.exp_() is y
    assert y.grad_fn.name() == "ExpBackward0" and y.grad_fn.next_functions[0][0] is before
    y.sum().backward()
    assert wisp.allclose(x.grad, 2 * (2 * x.detach()).exp())


def test_in_place_takes_gradients_of_all_operands():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    z = x * 1
    z.mul_(y)
    z.add_(y, alpha=2)
    z.sum().backward()
    assert x.grad.tolist() == [3.0, 4.0] and y.grad.tolist() == [3.0, 4.0]
    a = wisp.zeros(2, dtype=wisp.float64)
    a.add_(x)
    assert a.requires_grad and not a.is_leaf
    a.sum().backward()
    assert x.grad.tolist() == [4.0, 5.0]


@pytest.mark.parametrize(
    "write",
    [
        lambda t, v: t.mul_(v),
        lambda t, v: t.div_(v),
        lambda t, v: t.pow_(2),
        lambda t, v: t.sigmoid_(),
        lambda t, v: t.addcmul_(t, v),
        lambda t, v: t.clamp_(2, 5),
        lambda t, v: t.copy_(v),
        lambda t, v: t.zero_(),
        lambda t, v: t.fill_(3),
        lambda t, v: t.masked_fill_(t > 3, 0.5),
        lambda t, v: t.lerp_(v, 0.25),
        lambda t, v: t.index_fill_(0, wisp.tensor([0]), 1.0),
        lambda t, v: t.tril_(),
        lambda t, v: t.cumsum_(0),
        lambda t, v: t.__setitem__((slice(None), 0), v[:, 0] * 3),
        lambda t, v: t.t_(),
        lambda t, v: t.squeeze_(),
        lambda t, v: t.index_add_(0, wisp.tensor([1, 0]), v),
        lambda t, v: t.scatter_(0, wisp.tensor([[1, 0], [0, 1]]), v),
    ],
)
def test_in_place_derivatives(write):
    def f(x, v):
        t = x * 1
        write(t, v * 1)
        return t * t

    x = wisp.tensor([[1.3, 2.2], [3.1, 4.4]], dtype=wisp.float64, requires_grad=True)
    v = wisp.tensor([[0.7, 1.9], [0.2, 1.1]], dtype=wisp.float64, requires_grad=True)
    assert autograd.gradcheck(f, (x, v)) and autograd.gradgradcheck(f, (x, v))


@pytest.mark.parametrize(
    "write",
    [
        lambda t, v: t.mul_(v),
        lambda t, v: t.exp_(),
        lambda t, v: t.copy_(v),
        lambda t, v: t.zero_(),
        lambda t, v: t.add_(v, alpha=3),
        lambda t, v: t.masked_fill_(t > 3, 0.5),
        lambda t, v: t.addcmul_(v, v),
    ],
)
@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[0],
        lambda t: t[:, 1],
        lambda t: t.t()[1],
        lambda t: t.view(-1)[1:3],
        lambda t: t.diagonal(),
        lambda t: t[:, ::2].view(-1),
        lambda t: t.unsqueeze(0)[0, :, 1],
        lambda t: t.as_strided((2,), (2,), 1),
    ],
)
def test_in_place_derivatives_through_views(write, view):
    def f(x, v):
        t = x * 1
        part = view(t)
        write(part, v * 1)
        return (t * t, part * 2)

    x = wisp.tensor([[1.3, 2.2], [3.1, 4.4]], dtype=wisp.float64, requires_grad=True)
    v = wisp.tensor([0.7, 1.9], dtype=wisp.float64, requires_grad=True)
    assert autograd.gradcheck(f, (x, v)) and autograd.gradgradcheck(f, (x, v))


# --- leaves -------------------------------------------------------------------------------------------------------


def test_in_place_on_a_leaf():
    x = leaf(1.0, 2.0)
    message = "a leaf Variable that requires grad is being used in an in-place operation"
    for write in (lambda: x.add_(1), lambda: x.zero_(), lambda: x.copy_(wisp.zeros(2)), lambda: x.exp_()):
        with pytest.raises(RuntimeError, match=message):
            write()
    for write in (lambda: x[0].zero_(), lambda: x.__setitem__(0, 1.0), lambda: x.view(2, 1).mul_(2)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used in an in-place"):
            write()
    assert x.tolist() == [1.0, 2.0]
    with wisp.no_grad():
        x[0] = 7
    assert x.tolist() == [7.0, 2.0] and x.is_leaf


def test_in_place_makes_a_plain_tensor_part_of_the_graph():
    x = leaf(1.0, 2.0, 3.0)
    a = wisp.zeros(2, 3, dtype=wisp.float64)
    a[1] = x * 2
    assert a.requires_grad and a.grad_fn.name().endswith("CopySlices")
    (a * a).sum().backward()
    assert x.grad.tolist() == [8.0, 16.0, 24.0]


# --- views --------------------------------------------------------------------------------------------------------


def test_write_to_a_view_changes_the_base():
    x = ramp(4)
    y = x * 1
    v = y[1:3]
    v.mul_(10)
    assert y.grad_fn.name().endswith("CopySlices") and v._base is y
    assert y.tolist() == [1.0, 20.0, 30.0, 4.0]
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 10.0, 10.0, 1.0]


def test_write_to_the_base_changes_the_view():
    x = ramp(4)
    y = x * 1
    v = y[1:3]
    y.mul_(10)
    assert v.tolist() == [20.0, 30.0]
    v.sum().backward()
    assert x.grad.tolist() == [0.0, 10.0, 10.0, 0.0]


def test_views_of_one_base_see_each_other():
    x = ramp(2, 3)
    y = x * 1
    a, b = y[0], y.view(6)
    c = y.t()
    a.mul_(2)
    c[1].mul_(5)
    b[5] = 0
    (b * 1).sum().backward(retain_graph=True)
    assert x.grad.tolist() == [[2.0, 10.0, 2.0], [1.0, 5.0, 0.0]]
    x.grad = None
    c.sum().backward(retain_graph=True)
    assert x.grad.tolist() == [[2.0, 10.0, 2.0], [1.0, 5.0, 0.0]]
    x.grad = None
    a.sum().backward()
    assert x.grad.tolist() == [[2.0, 10.0, 2.0], [0.0, 0.0, 0.0]]


def test_views_of_views():
    x = ramp(3, 4)
    y = x * 1
    v = y.t()[1:3].unsqueeze(0)[:, 0, ::2]
    assert v._base is y
    v.fill_(0)
    v.add_(v * 2 + 1)
    y.sum().backward()
    assert x.grad.tolist() == [[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]]


def test_a_chain_of_writes():
    x = ramp(3)
    y = x * 1
    for i in range(3):
        y[i] = y[i].clone() * y[(i + 1) % 3].clone()
    y.sum().backward()
    a, b, c = 1.0, 2.0, 3.0  # y = (ab, bc, c a b)
    assert x.grad.tolist() == [b + c * b, a + c + c * a, b + a * b]


def test_view_made_before_requires_grad_of_the_base():
    base = wisp.zeros(3, dtype=wisp.float64)
    v = base[1:]
    x = leaf(2.0, 3.0)
    v.add_(x)
    assert base.requires_grad and v.requires_grad
    (base * base).sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]


def test_multi_output_views():
    x = ramp(4)
    for split in (lambda t: t.unbind(), lambda t: t.split(2), lambda t: t.chunk(2)):
        y = x * 1
        part = split(y)[0]
        with pytest.raises(RuntimeError, match="the output of a function that returns multiple views"):
            part.mul_(2)
        (part * 2).sum().backward()
    with wisp.no_grad():
        x.unbind()[0].zero_()
    assert x.tolist() == [0.0, 2.0, 3.0, 4.0]


def test_views_made_without_gradients():
    x = ramp(3)
    y = x * 1
    with wisp.no_grad():
        v = y[1:]
    with pytest.raises(RuntimeError, match="no_grad mode"):
        v.mul_(2)
    with wisp.no_grad():
        v.mul_(2)
    assert y.tolist() == [1.0, 4.0, 6.0]


def test_detached_views_write_without_history():
    x = ramp(3)
    y = x + 0
    y.detach()[0] = 100
    assert y.tolist() == [100.0, 2.0, 3.0]
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_expanded_memory_can_not_be_written():
    for write in (lambda t: t.add_(1), lambda t: t.mul_(2), lambda t: t.exp_(), lambda t: t.copy_(wisp.zeros(2, 3))):
        t = wisp.ones(3).expand(2, 3)
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            write(t)


def test_view_properties():
    x = ramp(2, 3)
    v = x.view(6)
    assert v._is_view() and v._base is x and not x._is_view() and x._base is None
    assert v.grad_fn.name() == "ViewBackward0" and v[0].grad_fn.name() == "SelectBackward0"
    assert x.t().grad_fn.name() == "TBackward0"
    assert x.reshape(6)._base is x and x.t().reshape(6)._base is not x


def test_broadcast_write():
    x, s = ramp(2, 3), leaf(2.0)
    y = x * 1
    y[:, 1:] *= s
    y[0] = s
    y.sum().backward()
    assert x.grad.tolist() == [[0.0] * 3, [1.0, 2.0, 2.0]] and s.grad.tolist() == [3.0 + 5 + 6]
    with pytest.raises(RuntimeError):
        wisp.ones(3).add_(wisp.ones(2, 3))


def test_overlapping_operands():
    t = wisp.arange(6.0)
    t[1:] += t[:-1]  # reads the old values
    assert t.tolist() == [0.0, 1.0, 3.0, 5.0, 7.0, 9.0]
    m = wisp.arange(4.0).view(2, 2)
    m.add_(m.t())
    assert m.tolist() == [[0.0, 3.0], [3.0, 6.0]]
    c = wisp.arange(6.0)
    c[2:].copy_(c[:-2].clone())
    assert c.tolist() == [0.0, 1.0, 0.0, 1.0, 2.0, 3.0]


def test_index_put_histories():
    x, v = ramp(4), leaf(10.0, 20.0)
    y = x * 1
    y[wisp.tensor([3, 0])] = v
    y[y > 15] *= 2
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0] and v.grad.tolist() == [1.0, 2.0]


def test_a_view_joins_the_graph_when_its_base_does():
    x = leaf(2.0)
    base = wisp.zeros(3, dtype=wisp.float64)
    v = base[1]
    base[1:2] = x
    assert v.requires_grad and not v.is_leaf
    (v * v).backward()
    assert x.grad.tolist() == [4.0]


def test_parts_of_a_split_tensor_after_a_write_to_the_whole():
    x = ramp(4)
    y = x * 1
    part = y.split(2)[1]
    y.mul_(3)
    (part * part).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 54.0, 72.0]


def test_second_derivatives_of_slices_of_slices():
    x = ramp(2, 3)
    part = x.narrow(0, 1, 1).narrow(1, 1, 1)
    (g,) = autograd.grad((part**3).sum(), x, create_graph=True)
    (h,) = autograd.grad(g.sum(), x)
    assert h.tolist() == [[0.0, 0.0, 0.0], [0.0, 30.0, 0.0]]


def test_as_strided_before_its_start_and_over_shared_memory():
    x = ramp(6)
    y = (x * 1)[2:].as_strided((2, 2), (1, 1), 1)
    (g,) = autograd.grad((y * y).sum(), x)
    assert g.tolist() == [0.0, 0.0, 12.0, 8.0, 0.0, 0.0]
    z = (x * 1)[:3].expand(2, 3).as_strided((3,), (1,))
    (g,) = autograd.grad((z * z).sum(), x)
    assert g.tolist() == [2.0, 4.0, 6.0, 0.0, 0.0, 0.0]


def test_inference_mode_and_views():
    for requires_grad in (True, False):
        a = wisp.ones(1, 2, 3, requires_grad=requires_grad).clone()
        with wisp.inference_mode():
            view = a.view(-1)
            assert not view.is_inference() and view.requires_grad == requires_grad and view.is_leaf
            made = wisp.ones(2, 3)
            made.resize_(3)
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            made.unsqueeze_(0)
        if not requires_grad:
            view.add_(1)
            continue
        for change in (lambda t: t.add_(2), lambda t: t.unsqueeze_(0)):
            with pytest.raises(RuntimeError, match="A view was created in inference mode and is being modified inplace"):
                change(view)
        a.add_(1)
        with pytest.raises(RuntimeError, match="A view was created in inference mode and its base or another view"):
            view.grad_fn
        assert "<Invalid>" in repr(view)


def test_views_made_without_gradients_are_of_no_use_after_a_write():
    a = wisp.ones(2, requires_grad=True).clone()
    with wisp.no_grad():
        view = a[:1]
    a.mul_(2)
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and its base or another view"):
        view * 2


def test_gradients_of_many_parts_are_added_where_they_arrived():
    x = wisp.arange(12.0).reshape(3, 4).requires_grad_()
    seen = []
    kept = x[0]
    kept.register_hook(lambda g: seen.append(g.clone()))
    total = sum((i + 1) * x[i // 4, i % 4] for i in range(12)) + (x[:, 1:3] * 100).sum() + (kept * x[2].detach()).sum() + x.diagonal().sum()
    expected = wisp.arange(1.0, 13.0).reshape(3, 4)
    expected[:, 1:3] += 100
    expected[0] += x[2].detach()
    expected += wisp.eye(3, 4)
    given = wisp.autograd.grad(total, x, retain_graph=True)[0]
    assert given.tolist() == expected.tolist() and seen[0].tolist() == [8.0, 9.0, 10.0, 11.0]
    total.backward(retain_graph=True)
    total.backward()
    assert x.grad.tolist() == (2 * expected).tolist() and given.tolist() == expected.tolist()
    y = wisp.arange(3.0).requires_grad_()
    second = wisp.autograd.grad((y[0] * y[1] * y[2] + y[0] ** 3), y, create_graph=True)[0]
    assert wisp.autograd.grad(second.sum(), y)[0].tolist() == [3.0, 2.0, 1.0]


def test_writes_to_parts_leave_gradients_that_others_hold():
    x, weights = wisp.arange(1.0, 5.0).requires_grad_(), wisp.arange(1.0, 5.0)
    y = wisp.zeros(4)
    between = []
    for i in range(4):
        y[i] = x[i] * x[i]
        if i == 1:
            middle = y * 1
            middle.retain_grad()
            y.register_hook(lambda g: between.append(g))
    total = (y * weights).sum() + middle.sum()
    total.backward()
    assert x.grad.tolist() == [4.0, 12.0, 18.0, 32.0] and middle.grad.tolist() == [1.0] * 4
    assert [g.tolist() for g in between] == [[2.0, 3.0, 1.0, 1.0]]
    start = weights.clone()
    z = wisp.zeros(4)
    z[1] = x[1]
    z.backward(start)
    assert start.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_inference_tensors_have_no_views_to_autograd():
    with wisp.inference_mode():
        x = wisp.ones(2, 3, requires_grad=True)
    for view in (x.view(-1), x.t(), x[0], x.expand(4, 2, 3), x.unbind(1)[0], x.chunk(2)[0]):
        assert view.is_inference() and view.is_leaf and not view.requires_grad and not view._is_view()
        assert view.data_ptr() == x.data_ptr()
    assert (x + 1).requires_grad and not (x + 1).is_inference()
