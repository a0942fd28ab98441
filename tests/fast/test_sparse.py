"""Sparse tensors: what they are, products and gradients, sparse gradients in training, and that nothing else reads them."""

import copy
import doctest
import io
import pickle
import warnings

import pytest

import wisp
from wisp import sparse
from wisp.sparse import _operators, _tensor

DENSE = [[0.0, 1.0, 0.0], [2.0, 0.0, 3.0]]
LAYOUTS = (wisp.sparse_coo, wisp.sparse_csr, wisp.sparse_csc)


def matrix(layout=wisp.sparse_coo, dtype=wisp.float32):
    return wisp.tensor(DENSE, dtype=dtype).to_sparse(layout=layout)


def random_sparse(rows, columns, density=0.3, dtype=wisp.float64, layout=wisp.sparse_coo):
    dense = wisp.randn(rows, columns, dtype=dtype) * (wisp.rand(rows, columns) < density)
    return dense.to_sparse(layout=layout)


def test_documentation():
    for module in (sparse, _tensor, _operators):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_round_trip(layout):
    a = matrix(layout)
    assert a.layout is layout and a.shape == (2, 3) and a._nnz() == 3 and isinstance(a, wisp.Tensor)
    assert a.is_sparse == (layout is wisp.sparse_coo) and a.is_sparse_csr == (layout is wisp.sparse_csr)
    assert a.to_dense().tolist() == DENSE
    for other in LAYOUTS:
        assert a.to_sparse(layout=other).to_dense().tolist() == DENSE
    assert a.t().to_dense().tolist() == wisp.tensor(DENSE).t().tolist()
    for copied in (a.clone(), copy.deepcopy(a), pickle.loads(pickle.dumps(a)), a.detach()):
        assert copied.layout is layout and copied.to_dense().tolist() == DENSE
    file = io.BytesIO()
    wisp.save([a], file)
    file.seek(0)
    assert wisp.load(file)[0].to_dense().tolist() == DENSE


def test_coalesce_adds_equal_places():
    a = wisp.sparse_coo_tensor([[1, 0, 1], [0, 1, 0]], [1.0, 2.0, 3.0], (2, 2))
    assert not a.is_coalesced()
    with pytest.raises(RuntimeError, match="uncoalesced"):
        a.values()
    c = a.coalesce()
    assert c.is_coalesced() and c.indices().tolist() == [[0, 1], [1, 0]] and c.values().tolist() == [2.0, 4.0]
    assert a.to_dense().tolist() == [[0.0, 2.0], [4.0, 0.0]]
    assert c.coalesce() is c


@pytest.mark.parametrize("size", [(), (0,), (0, 3), (3, 0), (1, 1)])
def test_empty_and_tiny(size):
    a = wisp.ones(size).to_sparse()
    assert a.shape == size and a.to_dense().tolist() == wisp.ones(size).tolist()
    assert (a + a).to_dense().tolist() == wisp.full(size, 2.0).tolist()
    assert float(a.sum()) == wisp.ones(size).numel()
    if len(size) == 2:
        assert (a @ wisp.ones(size[1], 2)).tolist() == (wisp.ones(size) @ wisp.ones(size[1], 2)).tolist()
        assert a.to_sparse_csr().to_dense().shape == size


def test_wrong_arguments():
    for arguments in (
        ([[5]], [1.0], (2,)),
        ([[-1]], [1.0], (2,)),
        ([[0, 1]], [1.0]),
        ([[0]], [1.0], (2, 2)),
        ([0], [1.0]),
        ([[0]], wisp.ones(1, 3), (2, 4)),
    ):
        with pytest.raises(RuntimeError):
            wisp.sparse_coo_tensor(*arguments)
    for arguments in (
        ([0, 1, 5], [1, 0], [1.0, 2.0]),
        ([1, 1, 2], [1, 0], [1.0, 2.0]),
        ([0, 2, 1, 2], [1, 0], [1.0, 2.0]),
        ([0, 1, 2], [1, 7], [1.0, 2.0], (2, 2)),
        ([0, 1, 2], [1, -1], [1.0, 2.0]),
        ([0, 1, 2], [1, 0], [1.0]),
        ([], [], []),
    ):
        with pytest.raises(RuntimeError):
            wisp.sparse_csr_tensor(*arguments)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        matrix() @ wisp.ones(2, 2)
    with pytest.raises(RuntimeError, match="same dtype"):
        matrix() @ wisp.ones(3, 2, dtype=wisp.float64)
    a = matrix(wisp.sparse_csr)
    a.col_indices()[0] = 100  # what was checked at construction is checked again before the product reads it
    with pytest.raises(IndexError, match="out of bounds"):
        a @ wisp.ones(3, 2)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [wisp.float32, wisp.float64, wisp.bfloat16, wisp.float16, wisp.int64, wisp.int32, wisp.complex64])
