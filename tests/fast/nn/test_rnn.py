"""Recurrent layers: the fused operator equals the plain formula, forward, backward and twice backward."""

import pytest

import wisp
from wisp import nn
from wisp.nn.modules import rnn as rnn_module


def leaves_of(arguments):
    _, x, weights, state = arguments
    return [t for t in (x, *weights, *state) if t is not None]


MODES = ["RNN_TANH", "RNN_RELU", "LSTM", "GRU"]


def inputs(mode, dtype=wisp.float64, steps=5, batch=3, size=4, features=6, width=None, lengths=None):
    """What the fused layer takes: batch_sizes (None: not packed), the input, five weights, the state."""
    wisp.manual_seed(0)
    gates, width = rnn_module._GATES[mode] * size, width or size

    def leaf(*shape):
        return wisp.randn(*shape, dtype=dtype).mul_(0.5).requires_grad_()

    batch_sizes = lengths and [sum(n > t for n in lengths) for t in range(max(lengths))]
    x = leaf(steps, batch, features) if lengths is None else leaf(sum(lengths), features)
    batch = batch if lengths is None else len(lengths)
    weights = [leaf(gates, features), leaf(gates, width), leaf(gates), leaf(gates)]
    weights.append(leaf(width, size) if width != size else None)
    return batch_sizes, x, weights, [leaf(batch, width)] + [leaf(batch, size)] * (mode == "LSTM")


def both(mode, reverse, batch_sizes, x, weights, state):
    return tuple(layer(operator, mode, reverse, batch_sizes, x, weights, state) for operator in ("_rnn_layer", "_rnn_steps"))


def layer(operator, mode, reverse, batch_sizes, x, weights, state):
    state = [*state, *[None] * (2 - len(state))]
    results = getattr(wisp._core, operator)(rnn_module._MODES.index(mode), reverse, x, batch_sizes, *weights, *state)
    return tuple(t for t in results if t is not None)


