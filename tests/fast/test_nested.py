"""Nested tensors: what they are, gradients, errors. tests/parity compares results with PyTorch's."""

import copy
import doctest
import gc
import io
import pickle

import pytest

import wisp
import wisp.nn.functional as F
from wisp import nn


def batch(layout=wisp.jagged, **options):
    return wisp.nested.nested_tensor([wisp.arange(12.0).reshape(2, 6), wisp.ones(3, 6)], layout=layout, **options)


@pytest.mark.parametrize("module", [wisp.nested, wisp.nested._tensor])
def test_examples(module):
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_what_it_is():
    x = batch()
    assert x.is_nested and isinstance(x, wisp.Tensor) and x.layout is wisp.jagged and x.device.type == "cpu" and not wisp.ones(1).is_nested
    assert x.size(0) == 2 and x.size(-1) == 6 and x.dim() == x.ndim == 3 and x.numel() == 30 and len(x) == 2 and x.dtype == wisp.float32
    assert x.shape == (x * 2).shape and x.shape[1] == x.shape[1] and x.shape[1] != 5 and x.shape[1] >= 2 and x.shape.numel() == 30
    assert x.offsets().tolist() == [0, 2, 5] and x.values().shape == (5, 6) and [p.shape[0] for p in x] == [2, 3]
    with pytest.raises(RuntimeError, match="no single shape"):
        batch(wisp.strided).shape


def test_attention_of_heads_is_that_of_each_part():
    wisp.manual_seed(0)
    x = wisp.nested.nested_tensor([wisp.randn(4, 8), wisp.randn(2, 8)], layout=wisp.jagged, requires_grad=True)
    project = nn.Linear(8, 24)
    q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in project(x).chunk(3, -1))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
    out.sum().backward()
    for part, result, grad in zip(x.unbind(), out.unbind(), x.grad.unbind()):
        part = part.detach().requires_grad_()
        q, k, v = (p.unflatten(-1, (2, 4)).transpose(0, 1) for p in project(part).chunk(3, -1))
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).flatten(-2)
        expected.sum().backward()
        assert wisp.allclose(result, expected, atol=1e-6) and wisp.allclose(grad, part.grad, atol=1e-6)


def test_layers_and_training():
    wisp.manual_seed(0)
    x = batch()
    model = nn.Sequential(nn.Linear(6, 4), nn.GELU(), nn.LayerNorm(4), nn.Dropout(0.0), nn.Linear(4, 1))
    optimizer = wisp.optim.SGD(model.parameters(), 0.01)
    first = model(x).mean(1).square().sum()
    first.backward()
    optimizer.step()
    assert model(x).mean(1).square().sum() < first
    assert wisp.allclose(model(x).unbind()[0], model(x.unbind()[0]), atol=1e-6)


def test_gradients_hooks_and_history():
    x = batch(requires_grad=True)
    assert x.is_leaf and x.requires_grad and (x * 2).grad_fn is not None
    seen = []
    x.register_hook(lambda grad: seen.append(grad.is_nested))
    (x * x).backward(wisp.ones_like(x))
    assert seen == [True] and wisp.equal(x.grad, (x * 2).detach())
    a = wisp.ones(2, requires_grad=True)
    wisp.nested.as_nested_tensor([a, a[:1]]).to_padded_tensor(5.0).sum().backward()
    assert a.grad.tolist() == [2, 1]
    (grad,) = wisp.autograd.grad(x.square().sum(), x)
    assert grad.is_nested


def test_parts_that_differ_in_several_sizes():
    x = wisp.nested.nested_tensor([wisp.ones(2, 3), wisp.ones(1, 4)])
    assert (x * 2).to_padded_tensor(0.0).shape == (2, 2, 4) and [p.shape for p in x.unbind()] == [(2, 3), (1, 4)]
    assert (x @ x.transpose(1, 2)).unbind()[1].tolist() == [[4.0]]
    assert x.softmax(-1).unbind()[1].tolist() == [[0.25] * 4] and x.sum().item() == 10