def test_products(layout, dtype):
    dense = (wisp.randint(-4, 5, (37, 23)) * (wisp.rand(37, 23) < 0.3)).to(dtype)
    a = dense.to_sparse(layout=layout)
    for width in (1, 3, 16, 70):
        x = wisp.randint(-3, 4, (23, width)).to(dtype)
        assert (a @ x).tolist() == (dense @ x).tolist()
        assert (x.t() @ a.t()).tolist() == (dense @ x).t().tolist()
        assert (a @ x.t().contiguous().t()).tolist() == (dense @ x).tolist()
    assert (a @ x[:, 0]).tolist() == (dense @ x[:, 0]).tolist()
    assert wisp.addmm(wisp.ones(37, 70, dtype=dtype), a, x, beta=2, alpha=3).tolist() == (3 * (dense @ x) + 2).tolist()
    assert (a @ a.t()).to_dense().tolist() == (dense @ dense.t()).tolist()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_products(layout):
    check = sparse.as_sparse_gradcheck(wisp.autograd.gradcheck)
    check_twice = sparse.as_sparse_gradcheck(wisp.autograd.gradgradcheck)
    a = random_sparse(6, 5, layout=layout).requires_grad_()
    x = wisp.randn(5, 3, dtype=wisp.float64, requires_grad=True)
    assert check(sparse.mm, (a, x)) and check_twice(sparse.mm, (a, x))
    assert check(lambda m: sparse.mm(m, m.t()), (a,))
    assert check(lambda m: m.to_dense() ** 2, (a,))
    assert check(lambda m: (m * m).sum(), (a,))
    z = random_sparse(4, 5, layout=layout, dtype=wisp.complex128).requires_grad_()
    w = wisp.randn(5, 2, dtype=wisp.complex128, requires_grad=True)
    assert check(sparse.mm, (z, w))


def test_values_carry_the_gradient():
    values = wisp.tensor([1.0, 2.0], requires_grad=True)
    a = wisp.sparse_coo_tensor([[0, 1], [1, 0]], values, (2, 3))
    assert a.requires_grad and not a.is_leaf
    (a @ wisp.ones(3, 2)).sum().backward()
    assert values.grad.tolist() == [2.0, 2.0]
    leaf = matrix().requires_grad_()
    assert leaf.is_leaf
    for _ in range(2):
        sparse.mm(leaf, wisp.ones(3, 2)).sum().backward()
    assert leaf.grad.is_sparse and leaf.grad.values().tolist() == [4.0] * 3
    (gradient,) = wisp.autograd.grad(leaf.to_dense().pow(2).sum(), leaf)
    assert gradient.is_sparse and gradient.to_dense().tolist() == [[0, 2, 0], [4, 0, 6]]
    leaf.grad = None
    (leaf * 3).backward(wisp.ones(2, 3).to_sparse())
    assert leaf.grad.values().tolist() == [3.0] * 3
    with pytest.raises(RuntimeError, match="in-place"):
        leaf.mul_(2)


def test_transforms_see_the_values():
    a, x = random_sparse(4, 5), wisp.randn(5, 2, dtype=wisp.float64)
    values, direction = a.values().clone(), wisp.randn(a._nnz(), dtype=wisp.float64)

    def product(v):
        return wisp.sparse_coo_tensor(a.indices(), v, a.shape) @ x

    _, tangent = wisp.func.jvp(product, (values,), (direction,))
    assert wisp.allclose(tangent, product(direction))
    _, tangent = wisp.func.jvp(lambda x: a @ x, (x,), (x * 2,))
    assert wisp.allclose(tangent, a @ (x * 2))
    jacobian = wisp.func.jacrev(product)(values)
    assert wisp.allclose(jacobian @ direction, product(direction))
    assert wisp.allclose(wisp.func.jacfwd(product)(values), jacobian)
    assert wisp.func.vmap(lambda v: a @ v)(x.t()).shape == (2, 4)


