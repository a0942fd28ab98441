// The folds that reductions are made of (sum, product, max, min) and the maps applied to elements before them.
// For reduce.cpp only: everything lives in the anonymous namespace of the instruction set.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "isa.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t stretch = 4096;  // contiguous elements folded in lanes before they join the total

// ---- folds -----------------------------------------------------------------------------------------------------

template <class R> struct Pair {
    R real, imag;
    friend WISP_INLINE Pair operator+(Pair a, Pair b) { return {a.real + b.real, a.imag + b.imag}; }
    friend WISP_INLINE Pair operator*(Pair a, Pair b) { return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real}; }
};
template <class T> constexpr bool is_pair = false;
template <class R> constexpr bool is_pair<Pair<R>> = true;

template <class T> struct Limits;
template <> struct Limits<float> {
    static constexpr float low = -__builtin_inff(), high = __builtin_inff();
};
template <> struct Limits<double> {
    static constexpr double low = -__builtin_inf(), high = __builtin_inf();
};
template <> struct Limits<int64_t> {
    static constexpr int64_t low = INT64_MIN, high = INT64_MAX;
};
template <> struct Limits<uint64_t> {
    static constexpr uint64_t low = 0, high = UINT64_MAX;
};
template <> struct Limits<int32_t> {
    static constexpr int32_t low = INT32_MIN, high = INT32_MAX;
};
template <> struct Limits<uint8_t> {
    static constexpr uint8_t low = 0, high = 1;
};  // of bools

// The type that stretches of T join: wider where that costs nothing and errors or overflow would show.
template <class T> struct Wider {
    using type = T;
};
template <> struct Wider<float> {
    using type = double;
};
template <> struct Wider<Pair<float>> {
    using type = Pair<double>;
};
template <> struct Wider<uint8_t> {
    using type = int64_t;
};

template <class A, class T> WISP_INLINE A widened(T x) {
    if constexpr (is_pair<T>) return A{decltype(A::real)(x.real), decltype(A::imag)(x.imag)};
    else return A(x);
}

// Each fold works on scalars and on vectors alike. `element`: what an element that was read counts as.
struct AsRead {
    static constexpr bool exact = false;  // whether the order of the steps is all the same
    template <class V> static WISP_INLINE V element(V x) { return x; }
};
struct Sum : AsRead {
    template <class T> using Total = typename Wider<T>::type;
    template <class T> static constexpr T start() { return T{}; }
    template <class V> static WISP_INLINE V step(V a, V x) { return a + x; }
};
struct SumOfSquares : Sum {
    template <class V> static WISP_INLINE V element(V x) { return x * x; }
};
struct SumOfNumbers : Sum {  // NaN counts as nothing
    template <class V> static WISP_INLINE V element(V x) { return x == x ? x : V{}; }
};
struct Count : Sum {  // of bools, which are any byte
    template <class V> static WISP_INLINE V element(V x) { return x > 1 ? V{} + 1 : x; }
};
struct Product : AsRead {
    template <class T> using Total = typename Wider<T>::type;
    template <class T> static constexpr T start() {
        if constexpr (is_pair<T>) return T{1, 0};
        else return T(1);
    }
    template <class V> static WISP_INLINE V step(V a, V x) { return a * x; }
};
struct Max : AsRead {  // NaN wins, and stays
    static constexpr bool exact = true;
    template <class T> using Total = T;
    template <class T> static constexpr T start() { return Limits<T>::low; }
    template <class V> static WISP_INLINE V of_numbers(V a, V x) { return x > a ? x : a; }
    template <class V> static WISP_INLINE V step(V a, V x) {
        const V larger = of_numbers(a, x);
        return x != x ? x : larger;
    }
};
struct Min : AsRead {
    static constexpr bool exact = true;
    template <class T> using Total = T;
    template <class T> static constexpr T start() { return Limits<T>::high; }
    template <class V> static WISP_INLINE V of_numbers(V a, V x) { return x < a ? x : a; }
    template <class V> static WISP_INLINE V step(V a, V x) {
        const V smaller = of_numbers(a, x);
        return x != x ? x : smaller;
    }
};

template <class Extreme> struct OfNumbers : AsRead {
    template <class V> static WISP_INLINE V step(V a, V x) { return Extreme::of_numbers(a, x); }
};

