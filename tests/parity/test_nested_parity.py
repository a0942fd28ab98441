"""Nested tensors give PyTorch's results."""

import warnings

import numpy as np
import pytest

import wisp

torch = pytest.importorskip("torch")
A, B = np.random.RandomState(0).randn(2, 6).astype("f4"), np.random.RandomState(1).randn(3, 6).astype("f4")


def nested(m, layout="jagged", **options):
    return m.nested.nested_tensor([m.tensor(A), m.tensor(B)], layout=getattr(m, layout), **options)


def plain(value):
    """Nested lists of arrays."""
    if isinstance(value, (wisp.Tensor, torch.Tensor)):
        return [plain(part) for part in value.unbind()] if value.is_nested else np.asarray(value.detach().tolist(), "f8")
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def same(a, b):
    if isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    else:
        assert a == b


def both(x, function):
    return function(x)


CASES = {
    "arithmetic": lambda m: 1 - nested(m) * 2 + 1,
    "two": lambda m: both(nested(m), lambda x: x * x.sin()),
    "dense": lambda m: nested(m) * m.arange(6.0),
    "dense for each part": lambda m: nested(m) + m.arange(12.0).reshape(2, 1, 6),
    "sum": lambda m: nested(m).sum(),
    "sum 1": lambda m: nested(m).sum(1),
    "sum 2": lambda m: nested(m).sum(2),
    "sum kept": lambda m: nested(m).sum(-1, keepdim=True),
    "sum 0 1": lambda m: nested(m).sum((0, 1)),
    "mean": lambda m: nested(m).mean(1),
    "mean kept": lambda m: nested(m).mean(1, keepdim=True),
    "amax": lambda m: nested(m).amax(1),
    "max": lambda m: tuple(nested(m).max(1)),
    "argmax": lambda m: nested(m).argmax(2),
    "softmax 1": lambda m: nested(m).softmax(1),
    "softmax 2": lambda m: nested(m).softmax(-1),
    "layer_norm": lambda m: m.nn.functional.layer_norm(nested(m), (6,)),
    "padded": lambda m: nested(m).to_padded_tensor(9.0),
    "padded more": lambda m: nested(m).to_padded_tensor(9.0, (2, 4, 6)),
    "linear": lambda m: m.nn.functional.linear(nested(m), m.arange(12.0).reshape(2, 6), m.ones(2)),
    "matmul": lambda m: nested(m) @ m.arange(12.0).reshape(6, 2),
    "transpose": lambda m: nested(m).transpose(1, 2),
    "heads": lambda m: nested(m).unflatten(-1, (2, 3)).transpose(1, 2),
    "heads and back": lambda m: nested(m).unflatten(-1, (2, 3)).transpose(1, 2).transpose(1, 2).flatten(-2),
    "view": lambda m: nested(m).view(2, -1, 3, 2),
    "chunk": lambda m: nested(m).chunk(3, -1),
    "split": lambda m: nested(m).split([2, 4], -1),
    "cat": lambda m: both(nested(m), lambda x: m.cat([x, x], -1)),
    "part": lambda m: nested(m)[0],
    "slice": lambda m: nested(m)[..., 1:3],
    "select": lambda m: nested(m).select(2, 2),
    "squeeze": lambda m: nested(m).unsqueeze(-1).squeeze(-1),
    "relu": lambda m: m.relu(nested(m)),
    "gelu": lambda m: m.nn.functional.gelu(nested(m)),
    "clamp": lambda m: nested(m).clamp(-0.5, 0.5),
    "compare": lambda m: nested(m) > 0,
    "where": lambda m: both(nested(m), lambda x: m.where(x > 0, x, x * 0.1)),
    "masked_fill": lambda m: both(nested(m), lambda x: x.masked_fill(x > 0, 0.0)),
    "double": lambda m: nested(m).double(),
    "zeros_like": lambda m: m.zeros_like(nested(m)),
    "in place": lambda m: nested(m).add_(1).mul_(2),
    "sizes": lambda m: [nested(m).size(0), nested(m).size(2), nested(m).dim(), nested(m).numel(), len(nested(m))],
    "repr": lambda m: repr(nested(m, "strided")),
    "offsets": lambda m: [nested(m).offsets(), nested(m).values()],
    "from offsets": lambda m: m.nested.nested_tensor_from_jagged(m.arange(10.0).reshape(5, 2), m.tensor([0, 2, 5])),
    "from lengths": lambda m: m.nested.nested_tensor_from_jagged(m.arange(10.0).reshape(5, 2), lengths=m.tensor([1, 4])),
    "narrow": lambda m: m.nested.narrow(m.arange(12.0).reshape(2, 6), 1, m.tensor([0, 2]), m.tensor([2, 3]), layout=m.jagged),
    "of a batch": lambda m: m.nested.as_nested_tensor(m.arange(12.0).reshape(2, 6), layout=m.jagged),
    "masked_select": lambda m: m.nested.masked_select(m.tensor(A), m.tensor(A) > 0),
    "strided": lambda m: nested(m, "strided") * 2,
    "two sizes": lambda m: m.nested.nested_tensor([m.ones(2, 3), m.ones(1, 4)]).to_padded_tensor(0.0),
    "embedding": lambda m: m.nn.functional.embedding(
        m.nested.nested_tensor([m.tensor([0, 1]), m.tensor([2])], layout=m.jagged), m.arange(9.0).reshape(3, 3)
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_same_result(name):
    same(plain(CASES[name](wisp)), plain(CASES[name](torch)))


def gradients(m):
    a, b, w = (m.tensor(x, requires_grad=True) for x in (A, B, A * 2))
    x = m.nested.as_nested_tensor([a, b], layout=m.jagged)
    (m.nn.functional.linear(x, w).relu().softmax(-1) * 2).to_padded_tensor(0.0).square().sum().backward()
    return [a.grad, b.grad, w.grad]


def test_gradients():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(plain(gradients(wisp)), plain(gradients(torch)))