def test_linear_layer_of_sparse_rows():
    layer, rows = wisp.nn.Linear(3, 4), matrix()
    assert wisp.allclose(layer(rows), layer(rows.to_dense()), atol=1e-6)
    layer(rows).sum().backward()
    assert wisp.allclose(layer.weight.grad, rows.to_dense().sum(0).expand(4, 3))


def test_threads_do_not_change_results():
    a, x = random_sparse(400, 300, dtype=wisp.float32), wisp.randn(300, 50, requires_grad=True)
    before, results = wisp.get_num_threads(), []
    for threads in (1, 2):
        wisp.set_num_threads(threads)
        y = a @ x
        (gradient,) = wisp.autograd.grad(y.sum(), x)
        results.append((y.tolist(), gradient.tolist()))
    wisp.set_num_threads(before)
    assert results[0] == results[1]


def test_batches():
    dense = wisp.randn(3, 4, 5) * (wisp.rand(3, 4, 5) < 0.5)
    x = wisp.randn(3, 5, 2, requires_grad=True)
    y = wisp.bmm(dense.to_sparse(), x)
    assert wisp.allclose(y, dense @ x, atol=1e-6)
    y.sum().backward()
    assert wisp.allclose(x.grad, dense.sum(1).unsqueeze(2).expand(3, 5, 2), atol=1e-6)


def test_softmax_over_stored_elements():
    dense = wisp.randn(5, 6, dtype=wisp.float64)
    mask = wisp.rand(5, 6) < 0.5
    a = (dense * mask).to_sparse().requires_grad_()
    for dim in (0, 1, -1):
        expected = wisp.where(mask, dense, -wisp.inf).softmax(dim).nan_to_num(0)
        assert wisp.allclose(sparse.softmax(a, dim).to_dense(), expected)
        assert wisp.allclose(sparse.log_softmax(a, dim).to_dense().exp() * mask, expected)
    assert sparse.as_sparse_gradcheck(wisp.autograd.gradcheck)(lambda m: sparse.softmax(m, 1), (a,))


def test_parameter_in_an_operator_with_a_sparse_tensor():
    p = wisp.nn.Parameter(wisp.ones(2, 3))
    assert (p + matrix()).tolist() == (p + wisp.tensor(DENSE)).tolist()
    assert (p * matrix()).to_dense().tolist() == DENSE
    assert (wisp.nn.Parameter(wisp.ones(1, 2)) @ matrix()).tolist() == [[2.0, 1.0, 3.0]]
    x = wisp.zeros(2, 3)
    same = x
    x += matrix()
    assert x is same and x.tolist() == DENSE
    with pytest.raises(NotImplementedError):
        wisp.nn.Parameter(matrix())


@pytest.mark.parametrize("mode", ["rows", "sum", "mean"])
def test_embedding_gives_sparse_gradients(mode):
    weight = wisp.randn(7, 3, dtype=wisp.float64)
    index, gradients = wisp.tensor([[1, 2, 1], [0, 6, 2]]), []
    for is_sparse in (False, True):
        w = weight.clone().requires_grad_()
        for _ in range(2):
            if mode == "rows":
                y = wisp.nn.functional.embedding(index, w, padding_idx=2, sparse=is_sparse)
            else:
                y = wisp.nn.functional.embedding_bag(index, w, mode=mode, padding_idx=2, sparse=is_sparse)
            (y**2).sum().backward()
        assert w.grad.is_sparse == is_sparse
        gradients.append(w.grad.to_dense())
    assert wisp.allclose(*gradients)


def test_engine_adds_sparse_and_dense_gradients():
    index = wisp.tensor([0, 2, 2])
    rows = lambda w: wisp.nn.functional.embedding(index, w, sparse=True).sum()  # noqa: E731
    expected = [[1.0] * 2, [0.0] * 2, [2.0] * 2]
    w = wisp.ones(3, 2, requires_grad=True)
    (rows(w) + rows(w)).backward()  # both arrive in one run
    assert w.grad.is_sparse and w.grad.to_dense().tolist() == [[2.0] * 2, [0.0] * 2, [4.0] * 2]
    w.grad = None
    (rows(w) + w.sum()).backward()
    assert not w.grad.is_sparse and w.grad.tolist() == [[2.0] * 2, [1.0] * 2, [3.0] * 2]
    rows(w).backward()  # sparse to dense, in place
    assert w.grad.tolist() == [[3.0] * 2, [1.0] * 2, [5.0] * 2]
    w.grad = None
    rows(w).backward()
    w.sum().backward()  # dense to sparse
    assert not w.grad.is_sparse and w.grad.tolist() == [[2.0] * 2, [1.0] * 2, [3.0] * 2]
    w.grad = None
    rows(w * 3).backward()  # an operator in between gets it dense
    assert w.grad.tolist() == [[3 * x for x in row] for row in expected]
    seen = []
    w.register_hook(seen.append)
    w.grad = None
    for _ in range(2):
        rows(w).backward()
    assert [g.is_sparse for g in seen] == [True, True]
    assert seen[0].to_dense().tolist() == expected  # the sum of both is in .grad, not in what the hook got


