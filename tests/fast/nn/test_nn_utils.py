"""nn.utils and nn.init."""

import math

import pytest

import wisp
from wisp import func, nn
from wisp.nn import init, utils
from wisp.nn.utils import parametrize, prune
from wisp.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpack_sequence, unpad_sequence


def test_clip():
    p, q = wisp.zeros(2, requires_grad=True), wisp.zeros(1, requires_grad=True)
    p.grad, q.grad = wisp.tensor([3.0, 0.0]), wisp.tensor([4.0])
    assert utils.clip_grad_norm_([p, q], 1.0).item() == 5
    assert abs(q.grad.item() - 0.8) < 1e-5
    assert utils.clip_grad_norm_([p, q], 10.0).item() == pytest.approx(1, abs=1e-5)
    assert abs(q.grad.item() - 0.8) < 1e-5
    utils.clip_grad_value_([p, q], 0.5)
    assert q.grad.item() == 0.5 and p.grad.tolist() == [0.5, 0]
    assert utils.clip_grad_norm_([p, q], 1.0, math.inf).item() == 0.5
    q.grad = wisp.tensor([math.inf])
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(q, 1.0, error_if_nonfinite=True)
    assert utils.clip_grad_norm_([], 1.0).item() == 0


def test_clipping_of_more_gradients_than_a_part_has():
    def parameters(dtypes, without):
        made = [wisp.zeros(2, dtype=dtypes[i % len(dtypes)], requires_grad=True) for i in range(2500)]
        for i, p in enumerate(made):
            if i not in without:
                p.grad = wisp.full((2,), float(i % 5), dtype=p.dtype)
        return made

    squares = [2.0 * (i % 5) ** 2 for i in range(2500)]
    for dtypes in ((wisp.float32,), (wisp.float32, wisp.float64), (wisp.complex64,)):
        for without in ((), range(1000, 2200)):  # a whole part has none
            total = math.sqrt(sum(s for i, s in enumerate(squares) if i not in without))
            for given in (list, iter):
                made = parameters(dtypes, without)
                assert utils.clip_grad_norm_(given(made), 1.0).item() == pytest.approx(total)
                for i in (0, 3, 999, 1029, 2204, 2499):
                    expected = None if i in without else pytest.approx([i % 5 / total] * 2, rel=1e-4)
                    assert (made[i].grad if made[i].grad is None else abs(made[i].grad).tolist()) == expected


def test_vectors():
    layer = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (8,)
    utils.vector_to_parameters(wisp.arange(8.0), layer.parameters())
    assert layer.bias.tolist() == [6, 7] and layer.weight[1].tolist() == [3, 4, 5]


def test_padding():
    sequences = [wisp.tensor([1.0, 2, 3]), wisp.tensor([4.0]), wisp.tensor([5.0, 6])]
    padded = pad_sequence(sequences, batch_first=True, padding_value=-1)
    assert padded.tolist() == [[1, 2, 3], [4, -1, -1], [5, 6, -1]]
    assert pad_sequence(sequences, padding_side="left")[:, 1].tolist() == [0, 0, 4]
    assert [s.tolist() for s in unpad_sequence(padded, wisp.tensor([3, 1, 2]), batch_first=True)] == [[1, 2, 3], [4], [5, 6]]


def test_packing():
    padded = wisp.tensor([[1.0, 2, 3], [4, 0, 0], [5, 6, 0]], requires_grad=True)
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        pack_padded_sequence(padded, [3, 1, 2], batch_first=True)
    packed = pack_padded_sequence(padded, wisp.tensor([3, 1, 2]), batch_first=True, enforce_sorted=False)
    assert packed.data.tolist() == [1, 5, 4, 2, 6, 3] and packed.batch_sizes.tolist() == [3, 2, 1]
    back, lengths = pad_packed_sequence(packed, batch_first=True, padding_value=9)
    assert back.tolist() == [[1, 2, 3], [4, 9, 9], [5, 6, 9]] and lengths.tolist() == [3, 1, 2]
    back.sum().backward()
    assert padded.grad.tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert pad_packed_sequence(packed, total_length=5)[0].shape == (5, 3)
    sequences = [wisp.tensor([1, 2]), wisp.tensor([3, 4, 5])]
    assert [s.tolist() for s in unpack_sequence(pack_sequence(sequences, enforce_sorted=False))] == [[1, 2], [3, 4, 5]]


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_packed_rnn_equals_single_sequences(kind):
    rnn = kind(3, 4, num_layers=2, bidirectional=True)
    sequences = [wisp.randn(n, 3) for n in (2, 5, 3)]
    packed, state = rnn(pack_sequence(sequences, enforce_sorted=False))
    output, lengths = pad_packed_sequence(packed)
    for i, sequence in enumerate(sequences):
        single, single_state = rnn(sequence)
        assert wisp.allclose(output[: lengths[i].item(), i], single, atol=1e-5)
        for a, b in zip(state if kind is nn.LSTM else [state], single_state if kind is nn.LSTM else [single_state]):
            assert wisp.allclose(a[:, i], b, atol=1e-5)


