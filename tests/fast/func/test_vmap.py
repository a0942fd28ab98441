"""vmap: dimensions and structures, derivatives per sample, random numbers, writes, and what it refuses."""

import pytest

import wisp
import wisp.nn.functional as F
from wisp.autograd import Function
from wisp.func import functional_call, grad, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap

X = wisp.arange(6.0, dtype=wisp.float64).reshape(2, 3) / 7 + 0.1
Y = wisp.linspace(-1, 1, 6, dtype=wisp.float64).reshape(2, 3)


def close(actual, expected):
    wisp.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_dimensions_and_structures():
    close(vmap(lambda a: a * 2, in_dims=1, out_dims=1)(X), X * 2)
    close(vmap(lambda a: a * 2, in_dims=-1, out_dims=-1)(X), X * 2)
    close(vmap(lambda d: d["a"] + d["b"], in_dims=({"a": 0, "b": None},))({"a": X, "b": wisp.ones(3)}), X + 1)
    result = vmap(lambda a: {"k": a, "l": [a, a * 2]}, out_dims={"k": 1, "l": [0, 1]})(X)
    close(result["k"], X.t())
    close(result["l"][1], 2 * X.t())
    assert vmap(lambda a, b: a + b.sum(), in_dims=(0, None))(X, Y).shape == (2, 3)
    assert vmap(lambda a, b=None: a + b)(X, b=X).shape == (2, 2, 3)  # keyword arguments are not mapped over
    close(vmap(lambda a: wisp.ones(3, dtype=a.dtype))(X), wisp.ones(2, 3, dtype=wisp.float64))
    values, indices = vmap(lambda a: a.max(0))(X)
    close(values, X.max(1).values)
    assert indices.tolist() == [2, 2]
    assert vmap(lambda a: a.sin())(wisp.ones(0, 3)).shape == (0, 3)
    for size in (1, 2, 3, 7):
        close(vmap(lambda a: a.exp().sum(), chunk_size=size)(X.t()), X.t().exp().sum(1))


def test_samples_look_like_samples():
    def f(a):
        assert a.shape == (3,) and a.dim() == 1 and a.dtype == wisp.float64 and len(a) == 3 and a.numel() == 3
        first, second, third = a
        return first * second + third - a[0] + a[-1] ** 2 + 2 / a[1] - (3 - a[0])

    close(vmap(f)(X), wisp.stack([f(row) for row in X]))


def test_nested():
    close(vmap(vmap(lambda a: a.sin() * 2))(X), X.sin() * 2)
    close(vmap(lambda a: vmap(lambda b: a @ b)(Y))(X), X @ Y.t())
    close(vmap(vmap(wisp.add, in_dims=(None, 0)), in_dims=(0, None))(X, Y), X[:, None] + Y)


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_indices_that_new_dimensions_separate_and_lists_of_indices():
    x, i = wisp.arange(2 * 81).reshape(2, 3, 3, 3, 3), wisp.tensor([0, 2])
    for key in ((i, None, i), (slice(None), i, None, i), (None, i, i), [[0, 2], [1, 1]], [slice(1), [0, 2]], [i, Ellipsis, 1]):
        assert wisp.equal(wisp.vmap(lambda sample: sample[key])(x), wisp.stack([sample[key] for sample in x])), key
        written, expected = x.clone(), x.clone()
        wisp.vmap(lambda sample: sample.__setitem__(key, -1) or sample)(written)
        for sample in expected:
            sample[key] = -1
        assert wisp.equal(written, expected), key


def test_indexing_and_writing():
    index = wisp.tensor([2, 0])
    close(vmap(lambda a, i: a[i])(X, index), X[[0, 1], [2, 0]])
    close(vmap(lambda i: X[0][i])(index), X[0][index])
    close(vmap(lambda a: a[wisp.tensor([0, 2])])(X), X[:, [0, 2]])
    close(vmap(lambda a: a[a.new_tensor([True, False, True], dtype=wisp.bool)])(X), X[:, [0, 2]])

    def write(a, b):
        y = wisp.zeros_like(a)
        y[0] = b[1]
        y[1:] += a[:-1]
        y.mul_(2)
        return y

    close(vmap(write)(X, Y), wisp.stack([write(a, b) for a, b in zip(X, Y)]))
    base = X.clone()
    vmap(lambda a: a[1].add_(1))(base)
    close(base[:, 1], X[:, 1] + 1)
    outside = wisp.zeros(3, dtype=wisp.float64)
    for bad in (
        lambda a: outside.add_(a),
        lambda a: outside.copy_(a),
        lambda a: outside.__iadd__(a),
        lambda a: outside.__setitem__(0, a[0]),
    ):
        with pytest.raises(RuntimeError, match="not possible because"):
            vmap(bad)(X)
    assert not outside.any()


