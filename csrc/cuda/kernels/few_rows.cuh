// C = A B + bias for up to 16 rows of A, where the columns of B lie one behind the other, as a linear layer's weight: B is read once,
// as fast as memory gives it, and that is all the time it takes. Several products with one A are one launch.
#include "cuda/kernels/mma.cuh"

namespace wisp {

#include "kernels/few_rows_arguments.h"

// A block makes 8 * Tiles columns of C; its warps share out k in slices of 32, some of them at a time, and are added up in order. Of a
// slice a thread has eight neighbours of a column of B and of rows of A: which index of k goes to which place of the tensor cores'
// instruction does not matter, as long as it is the same for both. Tall: more than 8 rows.
//
// So many slices are loaded at a time that `Blocks` of them are on a processor: while one adds up, others load.
template <class T, int Tiles, int Warps, int Slices, int Blocks, bool Tall> __global__ void __launch_bounds__(Warps * 32, Blocks)
    few_rows(const FewRows p) {
    let_next_begin();
    begin_early();
    constexpr int slices = Slices, rows = Tall ? 16 : 8;
    __shared__ float sums_of[Warps][Tiles][rows][8];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quarter = lane % 4, row = lane / 4;
    FewRowsPart part = p.parts[0];
#pragma unroll
    for (int i = 1; i < FewRows::most; i++)
        if (i < p.count && int(blockIdx.x) >= p.parts[i].first) part = p.parts[i];
    const int first = (int(blockIdx.x) - part.first) * 8 * Tiles;
    const T *a = static_cast<const T*>(p.a) + row * p.a_row, *b = static_cast<const T*>(part.b) + int64_t(first + row) * part.b_column;
    float sums[Tiles][4] = {};
    const uint4 zero = {0, 0, 0, 0};
    // By the warp's first place, so that all of its threads meet at the tensor cores where k ends within a slice.
    for (int begin = warp * 32; begin < p.k; begin += Warps * 32 * slices) {
        const int at = begin + quarter * 8;
        uint4 right[slices][Tiles], low[slices], high[slices];
#pragma unroll
        for (int s = 0; s < slices; s++) {
            const int k = at + s * Warps * 32;
#pragma unroll
            for (int t = 0; t < Tiles; t++)
                right[s][t] = k < p.k && first + t * 8 + row < part.n ? load_once(b + t * 8 * part.b_column + k) : zero;
        }
#pragma unroll
        for (int s = 0; s < slices; s++) {
            const int k = at + s * Warps * 32;
            low[s] = k < p.k && row < p.m ? *reinterpret_cast<const uint4*>(a + k) : zero;
            high[s] = Tall && k < p.k && row + 8 < p.m ? *reinterpret_cast<const uint4*>(a + 8 * p.a_row + k) : zero;
        }
#pragma unroll
        for (int s = 0; s < slices; s++) {
            const uint32_t one[4] = {low[s].x, high[s].x, low[s].y, high[s].y}, two[4] = {low[s].z, high[s].z, low[s].w, high[s].w};
#pragma unroll
            for (int t = 0; t < Tiles; t++) {
                multiply<T>(sums[t], one, right[s][t].x, right[s][t].y);
                multiply<T>(sums[t], two, right[s][t].z, right[s][t].w);
            }
        }
    }
#pragma unroll
    for (int t = 0; t < Tiles; t++)
#pragma unroll
        for (int i = 0; i < (Tall ? 4 : 2); i++) sums_of[warp][t][row + i / 2 * 8][quarter * 2 + i % 2] = sums[t][i];
    __syncthreads();
    for (int i = threadIdx.x; i < Tiles * rows * 8; i += Warps * 32) {
        const int r = i / (Tiles * 8), t = i / 8 % Tiles, column = first + i % (Tiles * 8);
        if (r >= p.m || column >= part.n) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < Warps; w++) sum += sums_of[w][t][r][i % 8];
        if (part.bias) sum += convert<float>(static_cast<const T*>(part.bias)[column]);
        static_cast<T*>(part.c)[r * part.c_row + column] = convert<T>(sum);
    }
}

}  // namespace wisp
