// Fourier transforms: Stockham's stages between two buffers, with radices 2, 3, 4, 5, 7, 8, 11, 13.
//
// Every transform is worked vertically: a tile holds one vector of lanes per point, each lane a transform of its own,
// so that all butterflies are whole-vector arithmetic with broadcast twiddles. The lanes are neighbouring columns,
// neighbouring rows (transposed on the way in), or the columns of one long row that is folded into a matrix.
#include "cpu/fft_plan.h"

#include <cstring>

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/isa.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// One point of every lane.
template <class T> struct Point {
    Vector<T> re, im;
};
template <class T> WISP_INLINE Point<T> operator+(Point<T> a, Point<T> b) { return {a.re + b.re, a.im + b.im}; }
template <class T> WISP_INLINE Point<T> operator-(Point<T> a, Point<T> b) { return {a.re - b.re, a.im - b.im}; }
template <class T> WISP_INLINE Point<T> times_minus_i(Point<T> a) { return {a.im, -a.re}; }
template <class T> WISP_INLINE Point<T> times(Point<T> a, T re, T im) { return {a.re * re - a.im * im, a.re * im + a.im * re}; }
template <class T> WISP_INLINE Point<T> times(Point<T> a, Point<T> b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }

// ---- butterflies: a[k] = sum of a[j] exp(-2 pi i j k / radix)

// cos and sin of 2 pi k / n by their series: for constants of the compiler only.
constexpr double turn_cos(int k, int n) {
    double x = 2 * 3.14159265358979323846 * k / n;
    if (x > 3.14159265358979323846) x -= 2 * 3.14159265358979323846;
    double sum = 1, term = 1;
    for (int i = 1; i < 20; i++) term *= -x * x / ((2 * i - 1) * (2 * i)), sum += term;
    return sum;
}
constexpr double turn_sin(int k, int n) {
    double x = 2 * 3.14159265358979323846 * k / n;
    if (x > 3.14159265358979323846) x -= 2 * 3.14159265358979323846;
    double sum = x, term = x;
    for (int i = 1; i < 20; i++) term *= -x * x / ((2 * i) * (2 * i + 1)), sum += term;
    return sum;
}
template <int R> struct Turns {
    double cos[R], sin[R];
    constexpr Turns() : cos(), sin() {
        for (int k = 0; k < R; k++) cos[k] = turn_cos(k, R), sin[k] = turn_sin(k, R);
    }
};
template <int R> constexpr Turns<R> turns;

template <class T> WISP_INLINE void butterfly4(Point<T>& a, Point<T>& b, Point<T>& c, Point<T>& d) {
    const Point<T> s0 = a + c, d0 = a - c, s1 = b + d, d1 = times_minus_i(b - d);
    a = s0 + s1, b = d0 + d1, c = s0 - s1, d = d0 - d1;
}

template <class T, int R> WISP_INLINE void butterfly(Point<T>* a) {
    if constexpr (R == 2) {
        const Point<T> t = a[0] - a[1];
        a[0] = a[0] + a[1];
        a[1] = t;
    } else if constexpr (R == 4) {
        butterfly4(a[0], a[1], a[2], a[3]);
    } else if constexpr (R == 8) {
        constexpr T h = T(0.70710678118654752440);
        butterfly4(a[0], a[2], a[4], a[6]);
        butterfly4(a[1], a[3], a[5], a[7]);
        // a[0,2,4,6] and a[1,3,5,7] hold the even and odd halves' outputs 0..3
        const Point<T> o0 = a[1], o1 = {(a[3].re + a[3].im) * h, (a[3].im - a[3].re) * h}, o2 = times_minus_i(a[5]),
                       o3 = {(a[7].im - a[7].re) * h, -(a[7].re + a[7].im) * h};
        const Point<T> e0 = a[0], e1 = a[2], e2 = a[4], e3 = a[6];
        a[0] = e0 + o0, a[1] = e1 + o1, a[2] = e2 + o2, a[3] = e3 + o3;
        a[4] = e0 - o0, a[5] = e1 - o1, a[6] = e2 - o2, a[7] = e3 - o3;
    } else {
        // Odd primes: sums and differences of opposite points need real factors only.
        constexpr int half = (R - 1) / 2;
        Point<T> sum[half], difference[half], result[R];
#pragma GCC unroll 16
        for (int j = 1; j <= half; j++) sum[j - 1] = a[j] + a[R - j], difference[j - 1] = a[j] - a[R - j];
        result[0] = a[0];
#pragma GCC unroll 16
        for (int j = 0; j < half; j++) result[0] = result[0] + sum[j];
#pragma GCC unroll 16
        for (int k = 1; k <= half; k++) {
            Point<T> even = a[0];
            Point<T> odd = {Vector<T>{}, Vector<T>{}};
#pragma GCC unroll 16
            for (int j = 1; j <= half; j++) {
                const T c = T(turns<R>.cos[j * k % R]), s = T(turns<R>.sin[j * k % R]);
                even = {even.re + sum[j - 1].re * c, even.im + sum[j - 1].im * c};
                odd = {odd.re + difference[j - 1].im * s, odd.im - difference[j - 1].re * s};
            }
            result[k] = even + odd;
            result[R - k] = even - odd;
        }
#pragma GCC unroll 16
        for (int k = 0; k < R; k++) a[k] = result[k];
    }
}

