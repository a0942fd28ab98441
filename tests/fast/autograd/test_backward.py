"""The contract of backward: accumulation, what is freed and kept, grad(), double backward, modes, hooks.

Nothing here is particular to Wisp but the wording of some errors: the file also passes with PyTorch in Wisp's place.
"""

import pytest

import wisp
from wisp import autograd


def leaf(*values, **options):
    return wisp.tensor(values, dtype=wisp.float64, requires_grad=True, **options)


# --- leaves and accumulation --------------------------------------------------------------------------------------


def test_leaf_and_history():
    x = leaf(1.0, 2.0)
    y = x * 2
    assert x.is_leaf and x.grad_fn is None and x.grad is None and x.requires_grad
    assert not y.is_leaf and y.requires_grad and y.grad_fn.name() == "MulBackward0"
    assert type(y.grad_fn).__name__ == "MulBackward0"
    assert y.grad_fn.next_functions[0][0].name().endswith("AccumulateGrad")
    assert y.grad_fn.next_functions[0][0].variable is x
    assert y.grad_fn.next_functions[1][0] is None
    plain = wisp.ones(2) * 2
    assert plain.is_leaf and not plain.requires_grad and plain.grad_fn is None


def test_accumulation():
    x = leaf(1.0, 2.0)
    (x * 3).sum().backward()
    first = x.grad
    assert first.tolist() == [3.0, 3.0] and first is x.grad and not first.requires_grad
    (x * 4).sum().backward()
    assert x.grad.tolist() == [7.0, 7.0] and x.grad is first  # added in place
    x.grad = None
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_gradient_is_not_shared():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    g = wisp.ones(2, dtype=wisp.float64)
    (x + y).backward(g)
    x.grad.mul_(5)
    assert g.tolist() == [1.0, 1.0] and y.grad.tolist() == [1.0, 1.0]
    a = leaf(1.0, 2.0)
    a.backward(g)
    a.grad.zero_()
    assert g.tolist() == [1.0, 1.0]


def test_used_many_times():
    x = leaf(2.0)
    y = x * x
    z = y * x + y + x
    z.sum().backward()
    assert x.grad.item() == 3 * 4 + 2 * 2 + 1
    x.grad = None
    total = x
    for _ in range(10):
        total = total + total
    total.sum().backward()
    assert x.grad.item() == 1024


def test_assigning_grad():
    x = leaf(1.0, 2.0)
    x.grad = wisp.tensor([5.0, 6.0], dtype=wisp.float64)
    (x * 1).sum().backward()
    assert x.grad.tolist() == [6.0, 7.0]
    del x.grad
    assert x.grad is None
    with pytest.raises(RuntimeError, match="size|shape"):
        x.grad = wisp.zeros(3, dtype=wisp.float64)
    with pytest.raises(RuntimeError, match="type"):
        x.grad = wisp.zeros(2, dtype=wisp.float32)
    with pytest.raises(TypeError):
        x.grad = 3.0


def test_broadcast_gradients_are_summed():
    x, y, s = leaf(1.0, 2.0, 3.0), wisp.ones(4, 3, dtype=wisp.float64, requires_grad=True), leaf(2.0)
    (x * y * s).sum().backward()
    assert x.grad.tolist() == [8.0] * 3 and x.grad.shape == (3,)
    assert y.grad.tolist() == [[2.0, 4.0, 6.0]] * 4
    assert s.grad.tolist() == [24.0]
    c = wisp.tensor(2.0, requires_grad=True)
    (c * wisp.ones(2, 3)).sum().backward()
    assert c.grad.shape == () and c.grad.item() == 6


def test_gradients_have_the_dtype_of_the_input():
    x = wisp.ones(3, dtype=wisp.float32, requires_grad=True)
    (x * wisp.ones(3, dtype=wisp.float64)).sum().backward()
    assert x.grad.dtype is wisp.float32
    z = wisp.ones(2, dtype=wisp.float64, requires_grad=True)
    (z * (2 + 3j)).real.sum().backward()
    assert z.grad.dtype is wisp.float64 and z.grad.tolist() == [2.0, 2.0]
    h = wisp.ones(3, dtype=wisp.float16, requires_grad=True)
    h.double().sum().backward()
    assert h.grad.dtype is wisp.float16


