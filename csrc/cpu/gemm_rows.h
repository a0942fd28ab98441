// What a real product is, how its sums enter the result, and products of few rows, for gemm.cpp.
#pragma once
#include "cpu/gemm_tile.h"

namespace wisp::cpu::WISP_ISA {
namespace {

template <class T> struct Product {
    int64_t m, n, k;
    const T* a;
    int64_t a_row, a_col;
    const T* b;
    int64_t b_row, b_col;
    T* c;
    int64_t c_row;
    const T* d;  // null where beta is 0
    int64_t d_row, d_col;
    T alpha, beta;
};

// How a finished sum enters C: the first block of k brings beta * D, later ones add to it.
template <class T> struct Finish {
    T alpha, beta;
    const T* d;
    int64_t d_row, d_col;
    bool add;     // C already holds a part of the sum
    bool direct;  // the tile can do it: alpha 1, D read as it is or not at all

    Finish(const Product<T>& p, bool first)
        : alpha(p.alpha), beta(p.beta), d(first ? p.d : nullptr), d_row(p.d_row), d_col(p.d_col), add(!first) {
        if (d == p.c && d && d_row == p.c_row && d_col == 1 && beta == T(1)) d = nullptr, add = true;
        direct = alpha == T(1) && (!d || (beta == T(1) && d_col == 1));
    }
    // `count` neighbouring elements of C from (i, j) on. One loop per case: a loop that chooses would be turned into
    // masked loads from a null D, which some processors carry out very slowly.
    WISP_INLINE void put(const T* sums, T* c, int64_t i, int64_t j, int64_t count) const {
        if (add) {
            for (int64_t q = 0; q < count; ++q) c[q] += alpha * sums[q];
        } else if (d && direct) {
            const T* from = d + i * d_row + j;
            for (int64_t q = 0; q < count; ++q) c[q] = sums[q] + from[q];
        } else if (d && d_col == 1) {
            const T* from = d + i * d_row + j;
            for (int64_t q = 0; q < count; ++q) c[q] = alpha * sums[q] + beta * from[q];
        } else if (d) {
            const T* from = d + i * d_row + j * d_col;
            for (int64_t q = 0; q < count; ++q) c[q] = alpha * sums[q] + beta * from[q * d_col];
        } else {
            for (int64_t q = 0; q < count; ++q) c[q] = alpha * sums[q];
        }
    }
};

// Few rows times a matrix whose columns are contiguous: dot products straight from memory.
template <class T, int rows> void dot_rows(const Product<T>& p, int64_t i, int64_t j0, int64_t j1) {
    constexpr int columns = rows == 1 ? 8 : 4;
    const Finish<T> finish(p, true);
    T out[rows * columns];
    const T* a = p.a + i * p.a_row;
    auto put = [&](int64_t j, int count) {
        for (int r = 0; r < rows; ++r) finish.put(out + r * count, p.c + (i + r) * p.c_row + j, i + r, j, count);
    };
    int64_t j = j0;
    for (; j + columns <= j1; j += columns) {
        dot_block<T, rows, columns>(p.k, a, p.a_row, p.b + j * p.b_col, p.b_col, out);
        put(j, columns);
    }
    for (; j < j1; ++j) {
        dot_block<T, rows, 1>(p.k, a, p.a_row, p.b + j * p.b_col, p.b_col, out);
        put(j, 1);
    }
}
template <class T> void dot_all_rows(const Product<T>& p, int64_t j0, int64_t j1) {
    int64_t i = 0;
    for (; i + 4 <= p.m; i += 4) dot_rows<T, 4>(p, i, j0, j1);
    if (i + 2 <= p.m) dot_rows<T, 2>(p, i, j0, j1), i += 2;
    if (i < p.m) dot_rows<T, 1>(p, i, j0, j1);
}
// Where several rows use B, so much of it at a time that four rows of either side stay in the first cache and the block in the second.
template <class T> void dot_product(const Product<T>& p, int64_t j0, int64_t j1) {
    constexpr int64_t longest = 4096 / sizeof(T);
    if (p.m <= 4) return dot_all_rows(p, j0, j1);
    const int64_t depth = p.k <= longest ? p.k : divide_up(divide_up(p.k, divide_up(p.k, longest)), 16) * 16;
    const int64_t wide = most(8, 262144 / (depth * int64_t(sizeof(T))) / 8 * 8);
    for (int64_t j = j0; j < j1; j += wide)
        for (int64_t q = 0; q < p.k; q += depth) {
            Product<T> part = p;
            part.k = least(depth, p.k - q);
            part.a += q, part.b += q;
            if (q > 0) part.d = p.c, part.d_row = p.c_row, part.d_col = 1, part.beta = 1;
            dot_all_rows(part, j, least(j + wide, j1));
        }
}

// One row x times B with adjacent columns: sweeps whole rows of B, eight at a time, over a stretch of C in L1.
template <class T> void row_sweep(const Product<T>& p, int64_t j0, int64_t j1) {
    constexpr int64_t stretch = 8192 / int64_t(sizeof(T));
    const Finish<T> finish(p, true);
    T sums[stretch];
    for (int64_t j = j0; j < j1; j += stretch) {
        const int64_t n = least(stretch, j1 - j);
        std::memset(sums, 0, size_t(n) * sizeof(T));
        const T* b = p.b + j;
        int64_t q = 0;
        for (; q + 8 <= p.k; q += 8) {
            T x[8];
            for (int r = 0; r < 8; ++r) x[r] = p.a[(q + r) * p.a_col];
            const T *b0 = b + q * p.b_row, *b1 = b0 + p.b_row, *b2 = b1 + p.b_row, *b3 = b2 + p.b_row, *b4 = b3 + p.b_row,
                    *b5 = b4 + p.b_row, *b6 = b5 + p.b_row, *b7 = b6 + p.b_row;
            for (int64_t i = 0; i < n; ++i)
                sums[i] += ((x[0] * b0[i] + x[1] * b1[i]) + (x[2] * b2[i] + x[3] * b3[i])) +
                           ((x[4] * b4[i] + x[5] * b5[i]) + (x[6] * b6[i] + x[7] * b7[i]));
        }
        for (; q < p.k; ++q) {
            const T x = p.a[q * p.a_col];
            const T* row = b + q * p.b_row;
            for (int64_t i = 0; i < n; ++i) sums[i] += x * row[i];
        }
        finish.put(sums, p.c + j, 0, j, n);
    }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
