// Factorisations in float and double by our own products: LU with row exchanges, triangular systems, inverses, QR, and what least
// squares and symmetric eigenproblems begin with.
//
// Matrices are column-major, as LAPACK's. Large ones are halved until a part fits registers, so that nearly all the work is
// products; many tiny ones are solved a register at a time, a matrix in each lane. How the work is cut depends on sizes alone.
#include "core/threads.h"
#include "cpu/gemm_tile.h"
#include "kernels/gemm.h"
#include "kernels/lapack.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t block = 64;         // columns that one thread solves at a time
constexpr int64_t narrow_panel = 8;   // columns that are eliminated one by one
constexpr int64_t small_matrix = 16;  // whose columns are, too: the last pivot of a singular one then is what rounding left of it, as in
                                      // PyTorch, where a product that is rounded before it is subtracted would often leave exactly 0
constexpr int64_t tiny = 8;           // up to here a batch is solved by lanes

// Over the units of some work, about `flops` each, in several threads if that pays.
template <class Body> void over(int64_t units, double flops, Body&& body) {
    const int64_t grain = flops >= 5e4 ? 1 : int64_t(5e4 / (flops + 1)) + 1;
    parallel_for(units, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) body(i);
    });
}

template <class T> struct Array {
    T* const at;
    explicit Array(int64_t count)
        : at(static_cast<T*>(std::aligned_alloc(64, size_t(divide_up(count * int64_t(sizeof(T)) + 1, 64) * 64)))) {
        if (!at) throw std::bad_alloc();
    }
    ~Array() { std::free(at); }
    Array(const Array&) = delete;
    T& operator[](int64_t i) const { return at[i]; }
};

template <class T> struct Strided {
    const T* at;
    int64_t row, column;  // strides
};

// C (m x n) = A (m x k) B (k x n), or C - A B.
template <class T>
void product(int64_t m, int64_t n, int64_t k, const Strided<T>& a, const Strided<T>& b, T* c, int64_t c_stride, bool subtracted) {
    GemmArgs args{};  // row-major, the matrices are their transposes: C^T = B^T A^T
    args.m = n, args.n = m, args.k = k;
    args.a = b.at, args.a_row = b.column, args.a_col = b.row;
    args.b = a.at, args.b_row = a.column, args.b_col = a.row;
    args.c = c, args.c_row = c_stride;
    if (subtracted) {
        args.d = c, args.d_row = c_stride, args.d_col = 1;
        args.alpha = -1, args.beta = 1;
    }
    if (m > 0 && n > 0 && k > 0) gemm.matmul(dtype_of<T>, args);
}

// C (m x n) -= A (m x k) B (k x n).
template <class T> void subtract_product(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b,
                                         int64_t b_stride, T* c, int64_t c_stride) {
    product<T>(m, n, k, {a, a_row, a_column}, {b, 1, b_stride}, c, c_stride, true);
}

// ---- triangular systems

template <class T> struct Triangle {
    const T* at;
    int64_t row, column;  // strides
    bool lower, unit;

    Triangle from(int64_t i) const { return {at + i * (row + column), row, column, lower, unit}; }
};

// A triangle of few rows: right-hand sides are turned, so that each lane has one of them.
constexpr int64_t small_rows = 16;
template <class T, bool lower> void solve_small(const Triangle<T>& t, int64_t n, T* b, int64_t stride, int64_t columns) {
    constexpr int64_t L = lanes<T>;
    alignas(64) T left[small_rows * small_rows] = {}, inverse[small_rows], sides[small_rows * L] = {};
    for (int64_t j = 0; j < small_rows; j++) inverse[j] = j < n && !t.unit ? T(1) / t.at[j * (t.row + t.column)] : T(1);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = lower ? j + 1 : 0; i < (lower ? n : j); i++) left[j * small_rows + i] = t.at[i * t.row + j * t.column];
    for (int64_t c = 0; c < columns; c += L, b += L * stride) {
        const int wide = int(least(L, columns - c));
        for (int64_t r = 0; r < n; r += L)
            turn_block(b + r, stride, wide, int(least(L, n - r)),
                       [&](int i, Vec<T> v) __attribute__((always_inline)) { store(sides + (r + i) * L, v); });
        Vec<T> x[small_rows];
#pragma GCC unroll 16
        for (int i = 0; i < small_rows; i++) x[i] = load(sides + i * L);
#pragma GCC unroll 16
        for (int step = 0; step < small_rows; step++) {
            const int j = lower ? step : small_rows - 1 - step;
            x[j] *= inverse[j];
#pragma GCC unroll 16
            for (int i = lower ? j + 1 : 0; i < (lower ? small_rows : j); i++) x[i] -= left[j * small_rows + i] * x[j];
        }
#pragma GCC unroll 16
        for (int i = 0; i < small_rows; i++) store(sides + i * L, x[i]);
        for (int64_t r = 0; r < n; r += L) {
            const int high = int(least(L, n - r));
            turn_block(sides + r * L, L, high, wide,
                       [&](int i, Vec<T> v) __attribute__((always_inline)) { store_lanes(b + i * stride + r, v, high); });
        }
    }
}

