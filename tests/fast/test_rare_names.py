"""Rare names: quantised tensors, two-in-four sparse matrices, signatures taken apart, NVML, backends of devices."""

import functools
import io

import pytest

import wisp


@pytest.mark.parametrize("dtype, kind, low, high", [("quint8", "uint8", 0, 255), ("qint8", "int8", -128, 127)])
def test_one_scale(dtype, kind, low, high):
    x = wisp.tensor([[-100.0, -0.26, 0.0], [0.25, 0.74, 1000.0]])
    q = wisp.quantize_per_tensor(x, 0.5, 3, getattr(wisp, dtype))
    assert q.int_repr().tolist() == [[low, 2, 3], [3, 4, high]]  # halves to even
    assert wisp.equal(q.dequantize(), (q.int_repr().float() - 3) * 0.5) and q.int_repr().dtype is getattr(wisp, kind)
    assert (q.is_quantized, q.dtype, q.shape, q.q_scale(), q.q_zero_point()) == (True, getattr(wisp, dtype), (2, 3), 0.5, 3)
    assert q.qscheme() is wisp.per_tensor_affine and q.t().shape == (3, 2) and q[1].int_repr().tolist() == [3, 4, high]
    assert wisp.equal(wisp.dequantize([q])[0], q.dequantize()) and wisp.equal(wisp.int_repr(q), q.int_repr())


def test_a_scale_for_each_channel():
    x = wisp.ones(2, 3)
    q = wisp.quantize_per_channel(x, wisp.tensor([0.5, 0.1, 1.0]), wisp.tensor([0, 1, 2]), 1, wisp.qint8)
    assert q.int_repr().tolist() == [[2, 11, 3]] * 2 and wisp.allclose(q.dequantize(), x)
    assert q.qscheme() is wisp.per_channel_affine and q.q_per_channel_axis() == 1
    with pytest.raises(RuntimeError, match="kPerTensorAffine"):
        q.q_scale()
    with pytest.raises(RuntimeError, match="2 scales"):
        wisp.quantize_per_channel(x, wisp.ones(2), wisp.zeros(2), 1, wisp.qint8)


def test_what_is_not_quantised_or_cannot_be():
    q = wisp.quantize_per_tensor(wisp.ones(2), 0.1, 0, wisp.qint32)
    with pytest.raises(NotImplementedError, match="dequantize"):
        q + q
    for ask in (wisp.int_repr, wisp.Tensor.qscheme, wisp.q_scale):
        with pytest.raises(NotImplementedError, match="not quantised"):
            ask(wisp.ones(2))
    assert wisp.ones(2, dtype=wisp.float64).dequantize().dtype is wisp.float32
    with pytest.raises(RuntimeError, match="only works on Float Tensor"):
        wisp.quantize_per_tensor(wisp.ones(2, dtype=wisp.int64), 0.1, 0, wisp.qint8)
    with pytest.raises(RuntimeError, match="out of range"):
        wisp.quantize_per_tensor(wisp.ones(2), 0.1, 300, wisp.quint8)


def test_two_in_four():
    weight = wisp.randn(6, 8) * wisp.tensor([1.0, 0, 0, 1, 0, 1, 1, 0])
    weight[0, :4] = 0
    weight[1, :4] = wisp.tensor([0.0, 0, 5, 0])
    kept = wisp.sparse.to_sparse_semi_structured(weight)
    assert wisp.equal(kept.to_dense(), weight) and wisp.equal(kept.t().to_dense(), weight.t())
    assert kept.packed.shape == (6, 4) and kept.meta.shape == (6, 2) and kept.meta.dtype is wisp.uint8 and kept.shape == (6, 8)
    x = wisp.randn(3, 8, requires_grad=True)
    y = wisp.nn.functional.linear(x, kept)
    assert wisp.allclose(y, x @ weight.t()) and wisp.allclose(kept @ x.t(), weight @ x.t())
    y.sum().backward()
    assert wisp.allclose(x.grad, weight.sum(0).expand(3, 8))
    layer = wisp.nn.Linear(8, 6)
    layer.weight = wisp.nn.Parameter(kept, requires_grad=False)
    assert isinstance(layer.weight, wisp.sparse.SparseSemiStructuredTensor) and wisp.allclose(layer(x), y + layer.bias)
    with pytest.raises(RuntimeError, match="more than two of four"):
        wisp.sparse.to_sparse_semi_structured(wisp.ones(4, 4))
    with pytest.raises(RuntimeError, match="multiple of 4"):
        wisp.sparse.to_sparse_semi_structured(wisp.zeros(4, 6))
    with pytest.raises(NotImplementedError, match="to_dense"):
        kept + 1


