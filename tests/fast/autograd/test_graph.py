"""The recorded graph: nodes have PyTorch's names and edges, and what is one operator is one node."""

import gc

import pytest

import wisp
from wisp import _core
from wisp.nn import functional as F

A = "AccumulateGrad"


def tree(node):
    if node is None:
        return "-"
    name = type(node).__name__.replace("Backward", "")
    children = ", ".join(tree(child) for child, _ in node.next_functions)
    return f"{name}({children})" if children else name


# What `torch` 2.13 records for x and w, matrices that require a gradient, and a vector of classes; "." is a leaf.
GRAPHS = """
2 * x -> Mul0(., -)
2 + x -> Add0(., -)
2 - x -> Rsub1(.)
2 ** x -> Pow2(.)
x ** 2 -> Pow0(.)
x.square() -> Pow0(.)
x % 2 -> Remainder0(.)
x % w -> Remainder1(., .)
wisp.fmod(x, 2) -> Fmod0(.)
wisp.xlogy(2, x) -> Xlogy1(.)
wisp.rsub(x, w, alpha=2) -> Rsub0(., .)
wisp.sub(x, w, alpha=2) -> Sub0(., .)
wisp.div(x, 2, rounding_mode="floor") -> Div2(., -)
wisp.log1p(x) -> Log1P0(.)
wisp.special.i0e(x) -> SpecialI0E0(.)
x.clamp(0, 1) -> Clamp1(.)
x.clamp(max=w) -> Clamp0(., -, .)
x.clamp_min(0) -> ClampMin0(.)
x.clamp_max(w) -> ClampMax1(., .)
x.round(decimals=1) -> Round1(.)
x.double() -> ToCopy0(.)
x.to(wisp.float32, copy=True) -> ToCopy0(.)
wisp.stack([x, w], 1) -> Stack0(., .)
wisp.block_diag(x, w) -> BlockDiag0(., .)
x.repeat(2, 1) -> Repeat0(.)
x.roll(1) -> Roll0(.)
x.rot90() -> Rot900(.)
x.trace() -> Trace0(.)
x.diag() -> Diagonal0_copy(.)
x[0].diag() -> DiagEmbed0(Select0(.))
x.split([1, 2])[0] -> SplitWithSizes0(.)
x.squeeze((0, 1)) -> Squeeze2(.)
x.take(wisp.tensor([0])) -> Take0(.)
x.masked_fill(x > 0, 0.0) -> MaskedFill0(.)
x.select_scatter(w[0], 0, 1) -> SelectScatter0(., Select0(.))
x.aminmax().min -> Aminmax0(.)
wisp.complex(x, w) -> Complex0(., .)
wisp.addmv(x[0], x, w[0]) -> Addmv0(Select0(.), ., Select0(.))
wisp.cross(x, w) -> LinalgCross0(., .)
x.dist(w) -> Dist0(., .)
F.mse_loss(x, w) -> MseLoss0(., .)
F.smooth_l1_loss(x, w, reduction="sum") -> SmoothL1Loss0(., .)
F.huber_loss(x, w) -> HuberLoss0(., .)
F.binary_cross_entropy(x, w.detach()) -> BinaryCrossEntropy0(., -)
F.binary_cross_entropy_with_logits(x, w) -> BinaryCrossEntropyWithLogits0(., .)
F.nll_loss(x, classes) -> NllLoss0(.)
F.relu6(x) -> Hardtanh0(.)
F.selu(x) -> Elu0(.)
F.glu(wisp.cat([x, w]), 0) -> Glu0(Cat0(., .))
F.cross_entropy(x, classes) -> NllLoss0(.)
F.dropout(x) -> Mul0(., -)
F.max_pool1d(x, 2) -> Squeeze1(MaxPool2DWithIndices0(Unsqueeze0(.)))
F.adaptive_avg_pool2d(x[None], 1) -> Mean1(Unsqueeze0(.))
F.pixel_unshuffle(x[None, 1:, 1:], 2) -> PixelUnshuffle0(Slice0(.))
F.multi_margin_loss(x, classes) -> MultiMarginLoss0(.)
F.pairwise_distance(x, w) -> Norm1(Add0(Sub0(., .), -))
wisp.fft.rfft(x) -> FftR2C0(.)
wisp.fft.fft(x) -> FftR2C0(.)
x[x > 0.5] -> Index0(.)
x.sort(stable=True).values -> Sort1(.)
""".strip().splitlines()


