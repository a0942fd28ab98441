"""Linear algebra: factors multiply back to the matrix, solutions solve, gradients agree with differences."""

import math

import numpy as np
import pytest

import wisp
from wisp.autograd import gradcheck, gradgradcheck

DTYPES = [wisp.float32, wisp.float64, wisp.complex64, wisp.complex128]
L = wisp.linalg


def close(a, b, tolerance=None):
    a, b = np.asarray(a.detach()), np.asarray(b.detach() if isinstance(b, wisp.Tensor) else b)
    assert a.shape == b.shape
    if tolerance is None:
        tolerance = 1e-9 if a.dtype in (np.float64, np.complex128) else 2e-3
    np.testing.assert_allclose(a, b, tolerance, tolerance)


def random(*shape, dtype=wisp.float64, seed=0):
    wisp.manual_seed(seed)
    return wisp.randn(*shape, dtype=dtype)


def positive(n, dtype=wisp.float64, batch=()):
    a = random(*batch, n, n, dtype=dtype)
    return a @ a.mH + n * wisp.eye(n, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (2, 3, 5), (0, 3, 3), (3, 0), (0, 3), (1, 1), (7, 2, 2, 2)])
def test_factors_multiply_back(dtype, shape):
    a = random(*shape, dtype=dtype)
    p, lower, upper = L.lu(a)
    close(p @ lower @ upper, a)
    for mode in ("reduced", "complete"):
        q, r = L.qr(a, mode)
        close(q @ r, a)
        close(q.mH @ q, wisp.eye(q.shape[-1], dtype=dtype).expand(q.mH.shape[:-1] + q.shape[-1:]))
    u, s, vh = L.svd(a, full_matrices=False)
    close((u * s.unsqueeze(-2)) @ vh, a)
    close(L.svdvals(a), s)
    u, s, vh = L.svd(a)
    assert u.shape[-1] == shape[-2] and vh.shape[-2] == shape[-1]
    close(L.pinv(a), np.linalg.pinv(a.numpy()) if a.numel() else np.zeros(shape[:-2] + shape[:-3:-1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (0,), (2, 1)])
def test_square_matrices(dtype, batch):
    a, h = random(*batch, 4, 4, dtype=dtype), positive(4, dtype, batch)
    eye = wisp.eye(4, dtype=dtype).expand(*batch, 4, 4)
    close(a @ L.inv(a), eye)
    close(L.det(a), np.linalg.det(a.numpy()))
    close(L.slogdet(a).logabsdet, np.linalg.slogdet(a.numpy())[1])
    for upper in (False, True):
        c = L.cholesky(h, upper=upper)
        close(c.mH @ c if upper else c @ c.mH, h)
        close(wisp.cholesky_inverse(c, upper) @ h, eye)
    values, vectors = L.eigh(h)
    close((vectors * values.unsqueeze(-2)) @ vectors.mH, h)
    close(L.eigvalsh(h, "U"), values)
    values, vectors = L.eig(a)
    close(a.to(values.dtype) @ vectors, vectors * values.unsqueeze(-2))
    ld, pivots = L.ldl_factor(h, hermitian=True)
    close(h @ L.ldl_solve(ld, pivots, eye, hermitian=True), eye)
    close(wisp.matrix_exp(a) @ wisp.matrix_exp(-a), eye, 2e-2 if dtype in (wisp.float32, wisp.complex64) else 1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_systems(dtype):
    a, b = random(2, 1, 4, 4, dtype=dtype), random(3, 4, 2, dtype=dtype, seed=1)
    close((a @ L.solve(a, b)), b.expand(2, 3, 4, 2))
    close(L.solve(a, b.mT, left=False) @ a, b.mT.expand(2, 3, 2, 4))
    close((a @ L.solve(a, b[0, :, 0]).unsqueeze(-1))[0, 0, :, 0], b[0, :, 0])
    lu, pivots = L.lu_factor(a)
    close(a.mH @ L.lu_solve(lu, pivots, b, adjoint=True), b.expand(2, 3, 4, 2))
    close(L.lu_solve(lu, pivots, b.mT, left=False, adjoint=True) @ a.mH, b.mT.expand(2, 3, 2, 4))
    for upper in (False, True):
        for unit in (False, True):
            t = a.triu() if upper else a.tril()
            if unit:
                t = t - wisp.diag_embed(t.diagonal(dim1=-2, dim2=-1)) + wisp.eye(4, dtype=dtype)
            close(t @ L.solve_triangular(a, b, upper=upper, unitriangular=unit), b.expand(2, 3, 4, 2))
            columns = a.mT.contiguous().mT
            close(t @ L.solve_triangular(columns, b, upper=upper, unitriangular=unit), b.expand(2, 3, 4, 2))
    tall, right = random(6, 3, dtype=dtype), random(6, 2, dtype=dtype, seed=2)
    for driver in ("gels", "gelsy", "gelsd", "gelss"):
        solution = L.lstsq(tall, right, driver=driver)
        close(solution.solution, np.linalg.lstsq(tall.numpy(), right.numpy(), rcond=None)[0])


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("shape", [(19, 3, 3), (3, 8, 8), (2, 9, 9), (17, 17), (65, 65), (3, 40, 40), (150, 150), (70, 150), (150, 70)])
def test_systems_of_any_size(dtype, shape):
    a = random(*shape, dtype=dtype)
    p, low, up = L.lu(a)
    close(p @ low @ up, a)
    assert wisp.equal(low, low.tril()) and wisp.equal(up, up.triu()) and low.abs().max() == 1  # the largest was the pivot
    n = shape[-1]
    if n != shape[-2]:
        return
    a, b = a + 2 * n**0.5 * wisp.eye(n, dtype=dtype).flip(0), random(*shape[:-1], 67, dtype=dtype, seed=1)
    close(a @ L.inv(a), wisp.eye(n, dtype=dtype).expand(shape))
    close(a @ L.solve(a, b), b)
    close(L.solve(a, b.mT, left=False) @ a, b.mT)
    close(a.mT @ L.lu_solve(*L.lu_factor(a), b, adjoint=True), b)
    for upper in (False, True):
        t = (a.triu() if upper else a.tril()) / n + wisp.eye(n, dtype=dtype)
        close(t @ L.solve_triangular(t, b, upper=upper), b)
        close(t.mT @ L.solve_triangular(t.mT, b, upper=not upper), b)


def test_a_zero_pivot_is_counted():
    for n in (4, 20, 100):
        a = random(6, n, n)
        a[2, :, 1] = a[3, :, 0] = a[4, 2] = 0
        assert L.lu_factor_ex(a).info.tolist() == [0, 0, 2, 1, n, 0]


def test_errors():
    with pytest.raises(L.LinAlgError, match="singular"):
        L.inv(wisp.zeros(2, 2))
    with pytest.raises(L.LinAlgError, match="Batch element 1"):
        L.cholesky(wisp.stack([wisp.eye(2), -wisp.eye(2)]))
    with pytest.raises(RuntimeError, match="square"):
        L.solve(wisp.ones(2, 3), wisp.ones(2))
    with pytest.raises(RuntimeError, match="floating point"):
        L.det(wisp.ones(2, 2, dtype=wisp.int64))
    with pytest.raises(L.LinAlgError, match="non-finite"):
        L.svd(wisp.full((2, 2), float("nan")))
    assert issubclass(L.LinAlgError, RuntimeError)
    assert L.inv_ex(wisp.zeros(2, 2)).info.item() == 1


def test_properties():
    a = random(3, 3)
    close(wisp.matrix_power(a, 3), a @ a @ a)
    close(wisp.matrix_power(a, -2) @ a @ a, wisp.eye(3, dtype=a.dtype))
    assert L.matrix_rank(wisp.ones(4, 3)).item() == 1
    for p in (None, 2, -2, 1, -1, float("inf"), "fro", "nuc"):
        close(L.cond(a, p), np.linalg.cond(a.numpy(), p))
        if p is not None:
            close(L.norm(a, p), np.linalg.norm(a.numpy(), p))
    t = random(4, 6, 8, 3)
    close(L.tensorinv(t), np.linalg.tensorinv(t.numpy()))
    t, b = random(2, 3, 6), random(2, 3)
    close(L.tensorsolve(t, b), np.linalg.tensorsolve(t.numpy(), b.numpy()))
    u, s, v = wisp.svd_lowrank(random(8, 2) @ random(2, 6), q=2)
    close((u * s) @ v.mT, random(8, 2) @ random(2, 6))
    a = random(5, 3, 8)  # passes without end come to their end when they change nothing
    close(wisp.svd_lowrank(a, q=3, niter=2**62)[1], L.svdvals(a))
    with pytest.raises(wisp.linalg.LinAlgError, match="non-finite"):
        wisp.svd_lowrank(a * float("nan"), q=3, niter=2**62)
    assert wisp.svd_lowrank(a[:0], q=3, niter=2**62)[1].shape == (0, 3)


def without_phases(qr):
    """Q and R with the diagonal of R made positive: the phases are free."""
    q, r = qr
    diagonal = r.diagonal()
    phases = diagonal / diagonal.abs()
    return q * phases, r * phases.conj().unsqueeze(-1)


GRADIENTS = {
    "inv": L.inv,
    "det": L.det,
    "slogdet": lambda a: L.slogdet(a)[1],
    "pinv": L.pinv,
    "matrix_exp": wisp.matrix_exp,
    "cholesky": lambda a: L.cholesky(a @ a.mH),
    "solve": lambda a: L.solve(a, a[:, :2]),
    "lu": lambda a: L.lu(a)[1:],
    "qr": lambda a: without_phases(L.qr(a)),
    "qr wide": lambda a: without_phases(L.qr(a[:2])),
    "svdvals": L.svdvals,
    "svd": lambda a: abs(L.svd(a, full_matrices=False)[0]),
    "eigh": lambda a: (L.eigh(a + a.mH)[0], abs(L.eigh(a + a.mH)[1])),
    "eigvals": lambda a: abs(L.eigvals(a)),
    "triangular": lambda a: L.solve_triangular(a, a[:, :2], upper=True),
    "lstsq": lambda a: L.lstsq(a[:, :2], a[:, 2:])[0],
    "lu_solve": lambda a: L.lu_solve(*L.lu_factor(a), a[:2], left=False, adjoint=True),
    "householder": lambda a: L.householder_product(a, a[0, :2]),
    "ormqr": lambda a: wisp.ormqr(a, a[0], a + 1, transpose=True),
}


@pytest.mark.parametrize("dtype", [wisp.float64, wisp.complex128])
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name, dtype):
    a = (random(3, 3, dtype=dtype, seed=3) + 2 * wisp.eye(3, dtype=dtype)).requires_grad_()
    assert gradcheck(GRADIENTS[name], a)
    assert gradgradcheck(GRADIENTS[name], a)


@pytest.mark.parametrize("n", [4, 9, 16])
def test_last_pivot_of_a_singular_matrix_is_seldom_zero(n):
    """Rounding leaves something, on which programs that solve with the transpose of a matrix times itself count."""
    a = wisp.rand(100, n + 3, n) @ (wisp.eye(n) - wisp.ones(n, n) / n)  # rows that sum to nothing
    info = wisp.stack([L.lu_factor_ex(x.mT @ x).info for x in a])
    assert (info != 0).sum() <= 3


def test_singular_determinant_is_differentiable():
    a = wisp.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=wisp.float64, requires_grad=True)
    L.det(a).backward()
    close(a.grad, np.array([[4.0, -2.0], [-2.0, 1.0]]))


