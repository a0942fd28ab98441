// The inner parts of products, compiled per instruction set: vectors, the register tile, packing, dot products.
#pragma once
#include "cpu/processor.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace wisp::cpu::WISP_ISA {
namespace {

template <class T> using Vec = Register<T>;
template <class T> constexpr int lanes = register_lanes<T>;

template <class T> WISP_INLINE Vec<T> load(const T* p) { return *(const typename RegisterOf<T>::loose*)p; }
template <class T> WISP_INLINE void store(T* p, Vec<T> v) { *(typename RegisterOf<T>::loose*)p = v; }
template <class T> WISP_INLINE Vec<T> splat(T x) { return x - Vec<T>{}; }

// zip<T, high>: the lower (upper) halves of a and b, interleaved in units of `unit` lanes.
template <class T, bool high, int unit, int... i> WISP_INLINE Vec<T> zip_lanes(Vec<T> a, Vec<T> b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (i / unit % 2 * lanes<T> + (high ? lanes<T> / 2 : 0) + i / unit / 2 * unit + i % unit)...);
}
template <class T, bool high, int unit = 1> WISP_INLINE Vec<T> zip(Vec<T> a, Vec<T> b) {
    return zip_lanes<T, high, unit>(a, b, std::make_integer_sequence<int, lanes<T>>{});
}

// Sums of four vectors at once: result[i] is the sum of the lanes of v_i.
template <class T> WISP_INLINE void sum_four(Vec<T> v0, Vec<T> v1, Vec<T> v2, Vec<T> v3, T out[4]) {
    if constexpr (lanes<T> >= 4) {
        const Vec<T> p = zip<T, false>(v0, v1) + zip<T, true>(v0, v1);
        const Vec<T> q = zip<T, false>(v2, v3) + zip<T, true>(v2, v3);
        const Vec<T> r = zip<T, false, 2>(p, q) + zip<T, true, 2>(p, q);
        T parts[lanes<T>];
        std::memcpy(parts, &r, sizeof r);
        for (int width = lanes<T> / 2; width >= 4; width /= 2)
            for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
        for (int i = 0; i < 4; ++i) out[i] = parts[i];
    } else {
        out[0] = v0[0] + v0[1], out[1] = v1[0] + v1[1], out[2] = v2[0] + v2[1], out[3] = v3[0] + v3[1];
    }
}

template <class T> WISP_INLINE T sum_lanes(Vec<T> v) {
    T parts[lanes<T>];
    std::memcpy(parts, &v, sizeof v);
    for (int width = lanes<T> / 2; width >= 1; width /= 2)
        for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
    return parts[0];
}

// ---- the register tile ------------------------------------------------------------------------------------------

// Tiles are `rows` × `vectors` accumulators. 32 registers hold 6×4, 8×3 or 12×2; 16 hold 6×2. Loads, not
// multiplications, are scarce: 6×4 needs 10 loads for 24 multiply-adds.
constexpr int max_vectors = registers == 32 ? 4 : 2;
constexpr int max_rows_of(int vectors) {
    if (registers == 32) return vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
    return vectors == 2 ? 6 : 8;
}
constexpr int most_rows = 12;

// C = A·B + D (d null: nothing) (+ C if add). `last` is the number of columns in the last vector; `unit`: a_row is 1
// (packed or transposed A); `part`: B may not be read beyond `last`, else it is padded. Meanwhile memory for later comes
// into the cache: a line from `ahead` on for each of the k steps.
template <class T> using Tile = void (*)(int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t b_row, T* c,
                                         int64_t c_row, const T* d, int64_t d_row, bool add, int last, const T* ahead, int64_t ahead_step);

}  // namespace

// The tiles (gemm_tiles.cpp) by whether `unit`, whether `part`, vectors and rows.
template <class T> struct Tiles {
    Tile<T> at[2][2][max_vectors + 1][most_rows + 1];
};
extern const Tiles<float> float_tiles __attribute__((visibility("hidden")));  // so that it is not looked up
extern const Tiles<double> double_tiles __attribute__((visibility("hidden")));

