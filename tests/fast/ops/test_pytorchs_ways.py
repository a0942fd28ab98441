"""Calls that PyTorch takes or refuses, beside the usual ones."""

import array
import copy
import math

import numpy as np
import pytest

import wisp


@pytest.mark.filterwarnings("ignore:This overload")
def test_older_orders_of_arguments():
    a, b, m = wisp.ones(2), wisp.full((2,), 3.0), wisp.eye(2)
    assert wisp.addcmul(a, 2, b, b).tolist() == [19.0, 19.0] == a.clone().addcmul_(2, b, b).tolist()
    assert wisp.addcdiv(a, 2, b, b).tolist() == [3.0, 3.0]
    assert wisp.add(a, 2, b).tolist() == [7.0, 7.0] and a.sub(2, b).tolist() == [-5.0, -5.0]
    assert wisp.addmm(2, m, 3, m, m).tolist() == [[5.0, 0.0], [0.0, 5.0]] == m.addmm(2, 3, m, m).tolist()
    assert m.clone().addmm_(2, m, m).tolist() == [[3.0, 0.0], [0.0, 3.0]]


def test_in_place_writes_that_read_what_they_write():
    x, index = wisp.ones(4), wisp.tensor([0, 1])
    for write in (
        lambda: x.index_add_(0, index, x[:2]),
        lambda: x.index_copy_(0, index, x[1:3]),
        lambda: x.scatter_(0, index, x[:2]),
        lambda: index.index_fill_(0, index, 1),
    ):
        with pytest.raises(RuntimeError, match="unsupported operation"):
            write()
    x.index_add_(0, index, wisp.ones(4)[:2])
    assert x.tolist() == [2.0, 2.0, 1.0, 1.0]


def test_values_of_other_kinds():
    x, mask = wisp.ones(2, dtype=wisp.int8), wisp.tensor([True, False])
    assert x.masked_fill(mask, 2.5).tolist() == [2, 1]
    with pytest.raises(RuntimeError, match="without overflow"):
        x.masked_fill_(mask, 300)
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        x.masked_fill_(mask.byte(), 1)
    assert wisp.equal(wisp.ones(2), wisp.ones(2, dtype=wisp.int32))
    assert (wisp.tensor([1.0, 2.0]) == np.array([1.0, 3.0])).tolist() == [True, False]
    z = wisp.zeros(2, dtype=wisp.complex64)
    z.real, z.imag = wisp.tensor([1.0, 2.0]), 5
    assert z.tolist() == [1 + 5j, 2 + 5j]
    assert wisp.ones(1, 1, 2).squeeze(0, 1).shape == (2,) and wisp.amax(wisp.ones(2, 2), dim=None) == 1
    assert wisp.linalg.norm(wisp.ones(4), axis=0) == 2


def test_copies_share_memory_and_attributes():
    x = wisp.nn.Parameter(wisp.ones(2))
    x.note = "kept"
    y = copy.copy(x)
    y.data[0] = 5
    assert type(y) is wisp.nn.Parameter and y.note == "kept" and x.tolist() == [5.0, 1.0] and y.requires_grad


def test_devices_that_are_not_here_have_names():
    assert str(wisp.device("mps")) == "mps" and wisp.device("xpu", 1) == wisp.device("xpu:1") != wisp.device("mps:1")
    with pytest.raises(RuntimeError, match="xpu"):
        wisp.ones(2, device="xpu")
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        wisp.device("abacus")


def test_deterministic_mode_fills_new_memory():
    wisp.use_deterministic_algorithms(True)
    try:
        assert wisp.empty(3).isnan().all() and (wisp.empty(3, dtype=wisp.int8) == 127).all()
        wisp.utils.deterministic.fill_uninitialized_memory = False
        assert not wisp.utils.deterministic.fill_uninitialized_memory
    finally:
        wisp.utils.deterministic.fill_uninitialized_memory = True
        wisp.use_deterministic_algorithms(False)


def test_unique_is_in_the_graph():
    y = wisp.unique(wisp.tensor([2.0, 1.0], requires_grad=True))
    assert y.grad_fn.name() == "Unique2Backward0"
    with pytest.raises(NotImplementedError, match="not implemented"):
        y.sum().backward()


def test_out_of_other_dtypes_and_of_the_graph():
    assert wisp.bernoulli(wisp.ones(2), out=wisp.empty(2, dtype=wisp.int32)).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="out="):
        wisp.mul(wisp.ones(2), wisp.ones(2), out=wisp.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"storage_offset\(\) must be divisible by 2"):
        wisp.zeros(4, 3)[:, 1:].view(wisp.float64)
    assert wisp.zeros(1).resize_as_(
        wisp.zeros(2, 3, 4, 4).to(memory_format=wisp.channels_last), memory_format=wisp.preserve_format
    ).stride() == (48, 1, 12, 3)


