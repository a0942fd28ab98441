"""Composites that arrange and measure: shapes, copies, distances, integrals."""

import itertools

import numpy as np
import pytest

import wisp


def test_broadcast_shapes_and_tensors():
    assert wisp.broadcast_shapes((2,), (3, 1), (1, 1, 1)) == (1, 3, 2)
    with pytest.raises(RuntimeError, match="Shape mismatch"):
        wisp.broadcast_shapes((2,), (3,))
    a, b = wisp.broadcast_tensors(wisp.ones(2, 1), wisp.ones(3))
    assert a.shape == b.shape == (2, 3)


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_meshgrid_is_numpys(indexing):
    x, y, z = np.arange(3.0), np.arange(4.0), np.arange(2.0)
    mine = wisp.meshgrid(*(wisp.tensor(v) for v in (x, y, z)), indexing=indexing)
    for a, b in zip(mine, np.meshgrid(x, y, z, indexing=indexing)):
        assert np.array_equal(a.numpy(), b)


def test_copies_do_not_share_memory():
    x = wisp.arange(6.0).reshape(2, 3)
    wisp.permute_copy(x, (1, 0)).zero_()
    wisp.narrow_copy(x, 0, 0, 1).zero_()
    assert x.sum().item() == 15
    assert wisp.transpose_copy(x, 0, 1).is_contiguous()


def test_copies_of_what_sparse_tensors_hold():
    x = wisp.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
    by_place, by_row, by_column = x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc()
    wisp.indices_copy(by_place).zero_()
    assert wisp.indices_copy(by_place).tolist() == [[0, 1, 1], [1, 0, 2]]
    assert wisp.crow_indices_copy(by_row).tolist() == [0, 1, 3] and wisp.col_indices_copy(by_row).tolist() == [1, 0, 2]
    assert wisp.ccol_indices_copy(by_column).tolist() == [0, 1, 2, 3] and wisp.row_indices_copy(by_column).tolist() == [1, 0, 1]
    wisp.values_copy(by_row).zero_()
    out = wisp.empty(3)
    assert wisp.values_copy(by_row, out=out) is out and out.tolist() == [2, 3, 4]


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("rows", [3, 40])
def test_cdist_values(p, rows):
    x, y = np.random.default_rng(0).normal(size=(2, rows, 5))
    expected = np.linalg.norm(x[:, None] - y, p, axis=-1) if p != 0.5 else (np.abs(x[:, None] - y) ** 0.5).sum(-1) ** 2
    assert np.allclose(wisp.cdist(wisp.tensor(x), wisp.tensor(y), p).numpy(), expected)


def test_cdist_gradient_of_equal_points_is_zero():
    x = wisp.randn(30, 4, dtype=wisp.float64, requires_grad=True)
    wisp.cdist(x, x.detach().clone()).diagonal().sum().backward()
    assert wisp.isfinite(x.grad).all()


def test_cdist_product_form_passes_gradcheck():
    x, y = (wisp.randn(n, 3, dtype=wisp.float64, requires_grad=True) for n in (4, 5))
    mode = "use_mm_for_euclid_dist"
    assert wisp.autograd.gradcheck(lambda a, b: wisp.cdist(a, b, 2.0, mode), (x, y))
    assert wisp.autograd.gradgradcheck(lambda a, b: wisp.cdist(a, b, 2.0, mode), (x, y))


def test_integrals_and_derivatives():
    x = wisp.linspace(0, 1, 101, dtype=wisp.float64)
    assert abs(wisp.trapezoid(x * x, x).item() - 1 / 3) < 1e-4
    assert wisp.cumulative_trapezoid(x, dx=0.01).shape == (100,)
    (slope,) = wisp.gradient(x * x, spacing=(x,), edge_order=2)
    assert np.allclose(slope.numpy(), 2 * x.numpy())


def test_covariance_is_numpys():
    x = np.random.default_rng(0).normal(size=(3, 20))
    assert np.allclose(wisp.cov(wisp.tensor(x)).numpy(), np.cov(x))
    assert np.allclose(wisp.corrcoef(wisp.tensor(x)).numpy(), np.corrcoef(x))


def test_python_function_gets_whole_gradients():
    class Identity(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = wisp.zeros(3, 4, requires_grad=True)
    g = wisp.arange(12.0).reshape(3, 4)
    assert wisp.equal(wisp.autograd.grad(Identity.apply(x), x, g)[0], g)


@pytest.mark.parametrize("repeated", [False, True])
def test_combinations_of_any_length(repeated):
    choose = itertools.combinations_with_replacement if repeated else itertools.combinations
    for n, r in itertools.product(range(6), range(1, 8)):
        found = wisp.combinations(3 * wisp.arange(n), r, repeated)
        assert found.shape[1] == r and list(map(tuple, found.tolist())) == list(choose(range(0, 3 * n, 3), r))
    with pytest.raises(RuntimeError, match="more than memory has places for"):
        wisp.combinations(wisp.arange(1000), 500, repeated)
    assert wisp.combinations(wisp.ones(0, requires_grad=True), 3, repeated).requires_grad  # of none of none, too


def test_unravel_index_and_combinations():
    rows, columns = wisp.unravel_index(wisp.tensor([5, 0, 11]), (3, 4))
    assert rows.tolist() == [1, 0, 2] and columns.tolist() == [1, 0, 3]
    assert wisp.combinations(wisp.tensor([1, 2, 3])).tolist() == [[1, 2], [1, 3], [2, 3]]
    assert wisp.cartesian_prod(wisp.tensor([1, 2]), wisp.tensor([3, 4])).tolist() == [[1, 3], [1, 4], [2, 3], [2, 4]]


def test_as_strided_in_place_counts_its_elements_anew():
    x = wisp.arange(6.0).view(2, 3)
    assert x.as_strided_((2,), (3,)).numel() == 2 and (x + 1).tolist() == [1, 4]
    x.as_strided_((1, 0), (2, 2)).add_(1)
    assert x.numel() == 0 and (x + 1).shape == (1, 0)


@pytest.mark.parametrize("dtype", [wisp.uint8, wisp.float32, wisp.complex128])
@pytest.mark.parametrize("few", [2, 3])
def test_copies_that_interleave_a_few_rows(few, dtype):
    x = wisp.arange(5 * few * 41).reshape(5, few, 41).to(dtype)
    expected = np.ascontiguousarray(x.numpy().transpose(0, 2, 1))
    np.testing.assert_array_equal(x.transpose(1, 2).contiguous().numpy(), expected)
    np.testing.assert_array_equal(x[1:, :, 3:].transpose(1, 2).clone().contiguous().numpy(), expected[1:, 3:])
    wide = wisp.zeros(5, 41, few + 2, dtype=dtype)
    wide[:, :, 1:-1] = x.transpose(1, 2)
    np.testing.assert_array_equal(wide[:, :, 1:-1].numpy(), expected)


@pytest.mark.parametrize("offset", [-(2**62), -4, -1, 0, 2, 5, 2**62])
@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (4, 4), (2, 5), (5, 2)])
def test_indices_of_triangles(sizes, offset):
    for name in ("tril", "triu"):
        whole = getattr(wisp, name)(wisp.ones(sizes, dtype=wisp.bool), offset)
        found = getattr(wisp, f"{name}_indices")(*sizes, offset)
        assert found.tolist() == whole.nonzero().T.tolist() and found.is_contiguous()


def test_indices_of_a_triangle_take_the_memory_of_the_triangle_alone():
    assert wisp.tril_indices(2, 2**40).tolist() == [[0, 1, 1], [0, 0, 1]]
