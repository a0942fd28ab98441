// Attention's backward for half types where the gradients of the scores are kept: the pass over keys needs the products of rows of grad
// and out, and leaves what grad_query is a product of.
#include "cuda/kernels/attention.cuh"

namespace wisp {

template <class T, bool Aligned> __global__ void __launch_bounds__(256)
    attention_products(const __grid_constant__ AttentionArguments a, int64_t rows) {
    const int64_t row = int64_t(blockIdx.x) * 64 + threadIdx.x / 4;
    const int q = row < rows ? int(row % a.queries) : a.queries;
    const int64_t head = row / a.queries;
    const float product = sum_of_quad(product_of_rows<T, Aligned>(a, int(head / a.heads), int(head % a.heads), q));
    if (threadIdx.x % 4 == 0 && row < rows) {
        static_cast<float*>(a.product)[row] = product;
        static_cast<float*>(a.base_2)[row] = static_cast<const float*>(a.logsumexp)[row] * (1 / base_2_in<T>);
    }
}

// The gradient of the queries: tiles of keys and of what attention_backward_keys left go through shared memory, two on their way; of the
// latter a thread reads what it has fetched itself.
template <class T, int D, int Rows, int Columns, int Blocks, bool Wide, bool Aligned> __global__ void __launch_bounds__(Rows * 2, Blocks)
    attention_queries_of_slopes(const __grid_constant__ AttentionArguments a) {
    using E = Engine<Wide>;
    constexpr int stages = 3, tile = tile_bytes<Columns, D>, K = Columns / 16, slope_tile = Rows * Columns * 2;
    const QueryBlock<Rows> block(a);
    const uint32_t memory = tiles_begin(), mine = memory + stages * tile + threadIdx.x * 16;
    const int count = (block.limit + Columns - 1) / Columns, row = block.q0 / 16 + int(threadIdx.x) / 32;
    TileLoader<Columns, D, Rows * 2, Aligned, T> keys(block.template other<T>(a.key, a.share), a.key.row, a.width);
    auto load = [&](int i) {
        if (i < count) {
            keys.next(memory + i % stages * tile, a.keys - i * Columns);
#pragma unroll
            for (int k = 0; k < K; k++) {
                const int column = i * K + k;
                const bool there = !(a.causal && column > row) && column < a.slope_columns && row < a.slope_rows;
                copy_async_16(mine + i % stages * slope_tile + k * (Rows * 32), there ? a.slopes_of(blockIdx.x, row, column) : a.slopes,
                              there);
            }
        }
        copies_end();
    };
    load(0);
    load(1);
    float sums[D / 8][4] = {};
    for (int i = 0; i < count; i++) {
        copies_wait<Wide, 1>();
        __syncthreads();
        load(i + 2);
        uint32_t slopes[1][K][4];
#pragma unroll
        for (int k = 0; k < K; k++)
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(slopes[0][k][0]), "=r"(slopes[0][k][1]), "=r"(slopes[0][k][2]), "=r"(slopes[0][k][3])
                         : "r"(mine + i % stages * slope_tile + k * (Rows * 32))
                         : "memory");
        E::begin();
        E::template left_by_columns<T, D, true>(sums, slopes, memory + i % stages * tile);
        E::end();
        E::template wait<0>();
    }
    E::hold(sums);
    copies_wait<false>();
    __syncthreads();
    const float factor[2] = {float(a.scale), float(a.scale)};
    store_sums<T, Rows, Aligned>(sums, factor, memory, block.template own<T>(a.grad_query), a.grad_query.row, a.queries - block.q0,
                                 a.width);
}

}  // namespace wisp