def test_training_with_sparse_gradients():
    for make in (lambda p: wisp.optim.SGD(p, 0.1), lambda p: wisp.optim.SGD(p, 0.1, momentum=0.9), lambda p: wisp.optim.Adagrad(p, 0.3)):
        losses = []
        for is_sparse in (False, True):
            wisp.manual_seed(1)
            table = wisp.nn.Embedding(10, 4, sparse=is_sparse)
            optimizer = make(table.parameters())
            for _ in range(10):
                optimizer.zero_grad()
                loss = (table(wisp.tensor([1, 3, 3])) ** 2).sum()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    table = wisp.nn.Embedding(10, 4, sparse=True)
    before = table.weight.detach().clone()
    table(wisp.tensor([1, 3])).sum().backward()
    wisp.optim.SparseAdam(table.parameters()).step()
    changed = (table.weight != before).any(1).nonzero().squeeze(1).tolist()
    assert changed == [1, 3]
    with pytest.raises(RuntimeError, match="sparse gradients"):
        wisp.optim.Adam(table.parameters()).step()


def test_sparse_buffers_of_modules():
    module = wisp.nn.Module()
    module.register_buffer("graph", matrix())
    assert module.double().graph.dtype == wisp.float64 and module.graph.is_sparse
    other = wisp.nn.Module()
    other.register_buffer("graph", wisp.zeros(2, 3, dtype=wisp.float64).to_sparse())
    other.load_state_dict(module.state_dict())
    assert other.graph.to_dense().tolist() == DENSE


def test_memory(no_leaks):
    a = matrix().requires_grad_()
    (a @ wisp.ones(3, 2)).sum().backward()
    a.register_hook(lambda g: None)
    del a