def test_a_gradient_takes_the_strides_of_its_leaf():
    x = wisp.ones(3, 4, dtype=wisp.float64).t().requires_grad_()
    (x * wisp.arange(12.0, dtype=wisp.float64).view(4, 3)).sum().backward()
    assert x.grad.stride() == x.stride() and x.grad[1, 2] == 5


def test_retain_grad():
    x = leaf(3.0)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    z = y * y
    z.backward(retain_graph=True)
    assert y.grad.tolist() == [12.0] and x.grad.tolist() == [24.0] and z.grad is None
    z.backward()
    assert y.grad.tolist() == [24.0]
    x.retain_grad()  # does nothing on a leaf
    with pytest.raises(RuntimeError, match="can't retain_grad on Tensor that has requires_grad=False"):
        wisp.ones(2).retain_grad()


def test_retain_grad_follows_an_in_place_write():
    x = leaf(3.0)
    y = x * 2
    y.retain_grad()
    y.mul_(5)
    y.sum().backward()
    assert y.grad.tolist() == [1.0] and x.grad.tolist() == [10.0]


def test_the_snippet_of_the_issue():
    x = wisp.rand(3, requires_grad=True)
    y = wisp.norm(x, 2)
    y.retain_grad()
    z = y * y
    z.backward()
    assert wisp.allclose(x.grad, 2 * x) and wisp.allclose(y.grad, 2 * y)
    assert z.grad_fn.name() == "MulBackward0"


# --- backward twice, retain_graph, arguments ----------------------------------------------------------------------


def test_backward_twice():
    x = leaf(2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8.0]
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    shared = x.exp()
    shared.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        (shared * 2).sum().backward()


def test_backward_twice_where_nothing_is_saved():
    x = leaf(2.0)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_backward_needs_a_scalar_or_a_gradient():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(wisp.ones(3, dtype=wisp.float64))
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        wisp.ones(2).sum().backward()
    (x * 2).backward(wisp.tensor([1.0, 10.0], dtype=wisp.float64))
    assert x.grad.tolist() == [2.0, 20.0]
    leaf(1.0).backward()


def test_backward_of_several():
    x, y = leaf(2.0), leaf(3.0)
    autograd.backward([(x * y).sum(), (x * x).sum()])
    assert x.grad.tolist() == [7.0] and y.grad.tolist() == [2.0]
    autograd.backward((x * y, x * 2), grad_tensors=(wisp.ones(1, dtype=wisp.float64), None))
    assert x.grad.tolist() == [12.0]


def test_backward_inputs():
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    w = (z * z).sum()
    w.backward(inputs=[x], retain_graph=True)
    assert x.grad.tolist() == [36.0] and y.grad is None
    w.backward(inputs=(y, x), retain_graph=True)
    assert x.grad.tolist() == [72.0] and y.grad.tolist() == [24.0]
    w.backward(inputs=x, retain_graph=True)
    assert x.grad.tolist() == [108.0]
    z.retain_grad()
    w.backward(inputs=[z])
    assert z.grad.tolist() == [12.0] and x.grad.tolist() == [108.0]
    with pytest.raises(RuntimeError, match="cannot be empty"):
        x.sum().backward(inputs=[])


# --- grad() -------------------------------------------------------------------------------------------------------


def test_grad_leaves_alone():
    x, y = leaf(2.0), leaf(3.0)
    gx, gy = autograd.grad(x * y, [x, y])
    assert gx.tolist() == [3.0] and gy.tolist() == [2.0] and x.grad is None and y.grad is None
    assert isinstance(autograd.grad(x.sum(), x), tuple)


def test_grad_of_what_is_no_leaf():
    x = leaf(2.0)
    y = x * 3
    z = y * y
    gy, gx, gz = autograd.grad(z, [y, x, z], retain_graph=True)
    assert gy.tolist() == [12.0] and gx.tolist() == [36.0] and gz.tolist() == [1.0]
    assert autograd.grad(z, [y, y])[1].tolist() == [12.0]