SHAPES = [
    dict(steps=7, batch=37, size=19),
    dict(steps=1, batch=2),
    dict(steps=3, batch=20, size=33, features=600),
    dict(lengths=[9, 7, 7, 4, 1, 1]),
    dict(lengths=[6] * 5 + [2] * 30, size=9),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_fused_equals_steps(mode, reverse, dtype, shape):
    check(inputs(mode, dtype, **shape), mode, reverse, dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [dict(width=2), dict(width=2, lengths=[5, 3, 1]), dict(width=7, batch=40)])
def test_projections(shape, reverse):
    check(inputs("LSTM", **shape), "LSTM", reverse, wisp.float64)


def check(arguments, mode, reverse, dtype):
    fused, plain = both(mode, reverse, *arguments)
    leaves = leaves_of(arguments)
    tolerance = 1e-4 if dtype == wisp.float32 else 1e-9
    grads = []
    for outputs in (fused, plain):
        weights = [wisp.linspace(-1, 1, y.numel(), dtype=dtype).view(y.shape) for y in outputs]
        grads.append(wisp.autograd.grad([(y * v).sum() for y, v in zip(outputs, weights)], leaves))
    for a, p in zip((*fused, *grads[0]), (*plain, *grads[1])):
        assert a.shape == p.shape and wisp.allclose(a, p, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("which", ["output", "state"])
@pytest.mark.parametrize("mode", MODES)
def test_part_of_the_results(mode, which):
    arguments = inputs(mode)
    fused, plain = both(mode, False, *arguments)
    pick = (lambda r: r[0][2]) if which == "output" else (lambda r: r[-1])
    got, want = (wisp.autograd.grad(pick(r).square().sum(), leaves_of(arguments), allow_unused=True) for r in (fused, plain))
    assert all(wisp.allclose(a, p) for a, p in zip(got, want))


@pytest.mark.parametrize("shape", [{}, dict(lengths=[4, 3, 1])])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives(mode, reverse, shape):
    arguments = inputs(mode, **shape)
    results, leaves = [], leaves_of(arguments)
    for outputs in both(mode, reverse, *arguments):
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
    batch_sizes, x, weights, state = inputs("LSTM", wisp.float32, steps=30, batch=70, size=64)
    want = layer("_rnn_layer", "LSTM", False, batch_sizes, x, weights, state)[0]
    try:
        wisp.set_num_threads(threads)
        got = layer("_rnn_layer", "LSTM", False, batch_sizes, x, weights, state)[0]
    finally:
        wisp.set_num_threads(before)
    assert (got == want).all()


@pytest.mark.parametrize("lengths", [None, [5, 5, 3, 1]])
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_no_state_is_zeros(name, lengths):
    layer = getattr(wisp.nn, name)(6, 20, num_layers=2, bidirectional=True)
    x = wisp.randn(5, 4, 6)
    if lengths:
        x = wisp.nn.utils.rnn.pack_padded_sequence(x, lengths)
    zeros = wisp.zeros(4, 4, 20)
    found = []
    for state in (None, (zeros, zeros) if name == "LSTM" else zeros):
        out = layer(x, state)[0]
        out = out.data if lengths else out
        found.append((out, *wisp.autograd.grad(out.square().sum(), list(layer.parameters()))))
    for a, b in zip(*found):
        assert wisp.allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
def test_saturated_and_bad_inputs(name):
    layer = getattr(wisp.nn, name)(1, 16)
    with wisp.no_grad():
        for weight in layer.parameters():
            weight.fill_(1)
        out = layer(wisp.tensor([float("inf"), -float("inf"), float("nan"), 1e30, -1e30]).view(1, 5, 1))[0]
    assert out.isnan().any(-1).tolist() == [[False, False, True, False, False]]
    assert (out[0, 0] == out[0, 3]).all() and (out[0, 1] == out[0, 4]).all()


def test_an_lstm_wants_a_pair():
    lstm, x = nn.LSTM(3, 4), wisp.ones(5, 2, 3)
    for state in (wisp.ones(1, 2, 4), (wisp.ones(1, 2, 4),)):
        with pytest.raises(RuntimeError, match=r"the state is a pair \(h, c\), each of size \[1, 2, 4\], got"):
            lstm(x, state)


def test_the_list_of_weights_can_be_given():
    layer, other = wisp.nn.GRU(2, 3), wisp.nn.GRU(2, 3)
    layer._flat_weights = other._flat_weights
    x = wisp.rand(4, 1, 2)
    assert layer.weight_hh_l0 is other.weight_hh_l0 and wisp.equal(layer(x)[0], other(x)[0])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"bias": False, "batch_first": True}, {"num_layers": 2, "bidirectional": True}])
def test_networks_are_functions_too(kind, options):
    module = getattr(nn, kind)(3, 4, **options)
    function = {"LSTM": wisp.lstm, "GRU": wisp._VF.gru, "RNN": wisp.rnn_tanh}[kind]
    x, rows = wisp.randn(5, 5, 3), module.num_layers * (1 + module.bidirectional)
    state = tuple(wisp.randn(rows, 5, 4) for _ in range(2 if kind == "LSTM" else 1))
    hx = state if kind == "LSTM" else state[0]
    rest = (module._flat_weights, module.bias, module.num_layers, 0.0, True, module.bidirectional)
    expected, last = module(x, hx)
    output, *states = function(x, hx, *rest, module.batch_first)
    assert wisp.equal(output, expected) and all(map(wisp.equal, states, last if kind == "LSTM" else [last]))
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 4, 2, 2, 1])
    expected, _ = module(packed, hx)
    assert wisp.equal(function(packed.data, packed.batch_sizes, hx, *rest)[0], expected.data)


def test_a_network_as_a_function_has_projections():
    module, x, hx = nn.LSTM(3, 4, proj_size=2), wisp.randn(5, 1, 3), (wisp.zeros(1, 1, 2), wisp.zeros(1, 1, 4))
    output = wisp.lstm(x, hx, module._flat_weights, True, 1, 0.0, False, False, batch_first=False)[0]
    assert wisp.equal(output, module(x)[0])
    with pytest.raises(TypeError, match=r"lstm\(\) takes \(input, hx, params"):
        wisp.lstm(x, hx, module._flat_weights)