template <class T> void solve_triangle(const Triangle<T>& t, int64_t n, T* b, int64_t stride, int64_t columns) {
    constexpr int64_t L = small_rows;
    if (n <= L) return t.lower ? solve_small<T, true>(t, n, b, stride, columns) : solve_small<T, false>(t, n, b, stride, columns);
    const int64_t top = most(L, n / 2 / L * L), bottom = n - top;
    if (t.lower) {
        solve_triangle(t, top, b, stride, columns);
        subtract_product(bottom, columns, top, t.at + top * t.row, t.row, t.column, b, stride, b + top, stride);
        solve_triangle(t.from(top), bottom, b + top, stride, columns);
    } else {
        solve_triangle(t.from(top), bottom, b + top, stride, columns);
        subtract_product(top, columns, bottom, t.at + top * t.column, t.row, t.column, b + top, stride, b, stride);
        solve_triangle(t, top, b, stride, columns);
    }
}

// ---- row exchanges

struct Exchanges {
    Array<int32_t> rows;  // pairs, in order
    int64_t count = 0;

    // Exchanges of rows [from, to) with those that `pivots` names, from 1 on, less those of a row with itself.
    Exchanges(const int32_t* pivots, int64_t from, int64_t to, bool backwards = false) : rows(2 * (to - from)) {
        for (int64_t s = from; s < to; s++) {
            const int64_t i = backwards ? from + to - 1 - s : s;
            if (pivots[i] - 1 == i) continue;
            rows[2 * count] = int32_t(i), rows[2 * count + 1] = pivots[i] - 1;
            count++;
        }
    }
    template <class T> void apply(T* column) const {
        for (int64_t e = 0; e < count; e++) {
            const T x = column[rows[2 * e]];
            column[rows[2 * e]] = column[rows[2 * e + 1]];
            column[rows[2 * e + 1]] = x;
        }
    }
};

// ---- LU

// The first of the largest magnitudes of x.
template <class T> int64_t largest(const T* x, int64_t n) {
    constexpr int L = lanes<T>;
    using V = Vec<T>;
    V best = V{} - 1, at = {}, index, step = V{} + T(L);  // indices as numbers of type T: exact up to 2^24 rows
    for (int i = 0; i < L; i++) index[i] = T(i);
    int64_t i = 0;
    for (; i + L <= n; i += L, index += step) {
        V v = load(x + i);
        v = v < 0 ? -v : v;
        at = v > best ? index : at;
        best = v > best ? v : best;
    }
    T most_of_all = -1;
    int64_t found = 0;
    for (int l = 0; l < L; l++)
        if (best[l] > most_of_all || (best[l] == most_of_all && int64_t(at[l]) < found)) most_of_all = best[l], found = int64_t(at[l]);
    for (; i < n; i++) {
        const T v = x[i] < 0 ? -x[i] : x[i];
        if (v > most_of_all) most_of_all = v, found = i;
    }
    return found;
}

template <class T> void subtract_scaled(T* __restrict to, const T* __restrict from, T factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] -= factor * from[i];
}

// A few columns, one after the other.
template <class T> void lu_panel(int64_t m, int64_t n, T* a, int64_t stride, int32_t* pivots, int32_t* info) {
    constexpr T least_normal = sizeof(T) == 4 ? T(1.17549435e-38) : T(2.2250738585072014e-308);
    for (int64_t j = 0; j < n; j++) {
        T* const column = a + j * stride;
        const int64_t p = j + largest(column + j, m - j);
        pivots[j] = int32_t(p + 1);
        if (p != j)
            for (int64_t c = 0; c < n; c++) std::swap(a[c * stride + j], a[c * stride + p]);
        const T pivot = column[j];
        if (pivot == 0) {
            if (*info == 0) *info = int32_t(j + 1);
        } else if (pivot >= least_normal || pivot <= -least_normal) {
            const T inverse = T(1) / pivot;
            for (int64_t i = j + 1; i < m; i++) column[i] *= inverse;
        } else {
            for (int64_t i = j + 1; i < m; i++) column[i] /= pivot;
        }
        for (int64_t c = j + 1; c < n; c++) subtract_scaled(a + c * stride + j + 1, column + j + 1, a[c * stride + j], m - j - 1);
    }
}

// What the elimination of the first `done` columns does to `columns` columns further right.
template <class T> void lu_update(int64_t m, int64_t done, const T* a, int64_t stride, const int32_t* pivots, T* right, int64_t columns) {
    const Exchanges exchanges(pivots, 0, done);
    over(divide_up(columns, block), 2. * double(m) * double(done) * block, [&](int64_t unit) {
        T* const b = right + unit * block * stride;
        const int64_t count = least(block, columns - unit * block);
        for (int64_t c = 0; c < count; c++) exchanges.apply(b + c * stride);
        solve_triangle(Triangle<T>{a, 1, stride, true, true}, done, b, stride, count);
        subtract_product(m - done, count, done, a + done, 1, stride, b, stride, b + done, stride);
    });
}

