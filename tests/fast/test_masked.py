"""Masked tensors: printing, operators, reductions, gradients, errors (as PyTorch has them)."""

import copy
import doctest
import pickle

import pytest

import wisp
from wisp.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor


def example(**options):
    return masked_tensor(wisp.arange(6.0).reshape(2, 3), wisp.tensor([[True, False, True], [False, False, False]]), **options)


def test_examples():
    for module in (wisp.masked, wisp.masked._tensor):
        assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE, extraglobs={"wisp": wisp}).failed == 0


def test_printing():
    assert repr(example()) == "MaskedTensor(\n  [\n    [  0.0000,       --,   2.0000],\n    [      --,       --,       --]\n  ]\n)"
    assert repr(masked_tensor(wisp.tensor(3), wisp.tensor(False))) == "MaskedTensor(--, False)"
    assert repr(example().sum()) == "MaskedTensor(  2.0000, True)"
    assert repr(example() > 0) == "MaskedTensor(\n  [\n    [False,       --, True],\n    [      --,       --,       --]\n  ]\n)"


def test_elements_and_shapes():
    x = example()
    assert (
        isinstance(x, wisp.Tensor)
        and is_masked_tensor(x)
        and not is_masked_tensor(wisp.ones(1))
        and x.shape == (2, 3)
        and x.dtype == wisp.float32
    )
    for y in (x.sin() * 2 + 1, 1 + 2 * wisp.sin(x), x.sin().add(x.sin()) + wisp.ones(2, 3)):
        assert wisp.equal(y.get_mask(), x.get_mask()) and wisp.allclose(y.get_data(), x.get_data().sin() * 2 + 1)
    assert x.t().shape == (3, 2) and wisp.equal(x.t().get_mask(), x.get_mask().t()) and x[0].to_tensor(9.0).tolist() == [0, 9, 2]
    assert (
        wisp.cat([x, x]).get_mask().sum().item() == 4
        and x.reshape(-1).shape == (6,)
        and [p.shape for p in x.split(2, 1)] == [(2, 2), (2, 1)]
    )
    assert x.softmax(1).to_tensor(0.0)[0].tolist() == pytest.approx([0.1192, 0, 0.8808], abs=1e-4)
    x += 1
    assert x.to_tensor(0.0).tolist() == [[1, 0, 3], [0, 0, 0]]


def test_reductions():
    x = example()
    assert x.sum(1).to_tensor(-1.0).tolist() == [2, -1] and x.mean(0).to_tensor(-1.0).tolist() == [0, -1, 2] and x.mean().item() == 1
    assert x.amax(1).to_tensor(-1.0).tolist() == [2, -1] and x.prod(1).get_data()[0].item() == 0 and x.std().item() == pytest.approx(2**0.5)
    assert x.argmax(1).to_tensor(-1).tolist() == [2, -1] and x.var().item() == pytest.approx(2) and x.sum(1, keepdim=True).shape == (2, 1)
    assert wisp.sum(x, 0).get_mask().tolist() == [True, False, True] and x.max().item() == 2


def test_gradients():
    x = example(requires_grad=True)
    x.cos().sum().backward()
    assert is_masked_tensor(x.grad) and wisp.allclose(x.grad.to_tensor(0.0), (-x.get_data().sin() * x.get_mask()).detach())
    data = wisp.tensor([1.0, 2.0], requires_grad=True)
    (as_masked_tensor(data, wisp.tensor([False, True])) * 3).to_tensor(0.0).sum().backward()
    assert data.grad.tolist() == [0, 3]
    data.grad = None
    as_masked_tensor(data, wisp.tensor([False, True])).get_data().sum().backward()
    assert data.grad.tolist() == [0, 1]
    # 0/0 of a masked element does not spoil the gradient of the others
    top = wisp.tensor([0.0, 1.0], requires_grad=True)
    masked = as_masked_tensor(top, wisp.tensor([False, True]))
    (masked / masked).sum().backward()
    assert top.grad[1].item() == 0


def test_copies():
    x = example(requires_grad=True)
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert isinstance(again, MaskedTensor) and again.requires_grad and wisp.equal(again.to_tensor(0.0), x.to_tensor(0.0))


