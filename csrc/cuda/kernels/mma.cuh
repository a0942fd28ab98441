// Matrix products of the tensor cores on tiles in shared memory, for half types and float, with sums in float.
//
// A float is three bf16: its upper half, that of what is left, and the rest, which is one exactly. Of the nine products of the
// parts of two numbers the six largest are taken; the others are below 2^-21 of the product.
//
// A tile has rows of D elements in panels of 64 columns: element (r, c) is in panel c / 64, at row r of 128 bytes, where the
// eight chunks of 16 bytes are permuted by r % 8. So rows next to each other never meet in a bank, and it is the layout that
// the warpgroup instructions of sm_90 call the swizzle of 128 bytes. Tiles begin at multiples of 1024 bytes.
//
// Two engines have the same distribution of sums over threads: Wide = false is mma.sync, a warp for 16 rows, everywhere;
// Wide = true is wgmma, a warpgroup for 64 rows, on sm_90, and asynchronous: wait<n>() until all but the last n groups of
// products are done. Thread t of a warp holds, of every 8 columns n, sums [n][0..1] at row t / 4 and columns t % 4 * 2 + 0..1,
// and [n][2..3] at row t / 4 + 8.
#pragma once
#include "cuda/kernels/base.cuh"

namespace wisp {

WISP_INLINE uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

template <class T> struct Parts {
    using Element = T;
    static constexpr int count = 1;
};
template <> struct Parts<float> {
    using Element = bf16;
    static constexpr int count = 3;
};
template <class T> inline constexpr int parts_of = Parts<T>::count;

// ---- copies into tiles

WISP_INLINE void copy_async_16(uint32_t to, const void* from, bool there) {  // zeros if not there
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
WISP_INLINE void copy_async_4(uint32_t to, const void* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
WISP_INLINE void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for this thread's copies, but for those of the last Pending groups; a barrier must follow.
template <bool Wide, int Pending = 0> WISP_INLINE void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (Wide) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

template <int Rows, int D> inline constexpr int tile_bytes = (D + 63) / 64 * Rows * 128;
template <int Rows> WISP_INLINE uint32_t chunk_at(int r, int chunk) {
    return uint32_t(chunk / 8 * Rows * 128 + r * 128 + (((chunk % 8) ^ (r % 8)) << 4));
}

// Loads tiles of rows of `width` elements one after the other from a matrix; what is not there is zeros. Aligned: rows begin at
// multiples of 16 bytes and the width is one of 8 elements. Parts: tiles that follow each other, `width` elements apart in the matrix.
template <int Rows, int D, int Threads, bool Aligned, class T, int Parts = 1> struct TileLoader {
    static constexpr int chunks = D / 8, all = Rows * chunks, step = Threads / chunks;
    // A thread stays in its column; with four rows at a time the permutation changes by one bit from one to the next.
    static constexpr bool even = Aligned && Threads % chunks == 0 && (step % 8 == 0 || step == 4) && all % Threads == 0;
    const T* from;
    int64_t stride;
    int width;

    WISP_INLINE TileLoader(const T* matrix, int64_t stride, int width) : stride(stride), width(width) { begin(matrix); }
    WISP_INLINE void begin(const T* matrix) {
        from = matrix;
        if constexpr (even) from += int(threadIdx.x) / chunks * stride + int(threadIdx.x) % chunks * 8;
    }
    // The next tile, of which `rows` rows are there.
    WISP_INLINE void next(uint32_t tile, int rows) {
#pragma unroll
        for (int part = 0; part < Parts; part++) load(tile + part * tile_bytes<Rows, D>, from + part * width, rows);
        from += Rows * stride;
    }

private:
    WISP_INLINE void load(uint32_t tile, const T* from, int rows) const {
        if constexpr (even) {
            const int r = threadIdx.x / chunks, c = threadIdx.x % chunks;
            const bool inside = c * 8 < width;
            const uint32_t to = tile + chunk_at<Rows>(r, c);
#pragma unroll
            for (int i = 0; i < all / Threads; i++)
                copy_async_16((step == 4 && i % 2 ? to ^ 64 : to) + i * step * 128, from + i * step * stride,
                              inside && r + i * step < rows);
        } else {
#pragma unroll
            for (int i = 0; i < (all + Threads - 1) / Threads; i++) {
                const int at = i * Threads + threadIdx.x, r = at / chunks, c = at % chunks;
                if (all % Threads != 0 && at >= all) break;
                const bool there = r < rows && c * 8 < width;
                const T* p = from + r * stride + c * 8;
                const uint32_t to = tile + chunk_at<Rows>(r, c);
                if constexpr (Aligned) {
                    copy_async_16(to, p, there);
                } else {
                    uint32_t v[4];
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const uint32_t low = there && c * 8 + e * 2 < width ? p[e * 2].bits : 0,
                                       high = there && c * 8 + e * 2 + 1 < width ? p[e * 2 + 1].bits : 0;
                        v[e] = low | high << 16;
                    }
                    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                                 : "memory");
                }
            }
        }
    }
};

// ---- registers

WISP_INLINE float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
template <class How> WISP_INLINE float over_quad(float x, How how) {  // the four threads that share a row
    x = how(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return how(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
WISP_INLINE float sum_of_quad(float x) {
    return over_quad(x, [](float a, float b) { return a + b; });
}
template <class T> WISP_INLINE uint32_t pack(float low, float high) {
    uint32_t x;
    if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}
// The upper half of x and y, which keep what is left.
WISP_INLINE uint32_t cut(float& x, float& y) {
    const uint32_t low = __float_as_uint(x), high = __float_as_uint(y);
    x -= __uint_as_float(low & 0xffff0000u);
    y -= __uint_as_float(high & 0xffff0000u);
    return __byte_perm(low, high, 0x7632);
}
// Sums of N columns as the left operand of a product over those columns.
template <class T, int N> using Left = uint32_t[parts_of<T>][N / 2][4];
template <class T, int N> WISP_INLINE void pack_left(const float (&sums)[N][4], uint32_t (&left)[parts_of<T>][N / 2][4]) {
#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float low = sums[2 * k + e / 2][e % 2 * 2], high = sums[2 * k + e / 2][e % 2 * 2 + 1];
            if constexpr (parts_of<T> == 1) {
                left[0][k][e] = pack<T>(low, high);
            } else {
#pragma unroll
                for (int part = 0; part < parts_of<T>; part++) left[part][k][e] = cut(low, high);
            }
        }
}

// Of what a block reads once: it is not kept in the nearest cache at the cost of the rest.
WISP_INLINE uint4 load_once(const void* at) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(at));
    return x;
}

// ---- mma.sync

template <bool Transposed> WISP_INLINE void load_matrices(uint32_t (&x)[4], uint32_t at) {
    if constexpr (Transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(at)
                     : "memory");
}
template <class T> WISP_INLINE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#define WISP_MMA(type)                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
    if constexpr (std::is_same_v<T, bf16>) WISP_MMA("bf16");
    else WISP_MMA("f16");
#undef WISP_MMA
}