template <class T, int R> void stage(const Point<T>* x, Point<T>* y, const FftStage& at) {
    const int64_t m = at.points, s = at.stride;
    const T* w = static_cast<const T*>(at.twiddles);
    for (int64_t p = 0; p < m; p++, w += 2 * (R - 1)) {
        const Point<T>* from = x + s * p;
        Point<T>* to = y + s * R * p;
        if (p == 0) {  // all twiddles are 1
            for (int64_t q = 0; q < s; q++) {
                Point<T> a[R];
#pragma GCC unroll 16
                for (int k = 0; k < R; k++) a[k] = from[q + s * m * k];
                butterfly<T, R>(a);
#pragma GCC unroll 16
                for (int k = 0; k < R; k++) to[q + s * k] = a[k];
            }
            continue;
        }
        for (int64_t q = 0; q < s; q++) {
            Point<T> a[R];
#pragma GCC unroll 16
            for (int k = 0; k < R; k++) a[k] = from[q + s * m * k];
            butterfly<T, R>(a);
            to[q] = a[0];
#pragma GCC unroll 16
            for (int k = 1; k < R; k++) to[q + s * k] = times(a[k], w[2 * k - 2], w[2 * k - 1]);
        }
    }
}

// Transforms the points at `from` with the help of two buffers, one of which may be `from`; returns where they end up.
template <class T> Point<T>* run_stages(const FftPlan& plan, Point<T>* from, Point<T>* a, Point<T>* b) {
    Point<T>* x = from;
    for (int i = 0; i < plan.stage_count; i++) {
        const FftStage& at = plan.stages[i];
        Point<T>* y = x == a ? b : a;
        switch (at.radix) {
        case 2: stage<T, 2>(x, y, at); break;
        case 3: stage<T, 3>(x, y, at); break;
        case 4: stage<T, 4>(x, y, at); break;
        case 5: stage<T, 5>(x, y, at); break;
        case 7: stage<T, 7>(x, y, at); break;
        case 8: stage<T, 8>(x, y, at); break;
        case 11: stage<T, 11>(x, y, at); break;
        default: stage<T, 13>(x, y, at); break;
        }
        x = y;
    }
    return x;
}

// ---- moving between memory and tiles

template <class V, class I, I... i> WISP_INLINE V pick_even(V a, V b, std::integer_sequence<I, i...>) {
    return __builtin_shufflevector(a, b, (2 * i)...);
}
template <class V, class I, I... i> WISP_INLINE V pick_odd(V a, V b, std::integer_sequence<I, i...>) {
    return __builtin_shufflevector(a, b, (2 * i + 1)...);
}
template <class V, class I, I... i> WISP_INLINE V zip_low(V a, V b, std::integer_sequence<I, i...>) {
    constexpr int n = sizeof...(i);
    return __builtin_shufflevector(a, b, (i / 2 + (i & 1) * n)...);
}
template <class V, class I, I... i> WISP_INLINE V zip_high(V a, V b, std::integer_sequence<I, i...>) {
    constexpr int n = sizeof...(i);
    return __builtin_shufflevector(a, b, (n / 2 + i / 2 + (i & 1) * n)...);
}
// Swaps blocks of d lanes between a pair of rows of a transposition.
template <int d, class V, class I, I... i> WISP_INLINE void swap_blocks(V& a, V& b, std::integer_sequence<I, i...>) {
    constexpr int n = sizeof...(i);
    const V x = __builtin_shufflevector(a, b, ((i & d) ? n + i - d : i)...);
    b = __builtin_shufflevector(a, b, ((i & d) ? n + i : i + d)...);
    a = x;
}
template <class T> using Lanes = std::make_integer_sequence<int, int(lanes<T>)>;

