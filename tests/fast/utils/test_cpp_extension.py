"""Kernels of one's own in C++: compiled, called, checked, differentiated; CUDA's are compiled where NVRTC is."""

import os
import shutil

import pytest

import wisp
from wisp import _core
from wisp.utils import cpp_extension
from wisp.utils.cpp_extension import load, load_inline

SOURCE = """
#include <cmath>
void scale(const Tensor& x, Tensor& out, double by) {  // a comment, with (parentheses)
    const float* from = x.data<float>();
    float* to = out.data<float>();
    for (int64_t i = 0; i < x.size(0); i++) to[i * out.stride(0)] = from[i * x.stride(0)] * by;
}
int64_t count(const Tensor& x, int64_t wanted) {
    if (!x.is_contiguous()) throw std::runtime_error("contiguous ones only");
    int64_t n = 0;
    for (int64_t i = 0; i < x.numel(); i++) n += x.data<int64_t>()[i] == wanted;
    return n;
}
double norm(const Tensor& x) { double s = 0; for (int64_t i = 0; i < x.numel(); i++) s += x.data<double>()[i] * x.data<double>()[i]; return std::sqrt(s); }
bool outside(const Tensor& x, int d) { return x.size(d) > 3; }
"""
GPU = """
__global__ void axpy(const float* x, float* out, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += a * x[i];
}
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    if not (os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler here")
    folder = tmp_path_factory.mktemp("extensions")
    made = load_inline("mine", SOURCE, functions=["scale", "count", "norm", "outside"], build_directory=folder)
    made.folder = folder
    return made


def test_called(kernels):
    x, out = wisp.arange(8.0)[::2], wisp.zeros(4)
    assert kernels.scale(x, out, 2.5) is None and out.tolist() == [0.0, 5.0, 10.0, 15.0]
    assert kernels.count(wisp.tensor([1, 2, 1]), 1) == 2 and type(kernels.count(wisp.tensor([3]), 1)) is int
    assert kernels.norm(wisp.tensor([3.0, 4.0], dtype=wisp.float64)) == 5.0
    assert kernels.outside(wisp.ones(2, 4), -1) is True and kernels.outside(wisp.ones(2, 4), 0) is False
    assert repr(kernels.outside) == "<kernel bool outside(const Tensor & x, int d)>" and "scale, count" in repr(kernels)


def test_errors(kernels):
    with pytest.raises(RuntimeError, match=r"scale\(\): a tensor of float32 was expected, this one is float64"):
        kernels.scale(wisp.ones(2, dtype=wisp.float64), wisp.ones(2), 1)
    with pytest.raises(RuntimeError, match="contiguous ones only"):
        kernels.count(wisp.ones(2, 2, dtype=wisp.int64).t()[:1], 1) or kernels.count(wisp.ones(3, 2, dtype=wisp.int64).t(), 1)
    with pytest.raises(RuntimeError, match="dimension 2 of a tensor with 2"):
        kernels.outside(wisp.ones(2, 4), 2)
    with pytest.raises(TypeError, match="x must be a Tensor, got list"):
        kernels.norm([1.0])
    with pytest.raises(TypeError, match="takes 3 arguments"):
        kernels.scale(wisp.ones(2))
    with pytest.raises(RuntimeError, match="x requires grad.*autograd.Function"):
        kernels.norm(wisp.ones(2, dtype=wisp.float64, requires_grad=True))
    with pytest.raises(ValueError, match="ordinary tensor on cpu, this one is on meta"):
        kernels.norm(wisp.ones(2, device="meta"))
    with pytest.raises(RuntimeError, match="the compiler found errors\n.*broken"):
        load_inline("broken", "void broken(const Tensor& x) { return x; }", functions="broken", build_directory=kernels.folder)
    with pytest.raises(ValueError, match="other is not defined"):
        load_inline("mine", SOURCE, functions=["other"])
    with pytest.raises(TypeError, match="x is of type std::string"):
        load_inline("mine", "void f(std::string x) {}", functions=["f"])


def test_writes_are_seen_by_autograd(kernels):
    x = wisp.ones(2, requires_grad=True)
    factor = wisp.ones(2)
    y = x * factor
    before = factor._version
    kernels.scale(wisp.ones(2), factor, 3.0)
    assert factor._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_operator_of_it(kernels):
    class Scale(wisp.autograd.Function):
        @staticmethod
        def forward(ctx, x, by):
            ctx.by = by
            out = wisp.empty_like(x)
            kernels.scale(x, out, by)
            return out

        @staticmethod
        def backward(ctx, g):
            return Scale.apply(g, ctx.by), None

    x = wisp.ones(3, requires_grad=True)
    Scale.apply(x, 4.0).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0, 4.0]


def test_compiled_once(kernels, monkeypatch):
    files = sorted(os.listdir(kernels.folder))
    monkeypatch.setattr(cpp_extension.subprocess, "run", lambda *args, **kwargs: pytest.fail("compiled again"))
    again = load_inline("mine", SOURCE, functions=["scale", "count", "norm", "outside"], build_directory=kernels.folder)
    assert again.count(wisp.tensor([1]), 1) == 1 and sorted(os.listdir(kernels.folder)) == files and len(files) == 1


def test_files(kernels, tmp_path):
    (tmp_path / "a.cpp").write_text("double twice(double x) { return 2 * x; }\n")
    assert load("files", [tmp_path / "a.cpp"], functions=["twice"], build_directory=tmp_path).twice(3) == 6.0


def test_pytorch_extensions_are_refused():
    with pytest.raises(NotImplementedError, match="PyTorch's C.. library"):
        load_inline("theirs", "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x) { return x; }", functions=["f"])
    with pytest.raises(NotImplementedError):
        cpp_extension.CUDAExtension("x", [])


@pytest.mark.skipif(_core._operators["_cuda"]["library"]("nvrtc") is None, reason="no NVRTC here")
def test_cuda_compiles():
    kernel = load_inline("gpu", cuda_sources=GPU, functions=["axpy"]).axpy
    assert repr(kernel) == "<kernel axpy(const float * x, float * out, float a, int n) for CUDA>"
    image = kernel._program.image(90).raw
    assert image[:4] == b"\x7fELF" and b"axpy" in image
    with pytest.raises(ValueError, match="x must be an ordinary tensor on cuda, this one is on cpu"):
        kernel[1, 32](wisp.ones(3), wisp.ones(3), 2.0, 3)
    with pytest.raises(RuntimeError, match="undefined"):
        load_inline("bad", cuda_sources="__global__ void bad(int n) { nothing(n); }", functions="bad").bad._program.image(90)
