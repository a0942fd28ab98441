// What the text of a fused program (see ../program.cpp, which writes it) is built on.
#include "cuda/kernels/numbers.cuh"
#include "cuda/kernels/philox.cuh"

namespace wisp {

#include "kernels/program_arguments.h"

__device__ constexpr Param no_params[4] = {}, squared[4] = {{2, 0, 2}};

template <class T> WISP_INLINE T element(const char* at) { return *reinterpret_cast<const T*>(at); }
template <class T, int V> WISP_INLINE Vector<T, V> elements(const char* at) { return *reinterpret_cast<const Vector<T, V>*>(at); }

// A value as memory would have it: neither compiler nor assembler may join the product that it comes from with a sum that it goes
// into, so that what an operator gives depends on its operands alone, and not on the program that it is in. `zero` is 0, which only
// the host knows; `^` would not do, as two of them are none.
template <class T> WISP_INLINE T settled(T x, unsigned zero) {
    if constexpr (is_complex<T>) return T(settled(x.re, zero), settled(x.im, zero));
    else if constexpr (std::is_same_v<T, float>) return __uint_as_float(__float_as_uint(x) | zero);
    else if constexpr (std::is_same_v<T, double>) return __longlong_as_double(__double_as_longlong(x) | zero);
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

// One value of all threads of the block, in a fixed order: that of a warp, which goes into shared memory, and that of all of them.
template <class Fold, class T> WISP_INLINE void over_warp(T x, T* parts) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = Fold::join(x, __shfl_xor_sync(~0u, x, step));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
}
template <class Fold, int Warps, class T> WISP_INLINE T over_warps(const T* parts) {
    T x = parts[0];
#pragma unroll
    for (int w = 1; w < Warps; w++) x = Fold::join(x, parts[w]);
    return x;
}

// Which of V neighbours from element `first` on dropout keeps, as bits: number i of the draw is word i % 64 / 16 of Philox block
// i / 64 * 16 + i % 16 (see random.cuh). In a captured graph a cell of memory says how the draw is moved on.
WISP_INLINE Draw draw_of(const kernels::Param* p) {
    const uint64_t* moved = reinterpret_cast<const uint64_t*>(p[3].integer);
    const uint64_t seed = uint64_t(p[0].integer), offset = uint64_t(p[1].integer);
    return moved ? Draw{seed ^ moved[0], offset + moved[1], nullptr} : Draw{seed, offset, nullptr};
}
template <int V> WISP_INLINE unsigned kept_of(uint64_t first, const kernels::Param* p) {
    const Draw draw = draw_of(p);
    unsigned bits = 0;
    for (int k = 0; k < V; k++) {
        const uint64_t i = first + k;
        const unsigned word = unsigned(i % 64 / 16);
        const Words w = philox(draw.seed, draw.offset, i / 64 * 16 + i % 16);
        const uint32_t x = word == 0 ? w.at[0] : word == 1 ? w.at[1] : word == 2 ? w.at[2] : w.at[3];
        bits |= unsigned(uint64_t(x) < uint64_t(p[2].integer)) << k;
    }
    return bits;
}
// The same where the threads of a warp, all of them, have 32 V neighbours from a multiple of 64 on, and make each block once: those of 64
// elements belong to the 64 / V threads that have them.
template <int V> WISP_INLINE unsigned kept_of_warp(uint64_t first, const kernels::Param* p) {
    constexpr unsigned group = 64 / V, own = V / 4;  // threads; blocks of one
    const Draw draw = draw_of(p);
    const unsigned lane = threadIdx.x % 32, place = lane % group, word = place * V / 16, part = place % (16 / V);
    unsigned bits = 0;
#pragma unroll
    for (unsigned b = 0; b < own; b++) {
        const Words w = philox(draw.seed, draw.offset, first / 64 * 16 + b * group + place);
#pragma unroll
        for (unsigned e = 0; e < 4; e++) {
            const unsigned all = __ballot_sync(~0u, uint64_t(w.at[e]) < uint64_t(p[2].integer)) >> (lane - place);
            // Mine are V blocks from part * V on.
            if (e == word && b == part * V / group) bits = all >> (part * V % group);
        }
    }
    return bits;
}

// The ends of sums of rows: 32 columns a block, four of them a thread, 128 threads along the parts; blockIdx.y says which sum.
template <class T> __global__ void __launch_bounds__(1024) program_columns(const Columns columns, int parts, int n) {
    begin_early();
    using C = compute<T>;
    __shared__ C sums[32][33];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, four = lane % 8 * 4, i = blockIdx.x * 32 + four;
    const C* from = reinterpret_cast<const C*>(columns.parts[blockIdx.y]);
    C total[4] = {};
    if (i < n) {
#pragma unroll 4
        for (int s = threadIdx.x / 8; s < parts; s += 128) {
            const Vector<C, 4> v = *reinterpret_cast<const Vector<C, 4>*>(from + int64_t(s) * n + i);
#pragma unroll
            for (int k = 0; k < 4; k++) total[k] += v.at[k];
        }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        for (int step = 8; step < 32; step *= 2) total[k] += __shfl_xor_sync(~0u, total[k], step);
        if (lane < 8) sums[warp][four + k] = total[k];
    }
    __syncthreads();
    C all = sums[lane][warp];  // a warp now has a column
#pragma unroll
    for (int step = 16; step > 0; step /= 2) all += __shfl_xor_sync(~0u, all, step);
    const int column = blockIdx.x * 32 + warp;
    if (lane == 0 && column < n) reinterpret_cast<T*>(columns.out[blockIdx.y])[column] = convert<T>(all);
}

}  // namespace wisp