// m >= n.
template <class T> void lu_columns(int64_t m, int64_t n, T* a, int64_t stride, int32_t* pivots, int32_t* info) {
    if (n <= (m <= small_matrix ? small_matrix : narrow_panel)) return lu_panel(m, n, a, stride, pivots, info);
    const int64_t left = n >= 2 * block ? n / 2 / block * block : most(narrow_panel, n / 2 / narrow_panel * narrow_panel);
    T* const right = a + left * stride;
    lu_columns(m, left, a, stride, pivots, info);
    lu_update(m, left, a, stride, pivots, right, n - left);
    int32_t later = 0;
    lu_columns(m - left, n - left, right + left, stride, pivots + left, &later);
    for (int64_t i = left; i < n; i++) pivots[i] += int32_t(left);
    const Exchanges exchanges(pivots, left, n);
    for (int64_t c = 0; c < left; c++) exchanges.apply(a + c * stride);
    if (*info == 0 && later > 0) *info = later + int32_t(left);
}

// ---- a register of tiny matrices

template <class T> struct Lanes {
    static constexpr int64_t L = lanes<T>;
    using V = Vec<T>;
    V v[tiny * tiny];

    // `count` matrices of n x n; the other lanes have the identity.
    void gather(const T* a, int64_t n, int64_t count) {
        T* const to = reinterpret_cast<T*>(v);
        for (int64_t e = 0; e < n * n; e++)
            for (int64_t l = 0; l < L; l++) to[e * L + l] = l < count ? a[l * n * n + e] : T(e % (n + 1) == 0);
    }
};

template <class T> void lu_lanes(int64_t n, int64_t count, T* a, int32_t* pivots, int32_t* info) {
    using V = typename Lanes<T>::V;
    Lanes<T> m;
    V* const v = m.v;
    m.gather(a, n, count);
    V failed{}, from[tiny];
    for (int64_t j = 0; j < n; j++) {
        V best = v[j * n + j], row = V{} + T(j);
        best = best < 0 ? -best : best;
        for (int64_t r = j + 1; r < n; r++) {
            V x = v[j * n + r];
            x = x < 0 ? -x : x;
            row = x > best ? V{} + T(r) : row;
            best = x > best ? x : best;
        }
        from[j] = row;
        for (int64_t r = j + 1; r < n; r++) {
            const auto exchanged = row == T(r);
            for (int64_t c = 0; c < n; c++) {
                const V x = v[c * n + j], y = v[c * n + r];
                v[c * n + j] = exchanged ? y : x;
                v[c * n + r] = exchanged ? x : y;
            }
        }
        V pivot = v[j * n + j];
        const V here = failed == 0 ? V{} + T(j + 1) : failed;
        failed = pivot == 0 ? here : failed;
        pivot = pivot == 0 ? V{} + T(1) : pivot;
        for (int64_t r = j + 1; r < n; r++) v[j * n + r] /= pivot;
        for (int64_t c = j + 1; c < n; c++)
            for (int64_t r = j + 1; r < n; r++) v[c * n + r] -= v[j * n + r] * v[c * n + j];
    }
    const T* const out = reinterpret_cast<const T*>(v);
    for (int64_t l = 0; l < count; l++) {
        for (int64_t e = 0; e < n * n; e++) a[l * n * n + e] = out[e * m.L + l];
        for (int64_t j = 0; j < n; j++) pivots[l * n + j] = int32_t(from[j][l]) + 1;
        if (info[l] == 0) info[l] = int32_t(failed[l]);
    }
}

// Which column of U^-1 L^-1 comes where: the row exchanges backwards.
void column_order(const int32_t* pivots, int64_t n, int32_t* order) {
    for (int64_t i = 0; i < n; i++) order[i] = int32_t(i);
    for (int64_t i = n - 1; i >= 0; i--) std::swap(order[i], order[pivots[i] - 1]);
}

template <class T> void inverse_lanes(int64_t n, int64_t count, T* a, const int32_t* pivots) {
    using V = typename Lanes<T>::V;
    Lanes<T> m, result;
    V *const v = m.v, *const x = result.v;
    m.gather(a, n, count);
    V inverse[tiny];
    for (int64_t j = 0; j < n; j++) inverse[j] = T(1) / v[j * n + j];
    for (int64_t c = 0; c < n; c++) {
        V* const column = x + c * n;
        for (int64_t r = 0; r < n; r++) column[r] = V{} + T(r == c);
        for (int64_t j = c; j < n; j++)
            for (int64_t r = j + 1; r < n; r++) column[r] -= v[j * n + r] * column[j];
        for (int64_t j = n - 1; j >= 0; j--) {
            column[j] *= inverse[j];
            for (int64_t r = 0; r < j; r++) column[r] -= v[j * n + r] * column[j];
        }
    }
    const T* const out = reinterpret_cast<const T*>(x);
    for (int64_t l = 0; l < count; l++) {
        int32_t order[tiny];
        column_order(pivots + l * n, n, order);
        for (int64_t c = 0; c < n; c++)
            for (int64_t r = 0; r < n; r++) a[l * n * n + c * n + r] = out[(order[c] * n + r) * m.L + l];
    }
}

// ---- the routines

template <class T> void lu(int64_t batch, int64_t m, int64_t n, void* a_, int32_t* pivots, int32_t* info) {
    T* const a = static_cast<T*>(a_);
    const int64_t k = least(m, n);
    if (m == n && n <= tiny && batch > 1) {
        constexpr int64_t L = Lanes<T>::L;
        return over(divide_up(batch, L), double(L * n * n * n),
                    [&](int64_t i) { lu_lanes(n, least(L, batch - i * L), a + i * L * n * n, pivots + i * L * n, info + i * L); });
    }
    over(batch, double(m) * double(n) * double(k), [&](int64_t i) {
        T* const one = a + i * m * n;
        lu_columns(m, k, one, m, pivots + i * k, info + i);
        if (n > k) lu_update(m, k, one, m, pivots + i * k, one + k * m, n - k);
    });
}