def test_signatures_are_taken_apart():
    text = "mine::put.out(Tensor(a!) self, int[2] size=[1, 2], *, Scalar alpha=1, str? name=None) -> (Tensor(a!) out, int[])"
    found = wisp.parse_schema(text)
    assert str(found) == text and (found.name, found.overload_name, found.is_mutable) == ("mine::put", "out", True)
    assert [(a.name, a.type, a.default_value, a.kwarg_only, a.N) for a in found.arguments] == [
        ("self", "Tensor", None, False, None),
        ("size", "List[int]", [1, 2], False, 2),
        ("alpha", "number", 1, True, None),
        ("name", "Optional[str]", None, True, None),
    ]
    assert found.arguments[0].alias_info.before_set == {"a"} and [r.name for r in found.returns] == ["out", ""]
    assert [a.has_default_value() for a in found.arguments] == [False, True, True, True]
    with pytest.raises(RuntimeError, match="no signature"):
        wisp.parse_schema("foo(")


def test_nvml_is_asked_by_the_number_of_the_visible_device(monkeypatch):
    from wisp.cuda import nvml

    class Library:
        def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
            handle._obj.value = 100 + index.value
            return 0

        def nvmlDeviceGetTemperature(self, handle, sensor, value):
            value._obj.value = handle.value - 60
            return 0

        def nvmlDeviceGetPowerUsage(self, handle, value):
            return 3

        def nvmlDeviceGetUtilizationRates(self, handle, rates):
            rates._obj.gpu, rates._obj.memory = 7, 9
            return 0

        def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, found):
            if count._obj.value < 20:
                count._obj.value = 20
                return 7
            found[0].pid, found[0].bytes, count._obj.value = 42, 3 << 20, 1
            return 0

    monkeypatch.setattr(nvml, "_library", Library())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,2")
    assert wisp.cuda.temperature(1) == 42 and (wisp.cuda.utilization(0), wisp.cuda.memory_usage(0)) == (7, 9)
    assert wisp.cuda.list_gpu_processes(0).split() == "GPU:0 process 42 uses 3.000 MB GPU memory".split()
    with pytest.raises(RuntimeError, match="nvmlDeviceGetPowerUsage failed with NVML's error 3"):
        wisp.cuda.power_draw(0)


def test_backends_of_devices():
    config = wisp.distributed.BackendConfig
    assert repr(config("gloo")) == "cpu:gloo,cuda:gloo" and repr(config("nccl")) == "cuda:nccl"
    assert config("CPU:gloo,cuda:nccl").get_device_backend_map() == {"cpu": "gloo", "cuda": "nccl"}
    with pytest.raises(ValueError, match="Duplicate device type cpu"):
        config("cpu:gloo,cpu:nccl")
    with pytest.raises(ValueError, match="Invalid device:backend pairing: cpu:x:y"):
        config("cpu:x:y")


def test_zeros_without_memory_do_not_leave_as_such():
    zeros = wisp._efficientzerotensor((3, 2), requires_grad=True)
    assert zeros._is_zerotensor() and zeros.stride() == (0, 0) and zeros.requires_grad and zeros.tolist() == [[0, 0]] * 3
    for leave in (zeros.numpy, lambda: wisp.save(zeros, io.BytesIO())):
        with pytest.raises(RuntimeError, match="ZeroTensor"):
            leave()
    assert zeros.numpy(force=True).shape == (3, 2) and type(zeros + 1) is wisp.Tensor


