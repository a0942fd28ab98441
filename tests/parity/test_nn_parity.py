"""Layers side by side with torch: the same parameters and inputs give the same results, gradients, names and reprs."""

import inspect
import warnings

import numpy as np
import pytest
import torch

import wisp

warnings.simplefilter("ignore")

# class, constructor arguments, keyword arguments, shapes (or integer arrays) given to forward
LAYERS = [
    ("Linear", (4, 3), {}, [(5, 4)]),
    ("Linear", (4, 3), {"bias": False}, [(2, 5, 4)]),
    ("Bilinear", (4, 3, 2), {}, [(5, 4), (5, 3)]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [(2, 4, 9)]),
    ("Conv2d", (3, 4, 3), {"padding": "same", "dilation": 2}, [(2, 3, 8, 7)]),
    ("Conv2d", (3, 4, (3, 2)), {"padding": 1, "padding_mode": "reflect"}, [(3, 8, 7)]),
    ("Conv2d", (3, 4, 3), {"padding": 1, "padding_mode": "circular", "bias": False}, [(1, 3, 5, 6)]),
    ("Conv3d", (2, 3, 2), {}, [(1, 2, 4, 4, 4)]),
    ("ConvTranspose1d", (4, 3, 3), {"stride": 2, "output_padding": 1}, [(2, 4, 5)]),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [(2, 4, 5, 5)]),
    ("ConvTranspose3d", (2, 3, 2), {"dilation": 2}, [(1, 2, 3, 3, 3)]),
    ("BatchNorm1d", (4,), {}, [(6, 4)]),
    ("BatchNorm2d", (4,), {"momentum": None}, [(6, 4, 3, 3)]),
    ("BatchNorm2d", (4,), {"affine": False, "track_running_stats": False}, [(6, 4, 3, 3)]),
    ("InstanceNorm2d", (4,), {"affine": True, "track_running_stats": True}, [(6, 4, 3, 3)]),
    ("LayerNorm", ((3, 4),), {}, [(2, 3, 4)]),
    ("RMSNorm", (4,), {}, [(2, 3, 4)]),
    ("GroupNorm", (2, 6), {}, [(2, 6, 3)]),
    ("LocalResponseNorm", (2,), {}, [(2, 5, 3, 3)]),
    ("Embedding", (7, 3), {"padding_idx": -1}, [np.arange(8).reshape(2, 4) % 7]),
    ("EmbeddingBag", (7, 3), {"mode": "sum"}, [np.arange(8).reshape(2, 4) % 7]),
    ("PReLU", (3,), {}, [(2, 3, 4)]),
    ("MaxPool2d", (2,), {"padding": 1, "return_indices": True}, [(1, 2, 6, 6)]),
    ("AvgPool2d", (3,), {"stride": 2, "ceil_mode": True}, [(1, 2, 6, 6)]),
    ("AdaptiveAvgPool2d", ((3, None),), {}, [(1, 2, 7, 5)]),
    ("LPPool2d", (2, 3), {}, [(1, 2, 7, 7)]),
    ("Unfold", (2,), {"padding": 1}, [(1, 2, 4, 4)]),
    ("Upsample", (), {"scale_factor": 2, "mode": "bilinear"}, [(1, 2, 4, 4)]),
    ("ReflectionPad2d", ((1, 2, 0, 1),), {}, [(1, 2, 4, 4)]),
    ("RNN", (3, 4), {"nonlinearity": "relu", "num_layers": 2}, [(5, 2, 3)]),
    ("LSTM", (3, 4), {"batch_first": True, "bidirectional": True, "num_layers": 2}, [(2, 5, 3)]),
    ("LSTM", (3, 4), {"proj_size": 2}, [(5, 2, 3)]),
    ("GRU", (3, 4), {"bias": False}, [(5, 3)]),
    ("RNNCell", (3, 4), {}, [(2, 3)]),
    ("LSTMCell", (3, 4), {}, [(3,)]),
    ("GRUCell", (3, 4), {}, [(2, 3), (2, 4)]),
    ("MultiheadAttention", (8, 2), {}, [(5, 2, 8), (4, 2, 8), (4, 2, 8)]),
    (
        "MultiheadAttention",
        (8, 2),
        {"add_bias_kv": True, "add_zero_attn": True, "kdim": 3, "vdim": 5, "batch_first": True},
        [(2, 5, 8), (2, 4, 3), (2, 4, 5)],
    ),
    ("TransformerEncoderLayer", (8, 2, 16, 0.0), {"norm_first": True, "batch_first": True}, [(2, 5, 8)]),
    ("TransformerDecoderLayer", (8, 2, 16, 0.0), {"activation": "gelu"}, [(5, 2, 8), (4, 2, 8)]),
    ("Transformer", (8, 2, 1, 1, 16, 0.0), {}, [(5, 2, 8), (4, 2, 8)]),
    ("AdaptiveLogSoftmaxWithLoss", (6, 12, [4, 8]), {}, [(5, 6), np.arange(5) * 2]),
]


def to_wisp(tensor):
    return wisp.from_numpy(tensor.detach().numpy().copy())


def flat(value):
    if isinstance(value, (wisp.Tensor, torch.Tensor)):
        return [value]
    return [x for v in value if v is not None for x in flat(v)] if isinstance(value, (tuple, list)) else []