def test_derivatives_per_sample():
    model = wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.LayerNorm(4), wisp.nn.Tanh(), wisp.nn.Linear(4, 2)).double()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    target = wisp.tensor([1, 0])

    def loss(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, (x,)), y)

    together = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, X, target)
    for i in range(2):
        for name, g in grad(loss)(parameters, X[i], target[i]).items():
            close(together[name][i], g)
    assert not together["0.weight"].requires_grad
    close(vmap(jacrev(wisp.sin))(X), wisp.stack([wisp.diag(row.cos()) for row in X]))
    close(vmap(jacfwd(wisp.sin))(X), wisp.stack([wisp.diag(row.cos()) for row in X]))
    close(vmap(grad(grad(lambda a: a.sin())))(X[0]), -X[0].sin())
    close(vmap(lambda a, t: jvp(wisp.exp, (a,), (t,))[1])(X, Y), X.exp() * Y)
    _, pull = vjp(wisp.sin, X[0])
    close(vmap(pull)(Y)[0], Y * X[0].cos())
    close(grad(lambda w: vmap(lambda a: (a * w).sum())(X).square().sum())(Y[0]), grad(lambda w: (X @ w).square().sum())(Y[0]))


def test_convolution_per_sample():
    model = wisp.nn.Sequential(
        wisp.nn.Conv2d(1, 2, 3), wisp.nn.ReLU(), wisp.nn.MaxPool2d(2), wisp.nn.Flatten(), wisp.nn.Linear(8, 2)
    ).double()
    parameters = {k: v.detach() for k, v in model.named_parameters()}
    images, target = wisp.randn(3, 1, 6, 6, dtype=wisp.float64), wisp.tensor([1, 0, 1])

    def loss(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, (x.unsqueeze(0),)), y.unsqueeze(0))

    together = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, images, target)
    for i in range(3):
        for name, g in grad(loss)(parameters, images[i], target[i]).items():
            close(together[name][i], g)


def test_ensemble():
    models = [wisp.nn.Linear(3, 2).double() for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    result = vmap(lambda p, b: functional_call(models[0], (p, b), (X,)))(parameters, buffers)
    close(result, wisp.stack([m(X) for m in models]))
    result.sum().backward()
    assert parameters["weight"].grad.shape == (4, 2, 3)


@pytest.mark.parametrize("dropout", [F.dropout, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout])
def test_dropout_that_draws_nothing(dropout):
    x = wisp.arange(1.0, 17.0).reshape(2, 2, 4)
    assert wisp.equal(vmap(lambda x: dropout(x, 0.0, True))(x), x) and wisp.equal(vmap(lambda x: dropout(x, 0.5, False))(x), x)
    assert vmap(lambda x: dropout(x, 1.0, True))(x).abs().sum() == 0
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda x: dropout(x, 0.5, True))(x)


def test_randomness():
    ones = wisp.ones(4, 1000)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        vmap(lambda a: a + wisp.rand(1000))(ones)
    for draw in (
        lambda a: a + wisp.rand(1000),
        lambda a: F.dropout(a),
        lambda a: a + wisp.randn_like(a),
        lambda a: a.clone().uniform_(),
        lambda a: wisp.randperm(1000),
    ):
        same = vmap(draw, randomness="same")(ones)
        assert all(wisp.equal(same[0], row) for row in same)
        different = vmap(draw, randomness="different")(ones)
        assert not any(wisp.equal(different[0], row) for row in different[1:])
    nested = vmap(vmap(lambda a: wisp.rand(()), randomness="different"), randomness="different")(wisp.ones(3, 5))
    assert nested.unique().numel() == 15