def test_hooks_of_a_tensor_are_seen():
    x = wisp.ones(2, requires_grad=True)
    assert x._backward_hooks is None and wisp.ones(2)._backward_hooks is None
    handle = x.register_hook(lambda grad: grad)
    assert len(x._backward_hooks) == 1
    handle.remove()
    assert x._backward_hooks is None


def test_suffixes_of_a_printed_tensor():
    text = wisp._tensor_str._add_suffixes("Mine([1, 2]", ["sorted=True", "x" * 80], 5, False)
    assert text == "Mine([1, 2], sorted=True,\n     " + "x" * 80 + ")"
    assert wisp._tensor_str._str_intern(wisp.ones(2), tensor_contents="here") == "tensor(here)"


def test_scale_of_a_loss_is_updated():
    scale, tracker = wisp.tensor(8.0), wisp.tensor(0, dtype=wisp.int32)
    for infinite, expected, steps in ((0.0, 8.0, 1), (0.0, 16.0, 0), (1.0, 8.0, 0)):
        wisp._amp_update_scale_(scale, tracker, wisp.tensor(infinite), 2.0, 0.5, 2)
        assert (float(scale), int(tracker)) == (expected, steps)


def test_products_of_float8_by_their_scales():
    F, a = wisp.nn.functional, wisp.tensor([[1.0, 2.0], [3.0, 4.0]]).to(wisp.float8_e4m3fn)
    one, rows = F.ScalingType.TensorWise, F.ScalingType.RowWise
    b, half = a.t().contiguous().t(), wisp.tensor(0.5)
    assert F.scaled_mm(a, b, half, one, half, one).tolist() == [[1.75, 2.5], [3.75, 5.5]]
    scales = wisp.tensor([[1.0], [2.0]])
    assert F.scaled_mm(a, b, [scales], [rows], [scales.t()], [rows]).tolist() == [[7.0, 20.0], [30.0, 88.0]]
    with pytest.raises(NotImplementedError, match="one scale for a matrix or for each row"):
        F.scaled_mm(a, b, half, F.ScalingType.BlockWise1x32, half, one)


def test_groups_of_float8_by_their_scales():
    F, rows, one = wisp.nn.functional, wisp.nn.functional.ScalingType.RowWise, wisp.nn.functional.ScalingType.TensorWise
    a, b = wisp.rand(4, 6).to(wisp.float8_e4m3fn), wisp.rand(6, 5).to(wisp.float8_e4m3fn)
    stack_a, stack_b = wisp.rand(2, 4, 6).to(wisp.float8_e4m3fn), wisp.rand(2, 6, 5).to(wisp.float8_e4m3fn)
    along_k, along_m, along_n = (wisp.tensor([2, end], dtype=wisp.int32) for end in (6, 4, 5))

    def grouped(a, b, scale_a, scale_b, offs=None, recipe=rows):
        return F.scaled_grouped_mm(a, b, scale_a, recipe, scale_b, recipe, offs=offs, output_dtype=wisp.float32)

    sa, sb = wisp.rand(8), wisp.rand(10)
    whole_a, whole_b = a.float(), b.float()
    spans = ((0, 2), (2, 6))
    expected = wisp.stack([(whole_a[:, s:e] * sa[4 * i :][:4, None]) @ (whole_b[s:e] * sb[5 * i :][:5]) for i, (s, e) in enumerate(spans)])
    wisp.testing.assert_close(grouped(a, b, sa, sb, along_k), expected)
    sa, sb = wisp.rand(4), wisp.rand(2, 5)
    parts = [(whole_a[s:e] * sa[s:e, None]) @ (stack_b[i].float() * sb[i]) for i, (s, e) in enumerate(((0, 2), (2, 4)))]
    wisp.testing.assert_close(grouped(a, stack_b, sa, sb, along_m), wisp.cat(parts))
    sa, sb = wisp.rand(2, 4), wisp.rand(5)
    parts = [(stack_a[i].float() * sa[i][:, None]) @ (whole_b[:, s:e] * sb[s:e]) for i, (s, e) in enumerate(((0, 2), (2, 5)))]
    wisp.testing.assert_close(grouped(stack_a, b, sa, sb, along_n), wisp.cat(parts, 1))
    half = wisp.tensor(0.5)
    wisp.testing.assert_close(grouped(stack_a, stack_b, half, half, recipe=one), stack_a.float() @ stack_b.float() * 0.25)
    with pytest.raises(NotImplementedError, match="one scale for a matrix or for each row"):
        grouped(stack_a, stack_b, half, half, recipe=F.ScalingType.BlockWise1x32)