def test_grad_outputs_and_unused():
    x, y, unused = leaf(2.0, 1.0), leaf(3.0, 1.0), leaf(1.0)
    weights = wisp.tensor([1.0, 2.0], dtype=wisp.float64)
    (gx,) = autograd.grad(x * y, x, weights, retain_graph=True)
    assert gx.tolist() == [3.0, 2.0]
    (gx,) = autograd.grad([x * y, x * 2], [x], [weights, weights])
    assert gx.tolist() == [5.0, 6.0]
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph. Set allow_unused=True"):
        autograd.grad((x * y).sum(), [x, unused])
    assert autograd.grad((x * y).sum(), [x, unused], allow_unused=True)[1] is None
    assert autograd.grad((x * y).sum(), [unused], materialize_grads=True)[0].tolist() == [0.0]
    with pytest.raises(RuntimeError, match="does not require grad|not require grad"):
        autograd.grad((x * y).sum(), wisp.ones(2))


def test_grad_frees_only_what_it_ran():
    x = leaf(2.0)
    y = x.exp()
    a, b = y.sin(), y.cos()
    autograd.grad(a, y, retain_graph=False)
    autograd.grad(b, x)  # x.exp() was not run before
    with pytest.raises(RuntimeError, match="second time"):
        autograd.grad(a, y)


def test_create_graph():
    x = leaf(2.0, 3.0)
    (g,) = autograd.grad((x**4).sum(), x, create_graph=True)
    (h,) = autograd.grad(g.sum(), x, create_graph=True)
    (t,) = autograd.grad(h.sum(), x, create_graph=True)
    (f,) = autograd.grad(t.sum(), x)
    assert g.tolist() == [32.0, 108.0] and h.tolist() == [48.0, 108.0]
    assert t.tolist() == [48.0, 72.0] and f.tolist() == [24.0, 24.0]
    assert g.requires_grad and not f.requires_grad


def test_double_backward_accumulates():
    x, w = leaf(3.0), leaf(2.0)
    y = (w * x * x).sum()
    (g,) = autograd.grad(y, x, create_graph=True)
    penalty = (g**2).sum()
    penalty.backward()
    assert w.grad.tolist() == [2 * (2 * 2 * 3) * 2 * 3] and x.grad.tolist() == [2 * 12 * 4]
    z = leaf(2.0)
    (z**3).sum().backward(create_graph=True)
    assert z.grad.requires_grad
    g = z.grad
    z.grad = None
    g.sum().backward()
    assert z.grad.tolist() == [12.0]


def test_double_backward_through_saved_results():
    for f in (wisp.exp, wisp.sigmoid, wisp.tanh, wisp.sqrt, wisp.reciprocal, lambda x: wisp.softmax(x, 0)):
        x = leaf(0.5, 1.5)
        assert autograd.gradgradcheck(f, (x,))


