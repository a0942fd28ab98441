"""Operators that few programs use, and documented names of parameters, against PyTorch."""

import numpy
import pytest
import torch

import wisp

EXPRESSIONS = """
t.segment_reduce(a, "sum", lengths=n); t.segment_reduce(a, "mean", lengths=n); t.segment_reduce(a, "max", lengths=n); t.segment_reduce(a, "min", lengths=n);
t.segment_reduce(a + 0.5, "prod", lengths=n); t.segment_reduce(a, "max", lengths=n, initial=1.0); t.segment_reduce(a, "sum", lengths=n, initial=2.0);
t.segment_reduce(a, "mean", lengths=n, initial=2.0); t.segment_reduce(a, "sum", offsets=t.tensor([0, 2, 2, 5]));
t.segment_reduce(a.view(1, 5, 2), "max", lengths=t.tensor([[3, 2]]), axis=1);
t.fake_quantize_per_tensor_affine(a, 0.1, 3, 0, 20); t.fake_quantize_per_channel_affine(a, t.tensor([0.1, 0.3]), t.tensor([0, 2], dtype=t.int32), 1, -8, 7);
t.conv_tbc(a.view(5, 2, 1), t.ones(2, 1, 3), t.zeros(3), 1); t.native_channel_shuffle(a.detach().view(1, 10, 1), 5); t.lobpcg((a @ a.t()).detach() + t.eye(5), k=1)[0];
t.lobpcg((a @ a.t()).detach() + t.diag(t.arange(5.0)), k=1, largest=False)[0]; t.cond(a.sum() > 0, lambda x: x + 1, lambda x: x - 1, (a,));
t.matrix_exp(a.t() @ a / 10); t.cholesky_solve(t.ones(2, 1), t.eye(2) * 2); a.hsplit([1])[0]; a.vsplit(5)[2]; t.linalg.norm(a); t.linalg.norm(input=a, ord=1);
t.linalg.vander(a[:, 0], N=3); a.unsafe_split(2)[1];
t.hash_tensor(a.round()).view(t.float64); t.hash_tensor(t.arange(12.0).view(3, 4), 1, keepdim=True).view(t.float64)
"""


@pytest.mark.parametrize("expression", [e.strip() for e in EXPRESSIONS.split(";") if e.strip()])
def test_expression(expression):
    values, grads = [], []
    for t in (torch, wisp):
        a = (t.arange(10.0).view(5, 2).sin() * 2).requires_grad_()
        result = eval(expression, {"t": t, "a": a, "n": t.tensor([2, 0, 3])})
        values.append(result.detach().numpy())
        result = result.masked_fill(~result.isfinite(), 0.0)
        if result.requires_grad:
            (result * t.arange(float(result.numel())).view(result.shape)).sum().backward()
            grads.append(a.grad.numpy())
    numpy.testing.assert_allclose(values[1], values[0], rtol=1e-4, atol=1e-5)
    if len(grads) == 2:
        numpy.testing.assert_allclose(grads[1], grads[0], rtol=1e-4, atol=1e-5)


def test_documented_names_of_parameters():
    a = wisp.eye(2)
    assert wisp.matrix_exp(A=a).shape == wisp.matrix_exp(input=a).shape == wisp.linalg.matrix_exp(A=a).shape
    assert len(wisp.ones(4).hsplit(split_size_or_sections=2)) == len(wisp.hsplit(wisp.ones(4), indices_or_sections=2)) == 2
    assert len(wisp.ones(4).unsafe_split(split_size=2)) == 2 and wisp.empty(0).resize_as_(tensor=a).shape == (2, 2)
    assert wisp.cholesky_solve(B=a, L=a).shape == a.cholesky_solve(input2=a).shape
    p = wisp.nn.Parameter(wisp.ones(2))
    assert (5 - p).tolist() == [4.0, 4.0] and p.__rsub__(5).tolist() == [4.0, 4.0] and (2**p).tolist() == [2.0, 2.0] and 1 in p
    assert "other" in wisp.Tensor.__rsub__.__text_signature__


@pytest.mark.parametrize(
    "pattern, lengths",
    [
        ("b (h w) c -> b c h w", {"h": 2}),
        ("a b c -> c (a b)", {}),
        ("... c -> c ...", {}),
        ("a b c -> (a b c)", {}),
        ("a (b b2) c -> a b 1 (b2 c)", {"b2": 3}),
        ("a ... -> a (...)", {}),
    ],
)
def test_rearrange(pattern, lengths):
    x = torch.arange(2 * 6 * 4).view(2, 6, 4)
    theirs, ours = torch.func.rearrange(x, pattern, **lengths), wisp.func.rearrange(wisp.from_numpy(x.numpy()), pattern, **lengths)
    assert ours.tolist() == theirs.tolist()
    with pytest.raises(ValueError):
        wisp.func.rearrange(wisp.ones(2, 3), "a (b c) -> a b c")


def test_functions_of_pytorch_say_where_to_find_ours():
    x = wisp.ones(2, 3)
    relu, linear = torch.nn.functional.relu, torch.nn.Linear(3, 2)
    for call in (lambda: relu(x), lambda: linear(x), lambda: torch.add(x, x), lambda: torch.ones(2, 3) + x):
        with pytest.raises(RuntimeError, match="this function is PyTorch's.*import it from wisp"):
            call()