def test_parametrize():
    class Double(nn.Module):
        calls = 0

        def forward(self, x):
            Double.calls += 1
            return x * 2

        def right_inverse(self, x):
            return x / 2

    layer = nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Double())
    assert wisp.allclose(layer.weight, before)
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert type(layer).__name__ == "ParametrizedLinear" and parametrize.is_parametrized(layer, "weight")
    layer.weight = wisp.ones(2, 2)
    assert (layer.parametrizations.weight.original == 0.5).all() and (layer.weight == 1).all()
    layer(wisp.ones(1, 2)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    Double.calls = 0
    with parametrize.cached():
        layer.weight, layer.weight
    assert Double.calls == 1
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and (layer.weight == 1).all() and "weight" in layer._parameters


def test_prune():
    layer = nn.Linear(4, 4)
    prune.l1_unstructured(layer, "weight", 0.5)
    assert int((layer.weight == 0).sum()) == 8 and prune.is_pruned(layer)
    prune.ln_structured(layer, "weight", 1, 2, 0)
    layer(wisp.ones(1, 4)).sum().backward()
    assert ((layer.weight_orig.grad == 0) == (layer.weight_mask == 0)).all()
    prune.remove(layer, "weight")
    assert "weight" in layer._parameters and int((layer.weight == 0).sum()) >= 8


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weight_norm_round_trip():
    layer = nn.Linear(3, 2)
    x = wisp.ones(1, 3)
    before = layer(x)
    utils.weight_norm(layer)
    assert wisp.allclose(layer(x), before, atol=1e-6)
    with wisp.no_grad():
        layer.weight_g.mul_(2)
    assert wisp.allclose(layer(x) - layer.bias, 2 * (before - layer.bias), atol=1e-5)
    utils.remove_weight_norm(layer)
    assert not layer._forward_pre_hooks and "weight" in layer._parameters


def test_functional_call():
    layer = nn.Linear(2, 2)
    before = layer.weight
    weight = wisp.eye(2, requires_grad=True)
    out = utils.stateless.functional_call(layer, {"weight": weight, "bias": wisp.zeros(2)}, (wisp.ones(1, 2),))
    assert out.tolist() == [[1, 1]] and layer.weight is before
    out.sum().backward()
    assert weight.grad is not None and before.grad is None
    with pytest.raises(AttributeError):
        utils.stateless.functional_call(layer, {"nope.x": weight}, wisp.ones(1, 2))
    with pytest.raises(RuntimeError, match="Missing key"):
        utils.stateless.functional_call(layer, {"weight": weight}, wisp.ones(1, 2), strict=True)


def test_init_statistics():
    w = wisp.empty(200, 300)
    assert abs(init.normal_(w, 1.0, 0.5).std().item() - 0.5) < 0.01
    init.xavier_uniform_(w)
    assert w.abs().max().item() <= math.sqrt(6 / 500) and abs(w.std().item() - math.sqrt(2 / 500)) < 1e-3
    assert abs(init.kaiming_normal_(w, nonlinearity="relu").std().item() - math.sqrt(2 / 300)) < 1e-3
    init.trunc_normal_(w, std=1.0, a=-1.0, b=1.0)
    assert w.min().item() >= -1 and w.max().item() <= 1 and abs(w.std().item() - 0.54) < 0.01
    assert init.eye_(wisp.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert init.dirac_(wisp.empty(2, 2, 3)).tolist() == [[[0, 1, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0]]]
    assert int((init.sparse_(wisp.empty(10, 4), 0.3) == 0).sum()) == 12
    q = init.orthogonal_(wisp.empty(4, 6))
    assert wisp.allclose(q @ q.t(), wisp.eye(4), atol=1e-5)
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        init.xavier_normal_(wisp.empty(3))
    assert init.constant_(nn.Parameter(wisp.zeros(2)), 3).requires_grad


def test_parametrizations_that_do_not_fit_are_refused():
    class Inverse(nn.Module):
        def __init__(self, inverse, forward=lambda *x: x[0]):
            super().__init__()
            self.right_inverse, self.map = inverse, forward

        def forward(self, *x):
            return self.map(*x)

    for inverse, forward, what in (
        (lambda w: w.to("meta"), lambda x: x, "may not change the device"),
        (lambda w: (w, w), lambda x, y: (x + y).bool(), "may not change the dtype"),
        (lambda w: w, lambda x: x[:1], "may not change the shape"),
    ):
        layer = nn.Linear(3, 2)
        with pytest.raises(ValueError, match=what):
            parametrize.register_parametrization(layer, "weight", Inverse(inverse, forward))
        assert not parametrize.is_parametrized(layer)
    layer = parametrize.register_parametrization(nn.Linear(3, 2), "weight", Inverse(lambda w: w))
    for inverse, what in ((lambda w: w.bool(), "must have the same dtype"), (lambda w: w[:1], "must have the same shape")):
        with pytest.raises(ValueError, match=what):
            parametrize.register_parametrization(layer, "weight", Inverse(inverse))


def test_spectral_norm_of_complex_weights():
    layer = nn.Linear(2, 2, bias=False, dtype=wisp.complex64)
    with wisp.no_grad():
        layer.weight.copy_(wisp.diag(wisp.tensor([3j, 1 + 0j])))
    utils.parametrizations.spectral_norm(layer)
    for _ in range(20):
        layer.weight
    wisp.testing.assert_close(layer.weight.detach().abs(), wisp.tensor([[1.0, 0.0], [0.0, 1 / 3]]), atol=1e-5, rtol=1e-5)


def test_truncated_normal_of_no_data():
    assert init.trunc_normal_(wisp.empty(2, 3, device="meta")).shape == (2, 3)  # as for models whose weights come later


def test_truncated_normal_of_half_types_in_the_tail():
    t = wisp.empty(4000, dtype=wisp.bfloat16)
    with pytest.warns(UserWarning, match="mean is more than 2 std"):
        init.trunc_normal_(t, mean=-3.0, std=1.0, a=-0.5, b=0.5)
    wide = wisp.empty(4000)
    with pytest.warns(UserWarning, match="mean is more than 2 std"):
        init.trunc_normal_(wide, mean=-3.0, std=1.0, a=-0.5, b=0.5)
    assert t.min() >= -0.5 and t.max() <= 0.5
    assert abs(t.float().mean() - wide.mean()) < 0.03


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_gradients_of_every_sample(reduction):
    from wisp.nn.utils._per_sample_grad import call_for_per_sample_grads

    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))
    net[4].bias.requires_grad_(False)
    x, y = wisp.randn(5, 2, 3, 3), wisp.randint(0, 3, (5,))
    loss = wisp.nn.functional.cross_entropy
    loss(call_for_per_sample_grads(net, loss_reduction=reduction)(x), y, reduction=reduction).backward()
    for i in range(5):
        net.zero_grad()
        loss(net(x[i : i + 1]), y[i : i + 1]).backward()
        for parameter in net[:4].parameters():
            wisp.testing.assert_close(parameter.grad_sample[i], parameter.grad, rtol=1e-4, atol=1e-5)
    assert net[4].bias.grad is None and not hasattr(net[4].bias, "grad_sample")
    with pytest.raises(RuntimeError, match="clear out the grad_sample"):
        call_for_per_sample_grads(net)
    with pytest.raises(RuntimeError, match="sum or mean"):
        call_for_per_sample_grads(nn.Linear(2, 2), loss_reduction="max")
    with pytest.raises(RuntimeError, match=r"different sizes \[2, 3\]"):
        call_for_per_sample_grads(nn.Bilinear(2, 2, 2))(wisp.ones(2, 2), wisp.ones(3, 2))