def test_undefined_gradients():
    x = wisp.randn(6, dtype=wisp.float64, requires_grad=True)
    a, b, c = x.split(2)
    (a * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    values, _ = wisp.randn(3, 3, requires_grad=True).max(0)
    values.sum().backward()


# --- modes --------------------------------------------------------------------------------------------------------


def test_no_grad_records_nothing():
    x = leaf(1.0)
    with wisp.no_grad():
        y = x * 2
        z = x.view(1)
        x += 1
    assert not y.requires_grad and y.grad_fn is None and x.tolist() == [2.0] and z.tolist() == [2.0]
    with wisp.no_grad(), wisp.enable_grad():
        assert (x * 2).requires_grad
    with wisp.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    with wisp.no_grad():
        fresh = wisp.ones(2, requires_grad=True)
    assert fresh.requires_grad


def test_detach():
    x = leaf(1.0, 2.0)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.data_ptr() == y.data_ptr() and d.is_leaf
    (y + d).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    y = x * 2
    y.detach_()
    assert not y.requires_grad and y.is_leaf
    view = (x * 2)[0:1]
    with pytest.raises(RuntimeError):
        view.detach_()
    d.zero_()  # shares memory and version


def test_detached_memory_shares_its_version():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    z = x.exp()
    z.data.zero_()  # unseen, as the documentation of .data says
    z.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_requires_grad_flag():
    x = wisp.ones(2)
    assert x.requires_grad_() is x and x.requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad
    y = leaf(1.0) * 2
    with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf variables"):
        y.requires_grad = False
    for bad in (wisp.ones(2, dtype=wisp.int64), wisp.ones(2, dtype=wisp.bool)):
        with pytest.raises(RuntimeError, match="only Tensors of floating point"):
            bad.requires_grad_()
    with pytest.raises(RuntimeError, match="[Oo]nly Tensors of floating point"):
        wisp.ones(2, dtype=wisp.int32, requires_grad=True)


def test_inference_mode():
    x = leaf(1.0, 2.0)
    with wisp.inference_mode():
        y = x * 2
        assert y.is_inference() and not y.requires_grad
        y.add_(1)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        x * y
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        y.add_(x)
    assert (x + y.clone()).requires_grad
    assert (x.detach() * y).tolist() == (y * x.detach()).tolist()
    with wisp.inference_mode(False):
        assert (x * 2).requires_grad


# --- hooks --------------------------------------------------------------------------------------------------------


def test_tensor_hooks():
    x = leaf(1.0, 2.0)
    seen = []
    y = x * 2
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.sum().backward(retain_graph=True)
    assert seen == [[1.0, 1.0], [10.0, 10.0]] and x.grad.tolist() == [20.0, 20.0]
    handle.remove()
    handle.remove()
    seen.clear()
    y.sum().backward()
    assert seen == [[10.0, 10.0]]


def test_hooks_of_a_leaf():
    x = leaf(1.0)
    first = x.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: g * 2)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [8.0]
    first.remove()
    (x * 3).sum().backward()
    assert x.grad.tolist() == [14.0]
    with pytest.raises(RuntimeError, match="cannot register a hook on a tensor that doesn't require gradient"):
        wisp.ones(1).register_hook(lambda g: g)


def test_a_hook_may_not_change_the_shape():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: g[:1])
    with pytest.raises(RuntimeError, match="size|shape"):
        y.sum().backward()
    z = x * 2
    z.register_hook(lambda g: "text")
    with pytest.raises((TypeError, RuntimeError)):
        z.sum().backward()


def test_errors_in_hooks_come_through():
    class Mine(Exception):
        pass

    def fail(_):
        raise Mine("from the hook")

    x = leaf(1.0)
    y = x * 2
    handle = y.register_hook(fail)
    with pytest.raises(Mine, match="from the hook"):
        y.backward()
    handle.remove()
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_hooks_see_sums():
    x = leaf(1.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 3 + y * 4).sum().backward()
    assert seen == [7.0]


def test_node_hooks():
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    seen = []
    pre = z.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
    z.grad_fn.register_prehook(lambda grads: seen.append(("pre", grads[0].item())))
    post = z.grad_fn.register_hook(lambda inputs, outputs: seen.append(("post", [g.item() for g in inputs], outputs[0].item())))
    z.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1, inputs[1]))
    z.sum().backward()
    assert seen == [("pre", 10.0), ("post", [30.0, 20.0], 10.0)]
    assert x.grad.tolist() == [31.0] and y.grad.tolist() == [20.0]
    pre.remove()
    post.remove()
    z = x * y
    z.sum().backward()
    assert y.grad.tolist() == [22.0]


def test_order_of_hooks():
    x = leaf(2.0)
    y = x * 3
    order = []
    y.grad_fn.register_hook(lambda *_: order.append("post"))
    y.grad_fn.register_prehook(lambda *_: order.append("pre"))
    y.register_hook(lambda _: order.append("tensor"))
    y.retain_grad()
    y.register_hook(lambda g: g * 2)
    x.register_hook(lambda _: order.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: order.append(("accumulated", t.grad.item())))
    y.sum().backward()
    assert order == ["tensor", "pre", "post", "leaf", ("accumulated", 6.0)]
    assert y.grad.item() == 2.0  # retain_grad comes after all hooks of the tensor