template <class T, int W> struct Lanes {
    typedef T Vector __attribute__((vector_size(W * sizeof(T))));
    typedef T Loose __attribute__((vector_size(W * sizeof(T)), aligned(sizeof(T)), may_alias));
    static WISP_INLINE Vector load(const T* p) { return *reinterpret_cast<const Loose*>(p); }
    static WISP_INLINE void load_two(const T* p, Vector& x, Vector& y) { x = load(p), y = load(p + W); }
    // A bf16 is the upper half of a float.
    static WISP_INLINE Vector load(const bf16* p) {
        using Words = typename Lanes<uint32_t, W>::Vector;
        return Vector(__builtin_convertvector(Lanes<uint16_t, W>::load(reinterpret_cast<const uint16_t*>(p)), Words) << 16);
    }
    static WISP_INLINE void load_two(const bf16* p, Vector& x, Vector& y) {  // those at even places, and at odd ones
        const typename Lanes<uint32_t, W>::Vector pairs = Lanes<uint32_t, W>::load(reinterpret_cast<const uint32_t*>(p));
        x = Vector(pairs << 16), y = Vector(pairs & 0xffff0000u);
    }
};

// Folds the n < 2 W elements at p and the lanes of a into `Last` lanes, halving again and again.
template <class Fold, class T, int W, int Last, class S>
WISP_INLINE void fold_lanes(typename Lanes<T, W>::Vector a, const S* p, int64_t n, T* out) {
    if (n >= W) {
        a = Fold::step(a, Fold::element(Lanes<T, W>::load(p)));
        p += W;
        n -= W;
    }
    if constexpr (W == Last) {
        std::memcpy(out, &a, sizeof a);
    } else if constexpr (W == 2) {
        out[0] = Fold::step(T(a[0]), T(a[1]));
        if (n) out[0] = Fold::step(out[0], Fold::element(T(p[0])));
    } else {
        typename Lanes<T, W / 2>::Vector low, high;
        std::memcpy(&low, &a, sizeof low);
        std::memcpy(&high, reinterpret_cast<const char*>(&a) + sizeof low, sizeof high);
        fold_lanes<Fold, T, W / 2, Last>(Fold::step(low, high), p, n, out);
    }
}

template <class Fold, class T, int Last, class S> WISP_INLINE void fold_vectors(const S* p, int64_t n, T* out) {
    // 32 bytes of a sum even where 64 would do: memory is the bound, and joining the lanes takes one step less.
    constexpr int most_bytes = Fold::exact ? 64 : 32;
    constexpr int lanes = (WISP_VECTOR_BYTES < most_bytes ? WISP_VECTOR_BYTES : most_bytes) / int(sizeof(T));
    using V = Lanes<T, lanes>;
    using Vector = typename V::Vector;
    const Vector start = Vector{} + Fold::template start<T>();
    Vector total = start;
    while (n >= 4 * lanes) {  // sums are at most 16 steps deep before they join, which keeps rounding errors small
        Vector a = start, b = start, c = start, d = start, x, y;
        int64_t steps = n / (4 * lanes);
        steps = Fold::exact || steps < 16 ? steps : 16;
        n -= steps * 4 * lanes;
        for (; steps > 0; steps--, p += 4 * lanes) {
            V::load_two(p, x, y);
            a = Fold::step(a, Fold::element(x));
            b = Fold::step(b, Fold::element(y));
            V::load_two(p + 2 * lanes, x, y);
            c = Fold::step(c, Fold::element(x));
            d = Fold::step(d, Fold::element(y));
        }
        total = Fold::step(total, Fold::step(Fold::step(a, b), Fold::step(c, d)));
    }
    for (; n >= 2 * lanes; n -= lanes, p += lanes) total = Fold::step(total, Fold::element(V::load(p)));
    fold_lanes<Fold, T, lanes, Last>(total, p, n, out);
}

