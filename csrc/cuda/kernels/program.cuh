// What the text of a fused program (see ../program.cpp, which writes it) is built on.
#include "cuda/kernels/numbers.cuh"

namespace wisp {

#include "kernels/program_arguments.h"

__device__ constexpr Param no_params[4] = {};

template <class T> WISP_INLINE T element(const char* at) { return *reinterpret_cast<const T*>(at); }
template <class T, int V> WISP_INLINE Vector<T, V> elements(const char* at) { return *reinterpret_cast<const Vector<T, V>*>(at); }

// A value as memory would have it: neither compiler nor assembler may join the product that it comes from with a sum that it goes
// into, so that what an operator gives depends on its operands alone, and not on the program that it is in. `zero` is 0, which only
// the host knows.
template <class T> WISP_INLINE T settled(T x, unsigned zero) {
    if constexpr (is_complex<T>) return T(settled(x.re, zero), settled(x.im, zero));
    else if constexpr (std::is_same_v<T, float>) return __uint_as_float(__float_as_uint(x) ^ zero);
    else if constexpr (std::is_same_v<T, double>) return __longlong_as_double(__double_as_longlong(x) ^ zero);
    else return x;
}

struct Adding {
    template <class T> static WISP_INLINE T start() { return T(0); }
    template <class T> static WISP_INLINE T join(T a, T b) { return a + b; }
};
struct Largest {
    template <class T> static WISP_INLINE T start() {
        if constexpr (std::is_same_v<T, int64_t>) return INT64_MIN;
        else if constexpr (std::is_same_v<T, uint64_t>) return 0;
        else return T(-INFINITY);
    }
    template <class T> static WISP_INLINE T join(T a, T b) { return rows::larger(a, b); }
};

// One value of all threads of the block, in a fixed order; all threads get it.
template <class Fold, int Warps, class T> WISP_INLINE T over_block(T x) {
    __shared__ T parts[Warps];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = Fold::join(x, __shfl_xor_sync(~0u, x, step));
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
#pragma unroll
    for (int w = 1; w < Warps; w++) x = Fold::join(x, parts[w]);
    return x;
}

}  // namespace wisp