def close(got, want, what):
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-7, atol=1e-9, err_msg=what)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name, args, kwargs, given", LAYERS, ids=lambda x: x if isinstance(x, str) else None)
def test_layer(name, args, kwargs, given, training):
    torch.manual_seed(0)
    reference = getattr(torch.nn, name)(*args, **kwargs).double().train(training)
    layer = getattr(wisp.nn, name)(*args, **kwargs).double().train(training)
    assert repr(layer) == repr(reference)
    state = reference.state_dict()
    assert list(layer.state_dict()) == list(state)
    layer.load_state_dict({key: to_wisp(value) for key, value in state.items()})
    inputs = [torch.randn(x, dtype=torch.float64, requires_grad=True) if isinstance(x, tuple) else torch.from_numpy(x) for x in given]
    ours = [to_wisp(x).requires_grad_(x.requires_grad) for x in inputs]
    want, got = reference(*inputs), layer(*ours)
    for a, b in zip(flat(got), flat(want)):
        assert tuple(a.shape) == tuple(b.shape)
        close(a, b, "output")
    for key, value in reference.state_dict().items():
        close(layer.state_dict()[key], value, key)
    for outputs in (flat(want), flat(got)):
        sum((x * x).sum() for x in outputs if x.requires_grad).backward()
    for a, b in zip((*ours, *layer.parameters()), (*inputs, *reference.parameters())):
        if b.grad is not None:
            close(a.grad, b.grad, "gradient")


@pytest.mark.parametrize("name", sorted(torch.nn.modules.__all__))
def test_public_name(name):
    assert hasattr(wisp.nn, name)


@pytest.mark.parametrize("mask", ["bool", "float", "padding", "both", "causal"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_masks(mask, need_weights):
    torch.manual_seed(0)
    reference, layer = torch.nn.MultiheadAttention(8, 2).double(), wisp.nn.MultiheadAttention(8, 2).double()
    layer.load_state_dict({key: to_wisp(value) for key, value in reference.state_dict().items()})
    x = torch.randn(5, 3, 8, dtype=torch.float64)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    options = {
        "bool": {"attn_mask": causal},
        "float": {"attn_mask": torch.randn(6, 5, 5, dtype=torch.float64)},
        "padding": {"key_padding_mask": padding},
        "both": {"attn_mask": causal, "key_padding_mask": padding},
        "causal": {"attn_mask": causal, "is_causal": True},
    }[mask]
    want = reference(x, x, x, need_weights=need_weights, **options)
    y = to_wisp(x)
    got = layer(y, y, y, need_weights=need_weights, **{k: to_wisp(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()})
    for a, b in zip(flat(got), flat(want)):
        close(a, b, mask)
    assert len(flat(got)) == 1 + need_weights


@pytest.mark.parametrize("settings", [{}, {"norm_first": True}, {"batch_first": False}, {"activation": "gelu"}, {"nhead": 1}])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("at_the_end", [True, False])
def test_padding_in_an_encoder(settings, grad, at_the_end):
    """In evaluation PyTorch leaves the padding out and puts zeros there, under conditions."""
    options = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True, **settings}
    theirs = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**options), 2, torch.nn.LayerNorm(8)).eval()
    ours = wisp.nn.TransformerEncoder(wisp.nn.TransformerEncoderLayer(**options), 2, wisp.nn.LayerNorm(8)).eval()
    ours.load_state_dict({name: wisp.from_numpy(value.numpy()) for name, value in theirs.state_dict().items()})
    x = torch.randn(3, 4, 8)
    mask = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 1]]).bool()
    mask = mask if at_the_end else mask.flip(1)
    y = x if options["batch_first"] else x.transpose(0, 1).contiguous()
    with torch.set_grad_enabled(grad), wisp.set_grad_enabled(grad):
        expected = theirs(y, src_key_padding_mask=mask)
        found = ours(wisp.from_numpy(y.numpy()), src_key_padding_mask=wisp.from_numpy(mask.numpy()))
    assert torch.allclose(torch.from_numpy(found.detach().numpy()), expected.detach(), atol=1e-5)


@pytest.mark.parametrize("name", ["elu", "gelu", "silu", "hardswish", "softplus", "mish", "leaky_relu", "logsigmoid"])
def test_activations_of_integers(name):
    for lib in (wisp, torch):
        with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
            getattr(lib.nn.functional, name)(lib.arange(3))


def test_probabilities_that_are_not_numbers():
    for lib in (wisp, torch):
        with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
            lib.nn.functional.binary_cross_entropy(lib.tensor([0.5, float("nan")]), lib.ones(2))


@pytest.mark.parametrize("lengths", [[3, -1], [3, 9]])
def test_impossible_targets_of_ctc(lengths):
    for lib in (wisp, torch):
        with pytest.raises(RuntimeError):
            lib.nn.functional.ctc_loss(lib.zeros(8, 2, 4), lib.ones(2, 3).long(), [8, 8], lengths)


@pytest.mark.parametrize("name", ["cross_entropy", "relu", "softmax", "layer_norm", "dropout", "pad", "interpolate", "batch_norm"])
def test_signatures_of_functions(name):
    """Programs look at the parameters of functions, of which many are built in here."""

    def parameters(lib):
        found = inspect.signature(getattr(lib.nn.functional, name)).parameters.values()
        return [(p.name, p.kind, p.default) for p in found]

    assert parameters(wisp) == parameters(torch)
