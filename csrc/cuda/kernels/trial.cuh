// For algorithms of a library that are tried out: operands of random numbers, and whether two results have the same bits.
#include "cuda/kernels/base.cuh"

namespace wisp {

template <class T> __global__ void __launch_bounds__(256) trial_numbers(void* to, int64_t n) {
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < n; i += int64_t(gridDim.x) * 256) {
        uint32_t x = uint32_t(i) * 0x9e3779b9u;
        x = (x ^ x >> 16) * 0x85ebca6bu;
        x = (x ^ x >> 13) * 0xc2b2ae35u;
        static_cast<T*>(to)[i] = T(float(int(x ^ x >> 16)) * (1.f / 2147483648.f));
    }
}

// n: vectors of 16 bytes.
__global__ void __launch_bounds__(256) trial_differs(const void* a, const void* b, int64_t n, void* differs) {
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < n; i += int64_t(gridDim.x) * 256) {
        const uint4 x = static_cast<const uint4*>(a)[i], y = static_cast<const uint4*>(b)[i];
        if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w) *static_cast<int*>(differs) = 1;
    }
}

}  // namespace wisp
