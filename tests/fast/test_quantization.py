"""Weights in 8 bits, layers folded together, and models in integers."""

import copy
import doctest
import importlib

import pytest

import wisp
from wisp import nn
from wisp.ao import quantization


def test_dynamic_quantization_is_close_and_small():
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), wisp.rand(5, 64)
    small = quantization.quantize_dynamic(model, {nn.Linear}, dtype=wisp.qint8)
    assert (small(x) - model(x)).abs().max() < 0.02 and small[0].weight_int8.dtype is wisp.int8
    other = quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear})
    other.load_state_dict(small.state_dict())
    assert wisp.equal(other(x), small(x)) and type(model[0]) is nn.Linear


def test_recurrent_layers():
    layer, x = nn.LSTM(8, 16, 2, bidirectional=True, batch_first=True), wisp.rand(2, 3, 8)
    small = quantization.quantize_dynamic(layer, {nn.LSTM})
    assert (small(x)[0] - layer(x)[0]).abs().max() < 0.02


def test_batch_normalisation_is_folded():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU())
    model(wisp.rand(4, 1, 8, 8))
    model.eval()
    x = wisp.rand(1, 1, 8, 8)
    wisp.testing.assert_close(quantization.fuse_modules(model, [["0", "1", "2"]])(x), model(x), rtol=1e-4, atol=1e-5)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.conv, self.skip = nn.Conv2d(4, 4, 3, padding=1), wisp.ao.nn.quantized.FloatFunctional()
        self.pool, self.act, self.last = nn.MaxPool2d(2), nn.Hardswish(), nn.Linear(36, 3)

    def forward(self, x):
        x = self.stem(self.quant(x))
        x = self.pool(self.act(self.skip.add_relu(x, self.conv(x))))
        return self.dequant(self.last(wisp.flatten(x, 1)))


def prepared():
    wisp.manual_seed(0)
    model = Small()
    model(wisp.randn(16, 1, 8, 8))  # statistics
    return model, wisp.randn(32, 1, 8, 8)


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
def test_a_model_in_integers_is_close_to_the_plain_one(backend):
    model, x = prepared()
    model = quantization.fuse_modules(model.eval(), [["stem.0", "stem.1", "stem.2"]])
    model.qconfig = quantization.get_default_qconfig(backend)
    seen = quantization.prepare(model)
    plain = model(x)
    assert wisp.equal(seen(x), plain)  # looking changes nothing
    small = quantization.convert(seen)
    assert 0 < (small(x) - plain).abs().max() < 0.1 * plain.abs().max()
    assert isinstance(small.act, wisp.ao.nn.quantized.Hardswish)
    inner = small.stem(small.quant(x))
    assert inner.is_quantized and inner.dtype is wisp.quint8 and small.pool(inner).q_scale() == inner.q_scale()
    weight = small.stem[0].weight()
    kind = wisp.per_tensor_affine if backend == "qnnpack" else wisp.per_channel_affine
    assert weight.dtype is wisp.qint8 and weight.qscheme() is kind and str(small.stem[0]).startswith("QuantizedConvReLU2d(1, 4")
    again = quantization.convert(quantization.prepare(model))
    again.load_state_dict(small.state_dict())
    assert wisp.equal(again(x), small(x)) and wisp.equal(copy.deepcopy(small)(x), small(x))
    with pytest.raises(NotImplementedError, match="QuantStub"):
        small.last(wisp.ones(1, 36))


def test_a_part_without_qconfig_stays_plain():
    model, x = prepared()
    model.qconfig, model.eval().last.qconfig = quantization.default_qconfig, None
    seen = quantization.prepare(model)
    seen(x)
    assert type(quantization.convert(seen).last) is nn.Linear
    with pytest.warns(UserWarning, match="no module has a qconfig"):
        quantization.prepare(nn.Sequential(nn.Linear(1, 1)))


def test_training_for_integers():
    model, x = prepared()
    model = quantization.fuse_modules_qat(model.train(), [["stem.0", "stem.1", "stem.2"]])
    model.qconfig = quantization.get_default_qat_qconfig()
    model = quantization.prepare_qat(model)
    optimizer, losses = wisp.optim.SGD(model.parameters(), 0.05), []
    for step in range(20):
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step == 15:
            model.apply(quantization.disable_observer)
            model.apply(wisp.ao.nn.intrinsic.qat.freeze_bn_stats)
            frozen = model.stem[0].bn.running_mean.clone(), model.quant.activation_post_process.scale.clone()
    assert losses[-1] < 0.5 * losses[0]
    assert wisp.equal(model.stem[0].bn.running_mean, frozen[0]) and wisp.equal(model.quant.activation_post_process.scale, frozen[1])
    model.eval()
    steps = model(x) / model.last.activation_post_process.scale
    wisp.testing.assert_close(steps, steps.round(), atol=1e-3, rtol=0)  # results are whole steps
    small = quantization.convert(model)
    assert (small(x) - model(x)).abs().mean() < 1.5 * float(small.last.scale)


def test_observers_choose_scales():
    x = wisp.tensor([[-1.0, 0.5], [2.0, 3.1]])
    both = quantization.PerChannelMinMaxObserver(dtype=wisp.qint8, qscheme=wisp.per_channel_symmetric)
    both(x)
    wisp.testing.assert_close(both.calculate_qparams()[0], wisp.tensor([1.0, 3.1]) / 127.5)
    slow = quantization.MovingAverageMinMaxObserver(averaging_constant=0.5, reduce_range=True)
    slow(x)
    slow(2 * x)
    scale, zero_point = slow.calculate_qparams()
    wisp.testing.assert_close(scale, wisp.tensor([(1.5 + 4.65) / 127]))
    assert zero_point.item() == round(1.5 / scale.item())
    far = quantization.HistogramObserver()
    far(wisp.cat([wisp.linspace(-1, 1, 1000000), wisp.tensor([10.0])]))
    assert far.calculate_qparams()[0].item() < 0.01  # one far value does not take the others' steps away
    assert quantization.MinMaxObserver.with_args(quant_min=0, quant_max=127).with_args(reduce_range=True)().quant_max == 63


@pytest.mark.parametrize(
    "name",
    ["wisp.ao.quantization", "wisp.ao.quantization._observers", "wisp.ao.nn.qat", "wisp.ao.nn.quantized", "wisp.ao.nn.quantized.dynamic"],
)
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_linear_trains_through_rounded_weights():
    layer = wisp.ao.nn.qat.Linear(3, 2, qconfig=quantization.get_default_qat_qconfig())
    x = wisp.eye(3)
    steps = (layer(x) - layer.bias).detach().T / (layer.weight.detach().abs().amax(1, keepdim=True) / 127.5)
    wisp.testing.assert_close(steps, steps.round(), atol=1e-3, rtol=0)
    layer(x).sum().backward()
    assert bool((layer.weight.grad == 1).sum() >= 5)


def test_modules_do_not_hide_functions_of_their_name():
    for name in ("fuse_modules", "quantize"):
        module = importlib.import_module(f"wisp.ao.quantization.{name}")
        assert callable(getattr(quantization, name)) and getattr(module, name) is getattr(quantization, name)