// The product of floats: those of 32 each join in double, because below the range of floats a step takes many times as long.
template <class S> WISP_INLINE double fold_product(const S* p, int64_t n) {
    constexpr int lanes = (WISP_VECTOR_BYTES < 32 ? WISP_VECTOR_BYTES : 32) / 4;
    using V = Lanes<float, lanes>;
    using Vector = typename V::Vector;
    typename Lanes<double, lanes>::Vector total = {};
    total += 1.0;
    while (n >= 4 * lanes) {
        Vector a, b, c, d, x, y;
        V::load_two(p, a, b);
        V::load_two(p + 2 * lanes, c, d);
        int64_t steps = n / (4 * lanes);
        steps = steps < 16 ? steps : 16;
        n -= steps * 4 * lanes;
        for (p += 4 * lanes; --steps > 0; p += 4 * lanes) {
            V::load_two(p, x, y);
            a *= x, b *= y;
            V::load_two(p + 2 * lanes, x, y);
            c *= x, d *= y;
        }
        total *= __builtin_convertvector(a * b, decltype(total)) * __builtin_convertvector(c * d, decltype(total));
    }
    for (; n >= lanes; n -= lanes, p += lanes) total *= __builtin_convertvector(V::load(p), decltype(total));
    double result;
    fold_lanes<Product, double, lanes, 1>(total, static_cast<const double*>(nullptr), 0, &result);
    for (; n > 0; n--, p++) result *= double(float(*p));
    return result;
}

// The extreme of numbers, with half the instructions: their sum tells whether there is a NaN among them (or infinities of both signs).
template <class Fold, class T, class S> WISP_INLINE T fold_extreme(const S* p, int64_t n) {
    constexpr int lanes = WISP_VECTOR_BYTES / int(sizeof(T));
    using V = Lanes<T, lanes>;
    using Vector = typename V::Vector;
    T result;
    if (n >= 4 * lanes) {
        Vector a, b, c, d, x, y;
        V::load_two(p, a, b);
        V::load_two(p + 2 * lanes, c, d);
        Vector sums[4] = {a, b, c, d};
        int64_t i = 4 * lanes;
        for (; i + 4 * lanes <= n; i += 4 * lanes) {
            V::load_two(p + i, x, y);
            a = Fold::of_numbers(a, x), sums[0] += x;
            b = Fold::of_numbers(b, y), sums[1] += y;
            V::load_two(p + i + 2 * lanes, x, y);
            c = Fold::of_numbers(c, x), sums[2] += x;
            d = Fold::of_numbers(d, y), sums[3] += y;
        }
        for (; i < n; i += lanes) {  // the last vector may have elements of the one before
            x = V::load(p + (i + lanes <= n ? i : n - lanes));
            a = Fold::of_numbers(a, x), sums[0] += x;
        }
        T sum;
        fold_lanes<Sum, T, lanes, 1>((sums[0] + sums[1]) + (sums[2] + sums[3]), p, 0, &sum);
        if (sum == sum) {
            fold_lanes<OfNumbers<Fold>, T, lanes, 1>(Fold::of_numbers(Fold::of_numbers(a, b), Fold::of_numbers(c, d)), p, 0, &result);
            return result;
        }
    }
    fold_vectors<Fold, T, 1>(p, n, &result);
    return result;
}

// How many contiguous elements fold_run takes at most: lanes of bytes must not overflow, sums of floats join in double.
template <class Fold, class T> constexpr int64_t longest_run = sizeof(T) == 1                                 ? 1024
                                                               : Fold::exact || std::is_same_v<Fold, Product> ? INT64_MAX
                                                                                                              : stretch;

template <class Fold, class T, class S> WISP_INLINE typename Fold::template Total<T> fold_run(const S* p, int64_t n) {
    using Total = typename Fold::template Total<T>;
    if constexpr (is_pair<T> && std::is_same_v<Fold, Sum>) {
        using R = decltype(T::real);
        R parts[2];
        fold_vectors<Sum, R, 2>(reinterpret_cast<const R*>(p), 2 * n, parts);
        return Total{parts[0], parts[1]};
    } else if constexpr (is_pair<T>) {
        T a[2] = {Fold::template start<T>(), Fold::template start<T>()};
        int64_t i = 0;
        for (; i + 2 <= n; i += 2)
            for (int k = 0; k < 2; k++) a[k] = Fold::step(a[k], p[i + k]);
        if (i < n) a[0] = Fold::step(a[0], p[i]);
        return widened<Total>(Fold::step(a[0], a[1]));
    } else if constexpr (sizeof(T) == 1 && sizeof(Total) > 1) {  // counts of bools: the lanes must not be joined
        T counts[16];
        const int64_t whole = n / 16 * 16;
        fold_vectors<Fold, T, 16>(p, whole, counts);
        Total total = Fold::template start<Total>();
        for (int k = 0; k < 16; k++) total = Fold::step(total, Total(counts[k]));
        for (int64_t i = whole; i < n; i++) total = Fold::step(total, Total(Fold::element(p[i])));
        return total;
    } else if constexpr (std::is_same_v<Fold, Product> && std::is_same_v<T, float>) {
        return fold_product(p, n);
    } else if constexpr (Fold::exact && std::is_floating_point_v<T>) {
        return fold_extreme<Fold, T>(p, n);
    } else {
        T result;
        fold_vectors<Fold, T, 1>(p, n, &result);
        return Total(result);
    }
}