@pytest.mark.parametrize("line", GRAPHS)
def test_names_and_edges(line):
    expression, expected = line.split(" -> ")
    x, w = (wisp.rand(3, 3, requires_grad=True) for _ in range(2))
    result = eval(expression, {"wisp": wisp, "F": F, "x": x, "w": w, "classes": wisp.tensor([0, 1, 2])})
    assert tree(result.grad_fn).replace(A, ".") == expected


def test_the_blitz_prints_what_pytorch_prints():
    x = wisp.ones(2, 2, requires_grad=True)
    y = x + 2
    out = (y * y * 3).mean()
    assert repr(y).endswith("grad_fn=<AddBackward0>)") and repr(out) == "tensor(27., grad_fn=<MeanBackward0>)"
    loss = wisp.nn.MSELoss()(wisp.nn.Linear(3, 2)(wisp.randn(1, 3)), wisp.randn(1, 2))
    assert loss.grad_fn.name() == "MseLossBackward0"
    first = loss.grad_fn.next_functions[0][0]
    assert first.name() == "AddmmBackward0" and type(first.next_functions[0][0]).__name__ == A


def test_edges_of_a_linear_layer_are_those_of_addmm():
    x, w, b = wisp.rand(3, 4, requires_grad=True), wisp.rand(5, 4, requires_grad=True), wisp.rand(5, requires_grad=True)
    for inputs in (x, x[None], x[0]):
        edges = [node for node, _ in F.linear(inputs, w, b).grad_fn.next_functions]
        assert edges[0].variable is b and edges[2].variable is w
        assert [getattr(node, "variable", None) is w for node, _ in F.linear(inputs, w).grad_fn.next_functions] == [False, True]


def test_hooks_of_a_bias_are_called_before_those_of_its_weight():
    called = []
    layers = wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.ReLU(), wisp.nn.Linear(4, 2))
    for name, parameter in layers.named_parameters():
        parameter.register_hook(lambda g, name=name: called.append(name))
    layers(wisp.rand(5, 3)).sum().backward()
    assert called == ["2.bias", "2.weight", "0.bias", "0.weight"]


def test_a_recurrent_layer_is_one_node():
    x = wisp.randn(5, 2, 3, requires_grad=True)
    for layer, name in ((wisp.nn.LSTM(3, 4), "MkldnnRnnLayer0"), (wisp.nn.GRU(3, 4), "Gru0"), (wisp.nn.RNN(3, 4), "RnnTanh0")):
        output, state = layer(x)
        assert tree(output.grad_fn).replace(A, ".") == f"{name}(., ., ., ., ., -, -)"
        last = state[0] if isinstance(state, tuple) else state
        assert last.grad_fn.name() == "StackBackward0" and last.grad_fn.next_functions[0][0] is output.grad_fn


def test_saved_tensors_by_name():
    x, w = (wisp.rand(3, requires_grad=True) for _ in range(2))
    product = x * w
    assert product.grad_fn._saved_self is x and product.grad_fn._saved_other is w
    result = x.exp()
    assert wisp.equal(result.grad_fn._saved_result, result) and result.grad_fn._saved_result.grad_fn is result.grad_fn
    assert (x**2).grad_fn._saved_self is x
    assert {"_saved_self", "_saved_other"} <= set(dir(product.grad_fn)) and "_saved_result" in dir(x.exp().grad_fn)
    assert [name for name in dir((x + w).grad_fn) if name.startswith("_saved")] == ["_saved_alpha"]
    with pytest.raises(AttributeError, match="_saved_other"):
        result.grad_fn._saved_other
    result.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        result.grad_fn._saved_result


# --- operators that others compute, as one node ------------------------------------------------------------------------------------


def formula(a, b):
    return (a * b).exp().sum(0) + a.sum()


def inputs():
    wisp.manual_seed(0)
    return [wisp.randn(3, dtype=wisp.float64, requires_grad=True) for _ in range(2)]