template <class T, int d> WISP_INLINE void transpose_step(Vector<T>* rows) {
#pragma GCC unroll 16
    for (int i = 0; i < int(lanes<T>); i++)
        if (!(i & d)) swap_blocks<d>(rows[i], rows[i | d], Lanes<T>{});
}
template <class T> WISP_INLINE void transpose(Vector<T>* rows) {
    transpose_step<T, 1>(rows);
    transpose_step<T, 2>(rows);
    transpose_step<T, 4>(rows);
    if constexpr (lanes<T> == 16) transpose_step<T, 8>(rows);
}

template <class T> WISP_INLINE Point<T> load_point(const T* p) {
    const Vector<T> a = load(p), b = load(p + lanes<T>);
    return {pick_even(a, b, Lanes<T>{}), pick_odd(a, b, Lanes<T>{})};
}
template <class T> WISP_INLINE void store_point(T* p, Point<T> v) {
    store(p, zip_low(v.re, v.im, Lanes<T>{}));
    store(p + lanes<T>, zip_high(v.re, v.im, Lanes<T>{}));
}
template <class T> WISP_INLINE Point<T> swapped(Point<T> v) { return {v.im, v.re}; }
template <class V, class I, I... i> WISP_INLINE V reversed(V v, std::integer_sequence<I, i...>) {
    return __builtin_shufflevector(v, v, (int(sizeof...(i)) - 1 - i)...);
}
template <class T> WISP_INLINE Point<T> backwards(Point<T> v) { return {reversed(v.re, Lanes<T>{}), reversed(v.im, Lanes<T>{})}; }

// tile[j] = the complex numbers at p + 2 * (j * stride + lane); lanes past `count` are 0. The inverse transform is the
// forward one between exchanged real and imaginary parts.
template <class T> void load_columns(Point<T>* tile, const T* p, int64_t n, int64_t stride, int64_t count, bool swap) {
    if (count == lanes<T>) {
        for (int64_t j = 0; j < n; j++) {
            __builtin_prefetch(p + 2 * (j + 8) * stride);
            __builtin_prefetch(p + 2 * (j + 8) * stride + lanes<T>);
            const Point<T> v = load_point(p + 2 * j * stride);
            tile[j] = swap ? swapped(v) : v;
        }
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        const T* row = p + 2 * j * stride;
        T* cells = reinterpret_cast<T*>(tile + j);
        std::memset(cells, 0, sizeof(Point<T>));
        T *re = cells + (swap ? lanes<T> : 0), *im = cells + (swap ? 0 : lanes<T>);
        for (int64_t l = 0; l < count; l++) re[l] = row[2 * l], im[l] = row[2 * l + 1];
    }
}

template <class T> void store_columns(const Point<T>* tile, T* p, int64_t n, int64_t stride, int64_t count, bool swap, T scale) {
    if (count == lanes<T>) {
        for (int64_t j = 0; j < n; j++) {
            const Point<T> v = {tile[j].re * scale, tile[j].im * scale};
            store_point(p + 2 * j * stride, swap ? swapped(v) : v);
        }
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        T* row = p + 2 * j * stride;
        const T* cells = reinterpret_cast<const T*>(tile + j);
        const T *re = cells + (swap ? lanes<T> : 0), *im = cells + (swap ? 0 : lanes<T>);
        for (int64_t l = 0; l < count; l++) row[2 * l] = re[l] * scale, row[2 * l + 1] = im[l] * scale;
    }
}