// ---- wgmma

// Where a tile is, for the tensor cores: `panel` bytes lie between its panels.
WISP_INLINE uint64_t descriptor(uint32_t at, uint32_t panel) {
    return uint64_t((at & 0x3ffff) >> 4) | uint64_t((panel & 0x3ffff) >> 4) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// The same so many bytes on: one addition, where making it anew would delay each product by four instructions that wait for each other.
WISP_INLINE uint64_t moved(uint64_t descriptor, uint32_t bytes) {
    return (descriptor & 0xffffffff00000000u) | (uint32_t(descriptor) + (bytes >> 4));
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WISP_LIST_32                                                       \
    "{"                                                                    \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
    "}"
#define WISP_LIST_64                                                                 \
    "{"                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"           \
    ", "                                                                             \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
    "}"
#define WISP_LIST_96                                                                 \
    "{"                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"           \
    ", "                                                                             \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
    ", "                                                                             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    "}"
#define WISP_LIST_128                                                                \
    "{"                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"           \
    ", "                                                                             \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
    ", "                                                                             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", "                                                                             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63" \
    "}"
#define WISP_QUAD(i) "+f"(d[First + i][0]), "+f"(d[First + i][1]), "+f"(d[First + i][2]), "+f"(d[First + i][3])
#define WISP_SUMS_32 WISP_QUAD(0), WISP_QUAD(1), WISP_QUAD(2), WISP_QUAD(3)
#define WISP_SUMS_64 WISP_SUMS_32, WISP_QUAD(4), WISP_QUAD(5), WISP_QUAD(6), WISP_QUAD(7)
#define WISP_SUMS_96 WISP_SUMS_64, WISP_QUAD(8), WISP_QUAD(9), WISP_QUAD(10), WISP_QUAD(11)
#define WISP_SUMS_128 WISP_SUMS_96, WISP_QUAD(12), WISP_QUAD(13), WISP_QUAD(14), WISP_QUAD(15)
#define WISP_FROM_TILES(N, type, A, B, S)                                                                                  \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #S ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type \
                 " " WISP_LIST_##N ", %" #A ", %" #B ", p, 1, 1, 0, 0;}"                                                   \
                 : WISP_SUMS_##N                                                                                           \
                 : "l"(a), "l"(b), "r"(add))