def test_functional_call_takes_none_new_parameters_and_modules_that_contain_themselves():
    layer = nn.Linear(2, 2)
    assert func.functional_call(layer, {"weight": wisp.eye(2), "bias": None}, wisp.ones(1, 2)).tolist() == [[1, 1]]
    assert layer.bias is not None
    outer = nn.Sequential(layer)
    layer.outer = outer
    twice = func.functional_call(outer, {"0.outer.0.weight": 2 * wisp.eye(2), "0.bias": None}, wisp.ones(1, 2), tie_weights=False)
    assert twice.tolist() == [[2, 2]]
    del layer.outer

    class Lists(nn.Linear):
        def forward(self, x):
            return [name for name, _ in self.named_parameters()]

    extra = nn.Parameter(wisp.ones(1))
    assert func.functional_call(Lists(2, 2), {"extra": extra}, wisp.ones(1, 2)) == ["weight", "bias", "extra"]
    with pytest.warns(FutureWarning, match="torch.func.functional_call"):
        utils.stateless.functional_call(layer, {}, wisp.ones(1, 2))


def test_a_functional_call_replaces_no_number_by_a_tensor():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = 2.0

        def forward(self, x):
            return x * self.factor

    module = Scaled()
    with pytest.raises(TypeError, match="attribute `factor`: 2.0 is not an instance of torch.Tensor"):
        wisp.func.functional_call(module, {"factor": wisp.tensor(3.0)}, (wisp.ones(1),))
    assert module.factor == 2.0