def test_functions_of_nested_tensors():
    class Two(wisp.autograd.NestedIOFunction):
        def forward_extended(self, pair, last):
            self.save_for_backward(pair, last)
            return pair[0] * pair[1], [last * 2]

        def backward_extended(self, grad, rest):
            (a, b), last = self.saved_tensors
            return (grad * b, grad * a), rest[0] * 2

    a, b, c = (wisp.rand(2, requires_grad=True) for _ in range(3))
    product, (double,) = Two()((a, b), c)
    (product.sum() + double.sum()).backward()
    assert a.grad.tolist() == b.tolist() and b.grad.tolist() == a.tolist() and c.grad.tolist() == [2.0, 2.0]
    with pytest.raises(NotImplementedError, match="forward_extended"):
        wisp.autograd.NestedIOFunction()(a)
    with pytest.raises(ValueError, match="got str"):
        Two()("a")


def test_what_the_gpu_does_not_have_is_refused():
    with pytest.raises(NotImplementedError, match="Wisp's own allocator"):
        wisp.cuda.CUDAPluggableAllocator("lib.so", "take", "give")
    with pytest.raises(NotImplementedError, match="Wisp's own allocator"):
        wisp.cuda.change_current_allocator(object())
    with pytest.raises(NotImplementedError, match="used whole"):
        wisp.cuda.GreenContext.create(num_sms=8)


def test_checks_of_sizes_and_of_all_elements():
    wisp._check_is_size(0)
    with pytest.raises(RuntimeError):
        wisp._check_is_size(-1)
    with pytest.raises(RuntimeError, match="too many"):
        wisp._check_is_size(5, lambda: "too many", max=4)
    with pytest.raises(ValueError, match="all of them"):
        wisp._check_tensor_all_with(ValueError, wisp.tensor([True, False]), lambda: "all of them")


def test_tensors_in_lists_of_a_size():
    tensors = [wisp.ones(2), wisp.ones(2), wisp.ones(1, dtype=wisp.int64), wisp.ones(4)]
    found = [[tuple(t.shape) for t in part] for part in wisp._utils._take_tensors(tensors, 16)]
    assert found == [[(2,), (2,)], [(4,)], [(1,)]]


def test_parametrized_tests_of_a_class():
    from wisp._compat.testing import TestCase, instantiate_parametrized_tests, parametrize

    seen = []

    class Tests(TestCase):
        @parametrize("a", [1, 2])
        @parametrize("b, c", [("x", 3)])
        def test_it(self, a, b, c):
            seen.append((a, b, c))

    instantiate_parametrized_tests(Tests)
    names = sorted(name for name in dir(Tests) if name.startswith("test_it"))
    assert names == ["test_it_a_1_b_x_c_3", "test_it_a_2_b_x_c_3"]
    for name in names:
        getattr(Tests(name), name)()
    assert seen == [(1, "x", 3), (2, "x", 3)]


def test_functions_that_were_removed_say_so():
    for name in "eig lstsq matrix_rank solve symeig".split():
        with pytest.raises(RuntimeError, match=f"torch.{name}: This function was deprecated .* use torch.linalg"):
            getattr(wisp, name)(wisp.eye(2))


def test_parts_of_a_compiler_refuse_when_they_are_called():
    from wisp._functorch.aot_autograd import aot_module_simplified
    from wisp._inductor.decomposition import register_decomposition

    assert register_decomposition([])(len) is len
    with pytest.raises(NotImplementedError, match="no compiler"):
        aot_module_simplified()
    assert wisp.ops._c10d_functional.wait_tensor(wisp.ones(1)).tolist() == [1]
    with pytest.raises(NotImplementedError, match="torch.ops.onednn.qlinear_pointwise: Wisp has no such operator"):
        wisp.ops.onednn.qlinear_pointwise.default()