// The same with the lanes in neighbouring rows: tile[j] lane l = the complex number at p + l * stride + 2 * j.
template <class T> void load_rows(Point<T>* tile, const T* p, int64_t n, int64_t stride, int64_t count, bool swap) {
    constexpr int64_t L = lanes<T>;
    int64_t j = 0;
    if (count == L)
        for (; j + L <= n; j += L) {
            Vector<T> re[L], im[L];
#pragma GCC unroll 16
            for (int64_t l = 0; l < L; l++) {
                const Point<T> v = load_point(p + l * stride + 2 * j);
                re[l] = v.re, im[l] = v.im;
            }
            transpose<T>(re);
            transpose<T>(im);
#pragma GCC unroll 16
            for (int64_t i = 0; i < L; i++) tile[j + i] = swap ? Point<T>{im[i], re[i]} : Point<T>{re[i], im[i]};
        }
    if (j == n) return;
    if (count < L) std::memset(static_cast<void*>(tile + j), 0, size_t(n - j) * sizeof(Point<T>));
    for (int64_t l = 0; l < count; l++) {
        const T* row = p + l * stride;
        T* cells = reinterpret_cast<T*>(tile);
        for (int64_t i = j; i < n; i++)
            cells[2 * L * i + l + (swap ? L : 0)] = row[2 * i], cells[2 * L * i + l + (swap ? 0 : L)] = row[2 * i + 1];
    }
}

template <class T> void store_rows(const Point<T>* tile, T* p, int64_t n, int64_t stride, int64_t count, bool swap, T scale) {
    constexpr int64_t L = lanes<T>;
    int64_t j = 0;
    if (count == L)
        for (; j + L <= n; j += L) {
            Vector<T> re[L], im[L];
#pragma GCC unroll 16
            for (int64_t i = 0; i < L; i++) {
                re[i] = (swap ? tile[j + i].im : tile[j + i].re) * scale;
                im[i] = (swap ? tile[j + i].re : tile[j + i].im) * scale;
            }
            transpose<T>(re);
            transpose<T>(im);
#pragma GCC unroll 16
            for (int64_t l = 0; l < L; l++) store_point(p + l * stride + 2 * j, Point<T>{re[l], im[l]});
        }
    for (int64_t l = 0; l < count; l++) {
        T* row = p + l * stride;
        const T* cells = reinterpret_cast<const T*>(tile);
        const T *re = cells + l + (swap ? L : 0), *im = cells + l + (swap ? 0 : L);
        for (int64_t i = j; i < n; i++) row[2 * i] = re[2 * L * i] * scale, row[2 * i + 1] = im[2 * L * i] * scale;
    }
}

// ---- one tile of any length that has stages or a convolution

// Room for the two buffers of a tile transform of this plan, one point to spare for real transforms.
template <class T> Point<T>* tile_buffers(const FftPlan& plan, Point<T>*& other) {
    const int64_t n = (plan.bluestein() ? plan.convolution->n : plan.n) + 1;
    auto* buffer = static_cast<Point<T>*>(scratch(0, size_t(2 * n) * sizeof(Point<T>)));
    other = buffer + n;
    return buffer;
}

// The transform of tile a (length n), with buffer b; returns where the result is.
template <class T> Point<T>* transform_tile(const FftPlan& plan, Point<T>* a, Point<T>* b) {
    if (!plan.bluestein()) return run_stages(plan, a, a, b);
    const FftPlan& longer = *plan.convolution;
    const T *chirp = static_cast<const T*>(plan.chirp), *spectrum = static_cast<const T*>(plan.spectrum);
    for (int64_t k = 0; k < plan.n; k++) a[k] = times(a[k], chirp[2 * k], chirp[2 * k + 1]);
    std::memset(static_cast<void*>(a + plan.n), 0, size_t(longer.n - plan.n) * sizeof(Point<T>));
    Point<T>* x = run_stages(longer, a, a, b);
    for (int64_t k = 0; k < longer.n; k++) x[k] = swapped(times(x[k], spectrum[2 * k], spectrum[2 * k + 1]));
    x = run_stages(longer, x, a, b);
    for (int64_t k = 0; k < plan.n; k++) x[k] = times(swapped(x[k]), chirp[2 * k], chirp[2 * k + 1]);
    return x;
}