def test_buffers_arrays_and_lists_say_what_is_wrong():
    with pytest.raises(ValueError, match="buffer protocol"):
        wisp.frombuffer([1, 2], dtype=wisp.int8)
    with pytest.raises(ValueError, match=r"buffer length \(3 bytes\) after offset \(1 bytes\)"):
        wisp.frombuffer(bytearray(4), dtype=wisp.int16, offset=1)
    with pytest.warns(UserWarning, match="not writable"):
        wisp.frombuffer(b"abcd", dtype=wisp.int8)
    with pytest.raises(TypeError, match="must be tuple of Tensors, not Tensor"):
        wisp.hstack(wisp.ones(2))
    with pytest.raises(RuntimeError, match="sparse types"):
        wisp.hann_window(3, layout=wisp.sparse_coo)


def test_what_is_made_from_nothing_is_made_in_the_dtype_of_out():
    made = wisp.full((2,), 1.0, out=wisp.empty(2, dtype=wisp.int64))
    assert made.dtype == wisp.int64 and made.tolist() == [1, 1]
    wisp.manual_seed(0)
    a = wisp.rand(50, dtype=wisp.float64)
    wisp.manual_seed(0)
    assert wisp.equal(a, wisp.rand(50, out=wisp.empty(0, dtype=wisp.float64)))


def test_asarray_shares_what_shows_its_memory():
    numbers = array.array("f", [1.0, 2.0])
    shared, own = wisp.asarray(numbers, copy=False), wisp.asarray(numbers, copy=True)
    numbers[0] = 5.0
    assert shared.tolist() == [5.0, 2.0] and own.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="alias"):
        wisp.asarray([1.0], copy=False)


def test_asarray_keeps_history_and_takes_capsules():
    x = wisp.ones(3, requires_grad=True)
    y = x * 2
    assert wisp.asarray(y) is y and wisp.asarray(y, copy=True).grad_fn is not None
    assert not wisp.asarray(y, requires_grad=False).requires_grad
    z = wisp.arange(3)
    shared = wisp.asarray(wisp.utils.dlpack.to_dlpack(z))
    shared[0] = 7
    assert z[0] == 7
    with pytest.raises(ValueError, match="into dtype"):
        wisp.asarray(z, dtype=wisp.float32, copy=False)


def test_numbers_in_a_row_go_into_an_out_of_another_shape():
    x = wisp.zeros(2, 3)
    wisp.linspace(0, 2, 3, out=x[0])
    assert x[0].tolist() == [0.0, 1.0, 2.0]
    wisp.arange(4, out=x[:, 1:])
    assert x.tolist() == [[0.0, 0.0, 1.0], [0.0, 2.0, 3.0]]
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        wisp.zeros(2, dtype=wisp.int64, out=wisp.empty(2))
    assert wisp.logspace(1j, 2, 3).dtype == wisp.complex64


def test_parts_of_complex_numbers_are_of_one_floating_dtype():
    for make in (wisp.complex, wisp.polar):
        with pytest.raises(RuntimeError, match="Expected both inputs to be Half, Float or Double tensors but got Long and Long"):
            make(wisp.arange(2), wisp.arange(2))
        with pytest.raises(RuntimeError, match="but got scalar type Double for second argument"):
            make(wisp.ones(2), wisp.ones(2, dtype=wisp.float64))
        with pytest.raises(RuntimeError, match="Expected object of scalar type ComplexFloat but got scalar type Float for argument 'out'"):
            make(wisp.ones(2), wisp.ones(2), out=wisp.ones(2))


def test_bounds_of_random_numbers():
    with pytest.warns(UserWarning, match="from is out of bounds"):
        wisp.empty(3).random_(-(2**25), 5)
    with pytest.raises(RuntimeError, match="from is out of bounds for Half"):
        wisp.empty(3, dtype=wisp.float16).random_(-70000, 5)
    with pytest.raises(RuntimeError, match="uniform_ expects to-from"):
        wisp.empty(3).uniform_(-3e38, 3e38)


def test_views_of_the_same_dtype_keep_the_strides_of_sizes_of_1():
    x = wisp.zeros(2, 5, 8)[1::2, 1:, ::2]
    assert x.view(wisp.float32).stride() == x.stride() == (80, 8, 2)


def test_large_integers_in_floats_and_bools():
    assert wisp.tensor([2**70, 1], dtype=wisp.float64).tolist() == [2.0**70, 1.0]
    assert wisp.tensor([-(2**70), 0], dtype=wisp.bool).tolist() == [True, False]
    with pytest.raises(RuntimeError, match="Overflow when unpacking"):
        wisp.tensor(2**70)
    own = [0]
    own.append(own)
    with pytest.raises(TypeError, match="self-referential"):
        wisp.tensor(own)