def test_no_method_reads_the_shell():
    """Every method either agrees with the dense tensor's or refuses; none works on the memory behind the shell."""
    dense, wrong = wisp.tensor(DENSE), []
    says_otherwise = {
        "is_contiguous",
        "stride",
        "_repr",
        "_repr_html_",
        "type",
        "sparse_dim",
        "dense_dim",
        "_nnz",
        "_values",
        "_indices",
        "values",
        "indices",
        "is_coalesced",
        "__div__",
        "__idiv__",
        "__truediv__",
        "__floordiv__",
        "__itruediv__",
        "__ifloordiv__",
        "true_divide",
        "true_divide_",
        "div",
        "div_",
        "divide",
        "divide_",
        "floor_divide",
        "floor_divide_",
        "__iter__",
        "__hash__",
    }
    for name in dir(wisp.Tensor):
        if (
            name in says_otherwise
            or name.startswith("__")
            and name.endswith(
                (
                    "class__",
                    "hook__",
                    "reduce__",
                    "reduce_ex__",
                    "copy__",
                    "state__",
                    "init__",
                    "new__",
                    "dir__",
                    "str__",
                    "repr__",
                    "format__",
                    "sizeof__",
                    "attribute__",
                    "attr__",
                    "setitem__",
                    "dict__",
                )
            )
        ):
            continue
        for arguments in ((), (0,), (dense,), (1.5,), (0, 1)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    result = getattr(matrix(), name)(*arguments)
                    expected = getattr(dense.clone(), name)(*arguments)
                except Exception:
                    continue
            if isinstance(result, wisp.Tensor):
                result, expected = result.to_dense(), expected.to_dense()
                if result.dtype == expected.dtype == wisp.chalf:  # no number of which is computed with
                    result, expected = result.cfloat(), expected.cfloat()
                same = result.shape == expected.shape and wisp.equal(result.nan_to_num(7.0), expected.nan_to_num(7.0))
            elif isinstance(result, (tuple, list)) and result and isinstance(result[0], wisp.Tensor):
                same = all(wisp.equal(a.to_dense(), b) for a, b in zip(result, expected))
            else:
                same = result == expected
            if not same:
                wrong.append((name, arguments))
    assert not wrong
    for refused in (
        lambda a: wisp.exp(a),
        lambda a: dense[a],
        lambda a: dense.__setitem__(0, a),
        lambda a: wisp.tensor(a),
        lambda a: wisp.tensor([a]),
        lambda a: wisp.add(dense, dense, out=a),
        lambda a: a.tolist(),
        lambda a: wisp.nn.functional.conv1d(dense, a),
        lambda a: wisp.where(dense > 0, a, dense),
        lambda a: a.data_ptr(),
        lambda a: wisp.ones(2, layout=wisp.sparse_coo),
    ):
        with pytest.raises((RuntimeError, TypeError, IndexError)):
            refused(matrix())
    with pytest.raises(NotImplementedError, match=r"exp: sparse tensors are not supported here; call .to_dense\(\)"):
        matrix().exp()


COMPRESSED = [(wisp.sparse_csr, None), (wisp.sparse_csc, None), (wisp.sparse_bsr, (2, 3)), (wisp.sparse_bsc, (2, 3))]


@pytest.mark.parametrize("layout, block", COMPRESSED)
@pytest.mark.parametrize("shape, inner", [((4, 6), 0), ((2, 4, 6), 0), ((4, 6, 3), 1), ((2, 4, 6, 3), 1)])
def test_compressed_layouts_have_batches_blocks_and_dense_dimensions(layout, block, shape, inner):
    pattern = wisp.zeros(4, 6)
    pattern[0, 1], pattern[2, 4], pattern[3, 0] = 1, 2, 3
    x = pattern.reshape(*(1,) * (len(shape) - 2 - inner), 4, 6, *(1,) * inner) * (wisp.rand(shape) + 0.1)
    s = x.to_sparse(layout=layout, blocksize=block, dense_dim=inner)
    assert (
        s.layout is layout
        and s.dense_dim() == inner
        and s.sparse_dim() == 2
        and s.values().dim() == len(shape) - 1 + 2 * (block is not None)
    )
    assert wisp.equal(s.to_dense(), x) and wisp.equal(s.to_sparse().to_dense(), x)
    again = s.to_sparse().to_dense().to_sparse(layout=layout, blocksize=block, dense_dim=inner)
    assert wisp.equal(again.to_dense(), x) and wisp.equal((s * 2).sin().to_dense(), (x * 2).sin())
    assert wisp.equal((s + s).to_dense(), x + x) and wisp.equal(s.clone().sin_().to_dense(), x.sin())
    out = s.clone()
    assert wisp.sin(s, out=out) is out and wisp.equal(out.to_dense(), x.sin())
    names = ("crow_indices", "col_indices") if layout in (wisp.sparse_csr, wisp.sparse_bsr) else ("ccol_indices", "row_indices")
    made = wisp.sparse_compressed_tensor(*(getattr(s, name)() for name in names), s.values(), x.shape, layout=layout)
    assert wisp.equal(made.to_dense(), x)
    wisp._validate_sparse_compressed_tensor_args(*(getattr(s, name)() for name in names), s.values(), x.shape, layout)


def test_blocks_multiply_and_wrong_parts_are_refused():
    x = wisp.tensor([[0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 3.0, 4.0]])
    blocks = x.to_sparse_bsr((2, 2))
    assert wisp.equal(blocks @ wisp.ones(4, 1), x @ wisp.ones(4, 1))
    for compressed, plain, text in (([0, 2], [1], "== nnz"), ([1, 1], [1], "== 0"), ([0, 1], [2], "< ncols")):
        with pytest.raises(RuntimeError, match=text):
            wisp.sparse_bsr_tensor(compressed, plain, wisp.ones(1, 2, 2), (2, 4))
    with pytest.raises(RuntimeError, match="blocksize changed"):
        blocks.to_sparse(layout=wisp.sparse_bsc, blocksize=(1, 1))


def test_writes_reach_batched_compressed_tensors():
    batch = wisp.stack([wisp.eye(3), 2 * wisp.eye(3)]).to_sparse_csr()
    batch.mul_(3)
    assert batch.to_dense().diagonal(dim1=1, dim2=2).tolist() == [[3, 3, 3], [6, 6, 6]]
    batch.copy_(batch * 2)
    assert batch.to_dense()[1, 2, 2] == 12
    with pytest.raises(RuntimeError, match="different layouts"):
        batch.copy_(wisp.zeros(2, 3, 3))
    with pytest.raises(TypeError, match="Cannot assign to a sparse tensor"):
        batch[0, 0, 0] = 1


def test_products_of_sparse_tensors_with_other_patterns():
    x, scalar = wisp.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse(), wisp.tensor(5.0).to_sparse()
    assert (x * scalar).to_dense().tolist() == (scalar * x).to_dense().tolist() == [[0, 10], [15, 0]]
    hybrid = wisp.tensor([[0.0, 2.0], [3.0, 4.0]]).to_sparse(1)
    assert (x * hybrid).to_dense().tolist() == (hybrid * x).to_dense().tolist() == [[0, 4], [9, 0]]
    assert wisp.addmv(wisp.ones(2), x.to_sparse_csr(), wisp.ones(2), beta=2, alpha=3).tolist() == [8, 11]


def test_gradcheck_tests_the_values_of_sparse_inputs():
    x = wisp.tensor([[0.0, 2.0], [3.0, 0.0]], dtype=wisp.float64).to_sparse_csr().requires_grad_()
    y = wisp.rand(2, 2, dtype=wisp.float64, requires_grad=True)
    assert wisp.autograd.gradcheck(wisp.mm, (x, y), masked=True)

    class Wrong(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            return values * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    assert not wisp.autograd.gradcheck(lambda x: x._with(Wrong.apply(x._sparse_values)), (x,), raise_exception=False)


def test_index_dtypes_stay():
    x = wisp.eye(3).to_sparse_csr()
    x = wisp.sparse_csr_tensor(x.crow_indices().int(), x.col_indices().int(), x.values(), x.shape)
    assert x.to_sparse_csc().ccol_indices().dtype is wisp.int32
    assert x.bool()[0, 0].dtype is wisp.bool


def test_conversions_that_pytorch_has_not_are_refused():
    batched = wisp.eye(4).expand(2, 4, 4)
    for source, layout, block, text in (
        (batched.to_sparse_csr(), wisp.sparse_bsr, (2, 2), "SparseCsr to SparseBsr for batched inputs is not supported"),
        (batched.to_sparse(), wisp.sparse_csr, None, r"for input tensors with sparse_dim\(\)!=2 is not supported"),
        (wisp.eye(4).to_sparse_bsr((2, 2)), wisp.sparse_csc, None, "sparse_compressed_to_sparse_csc: expected SparseCsr or SparseCsc"),
    ):
        with pytest.raises(RuntimeError, match=text):
            source.to_sparse(layout=layout, blocksize=block)
    with pytest.raises(RuntimeError, match="with sparse_dim argument"):
        wisp.eye(4).to_sparse().to_sparse(1)


def test_select_keeps_compressed_layouts():
    x = wisp.rand(2, 3, 4, 5) + 0.5
    for layout in (wisp.sparse_csr, wisp.sparse_csc):
        batched = x.to_sparse(layout=layout)
        assert batched.select(1, 2).layout is layout and wisp.equal(batched.select(1, 2).to_dense(), x.select(1, 2))
        hybrid = x[0].to_sparse(layout=layout, dense_dim=1)
        assert hybrid.select(2, 3).layout is layout and wisp.equal(hybrid.select(2, 3).to_dense(), x[0].select(2, 3))
        with pytest.raises(RuntimeError, match="selecting sparse dimensions is not supported for batched"):
            batched.select(-1, 0)


def test_gradients_of_an_embedding_without_entries():
    embedding = wisp.nn.Embedding(0, 0, sparse=True)
    embedding(wisp.tensor([], dtype=wisp.int64)).sum().backward()
    assert embedding.weight.grad.is_sparse and embedding.weight.grad.shape == (0, 0)


def test_parts_of_complex_values():
    z = wisp.sparse_coo_tensor(wisp.tensor([[0, 2]]), wisp.tensor([1 + 2j, 3j]), (4,))
    parts = wisp.view_as_real(z)
    assert parts.shape == (4, 2) and parts.to_dense().tolist() == [[1, 2], [0, 0], [0, 3], [0, 0]]
    assert wisp.view_as_complex(parts).to_dense().tolist() == z.to_dense().tolist()
    with pytest.raises(RuntimeError, match="last dim == 2 and dense_dim > 0"):
        wisp.view_as_complex(wisp.ones(3, 2).to_sparse())
    with pytest.raises(RuntimeError, match="In-place abs is not supported for complex tensors"):
        z.abs_()


def test_products_broadcast():
    x = wisp.sparse_coo_tensor([[0, 1, 1]], wisp.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), (2, 2))  # not coalesced
    dense = wisp.arange(12.0).reshape(3, 2, 2)
    for result in (x * dense, dense * x):
        assert result.layout is wisp.sparse_coo and wisp.equal(result.to_dense(), x.to_dense() * dense)
    column = wisp.sparse_coo_tensor([[0, 1]], wisp.tensor([[2.0], [3.0]]), (2, 1))
    assert wisp.equal((x * column).to_dense(), x.to_dense() * column.to_dense())  # along dense dimensions
    assert wisp.equal(dense.clone().mul_(x), dense * x.to_dense())
    with pytest.raises(RuntimeError, match="incompatible sizes"):
        x * wisp.sparse_coo_tensor((3, 2))


def test_new_ones_of_the_same_kind():
    x = wisp.sparse_coo_tensor([[1]], [2.0], (3,), dtype=wisp.float64)
    for made in (x.new_empty((2, 3)), x.new_zeros(2, 3), x.new((2, 3)), wisp.zeros(2, 3, out=x.new())):
        assert made.layout is wisp.sparse_coo and made.dtype == wisp.float64 and made.shape == (2, 3) and made._nnz() == 0
    assert x.new(wisp.tensor([[0]]), wisp.tensor([7]), (2,)).to_dense().tolist() == [7.0, 0.0]
    with pytest.raises(NotImplementedError, match="out="):
        wisp.add(wisp.ones(3), 1, out=x)


def test_resize_as():
    x = wisp.sparse_coo_tensor([[1]], wisp.tensor([[1.0, 2.0]]), (2, 2))
    x.resize_as_(wisp.sparse_coo_tensor([[0]], wisp.tensor([[0.0, 0.0, 0.0]]), (4, 3)))
    assert x.to_dense().tolist() == [[0, 0, 0], [1, 2, 0], [0, 0, 0], [0, 0, 0]]
    with pytest.raises(RuntimeError, match="shrinking the size of sparse dimensions"):
        x.resize_as_(wisp.sparse_coo_tensor([[0]], wisp.tensor([[0.0, 0.0, 0.0]]), (1, 3)))


@pytest.mark.parametrize(
    ("diagonals", "offsets", "shape", "said"),
    [
        (wisp.ones(1, 3), [0], (3, 2, 3), "Output shape must be 2d, got 3 sizes"),
        (wisp.ones(2, 3), [[1, 2], [0, 3]], (3, 3), "Offsets must be scalar or vector"),
        (wisp.ones(3, 2, 3), [0, 1, 2], (4, 4), "Diagonals must be vector or matrix"),
        (wisp.ones(2, 5), [0, 0], (5, 5), "duplicate values"),
        (wisp.ones(3, 3), [0], (3, 3), "Number of diagonals"),
    ],
)
def test_diagonals_that_do_not_fit(diagonals, offsets, shape, said):
    with pytest.raises(RuntimeError, match=said):
        wisp.sparse.spdiags(diagonals, wisp.tensor(offsets), shape)


def test_products_in_place_keep_the_dtype():
    x = wisp.sparse_coo_tensor([[0, 1]], [2, 3], (2,), dtype=wisp.uint8)
    x.mul_(wisp.sparse_coo_tensor([[1]], [4], (2,), dtype=wisp.int16))
    assert x.dtype == wisp.uint8 and x.to_dense().tolist() == [0, 12]
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.mul_(wisp.tensor([1.5, 2.0]))


def test_transposed_in_place():
    x = wisp.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [1.0, 2.0, 3.0], (2, 3)).coalesce()
    expected = x.to_dense().t()
    assert x.t_() is x and x.shape == (3, 2) and x.to_dense().equal(expected)
    y = wisp.sparse_coo_tensor([[0], [1]], wisp.ones(1, 4), (2, 3, 4))
    assert y.transpose_(0, 1) is y and y.shape == (3, 2, 4) and y.coalesce().indices().tolist() == [[1], [0]]