// From the transform z of pairs of real numbers to that of the real numbers, n + 1 points: with e and o the transforms
// of the even and odd elements, z = e + i o. half_to_real goes back, times 2.
template <class T, class P, class W> WISP_INLINE void split_pair(P& low, P& high, W re, W im, bool forward) {
    const P sum = {low.re + high.re, low.im - high.im}, difference = {low.re - high.re, low.im + high.im};
    // forward: e = sum / 2, w o = -i w difference / 2;  back: i conj(w) difference
    const P turned = forward ? P{difference.re * im + difference.im * re, difference.im * im - difference.re * re}
                             : P{difference.re * im - difference.im * re, difference.re * re + difference.im * im};
    const T half = forward ? T(0.5) : T(1);
    low = {(sum.re + turned.re) * half, (sum.im + turned.im) * half};
    high = {(sum.re - turned.re) * half, (turned.im - sum.im) * half};
}
template <class P, class T> void convert_real(P* z, int64_t n, const T* w, bool forward) {
    if (forward) {
        const P first = z[0];
        z[0] = {first.re + first.im, decltype(first.re){}};
        z[n] = {first.re - first.im, decltype(first.re){}};
    } else {
        const P first = z[0], last = z[n];
        z[0] = {first.re + last.re, first.re - last.re};
    }
    int64_t k = 1;
    if constexpr (sizeof(P) == 2 * sizeof(T)) {  // one row: a vector of points from below and one from above
        constexpr int64_t L = lanes<T>;
        T* const cells = reinterpret_cast<T*>(z);
        for (; 2 * (k + L) <= n; k += L) {
            T *const below = cells + 2 * k, *const above = cells + 2 * (n - k - L + 1);
            Point<T> low = load_point(below), high = backwards(load_point(above));
            const Point<T> turn = load_point(w + 2 * k);
            split_pair<T>(low, high, turn.re, turn.im, forward);
            store_point(below, low);
            store_point(above, backwards(high));
        }
    }
    for (; 2 * k < n; k++) split_pair<T>(z[k], z[n - k], w[2 * k], w[2 * k + 1], forward);
    if (n % 2 == 0 && n > 0) {
        const T factor = forward ? T(1) : T(2);
        z[n / 2] = {z[n / 2].re * factor, z[n / 2].im * -factor};
    }
}
template <class T> struct Pair {
    T re, im;
};

// ---- one long row, folded into a matrix

template <class T> void fold_first(const FftPlan& plan, const T* in, Point<T>* folded, int64_t block, bool swap) {
    constexpr int64_t L = lanes<T>;
    const int64_t rows = plan.rows->n, columns = plan.columns->n, at = block * L;
    const int64_t count = columns - at < L ? columns - at : L;
    Point<T>* b;
    Point<T>* a = tile_buffers(*plan.rows, b);
    load_columns(a, in + 2 * at, rows, columns, count, swap);
    const Point<T>* x = run_stages(*plan.rows, a, a, b);
    const Point<T>* fine = static_cast<const Point<T>*>(plan.fine);
    for (int64_t first = 0; first < rows; first += L) {
        Vector<T> re[L], im[L];
        for (int64_t i = 0; i < L; i++) {
            const int64_t row = first + i;
            if (row >= rows) {
                re[i] = im[i] = Vector<T>{};
                continue;
            }
            const int64_t k = row * at;  // below n
            const double *high = plan.high + 2 * (k / plan.base), *low = plan.low + 2 * (k % plan.base);
            const T c = T(high[0] * low[0] - high[1] * low[1]), s = T(high[0] * low[1] + high[1] * low[0]);
            const Point<T> v = times(x[row], times(fine[row], c, s));
            re[i] = v.re, im[i] = v.im;
        }
        transpose<T>(re);
        transpose<T>(im);
        Point<T>* to = folded + first / L * columns + at;
        for (int64_t l = 0; l < count; l++) to[l] = {re[l], im[l]};
    }
}

template <class T> void fold_second(const FftPlan& plan, Point<T>* folded, T* out, int64_t block, bool swap, T scale) {
    constexpr int64_t L = lanes<T>;
    const int64_t rows = plan.rows->n, columns = plan.columns->n, at = block * L;
    Point<T>* b;
    Point<T>* a = tile_buffers(*plan.columns, b);
    const Point<T>* x = run_stages(*plan.columns, folded + block * columns, a, b);
    store_columns(x, out + 2 * at, columns, rows, rows - at < L ? rows - at : L, swap, scale);
}

template <class T> void long_row(const FftPlan& plan, const T* in, T* out, bool swap, T scale) {
    constexpr int64_t L = lanes<T>;
    const int64_t rows = plan.rows->n, columns = plan.columns->n;
    const int64_t blocks = (rows + L - 1) / L, column_blocks = (columns + L - 1) / L;
    auto* folded = static_cast<Point<T>*>(scratch(1, size_t(blocks * columns) * sizeof(Point<T>)));
    auto grain = [](int64_t length) { return 1 + 8191 / (length * lanes<T>); };
    parallel_for(column_blocks, grain(rows), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) fold_first(plan, in, folded, i, swap);
    });
    parallel_for(blocks, grain(columns), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) fold_second(plan, folded, out, i, swap, scale);
    });
}