#define WISP_FROM_REGISTERS(N, type, A0, A1, A2, A3, B, S)                                                                 \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #S ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type \
                 " " WISP_LIST_##N ", {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, 1;}"                     \
                 : WISP_SUMS_##N                                                                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

// d (64 x 8 N) = (add ? d : 0) + a b' over 16 columns, both in shared memory.
template <class T, int N, int First = 0> WISP_INLINE void multiply_tiles(float (&d)[N][4], uint64_t a, uint64_t b, int add) {
#define WISP_X(type)                                                   \
    if constexpr (N == 4) WISP_FROM_TILES(32, type, 16, 17, 18);       \
    else if constexpr (N == 8) WISP_FROM_TILES(64, type, 32, 33, 34);  \
    else if constexpr (N == 12) WISP_FROM_TILES(96, type, 48, 49, 50); \
    else WISP_FROM_TILES(128, type, 64, 65, 66);
    if constexpr (std::is_same_v<T, bf16>) {
        WISP_X("bf16")
    } else {
        WISP_X("f16")
    }
#undef WISP_X
}
// d = (add ? d : 0) + a b over 16 rows of b, with a in registers; 128 columns at most, from 8 First on.
template <class T, int First, int N> WISP_INLINE void multiply_left(float (&d)[N][4], const uint32_t (&a)[4], uint64_t b, int add) {
#define WISP_X(type)                                                                   \
    if constexpr (N == 4) WISP_FROM_REGISTERS(32, type, 16, 17, 18, 19, 20, 21);       \
    else if constexpr (N == 8) WISP_FROM_REGISTERS(64, type, 32, 33, 34, 35, 36, 37);  \
    else if constexpr (N == 12) WISP_FROM_REGISTERS(96, type, 48, 49, 50, 51, 52, 53); \
    else WISP_FROM_REGISTERS(128, type, 64, 65, 66, 67, 68, 69);
    if constexpr (std::is_same_v<T, bf16>) {
        WISP_X("bf16")
    } else {
        WISP_X("f16")
    }
#undef WISP_X
}
WISP_INLINE void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WISP_INLINE void group_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Pending> WISP_INLINE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory"); }
#else  // never launched there
template <class T, int N> WISP_INLINE void multiply_tiles(float (&)[N][4], uint64_t, uint64_t, int) { __trap(); }
template <class T, int First, int N> WISP_INLINE void multiply_left(float (&)[N][4], const uint32_t (&)[4], uint64_t, int) { __trap(); }
WISP_INLINE void group_begin() {}
WISP_INLINE void group_end() {}
template <int Pending> WISP_INLINE void group_wait() {}
#endif