def test_a_whole_operator_differentiates_as_its_steps():
    x, w = inputs()
    z = x + 1
    one, steps = _core._whole("FormulaBackward0", formula, z, w), formula(z, w)
    assert tree(one.grad_fn) == f"Formula0(Add0({A}, -), {A})"
    first, second = (wisp.autograd.grad(y, [x, w], create_graph=True) for y in (one, steps))
    assert all(wisp.equal(a, b) for a, b in zip(first, second))
    again = [wisp.autograd.grad((g[0] ** 2).sum() + g[1].sum(), [x, w], retain_graph=True) for g in (first, second)]
    assert all(wisp.equal(a, b) for a, b in zip(*again))
    assert wisp.autograd.gradgradcheck(lambda a, b: _core._whole("FormulaBackward0", formula, a, b), (x, w))


def test_a_whole_operator_is_freed_by_backward_and_runs_hooks_once():
    x, w = inputs()
    seen = []
    x.register_hook(lambda g: seen.append(g))
    y = _core._whole("FormulaBackward0", formula, x, w)
    y.backward()
    assert len(seen) == 1
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    kept = _core._whole("FormulaBackward0", formula, x, w)
    kept.backward(retain_graph=True)
    kept.backward()


def test_an_input_given_twice_gets_its_gradient_once():
    x, _ = inputs()
    (one,) = wisp.autograd.grad(_core._whole("FormulaBackward0", formula, x, x), [x])
    (steps,) = wisp.autograd.grad(formula(x, x), [x])
    assert wisp.equal(one, steps)


def test_the_graph_stays_as_it_is_where_steps_use_another_tensor():
    x, w = inputs()
    y = _core._whole("FormulaBackward0", lambda a: a * w, x)
    assert y.grad_fn.name() == "MulBackward0"
    y.sum().backward()
    assert wisp.equal(w.grad, x.detach())


def test_a_result_of_a_whole_operator_is_no_view():
    x, _ = inputs()
    y = _core._whole("FormulaBackward0", lambda a: (a * 3).reshape(3, 1), x)
    assert y.grad_fn.name() == "FormulaBackward0" and not y._is_view()
    y.mul_(2)
    y.sum().backward()
    assert wisp.equal(x.grad, wisp.full_like(x, 6.0))


def test_several_results_are_outputs_of_one_node():
    x, _ = inputs()
    first, second = _core._whole("FormulaBackward0", lambda a: (a.exp(), a * 2), x)
    assert first.grad_fn is second.grad_fn
    second.sum().backward()
    assert wisp.equal(x.grad, wisp.full_like(x, 2.0))


def test_whole_operators_in_forward_mode_and_vmap():
    x, w = (t.detach() for t in inputs())
    whole = lambda a, b: _core._whole("FormulaBackward0", formula, a, b)  # noqa: E731
    for transform in (lambda f: wisp.func.jvp(f, (x, w), (w, x)), lambda f: wisp.func.vmap(wisp.func.grad(f))(x[:, None], w[:, None])):
        got, want = transform(whole), transform(formula)
        assert all(wisp.allclose(a, b) for a, b in zip(got, want))


def test_hooks_of_nodes_run_only_where_the_node_works():
    a = wisp.tensor(1.0, requires_grad=True)
    b = a.clone()
    log = []
    leaf = b.grad_fn.next_functions[0][0]
    a.register_hook(lambda g: log.append("tensor"))
    leaf.register_prehook(lambda grads: log.append("before"))
    leaf.register_hook(lambda inputs, outputs: log.append([g.item() for g in outputs]))
    wisp.autograd.grad(b * 3, a, retain_graph=True)
    assert log == ["tensor"]
    log.clear()
    (b * 3).backward()
    assert log == ["tensor", "before", [3.0]]


def test_values_that_hooks_unpack_have_the_history_of_what_was_packed():
    a = wisp.tensor([1.0, 2.0], requires_grad=True)
    with wisp.autograd.graph.saved_tensors_hooks(lambda x: 2 * x, lambda x: x):
        s = (a**3).sum()
    (g,) = wisp.autograd.grad(s, a, create_graph=True)
    assert g.tolist() == [12.0, 48.0]
    g.sum().backward()
    assert a.grad.tolist() == [12.0, 24.0]


