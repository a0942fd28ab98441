"""Devices without a GPU: virtual ones that refuse to mix, meta tensors, the default device, and kernels that compile."""

import pytest

import wisp
from wisp import nn


@pytest.fixture
def virtual():
    wisp.set_virtual_devices(3)
    yield
    wisp.set_virtual_devices(0)


def test_virtual_devices_are_apart(virtual):
    a, b = wisp.ones(2, 3, device="cpu:0"), wisp.ones(2, 3, device="cpu:1")
    assert (str(a.device), str(b.device)) == ("cpu:0", "cpu:1")
    for mix in (lambda: a + b, lambda: wisp.cat([a, b]), lambda: a.mul_(b), lambda: wisp.matmul(a, b.T), lambda: wisp.where(a > 0, a, b)):
        with pytest.raises(RuntimeError, match="same device.*cpu:0.*cpu:1|same device.*cpu:1.*cpu:0"):
            mix()
    assert str((b * 2).sum().device) == "cpu:1"
    assert str((b * wisp.tensor(3.0, device="cpu:0")).device) == "cpu:1"  # a 0-dim tensor joins
    assert str(a.to("cpu:2").device) == "cpu:2" and str(wisp.zeros_like(b).device) == "cpu:1"
    with pytest.raises(RuntimeError, match="cpu:7.*cpu:0 to cpu:2"):
        wisp.ones(1, device="cpu:7")


def test_tensors_say_where_they_are(virtual):
    kinds = {"cpu:1": (True, False, False), "meta": (False, False, True)}
    for device, expected in kinds.items():
        t = wisp.ones(2, device=device)
        assert (t.is_cpu, t.is_cuda, t.is_meta) == expected, device
        assert (t * 2).is_cpu == expected[0] and nn.Parameter(t).is_meta == expected[2]


def test_operators_work_where_their_tensors_live(virtual):
    d = "cpu:1"
    x, i = wisp.randn(10, 6, 5, device=d, requires_grad=True), wisp.tensor([3, 0, 9], device=d)
    for f in (
        lambda: x[i],
        lambda: x[:, i % 3],
        lambda: x[wisp.tensor([3, 0], device="cpu:0"), :, -1],
        lambda: x[x.detach() > 0.5],
        lambda: wisp.stack([x, x], 1),
        lambda: x.flip(0).roll(2, 1).tril(),
        lambda: x.softmax(1),
        lambda: x.cumsum(0),
        lambda: x.sort().values,
    ):
        y = f()
        y.sum().backward()
        assert str(y.device) == d and str(x.grad.device) == d
    model = nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(), nn.Flatten(), nn.Linear(1176, 10)
    ).to(d)
    optimizer = wisp.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(wisp.randn(4, 3, 32, 32, device=d)), wisp.randint(0, 10, (4,), device=d)).backward()
        optimizer.step()


def test_gradients_cross_devices(virtual):
    first, second = nn.Linear(4, 5).to("cpu:1"), nn.Linear(5, 2).to("cpu:2")
    x = wisp.randn(3, 4, device="cpu:1")
    loss = second(first(x).relu().to("cpu:2")).square().mean()
    loss.backward()
    assert str(first.weight.grad.device) == "cpu:1" and str(second.weight.grad.device) == "cpu:2"

    wisp.set_virtual_devices(0)
    one, two = nn.Linear(4, 5), nn.Linear(5, 2)
    one.load_state_dict({k: wisp.tensor(v.tolist()) for k, v in first.state_dict().items()})
    two.load_state_dict({k: wisp.tensor(v.tolist()) for k, v in second.state_dict().items()})
    two(one(wisp.tensor(x.tolist())).relu()).square().mean().backward()
    assert one.weight.grad.tolist() == first.weight.grad.tolist()


def test_default_device(virtual):
    with wisp.device("cpu:1"):
        assert str(wisp.zeros(2).device) == "cpu:1" and str(wisp.arange(3).device) == "cpu:1" and str(wisp.tensor([1.0]).device) == "cpu:1"
        assert str(wisp.get_default_device()) == "cpu:1"
    assert str(wisp.zeros(2).device) == "cpu:0"


def test_meta():
    x = wisp.empty(1000, 1000, device="meta")
    y = (x @ x.T + 1).relu().sum(0)
    assert y.device.type == "meta" and y.shape == (1000,) and y.is_meta
    for read in (y.tolist, y.sum().item, y.unique, y.nonzero, lambda: y[y > 0], lambda: bool(y[0]), lambda: y.repeat_interleave(y.long())):
        with pytest.raises(NotImplementedError, match="meta"):
            read()
    with pytest.raises(TypeError, match="meta"):
        y.numpy()
    with pytest.raises(NotImplementedError, match="no data"):
        wisp.zeros(1000).copy_(y)