def test_functions_of_the_user():
    class Cube(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    class Marked(Cube):
        generate_vmap_rule = False

        @staticmethod
        def vmap(info, in_dims, x):
            assert info.batch_size == 2 and in_dims == (0,)
            return x + 100, 0

    close(vmap(Cube.apply)(X), X**3)
    close(vmap(grad(lambda a: Cube.apply(a).sum()))(X), 3 * X**2)
    close(vmap(Marked.apply)(X), X + 100)

    class Both(Marked):
        generate_vmap_rule = True

    class Nothing(Cube):
        generate_vmap_rule = False

    class Old(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    class One(Marked):
        @staticmethod
        def vmap(info, in_dims, x):
            return x

    class Wrong(Marked):
        @staticmethod
        def vmap(info, in_dims, x):
            return x, (0,)

    for function, text in (
        (Both, "generate_vmap_rule=True and"),
        (Nothing, "does not have vmap support"),
        (Old, "must override the setup_context"),
        (One, "to have two returns"),
        (Wrong, "returned an incompatible"),
    ):
        with pytest.raises(RuntimeError, match=text):
            vmap(function.apply)(X)
    with pytest.raises(RuntimeError, match="must override the setup_context"):
        grad(lambda x: Old.apply(x).sum())(X)


def test_functions_that_return_and_save_an_input():
    class Same(Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(RuntimeError, match="An input that has been returned as-is"):
        grad(lambda x: Same.apply(x.clone()).sum())(X)


def test_refusals():
    for f, text in (
        (lambda a: a.item(), "item"),
        (lambda a: a if a > 0 else -a, "control flow"),
        (lambda a: float(a), "number"),
        (lambda a: a.numpy(), "numpy"),
    ):
        with pytest.raises(RuntimeError, match=text):
            vmap(f)(wisp.ones(2))
    for arguments, text in (
        ({"in_dims": (0, 0)}, "not compatible"),
        ({"in_dims": None}, "expected `in_dims`"),
        ({"in_dims": (None,)}, "at least one Tensor"),
        ({"in_dims": 5}, "in_dim=5"),
        ({"out_dims": None}, "can not return a BatchedTensor"),
        ({"out_dims": "x"}, "must be an int"),
        ({"out_dims": (0, 0)}, "not compatible"),
    ):
        with pytest.raises(ValueError, match=text):
            vmap(lambda a: a, **arguments)(X)
    with pytest.raises(IndexError):
        vmap(lambda a: a, out_dims=5)(X)
    with pytest.raises(ValueError, match="same size"):
        vmap(wisp.add)(X, wisp.ones(3, 3))
    with pytest.raises(RuntimeError, match="Batch norm"):
        vmap(wisp.nn.BatchNorm1d(3))(wisp.ones(2, 4, 3))
    assert wisp.vmap(lambda a: a + 1)(X).sum() > 0  # a failed run leaves nothing behind


def test_promotion():
    scale = wisp.ones(2, dtype=wisp.float64)  # no dimensions inside: does not promote
    assert vmap(lambda a, s: a * s)(wisp.ones(2, 3), scale).dtype == wisp.float32
    assert vmap(lambda a: a + 1.5)(wisp.ones(2, dtype=wisp.int64)).dtype == wisp.float32


def test_products_fit_by_sample():
    for product, a, b in (
        (wisp.mm, (3, 2, 2, 2), (3, 2, 2)),
        (wisp.bmm, (3, 2, 2, 2), (3, 2)),
        (wisp.mv, (3, 2), (3, 2)),
        (wisp.dot, (3, 2), (3, 1)),
    ):
        with pytest.raises(RuntimeError, match="Shape mismatch"):
            vmap(product)(wisp.ones(a), wisp.ones(b))


def test_random_operators_of_numbers_and_samples():
    drawn = vmap(lambda t: wisp.normal(0.0, t), randomness="different")(wisp.ones(3, 4))
    assert drawn.shape == (3, 4) and drawn.unique().numel() == 12
    once = wisp.ones(4)
    assert vmap(lambda t, _: wisp.normal(0.0, once), randomness="different")(wisp.ones(3), wisp.ones(3)).unique().numel() == 12


class Pair:
    """Two tensors that are mapped as one, by methods of their own."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def dim(self):
        return 1

    @property
    def shape(self):
        return self.a.shape[:1]

    def _add_batch_dim(self, *, in_dim, vmap_level):
        from wisp._C._functorch import _add_batch_dim

        return Pair(_add_batch_dim(self.a, in_dim, vmap_level), _add_batch_dim(self.b, in_dim, vmap_level))

    def _maybe_remove_batch_dim(self, name, vmap_level, batch_size, out_dim):
        from wisp._C._functorch import _remove_batch_dim

        return Pair(*(_remove_batch_dim(t, vmap_level, batch_size, out_dim) for t in (self.a, self.b)))


def test_collections_that_map_themselves():
    def swapped(pair, scale):
        assert pair.a.shape == (3,) and pair.b.shape == ()
        return Pair(pair.b * scale, pair.a + 1), pair.a.sum()

    a, b = wisp.randn(2, 3), wisp.randn(2)
    pair, total = wisp.vmap(swapped, in_dims=(0, None))(Pair(a, b), 2.0)
    assert wisp.equal(pair.a, b * 2) and wisp.equal(pair.b, a + 1) and wisp.equal(total, a.sum(1))
    only = wisp.vmap(lambda pair: Pair(pair.a, pair.a), out_dims=(1,))(Pair(a, b))
    assert wisp.equal(only.a, a.t())


def test_in_dims_have_the_structure_of_the_inputs():
    x, y = wisp.randn(3), wisp.randn(3)
    assert wisp.equal(wisp.vmap(lambda z: z[0] + z[1], in_dims=([0, 0],))([x, y]), x + y)
    with pytest.raises(ValueError, match="not compatible with the structure"):
        wisp.vmap(lambda z: z[0] + z[1], in_dims=((0, 0),))([x, y])
    with pytest.raises(RuntimeError, match=r"calling .item\(\) on a Tensor"):
        wisp.vmap(lambda x: x.item())(x)


def test_operators_called_by_the_names_of_their_methods():
    x, y = wisp.rand(3, 2), wisp.rand(3, 2)
    for name in ("__radd__", "__rmul__", "__sub__", "__rsub__"):
        method = getattr(wisp.Tensor, name)
        wisp.testing.assert_close(wisp.vmap(method)(x, y), method(x, y))


@pytest.mark.parametrize("name", ["cholesky", "eigh", "inv", "qr", "svd", "det"])
def test_samples_that_are_no_matrices_are_refused(name):
    with pytest.raises(RuntimeError, match="dimensions|square"):
        wisp.vmap(getattr(wisp.linalg, name))(wisp.eye(3))
    wisp.vmap(getattr(wisp.linalg, name))(wisp.eye(3).expand(2, 3, 3))


def test_t_of_samples():
    with pytest.raises(RuntimeError, match="<= 2"):
        wisp.vmap(wisp.t)(wisp.rand(2, 3, 4, 5))
    assert wisp.vmap(wisp.t)(wisp.rand(2, 3, 4)).shape == (2, 4, 3)


def test_draws_of_several_steps_follow_the_randomness():
    x = wisp.rand(3, 2) + 1
    draws = {"gamma": wisp._standard_gamma, "dirichlet": wisp._sample_dirichlet}
    for draw in draws.values():
        wisp.manual_seed(0)
        whole = draw(x)
        wisp.manual_seed(0)
        assert wisp.equal(wisp.vmap(draw, randomness="different")(x), whole)
        same = wisp.vmap(lambda _: draw(x[0]), randomness="same")(x)  # noqa: B023
        assert wisp.equal(same[0], same[1])
        for randomness, said in (("error", "randomness error mode"), ("same", "same randomness")):
            with pytest.raises(RuntimeError, match=said):
                wisp.vmap(draw, randomness=randomness)(x)


@pytest.mark.parametrize("call", [wisp.nonzero, wisp.unique, wisp.where, lambda x: x[x > 0], lambda x: x.masked_select(x > 0)])
def test_shapes_that_depend_on_values_are_refused(call):
    with pytest.raises(RuntimeError, match="Attempted to vmap over aten::"):
        wisp.vmap(call)(wisp.ones(2, 3))


def test_one_mask_for_all_samples():
    x, mask = wisp.arange(6).reshape(2, 3), wisp.tensor([True, False, True])
    assert wisp.vmap(lambda t: t.masked_select(mask))(x).tolist() == wisp.vmap(lambda t: t[mask])(x).tolist() == [[0, 2], [3, 5]]


def test_nested_tensors_are_mapped_part_by_part():
    parts = [wisp.rand(2, 3), wisp.rand(4, 3)]
    nested, dense = wisp.nested.nested_tensor(parts), wisp.rand(2, 3, 5)
    result = wisp.vmap(wisp.matmul)(nested, dense)
    assert all(wisp.equal(r, p @ d) for r, p, d in zip(result.unbind(), parts, dense))
    with pytest.raises(RuntimeError, match="can only be vmapped over dim=0"):
        wisp.vmap(wisp.sin, in_dims=2)(nested)
    with pytest.raises(RuntimeError, match="Only one level"):
        wisp.vmap(wisp.vmap(wisp.sin))(nested)


def test_running_statistics_of_batch_norm():
    x, stats = wisp.rand(4, 2), wisp.zeros(3, 2)
    mean, var = stats.clone(), stats.clone()
    result = wisp.vmap(lambda m, v: wisp.nn.functional.batch_norm(x, m, v, training=True))(mean, var)
    alone = wisp.zeros(2), wisp.zeros(2)
    expected = wisp.nn.functional.batch_norm(x, *alone, training=True)
    for i in range(3):
        assert wisp.allclose(result[i], expected, atol=1e-5)
        assert wisp.allclose(mean[i], alone[0]) and wisp.allclose(var[i], alone[1])


def test_exponentials_of_matrices_of_very_different_size():
    x = wisp.rand(3, 2, 2) * wisp.tensor([0.1, 1.0, 30.0]).reshape(3, 1, 1)
    assert wisp.allclose(wisp.vmap(wisp.matrix_exp)(x), wisp.matrix_exp(x))


def test_views_of_samples_by_strides():
    x = wisp.arange(12.0).reshape(3, 4)
    assert wisp.vmap(lambda t: t.as_strided((2, 2), (1, 2)))(x).tolist() == [[[b, b + 2], [b + 1, b + 3]] for b in (0.0, 4.0, 8.0)]
    assert wisp.vmap(lambda t: t.unfold(0, 2, 2))(x).data_ptr() == x.data_ptr()
    assert wisp.vmap(lambda t: t.new_empty_strided((2, 3), (1, 2)))(x).stride() == (6, 1, 2)
    assert wisp.vmap(wisp.Tensor.abs_)(x) is x


def test_what_a_sample_would_broadcast_is_refused():
    conv = wisp.vmap(wisp.nn.functional.conv1d)
    with pytest.raises(RuntimeError, match="bias"):
        conv(wisp.rand(2, 1, 1, 4), wisp.rand(2, 3, 1, 2), wisp.rand(2, 1))
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        wisp.vmap(lambda a, b: wisp.nn.functional.l1_loss(a, b, reduction="abc"))(wisp.rand(2, 3), wisp.rand(2, 3))
    with pytest.raises(RuntimeError, match="0-dimensional value tensor"):
        wisp.vmap(lambda a, v: a.masked_fill(a > 0, v))(wisp.rand(2, 3), wisp.rand(2, 1))


def test_nonzero_with_a_fixed_number_of_rows():
    x = wisp.tensor([[0, 1, 1], [1, 0, 0]])
    assert wisp.vmap(lambda t: wisp.nonzero_static(t, size=2))(x).tolist() == [[[1], [2]], [[0], [-1]]]
    assert wisp.vmap(wisp.argwhere)(x[:, :2]).tolist() == [[[1]], [[0]]]


def test_functions_that_look_at_values_see_one_sample_after_another():
    wisp.manual_seed(0)
    F, x = wisp.nn.functional, wisp.randn(2, 3, 6, dtype=wisp.float64)
    classes = wisp.tensor([[0, 5, 1], [2, 2, 4]])
    for name, call, args in (
        ("histogram", lambda x: wisp.histogram(x, 4), (x,)),
        ("histogram of edges", lambda x: wisp.histogram(x, wisp.arange(-3.0, 3.0, dtype=wisp.float64)), (x,)),
        ("histogramdd", lambda x: wisp.histogramdd(x[:, :2], (2, 3)), (x,)),
        ("multi_margin_loss", F.multi_margin_loss, (x, classes)),
        ("gaussian_nll_loss", F.gaussian_nll_loss, (x, x + 1, x.abs())),
        ("cov", lambda x, w: wisp.cov(x, aweights=w), (x, x[:, 0].abs())),
        (
            "ctc_loss",
            lambda x, y, n, m: F.ctc_loss(x, y, n, m),
            (
                x.repeat(1, 3, 1).view(2, 3, 3, 6).log_softmax(-1),
                wisp.ones(2, 3, 1, dtype=wisp.int64),
                wisp.full((2, 3), 3),
                wisp.ones(2, 3).long(),
            ),
        ),
        ("embedding_bag", lambda i, o: F.embedding_bag(i, x[0], o), (wisp.tensor([[0, 1, 2], [2, 1, 1]]), wisp.tensor([[0, 1], [0, 2]]))),
    ):
        whole = wisp.vmap(call)(*args)
        each = [call(*(a[i] for a in args)) for i in range(2)]
        for got, *expected in zip(
            *([r] if isinstance(r, wisp.Tensor) else [r[0], *([r[1]] if name != "histogramdd" else r[1])] for r in (whole, *each))
        ):
            assert wisp.allclose(got, wisp.stack(expected)), name
    grads = wisp.vmap(wisp.func.grad(F.multi_margin_loss))(x, classes)
    leaf = x.clone().requires_grad_()
    sum(F.multi_margin_loss(*pair) for pair in zip(leaf, classes)).backward()
    assert wisp.allclose(grads, leaf.grad)
    nested = wisp.vmap(wisp.vmap(lambda row: wisp.histogram(row, 3).hist))(x)
    assert wisp.equal(nested[1, 2], wisp.histogram(x[1, 2], 3).hist)
    with pytest.raises(RuntimeError, match="inside of vmap"):
        wisp.vmap(lambda v: v.item())(wisp.ones(2))


def test_as_strided_stays_within_its_sample():
    x = wisp.arange(30.0).reshape(2, 3, 5)
    assert wisp.equal(vmap(lambda t: t.as_strided([2, 2], [5, 1], 1))(x), x[:, :2, 1:3])
    for size, stride, offset in (([4, 4], [4, 1], 0), ([3], [1], 13)):
        with pytest.raises(RuntimeError, match="reaches beyond the memory of its sample"):
            vmap(lambda t, a=(size, stride, offset): t.as_strided(*a))(x)
    with pytest.raises(RuntimeError, match="reaches beyond the memory of its sample"):
        vmap(lambda t: t.as_strided([2], [1], 10))(x[1])


def test_a_cast_to_channels_last_of_samples_is_refused():
    for cast in (lambda t: t.half(memory_format=wisp.channels_last), lambda t: t.double(memory_format=wisp.channels_last)):
        with pytest.raises(RuntimeError, match="rank 4"):  # as in PyTorch
            vmap(cast)(wisp.randn(2, 2, 3, 2, 2))


def test_what_is_returned_as_it_was_given_is_the_tensor_itself():
    x = wisp.randn(3, 4, 5).transpose(0, 1)
    assert vmap(lambda t: t, 1, 1)(x) is x and vmap(lambda t: t.contiguous(), 1, -2)(x) is x
    assert vmap(lambda t: t, 1)(x) is not x
    assert vmap(wisp.Tensor.contiguous, 1, 1)(x) is x and vmap(lambda t: t.transpose(0, -1))(x[0, 0]).equal(x[0, 0])
    with pytest.raises(IndexError):
        vmap(lambda t: t, 1, 3)(x)

    def grows(t):
        return t.unsqueeze_(0)

    assert vmap(grows, 1, 1)(x.clone()).shape == (1, 3, 4, 5)


def test_indexing_by_the_method_of_tensor():
    x = wisp.arange(24.0).reshape(2, 3, 4)

    def writes(t):
        t = t.clone()
        wisp.Tensor.__setitem__(t, (slice(None), [0, 2]), 7.0)
        return t

    for key in ([0, 2], (slice(0, 2), 1), slice(0, 2), wisp.tensor([[0, 1], [1, 2]])):
        assert wisp.equal(vmap(lambda t, key=key: wisp.Tensor.__getitem__(t, key))(x), wisp.stack([t[key] for t in x]))
    assert wisp.equal(vmap(writes)(x), wisp.stack([writes(t) for t in x]))