def test_indexing_and_copies():
    x = batch()
    assert (
        x[0].shape == (2, 6) and x[1:].unbind()[0].shape == (3, 6) and x[..., 1:3].size(2) == 2 and x[:, :1].offsets().tolist() == [0, 1, 2]
    )
    assert x[-1, 0].tolist() == [1.0] * 6
    for again in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
        assert wisp.equal(again, x) and again.values().data_ptr() != x.values().data_ptr()
    y = x.clone()
    y += 1
    y.mul_(2)
    assert y.unbind()[1][0, 0].item() == 4 and not wisp.equal(x, y)
    assert "offsets=tensor([0, 2, 5])" in repr(x) and repr(batch(wisp.strided)).startswith("nested_tensor([\n  tensor(")


def test_errors():
    x = batch()
    other = wisp.nested.nested_tensor([wisp.ones(1, 6), wisp.ones(4, 6)], layout=wisp.jagged)
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function add"):
        x + wisp.nested.nested_tensor([wisp.ones(4, 6), wisp.ones(2, 6)], layout=wisp.jagged)
    with pytest.raises(RuntimeError, match="ragged dimension fits 1 alone"):
        x * wisp.ones(5, 6)
    with pytest.raises(NotImplementedError, match="not supported for nested tensors"):
        wisp.linalg.svd(x)
    with pytest.raises(RuntimeError, match="Truncation"):
        x.to_padded_tensor(0.0, (2, 2, 6))
    with pytest.raises(RuntimeError, match="batch dimension but not the ragged"):
        x.sum(0)
    with pytest.raises(RuntimeError, match="single ragged dimension"):
        wisp.nested.nested_tensor([wisp.ones(1, 2), wisp.ones(2, 1)], layout=wisp.jagged)
    with pytest.raises(RuntimeError, match="offsets"):
        wisp.nested.nested_tensor_from_jagged(wisp.ones(3), wisp.tensor([0, 4]))
    with pytest.raises(NotImplementedError, match="not nested"):
        wisp.ones(2).to_padded_tensor(0.0)
    with pytest.raises(IndexError):
        x[2]
    assert other.is_nested


def test_no_memory_is_kept():
    gc.collect()
    before = sum(isinstance(o, wisp.Tensor) for o in gc.get_objects())
    for _ in range(3):
        (batch(requires_grad=True) * 2).sum().backward()
    gc.collect()
    assert sum(isinstance(o, wisp.Tensor) for o in gc.get_objects()) <= before


def test_multihead_attention():
    attention = wisp.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    parts = [wisp.randn(3, 4), wisp.randn(1, 4)]
    nested = wisp.nested.nested_tensor(parts)
    with pytest.raises(AssertionError, match="does not support NestedTensor outside of its fast path"):
        attention(nested, nested, nested)
    with wisp.no_grad():
        output, weights = attention(nested, nested, nested)
        for part, got in zip(parts, output.unbind()):
            wisp.testing.assert_close(got, attention(part[None], part[None], part[None])[0][0])
    assert weights.shape == (2, 3, 3) and weights[1].count_nonzero() == 1


def test_variance_and_norm_along_a_dimension():
    parts = [wisp.randn(2, 3), wisp.randn(4, 3)]
    batch = wisp.nested.nested_tensor(parts, layout=wisp.jagged)
    for name, options in (("var", {}), ("std", {}), ("var", {"unbiased": False}), ("std", {"correction": 0, "keepdim": True})):
        for dim in (1, 2):
            found = getattr(wisp, name)(batch, dim=dim, **options)
            expected = [getattr(wisp, name)(part, dim=dim - 1, **options) for part in parts]
            assert all(wisp.allclose(a, b) for a, b in zip(found.unbind(), expected))
    assert wisp.allclose(wisp.var(batch, 2, False).unbind()[1], wisp.var(parts[1], 1, False))
    assert wisp.allclose(wisp.norm(batch, 2, 2).unbind()[0], wisp.norm(parts[0], 2, 1))


@pytest.mark.parametrize("layout", [wisp.strided, wisp.jagged])
def test_saved_and_loaded(layout):
    batch = wisp.nested.nested_tensor([wisp.randn(2, 3), wisp.randn(4, 3)], layout=layout, requires_grad=True)
    file = io.BytesIO()
    wisp.save({"one": batch, "again": batch}, file)
    file.seek(0)
    loaded = wisp.load(file)
    assert loaded["one"] is loaded["again"] and loaded["one"].layout is layout and loaded["one"].requires_grad
    assert loaded["one"].tolist() == batch.tolist() and loaded["one"]._metadata_cache == batch._metadata_cache


