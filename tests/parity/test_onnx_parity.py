"""Exported models run in onnxruntime and give Wisp's results, for the sizes of the export and for others."""

import io

import numpy as np
import pytest

import wisp
import wisp.nn.functional as F
from wisp import nn

runtime = pytest.importorskip("onnxruntime")


def check(model, *args, axes=None, others=(), tolerance=2e-4):
    file = io.BytesIO()
    names = [f"in{i}" for i in range(len(args))]
    if isinstance(model, nn.Module):
        model.eval()
    wisp.onnx.export(model, args, file, input_names=names, dynamic_axes=axes and {name: axes for name in names})
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for inputs in (args, *others):
        found = session.run(None, {name: value.numpy() for name, value in zip(names, inputs)})
        with wisp.no_grad():
            expected = wisp.utils._pytree.tree_leaves(model(*inputs))
        assert len(found) == len(expected)
        for a, b in zip(found, (value.numpy() for value in expected)):
            assert a.shape == b.shape and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max())) if b.size else 0)


FUNCTIONS = {
    "clamp": lambda x: x.clamp(-1, 0.5),
    "pow": lambda x: x**3 + 2**x,
    "sums": lambda x: x.pow(2).sum(1, keepdim=True).sqrt(),
    "cat": lambda x: wisp.cat([x, x * 2], 1).chunk(2, 1),
    "split": lambda x: x.split(3, 1),
    "stack": lambda x: wisp.stack([x, x], -1),
    "slice": lambda x: x[:, 1:3],
    "pick": lambda x: x[-1],
    "ellipsis": lambda x: x[..., None, 0],
    "step": lambda x: x[:, None, ::2],
    "flip": lambda x: x.flip(1),
    "roll": lambda x: x.roll(1, 1),
    "max": lambda x: x.max(1),
    "argmax": lambda x: x.argmax(1),
    "where": lambda x: wisp.where(x > 0, x, 0.0),
    "logic": lambda x: (x > 0) & ~(x < 1),
    "topk": lambda x: x.topk(2),
    "sort": lambda x: x.sort(1, descending=True),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0, unbiased=False),
    "norm": lambda x: x.norm(dim=1),
    "normalize": lambda x: F.normalize(x),
    "cumsum": lambda x: x.cumsum(1),
    "softplus": lambda x: F.softplus(x, 2.0),
    "activations": lambda x: (
        F.silu(x) + F.mish(x) + F.elu(x) + F.selu(x) + F.hardswish(x) + F.relu6(x) + F.leaky_relu(x, 0.2) + F.hardtanh(x) + F.hardsigmoid(x)
    ),
    "logsigmoid": lambda x: F.logsigmoid(x),
    "transposed": lambda x: x.T @ x,
    "einsum": lambda x: wisp.einsum("ij,kj->ik", x, x),
    "repeat": lambda x: x.unsqueeze(0).repeat(2, 1, 3),
    "floor": lambda x: x.long() // 2,
    "remainder": lambda x: x % 2 + x // 0.3,
    "integers": lambda x: x.int() % 3,
    "pad": lambda x: F.pad(x, (1, 2), value=3.0),
    "unbind": lambda x: x.unbind(1),
    "gather": lambda x: x.gather(1, (x > 0).long()),
    "inplace": lambda x: (x * 1).add_(1).mul_(2),
    "gelu": lambda x: F.gelu(x, approximate="tanh") + F.gelu(x),
    "one_hot": lambda x: F.one_hot((x > 0).long(), 3),
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "nearest": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "bilinear": lambda x: F.interpolate(x[None, None], size=(6, 8), mode="bilinear"),
    "group_norm": lambda x: F.group_norm(x[None].mT, 2),
    "instance_norm": lambda x: F.instance_norm(x[None]),
    "causal": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True),
    "outer": lambda x: wisp.outer(x[0], x[1]),
    "triu": lambda x: x.triu(1),
    "conv1d": lambda x: F.conv1d(x, wisp.ones(2, 3, 3), padding="same"),
    "transposed convolution": lambda x: F.conv_transpose1d(x[None], wisp.ones(3, 2, 3), stride=2),
    "cast": lambda x: x.double(),
    "cosine": lambda x: F.cosine_similarity(x, x + 1),
    "glu": lambda x: F.glu(x),
    "dict": lambda x: (x, {"a": x + 1}),
    "any": lambda x: (x > 0).any(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    wisp.manual_seed(0)
    check(FUNCTIONS[name], wisp.randn(3, 4))


def test_convolutional_network():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 6),
        nn.GELU(),
        nn.LayerNorm(6),
        nn.Dropout(0.1),
    )
    check(net, wisp.randn(2, 3, 8, 8), axes={0: "batch"}, others=[(wisp.randn(5, 3, 8, 8),)])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 12)

    def forward(self, x):
        b, t, c = x.shape
        q = self.project(x).view(b, t, 2, 6).transpose(1, 2)
        scores = (q @ q.mT) / 6**0.5
        scores = scores.masked_fill(wisp.tril(wisp.ones(t, t)) == 0, float("-inf")).softmax(-1)
        return (
            (scores @ q).transpose(1, 2).reshape(b, t, 12),
            wisp.arange(t)[None] + x[..., 0].long() * 0,
            x.new_zeros(b, 1).expand(b, t) + t,
        )


def test_two_sizes_vary():
    check(Attention(), wisp.randn(2, 5, 6), axes={0: "batch", 1: "time"}, others=[(wisp.randn(3, 9, 6),)])
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    check(nn.TransformerEncoder(layer, 2), wisp.randn(2, 5, 8), axes={0: "b", 1: "t"}, others=[(wisp.randn(4, 7, 8),)])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent(kind):
    check(kind(4, 6, 2, batch_first=True, bidirectional=True), wisp.randn(3, 5, 4), axes={0: "b", 1: "t"}, others=[(wisp.randn(2, 8, 4),)])


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5"])
def test_vision_model(name):
    model = getattr(wisp.vision.models, name)(weights=None)
    check(model, wisp.randn(1, 3, 64, 64), axes={0: "batch"}, others=[(wisp.randn(2, 3, 64, 64),)], tolerance=2e-3)
