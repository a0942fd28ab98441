// Products of small float matrices in one launch: for these a library's own overhead is most of the time.
#include "cuda/kernels/base.cuh"

namespace wisp {

// As in small_gemm.cpp. C = alpha A B + bias, all strides in elements; sums: the sum of each row of A, or null.
#include "kernels/small_gemm_arguments.h"

// Many tiny products: a thread an element of C, whose row and column of A and B its neighbours have in the cache.
__global__ void __launch_bounds__(256) tiny_gemm(const SmallGemm p, int64_t count) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= count) return;
    const Split row = split(at, p.n), batch = split(row.whole, p.m);
    const float *a = p.a + batch.whole * p.batch_a + batch.rest * p.a_row, *b = p.b + batch.whole * p.batch_b + row.rest * p.b_col;
    float sum = 0;
#pragma unroll 4
    for (int k = 0; k < p.k; k++) sum += a[int64_t(k) * p.a_col] * b[int64_t(k) * p.b_row];
    p.c[batch.whole * p.batch_c + batch.rest * p.c_row + row.rest] = p.alpha * sum;
}

// A block makes BM x BN of C, a thread R x R of it. The block's threads are G groups that share out k in slices of 16, each
// with tiles of its own, and add up in the end, in the order of the groups.
template <int BM, int BN, int R, int G> __global__ void __launch_bounds__(BM* BN / (R * R) * G) small_gemm(const SmallGemm p) {
    constexpr int threads = BM * BN / (R * R), BK = 16, A = BM + 4, B = BN + 4;  // rows of tiles stay aligned to 16 bytes
    constexpr int loads_a = BM * BK / threads, loads_b = BN * BK / threads;
    __shared__ __align__(16) float memory[G * BK * (A + B)];
    const int group = threadIdx.x / threads, t = threadIdx.x % threads;
    float *tile_a = memory + group * BK * (A + B), *tile_b = tile_a + BK * A;
    const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
    const float *a = p.a + blockIdx.z * p.batch_a, *b = p.b + blockIdx.z * p.batch_b;
    const bool a_along_k = p.a_col == 1, b_along_k = p.b_col != 1;
    const bool sums = p.sums && blockIdx.x == 0;
    float next_a[loads_a], next_b[loads_b], acc[R][R] = {}, row_sum[R] = {};
    const int slices = (p.k + BK - 1) / BK, rounds = (slices + G - 1) / G;

    // What this thread loads: element (i, k) of a tile and those that follow in steps, along whichever dimension is contiguous.
    const int ia = a_along_k ? t / BK : t % BM, ka = a_along_k ? t % BK : t / BM, step_ia = a_along_k ? threads / BK : 0,
              step_ka = a_along_k ? 0 : threads / BM;
    const int jb = b_along_k ? t / BK : t % BN, kb = b_along_k ? t % BK : t / BN, step_jb = b_along_k ? threads / BK : 0,
              step_kb = b_along_k ? 0 : threads / BN;
    const int64_t next_of_a = int64_t(step_ia) * p.a_row + int64_t(step_ka) * p.a_col,
                  next_of_b = int64_t(step_jb) * p.b_col + int64_t(step_kb) * p.b_row;
    const int64_t round_of_a = int64_t(G * BK) * p.a_col, round_of_b = int64_t(G * BK) * p.b_row;
    a += int64_t(m0 + ia) * p.a_row + int64_t(group * BK + ka) * p.a_col;
    b += int64_t(n0 + jb) * p.b_col + int64_t(group * BK + kb) * p.b_row;
    const int left_a = p.m - m0 - ia, left_b = p.n - n0 - jb;
    int left_k = p.k - group * BK;
    auto fetch = [&] {
#pragma unroll
        for (int u = 0; u < loads_a; u++) next_a[u] = u * step_ia < left_a && ka + u * step_ka < left_k ? a[u * next_of_a] : 0.f;
#pragma unroll
        for (int u = 0; u < loads_b; u++) next_b[u] = u * step_jb < left_b && kb + u * step_kb < left_k ? b[u * next_of_b] : 0.f;
        a += round_of_a;
        b += round_of_b;
        left_k -= G * BK;
    };
    float *to_a = tile_a + ka * A + ia, *to_b = tile_b + kb * B + jb;
    const int next_to_a = step_ka * A + step_ia, next_to_b = step_kb * B + step_jb;
    const int i0 = t / (BN / R) * R, j0 = t % (BN / R) * R;
    fetch();
    for (int round = 0; round < rounds; round++) {
        __syncthreads();
#pragma unroll
        for (int u = 0; u < loads_a; u++) to_a[u * next_to_a] = next_a[u];
#pragma unroll
        for (int u = 0; u < loads_b; u++) to_b[u * next_to_b] = next_b[u];
        __syncthreads();
        if (round + 1 < rounds) fetch();
#pragma unroll
        for (int k = 0; k < BK; k++) {
            const auto x = *reinterpret_cast<const Vector<float, R>*>(tile_a + k * A + i0);
            const auto y = *reinterpret_cast<const Vector<float, R>*>(tile_b + k * B + j0);
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++) acc[i][j] += x.at[i] * y.at[j];
            if (sums && j0 == 0)
#pragma unroll
                for (int i = 0; i < R; i++) row_sum[i] += x.at[i];
        }
    }
    // One group after another adds what it has to what is there.
    if constexpr (G > 1) {
        float *joined = memory, *joined_sums = memory + BM * BN;
        for (int g = 0; g < G; g++) {
            __syncthreads();
            if (group != g) continue;
#pragma unroll
            for (int i = 0; i < R; i++) {
#pragma unroll
                for (int j = 0; j < R; j++) {
                    float& to = joined[(i0 + i) * BN + j0 + j];
                    acc[i][j] += g ? to : 0.f;
                    if (g + 1 < G) to = acc[i][j];
                }
                if (sums && j0 == 0) {
                    row_sum[i] += g ? joined_sums[i0 + i] : 0.f;
                    if (g + 1 < G) joined_sums[i0 + i] = row_sum[i];
                }
            }
        }
        if (group != G - 1) return;
    }
    float* c = p.c + blockIdx.z * p.batch_c;
#pragma unroll
    for (int i = 0; i < R; i++) {
        const int row = m0 + i0 + i;
        if (row >= p.m) break;
#pragma unroll
        for (int j = 0; j < R; j++) {
            const int column = n0 + j0 + j;
            if (column < p.n) c[int64_t(row) * p.c_row + column] = p.alpha * acc[i][j] + (p.bias ? p.bias[column] : 0.f);
        }
        if (sums && j0 == 0) p.sums[row] = row_sum[i];
    }
}

}  // namespace wisp