def test_expanded_tensors_are_written_with_a_warning_where_pytorch_does():
    x, index = wisp.zeros(1).expand(4), wisp.tensor([1, 2])
    for write in (
        lambda: x.index_fill_(0, index, 1.0),
        lambda: x.masked_fill_(wisp.tensor([True, False, False, True]), 1.0),
        lambda: x.index_put_((index,), wisp.ones(2)),
    ):
        with pytest.warns(UserWarning, match="expanded tensors"):
            write()
        assert x.tolist() == [1.0] * 4
        x.as_strided((1,), (1,)).zero_()
    with pytest.raises(RuntimeError, match="unsupported operation"):
        x.put_(index, wisp.ones(2))
    y = wisp.arange(4.0)
    with pytest.raises(RuntimeError, match="unsupported operation"):
        y.put_(index, y[:2])
    assert y.put_(index, wisp.tensor([9.0, 8.0])).tolist() == [0.0, 9.0, 8.0, 3.0]


def test_lists_as_indices():
    x = wisp.arange(12).reshape(3, 4)
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert x[[[0, 2], [1, 3]]].tolist() == [1, 11]
    assert x[[0, 2]].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    with pytest.warns(UserWarning, match="torch.uint8 is now deprecated"):
        assert x[wisp.tensor([1, 0, 0], dtype=wisp.uint8)].tolist() == [[0, 1, 2, 3]]
    with pytest.raises(TypeError, match="slice indices must be integers"):
        x["0":"1"]
    with pytest.raises(IndexError, match="for dimension with size 0"):
        wisp.empty(3, 0)[:, [0, 1]]


def test_sizes_are_joined_from_both_sides():
    size = wisp.Size([1, 2])
    assert type((3,) + size) is wisp.Size and (3,) + size == (3, 1, 2) and type(size + (3,)) is wisp.Size
    with pytest.raises(TypeError):
        size + [3]


def test_a_size_holds_integers():
    three, size = wisp.tensor(3), wisp.Size([1, 2])
    for made in (wisp.Size((2, three)), wisp.Size([2, three]), size + (three,), (three,) + size, wisp.Size((True, 3))):
        assert all(type(n) is int for n in made) and 3 in made
    for make in (lambda: size + ("a",), lambda: (2.5,) + size, lambda: wisp.Size((None,))):
        with pytest.raises(TypeError, match=r"takes an iterable of 'int' \(item \d is '(str|float|NoneType)'\)"):
            make()


def test_misfits_are_told_in_pytorchs_words():
    with pytest.raises(TypeError, match=r"argument 'dim' \(position 2\) must be int, not str"):
        wisp.unbind(wisp.ones(2), "x")
    with pytest.raises(ValueError, match="only one element tensors"):
        int(wisp.zeros(0))
    with pytest.raises(ValueError, match="non-empty list"):
        wisp.cat([])
    assert wisp.cat([wisp.zeros(0), wisp.zeros(0)], 1).shape == (0,)
    assert wisp.arange(4).reshape(2, 2).roll(1, dims=None).tolist() == [[3, 0], [1, 2]]


def test_deterministic_mode_refuses_what_pytorch_refuses():
    x, index = wisp.ones(1, 1, 2), wisp.tensor([[[0, 3]]])
    assert wisp.nn.functional.max_unpool1d(x, index, 2).shape == (1, 1, 4)
    wisp.use_deterministic_algorithms(True)
    try:
        for call in (lambda: wisp.nn.functional.max_unpool1d(x, index, 2), lambda: wisp.zeros(3).put_(wisp.tensor([0]), wisp.ones(1))):
            with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
                call()
        wisp.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
            wisp.zeros(3).put_(wisp.tensor([0]), wisp.ones(1))
    finally:
        wisp.use_deterministic_algorithms(False)
    assert wisp.zeros(3).put_(wisp.tensor([0, 0]), wisp.ones(2), accumulate=True).tolist() == [2.0, 0.0, 0.0]


def test_minus_of_bools_says_what_to_do():
    for negate in (lambda x: -x, wisp.neg, lambda x: x.neg_()):
        with pytest.raises(RuntimeError, match="If you are trying to invert a mask, use the `~` or `logical_not\\(\\)` operator instead"):
            negate(wisp.tensor([True]))