// ---- products of either engine

template <bool Wide> struct Engine {
    static WISP_INLINE void begin() {
        if constexpr (Wide) group_begin();
    }
    static WISP_INLINE void end() {
        if constexpr (Wide) group_end();
    }
    template <int Pending> static WISP_INLINE void wait() {
        if constexpr (Wide) group_wait<Pending>();
    }
    template <int N> static WISP_INLINE void clear(float (&d)[N][4]) {
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) d[n][e] = 0;
    }
    // The compiler must not move uses of sums in flight across a wait, nor work on others that is to overlap with the flight.
    template <int N> static WISP_INLINE void hold(float (&d)[N][4]) {
        if constexpr (Wide) {
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[n][e])::"memory");
        }
    }

    // Work on d is done before what follows. The branch, never taken, keeps the assembler from waiting for products first.
    template <int N> static WISP_INLINE void settle(float (&d)[N][4]) {
        hold(d);
        if constexpr (Wide)
            if (d[N - 1][3] == -1e30f) __nanosleep(0);
    }

    // sums = a b' over D columns, for the rows of a that belong to this warp or warpgroup; b has 8 N rows.
    template <class T, int D, int Rows, int N> static WISP_INLINE void rows_by_rows(float (&sums)[N][4], uint32_t a, uint32_t b) {
        using E = typename Parts<T>::Element;
        constexpr int parts = parts_of<T>, a_tile = tile_bytes<Rows, D>, b_tile = tile_bytes<N * 8, D>;
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if constexpr (Wide) {
            if constexpr (Rows > 64)
                a += __shfl_sync(0xffffffffu, warp / 4, 0) * 64 * 128;  // tells the compiler that it is the same for all lanes
            const uint64_t left = descriptor(a, Rows * 128), right = descriptor(b, N * 8 * 128);
#pragma unroll
            for (int both = parts - 1; both >= 0; both--)  // the smallest first
#pragma unroll
                for (int i = 0; i <= both; i++)
#pragma unroll
                    for (int k = 0; k < D / 16; k++)
                        multiply_tiles<E>(sums, moved(left, i * a_tile + k / 4 * (Rows * 128) + k % 4 * 32),
                                          moved(right, (both - i) * b_tile + k / 4 * (N * 8 * 128) + k % 4 * 32),
                                          both < parts - 1 || i > 0 || k > 0);
        } else {
            clear(sums);
#pragma unroll
            for (int k = 0; k < D / 16; k++) {
                uint32_t x[parts][4];
#pragma unroll
                for (int i = 0; i < parts; i++)
                    load_matrices<false>(x[i], a + i * a_tile + chunk_at<Rows>(warp * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
                for (int n = 0; n < N; n += 2)
#pragma unroll
                    for (int j = parts - 1; j >= 0; j--) {
                        uint32_t y[4];
                        load_matrices<false>(y, b + j * b_tile + chunk_at<N * 8>(n * 8 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
#pragma unroll
                        for (int i = parts - 1 - j; i >= 0; i--) {
                            multiply<E>(sums[n], x[i], y[0], y[1]);
                            multiply<E>(sums[n + 1], x[i], y[2], y[3]);
                        }
                    }
            }
        }
    }
    // sums = (Add ? sums : 0) + left b, where b has 16 K rows and D columns.
    template <class T, int D, bool Add, int K, int N>
    static WISP_INLINE void left_by_columns(float (&sums)[N][4], const uint32_t (&left)[parts_of<T>][K][4], uint32_t b) {
        using E = typename Parts<T>::Element;
        constexpr int parts = parts_of<T>, b_tile = tile_bytes<K * 16, D>;
        const int lane = threadIdx.x % 32;
        if constexpr (Wide) {
            constexpr uint32_t panel = K * 16 * 128;
            const uint64_t right = descriptor(b, panel);
#pragma unroll
            for (int both = parts - 1; both >= 0; both--)
#pragma unroll
                for (int i = 0; i <= both; i++)
#pragma unroll
                    for (int k = 0; k < K; k++) {
                        const uint32_t at = (both - i) * b_tile + k * 16 * 128;
                        const int add = Add || both < parts - 1 || i > 0 || k > 0;
                        multiply_left<E, 0>(sums, left[i][k], moved(right, at), add);
                        if constexpr (N > 16) multiply_left<E, 16>(sums, left[i][k], moved(right, at + 2 * panel), add);
                    }
        } else {
            if constexpr (!Add) clear(sums);
#pragma unroll
            for (int k = 0; k < K; k++)
#pragma unroll
                for (int n = 0; n < N; n += 2)
#pragma unroll
                    for (int j = parts - 1; j >= 0; j--) {
                        uint32_t y[4];
                        load_matrices<true>(y, b + j * b_tile + chunk_at<K * 16>(k * 16 + lane % 16, n + lane / 16));
#pragma unroll
                        for (int i = parts - 1 - j; i >= 0; i--) {
                            multiply<E>(sums[n], left[i][k], y[0], y[1]);
                            multiply<E>(sums[n + 1], left[i][k], y[2], y[3]);
                        }
                    }
        }
    }
    // The same with sums of their own, which are then added with rounding; waits for them.
    template <class T, int D, int K, int N>
    static WISP_INLINE void add_apart(float (&sums)[N][4], const uint32_t (&left)[parts_of<T>][K][4], uint32_t b) {
        float apart[N][4];
        begin();
        left_by_columns<T, D, false>(apart, left, b);
        end();
        wait<0>();
        hold(apart);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[n][e] += apart[n][e];
    }
};

// Writes this warp's 16 rows of sums, times a factor by row, as floats: four threads fill a sector.
template <int N>
WISP_INLINE void store_floats(const float (&sums)[N][4], const float (&factor)[2], float* to, int64_t stride, int rows, int width) {
    const int lane = threadIdx.x % 32, r0 = threadIdx.x / 32 * 16 + lane / 4, c0 = lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int r = r0 + e / 2 * 8, c = c0 + n * 8 + e % 2;
            if (r < rows && c < width) to[r * stride + c] = sums[n][e] * factor[e / 2];
        }
}
// The same for half types, through the warp's rows of a tile that nobody else uses any more.
template <class T, int Rows, bool Aligned, int N> WISP_INLINE void store_rows(const float (&sums)[N][4], const float (&factor)[2],
                                                                              uint32_t tile, T* to, int64_t stride, int rows, int width) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, r0 = warp * 16;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t at = tile + chunk_at<Rows>(r0 + lane / 4 + i * 8, n) + lane % 4 * 4;
            asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(pack<T>(sums[n][2 * i] * factor[i], sums[n][2 * i + 1] * factor[i]))
                         : "memory");
        }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * N; i += 32) {
        const int r = r0 + i / N, c = i % N;
        if (r >= rows || c * 8 >= width) continue;
        uint32_t v[4];
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                     : "r"(tile + chunk_at<Rows>(r, c))
                     : "memory");
        T* p = to + r * stride + c * 8;
        if constexpr (Aligned) {
            *reinterpret_cast<uint4*>(p) = make_uint4(v[0], v[1], v[2], v[3]);
        } else {
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (c * 8 + e < width) p[e].bits = uint16_t(v[e / 2] >> (e % 2 * 16));
        }
    }
}

}  // namespace wisp