template <class T> void long_bluestein(const FftPlan& plan, const T* in, T* out, bool swap, T scale) {
    const FftPlan& longer = *plan.convolution;
    auto* x = static_cast<Pair<T>*>(scratch(2, size_t(longer.n) * sizeof(Pair<T>)));
    const auto* from = reinterpret_cast<const Pair<T>*>(in);
    auto* to = reinterpret_cast<Pair<T>*>(out);
    const auto *chirp = static_cast<const Pair<T>*>(plan.chirp), *spectrum = static_cast<const Pair<T>*>(plan.spectrum);
    auto times_pair = [](Pair<T> a, Pair<T> b) { return Pair<T>{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; };
    for (int64_t k = 0; k < plan.n; k++) x[k] = times_pair(swap ? Pair<T>{from[k].im, from[k].re} : from[k], chirp[k]);
    std::memset(static_cast<void*>(x + plan.n), 0, size_t(longer.n - plan.n) * sizeof(Pair<T>));
    T* flat = reinterpret_cast<T*>(x);
    long_row<T>(longer, flat, flat, false, T(1));
    for (int64_t k = 0; k < longer.n; k++) x[k] = times_pair(x[k], spectrum[k]);
    long_row<T>(longer, flat, flat, true, T(1));
    for (int64_t k = 0; k < plan.n; k++) {
        const Pair<T> v = times_pair(x[k], chirp[k]);
        to[k] = swap ? Pair<T>{v.im * scale, v.re * scale} : Pair<T>{v.re * scale, v.im * scale};
    }
}

// ---- whole tensors

template <class T> void columns_of(const FftPlan& plan, const T* in, T* out, int64_t outer, int64_t inner, bool swap, T scale) {
    constexpr int64_t L = lanes<T>;
    const int64_t n = plan.n, blocks = inner / L, rest = inner % L, size = n * inner;
    const int64_t units = outer * blocks, odd_units = (outer * rest + L - 1) / L;
    parallel_for(units + odd_units, 1 + 8191 / (n * L), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            Point<T>* b;
            Point<T>* a = tile_buffers(plan, b);
            if (i < units) {
                const int64_t place = 2 * (i / blocks * size + i % blocks * L);
                load_columns(a, in + place, n, inner, L, swap);
                store_columns(transform_tile(plan, a, b), out + place, n, inner, L, swap, scale);
                continue;
            }
            // The columns that are left over of several matrices share a tile.
            const int64_t first = (i - units) * L, count = least(L, outer * rest - first);
            auto place_of = [&](int64_t l) { return 2 * ((first + l) / rest * size + blocks * L + (first + l) % rest); };
            std::memset(static_cast<void*>(a), 0, size_t(n) * sizeof(Point<T>));
            for (int64_t l = 0; l < count; l++) {
                const T* from = in + place_of(l);
                T* cells = reinterpret_cast<T*>(a) + l;
                for (int64_t j = 0; j < n; j++, from += 2 * inner, cells += 2 * L)
                    cells[swap ? L : 0] = from[0], cells[swap ? 0 : L] = from[1];
            }
            const Point<T>* x = transform_tile(plan, a, b);
            for (int64_t l = 0; l < count; l++) {
                T* to = out + place_of(l);
                const T* cells = reinterpret_cast<const T*>(x) + l;
                for (int64_t j = 0; j < n; j++, to += 2 * inner, cells += 2 * L)
                    to[0] = cells[swap ? L : 0] * scale, to[1] = cells[swap ? 0 : L] * scale;
            }
        }
    });
}