def test_errors_of_operands_that_do_not_fit():
    with pytest.raises(RuntimeError, match=r"a \(10\) must match the size of tensor b \(11\) at non-singleton dimension 1"):
        wisp.zeros(10, 10) + wisp.zeros(11, 11)
    for other, text in ((wisp.ones(2, dtype=wisp.float64), "different dtypes"), (wisp.ones(2, dtype=wisp.complex64), "complex")):
        with pytest.raises(RuntimeError, match=f"heaviside is not yet implemented for .*{text}"):
            wisp.heaviside(wisp.ones(2), other)
        with pytest.raises(RuntimeError, match=text):
            wisp.ones(2).heaviside_(other)
    with pytest.raises(RuntimeError, match="max over zero elements is undefined"):
        wisp._foreach_max([wisp.ones(2), wisp.ones(0)])
    with pytest.raises(RuntimeError, match="Dimension specified as 0 but tensor has no dimensions"):
        wisp.tensor(1).unflatten(0, [0])
    with pytest.raises(RuntimeError, match="memory format option is only supported by strided tensors"):
        wisp.empty_like(wisp.eye(2).to_sparse(), memory_format=wisp.preserve_format)
    for function in (wisp.neg, wisp.floor, wisp.ceil):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
            function(wisp.ones(2), out=wisp.empty(2, dtype=wisp.float64))
    with pytest.raises(RuntimeError, match="does not support non-boolean outputs"):
        wisp.isposinf(wisp.ones(2), out=wisp.empty(2))


def test_the_hash_of_a_tensor_is_its_identity():
    x = wisp.ones(2)
    assert hash(x) == id(x) and hash(wisp.nn.Parameter(x)) != hash(x)


def test_results_go_to_conjugate_views():
    x, memory = wisp.tensor([1 + 2j, 3 - 1j]), wisp.zeros(2, dtype=wisp.complex64)
    for given in (x, x.conj()):
        out = memory.conj()
        assert wisp.mul(given, 2, out=out) is out
        assert wisp.equal(out.resolve_conj(), given.resolve_conj() * 2) and wisp.equal(memory, (given * 2).conj().resolve_conj())
    matrix = wisp.tensor([[2 + 1j, 0], [1, 1j]], dtype=wisp.complex128)
    right = wisp.tensor([[1 + 1j], [2j]], dtype=wisp.complex128).conj()
    expected = wisp.linalg.solve_triangular(matrix, right, upper=False)
    wisp.linalg.solve_triangular(matrix, right, upper=False, out=right)
    assert wisp.allclose(right.resolve_conj(), expected)
    with pytest.raises(RuntimeError, match="broadcast|size of tensor"):
        wisp.add(wisp.ones(3), wisp.ones(2), out=memory.conj())
    with pytest.raises(RuntimeError, match="cannot become one of shape"):
        wisp.mul(wisp.ones(3), 2, out=memory.conj())


def test_gelu_behind_a_product():
    x = wisp.randn(3, 3)
    assert wisp.allclose(wisp._addmm_activation(wisp.zeros(3), x, x, use_gelu=True), wisp.nn.functional.gelu(x @ x), atol=1e-6)


def test_bools_are_not_subtracted():
    """By whatever way it is asked for: `^` is what is meant."""
    b = wisp.tensor([True, False])
    for subtract in (lambda: b - b, lambda: b - True, lambda: wisp.sub(b, b), lambda: b.clone().__isub__(b)):
        with pytest.raises(RuntimeError, match=r"with two bool tensors is not supported. Use the `\^`"):
            subtract()


def test_subtraction_with_bools_is_refused():
    mask = wisp.tensor([True, False])
    for f in (lambda: 1 - mask, lambda: mask - 1, lambda: mask - wisp.ones(2), lambda: wisp.ones(2) - True):
        with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
            f()
    with pytest.raises(RuntimeError, match="with two bool tensors"):
        mask - mask


@pytest.mark.parametrize("dtype", [wisp.float64, wisp.float32, wisp.bfloat16])
def test_lerp_is_reckoned_from_the_nearer_end(dtype):
    a, b = wisp.tensor([-math.inf, 1e30, 3.0], dtype=dtype), wisp.tensor([2.0, 1.0, math.inf], dtype=dtype)
    for weight in (1.0, wisp.ones(3, dtype=dtype)):
        assert wisp.lerp(a, b, weight)[1] == 1.0
    for weight in (0.5, wisp.full((3,), 0.5, dtype=dtype)):
        result = wisp.lerp(a, b, weight)
        assert result[0] == -math.inf and result[2].isnan() and a.clone().lerp_(b, weight)[0] == -math.inf
    c, d = wisp.tensor([1e30 + 1j]), wisp.tensor([1 - 1j])
    assert wisp.lerp(c, d, 1 + 0j).tolist() == [1 - 1j] == wisp.lerp(c, d, wisp.ones(1, dtype=wisp.complex64)).tolist()


