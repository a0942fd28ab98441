"""Recurrent layers: the fused operator equals the plain formula, forward, backward and twice backward."""
import pytest

import wisp
from wisp import nn
from wisp.nn.modules import rnn as rnn_module

MODES = ["RNN_TANH", "RNN_RELU", "LSTM", "GRU"]


def inputs(mode, dtype=wisp.float64, steps=5, batch=3, size=4):
    wisp.manual_seed(0)
    gates = rnn_module._GATES[mode] * size
    x = wisp.randn(steps, batch, gates, dtype=dtype, requires_grad=True)
    w = wisp.randn(gates, size, dtype=dtype, requires_grad=True)
    b = wisp.randn(gates, dtype=dtype, requires_grad=True) if mode == "GRU" else None
    state = [wisp.randn(batch, size, dtype=dtype, requires_grad=True) for _ in range(2 if mode == "LSTM" else 1)]
    return x, w, b, state


def both(mode, reverse, x, w, b, state):
    fused = rnn_module._FusedLayer.apply(mode, reverse, x, w, b, *state)
    out, last = rnn_module._run_steps(mode, x, tuple(state), w, b, None, reverse)
    return fused, (out, *last)


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_fused_equals_steps(mode, reverse, dtype):
    x, w, b, state = inputs(mode, dtype, steps=7, batch=37, size=19)
    fused, plain = both(mode, reverse, x, w, b, state)
    tolerance = 1e-4 if dtype == wisp.float32 else 1e-9
    grads = []
    for outputs in (fused, plain):
        leaves = [t for t in (x, w, b, *state) if t is not None]
        weights = [wisp.linspace(-1, 1, y.numel(), dtype=dtype).view(y.shape) for y in outputs]
        grads.append(wisp.autograd.grad([(y * v).sum() for y, v in zip(outputs, weights)], leaves))
    for a, p in zip((*fused, *grads[0]), (*plain, *grads[1])):
        assert a.shape == p.shape and wisp.allclose(a, p, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("which", ["output", "state"])
@pytest.mark.parametrize("mode", MODES)
def test_part_of_the_results(mode, which):
    x, w, b, state = inputs(mode)
    fused, plain = both(mode, False, x, w, b, state)
    pick = (lambda r: r[0][2]) if which == "output" else (lambda r: r[-1])
    got, want = (wisp.autograd.grad(pick(r).square().sum(), [x, w, *state]) for r in (fused, plain))
    assert all(wisp.allclose(a, p) for a, p in zip(got, want))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives(mode, reverse):
    x, w, b, state = inputs(mode)
    results = []
    for outputs in both(mode, reverse, x, w, b, state):
        leaves = [t for t in (x, w, b, *state) if t is not None]
        first = wisp.autograd.grad(outputs[0].square().sum() + outputs[-1].sum(), leaves, create_graph=True)
        results.append(wisp.autograd.grad(sum(g.square().sum() for g in first), leaves))
    assert all(wisp.allclose(a, p) for a, p in zip(*results))


def test_no_batch_and_empty():
    lstm = nn.LSTM(3, 4)
    out, (h, c) = lstm(wisp.zeros(5, 0, 3))
    assert out.shape == (5, 0, 4) and h.shape == (1, 0, 4)
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        lstm(wisp.zeros(0, 2, 3))
    with wisp.no_grad():
        assert not lstm(wisp.zeros(2, 3))[0].requires_grad


def test_half_precision_takes_the_steps():
    gru = nn.GRU(3, 4).to(wisp.bfloat16)
    out, h = gru(wisp.ones(2, 1, 3, dtype=wisp.bfloat16))
    assert out.dtype == wisp.bfloat16
    out.sum().backward()


@pytest.mark.parametrize("threads", [1, 2])
def test_thread_count_does_not_show(threads):
    before = wisp.get_num_threads()
    x, w, b, state = inputs("LSTM", wisp.float32, steps=30, batch=70, size=64)
    want = rnn_module._FusedLayer.apply("LSTM", False, x, w, b, *state)[0]
    try:
        wisp.set_num_threads(threads)
        got = rnn_module._FusedLayer.apply("LSTM", False, x, w, b, *state)[0]
    finally:
        wisp.set_num_threads(before)
    assert (got == want).all()
