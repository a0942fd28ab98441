// Products of bf16 matrices on processors that multiply them natively (AVX512-BF16; BF16 of AArch64), for gemm.cpp. Sums are float.
//
// One instruction multiplies pairs of neighbouring steps of k, so both operands are packed as pairs: A by panels of six
// rows unless its rows are pairs already, B by panels of up to four vectors of columns. It takes denormal operands for zeros.
#pragma once
#include "cpu/processor.h"
#if defined(WISP_BF16_PAIRS)

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int bf16_rows = 6;
constexpr int64_t bf16_depth = 512;      // pairs of k at a time: a panel of B is then 128 KB
constexpr int64_t bf16_row_panels = 16;  // panels of A that share one pass over B

WISP_INLINE uint32_t bf16_pair(const bf16* low, const bf16* high) { return uint32_t(low->bits) | (high ? uint32_t(high->bits) << 16 : 0); }

// to[pair][lane], lanes [0, count) of `width`, the rest zero: lane l, step q is from[l * lane + q * step].
inline void pack_pairs(const bf16* from, int64_t lane, int64_t step, int64_t k, int64_t count, int64_t width, uint32_t* to) {
    const int64_t whole = k / 2, pairs = (k + 1) / 2;
    if (count < width)
        for (int64_t q = 0; q < pairs; ++q)
            for (int64_t l = count; l < width; ++l) to[q * width + l] = 0;
    if (lane == 1) {
        for (int64_t q = 0; q < whole; ++q) {
            const bf16 *low = from + 2 * q * step, *high = low + step;
            uint32_t* out = to + q * width;
            for (int64_t l = 0; l < count; ++l) out[l] = uint32_t(low[l].bits) | uint32_t(high[l].bits) << 16;
        }
    } else if (step == 1 && width % register_lanes<float> == 0) {  // a pair is moved as a float
        constexpr int64_t L = register_lanes<float>;
        for (int64_t l = 0; l < count; l += L) {
            const int high = int(least(L, count - l));
            for (int64_t q = 0; q < whole; q += L) {
                const bf16* const x = from + l * lane + 2 * q;
                turn_rows<float>([=](int i) __attribute__((always_inline)) { return reinterpret_cast<const float*>(x + i * lane); }, high,
                                 int(least(L, whole - q)),
                                 [&](int i, Register<float> v)
                                     __attribute__((always_inline)) { store(reinterpret_cast<float*>(to + (q + i) * width + l), v); });
            }
        }
    } else {
        constexpr int64_t block = 16;  // pairs: a cache line of each lane
        for (int64_t q0 = 0; q0 < whole; q0 += block) {
            const int64_t q1 = least(q0 + block, whole);
            for (int64_t l = 0; l < count; ++l) {
                const bf16* x = from + l * lane;
                for (int64_t q = q0; q < q1; ++q) to[q * width + l] = bf16_pair(x + 2 * q * step, x + (2 * q + 1) * step);
            }
        }
    }
    if (pairs > whole)
        for (int64_t l = 0; l < count; ++l) to[whole * width + l] = bf16_pair(from + l * lane + (k - 1) * step, nullptr);
}

// Six rows of pairs, `step` apart; those of a tensor may lie between words.
struct Bf16Rows {
    typedef uint32_t Pair __attribute__((aligned(2), may_alias));
    const Pair* at[bf16_rows];
    int64_t step;
};