template <class T> void rows_of(const FftPlan& plan, FftKind kind, const T* in, int64_t in_stride, T* out, int64_t out_stride,
                                int64_t count, bool swap, T scale) {
    constexpr int64_t L = lanes<T>;
    const int64_t n = plan.n;
    const T* w = static_cast<const T*>(plan.real_twiddles);
    const int64_t tile_length = plan.bluestein() ? plan.convolution->n : n;
    const bool foldable = plan.bluestein() ? plan.convolution->rows != nullptr : plan.rows != nullptr;
    // A row that folds into full tiles stays in the first cache; tiles of many rows do not.
    const bool folds_well =
        (kind == FftKind::complex || n <= 1024) && plan.rows && n >= 512 && plan.rows->n % L == 0 && plan.columns->n % L == 0;
    if (foldable && (tile_length > fft_tile_limit || count < L / 2 || folds_well)) {
        auto one = [&](int64_t i) {
            const T* from = in + i * in_stride;
            T* to = out + i * out_stride;
            if (kind == FftKind::half_to_real) {  // the first pass is in place, in a copy of the row
                auto* copy = static_cast<Pair<T>*>(scratch(3, size_t(n + 1) * sizeof(Pair<T>)));
                std::memcpy(static_cast<void*>(copy), from, size_t(n + 1) * sizeof(Pair<T>));
                convert_real(copy, n, w, false);
                from = reinterpret_cast<const T*>(copy);
            }
            if (plan.bluestein()) long_bluestein(plan, from, to, swap, scale);
            else long_row(plan, from, to, swap, scale);
            if (kind == FftKind::real_to_half) convert_real(reinterpret_cast<Pair<T>*>(to), n, w, true);
        };
        if (count < 4) {  // threads share each row
            for (int64_t i = 0; i < count; i++) one(i);
            return;
        }
        parallel_for(count, 1 + 8191 / tile_length, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) one(i);
        });
        return;
    }
    parallel_for((count + L - 1) / L, 1 + 8191 / (tile_length * L), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = i * L, active = count - first < L ? count - first : L;
            Point<T>* b;
            Point<T>* a = tile_buffers(plan, b);
            load_rows(a, in + first * in_stride, kind == FftKind::half_to_real ? n + 1 : n, in_stride, active,
                      swap && kind == FftKind::complex);
            if (kind == FftKind::half_to_real) {
                convert_real(a, n, w, false);
                for (int64_t j = 0; j < n; j++) a[j] = swapped(a[j]);
            }
            Point<T>* x = transform_tile(plan, a, b);
            if (kind == FftKind::real_to_half) convert_real(x, n, w, true);
            store_rows(x, out + first * out_stride, kind == FftKind::real_to_half ? n + 1 : n, out_stride, active, swap, scale);
        }
    });
}

// Real rows of odd length, two in each lane as the real and the imaginary part of one transform.
template <class T> void odd_rows_to_half(const FftPlan& plan, const T* in, T* out, int64_t count, T scale) {
    constexpr int64_t L = lanes<T>;
    const int64_t n = plan.n, half = n / 2 + 1, tile_length = plan.bluestein() ? plan.convolution->n : n;
    parallel_for((count + 2 * L - 1) / (2 * L), 1 + 8191 / (tile_length * L), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = 2 * L * i, active = least(2 * L, count - first);
            Point<T>* b;
            Point<T>* a = tile_buffers(plan, b);
            const T* from = in + first * n;
            int64_t j = 0;
            if (active == 2 * L)
                for (; j + L <= n; j += L) {
                    Vector<T> re[L], im[L];
#pragma GCC unroll 16
                    for (int64_t l = 0; l < L; l++) re[l] = load(from + 2 * l * n + j), im[l] = load(from + (2 * l + 1) * n + j);
                    transpose<T>(re);
                    transpose<T>(im);
#pragma GCC unroll 16
                    for (int64_t l = 0; l < L; l++) a[j + l] = {re[l], im[l]};
                }
            T* const cells = reinterpret_cast<T*>(a);
            for (; j < n; j++)
                for (int64_t l = 0; l < 2 * L; l++) cells[2 * L * j + l / 2 + l % 2 * L] = l < active ? from[l * n + j] : T(0);
            Point<T>* x = transform_tile(plan, a, b);
            Point<T>* other = x == a ? b : a;
            other[0] = {x[0].im, Vector<T>{}};
            x[0] = {x[0].re, Vector<T>{}};
            for (int64_t k = 1; k < half; k++) {
                const Point<T> low = x[k], high = x[n - k];
                x[k] = {(low.re + high.re) * T(0.5), (low.im - high.im) * T(0.5)};
                other[k] = {(low.im + high.im) * T(0.5), (high.re - low.re) * T(0.5)};
            }
            T* const to = out + 2 * first * half;
            store_rows(x, to, half, 4 * half, (active + 1) / 2, false, scale);
            store_rows(other, to + 2 * half, half, 4 * half, active / 2, false, scale);
        }
    });
}