template <class T> void lu_solve(int64_t batch, char trans, int64_t n, int64_t columns, const void* lu, const int32_t* pivots, void* b_) {
    const int64_t blocks = divide_up(columns, block);
    over(batch * blocks, 2. * double(n) * double(n) * double(least(columns, block)), [&](int64_t unit) {
        const int64_t i = unit / blocks, first = unit % blocks * block, count = least(block, columns - first);
        const T* const a = static_cast<const T*>(lu) + i * n * n;
        T* const b = static_cast<T*>(b_) + (i * columns + first) * n;
        const Exchanges exchanges(pivots + i * n, 0, n, trans != 'N');
        if (trans == 'N') {
            for (int64_t c = 0; c < count; c++) exchanges.apply(b + c * n);
            solve_triangle(Triangle<T>{a, 1, n, true, true}, n, b, n, count);
            solve_triangle(Triangle<T>{a, 1, n, false, false}, n, b, n, count);
        } else {
            solve_triangle(Triangle<T>{a, n, 1, true, false}, n, b, n, count);
            solve_triangle(Triangle<T>{a, n, 1, false, true}, n, b, n, count);
            for (int64_t c = 0; c < count; c++) exchanges.apply(b + c * n);
        }
    });
}

// U^-1 L^-1 with its columns exchanged. The part of L^-1 above the diagonal is zero and costs nothing.
template <class T> void lu_inverse(int64_t batch, int64_t n, void* lu, const int32_t* pivots) {
    T* const a = static_cast<T*>(lu);
    if (n <= tiny && batch > 1) {
        constexpr int64_t L = Lanes<T>::L;
        return over(divide_up(batch, L), double(L * n * n * n),
                    [&](int64_t i) { inverse_lanes(n, least(L, batch - i * L), a + i * L * n * n, pivots + i * L * n); });
    }
    over(batch, 2. * double(n) * double(n) * double(n), [&](int64_t i) {
        T* const one = a + i * n * n;
        const Array<T> result(n * n);
        const Array<int32_t> order(n);
        column_order(pivots + i * n, n, order.at);
        over(divide_up(n, block), 2. * double(n) * double(n) * block, [&](int64_t unit) {
            const int64_t first = unit * block, count = least(block, n - first);
            T* const b = result.at + first * n;
            std::memset(b, 0, size_t(count * n) * sizeof(T));
            for (int64_t c = 0; c < count; c++) b[c * n + first + c] = 1;
            solve_triangle(Triangle<T>{one, 1, n, true, true}.from(first), n - first, b + first, n, count);
            solve_triangle(Triangle<T>{one, 1, n, false, false}, n, b, n, count);
        });
        over(n, double(n), [&](int64_t c) { std::memcpy(one + c * n, result.at + order[c] * n, size_t(n) * sizeof(T)); });
    });
}

template <class T>
void triangular_solve(int64_t batch, char part, char trans, char diagonal, int64_t m, int64_t n, const void* a, void* b) {
    const int64_t blocks = divide_up(n, block);
    const bool turned = trans != 'N';
    over(batch * blocks, double(m) * double(m) * double(least(n, block)), [&](int64_t unit) {
        const int64_t i = unit / blocks, first = unit % blocks * block;
        const Triangle<T> t{static_cast<const T*>(a) + i * m * m, turned ? m : 1, turned ? 1 : m, (part == 'L') != turned, diagonal == 'U'};
        solve_triangle(t, m, static_cast<T*>(b) + (i * n + first) * m, m, least(block, n - first));
    });
}

// The distance of columns in memory of our own: whole vectors, filled up with zeros; odd, so that they share no place in a cache.
template <class T> int64_t padded_stride(int64_t rows) { return (divide_up(rows, lanes<T>) | 1) * lanes<T>; }

// ---- least squares

// A tall matrix to its triangle, by reflections that the right-hand sides follow; `together` of them are applied at a time, which
// reads and writes a column once for all of them.
constexpr int together = 4;
template <class T> struct Reflections {
    const T* vectors[together];
    T scales[together] = {}, products[together][together];  // of the vectors with each other

    void multiply_vectors(int64_t from, int64_t to) {
        for (int p = 0; p < together; p++)
            for (int before = 0; before < p; before++) {
                Vec<T> sum = {};
                for (int64_t i = from; i < to; i += lanes<T>) sum += load(vectors[p] + i) * load(vectors[before] + i);
                products[p][before] = sum_lanes<T>(sum);
            }
    }

    // Columns from `first` on, N of them, between the rows [from, to), in the order of the reflections.
    template <int P, int N> void apply_to(T* first, int64_t stride, int64_t from, int64_t to, int begin) const {
        constexpr int64_t L = lanes<T>;
        Vec<T> sums[P][N] = {};
        for (int64_t i = from; i < to; i += L) {
            Vec<T> x[N];
#pragma GCC unroll 4
            for (int c = 0; c < N; c++) x[c] = load(first + c * stride + i);
#pragma GCC unroll 4
            for (int p = 0; p < P; p++) {
                const Vec<T> v = load(vectors[begin + p] + i);
#pragma GCC unroll 4
                for (int c = 0; c < N; c++) sums[p][c] += v * x[c];
            }
        }
        T factors[P][N];
        for (int c = 0; c < N; c++)
            for (int p = 0; p < P; p++) {
                T sum = sum_lanes<T>(sums[p][c]);
                for (int before = 0; before < p; before++) sum -= products[begin + p][begin + before] * factors[before][c];
                factors[p][c] = scales[begin + p] * sum;
            }
        for (int64_t i = from; i < to; i += L) {
            Vec<T> x[N];
#pragma GCC unroll 4
            for (int c = 0; c < N; c++) x[c] = load(first + c * stride + i);
#pragma GCC unroll 4
            for (int p = 0; p < P; p++) {
                const Vec<T> v = load(vectors[begin + p] + i);
#pragma GCC unroll 4
                for (int c = 0; c < N; c++) x[c] -= v * factors[p][c];
            }
#pragma GCC unroll 4
            for (int c = 0; c < N; c++) store(first + c * stride + i, x[c]);
        }
    }
};