def test_indices_from_the_end_are_selected():
    x = wisp.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    assert x.to_sparse().index_select(1, wisp.tensor([-1, 0])).to_dense().tolist() == [[2.0, 1.0], [0.0, 0.0]]
    with pytest.raises(IndexError, match="out of range"):
        x.to_sparse().index_select(1, wisp.tensor([-4]))


def test_an_optimizer_of_a_sparse_parameter_drops_its_gradient():
    parameter, other = wisp.eye(2).to_sparse().requires_grad_(), wisp.ones(2, requires_grad=True)
    (wisp.sparse.sum(parameter) + other.sum()).backward()
    assert parameter.grad is not None
    wisp.optim.SGD([parameter, other], lr=0.1).zero_grad()
    assert parameter.grad is None and other.grad is None


def test_transposed_compressed_tensors_are_views_in_the_other_layout():
    dense = (1 + wisp.arange(48.0).view(2, 4, 6)) * (wisp.arange(24).view(4, 6) % 3 == 0)
    for made, turned in (
        (dense.to_sparse_csr(), wisp.sparse_csc),
        (dense.to_sparse_csc(), wisp.sparse_csr),
        (dense.to_sparse_bsr((2, 3)), wisp.sparse_bsc),
        (dense.to_sparse_bsc((2, 3)), wisp.sparse_bsr),
    ):
        other = made.transpose(-2, -1)
        assert other.layout is turned and wisp.equal(other.to_dense(), dense.mT) and wisp.equal(made.adjoint().to_dense(), dense.mT)
        assert other._is_view() and other._base is made and other.mT._base is made and other.values().data_ptr() == made.values().data_ptr()
        assert other.mT.layout is made.layout and wisp.equal(other.mT.to_dense(), dense)
        other.mul_(2)
        assert wisp.equal(made.to_dense(), 2 * dense)
        with pytest.raises(RuntimeError, match=r"same type \(Batch, Sparse, Dense\), got 0\(Batch\) and 1\(Sparse\)"):
            made.transpose(0, 1)
        assert wisp.equal(made.permute(1, 0, 2).to_dense(), 2 * dense.permute(1, 0, 2))
    blocks = dense[0].to_sparse_bsr((2, 3)).requires_grad_()
    assert blocks.t().layout is wisp.sparse_bsc and blocks.t().values().shape == (4, 3, 2)
    (blocks.t() @ wisp.ones(4, 2)).sum().backward()
    assert blocks.grad.layout is wisp.sparse_bsr and wisp.equal(blocks.grad.to_dense(), wisp.full((4, 6), 2.0))