namespace {

template <class T> WISP_INLINE Tile<T> tile_for(int rows, int vectors, bool unit, bool part) {
    if constexpr (sizeof(T) == 4) return float_tiles.at[unit][part][vectors][rows];
    else return double_tiles.at[unit][part][vectors][rows];
}

// ---- packing ----------------------------------------------------------------------------------------------------

// put(c, vector of row(r)[c]) for c < columns; rows and columns are at most `lanes`.
template <class T, class Row, class Put> WISP_INLINE void turn_rows(Row&& row, int rows, int columns, Put&& put) {
    constexpr int L = lanes<T>;
    Vec<T> v[L], w[L];
    if (rows == L && columns == L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) v[i] = load(row(i));
    } else {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) v[i] = i < rows ? load_lanes(row(i), columns) : Vec<T>{};
    }
#pragma GCC unroll 4
    for (int round = 1; round < L; round *= 2) {  // each round interleaves the first half of the rows with the second
#pragma GCC unroll 16
        for (int i = 0; i < L / 2; ++i) {
            w[2 * i] = zip<T, false>(v[i], v[i + L / 2]);
            w[2 * i + 1] = zip<T, true>(v[i], v[i + L / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) v[i] = w[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < L; ++i)
        if (i < columns) put(i, v[i]);
}
// The same of from[r * from_row + c].
template <class T, class Put> WISP_INLINE void turn_block(const T* from, int64_t from_row, int rows, int columns, Put&& put) {
    turn_rows<T>([=](int i) __attribute__((always_inline)) { return from + i * from_row; }, rows, columns, put);
}

// to[c * to_row + r] = from[r * from_row + c] for r < rows, c < columns. Whole vectors are stored where whole_stores
// is set: the caller writes rows in ascending order, or has room after each.
template <class T, bool whole_stores>
WISP_INLINE void transpose_block(const T* from, int64_t from_row, int rows, T* to, int64_t to_row, int columns) {
    turn_block(from, from_row, rows, columns, [&](int i, Vec<T> v) __attribute__((always_inline)) {
        if (whole_stores) store(to + i * to_row, v);
        else store_lanes(to + i * to_row, v, rows);
    });
}

// A panel of B: to[p * width + j], columns filled up to `width` (whole vectors) with zeros or copies.
template <class T> void pack_b(const T* b, int64_t b_row, int64_t b_col, int64_t k, int columns, T* to, int width) {
    constexpr int L = lanes<T>;
    const int last = columns - (width - L);
    if (b_col == 1) {
        for (int64_t p = 0; p < k; ++p, b += b_row, to += width) {
            int j = 0;
            for (; j < width - L; j += L) store(to + j, load(b + j));
            store(to + j, last == L ? load(b + j) : load_lanes(b + j, last));
        }
    } else if (b_row == 1) {
        for (int j = 0; j < width; j += L) {
            const int rows = int(least(L, columns - j));
            const T* from = b + j * b_col;
            int64_t p = 0;
            if (rows == L)
                for (; p + L <= k; p += L) {
                    const T* next = from + L * b_col + p;  // the rows after these
                    for (int i = 0; i < L; ++i, next += b_col) __builtin_prefetch(next);
                    transpose_block<T, true>(from + p, b_col, L, to + p * width + j, width, L);
                }
            for (; p < k; p += L) transpose_block<T, true>(from + p, b_col, rows, to + p * width + j, width, int(least(L, k - p)));
        }
    } else {
        for (int64_t p = 0; p < k; ++p, b += b_row, to += width) {
            for (int j = 0; j < columns; ++j) to[j] = b[j * b_col];
            for (int j = columns; j < width; ++j) to[j] = 0;
        }
    }
}

// A panel of A: to[p * rows + i]. Writes up to a vector beyond the panel, so panels are packed in ascending order;
// not so where a_row is 1.
template <class T> void pack_a(const T* a, int64_t a_row, int64_t a_col, int64_t k, int rows, T* to) {
    constexpr int L = lanes<T>;
    if (a_row == 1) {
        if (rows <= L) {
            const int64_t inside = k - (L - 1) / rows;  // the steps from here on would write into another panel
            for (int64_t p = 0; p < k; ++p, a += a_col, to += rows) {
                if (p < inside) store(to, load_lanes(a, rows));
                else store_lanes(to, load_lanes(a, rows), rows);
            }
        } else {
            for (int64_t p = 0; p < k; ++p, a += a_col, to += rows)
                for (int i = 0; i < rows; i += L) {
                    const int left = rows - i;
                    if (left >= L) store(to + i, load(a + i));
                    else store_lanes(to + i, load_lanes(a + i, left), left);
                }
        }
    } else if (a_col == 1) {
        // Ascending groups of lanes would overwrite one another where a panel has several: those are stored in part.
        if (rows <= L) {
            int64_t p = 0;
            for (; p + L <= k; p += L) transpose_block<T, true>(a + p, a_row, rows, to + p * rows, rows, L);
            if (p < k) transpose_block<T, true>(a + p, a_row, rows, to + p * rows, rows, int(k - p));
        } else {
            for (int64_t p = 0; p < k; p += L)
                for (int i = 0; i < rows; i += L)
                    transpose_block<T, false>(a + i * a_row + p, a_row, int(least(L, rows - i)), to + p * rows + i, rows,
                                              int(least(L, k - p)));
        }
    } else {
        for (int64_t p = 0; p < k; ++p, to += rows)
            for (int i = 0; i < rows; ++i) to[i] = a[i * a_row + p * a_col];
    }
}

// Panels of `rows` rows each, of `m` rows of A, one after another from `to` on; needs room for a vector more.
template <class T> void pack_panels(const T* a, int64_t a_row, int64_t a_col, int64_t k, int64_t m, int rows, T* to) {
    // Where neighbouring rows are adjacent, a few steps of k for all panels at a time: each line of A is read once.
    const int64_t steps = a_row == 1 && m > rows ? 8 : k;
    for (int64_t p = 0; p < k; p += steps)
        for (int64_t i = 0; i < m; i += rows) {
            const int high = int(least(rows, m - i));
            pack_a(a + i * a_row + p * a_col, a_row, a_col, least(steps, k - p), high, to + i * k + p * high);
        }
}

// ---- dot products -----------------------------------------------------------------------------------------------

// out[i * columns + j] = the product of row i of A and row j of B, both contiguous along k.
template <class T, int rows, int columns>
WISP_INLINE void dot_block(int64_t k, const T* a, int64_t a_row, const T* b, int64_t b_col, T* out) {
    constexpr int L = lanes<T>;
    Vec<T> sum[rows][columns];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < columns; ++j) sum[i][j] = Vec<T>{};
    int64_t p = 0;
    for (; p + L <= k; p += L) {
        Vec<T> right[columns];
#pragma GCC unroll 8
        for (int j = 0; j < columns; ++j) right[j] = load(b + j * b_col + p);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const Vec<T> left = load(a + i * a_row + p);
#pragma GCC unroll 8
            for (int j = 0; j < columns; ++j) sum[i][j] += left * right[j];
        }
    }
    if (p < k) {
        const int rest = int(k - p);
        Vec<T> right[columns];
#pragma GCC unroll 8
        for (int j = 0; j < columns; ++j) right[j] = load_lanes(b + j * b_col + p, rest);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const Vec<T> left = load_lanes(a + i * a_row + p, rest);
#pragma GCC unroll 8
            for (int j = 0; j < columns; ++j) sum[i][j] += left * right[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
        if constexpr (columns % 4 == 0) {
#pragma GCC unroll 2
            for (int j = 0; j < columns; j += 4) sum_four<T>(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3], out + i * columns + j);
        } else {
#pragma GCC unroll 8
            for (int j = 0; j < columns; ++j) out[i * columns + j] = sum_lanes<T>(sum[i][j]);
        }
    }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