def test_models_on_meta_have_the_shapes_of_their_results():
    with wisp.device("meta"):
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(), nn.AdaptiveAvgPool2d(4))
        y = net(wisp.randn(2, 3, 20, 20))
        y.square().mean().backward()
        words, recurrent, layer = (
            nn.Embedding(10, 8),
            nn.LSTM(8, 6, batch_first=True),
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        )
        z = layer(words(wisp.randint(0, 10, (2, 5))))
        wisp.nn.functional.cross_entropy(z.transpose(1, 2), wisp.randint(0, 8, (2, 5))).backward()
        nn.utils.clip_grad_norm_(words.parameters(), 1.0)
        wisp.optim.Adam(words.parameters()).step()
        x = wisp.randn(4, 6)
        values, places = x.topk(2)
    assert y.shape == (2, 8, 4, 4) and net[0].weight.grad.shape == (8, 3, 3, 3) and net[0].weight.grad.is_meta
    assert z.shape == (2, 5, 8) and words.weight.grad.shape == (10, 8)
    assert recurrent(z)[0].shape == (2, 5, 6)
    assert values.shape == places.shape == (4, 2) and places.dtype == wisp.int64
    assert x.gather(1, places).cumsum(0).shape == x[:, wisp.tensor([0, 1], device="meta")].shape == (4, 2)
    assert wisp.fft.rfft(x).shape == (4, 4) and wisp.linalg.qr(x).R.shape == (4, 6) and wisp.multinomial(x, 3).shape == (4, 3)


def test_without_a_gpu_errors_say_so():
    if wisp.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(RuntimeError, match="CUDA is not available"):
        wisp.zeros(2, device="cuda")
    assert wisp.cuda.device_count() == 0


def test_older_names_of_tensors_on_the_gpu():
    assert wisp.cuda.FloatTensor.dtype == wisp.float32 and not isinstance(wisp.ones(2), wisp.cuda.FloatTensor)
    assert isinstance(wisp.ones(2), wisp.FloatTensor)
    with pytest.raises(AttributeError, match="NoSuchTensor"):
        wisp.cuda.NoSuchTensor  # noqa: B018


def test_gradients_follow_a_moved_leaf(virtual):
    weight = wisp.nn.Parameter(wisp.ones(2))
    kept = (weight * 2).sum()
    kept.backward()
    weight.data = weight.data.to("cpu:1")
    weight.grad = None
    (weight * 3).sum().backward()
    assert str(weight.grad.device) == "cpu:1" and kept.requires_grad


KERNELS = [
    ("cuda/kernels/pointwise.cuh", "pointwise_flat<rows::gelu_row, 1, float, 4, 2, float, float, float>"),
    ("cuda/kernels/pointwise.cuh", "pointwise_strided<rows::lgamma_row, 0, float, 1, 4, bf16, bf16>"),
    ("cuda/kernels/pointwise.cuh", "pointwise_flat<rows::tanh_row, 0, c64, 2, 2, c64, c64>"),
    ("cuda/kernels/reduce.cuh", "reduce_rows<0, float, 0, float, float, 4>"),
    ("cuda/kernels/copy.cuh", "transpose<4>"),
    ("cuda/kernels/small_gemm.cuh", "small_gemm<32, 32, 4, 8>"),
    ("cuda/kernels/small_gemm.cuh", "small_gemm<16, 16, 2, 8>"),
    ("cuda/kernels/small_conv.cuh", "small_conv<8, true, 5>"),
    ("cuda/kernels/small_conv.cuh", "small_conv_weights<16>"),
    ("cuda/kernels/small_conv.cuh", "small_conv_join"),
    ("cuda/kernels/pool_planes.cuh", "max_pool_planes_grad<bf16>"),
    ("cuda/kernels/norm.cuh", "layer_forward<float, 8>"),
    ("cuda/kernels/norm.cuh", "layer_backward<bf16, 3, true>"),
    ("cuda/kernels/softmax.cuh", "softmax_kept<float, false, 8>"),
    ("cuda/kernels/softmax.cuh", "softmax_kept_backward<bf16, true, 4>"),
    ("cuda/kernels/loss.cuh", "loss_of_few<float, true>"),
    ("cuda/kernels/loss.cuh", "loss_rows<bf16, true>"),
    ("cuda/kernels/loss.cuh", "loss_rows_backward<bf16, true>"),
    ("cuda/kernels/optimizer.cuh", "optimizer_step<float, 1, 16>"),
    ("cuda/kernels/attention_plain.cuh", "plain_attention_backward_keys<float, 64, 64>"),
    ("cuda/kernels/attention_plain.cuh", "plain_attention_forward<double, 128, 16>"),
    ("cuda/kernels/optimizer.cuh", "unscale_list<bf16>"),
    ("cuda/kernels/batch_norm.cuh", "column_sums<f16, 8, true>"),
    ("cuda/kernels/batch_norm.cuh", "plane_map_back<double, 2>"),
    ("cuda/kernels/pool.cuh", "max_pool_grad<bf16, 8>"),
    ("cuda/kernels/rnn.cuh", "lstm_backward<double>"),
    ("cuda/kernels/rnn.cuh", "gru_forward<float>"),
    ("cuda/kernels/random.cuh", "random_fill<NormalFloat>"),
    ("cuda/kernels/pointwise.cuh", "pointwise_flat<identity_row, 0, float, 4, 2, f8_e4m3fn, float>"),
    ("cuda/kernels/pointwise.cuh", "pointwise_strided<identity_row, 0, c64, 4, 2, double, c32>"),
]


@pytest.mark.parametrize("file, instance", KERNELS)
@pytest.mark.parametrize("arch", [80, 90, 100])
def test_kernels_compile(file, instance, arch):
    image = wisp._core._operators["_cuda"]["compile"](file, instance, arch, False)
    assert image[:4] == b"\x7fELF"