def test_factors_in_front_of_sparse_products():
    a, b = wisp.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse(), wisp.ones(2, 2)
    expected = 2 * a.to_dense() + 3 * (a.to_dense() @ b)
    with pytest.warns(UserWarning, match="deprecated"):
        for product in (wisp.sspaddmm(2, a, 3, a, b), a.sspaddmm(2, 3, a, b), wisp.saddmm(2, a, 3, a, b)):
            assert product.is_sparse and wisp.equal(product.to_dense(), expected)
        assert wisp.equal(wisp.sspaddmm(2, a, a, b).to_dense(), 2 * a.to_dense() + a.to_dense() @ b)


def test_products_with_sparse_matrices_go_to_dense_out():
    a, b = wisp.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr(), wisp.arange(4.0).view(2, 2)
    out = wisp.empty(0)
    assert wisp.matmul(a, b, out=out) is out and wisp.equal(out, a.to_dense() @ b)
    assert wisp.equal(wisp.addmv(wisp.ones(2), a, b[0], out=wisp.empty(2)), 1 + a.to_dense() @ b[0])
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float32"):
        wisp.mm(a, b, out=wisp.empty(2, 2, dtype=wisp.float64))
    with pytest.raises(RuntimeError, match="sparse csr layout, but got Strided"):
        wisp.sparse.sampled_addmm(a, b, b, out=wisp.empty(2, 2))


def test_sampled_products_of_batches():
    pattern = wisp.stack([wisp.eye(3), wisp.eye(3).flip(0)])
    a, b = wisp.arange(12.0).view(2, 3, 2), wisp.arange(12.0).view(2, 2, 3)
    made = wisp.sparse.sampled_addmm(pattern.to_sparse_csr(), a, b, beta=2)
    assert made.layout is wisp.sparse_csr and wisp.equal(made.to_dense(), pattern * (a @ b) + 2 * pattern)
    made = wisp.sparse.sampled_addmm(pattern[0].to_sparse_csr(), a, b, beta=0)
    assert made.shape == (2, 3, 3) and wisp.equal(made.to_dense(), pattern[0] * (a @ b))