def test_lstsq_broadcasts_batches():
    a, b = wisp.randn(2, 1, 4, 3, dtype=wisp.float64), wisp.randn(1, 5, 4, 2, dtype=wisp.float64)
    wisp.testing.assert_close(wisp.linalg.lstsq(a, b).solution, a.pinverse() @ b)


@pytest.mark.parametrize("driver", ["gelsy", "gels", "gelsd", "gelss"])
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
def test_tall_least_squares(driver, dtype):
    wisp.manual_seed(0)
    exact = 1e-5 if dtype == wisp.float32 else 1e-13
    for m, n, columns in ((16, 8, 1), (37, 9, 3), (512, 64, 4), (131, 65, 7)):
        a, b = wisp.randn(2, m, n, dtype=dtype), wisp.randn(2, m, columns, dtype=dtype)
        for scale in (1.0, 1e-12, 1e12):
            result = L.lstsq(a * scale, b, driver=driver)
            for i in range(2):
                x, residuals, _, _ = np.linalg.lstsq((a[i] * scale).double().numpy(), b[i].double().numpy(), rcond=None)
                np.testing.assert_allclose(result.solution[i].numpy(), x, rtol=0, atol=exact * abs(x).max())
                if driver != "gelsy":
                    np.testing.assert_allclose(result.residuals[i].numpy(), residuals, rtol=100 * exact)
            assert driver == "gels" or result.rank.tolist() == [n, n]
        if driver != "gels":  # a column of zeros, and one that is another's double
            a[..., 1], a[..., 3] = 2 * a[..., 0], 0
            result = L.lstsq(a, b, driver=driver)
            assert result.rank.tolist() == [n - 2, n - 2]
            wisp.testing.assert_close(result.solution, wisp.linalg.pinv(a, rtol=1e-5) @ b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype, eps", [(wisp.float32, 2e-5), (wisp.float64, 1e-13)])
@pytest.mark.parametrize("m, n", [(16, 16), (17, 40), (40, 17), (64, 64), (65, 33), (100, 97), (33, 130)])
def test_qr_around_the_edges_of_blocks(dtype, eps, m, n):
    wisp.manual_seed(m)
    x = wisp.randn(m, n, dtype=dtype)
    without_a_column = x.clone()
    without_a_column[:, 5] = 0
    for a in (x, without_a_column, x.triu(), x * 1e-30, wisp.ones(m, n, dtype=dtype)):
        for mode in ("reduced", "complete"):
            q, r = (y.double().numpy() for y in wisp.linalg.qr(a, mode=mode))
            assert np.abs(q @ r - a.double().numpy()).max() <= eps * m * a.abs().max().item()
            assert np.abs(q.T @ q - np.eye(q.shape[1])).max() < eps * m
            assert np.abs(np.tril(r, -1)).max() == 0


@pytest.mark.parametrize("dtype, eps", [(wisp.float32, 2e-5), (wisp.float64, 1e-13)])
@pytest.mark.parametrize("n", [16, 17, 31, 32, 33, 64, 100, 200, 230])
def test_eigh_around_the_edges_of_blocks(dtype, eps, n):
    wisp.manual_seed(n)
    x = wisp.randn(n, n, dtype=dtype)
    x = x + x.mT
    for a in (x, x * 1e-25, x * 1e25, x.diag().diag(), wisp.ones(n, n, dtype=dtype), wisp.zeros(n, n, dtype=dtype)):
        exact = np.linalg.eigvalsh(a.double().numpy())
        bound = eps * n * np.abs(exact).max()
        for uplo in "LU":
            half = a.tril() if uplo == "L" else a.triu()
            values, vectors = (y.double().numpy() for y in wisp.linalg.eigh(half, UPLO=uplo))
            assert np.abs(values - exact).max() <= bound
            assert np.abs(vectors.T @ vectors - np.eye(n)).max() < eps * n
            assert np.abs(a.double().numpy() @ vectors - vectors * values).max() <= bound
            assert np.abs(wisp.linalg.eigvalsh(half, UPLO=uplo).double().numpy() - exact).max() <= bound


def test_qr_and_eigh_do_not_depend_on_threads():
    a = wisp.randn(300, 300)
    threads = wisp.get_num_threads()
    results = []
    try:
        for count in (1, 3):
            wisp.set_num_threads(count)
            results.append([*wisp.linalg.qr(a), *wisp.linalg.eigh(a + a.mT)])
    finally:
        wisp.set_num_threads(threads)
    assert all((one == other).all() for one, other in zip(*results, strict=True))


def test_a_singular_factor_has_no_inverse():
    with pytest.raises(wisp.linalg.LinAlgError, match="diagonal element 2 is zero"):
        wisp.cholesky_inverse(wisp.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert wisp.cholesky_inverse(wisp.eye(2) * 2).tolist() == [[0.25, 0.0], [0.0, 0.25]]
    assert wisp.cholesky_inverse(wisp.ones(0, 0)).shape == (0, 0)


@pytest.mark.parametrize("dtype", [wisp.float64, wisp.complex128])
@pytest.mark.parametrize("upper", [False, True])
def test_the_gradient_of_a_cholesky_factor_is_that_of_any_factor(dtype, upper):
    triangle, b = wisp.triu if upper else wisp.tril, random(4, 2, dtype=dtype, seed=1).requires_grad_()
    factor = triangle(random(3, 4, 4, dtype=dtype) + 3 * wisp.eye(4)).requires_grad_()
    matrix = factor.mH @ factor if upper else factor @ factor.mH
    for ours, expected in (
        (wisp.cholesky_solve(b, factor, upper), L.solve(matrix, b)),
        (wisp.cholesky_inverse(factor, upper), L.inv(matrix)),
    ):
        ours, expected = (wisp.autograd.grad((y * y.conj()).sum().real, factor, retain_graph=True)[0] for y in (ours, expected))
        close(ours, expected)
    untidy = factor.detach() + (wisp.tril if upper else wisp.triu)(wisp.ones(4, 4), -1 if upper else 1)  # which is not read
    assert gradcheck(lambda f, b: wisp.cholesky_solve(b, triangle(f), upper), (untidy.requires_grad_(), b), check_forward_ad=True)
    assert gradgradcheck(lambda f, b: wisp.cholesky_solve(b, triangle(f), upper), (untidy, b))


def test_norms_without_an_identity_of_nothing():
    for order in (math.inf, -1.0):
        with pytest.raises(RuntimeError, match="does not have an identity"):
            wisp.linalg.vector_norm(wisp.ones(0, 0), order, dim=0)
    assert wisp.linalg.vector_norm(wisp.ones(2, 0), -1.0, dim=0).shape == (0,)


@pytest.mark.parametrize("upper", [False, True])
def test_gradients_by_a_cholesky_factor_are_those_of_its_product(upper):
    # Of both triangles, as of the matrix that the factor stands for.
    matrix = wisp.tensor([[3.0, 0.0, 0.0], [-1.0, 2.0, 0.0], [1.0, 4.0, 2.0]], dtype=wisp.float64)
    factor = (matrix.mT if upper else matrix).contiguous().requires_grad_()
    b = wisp.arange(6.0, dtype=wisp.float64).reshape(3, 2).requires_grad_()
    product = factor.mT @ factor if upper else factor @ factor.mT
    for found, exact in (
        (wisp.cholesky_solve(b, factor, upper=upper), wisp.linalg.solve(product, b)),
        (wisp.cholesky_inverse(factor, upper=upper), wisp.linalg.inv(product)),
    ):
        first, second = (wisp.autograd.grad(x.pow(2).sum(), factor, create_graph=True)[0] for x in (found, exact))
        wisp.testing.assert_close(first, second)
        wisp.testing.assert_close(*(wisp.autograd.grad(x.pow(2).sum(), factor, retain_graph=True)[0] for x in (first, second)))
    batched = wisp.cholesky_solve(b.expand(4, 3, 2), factor, upper=upper)
    assert wisp.autograd.grad(batched.sum(), factor)[0].shape == (3, 3)


SIGNS = {  # those of U that PyTorch gives; a column's sign is free, and goes with that of a row of Vh
    (2, 3): [[1, 1], [-1, 1]],
    (2, 5): [[1, -1], [1, 1]],
    (3, 7): [[1, -1, 1], [-1, -1, 1], [-1, 1, 1]],
}


@pytest.mark.parametrize("scale", [1.0, 1e-130, 1e130])
@pytest.mark.parametrize("shape", SIGNS)
def test_singular_vectors_of_wide_matrices(shape, scale):
    m, n = shape
    a = ((wisp.arange(float(m * n), dtype=wisp.float64) ** 2 % 11 - 4) * scale).view(m, n)
    for full in (False, True):
        u, s, vh = wisp.linalg.svd(wisp.stack([a, -2 * a]), full_matrices=full)
        for i, factor in enumerate((1, -2)):
            assert wisp.allclose(u[i] * s[i] @ vh[i, :m] / scale, factor * a / scale)
            assert wisp.allclose(vh[i] @ vh[i].mT, wisp.eye(n if full else m, dtype=wisp.float64))
            assert wisp.allclose(u[i].mT @ u[i], wisp.eye(m, dtype=wisp.float64))
        assert wisp.allclose(s[0], wisp.linalg.svdvals(a), atol=0)
        if scale == 1:
            assert u[0].sign().tolist() == SIGNS[shape]


@pytest.mark.parametrize("dtype, close", [(wisp.float32, 1e-5), (wisp.float64, 1e-13)])
@pytest.mark.parametrize("shape", [(2, 40), (7, 13), (40, 90), (70, 140)])
def test_wide_matrices_of_any_rank(shape, dtype, close):
    full_rank = wisp.randn(3, *shape, dtype=dtype)
    low_rank = full_rank[:, :, :1] @ full_rank[:, :1]
    for a in (full_rank, low_rank, wisp.zeros_like(full_rank), wisp.cat((low_rank[:1], 0 * full_rank[:2]))):
        u, s, vh = wisp.linalg.svd(a, full_matrices=False)
        scale = s.max().clamp(min=1)
        assert ((u * s.unsqueeze(-2)) @ vh - a).abs().max() <= close * scale
        assert (vh @ vh.mT - wisp.eye(shape[0], dtype=dtype)).abs().max() <= close
        assert (s[:, :-1] >= s[:, 1:]).all() and (s >= 0).all()


@pytest.mark.parametrize("norm", [wisp.linalg.norm, wisp.linalg.matrix_norm])
def test_a_list_of_very_many_dimensions_is_refused_by_its_length(norm):
    with pytest.raises(RuntimeError, match="Got 1048576 dimensions"):
        norm(wisp.ones(2, 3), dim=wisp.ones(1, dtype=wisp.int64).expand(2**20))
    with pytest.raises(RuntimeError, match=r"Got [\[(]0, 1, 2[\])]"):
        norm(wisp.ones(2, 3), dim=(0, 1, 2))


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64, wisp.complex128], ids=str)
def test_eigh_of_small_matrices_that_are_not_finite(dtype):
    """Lanczos' method on an identity asks for it."""
    nan = float("nan")
    values, vectors = wisp.linalg.eigh(wisp.tensor([[1.0, nan], [nan, nan]], dtype=dtype))
    assert values.isnan().all() and vectors.isnan().all()
    assert wisp.linalg.eigvalsh(wisp.tensor([[nan]], dtype=dtype)).isnan().all()
    with pytest.raises(wisp.linalg.LinAlgError, match="non-finite"):
        wisp.linalg.eigh(wisp.full((3, 3), nan, dtype=dtype))