def test_errors():
    x = example()
    with pytest.raises(ValueError, match="masks must match"):
        x + masked_tensor(wisp.ones(2, 3), wisp.ones(2, 3).bool())
    with pytest.raises(ValueError, match="data.size"):
        masked_tensor(wisp.ones(2), wisp.ones(3).bool())
    with pytest.raises(TypeError, match="dtype bool"):
        masked_tensor(wisp.ones(2), wisp.ones(2))
    with pytest.raises(TypeError, match="not supported for MaskedTensor"):
        x @ x.T
    with pytest.raises(RuntimeError, match="tolist"):
        x.tolist()
    with pytest.raises(RuntimeError, match="one element"):
        bool(x)


def test_sparse_tensors_and_masks_are_reduced_in_their_layout():
    x = wisp.tensor([[1.0, 0.0, 3.0], [0.0, 5.0, 0.0]])
    mask = x != 0
    total = wisp.masked.sum(x.to_sparse(), 1, keepdim=True, mask=mask.to_sparse())
    assert total.layout is wisp.sparse_coo and total.to_dense().tolist() == [[4.0], [5.0]]
    assert wisp.masked.amax(x, 1, mask=mask.to_sparse()).tolist() == [3.0, 5.0]
    assert wisp.masked._output_mask(wisp.masked.sum, x, 0, mask=mask).tolist() == [True, True, True]


def test_where_takes_each_element_with_its_mask():
    x = wisp.tensor([-10.0, -5.0, 0.0, 5.0], requires_grad=True)
    low = x < 0
    one, other = wisp.masked.as_masked_tensor(x, low), wisp.masked.as_masked_tensor(wisp.ones_like(x), ~low)
    y = wisp.where(low, wisp.exp(one), other)
    assert y.get_mask().all() and y.get_data().tolist()[2:] == [1, 1]
    y.sum().backward()
    assert x.grad.tolist()[2:] == [0, 0] and x.grad[0] == wisp.exp(x[0])
    part = wisp.where(low, one, wisp.masked.masked_tensor(wisp.zeros(4), wisp.tensor([True, True, False, True])))
    assert part.get_mask().tolist() == [True, True, False, True]


def test_sparse_data_under_one_mask():
    data = wisp.tensor([[1.0, 0.0], [3.0, -4.0]])
    mask = data != 0
    one, two = (wisp.masked.masked_tensor(x.to_sparse(), mask.to_sparse()) for x in (data, 2 * data))
    assert wisp.maximum(one, two)._masked_data.to_dense().tolist() == [[2.0, 0.0], [6.0, -4.0]]
    other = wisp.masked.masked_tensor(data[:1].repeat(2, 1).to_sparse(), (data[:1] != 0).repeat(2, 1).to_sparse())
    with pytest.raises(ValueError, match="masks must match"):
        one + other


def test_what_makes_no_masked_tensor():
    data, mask = wisp.ones(2, 2), wisp.ones(2, 2).bool()
    for bad, error, text in (
        ((0, mask), TypeError, "data must be a Tensor"),
        ((data, wisp.masked.masked_tensor(data, mask)), TypeError, "mask must be a Tensor"),
        ((data.to_sparse(), mask), TypeError, "same layout"),
        ((data, mask[0]), ValueError, "mask.dim"),
    ):
        with pytest.raises(error, match=text):
            wisp.masked.masked_tensor(*bad)
    with pytest.warns(UserWarning, match="not recommended"):
        wisp.masked.masked_tensor(data.requires_grad_(), mask)


def test_between_layouts():
    x = masked_tensor(wisp.arange(6.0).reshape(2, 3), wisp.tensor([[True, False, True], [False, True, False]]))
    for sparse, layout in ((x.to_sparse_coo(), wisp.sparse_coo), (x.to_sparse_csr(), wisp.sparse_csr)):
        assert sparse.get_data().layout is layout is sparse.get_mask().layout and not sparse.is_quantized
        assert sparse.sum().item() == x.sum().item() == 6.0
        back = sparse.to_dense()
        assert wisp.equal(back.get_mask(), x.get_mask()) and back.to_tensor(-1).tolist() == x.to_tensor(-1).tolist()
    truth = masked_tensor(wisp.tensor([True, False]), wisp.tensor([True, False]))
    assert truth.all().item() is True and truth.any().item() is True