def test_views_of_tensors_and_of_nested_tensors():
    x = wisp.randn(3, 4, 2)
    batch = wisp.nested.as_nested_tensor(x, layout=wisp.jagged)
    assert batch._is_view() and batch._base is x and wisp.nested.as_nested_tensor(batch, layout=wisp.jagged) is batch
    with pytest.raises(RuntimeError, match="Converting between nested tensor layouts is not supported"):
        wisp.nested.as_nested_tensor(batch, layout=wisp.strided)
    with pytest.raises(RuntimeError, match="Expected tensor argument to have dim"):
        wisp.nested.as_nested_tensor(wisp.ones(3))
    assert batch.transpose(1, 2)._is_view() and not (batch + 1)._is_view()
    assert [part._is_view() for part in batch.chunk(2)] == [True, True]
    assert [len(part) for part in batch.chunk(chunks=2)] == [2, 1]
    assert batch.narrow(0, 1, 2).tolist() == x[1:].tolist() and not batch.is_quantized


def test_gradients_given_to_the_strided_layout_and_padded_tensors_back():
    batch = wisp.nested.nested_tensor([wisp.ones(2), wisp.ones(1)], requires_grad=True)
    (batch * 3).backward(wisp.nested.nested_tensor([wisp.ones(2), wisp.ones(1) * 2]))
    assert batch.grad.tolist() == [[3, 3], [6]]
    jagged = wisp.nested.nested_tensor([wisp.randn(2, 3), wisp.randn(1, 3)], layout=wisp.jagged, requires_grad=True)
    back = wisp.nested._from_padded(jagged.to_padded_tensor(0.5), jagged.offsets())
    assert back.tolist() == jagged.tolist()
    back.backward(wisp.ones_like(back))
    assert jagged.grad.tolist() == wisp.ones_like(jagged).tolist()


def test_layer_norm_over_the_ragged_dimension():
    parts = [wisp.randn(2, 3), wisp.randn(4, 3)]
    batch = wisp.nested.nested_tensor(parts, layout=wisp.jagged)
    found = wisp.nn.functional.layer_norm(batch, batch.shape[1:])
    assert all(wisp.allclose(a, wisp.nn.functional.layer_norm(b, b.shape)) for a, b in zip(found.unbind(), parts))
    with pytest.raises(RuntimeError, match="over the batch dimension"):
        wisp.nn.functional.layer_norm(batch, batch.shape)


def test_parts_draw_and_refuse_as_in_pytorch():
    nested = wisp.nested.nested_tensor([wisp.ones(2, 3), wisp.ones(1, 3)])
    wisp.manual_seed(1)
    drawn = wisp.randn_like(nested).unbind()
    wisp.manual_seed(1)
    assert all(wisp.equal(part, wisp.randn_like(part)) for part in drawn)
    assert nested._nested_tensor_strides().tolist() == [[3, 1], [3, 1]] and nested.narrow(0, 0, 1)._base is nested
    assert wisp.max(nested, nested * 2).unbind()[1].tolist() == [[2.0, 2.0, 2.0]]
    for call, text in ((lambda: nested.transpose(0, 1), "dimension 0"), (nested.squeeze, "squeeze without"), (nested.stride, "strides")):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_masked_reductions_of_nested_tensors():
    nested = wisp.nested.nested_tensor([wisp.ones(2, 3), wisp.ones(1, 3)], layout=wisp.jagged)
    assert wisp.masked.sum(nested) == 9 and wisp.masked.amax(nested, 1).tolist() == [[1.0] * 3] * 2


def test_attention_of_queries_of_one_length():
    def heads(x):
        return x.unflatten(-1, (2, 4)).transpose(1, 2)

    keys = wisp.nested.nested_tensor([wisp.randn(3, 8), wisp.randn(5, 8)], layout=wisp.jagged)
    queries = wisp.nested.nested_tensor([wisp.randn(1, 8), wisp.randn(1, 8)], layout=wisp.jagged)
    found = F.scaled_dot_product_attention(heads(queries), heads(keys), heads(keys)).transpose(1, 2).flatten(-2)
    assert [tuple(part.shape) for part in found.unbind()] == [(1, 8), (1, 8)] and found.offsets().tolist() == [0, 1, 2]


