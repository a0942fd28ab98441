// The register tiles of products: one function for each height and width.
#include "cpu/gemm_tile.h"

namespace wisp::cpu::WISP_ISA {
namespace {

template <class T, int vectors, int rows, bool unit, bool part>
void tile(int64_t k, const T* __restrict a, int64_t a_row, int64_t a_col, const T* __restrict b, int64_t b_row, T* __restrict c,
          int64_t c_row, const T* d, int64_t d_row, bool add, int last, const T* ahead, int64_t ahead_step) {
    constexpr int L = lanes<T>;
    Vec<T> sum[rows][vectors];
    if (d) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v)
                sum[i][v] = v == vectors - 1 ? load_lanes(d + i * d_row + v * L, last) : load(d + i * d_row + v * L);
    } else {
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) sum[i][v] = Vec<T>{};
    }
    // A pointer for every three rows, which the compiler is kept from merging: with an offset for each row and step it would
    // run out of registers and read them from memory again and again.
    constexpr int groups = unit ? 1 : (rows + 2) / 3;
    const T* at[groups];
#pragma GCC unroll 4
    for (int g = 0; g < groups; ++g) at[g] = a + 3 * g * a_row;
    auto step = [&]() __attribute__((always_inline)) {
        Vec<T> right[vectors];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) right[v] = part && v == vectors - 1 ? load_lanes(b + v * L, last) : load(b + v * L);
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) {
            const Vec<T> left = splat<T>(unit ? at[0][i] : at[i / 3 % groups][i % 3 * a_row]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) sum[i][v] += left * right[v];
        }
        b += b_row;
#pragma GCC unroll 4
        for (int g = 0; g < groups; ++g) {
            at[g] += a_col;
            asm("" : "+r"(at[g]));
        }
    };
    // C comes while the sums are made, a row at a time: all at once would keep B from coming. So do the next tile's
    // rows of A where they lie along k, a line of each in time for it.
    const T* row = c;
    int64_t p = 0;
#pragma GCC unroll 1  // one loop, not peeled: most of the time to compile this file goes into copies of `step`
    for (; p + 2 <= k; p += 2) {
        if (p % 16 == 0 && p + 16 <= k) {
            if (!unit) {
#pragma GCC unroll 16
                for (int i = 0; i < rows; ++i) __builtin_prefetch(at[0] + (rows + i) * a_row);
            }
            if (p < 16 * rows) {
#pragma GCC unroll 4
                for (int v = 0; v < vectors; ++v) __builtin_prefetch(row + v * L);
                row += c_row;
            }
        }
        step();
        __builtin_prefetch(ahead, 0, 3);
        step();
        __builtin_prefetch(ahead + ahead_step, 0, 3);
        ahead += 2 * ahead_step;
    }
    if (p < k) step();
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            T* to = c + i * c_row + v * L;
            if (v == vectors - 1 && last < L) {
                if (add) sum[i][v] += load_lanes(to, last);
                store_lanes(to, sum[i][v], last);
            } else {
                if (add) sum[i][v] += load(to);
                store(to, sum[i][v]);
            }
        }
}

// Masking the last vector costs low tiles nothing: they have no form without it.
constexpr bool masked(int rows, int vectors, bool part) { return part || 2 * rows <= max_rows_of(vectors); }

template <class T, bool unit, bool part, int vectors, int rows> constexpr void fill(Tiles<T>& tiles) {
    tiles.at[unit][part][vectors][rows] = &tile<T, vectors, rows, unit, masked(rows, vectors, part)>;
    if constexpr (rows < max_rows_of(vectors)) fill<T, unit, part, vectors, rows + 1>(tiles);
    else if constexpr (vectors < max_vectors) fill<T, unit, part, vectors + 1, 1>(tiles);
}
template <class T> constexpr Tiles<T> all_tiles() {
    Tiles<T> tiles{};
    fill<T, false, false, 1, 1>(tiles), fill<T, false, true, 1, 1>(tiles);
    fill<T, true, false, 1, 1>(tiles), fill<T, true, true, 1, 1>(tiles);
    return tiles;
}

}  // namespace

constexpr Tiles<float> float_tiles = all_tiles<float>();
constexpr Tiles<double> double_tiles = all_tiles<double>();

}  // namespace wisp::cpu::WISP_ISA