// The other half of a spectrum has the conjugates of the one that is known, at the opposite frequencies.
template <class V, class I, I... i> WISP_INLINE V reversed_pairs(V v, std::integer_sequence<I, i...>) {
    return __builtin_shufflevector(v, v, (int(sizeof...(i)) - 2 - i + 2 * (i % 2))...);
}
template <class T> void mirror_as(const T* half, T* whole, int64_t batch, int rank, const int64_t* sizes) {
    constexpr int64_t L = lanes<T>;
    const int64_t n = sizes[rank - 1], points = n / 2 + 1;
    int64_t rows = 1;
    for (int d = 0; d < rank - 1; d++) rows *= sizes[d];
    Vector<T> signs;
    for (int64_t l = 0; l < L; l++) signs[l] = l % 2 ? T(-1) : T(1);
    parallel_for(batch * rows, 1 + 8191 / n, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; item++) {
            int64_t rest = item % rows, opposite = item - rest, step = 1;
            for (int d = rank - 2; d >= 0; d--) {
                const int64_t i = rest % sizes[d];
                opposite += (i ? sizes[d] - i : 0) * step;
                rest /= sizes[d], step *= sizes[d];
            }
            T* const to = whole + 2 * item * n;
            std::memcpy(static_cast<void*>(to), half + 2 * item * points, size_t(2 * points) * sizeof(T));
            const T* const from = half + 2 * opposite * points;
            int64_t k = points;
            for (; k + L / 2 <= n; k += L / 2) store(to + 2 * k, reversed_pairs(load(from + 2 * (n - k - L / 2 + 1)), Lanes<T>{}) * signs);
            for (; k < n; k++) to[2 * k] = from[2 * (n - k)], to[2 * k + 1] = -from[2 * (n - k) + 1];
        }
    });
}
void mirror(bool f64, const void* half, void* whole, int64_t batch, int rank, const int64_t* sizes) {
    if (f64) mirror_as(static_cast<const double*>(half), static_cast<double*>(whole), batch, rank, sizes);
    else mirror_as(static_cast<const float*>(half), static_cast<float*>(whole), batch, rank, sizes);
}

struct PlanInUse {
    HeldPlan held;
    PlanInUse(int64_t n, bool f64, bool real) : held(hold_plan(n, f64, real)) {}
    ~PlanInUse() { let_go_of_plan(held); }
    const FftPlan& operator*() const { return *held.plan; }
};

bool columns(bool f64, const void* in, void* out, int64_t outer, int64_t n, int64_t inner, bool inverse, double scale) {
    const PlanInUse held(n, f64, false);
    const FftPlan& plan = *held;
    if ((plan.bluestein() ? plan.convolution->n : n) > fft_tile_limit || (inner < 4 && outer >= 4)) return false;
    if (f64) columns_of(plan, static_cast<const double*>(in), static_cast<double*>(out), outer, inner, inverse, scale);
    else columns_of(plan, static_cast<const float*>(in), static_cast<float*>(out), outer, inner, inverse, float(scale));
    return true;
}

void rows(FftKind kind, bool f64, int, const int64_t* sizes, const void* in, void* out, int64_t count, bool inverse, double scale) {
    const bool real = kind != FftKind::complex;
    const int64_t n = sizes[0], half = 2 * (n / 2 + 1);
    if (kind == FftKind::real_to_half && n % 2) {
        const PlanInUse plan(n, f64, false);
        if (f64) odd_rows_to_half(*plan, static_cast<const double*>(in), static_cast<double*>(out), count, scale);
        else odd_rows_to_half(*plan, static_cast<const float*>(in), static_cast<float*>(out), count, float(scale));
        return;
    }
    const int64_t in_stride = kind == FftKind::half_to_real ? half
                              : real                        ? n
                                                            : 2 * n,
                  out_stride = kind == FftKind::real_to_half ? half
                               : real                        ? n
                                                             : 2 * n;
    const PlanInUse plan(real ? n / 2 : n, f64, real);
    if (f64) rows_of(*plan, kind, static_cast<const double*>(in), in_stride, static_cast<double*>(out), out_stride, count, inverse, scale);
    else rows_of(*plan, kind, static_cast<const float*>(in), in_stride, static_cast<float*>(out), out_stride, count, inverse, float(scale));
}

}  // namespace

extern const FftKernels fft_table = {&rows, &columns, &mirror, 1, false, fft_tile_limit / 2};

}  // namespace wisp::cpu::WISP_ISA