def test_a_product_with_several_zeros_has_no_second_derivative():
    src = wisp.zeros(2, requires_grad=True)
    y = wisp.scatter_reduce(wisp.ones(1), 0, wisp.tensor([0, 0]), src, "prod")
    assert wisp.autograd.grad(y, src, retain_graph=True)[0].tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="Double backward is unsupported"):
        wisp.autograd.grad(y, src, create_graph=True)


def test_saved_tensors_in_main_memory_are_pinned_where_they_can_be():
    x = wisp.tensor([2.0], requires_grad=True)
    with wisp.autograd.graph.save_on_cpu(pin_memory=True):
        y = x * x
    y.backward()
    assert x.grad.item() == 4.0


def test_older_names_of_jacobians():
    from wisp.autograd.gradcheck import get_analytical_jacobian, get_numerical_jacobian

    a = wisp.rand(2, dtype=wisp.float64, requires_grad=True)
    with pytest.warns(FutureWarning, match="get_numerical_jacobian"):
        (numerical,) = get_numerical_jacobian(lambda inputs: (inputs[0] * 3,), (a,), eps=1e-6)
    with pytest.warns(FutureWarning, match="get_analytical_jacobian"):
        (analytical,), same, *_ = get_analytical_jacobian((a,), a * 3)
    assert same and (numerical - analytical).abs().max() < 1e-6 and analytical.tolist() == [[3.0, 0.0], [0.0, 3.0]]


def test_hooks_of_one_saved_tensor():
    x = wisp.randn(3, requires_grad=True)
    y = x * x
    saved = y.grad_fn._raw_saved_self
    assert saved.data is x and saved.unpack_hook is None
    saved.register_hooks(lambda t: t * 2, lambda t: t)
    y.sum().backward()
    assert wisp.allclose(x.grad, 3 * x)  # the doubled one for one operand, the other as it was
    with pytest.raises(RuntimeError, match="after it has been freed"):
        y.grad_fn._raw_saved_self
    y = x.exp()
    with pytest.raises(RuntimeError, match="modifying its input in place"):
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t.add_(1), lambda t: t)
    y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="already been set"):
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)

    class Keeps(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return x.clone()

    first, second = Keeps.apply(x).grad_fn._raw_saved_tensors
    assert first.unpack() is x
    with pytest.raises(RuntimeError, match="None is forbidden"):
        second.register_hooks(lambda t: t, lambda t: t)


def test_pack_hooks_see_the_tensor_and_unpack_hooks_leave_contexts_alone():
    seen = []
    x = wisp.ones(2, requires_grad=True)
    with wisp.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        y = x * 3
        y**2
    assert seen[-1] is y
    inner = wisp.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t)
    with wisp.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: inner.__enter__() or t):
        (x * x).sum().backward()
    (x * x).sum().backward()  # the context that the hook entered is over
    inner.__exit__()
    inner.__exit__()  # both operands were unpacked
    z = x * 1
    out = z.sin()
    z.detach_()
    with pytest.raises(RuntimeError, match=r"detached in-place, i.e. with .detach_\(\)"):
        out.sum().backward()


def test_writes_to_views_leave_no_cycle_and_second_passes_say_so():
    died = []

    class Dies:
        def __call__(self, *grads):
            pass

        def __del__(self):
            died.append(1)

    def write():
        copy = wisp.randn(3, 3, requires_grad=True).clone()
        copy.grad_fn.register_hook(Dies())
        wisp.relu_(copy.view(9))
        copy.view(9).exp_()

    gc.collect()
    gc.disable()
    try:
        write()
        assert died
    finally:
        gc.enable()
    x = wisp.randn(2, 3, dtype=wisp.float64, requires_grad=True)

    def through_view(x):
        y = x.clone()
        y.view(-1)[1:].exp_()
        return y

    assert wisp.autograd.gradcheck(through_view, (x,)) and wisp.autograd.gradgradcheck(through_view, (x,))
    y = wisp.zeros(3, dtype=wisp.float64)
    y[[1, 2]] = x[0][[1, 1]]
    y.sum().backward()
    with pytest.raises(RuntimeError, match="Specify retain_graph=True"):
        y.sum().backward()