def test_a_weight_of_lerp_without_dimensions_is_promoted():
    x, y = wisp.zeros(2, dtype=wisp.float64), wisp.ones(2, dtype=wisp.float64)
    assert wisp.lerp(x, y, wisp.tensor(0.25)).tolist() == [0.25, 0.25] and wisp.lerp(x, y, wisp.tensor(0.25)).dtype is wisp.float64
    assert wisp.lerp(x.float(), y.float(), wisp.tensor(0.25, dtype=wisp.float64)).dtype is wisp.float32
    assert wisp.lerp(x.float(), y.float(), wisp.tensor(0.5j)).dtype is wisp.complex64
    with pytest.raises(RuntimeError, match="for `weight`"):
        wisp.lerp(x, y, wisp.tensor([0.25, 0.5]))


def test_only_one_element_becomes_a_number():
    for kind in (int, float, complex):
        for count in (0, 2):
            with pytest.raises(ValueError, match="only one element tensors"):
                kind(wisp.ones(count))


def test_unknown_operands_of_powers_are_left_to_the_other():
    class Unknown:
        pass

    assert wisp.ones(2).__ipow__(Unknown()) is NotImplemented and wisp.ones(2).__pow__(Unknown()) is NotImplemented
    x = wisp.tensor([2.0])
    x **= 3
    assert x.tolist() == [8.0]


def test_histograms_are_of_floats_within_finite_bounds():
    with pytest.raises(NotImplementedError, match="histogram"):
        wisp.histogram(wisp.tensor([1, 2]), 3)
    with pytest.raises(RuntimeError, match="not finite"):
        wisp.histogram(wisp.ones(2), 3, range=(0.0, math.inf))
    assert wisp.histogramdd(wisp.ones(4, 0, 2), (2, 2)).hist.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_distances_of_what_is_no_number():
    rows = wisp.tensor([[math.nan, 1.0], [0.0, 2.0]])
    for p in (0.0, 1.0, 2.0):
        assert wisp.pdist(rows, p).isnan().all() and wisp.nn.functional.pdist(rows, p).isnan().all()
    assert wisp.nn.functional.pdist(wisp.tensor([[0.0, 1.0], [0.0, 2.0]]), 0.0).tolist() == [1.0]


def test_integrals_over_nothing():
    assert wisp.trapezoid(wisp.ones(3, 0), x=wisp.ones(0), dim=1).tolist() == [0.0, 0.0, 0.0]
    assert wisp.cumulative_trapezoid(wisp.ones(3, 0), x=wisp.ones(0), dim=1).shape == (3, 0)


def test_group_norm_keeps_the_digits_of_its_weights():
    wisp.manual_seed(0)
    x = wisp.randn(4, 8, 5, 5).bfloat16().requires_grad_()
    layer = wisp.nn.GroupNorm(2, 8)
    wisp.nn.init.normal_(layer.weight)
    y = layer(x)
    exact = wisp.nn.functional.group_norm(x.detach().float(), 2, layer.weight, layer.bias)
    assert y.dtype is wisp.bfloat16 and y.equal(exact.bfloat16())
    grad = wisp.randn(y.shape).bfloat16()
    (mine,) = wisp.autograd.grad(y, layer.weight, grad)
    (theirs,) = wisp.autograd.grad(exact, layer.weight, grad.float())
    wisp.testing.assert_close(mine, theirs)


def test_one_entry_is_coalesced():
    assert wisp.sparse_coo_tensor([[0], [1]], [1.0], (2, 2)).is_coalesced()
    assert not wisp.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2)).is_coalesced()


def test_tensors_of_one_element_are_numbers_within_data():
    assert wisp.tensor([wisp.ones(1), wisp.zeros(1, 1), 2.0]).tolist() == [1.0, 0.0, 2.0]
    assert wisp.tensor([[wisp.tensor(1), 2]]).shape == (1, 2) and wisp.tensor(wisp.ones(1, 1)).shape == (1, 1)
    assert wisp.tensor([np.ones(1)]).shape == (1, 1)
    with pytest.raises((TypeError, ValueError)):
        wisp.tensor([wisp.ones(1), [1.0]])


def test_softmax_of_meta_tensors_has_their_shape():
    x = wisp.empty(2, 3, device="meta", requires_grad=True)
    for f in (wisp.softmax, wisp.log_softmax):
        y = f(x, 1)
        (gradient,) = wisp.autograd.grad(y.sum(), x)
        assert y.shape == gradient.shape == (2, 3) and y.device.type == gradient.device.type == "meta"


