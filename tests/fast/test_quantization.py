"""Weights in 8 bits, layers folded together, and what is refused."""

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


def test_static_quantization_is_refused():
    with pytest.raises(NotImplementedError, match="quantize_dynamic"):
        quantization.convert(quantization.prepare(nn.Sequential(quantization.QuantStub(), nn.Linear(1, 1))))


@pytest.mark.parametrize("name", ["wisp.ao.quantization", "wisp.ao.nn.qat", "wisp.ao.nn.quantized.dynamic"])
def test_examples(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_linear_trains_through_rounded_weights():
    layer = wisp.ao.nn.qat.Linear(3, 2, qconfig=quantization.get_default_qconfig())
    x = wisp.eye(3)
    steps = (layer(x) - layer.bias).detach().T / (layer.weight.detach().abs().max() / 127.5)
    wisp.testing.assert_close(steps, steps.round(), atol=1e-3, rtol=0)
    layer(x).sum().backward()
    assert bool((layer.weight.grad == 1).sum() >= 5)


def test_modules_do_not_hide_functions_of_their_name():
    for name in ("fuse_modules", "quantize"):
        module = importlib.import_module(f"wisp.ao.quantization.{name}")
        assert callable(getattr(quantization, name)) and getattr(module, name) is getattr(quantization, name)
