"""Matrix products against NumPy in double precision: sizes around tile edges, layouts, dtypes, gradients, errors."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest

import wisp

SIZES = (0, 1, 2, 5, 7, 13, 16, 17, 33, 64, 65)


def matrix(rows, columns, layout, dtype=wisp.float32):
    if layout == "contiguous":
        return wisp.randn(rows, columns, dtype=dtype)
    if layout == "transposed":
        return wisp.randn(columns, rows, dtype=dtype).t()
    if layout == "strided":
        return wisp.randn(2 * rows, 3 * columns, dtype=dtype)[::2, ::3]
    return wisp.randn(1, columns, dtype=dtype).expand(rows, columns)


def close(got, expected, dtype=wisp.float32):
    tolerance = {
        wisp.float32: 2e-5,
        wisp.float64: 1e-12,
        wisp.complex64: 5e-5,
        wisp.complex128: 1e-12,
        wisp.bfloat16: 2e-2,
        wisp.float16: 3e-3,
    }[dtype]
    got = (got.float() if dtype in (wisp.bfloat16, wisp.float16) else got).detach().numpy()
    scale = max(1.0, float(np.abs(expected).max())) if expected.size else 1.0
    assert got.shape == expected.shape
    assert np.allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("left", ["contiguous", "transposed", "strided", "expanded"])
@pytest.mark.parametrize("right", ["contiguous", "transposed", "strided", "expanded"])
def test_sizes_and_layouts(left, right):
    wisp.manual_seed(0)
    for m, n, k in itertools.product(SIZES[::2], SIZES[1::2], SIZES):
        a, b = matrix(m, k, left), matrix(k, n, right)
        close(a @ b, a.double().numpy() @ b.double().numpy())


@pytest.mark.parametrize(
    "m,n,k",
    [
        (300, 200, 700),
        (7, 900, 1000),
        (1, 1000, 1000),
        (1000, 1, 900),
        (16, 40, 9000),
        (100, 2100, 520),
        (64, 300, 90),
        (131, 270, 600),
        (200, 3000, 70),
    ],
)
def test_large(m, n, k):
    wisp.manual_seed(0)
    for left, right in itertools.product(("contiguous", "transposed"), repeat=2):
        a, b = matrix(m, k, left), matrix(k, n, right)
        close(a @ b, a.double().numpy() @ b.double().numpy())


@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64])
@pytest.mark.parametrize("alpha,beta", [(1, 1), (0.5, 2), (1, 0)])
@pytest.mark.parametrize("m, n, k", [(67, 299, 130), (23, 411, 2500), (7, 83, 1100)])  # the longer ones in parts of k
def test_few_rows_times_a_transposed_matrix(m, n, k, alpha, beta, dtype):
    wisp.manual_seed(0)
    a, b = matrix(m, k, "contiguous", dtype), matrix(k, n, "transposed", dtype)
    exact = alpha * (a.double().numpy() @ b.double().numpy())
    for input in (wisp.randn(n, dtype=dtype), wisp.randn(m, 1, dtype=dtype), wisp.randn(m, n, dtype=dtype)):
        expected = exact + beta * input.double().numpy()
        close(wisp.addmm(input, a, b, alpha=alpha, beta=beta), expected, dtype)
        if input.shape == expected.shape:
            close(input.addmm_(a, b, alpha=alpha, beta=beta), expected, dtype)


@pytest.mark.parametrize("dtype", [wisp.float64, wisp.complex64, wisp.complex128, wisp.bfloat16, wisp.float16])
def test_dtypes(dtype):
    wisp.manual_seed(0)
    wide = wisp.complex128 if dtype.is_complex else wisp.float64
    for m, n, k in [(0, 3, 2), (3, 4, 0), (1, 1, 5), (4, 5, 6), (33, 17, 65), (70, 80, 90), (30, 300, 60)]:
        a, b = matrix(m, k, "transposed", dtype), matrix(k, n, "strided", dtype)
        close(a @ b, a.to(wide).numpy() @ b.to(wide).numpy(), dtype)


@pytest.mark.parametrize("dtype", [wisp.int64, wisp.int32, wisp.int16, wisp.int8, wisp.uint8])
def test_integers_wrap_around(dtype):
    a, b = wisp.randint(0, 127, (37, 41), dtype=dtype), wisp.randint(0, 127, (41, 29), dtype=dtype)
    for right in (b, b.t().contiguous().t()):
        assert np.array_equal((a @ right).numpy(), a.numpy() @ b.numpy())


@pytest.mark.parametrize("k", [8191, 8192, 65537, 131071, 131072, 200001, 1000003])
def test_long_sums_of_products(k):
    a, b = wisp.randn(2, k, dtype=wisp.float64), wisp.randn(k, 3, dtype=wisp.float64)
    want = a.numpy() @ b.numpy()
    before = wisp.get_num_threads()
    try:
        for threads in (1, 2, 3):
            wisp.set_num_threads(threads)
            assert np.allclose((a @ b).numpy(), want, rtol=1e-9, atol=1e-8)
            assert np.allclose((a.float() @ b.float()).numpy(), want, rtol=0, atol=1e-5 * k**0.5)
            assert np.allclose(wisp.dot(a[0], b[:, 0].contiguous()).item(), want[0, 0], rtol=1e-9, atol=1e-8)
    finally:
        wisp.set_num_threads(before)


def test_threads_give_the_same_numbers():
    before = wisp.get_num_threads()
    try:
        products = [
            (wisp.randn(m, k), wisp.randn(n, k).t())
            for m, n, k in [(200, 300, 400), (64, 128, 784), (40, 300, 2500), (1, 900, 900), (8, 20, 9000), (3, 2, 150000)]
        ]
        products += [(wisp.randn(150, 600), wisp.randn(600, 1200))]  # columns are shared out only where they suffice
        for m, n, k, dtype in [(384, 128, 512, wisp.float32), (250, 130, 999, wisp.float32), (250, 130, 999, wisp.float64)]:
            products += [(wisp.randn(k, m, dtype=dtype).t(), wisp.randn(k, n, dtype=dtype))]  # k is cut in halves
        products += [(wisp.randn(40, 200, dtype=wisp.complex64), wisp.randn(200, 300, dtype=wisp.complex64))]
        for m, n, k in [(300, 200, 1100), (40, 2100, 70), (2100, 40, 600), (260, 530, 513)]:
            for left, right in itertools.product(("contiguous", "transposed"), repeat=2):
                products += [(matrix(m, k, left, wisp.bfloat16), matrix(k, n, right, wisp.bfloat16))]
        for a, b in products:
            results = []
            for threads in (1, 2, 5):
                wisp.set_num_threads(threads)
                product = a @ b
                results.append((product.float() if product.dtype == wisp.bfloat16 else product).numpy())
            assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])
    finally:
        wisp.set_num_threads(before)


@pytest.mark.parametrize(
    "a,b",
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 2)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (4, 3, 2)),
        ((0, 2, 3), (3, 4)),
        ((2, 0, 3), (2, 3, 4)),
        ((2, 1, 1, 2, 1, 1, 2, 1, 1, 2, 3), (1, 2, 2, 1, 2, 2, 1, 2, 2, 3, 2)),
    ],
)
def test_matmul_broadcasts_and_differentiates(a, b):
    wisp.manual_seed(0)
    x, y = wisp.randn(a, dtype=wisp.float64, requires_grad=True), wisp.randn(b, dtype=wisp.float64, requires_grad=True)
    close(x @ y, x.detach().numpy() @ y.detach().numpy(), wisp.float64)
    if x.numel() <= 64 and y.numel() <= 64:
        assert wisp.autograd.gradcheck(wisp.matmul, (x, y))
        assert wisp.autograd.gradgradcheck(wisp.matmul, (x, y))


def test_batches_need_no_copy_of_permuted_operands():
    q, k = wisp.randn(2, 20, 3, 16).transpose(1, 2), wisp.randn(2, 25, 3, 16).permute(0, 2, 3, 1)
    close(q @ k, q.double().numpy() @ k.double().numpy())


@pytest.mark.parametrize("dtype", [wisp.float64, wisp.complex128])
@pytest.mark.parametrize(
    "name,shapes",
    [
        ("mm", [(2, 3), (3, 4)]),
        ("bmm", [(2, 3, 4), (2, 4, 2)]),
        ("mv", [(2, 3), (3,)]),
        ("dot", [(3,), (3,)]),
        ("vdot", [(3,), (3,)]),
        ("outer", [(2,), (3,)]),
        ("inner", [(2, 3), (4, 3)]),
        ("kron", [(2, 2), (3, 1)]),
        ("addmm", [(4,), (2, 3), (3, 4)]),
        ("addmv", [(2,), (2, 3), (3,)]),
        ("addr", [(2, 3), (2,), (3,)]),
        ("baddbmm", [(2, 1), (2, 2, 3), (2, 3, 2)]),
        ("addbmm", [(2, 2), (3, 2, 2), (3, 2, 2)]),
    ],
)
def test_gradients(name, shapes, dtype):
    wisp.manual_seed(0)
    inputs = [wisp.randn(s, dtype=dtype, requires_grad=True) for s in shapes]
    scale = {"beta": 0.7, "alpha": -1.3} if name.startswith(("add", "badd")) else {}

    def function(*tensors):
        return getattr(wisp, name)(*tensors, **scale)

    assert wisp.autograd.gradcheck(function, inputs)
    assert wisp.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 3), (0, 3)])
def test_linear(shape):
    wisp.manual_seed(0)
    x = wisp.randn(shape, dtype=wisp.float64, requires_grad=True)
    w, b = (wisp.randn(s, dtype=wisp.float64, requires_grad=True) for s in ((4, 3), (4,)))
    linear = wisp.nn.functional.linear
    close(linear(x, w, b), x.detach().numpy() @ w.detach().numpy().T + b.detach().numpy(), wisp.float64)
    assert wisp.autograd.gradcheck(linear, (x, w, b))
    assert wisp.autograd.gradgradcheck(linear, (x, w, b))
    assert wisp.autograd.gradcheck(linear, (x, w))


def test_beta_zero_ignores_nan():
    nan = wisp.full((2, 2), float("nan"))
    assert wisp.addmm(nan, wisp.ones(2, 3), wisp.ones(3, 2), beta=0).numpy().tolist() == [[3, 3], [3, 3]]
    assert nan.clone().addmm_(wisp.ones(2, 3), wisp.ones(3, 2), beta=0, alpha=2).numpy().tolist() == [[6, 6], [6, 6]]
    for batches in (0, 2):
        for run in (wisp.addbmm, lambda *args, **options: args[0].clone().addbmm_(*args[1:], **options)):
            found = run(nan, wisp.ones(batches, 2, 3), wisp.ones(batches, 3, 2), beta=0)
            assert found.tolist() == [[3.0 * batches] * 2] * 2
    assert wisp.baddbmm(wisp.stack([nan]), wisp.ones(1, 2, 0), wisp.ones(1, 0, 2), beta=0).tolist() == [[[0.0, 0.0], [0.0, 0.0]]]
    assert wisp.addmm(nan, wisp.ones(2, 0), wisp.ones(0, 2), beta=0).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert wisp.addmv(nan[0], wisp.ones(2, 0), wisp.ones(0), beta=0).tolist() == [0.0, 0.0]


def test_in_place_and_out():
    a, b = wisp.randn(2, 3), wisp.randn(3, 2)
    out = wisp.empty(2, 2)
    assert wisp.mm(a, b, out=out) is out and np.array_equal(out.numpy(), (a @ b).numpy())
    x = wisp.ones(2, 2)
    before = x.data_ptr()
    assert x.addmm_(a, b) is x and x.data_ptr() == before
    close(x, 1 + (a @ b).numpy())


@pytest.mark.parametrize(
    "equation,shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ii->i", [(3, 3)]),
        ("ii", [(3, 3)]),
        ("ij->ji", [(2, 3)]),
        ("i,j->ij", [(2,), (3,)]),
        ("...ij,...jk->...ik", [(2, 2, 3), (2, 3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,ij->", [(2, 3), (2, 3)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("i->", [(4,)]),
        ("iij,jk->ik", [(2, 2, 3), (3, 4)]),
        ("a,ab,abc->abc", [(2,), (2, 3), (2, 3, 4)]),
        ("...->...", [(2, 3)]),
        ("bn,anm,bm->ba", [(2, 3), (5, 3, 4), (2, 4)]),
    ],
)
def test_einsum(equation, shapes):
    wisp.manual_seed(0)
    operands = [wisp.randn(s, dtype=wisp.float64, requires_grad=True) for s in shapes]
    close(wisp.einsum(equation, *operands), np.einsum(equation, *(t.detach().numpy() for t in operands)), wisp.float64)
    assert wisp.autograd.gradcheck(lambda *t: wisp.einsum(equation, *t), operands)


def test_einsum_with_lists_of_subscripts():
    a, b = wisp.randn(2, 3), wisp.randn(3, 4)
    close(wisp.einsum(a, [0, 1], b, [1, 2], [0, 2]), a.numpy() @ b.numpy())


def test_tensordot_and_chains():
    wisp.manual_seed(0)
    a, b = wisp.randn(2, 3, 4), wisp.randn(4, 3, 5)
    close(wisp.tensordot(a, b, dims=([1, 2], [1, 0])), np.tensordot(a.numpy(), b.numpy(), ([1, 2], [1, 0])))
    close(wisp.tensordot(a, b.permute(1, 0, 2)), np.tensordot(a.numpy(), b.permute(1, 0, 2).numpy()))
    close(wisp.tensordot(a, b, dims=0), np.tensordot(a.numpy(), b.numpy(), 0))
    chain = [wisp.randn(s) for s in ((5,), (5, 30), (30, 2), (2, 7), (7,))]
    close(wisp._core._operators["linalg"]["multi_dot"](chain), np.linalg.multi_dot([t.numpy() for t in chain]))


@pytest.mark.parametrize(
    "call,message",
    [
        (lambda: wisp.ones(2, 3) @ wisp.ones(2, 3), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
        (lambda: wisp.mm(wisp.ones(3), wisp.ones(3, 2)), "self must be a matrix"),
        (lambda: wisp.mm(wisp.ones(2, 3), wisp.ones(3, 2).double()), "expected m1 and m2 to have the same dtype, but got: float != double"),
        (
            lambda: wisp.bmm(wisp.ones(2, 3, 4), wisp.ones(2, 3, 4)),
            "Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [2, 3].",
        ),
        (lambda: wisp.ones(3) @ wisp.tensor(1.0), "both arguments to matmul need to be at least 1D, but they are 1D and 0D"),
        (
            lambda: wisp.dot(wisp.ones(3), wisp.ones(4)),
            "inconsistent tensor size, expected tensor [3] and src [4] to have the same number of "
            "elements, but got 3 and 4 elements respectively",
        ),
        (lambda: wisp.nn.functional.linear(wisp.ones(2, 3), wisp.ones(4, 4)), "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x4)"),
        (
            lambda: wisp.ones(2, 3, 4) @ wisp.ones(3, 4, 5),
            "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0",
        ),
        (
            lambda: wisp.einsum("ij,jk", wisp.ones(2, 3), wisp.ones(4, 5)),
            "einsum(): subscript j has size 4 for operand 1 which does not broadcast with previously seen size 3",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(RuntimeError) as error:
        call()
    assert str(error.value).startswith(message)


def test_bool_is_not_supported():
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        wisp.ones(2, 2, dtype=wisp.bool) @ wisp.ones(2, 2, dtype=wisp.bool)


@pytest.mark.parametrize("m, n, k", [(1, 70, 33), (2, 1, 1), (6, 64, 512), (7, 65, 513), (13, 130, 1100), (100, 17, 3)])
def test_bfloat16_sums_in_float(m, n, k):
    for transpose_a in (False, True):
        for transpose_b in (False, True):
            a = wisp.randn(k, m).bfloat16().t() if transpose_a else wisp.randn(m, k).bfloat16()
            b = wisp.randn(n, k).bfloat16().t() if transpose_b else wisp.randn(k, n).bfloat16()
            c = wisp.randn(n).bfloat16()
            exact = a.double().numpy() @ b.double().numpy()
            bound = 2**-8 * np.abs(exact) + 1e-5 * k
            assert (np.abs((a @ b).double().numpy() - exact) <= bound).all()
            exact = 2 * exact + 0.5 * c.double().numpy()
            bound = 2**-8 * np.abs(exact) + 2e-5 * k + 1e-2
            assert (np.abs(wisp.addmm(c, a, b, beta=0.5, alpha=2).double().numpy() - exact) <= bound).all()
    strided = wisp.randn(2 * m, 3 * k).bfloat16()[::2, ::3]
    square = wisp.randn(k, n).bfloat16()
    exact = strided.double().numpy() @ square.double().numpy()
    assert np.allclose((strided @ square).double().numpy(), exact, rtol=1e-2, atol=1e-3 * k)
    between_words = wisp.randn(m * (k + 1) + 1).bfloat16()[1:].view(m, k + 1)[:, :k]
    close(between_words @ square, between_words.double().numpy() @ square.double().numpy(), wisp.bfloat16)
    infinite = wisp.full((m, k), float("inf")).bfloat16()
    assert (infinite @ wisp.ones(k, n).bfloat16()).isinf().all()
    assert (infinite @ wisp.zeros(k, n).bfloat16()).isnan().all()


def whole_numbers(rows, columns, layout):
    """Products of these, and their sums, are exact in float: only the last rounding is left."""
    x = wisp.randint(-4, 5, (2 * rows + 1, 2 * columns + 1)).bfloat16()
    if layout == "contiguous":
        return x[:rows, :columns].contiguous()
    if layout == "transposed":
        return x[:rows, :columns].t().contiguous().t()
    inside = wisp.full((2 * rows + 1, 2 * columns + 1), float("nan"), dtype=wisp.bfloat16)  # what lies around belongs to nobody
    part = inside[1::2, 1::2] if layout == "strided" else inside[1 : rows + 1, 1 : columns + 1]
    return part.copy_(x[:rows, :columns])


# Whole tiles of 16 and 32, parts of them, one row or column, sums in several parts, more columns and rows than one block.
@pytest.mark.parametrize(
    "m, n, k",
    [
        (16, 64, 32),
        (32, 32, 33),
        (33, 47, 31),
        (48, 17, 64),
        (65, 100, 95),
        (1, 300, 130),
        (300, 1, 130),
        (40, 2100, 9),
        (2100, 40, 9),
        (70, 40, 513),
        (33, 600, 1030),
        (600, 33, 1030),
        (530, 530, 1100),
        (20, 30, 4100),
        (3, 9, 9000),
    ],
)
def test_bfloat16_products_are_rounded_once(m, n, k):
    layouts = ("contiguous", "transposed", "strided", "part")
    for left, right in itertools.product(layouts, repeat=2):
        a, b = whole_numbers(m, k, left), whole_numbers(k, n, right)
        exact = a.double() @ b.double()
        assert wisp.equal(a @ b, exact.bfloat16())
        for input in (whole_numbers(m, n, right), whole_numbers(1, n, left)[0], whole_numbers(m, 1, left)):
            assert wisp.equal(wisp.addmm(input, a, b, alpha=2, beta=0.5), (2 * exact + 0.5 * input.double()).bfloat16())
        out = whole_numbers(m, n, "contiguous")
        expected = (exact - out.double()).bfloat16()
        assert wisp.equal(out.addmm_(a, b, beta=-1), expected)
    for at in ((0, 0), (m // 2, k // 2), (m - 1, k - 1)):
        a, b = whole_numbers(m, k, "contiguous"), whole_numbers(k, n, "contiguous")
        a[at] = float("nan")
        spoilt = (a @ b).isnan()
        assert spoilt[at[0]].all() and spoilt.sum() == n


@pytest.mark.parametrize("count, m, n, k", [(3, 5, 6, 7), (7, 40, 50, 60), (2, 300, 200, 520), (70, 16, 16, 80)])
def test_bfloat16_batches_are_rounded_once(count, m, n, k):
    layouts = ("contiguous", "transposed", "part")
    for left, right in itertools.product(layouts, repeat=2):
        a, b = (wisp.stack([whole_numbers(*size, "contiguous") for _ in range(count)]) for size in ((m, k), (k, n)))
        if left == "transposed":
            a = a.mT.contiguous().mT
        if right == "transposed":
            b = b.mT.contiguous().mT
        if left == "part":
            a, b = a[:, 1:], b[:, :, 1:]
        assert wisp.equal(a @ b, (a.double() @ b.double()).bfloat16())


def test_bfloat16_linear_layers_have_exact_gradients():
    x, weight, bias = whole_numbers(70, 96, "contiguous"), whole_numbers(200, 96, "contiguous"), whole_numbers(1, 200, "contiguous")[0]
    given = whole_numbers(70, 200, "contiguous")
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    y = wisp.nn.functional.linear(*leaves)
    assert wisp.equal(y, (x.double() @ weight.double().t() + bias.double()).bfloat16())
    y.backward(given)
    assert wisp.equal(x.grad, (given.double() @ weight.double()).bfloat16())
    assert wisp.equal(weight.grad, (given.double().t() @ x.double()).bfloat16())
    assert wisp.equal(bias.grad, given.double().sum(0).bfloat16())


def test_bfloat16_products_of_every_instruction_set():
    """The same tests in processes that are told to use fewer instructions: one for each set that was built, without tiles at least."""
    if os.environ.get("WISP_ISA"):
        return
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", "bfloat16 or threads"]
    for isa in wisp._core._built_instruction_sets().split():
        subprocess.run(command, check=True, env={**os.environ, "WISP_ISA": isa}, stdout=subprocess.DEVNULL)


def test_bfloat16_products_after_a_fork():
    """What a process may use of its processor, its children may: they get it from their parent."""
    a, b = whole_numbers(64, 200, "contiguous"), whole_numbers(200, 64, "contiguous")
    expected = a @ b
    child = os.fork()
    if child == 0:
        os._exit(0 if wisp.equal(a @ b, expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("name", ["addmm", "addmv", "addr", "addbmm", "baddbmm"])
def test_the_older_order_of_arguments_warns_by_the_name_that_was_called(name):
    vector, matrix, batch = wisp.ones(2), wisp.ones(2, 2), wisp.ones(1, 2, 2)
    self, a, b = {
        "addmm": (matrix, matrix, matrix),
        "addmv": (vector, matrix, vector),
        "addr": (matrix, vector, vector),
        "addbmm": (matrix, batch, batch),
        "baddbmm": (batch, batch, batch),
    }[name]
    expected = getattr(wisp, name)(self, a, b, beta=2, alpha=3)
    with pytest.warns(UserWarning, match=f"This overload of {name} is deprecated"):
        assert wisp.equal(getattr(self, name)(2, 3, a, b), expected)
    written = self.clone()
    with pytest.warns(UserWarning, match=f"This overload of {name}_ is deprecated"):
        assert getattr(written, name + "_")(2, 3, a, b) is written
    assert wisp.equal(written, expected)
    x = self.clone().requires_grad_()
    y = x.clone()
    with pytest.warns(UserWarning, match=f"This overload of {name}_ is deprecated"):
        getattr(y, name + "_")(2, a, b)
    assert wisp.equal(wisp.autograd.grad(y.sum(), x)[0], wisp.full_like(self, 2.0))