def test_results_that_do_not_fit_are_told():
    with pytest.warns(UserWarning, match="was resized"):
        wisp.linalg.cond(wisp.eye(2), out=wisp.empty(2))
    with pytest.raises(RuntimeError, match="but got result with dtype Bool"):
        wisp.linalg.matrix_rank(wisp.eye(2), out=wisp.empty(0, dtype=wisp.bool))
    with pytest.raises(RuntimeError, match="but got result with dtype Int"):
        wisp.cholesky_inverse(wisp.eye(2), out=wisp.empty(0, dtype=wisp.int32))
    for f in (wisp.linalg.vector_norm, wisp.linalg.matrix_norm):
        with pytest.raises(RuntimeError, match="non-complex scalar"):
            f(wisp.eye(2), 1 + 2j)


def test_methods_of_tensor_take_sparse_tensors():
    x = wisp.eye(2).to_sparse()
    assert wisp.Tensor.to_sparse(x).to_dense().equal(wisp.eye(2)) and wisp.Tensor.to_sparse_csr(x).layout is wisp.sparse_csr


def test_bools_among_sizes_count_as_numbers():
    assert wisp.zeros(2, True).shape == (2, 1) == wisp.rand((2, True)).shape
    assert wisp.ones(2, False).shape == (2, 0) and wisp.ones(1, 6).expand(2, True, 6).shape == (2, 1, 6)
    for first in (
        lambda: wisp.zeros(True),
        lambda: wisp.zeros(True, 2),
        lambda: wisp.full((True, 2), 1.0),
        lambda: wisp.ones(6).view(True, 6),
    ):
        with pytest.raises(TypeError):
            first()


def test_errors_of_layers_and_losses():
    F, nn = wisp.nn.functional, wisp.nn
    half, none = wisp.ones(3, dtype=wisp.float16), wisp.empty(0, dtype=wisp.int64)
    for call, error, text in (
        (lambda: F.nll_loss(wisp.ones(10), wisp.tensor([1, 2, 3])), ValueError, "1D target must have size 1, but got target size: 3"),
        (lambda: F.cross_entropy(wisp.ones(1, 4), wisp.tensor(1)), ValueError, r"batch_size \(1\) to match target batch_size \(0\)"),
        (lambda: F.softshrink(half, 65507.0), RuntimeError, r"lambda must be in range \[0, 65504\] for input dtype Half, but found 65507"),
        (lambda: F.rrelu(half, lower=math.nan), RuntimeError, "lower bound must be finite, got nan"),
        (lambda: F.rrelu(half, upper=math.inf), RuntimeError, "upper bound must be finite, got inf"),
        (lambda: F.cosine_embedding_loss(wisp.ones(2, 3), wisp.ones(2), wisp.ones(2)), RuntimeError, "1D target tensor expects 2D input"),
        (lambda: F.ctc_loss(wisp.ones(0, 0, 4), none, none, none), RuntimeError, "log_probs tensor must not be empty"),
        (
            lambda: F.ctc_loss(wisp.ones(2, 1, 4), none[None], wisp.ones(1), wisp.tensor([0])),
            RuntimeError,
            "input_lengths must be integral",
        ),
        (lambda: nn.FractionalMaxPool2d(2, output_ratio=(0.5, 0.5, 0.5))(wisp.ones(1, 1, 8, 8)), ValueError, "output_ratio .* got 3"),
        (lambda: F.pixel_shuffle(wisp.ones(1, 4, 2, 2), 1 << 40), ValueError, "does not fit into 64 bits"),
        (lambda: nn.ReflectionPad1d(2)(wisp.ones(3, 3, 5, 5)), NotImplementedError, "Padding size 2 is not supported for 4D input tensor"),
    ):
        with pytest.raises(error, match=text):
            call()
    assert F.softshrink(half, 65504.0).tolist() == [0.0] * 3
    with pytest.warns(UserWarning, match="a dimension of size 1 has a single point"):
        F.affine_grid(wisp.eye(2, 3)[None], (1, 1, 2, 1), align_corners=True)


def test_a_bias_of_another_dtype_is_added_to_projections_of_batches():
    attention = wisp.nn.MultiheadAttention(4, 2, batch_first=True, dtype=wisp.float64)
    wisp.nn.init.normal_(attention.in_proj_bias)
    attention.in_proj_bias.data = attention.in_proj_bias.data.half().double()
    x = wisp.randn(2, 3, 4, dtype=wisp.float64)
    expected = attention(x, x, x)[0]
    attention.in_proj_bias = wisp.nn.Parameter(attention.in_proj_bias.detach().half())
    assert wisp.equal(attention(x, x, x)[0], expected)