def test_the_run_tells_what_it_does():
    x = wisp.ones(2, requires_grad=True)
    y = x * 2
    told = []

    def hook(grad):
        told.append(wisp._core._current_autograd_node().name())
        told.append([node.name() for node in wisp._core._current_graph_task_execution_order()])

    y.register_hook(hook)
    y.sum().backward()
    assert told == ["MulBackward0", ["MulBackward0", "torch::autograd::AccumulateGrad"]]
    assert wisp._core._current_autograd_node() is None
    order = []
    leaf = y.grad_fn.next_functions[0][0]
    x.register_post_accumulate_grad_hook(lambda t: [t.grad.add_(1)].clear())
    leaf.register_hook(lambda inputs, outputs: order.append(outputs[0].clone()))
    x.grad = None
    (x * 2).sum().backward()
    assert order[0].tolist() == [3.0, 3.0]  # hooks of the node come after those of the tensor


def test_saved_tensors_are_those_of_functions():
    class Double(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = wisp.ones(2, requires_grad=True)
    assert not hasattr((x * x).grad_fn, "saved_tensors") and Double.apply(x).grad_fn.saved_tensors[0] is x


def test_nodes_tell_what_they_were_given():
    x, v = wisp.arange(12.0).view(3, 4).requires_grad_(), wisp.ones(4, requires_grad=True)
    at, F = wisp.tensor([0, 2]), wisp.nn.functional
    for y, expected in (
        (x.sum((0, 1), True), {"dim": (0, 1), "keepdim": True, "self_sym_sizes": (3, 4)}),
        (x.mean(0), {"dim": (0,), "keepdim": False, "self_sym_numel": 12, "self_sym_sizes": (3, 4)}),
        (x.prod(1), {"dim": 1}),
        (x.log_softmax(1), {"dim": 1, "result": x.log_softmax(1)}),
        (x.view(12), {"self_sym_sizes": (3, 4)}),
        (x.transpose(0, 1), {"dim0": 0, "dim1": 1}),
        (x.permute(1, 0), {"dims": (1, 0)}),
        (wisp.addmm(v, x.t(), x, beta=2, alpha=3), {"beta": 2, "alpha": 3, "mat1": x.t(), "mat2": x}),
        (x.mv(v), {"self": x, "vec": v}),
        (wisp.stack((x, x), 1), {"dim": 1}),
        (x.tril(1), {"diagonal": 1}),
        (x[:, at], {"indices": (None, at), "self_sym_sizes": (3, 4)}),
        (x.gather(1, at[None]), {"dim": 1, "index": at[None], "sparse_grad": False}),
        (F.embedding(at, x, padding_idx=1), {"indices": at, "padding_idx": 1, "weight_sym_argsize_0": 3}),
        (F.nll_loss(x, wisp.tensor([0, 1, 2])), {"self": x, "target": wisp.tensor([0, 1, 2]), "weight": None}),
        (F.mse_loss(x, x.detach() + 1), {"reduction": 1, "target": x.detach() + 1}),
        (x.cummax(1)[0], {"dim": 1}),
        (x.std(1), {"dim": (1,), "correction": 1.0, "self": x}),
        (x.masked_fill(x > 2, 1), {"mask": x > 2}),
        (F.layer_norm(x, (4,), v, v), {"input": x, "weight": v}),
        (wisp.add(x, v, alpha=2), {"alpha": 2}),
        (x - v, {"alpha": 1}),
    ):
        for name, value in expected.items():
            told = getattr(y.grad_fn, "_saved_" + name)
            assert f"_saved_{name}" in dir(y.grad_fn) and type(told) is type(value) and repr(told) == repr(value), (y.grad_fn, name, told)
    y = x[:, at]
    y.sum().backward()
    assert y.grad_fn._saved_self_sym_sizes == (3, 4)  # numbers stay
    with pytest.raises(RuntimeError, match="already been freed"):
        y.grad_fn._saved_indices
    with pytest.raises(AttributeError):
        x.exp().grad_fn._saved_dim
