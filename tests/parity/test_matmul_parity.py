"""Products against PyTorch: values and strides over shapes and layouts, gradients, and the text of errors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import wisp  # noqa: E402


def pair(*shape, dtype="float64"):
    array = np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(dtype)
    return wisp.from_numpy(array.copy()), torch.from_numpy(array.copy())


@pytest.mark.parametrize(
    "a,b", [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((4, 2, 3), (3, 5)), ((2, 3), (4, 3, 5)), ((4, 1, 2, 3), (5, 3, 2))]
)
def test_matmul_with_gradients(a, b):
    (x, tx), (y, ty) = pair(*a), pair(*b)
    for t in (x, tx, y, ty):
        t.requires_grad_()
    out, expected = x @ y, tx @ ty
    assert tuple(out.shape) == tuple(expected.shape) and tuple(out.stride()) == expected.stride()
    (out * out).sum().backward()
    (expected * expected).sum().backward()
    for got, want in ((out, expected), (x.grad, tx.grad), (y.grad, ty.grad)):
        assert np.allclose(got.detach().numpy(), want.detach().numpy())


@pytest.mark.parametrize(
    "text",
    [
        "T.mm(o(2, 3), o(2, 3))",
        "T.mm(o(3), o(3, 2))",
        "T.mm(o(2, 3), o(3))",
        "T.mm(o(2, 3), o(3, 2).double())",
        "T.bmm(o(2, 3), o(3, 2))",
        "T.bmm(o(2, 3, 4), o(3, 4, 4))",
        "T.bmm(o(2, 3, 4), o(2, 4, 4).double())",
        "T.matmul(o(3), o(()))",
        "T.matmul(o(3), o(4))",
        "T.matmul(o(2, 3), o(4))",
        "T.matmul(o(3), o(4, 3))",
        "T.matmul(o(2, 3, 4), o(3, 5))",
        "T.matmul(o(2, 3, 4), o(2, 3, 5))",
        "T.mv(o(2, 3), o(4))",
        "T.mv(o(2, 3, 4), o(4))",
        "T.dot(o(3, 1), o(3))",
        "T.dot(o(3), o(3).double())",
        "T.addmm(o(2, 2), o(2, 3), o(2, 3))",
        "T.addmm(o(5, 5), o(2, 3), o(3, 2))",
        "T.addmm(o(2, 2), o(2, 3), o(3))",
        "T.addmm(o(2, 2).double(), o(2, 3), o(3, 2))",
        "T.addmv(o(5), o(2, 3), o(3))",
        "T.addr(o(2, 2), o(2), o(3))",
        "T.addr(o(2, 3), o(2, 1), o(3))",
        "T.addbmm(o(2, 3), o(5, 2, 4), o(4, 4, 3))",
        "T.baddbmm(o(2, 3), o(5, 2, 4), o(5, 4, 4))",
        "T.outer(o(2, 2), o(3))",
        "T.ger(o(2), o(3, 3))",
        "T.inner(o(2, 3), o(4, 4))",
        "F.linear(o(2, 3), o(4, 4))",
        "F.linear(o(2, 3), o(4, 3), o(5))",
        "F.linear(o(2, 3), o(4, 3).double())",
        "F.linear(o(()), o(4, 3))",
        "F.bilinear(o(2, 3), o(2, 4), o(5, 3, 5))",
        "T.tensordot(o(2, 3), o(4, 5), dims=1)",
        "T.tensordot(o(2, 3), o(4, 5), dims=3)",
        "T.einsum('ij,jk->iz', o(2, 3), o(3, 5))",
        "T.einsum('ij', o(2, 3), o(3, 5))",
        "T.einsum('i,j', o(2, 3), o(3))",
        "T.einsum('i1', o(2, 3))",
        "T.linalg.multi_dot([o(2, 3)])",
        "T.linalg.multi_dot([o(2, 3), o(4, 5)])",
        "T.mm(o(2, 2).bool(), o(2, 2).bool())",
        "T.multinomial(T.tensor([0., 0.]), 1)",
        "T.multinomial(o(1, 2, 3), 1)",
        "T.normal(o(2), -1.)",
        "o(3).exponential_(-1)",
        "o(3).geometric_(0)",
        "o(3).cauchy_(0, -1)",
        "o(3).log_normal_(0, -1)",
        "o(3).random_(5, 2)",
        "T.binomial(T.tensor([3]), T.tensor([.5]))",
        "T.randperm(-1)",
    ],
)
def test_error_messages(text):
    messages = []
    for T in (torch, wisp):
        with pytest.raises((RuntimeError, ValueError, TypeError)) as error:
            eval(text, {"T": T, "F": T.nn.functional, "o": T.ones})
        messages.append((type(error.value), str(error.value).split("\n")[0]))
    assert messages[0] == messages[1]