def test_rows_scaled_to_a_norm_keep_their_tangents():
    weight, ones = wisp.full((2, 4), 5.0), wisp.ones(2, 4)
    with wisp.autograd.forward_ad.dual_level():
        dual = wisp.autograd.forward_ad.make_dual(weight, ones)
        rows = wisp.nn.functional.embedding(wisp.tensor([0, 1]), dual, max_norm=1.0)
        assert wisp.allclose(rows.norm(dim=1), wisp.ones(2)) and wisp.equal(wisp.autograd.forward_ad.unpack_dual(rows).tangent, ones)


def test_adagrad_refuses_parameters_without_a_shape():
    with pytest.raises(ValueError, match="uninitialized parameter"):
        wisp.optim.Adagrad(wisp.nn.LazyLinear(2).parameters())


def test_a_mask_beside_causal_attention_hides_what_either_hides():
    q = wisp.randn(2, 3, 4, 8)
    earlier = wisp.ones(4, 4, dtype=wisp.bool).tril()
    attend = wisp.nn.functional.scaled_dot_product_attention
    for mask in (wisp.rand(4, 4) > 0.3, wisp.rand(2, 1, 4, 4) > 0.3):
        assert wisp.equal(attend(q, q, q, mask, is_causal=True), attend(q, q, q, mask & earlier))
    bias = wisp.randn(2, 3, 4, 4)
    assert wisp.equal(attend(q, q, q, bias, is_causal=True), attend(q, q, q, bias.masked_fill(~earlier, -wisp.inf)))
    many = wisp.func.vmap(lambda x: attend(x, x, x, bias, is_causal=True))(wisp.stack([q, q]))
    assert wisp.equal(many[1], attend(q, q, q, bias, is_causal=True))
    # what only the formula computes in PyTorch
    refused = [(q, bias.requires_grad_(), 0.0), (q, mask, 0.5), (q[0], mask[0], 0.0), (q.mT.contiguous().mT, mask, 0.0), (q, mask[0], 0.0)]
    for x, wrong, dropout_p in refused:
        with pytest.raises(RuntimeError, match="Explicit attn_mask should not be set when is_causal=True"):
            attend(x, x, x, wrong, dropout_p, is_causal=True)


def test_masks_of_attention_are_of_bools_of_float32_or_of_the_querys_dtype():
    attend = wisp.nn.functional.scaled_dot_product_attention
    q = wisp.randn(2, 3, 4, 8)
    for dtype, mask in ((wisp.float64, wisp.float32), (wisp.bfloat16, wisp.float32), (wisp.bfloat16, wisp.bfloat16)):
        assert attend(*[q.to(dtype)] * 3, wisp.zeros(4, 4, dtype=mask)).dtype is dtype
    for dtype, mask in ((wisp.float32, wisp.float64), (wisp.float32, wisp.bfloat16), (wisp.bfloat16, wisp.float16)):
        with pytest.raises(RuntimeError, match="Expected attn_mask dtype to be bool or float or to match query dtype"):
            attend(*[q.to(dtype)] * 3, wisp.zeros(4, 4, dtype=mask))


def test_largest_and_smallest_by_their_short_names():
    place, values = wisp.tensor([0, 0, 1]), wisp.tensor([3.0, 2.0, 1.0])
    for short, long in (("max", "amax"), ("min", "amin")):
        for options in ({}, {"include_self": False}):
            expected = wisp.zeros(3).scatter_reduce(0, place, values, long, **options)
            assert wisp.equal(wisp.zeros(3).scatter_reduce(0, place, values, short, **options), expected)


def test_a_spacing_that_is_a_tensor_is_a_number():
    y = wisp.ones(5, dtype=wisp.bfloat16)
    for integral in (wisp.trapezoid, wisp.trapz, wisp.cumulative_trapezoid):
        assert integral(y, dx=wisp.tensor(0.5)).dtype == wisp.bfloat16
        assert wisp.equal(integral(y, dx=wisp.tensor(0.5, requires_grad=True)), integral(y, dx=0.5))


def test_a_window_of_one_point_whose_length_is_a_tensor():
    for one in (wisp.tensor(1.0), wisp.tensor(True), 1.0):
        for window in (wisp.signal.windows.bartlett, wisp.signal.windows.hann, wisp.signal.windows.kaiser):
            assert window(one).tolist() == [1.0]


def test_arrays_as_operands():
    x, array = wisp.tensor([1.0, 2.0]), np.array([2.0, 4.0])
    quotient = array / x
    assert quotient.tolist() == [2.0, 2.0] and quotient.dtype == wisp.float64 and (np.array(2.0) / x).tolist() == [2.0, 1.0]
    assert (x * np.array(2.0)).tolist() == [2.0, 4.0] and (x == np.array(2.0)).tolist() == [False, True]
    assert not (x == np.array(["a", "b"]))
    for call in (lambda: wisp.add(x, np.array(2.0)), lambda: array - x, lambda: wisp.full((2,), np.array(2.0))):
        with pytest.raises(TypeError):
            call()