// The length of x from row `from` on; `end` is a whole number of vectors.
template <class T> T norm_of(const T* x, int64_t from, int64_t end) {
    constexpr int64_t L = lanes<T>;
    const int64_t whole = divide_up(from, L) * L;
    auto length = [&](T factor) {
        Vec<T> squares = {};
        for (int64_t i = whole; i < end; i += L) squares += (load(x + i) * factor) * (load(x + i) * factor);
        T total = sum_lanes<T>(squares);
        for (int64_t i = from; i < least(whole, end); i++) total += (x[i] * factor) * (x[i] * factor);
        return std::sqrt(total);
    };
    constexpr T small = sizeof(T) == 4 ? T(1e-16) : T(1e-140), large = 1 / small;
    const T norm = length(1);
    // Squares that are lost below or above the type's range: of scaled numbers instead.
    if (norm < small) return length(large) * small;
    return norm > large ? length(small) * large : norm;
}

template <class T> void reduce_tall(int64_t m, int64_t n, void* a_, int64_t columns, void* b_) {
    constexpr int64_t L = lanes<T>;
    const int64_t stride = padded_stride<T>(m);
    T *const a = static_cast<T*>(a_), *const b = static_cast<T*>(b_);
    const Array<T> both(stride * (n + columns)), vectors(stride * together);
    for (int64_t c = 0; c < n + columns; c++) {
        std::memcpy(both.at + c * stride, c < n ? a + c * m : b + (c - n) * m, size_t(m) * sizeof(T));
        std::memset(both.at + c * stride + m, 0, size_t(stride - m) * sizeof(T));
    }
    for (int64_t panel = 0; panel < n; panel += together) {
        const int64_t from = panel / L * L, inside = least(n - panel, int64_t(together));
        Reflections<T> all;
        std::memset(vectors.at, 0, size_t(stride * together) * sizeof(T));
        for (int p = 0; p < together; p++) all.vectors[p] = vectors.at + p * stride;
        for (int64_t p = 0; p < inside; p++) {
            const int64_t j = panel + p;
            T *const x = both.at + j * stride, *const v = vectors.at + p * stride;
            const T norm = norm_of(x, j, stride);
            if (norm == 0) continue;                                     // the scale of this reflection is 0
            const T beta = x[j] > 0 ? -norm : norm, head = x[j] - beta;  // the signs agree: nothing cancels
            for (int64_t i = from; i < stride; i += L) store(v + i, load(x + i) / head);
            for (int64_t i = from; i < j; i++) v[i] = 0;
            v[j] = 1;
            all.scales[p] = -head / beta;
            for (int64_t c = p + 1; c < inside; c++)
                all.template apply_to<1, 1>(both.at + (panel + c) * stride, stride, from, stride, int(p));
            x[j] = beta;
            std::memset(x + j + 1, 0, size_t(m - j - 1) * sizeof(T));
        }
        all.multiply_vectors(from, stride);
        int64_t c = panel + inside;
        for (; c + 4 <= n + columns; c += 4) all.template apply_to<together, 4>(both.at + c * stride, stride, from, stride, 0);
        for (; c < n + columns; c++) all.template apply_to<together, 1>(both.at + c * stride, stride, from, stride, 0);
    }
    for (int64_t c = 0; c < n + columns; c++) std::memcpy(c < n ? a + c * m : b + (c - n) * m, both.at + c * stride, size_t(m) * sizeof(T));
}

// ---- QR

// Reflections I - tau v v^T by blocks of columns: I - Y T Y^T with an upper triangle T.
constexpr int64_t reflected = 32;