def test_transposed_parts_stay_so_in_files(tmp_path):
    nested = wisp.nested.nested_tensor([wisp.rand(n, 5) for n in (2, 3)]).transpose(-1, -2)
    wisp.save(nested, tmp_path / "nested.pt")
    loaded = wisp.load(tmp_path / "nested.pt")
    assert wisp.equal(loaded, nested)
    assert loaded._nested_tensor_strides().tolist() == nested._nested_tensor_strides().tolist() == [[1, 5], [1, 5]]


def test_values_that_go_on_behind_the_last_part_are_not_copied():
    base = wisp.rand(10, 3)
    nested = wisp.nested.nested_tensor_from_jagged(base, wisp.tensor([0, 2, 5]))
    assert nested._base is base and nested.data_ptr() == base.data_ptr()
    again = nested._view_func(base + 1)
    assert wisp.equal(again.unbind()[1], base[2:5] + 1)


def test_index_put_and_assignment():
    nested = wisp.nested.nested_tensor([wisp.zeros(2, 2), wisp.zeros(3, 2)], layout=wisp.jagged)
    put = nested.index_put((wisp.tensor([0, 1]), wisp.tensor([1, 2])), wisp.tensor(1.0))
    assert put.tolist() == [[[0, 0], [1, 1]], [[0, 0], [0, 0], [1, 1]]]
    assert nested.index_put((wisp.tensor([1]),), wisp.tensor(1.0)).tolist()[0] == [[0, 0], [0, 0]]
    with pytest.raises(IndexError, match="outside of its part"):
        nested.index_put((wisp.tensor([0]), wisp.tensor([2])), wisp.tensor(1.0))
    nested.index_put_((wisp.tensor([0]), wisp.tensor([0])), wisp.tensor(2.0))
    nested[1, 0, 0] = 3.0
    assert nested.tolist() == [[[2, 2], [0, 0]], [[3, 0], [0, 0], [0, 0]]]


def test_masked_select_expand_and_apply():
    nested = wisp.nested.nested_tensor([wisp.tensor([[1.0], [2.0]]), wisp.tensor([[3.0]])], layout=wisp.jagged)
    assert nested.masked_select(nested > 1).tolist() == [[2.0], [3.0]]
    assert nested.expand(-1, -1, 2).tolist() == [[[1, 1], [2, 2]], [[3, 3]]]
    nested.apply_(lambda x: 2 * x)
    assert nested.tolist() == [[[2], [4]], [[6]]]
    assert nested.to(nested.dtype) is nested
    rows = wisp.nested.masked_select(wisp.arange(4).reshape(2, 1, 2), wisp.tensor([True, False]))
    assert rows.values().tolist() == [0, 2] and rows.offsets().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: x.chunk(2, -1), "divisible by chunks"),
        (lambda x: x.transpose(1, 2).narrow(0, 0, 1), "contiguous"),
        (lambda x: wisp.nn.functional.linear(x, wisp.ones(2, 4)), "Shape mismatch"),
        (lambda x: x.bmm(x), "0-th nested matrices"),
        (lambda x: x.matmul(x), "cannot be matrix multiplied"),
        (lambda x: x.fill_(wisp.ones(1)), "0-dimension value tensor"),
        (lambda x: x.clone(memory_format=wisp.channels_last), "Preserve and Contiguous"),
    ],
)
def test_what_the_strided_layout_refuses(call, said):
    with pytest.raises(RuntimeError, match=said):
        call(wisp.nested.nested_tensor([wisp.ones(2, 3), wisp.ones(4, 3)]))


def test_select_along_sizes_that_differ():
    nested = wisp.nested.nested_tensor([wisp.arange(4).reshape(2, 2), wisp.arange(3).reshape(3, 1)])
    assert nested.select(1, -1).tolist() == [[2, 3], [2]]
    with pytest.raises(IndexError):
        nested.select(2, 1)
    with pytest.raises(NotImplementedError, match="slices of the batch"):
        nested[:]