def test_post_accumulate_hooks():
    x = leaf(1.0, 2.0)

    def step(parameter):
        with wisp.no_grad():
            parameter -= 0.5 * parameter.grad
        parameter.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * 2).sum().backward()
    assert x.tolist() == [0.0, 1.0] and x.grad is None
    handle.remove()
    (x * 2).sum().backward()
    assert x.tolist() == [0.0, 1.0] and x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="cannot be registered on non-leaf"):
        (x * 2).register_post_accumulate_grad_hook(step)


def test_hooks_with_create_graph():
    x = leaf(2.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = autograd.grad(y.sum(), x, create_graph=True)  # 2 x * x
    (h,) = autograd.grad(g.sum(), x)
    assert g.tolist() == [8.0] and h.tolist() == [8.0]


def test_hook_on_a_captured_tensor():
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: g * 2)
    z = (y * y).sum()
    assert autograd.grad(z, y, retain_graph=True)[0].tolist() == [24.0]
    assert autograd.grad(z, x)[0].tolist() == [72.0]


def test_hooks_beside_the_way_to_what_is_asked_for_stay_quiet():
    x, log = leaf(2.0), []
    beside, before = x * 3, x * 2
    asked = before.clone()
    after = asked.relu()
    for name, tensor in (("beside", beside), ("before", before), ("asked", asked), ("after", after)):
        tensor.register_hook(lambda g, name=name: log.append((name, g is None)))
    autograd.grad((after + beside).sum(), asked, retain_graph=True)
    assert log == [("after", False), ("asked", False)]
    log.clear()
    autograd.grad((after + beside).sum(), x)
    assert sorted(log) == [("after", False), ("asked", False), ("before", False), ("beside", False)]


# --- re-entrance --------------------------------------------------------------------------------------------------


def test_backward_inside_backward():
    class Inner(autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            with wisp.enable_grad():
                x = ctx.saved_tensors[0].detach().requires_grad_()
                (x * x).sum().backward()
            return grad * x.grad

    x = leaf(3.0)
    Inner.apply(Inner.apply(x)).sum().backward()
    assert x.grad.tolist() == [2 * 9 * 2 * 3]


def test_backward_of_the_same_graph_from_a_hook():
    x = leaf(2.0)
    y = x * x
    z = y * 3
    got = []

    def hook(g):
        if not got:
            got.append(None)
            with wisp.enable_grad():
                got[0] = autograd.grad(y.sum(), x, retain_graph=True)[0].item()

    y.register_hook(hook)
    z.sum().backward()
    assert got == [4.0] and x.grad.tolist() == [12.0]


def test_deep_re_entrance():
    class Nest(autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            if ctx.depth:
                with wisp.enable_grad():
                    y = wisp.ones(1, dtype=wisp.float64, requires_grad=True)
                    Nest.apply(y, ctx.depth - 1).sum().backward()
                    grad = grad + y.grad
            return grad, None

    x = leaf(1.0)
    Nest.apply(x, 50).sum().backward()
    assert x.grad.tolist() == [51.0]


def test_warnings_for_once_in_a_program():
    wisp.set_warn_always(True)
    try:
        x = wisp.ones(1, requires_grad=True)
        with pytest.warns(UserWarning, match="Using backward\\(\\) with create_graph=True"):
            (x * x).sum().backward(create_graph=True)
        x.grad = None
        with pytest.warns(UserWarning, match="requires_grad=True to a scalar"):
            float(x)
    finally:
        wisp.set_warn_always(False)


def test_the_gradient_may_be_a_list_of_one():
    x = wisp.ones(2, requires_grad=True)
    x.sum().backward([wisp.tensor(3.0)])
    assert x.grad.tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match="gradient must be a Tensor or None, got list"):
        x.sum().backward([wisp.tensor(3.0)] * 2)