// Reflects x from row j on to beta, which replaces x[j]; v is the vector of the reflection from row `from` on, 1 at row j and zero above.
// LAPACK's convention: nothing is reflected where there is nothing below.
template <class T> T reflect(T* x, T* v, int64_t j, int64_t from, int64_t end) {
    constexpr int64_t L = lanes<T>;
    constexpr T tiny_norm = sizeof(T) == 4 ? T(0x1p-100) : T(0x1p-900);
    for (int64_t i = from; i < end; i += L) store(v + i, Vec<T>{});
    v[j] = 1;
    const T head_before = x[j];
    x[j] = 0;
    const T below = norm_of(x, j, end);
    x[j] = head_before;
    if (below == 0) return 0;
    T norm = norm_of(x, j, end), back = 1;
    if (norm < tiny_norm) {  // few digits are left: of a multiple
        back = tiny_norm;
        for (int64_t i = j; i < end; i++) x[i] /= tiny_norm;
        norm = norm_of(x, j, end);
    }
    const T beta = x[j] > 0 ? -norm : norm, head = x[j] - beta;
    for (int64_t i = from; i < end; i += L) store(v + i, load(x + i) / head);
    for (int64_t i = from; i < j; i++) v[i] = 0;
    v[j] = 1;
    x[j] = beta * back;
    return -head / beta;
}

// T of `count` reflections with the vectors y in the rows [from, to).
template <class T> void block_triangle(const T* y, int64_t stride, int64_t from, int64_t to, int64_t count, const T* tau, T* t) {
    alignas(64) T products[reflected * reflected];
    product<T>(count, count, to - from, {y + from, stride, 1}, {y + from, 1, stride}, products, reflected, false);
    for (int64_t j = 0; j < count; j++) {
        T column[reflected] = {};
        for (int64_t l = 0; l < j; l++)
            for (int64_t i = 0; i <= l; i++) column[i] += t[l * reflected + i] * products[j * reflected + l];
        for (int64_t i = 0; i < reflected; i++) t[j * reflected + i] = i < j ? -tau[j] * column[i] : i == j ? tau[j] : T(0);
    }
}

// C -= Y op(T) Y^T C for columns of C from row `from` on, where Y begins; transposed: the reflections backwards.
template <class T> void apply_block(const T* y, int64_t stride, int64_t from, int64_t to, int64_t count, const T* t, bool transposed, T* c,
                                    int64_t c_stride, int64_t columns) {
    over(divide_up(columns, block), 4. * double(to - from) * double(count) * block, [&](int64_t unit) {
        alignas(64) T first[reflected * block], second[reflected * block];
        T* const part = c + unit * block * c_stride;
        const int64_t n = least(block, columns - unit * block);
        product<T>(count, n, to - from, {y + from, stride, 1}, {part + from, 1, c_stride}, first, reflected, false);
        product<T>(count, n, count, {t, transposed ? reflected : 1, transposed ? 1 : reflected}, {first, 1, reflected}, second, reflected,
                   false);
        product<T>(to - from, n, count, {y + from, 1, stride}, {second, 1, reflected}, part + from, c_stride, true);
    });
}

template <class T> void qr(int64_t batch, int64_t m, int64_t n, void* a_, void* tau_) {
    constexpr int64_t L = lanes<T>;
    const int64_t k = least(m, n), stride = padded_stride<T>(m);
    over(batch, 2. * double(m) * double(n) * double(k), [&](int64_t matrix) {
        T *const a = static_cast<T*>(a_) + matrix * m * n, *const tau = static_cast<T*>(tau_) + matrix * k;
        const Array<T> all(stride * n), vectors(stride * reflected), triangle(reflected * reflected);
        for (int64_t c = 0; c < n; c++) {
            std::memcpy(all.at + c * stride, a + c * m, size_t(m) * sizeof(T));
            std::memset(all.at + c * stride + m, 0, size_t(stride - m) * sizeof(T));
        }
        for (int64_t panel = 0; panel < k; panel += reflected) {
            const int64_t count = least(reflected, k - panel), first = panel / L * L;
            for (int64_t group = 0; group < count; group += together) {
                const int64_t inside = least(int64_t(together), count - group), from = (panel + group) / L * L;
                Reflections<T> few;
                for (int64_t p = 0; p < together; p++) few.vectors[p] = vectors.at + (group + least(p, inside - 1)) * stride;
                for (int64_t p = 0; p < inside; p++) {
                    const int64_t j = panel + group + p;
                    T* const v = vectors.at + (group + p) * stride;
                    for (int64_t i = first; i < from; i++) v[i] = 0;
                    tau[j] = few.scales[p] = reflect(all.at + j * stride, v, j, from, stride);
                    for (int64_t c = p + 1; c < inside; c++)
                        few.template apply_to<1, 1>(all.at + (panel + group + c) * stride, stride, from, stride, int(p));
                }
                few.multiply_vectors(from, stride);
                int64_t c = panel + group + inside;
                const int64_t end = panel + count;
                for (; c + 4 <= end; c += 4) few.template apply_to<together, 4>(all.at + c * stride, stride, from, stride, 0);
                for (; c < end; c++) few.template apply_to<together, 1>(all.at + c * stride, stride, from, stride, 0);
            }
            for (int64_t j = panel; j < panel + count; j++) {
                std::memcpy(a + j * m, all.at + j * stride, size_t(j + 1) * sizeof(T));
                std::memcpy(a + j * m + j + 1, vectors.at + (j - panel) * stride + j + 1, size_t(m - j - 1) * sizeof(T));
            }
            if (panel + count == n) break;
            block_triangle(vectors.at, stride, first, stride, count, tau + panel, triangle.at);
            apply_block(vectors.at, stride, first, stride, count, triangle.at, true, all.at + (panel + count) * stride, stride,
                        n - panel - count);
        }
        for (int64_t c = k; c < n; c++) std::memcpy(a + c * m, all.at + c * stride, size_t(m) * sizeof(T));
    });
}