def test_timers_take_indented_statements():
    from wisp.utils.benchmark import Language, Timer

    seen = []
    timer = Timer(
        """
            seen.append(x)
        """,
        setup="""
            x = 2
            x += 1
        """,
        globals={"seen": seen},
    )
    timer.timeit(2)
    assert set(seen) == {3}
    assert Timer("x", globals={"x": 1}, language=Language.PYTHON).timeit(1).number_per_run == 1
    with pytest.raises(NotImplementedError, match="statements are Python"):
        Timer("1 + 1;", language=Language.CPP)


def test_loops_are_found_by_the_modules_of_their_names():
    from wisp._higher_order_ops.map import map
    from wisp._higher_order_ops.scan import scan
    from wisp._higher_order_ops.while_loop import while_loop

    assert (map, scan, while_loop) == tuple(getattr(wisp._higher_order_ops, name) for name in "map scan while_loop".split())


def test_one_process_at_a_time_holds_the_baton(tmp_path):
    from wisp.utils.file_baton import FileBaton

    one, other = (FileBaton(str(tmp_path / "lock")) for _ in range(2))
    assert one.try_acquire() and not other.try_acquire()
    one.release()
    other.wait()
    assert other.try_acquire()
    other.release()
    assert wisp.nn.functional._Reduction.get_enum("sum") == 2


def test_tolerances_may_be_tensors():
    a, b = wisp.ones(3), wisp.full((3,), 1.01)
    wisp.testing.assert_close(a, b, rtol=wisp.tensor(0.0), atol=wisp.tensor(0.1))
    with pytest.raises(AssertionError, match="up to 0.00"):
        wisp.testing.assert_close(a, b, rtol=0.0, atol=wisp.tensor(0.001))


def test_modules_are_wrapped_as_a_policy_says():
    from wisp.distributed.fsdp.wrap import _recursive_wrap, size_based_auto_wrap_policy

    class Wrapper(wisp.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    model = wisp.nn.Sequential(wisp.nn.Linear(10, 10), wisp.nn.ModuleList([wisp.nn.Linear(2, 2)]), wisp.nn.Linear(10, 10))
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
    wrapped, count = _recursive_wrap(model, policy, Wrapper, {model[2]}, set(), only_wrap_children=True)
    assert wrapped is model and count == 110
    assert [type(one).__name__ for one in model] == ["Wrapper", "ModuleList", "Linear"]


def test_weights_of_int8_and_the_question_for_flash_attention():
    x, weights, scales = wisp.ones(2, 3), wisp.ones(4, 3, dtype=wisp.int8), wisp.arange(4.0)
    assert wisp._weight_int8pack_mm(x, weights, scales).tolist() == [[0.0, 3.0, 6.0, 9.0]] * 2
    cuda = wisp.backends.cuda
    assert cuda.can_use_flash_attention(cuda.SDPAParams(x, x, x, None, 0.0, False, False), True) is False


def test_cases_of_libraries_compare_numbers_as_close_ones():
    from wisp.testing._internal.common_utils import TestCase

    case = TestCase()
    case.assertEqual(0.8, wisp.tensor(0.8).item())
    case.assertEqual([1, float("nan")], [1.0, float("nan")])
    case.assertEqual(2 + 0j, 2.0)
    for x, y in ((0.8, 0.8001), (1.0, 2), (1.0, float("nan")), (3, 4)):
        with pytest.raises(AssertionError):
            case.assertEqual(x, y)


def test_none_is_no_future():
    future = wisp.futures.Future()
    for wait in (lambda: wisp.jit.wait(None), lambda: wisp.futures.wait_all((None,)), lambda: wisp.futures.collect_all([future, None])):
        with pytest.raises(RuntimeError, match="Future can't be None"):
            wait()