// ---- maps ------------------------------------------------------------------------------------------------------

enum class Map : uint8_t { none, absolute, square, power, nonnan, difference, deviation, exponential };

WISP_INLINE float exp_of(float x) {
    x = x < -104.f ? -104.f : x;  // callers give x <= 0, infinity or NaN
    const float big = x > 89.f ? 89.f : x;
    const float shifted = big * 1.44269504f + 12582912.f;
    int32_t n;
    std::memcpy(&n, &shifted, 4);
    n -= 0x4b400000;
    const float whole = shifted - 12582912.f;
    float r = big - whole * 0.693145752f;
    r -= whole * 1.42860677e-6f;
    float y = 1.37805939e-3f;
    y = y * r + 8.37312452e-3f;
    y = y * r + 4.16695364e-2f;
    y = y * r + 1.66664720e-1f;
    y = y * r + 4.99999851e-1f;
    y = y * r + 1.f;
    y = y * r + 1.f;
    const int32_t half = n >> 1, first = (half + 127) << 23, second = (n - half + 127) << 23;
    float a, b;
    std::memcpy(&a, &first, 4);
    std::memcpy(&b, &second, 4);
    const float result = y * a * b;
    return x != x ? x : result;
}
WISP_INLINE double exp_of(double x) { return __builtin_exp(x); }

// dst[i] = map(src[i]); the parameter of element i is parameters[i * step].
template <class T>
void map_block(Map map, T* __restrict dst, const T* __restrict src, int64_t n, const T* parameters, int64_t step, double power) {
    switch (map) {
    case Map::absolute:
        for (int64_t i = 0; i < n; i++) dst[i] = src[i] < 0 ? -src[i] : src[i] + T(0);
        break;
    case Map::square:
        for (int64_t i = 0; i < n; i++) dst[i] = src[i] * src[i];
        break;
    case Map::power:
        for (int64_t i = 0; i < n; i++) dst[i] = T(__builtin_pow(__builtin_fabs(double(src[i])), power));
        break;
    case Map::nonnan:
        for (int64_t i = 0; i < n; i++) dst[i] = src[i] == src[i] ? src[i] : T(0);
        break;
    case Map::difference:
        for (int64_t i = 0; i < n; i++) dst[i] = src[i] - parameters[i * step];
        break;
    case Map::deviation:
        if (step == 0) {
            const T mean = *parameters;
            for (int64_t i = 0; i < n; i++) dst[i] = (src[i] - mean) * (src[i] - mean);
        } else {
            for (int64_t i = 0; i < n; i++) dst[i] = (src[i] - parameters[i]) * (src[i] - parameters[i]);
        }
        break;
    case Map::exponential:
        if (step == 0) {
            const T highest = *parameters;
            for (int64_t i = 0; i < n; i++) dst[i] = exp_of(src[i] - highest);
        } else {
            for (int64_t i = 0; i < n; i++) dst[i] = exp_of(src[i] - parameters[i]);
        }
        break;
    case Map::none: std::memcpy(dst, src, size_t(n) * sizeof(T)); break;
    }
}
// The absolute values of complex numbers, or their squares.
template <class T> void magnitudes(T* __restrict dst, const T* __restrict src, int64_t n, bool squared) {
    for (int64_t i = 0; i < n; i++) {
        const T a = src[2 * i], b = src[2 * i + 1];
        dst[i] = squared          ? a * a + b * b
                 : sizeof(T) == 4 ? T(__builtin_sqrt(double(a) * a + double(b) * b))
                                  : T(__builtin_hypot(double(a), double(b)));
    }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
