"""Autocast casts what its lists name, gradients flow through the casts, and the scaler adapts."""

import pytest

import wisp
from wisp.amp import GradScaler, autocast, custom_bwd, custom_fwd

F = wisp.nn.functional


@pytest.mark.parametrize("dtype", [wisp.bfloat16, wisp.float16])
def test_dtypes_by_list(dtype):
    a, image = wisp.rand(4, 4), wisp.rand(2, 3, 8, 8)
    with wisp.autocast("cpu", dtype=dtype):
        product = a @ a
        assert product.dtype == wisp.matmul(a, a).dtype == wisp.mm(a, a).dtype == dtype
        assert wisp.nn.Linear(4, 4)(a).dtype == wisp.nn.Conv2d(3, 4, 3)(image).dtype == dtype
        assert F.mse_loss(product, product).dtype == F.cross_entropy(product, wisp.arange(4)).dtype == wisp.float32
        assert wisp.cat([a, product]).dtype == wisp.float32 and wisp.cat([product, product]).dtype == dtype
        assert (a + a).dtype == wisp.float32 and (a.double() @ a.double()).dtype == wisp.float64
        with wisp.autocast("cpu", enabled=False):
            assert (a @ a).dtype == wisp.float32
        assert (a @ a).dtype == dtype
    assert (a @ a).dtype == wisp.float32 and not wisp.is_autocast_cpu_enabled()


def test_gradients_keep_the_dtype_of_the_weights():
    layer = wisp.nn.Linear(8, 3)
    x = wisp.randn(5, 8)
    with autocast("cpu", dtype=wisp.bfloat16):
        loss = layer(x).sum()
    loss.backward()
    assert layer.weight.grad.dtype == wisp.float32
    wisp.testing.assert_close(layer.weight.grad, x.sum(0).expand(3, 8), rtol=2e-2, atol=2e-2)


def test_decorator_and_errors():
    @autocast("cpu", dtype=wisp.bfloat16)
    def product(a):
        return a @ a

    assert product(wisp.rand(2, 2)).dtype == wisp.bfloat16
    with pytest.raises(RuntimeError):
        autocast("abacus")
    with pytest.raises(ZeroDivisionError), autocast("cpu"):
        _ = 1 / 0
    assert not wisp.is_autocast_enabled("cpu")


def test_autocast_belongs_to_its_thread():
    import threading

    seen = []
    with autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((wisp.rand(2, 2) @ wisp.rand(2, 2)).dtype))
        thread.start()
        thread.join()
    assert seen == [wisp.float32]


def test_custom_function():
    class Product(wisp.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=wisp.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b.T, a.T @ g

    a = wisp.rand(3, 3, requires_grad=True)
    with autocast("cpu"):
        y = Product.apply(a, a)
    assert y.dtype == wisp.float32
    y.sum().backward()
    assert a.grad.dtype == wisp.float32


def test_scaler():
    weight = wisp.nn.Parameter(wisp.ones(2))
    optimizer = wisp.optim.SGD([weight], lr=0.5)
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=2)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(optimizer)
        assert weight.grad.tolist() == [1, 1]
        scaler.step(optimizer)
        scaler.update()
    assert weight.tolist() == [0, 0] and scaler.get_scale() == 8
    optimizer.zero_grad()
    scaler.scale(weight.sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [0, 0] and scaler.get_scale() == 4
    other = GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 4 and other.get_growth_interval() == 2
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)


def test_names_of_parameters():
    x = wisp.arange(6.0).view(2, 3)
    assert x.matmul(tensor2=x.T).shape == x.matmul(other=x.T).shape == (2, 2)
    assert x.narrow(dimension=1, start=0, length=2).shape == (2, 2) and x.mul(value=2).sum() == 30
    with pytest.raises(TypeError):
        x.add(value=2)
    assert wisp.typename(x) == "torch.FloatTensor" and wisp.version.cuda is None


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.bfloat16])
def test_recurrent_layers(kind, dtype):
    """Results in lower precision (a GRU's in its state's, as in PyTorch), gradients in the weights' own."""
    layer = getattr(wisp.nn, kind)(4, 3, num_layers=2, bidirectional=True)
    x = wisp.randn(5, 2, 4).to(dtype)
    expected = layer(x.float())[0]
    with wisp.autocast("cpu"):
        output, _ = layer(x)
        output.sum().backward()
    assert output.dtype == (dtype if kind == "GRU" else wisp.bfloat16)
    assert wisp.allclose(output.float(), expected, atol=2e-2)
    assert all(p.grad.dtype == wisp.float32 for p in layer.parameters())


def test_gru_cell_with_a_wider_state():
    with wisp.autocast("cpu"):
        assert wisp.nn.GRUCell(4, 3)(wisp.ones(2, 4)).dtype == wisp.float32


def test_products_under_other_names():
    a = wisp.rand(4, 4)
    with wisp.autocast("cpu"):
        results = [
            wisp.einsum("ij,jk", a, a),
            wisp.tensordot(a, a, 1),
            wisp.inner(a, a),
            wisp.chain_matmul(a, a),
            wisp.nn.PReLU(4)(a),
            wisp.nn.PReLU()(a.bfloat16()),
        ]
    assert {r.dtype for r in results} == {wisp.bfloat16}


def test_losses_in_python_are_float32():
    a, sign = wisp.rand(4, 4).bfloat16(), wisp.ones(4)
    F = wisp.nn.functional
    with wisp.autocast("cpu"):
        losses = [
            F.kl_div(a, a),
            F.poisson_nll_loss(a, a),
            F.hinge_embedding_loss(a, a),
            F.triplet_margin_loss(a, a, a),
            F.cosine_embedding_loss(a, a, sign),
            F.soft_margin_loss(a, a),
            wisp.cdist(a, a),
            wisp.linalg.pinv(a),
        ]
    assert {loss.dtype for loss in losses} == {wisp.float32}


def test_distances_by_products_keep_their_digits():
    x = wisp.arange(10.0, 50.0).unsqueeze(1)
    with wisp.autocast("cpu"):
        assert wisp.allclose(wisp.cdist(x, x), (x - x.T).abs(), atol=1e-2)


def test_unscaling_half_precision_gradients_is_refused():
    weight = wisp.nn.Parameter(wisp.ones(2).half())
    scaler = wisp.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(wisp.optim.SGD([weight], lr=0.1))


def test_autocast_refuses_what_it_cannot_do():
    with pytest.raises(RuntimeError, match="Invalid device string: 'no device'"):
        wisp.autocast("no device")
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        wisp.autocast("meta")
    with pytest.raises(TypeError, match=r"autocast\(\)\(func\) requires a callable, but got Tensor"):
        wisp.autocast("cpu")(wisp.ones(2))
    with pytest.warns(FutureWarning, match="torch.cpu.amp.autocast"):
        wisp.cpu.amp.autocast()