// The first n columns of the product of k reflections, whose vectors lie below the diagonal of A (m x n).
template <class T> void householder(int64_t batch, int64_t m, int64_t n, int64_t k, void* a_, const void* tau_) {
    constexpr int64_t L = lanes<T>;
    const int64_t stride = padded_stride<T>(m);
    over(batch, 2. * double(m) * double(n) * double(k), [&](int64_t matrix) {
        T* const a = static_cast<T*>(a_) + matrix * m * n;
        const T* const tau = static_cast<const T*>(tau_) + matrix * k;
        const Array<T> all(stride * n), vectors(stride * reflected), triangle(reflected * reflected);
        std::memset(all.at, 0, size_t(stride * n) * sizeof(T));
        for (int64_t c = 0; c < n; c++) all[c * stride + c] = 1;
        for (int64_t panel = (k - 1) / reflected * reflected; panel >= 0; panel -= reflected) {
            const int64_t count = least(reflected, k - panel), first = panel / L * L;
            for (int64_t p = 0; p < count; p++) {
                T* const v = vectors.at + p * stride;
                const int64_t j = panel + p;
                std::memset(v, 0, size_t(j) * sizeof(T));
                v[j] = 1;
                std::memcpy(v + j + 1, a + j * m + j + 1, size_t(m - j - 1) * sizeof(T));
                std::memset(v + m, 0, size_t(stride - m) * sizeof(T));
            }
            block_triangle(vectors.at, stride, first, stride, count, tau + panel, triangle.at);
            // Columns before the panel are zero from its rows on.
            apply_block(vectors.at, stride, first, stride, count, triangle.at, false, all.at + panel * stride, stride, n - panel);
        }
        for (int64_t c = 0; c < n; c++) std::memcpy(a + c * m, all.at + c * stride, size_t(m) * sizeof(T));
    });
}

// ---- symmetric matrices to three diagonals

template <class T> constexpr int64_t corner =
    lanes<T> < 4 ? 4 : lanes<T>;  // blocks on the diagonal are whole; four columns are read at once

// y = A v, where A has the blocks on and below its diagonal, for rows and columns [from, end), whole blocks.
template <class T> void symmetric_product(const T* a, int64_t stride, int64_t from, int64_t end, const T* v, T* y) {
    constexpr int64_t L = lanes<T>;
    for (int64_t i = from; i < end; i += L) store(y + i, Vec<T>{});
    for (int64_t j = from; j < end; j += corner<T>) {
        const T* const columns = a + j * stride;
        for (int64_t i = j; i < j + corner<T>; i += L) {
            Vec<T> sums[2] = {load(y + i), Vec<T>{}};
            for (int64_t c = 0; c < corner<T>; c++) sums[c % 2] += load(columns + c * stride + i) * v[j + c];
            store(y + i, sums[0] + sums[1]);
        }
        for (int64_t c = 0; c < corner<T> && j + corner<T> < end; c += 4) {
            const T* const four = columns + c * stride;
            const T v0 = v[j + c], v1 = v[j + c + 1], v2 = v[j + c + 2], v3 = v[j + c + 3];
            Vec<T> s0 = {}, s1 = {}, s2 = {}, s3 = {};
            for (int64_t i = j + corner<T>; i < end; i += L) {
                const Vec<T> a0 = load(four + i), a1 = load(four + stride + i), a2 = load(four + 2 * stride + i),
                             a3 = load(four + 3 * stride + i), x = load(v + i);
                store(y + i, load(y + i) + (a0 * v0 + a1 * v1) + (a2 * v2 + a3 * v3));
                s0 += a0 * x, s1 += a1 * x, s2 += a2 * x, s3 += a3 * x;
            }
            T four_sums[4];
            sum_four<T>(s0, s1, s2, s3, four_sums);
            for (int k = 0; k < 4; k++) y[j + c + k] += four_sums[k];
        }
    }
}

template <class T> T dot(const T* a, const T* b, int64_t from, int64_t to) {
    constexpr int64_t L = lanes<T>;
    Vec<T> sum = {};
    for (int64_t i = from; i < to; i += L) sum += load(a + i) * load(b + i);
    return sum_lanes<T>(sum);
}

