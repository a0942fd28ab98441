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
    static WISP_INLINE float join(float a, float b) {
        float x;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
        return x;
    }
};

// e^x as precisely as numbers of type T show it: half types have no digits for what the quick instruction rounds.
template <class T> WISP_INLINE compute<T> exponential(compute<T> x) {
    if constexpr (sizeof(T) == 2) {
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
        return y;
    } else {
        return ::exp(x);
    }
}

// The result in every thread of the warp.
template <class How, class T> __device__ T over_warp(T x) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) x = How::join(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

// The result in every thread of the block; blockDim.x is a multiple of 32, blockDim.y is 1. Uses 32 elements of shared memory.
template <class How, class T> __device__ T over_block(T x, T* shared) {
    x = over_warp<How>(x);
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    __syncthreads();
    if (lane == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    // Every warp joins the same numbers in the same order; lanes beyond the last repeat the first, which they then leave out.
    T total = shared[0];
    if (lane > 0 && lane < warps) total = shared[lane];
#pragma unroll
    for (int by = 16; by > 0; by /= 2) {
        const T other = shuffle_down(total, by);
        if (lane + by < warps) total = How::join(total, other);
    }
    return __shfl_sync(0xffffffffu, total, 0);
}

// Rows in registers: a row has a warp (blockDim = {32, rows}) or a block ({threads, 1}); a thread has up to K vectors of 16
// bytes, blockDim.x apart. `vectors` is how many the row has.
template <class T> inline constexpr int vector_of = 16 / int(sizeof(T));

template <class How, class T> __device__ T over_row(T x, T* shared) {
    return blockDim.x == 32 ? over_warp<How>(x) : over_block<How>(x, shared);
}

template <class T, int K> struct Row {
    Vector<T, vector_of<T>> at[K];

    WISP_INLINE void load(const T* from, int vectors) {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (const int i = threadIdx.x + k * blockDim.x; i < vectors) at[k] = reinterpret_cast<const Vector<T, vector_of<T>>*>(from)[i];
    }
    WISP_INLINE void store(T* to, int vectors) const {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (const int i = threadIdx.x + k * blockDim.x; i < vectors) reinterpret_cast<Vector<T, vector_of<T>>*>(to)[i] = at[k];
    }
    // f(element, k, j): the j-th of the k-th vector.
    template <class F> WISP_INLINE void each(int vectors, F f) {
#pragma unroll
        for (int k = 0; k < K; k++)
            if (threadIdx.x + k * blockDim.x < vectors) {
#pragma unroll
                for (int j = 0; j < vector_of<T>; j++) f(at[k].at[j], k, j);
            }
    }
};

}  // namespace wisp