def test_complex_numbers_without_an_imaginary_part_fill_others():
    mask = wisp.tensor([True, False])
    assert wisp.zeros(2, dtype=wisp.int8).masked_fill_(mask, 2 + 0j).tolist() == [2, 0]
    assert wisp.zeros(2).masked_fill(mask, wisp.tensor(2 + 0j)).tolist() == [2.0, 0.0]
    assert wisp.zeros(2, dtype=wisp.bool).fill_(1j).tolist() == [True, True]
    with pytest.raises(RuntimeError, match="cannot be converted"):
        wisp.zeros(2).masked_fill_(mask, 1j)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_gradients_of_what_is_scattered_in_place_are_those_of_a_copy(reduce):
    index, own = wisp.tensor([0, 2, 2]), wisp.tensor([1.0, 2.0, 3.0, 4.0])
    calls = [lambda t, s, _: getattr(t, "scatter_reduce" + _)(0, index, s, reduce)]
    if reduce != "sum":
        calls.append(lambda t, s, _: getattr(t, "index_reduce" + _)(0, index, s, reduce))
    if reduce == "prod":
        calls.append(lambda t, s, _: getattr(t, "scatter" + _)(0, index, s, reduce="multiply"))
    if reduce == "sum":
        calls += [lambda t, s, _: getattr(t, "put" + _)(index, s, True), lambda t, s, _: getattr(t, "scatter_add" + _)(0, index, s)]
    for call in calls:
        found = []
        for inplace in ("", "_"):
            x, source = own.clone().requires_grad_(), wisp.tensor([5.0, -6.0, 7.0], requires_grad=True)
            y = call(x * 1, source, inplace)
            (y * own).sum().backward()
            found.append((y.tolist(), x.grad.tolist(), source.grad.tolist()))
        assert found[0] == found[1]


def test_what_scatters_into_itself_and_indices_of_other_kinds_are_refused():
    x, index = wisp.arange(4.0), wisp.arange(4)
    for call in (lambda: x.scatter_reduce_(0, index, x, "sum"), lambda: x.index_reduce_(0, index, x, "prod")):
        with pytest.raises(RuntimeError, match="single memory location"):
            call()
    assert x.clone().scatter_reduce_(0, index, x, "sum").tolist() == [0.0, 2.0, 4.0, 6.0]
    with pytest.raises(RuntimeError, match="Expected a long tensor for index"):
        x.put_(index.int(), x.clone())
    with pytest.raises(IndexError, match="index out of range in self"):
        x.index_add_(0, index + 1, x.clone())
    assert wisp.ones(1, 1, 2).squeeze_(0, 1).shape == (2,)
    assert wisp.angle(wisp.tensor([1j]), out=wisp.empty(0, dtype=wisp.float64)).dtype == wisp.float64


@pytest.mark.parametrize("call", [wisp.autograd.grad, lambda y, inputs: y.backward(inputs=inputs)])
def test_gradients_of_nothing_are_refused(call):
    x = wisp.ones(2, requires_grad=True)
    for inputs in ([None], [x, None]):
        with pytest.raises(RuntimeError, match="inputs have to be Tensors or GradientEdges, but got NoneType"):
            call(x.sum(), inputs)


def test_a_number_of_numpy_is_a_size_to_the_old_constructors():
    # env.action_space.n of gymnasium is one, and NoisyLinear makes FloatTensor(out_features)
    for make, dtype in ((wisp.FloatTensor, wisp.float32), (wisp.Tensor, wisp.float32), (wisp.LongTensor, wisp.int64)):
        for size in (np.int64(2), np.uint8(2), np.array(2)):
            assert make(size).shape == (2,) and make(size).dtype == dtype
        assert make(np.array([5])).tolist() == [5]
        for value in (np.float32(2), np.bool_(True), 2.0):
            with pytest.raises(TypeError, match="data must be a sequence"):
                make(value)
    assert wisp.ones(1).new(np.int64(3)).shape == (3,)


def test_margin_losses_have_no_slope_at_the_hinge():
    x = wisp.arange(6.0).reshape(2, 3).requires_grad_()
    F = wisp.nn.functional
    for loss, target, rows in (
        (F.multi_margin_loss, wisp.tensor([0, 1]), [[-2, 1, 1], [0, -1, 1]]),
        (F.multilabel_margin_loss, wisp.tensor([[0, 1, -1], [2, -1, -1]]), [[-1, -1, 2], [0, 0, 0]]),
    ):
        (slope,) = wisp.autograd.grad(loss(x, target), x)
        assert (slope * 6).round().tolist() == rows
