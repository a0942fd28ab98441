"""Where the results of elementwise operators lie, and what overlapping or misplaced arguments are answered with."""

import pytest

import wisp


def test_strides_that_sizes_of_one_leave_open_are_kept():
    bias = wisp.rand(3, 1, 1)
    x = wisp.rand(10, 3, 1, 1).to(memory_format=wisp.channels_last)
    assert x.is_contiguous() and x.stride() == (3, 1, 3, 3)
    for result in (x + bias, bias + x, x * 5, 5 * x):
        assert result.stride() == (3, 1, 3, 3)
    x = wisp.rand(10, 3, 1, 1)
    assert (x + bias).stride() == (bias + x).stride() == (x * 5).stride() == (3, 1, 1, 1)


def test_the_first_operand_decides_the_order_and_the_second_where_it_is_open():
    x, y = wisp.randn(2, 3, 4).permute(2, 0, 1), wisp.randn(4, 2, 3)
    assert (x + y).stride() == x.stride()
    assert (y + x).stride() == y.stride()
    assert (x + wisp.randn(3)).stride() == (wisp.randn(3) + x).stride() == x.stride()
    assert (wisp.randn(4, 1, 1) + x).stride() == x.stride()
    part = wisp.randn(4, 6).t()[:, ::2]  # not dense
    assert (part + 1).stride() == (part + part).stride() == (1, 6)
    assert ((x + y) == (y + x)).all()


PICKED = [  # what is indexed, with i = [0, 1] and three pairs, and the strides that PyTorch gives the result
    (lambda x: x.permute(2, 0, 1), lambda i, pairs: (i,), (6, 3, 1)),
    (lambda x: x.permute(2, 0, 1), lambda i, pairs: (slice(None), i), (1, 4, 8)),
    (lambda x: x.permute(2, 0, 1), lambda i, pairs: (slice(None), slice(None), i), (2, 8, 1)),
    (lambda x: x.permute(2, 0, 1), lambda i, pairs: (i, slice(None), i), (2, 1)),
    (lambda x: x.permute(0, 2, 1), lambda i, pairs: (i[:, None],), (12, 12, 1, 4)),
    (lambda x: x.permute(2, 1, 0), lambda i, pairs: (slice(None), i[None]), (1, 8, 4, 8)),
    (lambda x: x, lambda i, pairs: (pairs.T,), (12, 24, 4, 1)),
    (lambda x: x, lambda i, pairs: (slice(None), pairs.T, 1), (6, 1, 2)),
    (lambda x: x, lambda i, pairs: (pairs.T, pairs.T, pairs.T), (1, 2)),
    (lambda x: x[:, :1].permute(0, 2, 1), lambda i, pairs: (i,), (4, 1, 4)),
    (lambda x: x[:1, :1].permute(2, 0, 1), lambda i, pairs: (slice(None), 0 * i), (1, 4, 8)),
    (lambda x: x[:1, :1].permute(2, 0, 1), lambda i, pairs: (slice(None), slice(None), 0 * i), (2, 8, 1)),
    (lambda x: x[:1, :, :1].permute(2, 0, 1), lambda i, pairs: (slice(None), 0 * i), (6, 3, 1)),
]


@pytest.mark.parametrize("turned, key, strides", PICKED)
def test_what_is_indexed_keeps_the_order_of_slices_and_of_indices(turned, key, strides):
    x = wisp.arange(24.0).reshape(2, 3, 4).requires_grad_()
    key = key(wisp.tensor([0, 1]), wisp.tensor([[0, 1], [1, 0], [1, 1]]))
    result = turned(x)[key]
    assert result.stride() == strides
    wanted = turned(x).detach().numpy()[tuple(k if isinstance(k, (int, slice)) else k.numpy() for k in key)]
    assert result.tolist() == wanted.tolist()
    weight = wisp.arange(float(result.numel())).reshape(result.shape)
    (result * weight).sum().backward()
    expected = wisp.zeros(24)
    for place, w in zip(result.detach().flatten().long().tolist(), weight.flatten().tolist()):
        expected[place] += w
    assert x.grad.flatten().tolist() == expected.tolist()


def test_a_copy_onto_a_part_of_itself_is_refused():
    x = wisp.arange(20.0)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        x[:9].copy_(x[1:10])
    square = wisp.arange(9.0).view(3, 3)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        square.copy_(square.t())
    x.copy_(x)
    rows = wisp.arange(6.0).view(2, 3)
    rows[1] = rows[1][2]  # one element for all, which is itself among them
    assert rows.tolist() == [[0, 1, 2], [5, 5, 5]]
    x[:9].copy_(x[9:18])
    assert x[:9].tolist() == list(range(9, 18))


def test_errors_of_indices_and_dimensions():
    with pytest.raises(RuntimeError, match="self indexing axis dim should be positive"):
        wisp.index_select(wisp.randn(0, 3), 0, wisp.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="Index to scalar can have only 1 value, got 2"):
        wisp.index_select(wisp.tensor(1.0), 0, wisp.tensor([0, 1]))
    for running in (wisp.cummax, wisp.cummin):
        with pytest.raises(IndexError, match="Expected reduction dim -1 or 0 for scalar but got 100"):
            running(wisp.tensor(1.0), 100)
    with pytest.raises(RuntimeError, match="only one dimension can be inferred"):
        wisp.randn(5, 10).unflatten(1, (-1, -1))
    with pytest.raises(RuntimeError, match="not an accelerator"):
        wisp.Generator("opengl")


def test_hardshrink_rounds_its_bound_to_the_dtype():
    x = wisp.tensor([0.3008, 0.2988, 0.3027], dtype=wisp.bfloat16)
    assert wisp.nn.functional.hardshrink(x, 0.3).tolist() == [0, 0, x[2].item()]  # 0.3 is 0.30078125 in bfloat16
    assert wisp.nn.functional.hardshrink(x.float(), 0.3).tolist() == [x[0].item(), 0, x[2].item()]
