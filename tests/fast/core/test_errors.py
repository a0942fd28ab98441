"""Bad input raises PyTorch's exception classes with messages that say what happened; nothing kills the process."""

import pathlib
import subprocess
import sys
import warnings

import pytest

import wisp
import wisp.nn.functional as F

X = wisp.ones(2, 3)


@pytest.mark.parametrize(
    "kind,text,call",
    [
        (RuntimeError, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", lambda: X @ X),
        (
            RuntimeError,
            "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
            lambda: X + wisp.ones(2, 4),
        ),
        (RuntimeError, "shape '[4]' is invalid for input of size 6", lambda: X.view(4)),
        (RuntimeError, "view size is not compatible", lambda: X.t().view(6)),
        (IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 2)", lambda: X.sum(2)),
        (IndexError, "index 5 is out of bounds for dimension 0 with size 2", lambda: X[5]),
        (IndexError, "too many indices for tensor of dimension 2", lambda: X[0, 0, 0]),
        (TypeError, "softmax()", lambda: X.softmax()),
        (TypeError, "unexpected keyword argument 'dims'", lambda: X.softmax(dims=1)),
        (RuntimeError, "floating point", lambda: wisp.ones(2, dtype=wisp.int64).requires_grad_()),
        (RuntimeError, "grad can be implicitly created only for scalar outputs", lambda: wisp.ones(2, requires_grad=True).exp().backward()),
        (RuntimeError, "does not require grad and does not have a grad_fn", lambda: X.sum().backward()),
        (RuntimeError, "have no gradient (those of argmax", lambda: wisp.ones(2, requires_grad=True).argmax().backward()),
        (
            RuntimeError,
            "nothing that it was computed from requires grad",
            lambda: wisp.ones(2, requires_grad=True).detach().sum().backward(),
        ),
        (RuntimeError, "switched off here, by no_grad()", lambda: wisp.no_grad()(lambda: X.sum().backward())()),
        (
            RuntimeError,
            "does not require grad: input 1, of shape [2, 3] and dtype float32",
            lambda: wisp.autograd.grad((W := wisp.ones(2, requires_grad=True)).sum(), [W, X]),
        ),
        (TypeError, "found element of type float at pos 1: 5.0 (a size is an int: divide with //", lambda: wisp.nn.Linear(10 / 2, 3)),
        (TypeError, "found element of type float at pos 0: 2.5", lambda: wisp.zeros(2.5)),
        (TypeError, "found element of type str at pos 1", lambda: wisp.zeros([2, "3"])),
        (RuntimeError, "target dtype to be Long or Byte, but got Float: class indices", lambda: F.cross_entropy(X, wisp.ones(2))),
        (RuntimeError, "target dtype to be Long or Byte, but got Int; convert it", lambda: F.cross_entropy(X, wisp.ones(2).int())),
        (NotImplementedError, "not implemented for 'Long': it takes floating point", lambda: F.log_softmax(X.long(), 1)),
        (RuntimeError, "not available", lambda: wisp.ones(2, device="cuda")),
        (RuntimeError, "device type", lambda: wisp.ones(2, device="abacus")),
        (
            RuntimeError,
            "a leaf Variable that requires grad is being used in an in-place operation",
            lambda: wisp.ones(2, requires_grad=True).add_(1),
        ),
        (
            RuntimeError,
            "more than one element of the written-to tensor refers to a single memory location",
            lambda: wisp.ones(1).expand(3).add_(1),
        ),
        (RuntimeError, "can't be cast", lambda: wisp.ones(2, dtype=wisp.int64).add_(1.5)),
        (RuntimeError, "ZeroDivisionError", lambda: wisp.ones(2, dtype=wisp.int64) // 0),
        (RuntimeError, "ambiguous", lambda: bool(X)),
        (RuntimeError, "cannot be converted to Scalar", lambda: X.item()),
        (TypeError, "len() of a 0-d tensor", lambda: len(wisp.tensor(1.0))),
        (ValueError, "expected sequence of length 2 at dim 1 (got 1)", lambda: wisp.tensor([[1, 2], [3]])),
        (RuntimeError, "negative dimension", lambda: wisp.empty(-1)),
        (RuntimeError, "Sizes of tensors must match except in dimension 0", lambda: wisp.cat([X, wisp.ones(2, 4)])),
        (RuntimeError, "Boolean alpha only supported for Boolean results", lambda: wisp.add(X, X, alpha=True)),
        (RuntimeError, "Can't call numpy() on Tensor that requires grad", lambda: wisp.ones(2, requires_grad=True).numpy()),
        (IndexError, "", lambda: F.cross_entropy(wisp.ones(2, 3), wisp.tensor([0, 7]))),
    ],
)
def test_messages(kind, text, call):
    with pytest.raises(kind) as caught:
        call()
    assert text in str(caught.value)


def test_the_gradient_of_what_is_no_leaf_is_asked_for():
    x = wisp.ones(2, requires_grad=True)
    y = x * 2
    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    y.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert y.grad.tolist() == [1.0, 1.0] and x.grad.tolist() == [2.0, 2.0] and (x * 2).detach().grad is None
        assert (x * 2)._grad is None


def test_backward_twice():
    x = wisp.ones(2, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_inplace_on_a_needed_tensor_names_the_lines():
    y = wisp.ones(2, requires_grad=True).exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"saved at .*test_errors\.py:\d+ and changed at .*test_errors\.py:\d+"):
        y.sum().backward()


def test_errors_name_the_module():
    model = wisp.nn.Sequential(wisp.nn.Linear(3, 4), wisp.nn.Linear(5, 6))
    with pytest.raises(RuntimeError) as caught:
        model(X)
    assert "1: Linear(in_features=5, out_features=6, bias=True)" in "".join(getattr(caught.value, "__notes__", [str(caught.value)]))


def test_junk_kills_nothing(tmp_path):
    program = pathlib.Path(__file__).parents[2] / "hostile.py"
    result = subprocess.run([sys.executable, str(program), "3", "5"], capture_output=True, text=True, cwd=tmp_path)
    lines = result.stdout.splitlines()
    assert lines and lines[-1] == "survived", (result.returncode, lines[-1:], result.stderr[-500:])


def test_arrays_of_other_kinds_are_refused_by_their_name():
    import numpy as np

    for array in (np.array([1, None], dtype=object), np.array(["a"]), np.array(["2020-01-01"], "M8[D]"), np.zeros(2, np.longdouble)):
        for make in (wisp.from_numpy, wisp.tensor, wisp.as_tensor):
            with pytest.raises(TypeError, match=f"can't convert np.ndarray of type numpy.{array.dtype.type.__name__}. The only supported"):
                make(array)
