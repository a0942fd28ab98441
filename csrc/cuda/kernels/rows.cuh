// What kernels that give a block of threads to a row share: sums and maxima over the block.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

template <class T> WISP_INLINE T shuffle_down(T x, int by) { return __shfl_down_sync(0xffffffffu, x, by); }

struct Add {
    template <class T> static WISP_INLINE T join(T a, T b) { return a + b; }
};
struct Max {
    template <class T> static WISP_INLINE T join(T a, T b) { return a != a || a > b ? a : b; }  // NaN wins
};

// The result in every thread of the block; blockDim.x is a multiple of 32. Uses 33 elements of shared memory.
template <class How, class T> __device__ T over_block(T x, T* shared) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) x = How::join(x, shuffle_down(x, by));
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[warp] = x;
    __syncthreads();
    if (threadIdx.x == 0) {
        T total = shared[0];
        for (int w = 1; w < warps; w++) total = How::join(total, shared[w]);
        shared[32] = total;
    }
    __syncthreads();
    return shared[32];
}

}  // namespace wisp
