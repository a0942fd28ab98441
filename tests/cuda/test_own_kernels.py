"""Kernels of one's own in CUDA: launched on the current stream, in the order of the program."""

import pytest

import wisp
from wisp.utils.cpp_extension import load_inline

SOURCE = """
__global__ void axpy(const float* x, float* out, float a, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x) out[i] += a * x[i];
}
__global__ void sums(const float* x, double* out, int n) {
    extern __shared__ double part[];
    double s = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[blockIdx.x * n + i];
    part[threadIdx.x] = s;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
"""


@pytest.fixture(scope="module")
def kernels():
    return load_inline("test", cuda_sources=SOURCE, functions=["axpy", "sums"])


def test_launch(kernels):
    x, out = wisp.randn(100_003, device="cuda"), wisp.randn(100_003, device="cuda")
    expected = out + 2.5 * x
    before = out._version
    kernels.axpy[128, 256](x, out, 2.5, x.numel())
    assert wisp.allclose(out, expected, atol=1e-5) and out._version == before + 1


def test_shared_memory_and_streams(kernels):
    stream = wisp.cuda.Stream()
    x = wisp.randn(64, 1000, device="cuda")
    stream.wait_stream(wisp.cuda.current_stream())
    with wisp.cuda.stream(stream):
        y = x * 2  # the kernel comes behind it
        out = wisp.empty(64, device="cuda", dtype=wisp.float64)
        kernels.sums[(64, 1, 1), 128, 128 * 8](y, out, 1000)
    wisp.cuda.current_stream().wait_stream(stream)
    assert wisp.allclose(out, (2 * x).double().sum(1), atol=1e-3)


def test_errors(kernels):
    x = wisp.ones(4, device="cuda")
    with pytest.raises(TypeError, match="x must be of float32"):
        kernels.axpy[1, 32](x.double(), x, 1.0, 4)
    with pytest.raises(ValueError, match="on cpu"):
        kernels.axpy[1, 32](x.cpu(), x, 1.0, 4)
    with pytest.raises(RuntimeError, match="invalid argument|invalid"):
        kernels.axpy[1, 4096](x, x, 1.0, 4)
    assert (x + 1).sum().item() == 8