// Sums to c, or rounded to the first rows of `out`.
template <int vectors> __attribute__((noinline)) WISP_BF16_PAIRS void bf16_tile(int64_t pairs, const Bf16Rows& rows, const uint32_t* b,
                                                                                float* c, int64_t c_row, bool add, bf16* out,
                                                                                int64_t out_row, int64_t out_rows) {
    constexpr int L = register_lanes<float>;
    using Loose = RegisterOf<float>::loose;
    using LoosePairs = RegisterOf<uint32_t>::loose;
    Register<float> sum[bf16_rows][vectors];
#pragma GCC unroll 8
    for (int r = 0; r < bf16_rows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) sum[r][v] = add ? (Register<float>)*(const Loose*)(c + r * c_row + L * v) : Register<float>{};
    const Bf16Rows a = rows;
    for (int64_t q = 0, at = 0; q < pairs; ++q, at += a.step, b += L * vectors) {
        Register<uint32_t> x[vectors];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) x[v] = *(const LoosePairs*)(b + L * v);
#pragma GCC unroll 8
        for (int r = 0; r < bf16_rows; ++r) {
            const Register<uint32_t> y = a.at[r][at] - Register<uint32_t>{};
#pragma GCC unroll 4
            for (int v = 0; v < vectors; ++v) sum[r][v] = add_pairs(sum[r][v], y, x[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < bf16_rows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; ++v) {
            if (!out) *(Loose*)(c + r * c_row + L * v) = sum[r][v];
            else if (r < out_rows) round_to_bf16(&out[r * out_row + L * v].bits, sum[r][v]);
        }
}

// Rounds alpha * sums + beta * D to a tile of C.
WISP_BF16_PAIRS inline void bf16_round(const GemmArgs& g, const float* sums, int64_t pitch, int64_t row, int64_t rows, int64_t column,
                                       int64_t columns) {
    constexpr int64_t L = register_lanes<float>;
    const bool adds = g.d && g.beta != 0;
    const float alpha = float(g.alpha), beta = float(g.beta);
    float scaled[4 * L];
    for (int64_t i = row; i < row + rows; ++i, sums += pitch) {
        bf16* const to = static_cast<bf16*>(g.c) + i * g.c_row + column;
        const bf16* const from = static_cast<const bf16*>(g.d) + (adds ? i * g.d_row + column * g.d_col : 0);
        if (adds)
            for (int64_t j = 0; j < columns; ++j) scaled[j] = alpha * sums[j] + beta * float(from[j * g.d_col]);
        else if (alpha != 1)
            for (int64_t j = 0; j < columns; ++j) scaled[j] = alpha * sums[j];
        const float* const x = adds || alpha != 1 ? scaled : sums;
        int64_t j = 0;
        for (; j + L <= columns; j += L) round_to_bf16(&to[j].bits, load(x + j));
        for (; j < columns; ++j) to[j] = bf16(x[j]);
    }
}

// How a product is laid out in working memory; rows and columns are filled up to whole panels.
struct Bf16Plan {
    int64_t vectors, width, row_panels, column_panels, pairs;
    bool packs_a, one_pass;
    explicit Bf16Plan(const GemmArgs& g) {
        const int64_t all = divide_up(g.n, register_lanes<float>);
        vectors = divide_up(all, divide_up(all, 4));
        width = register_lanes<float> * vectors;
        row_panels = divide_up(g.m, bf16_rows);
        column_panels = divide_up(g.n, width);
        pairs = (g.k + 1) / 2;
        packs_a = g.a_col != 1 || g.k % 2 != 0;
        one_pass = pairs <= bf16_depth;
    }
    int64_t a_size() const { return packs_a ? row_panels * bf16_rows * pairs : 0; }
    int64_t b_size() const { return column_panels * width * pairs; }
    int64_t c_row() const { return column_panels * width; }
    int64_t c_size() const { return one_pass ? 0 : row_panels * bf16_rows * c_row(); }  // sums that wait for the next pass
};

// C = alpha A B + beta D.
inline void bf16_product(const GemmArgs& g, const Bf16Plan& p, uint32_t* a, uint32_t* b, float* c) {
    using Tile = void (*)(int64_t, const Bf16Rows&, const uint32_t*, float*, int64_t, bool, bf16*, int64_t, int64_t);
    static constexpr Tile tiles[4] = {bf16_tile<1>, bf16_tile<2>, bf16_tile<3>, bf16_tile<4>};
    const Tile tile = tiles[p.vectors - 1];
    const auto *from_a = static_cast<const bf16*>(g.a), *from_b = static_cast<const bf16*>(g.b);
    const int64_t a_panel = bf16_rows * p.pairs, b_panel = p.width * p.pairs;
    if (p.packs_a)
        parallel_for(p.row_panels, most(1, 8192 / a_panel), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                pack_pairs(from_a + i * bf16_rows * g.a_row, g.a_row, g.a_col, g.k, least(bf16_rows, g.m - i * bf16_rows), bf16_rows,
                           a + i * a_panel);
        });
    parallel_for(p.column_panels, most(1, 8192 / b_panel), [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j)
            pack_pairs(from_b + j * p.width * g.b_col, g.b_col, g.b_row, g.k, least(p.width, g.n - j * p.width), p.width, b + j * b_panel);
    });
    auto rows_of = [&](int64_t i, int64_t q) {
        Bf16Rows rows;
        for (int r = 0; r < bf16_rows; ++r) {
            const bf16* const from = from_a + least(i * bf16_rows + r, g.m - 1) * g.a_row + 2 * q;  // below the last row: that one again
            rows.at[r] = p.packs_a ? a + i * a_panel + q * bf16_rows + r : reinterpret_cast<const Bf16Rows::Pair*>(from);
        }
        rows.step = p.packs_a ? bf16_rows : 1;
        return rows;
    };
    // A share is a stack of row panels by some of the column panels.
    const int64_t threads = num_threads(), stacks = divide_up(p.row_panels, bf16_row_panels);
    const int64_t cuts = least(p.column_panels, divide_up(4 * threads, stacks));
    const double work = double(p.row_panels) * double(p.column_panels) * double(b_panel) * bf16_rows;
    auto share = [&](int64_t at) {
        const int64_t i0 = p.row_panels * (at / cuts) / stacks, i1 = p.row_panels * (at / cuts + 1) / stacks;
        const int64_t j0 = p.column_panels * (at % cuts) / cuts, j1 = p.column_panels * (at % cuts + 1) / cuts;
        alignas(64) float here[bf16_rows * 4 * register_lanes<float>];
        for (int64_t q = 0; q < p.pairs; q += bf16_depth)
            for (int64_t j = j0; j < j1; ++j)
                for (int64_t i = i0; i < i1; ++i) {
                    const int64_t row = i * bf16_rows, column = j * p.width, pitch = p.one_pass ? p.width : p.c_row();
                    float* const sums = p.one_pass ? here : c + row * pitch + column;
                    const int64_t rows = least(bf16_rows, g.m - row), columns = least(p.width, g.n - column);
                    const bool last = q + bf16_depth >= p.pairs,
                               plain = last && g.alpha == 1 && !(g.d && g.beta != 0) && columns == p.width;
                    bf16* const out = plain ? static_cast<bf16*>(g.c) + row * g.c_row + column : nullptr;
                    tile(least(bf16_depth, p.pairs - q), rows_of(i, q), b + j * b_panel + q * p.width, sums, pitch, q > 0, out, g.c_row,
                         rows);
                    if (last && !plain) bf16_round(g, sums, pitch, row, rows, column, columns);
                }
    };
    if (work < 2e5)
        for (int64_t at = 0; at < stacks * cuts; ++at) share(at);
    else run_parallel(stacks * cuts, share);
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
#endif
