"""Rare names: quantised tensors, two-in-four sparse matrices, signatures taken apart, NVML, backends of devices."""

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