// A (n x n, of which `lower` tells the part that counts) = Q D Q^T: the diagonals of D, and what Q is made of: n - 1 vectors of
// reflections and their factors, columns `stride` apart in `vectors`.
//
// What the reflections v of a panel do to the rest of A waits until its end: A -= v w^T + w v^T for each.
template <class T> void tridiagonal(int64_t n, bool lower, const T* given, T* d, T* e, T* tau, T* vectors, int64_t stride) {
    constexpr int64_t L = lanes<T>, B = corner<T>;
    const int64_t end = divide_up(n, B) * B, width = n <= 192 ? 8 : reflected;
    const Array<T> all(stride * end), panels(3 * width * stride);
    T *const a = all.at, *const vs = panels.at, *const ws = vs + width * stride, *const vs_again = ws + width * stride;
    std::memset(a, 0, size_t(stride * end) * sizeof(T));
    std::memset(vs, 0, size_t(3 * width * stride) * sizeof(T));
    for (int64_t c = 0; c < n; c++)
        for (int64_t r = c / B * B; r < n; r++) a[c * stride + r] = (r > c) == lower || r == c ? given[c * n + r] : given[r * n + c];
    for (int64_t panel = 0; panel < n; panel += width) {
        const int64_t count = least(width, n - panel), first = panel / B * B;
        for (int64_t p = 0; p < count; p++) {
            const int64_t k = panel + p, from = k / B * B;
            T *const x = a + k * stride, *const v = vs + p * stride, *const y = ws + p * stride;
            for (int64_t i = from; i < end; i += L) {
                Vec<T> value = load(x + i);
                for (int64_t q = 0; q < p; q++) {
                    const int64_t at = q * stride;
                    value -= load(vs + at + i) * ws[at + k] + load(ws + at + i) * vs[at + k];
                }
                store(x + i, value);
            }
            d[k] = x[k];
            if (k + 1 == n) break;
            for (int64_t i = first; i < from; i += L) store(v + i, Vec<T>{}), store(y + i, Vec<T>{});
            const T factor = tau[k] = reflect(x, v, k + 1, from, end);
            e[k] = x[k + 1];
            symmetric_product(a, stride, from, end, v, y);
            for (int64_t q = 0; q < p; q += 2) {  // two at a time, the second maybe the first again
                const int64_t at = q * stride, next = least(q + 1, p - 1) * stride;
                Vec<T> sums[4] = {};
                for (int64_t i = from; i < end; i += L) {
                    const Vec<T> x0 = load(v + i);
                    sums[0] += load(ws + at + i) * x0, sums[1] += load(vs + at + i) * x0;
                    sums[2] += load(ws + next + i) * x0, sums[3] += load(vs + next + i) * x0;
                }
                T f[4];
                sum_four<T>(sums[0], sums[1], sums[2], sums[3], f);
                if (next == at) f[2] = f[3] = 0;
                for (int64_t i = from; i < end; i += L)
                    store(y + i, load(y + i) - (load(vs + at + i) * f[0] + load(ws + at + i) * f[1]) -
                                     (load(vs + next + i) * f[2] + load(ws + next + i) * f[3]));
            }
            const T half = factor * factor * dot(y, v, from, end) / 2;
            for (int64_t i = from; i < end; i += L) store(y + i, load(y + i) * factor - load(v + i) * half);
            for (int64_t i = from; i <= k; i++) y[i] = 0;
        }
        for (int64_t p = 0; p < count; p++) {
            T* const kept = vectors + (panel + p) * stride;
            std::memset(kept, 0, size_t(first) * sizeof(T));
            std::memcpy(kept + first, vs + p * stride + first, size_t(end - first) * sizeof(T));
            std::memcpy(vs_again + p * stride + first, vs + p * stride + first, size_t(end - first) * sizeof(T));
        }
        const int64_t next = panel + count;
        if (next >= n) break;
        const int64_t start = next / B * B;  // by blocks of columns from their diagonal on
        over(divide_up(end - start, block), 4. * double(end - start) * double(count) * block, [&](int64_t unit) {
            const int64_t c = start + unit * block, columns = least(block, end - c);
            product<T>(end - c, columns, 2 * width, {vs + c, 1, stride}, {ws + c, stride, 1}, a + c * stride + c, stride, true);
        });
    }
}

// Z (n x n) = Q Z, with Q as `tridiagonal` leaves it.
template <class T> void apply_tridiagonal(int64_t n, const T* tau, const T* vectors, int64_t stride, T* z) {
    constexpr int64_t L = lanes<T>;
    const Array<T> triangle(reflected * reflected);
    for (int64_t panel = (n - 2) / reflected * reflected; panel >= 0; panel -= reflected) {
        const int64_t count = least(reflected, n - 1 - panel), first = panel / L * L;
        block_triangle(vectors + panel * stride, stride, first, n, count, tau + panel, triangle.at);
        apply_block(vectors + panel * stride, stride, first, n, count, triangle.at, false, z, n, n);
    }
}

// One symmetric matrix: three diagonals, then solve(d, e, z) has the values and, where wanted, vectors of those, which become A's.
template <class T> void eigh(int64_t n, bool lower, bool wants_vectors, void* a_, void* values, void* context,
                             void (*solve)(void* context, int64_t n, void* d, void* e, void* z)) {
    T *const a = static_cast<T*>(a_), *const d = static_cast<T*>(values);
    const int64_t stride = padded_stride<T>(divide_up(n, corner<T>) * corner<T>);
    const Array<T> e(n), tau(n), vectors(stride * n);
    tridiagonal(n, lower, a, d, e.at, tau.at, vectors.at, stride);
    solve(context, n, d, e.at, wants_vectors ? a : nullptr);
    if (wants_vectors) apply_tridiagonal(n, tau.at, vectors.at, stride, a);
}

}  // namespace

extern const SystemKernels systems_table;
const SystemKernels systems_table = {{&lu<float>, &lu<double>},
                                     {&lu_solve<float>, &lu_solve<double>},
                                     {&lu_inverse<float>, &lu_inverse<double>},
                                     {&triangular_solve<float>, &triangular_solve<double>},
                                     {&reduce_tall<float>, &reduce_tall<double>},
                                     {&qr<float>, &qr<double>},
                                     {&householder<float>, &householder<double>},
                                     {&eigh<float>, &eigh<double>}};

}  // namespace wisp::cpu::WISP_ISA
