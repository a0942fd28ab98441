// Vectors for kernels that a plain loop does not express well: reductions, softmax, norms.
//
// Vector<float> and Vector<double> are 64 bytes of GCC vector: one AVX-512 register, two of AVX2, four of SSE or NEON. Half
// types are loaded into and stored from Vector<float>. Include from kernel files only, as math.h.
#pragma once
#include "core/dtype.h"
#include "math.h"

// These functions are always inlined, so that no vector is passed by any calling convention.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace wisp::cpu::WISP_ISA {
namespace {

using FloatVector = float __attribute__((vector_size(64)));
using DoubleVector = double __attribute__((vector_size(64)));
using IntVector = int32_t __attribute__((vector_size(64)));
using LongVector = int64_t __attribute__((vector_size(64)));

template <class T> struct vector_of;
template <> struct vector_of<float> {
    using type = FloatVector;
    using mask = IntVector;
};
template <> struct vector_of<double> {
    using type = DoubleVector;
    using mask = LongVector;
};
template <class T> using Vector = typename vector_of<T>::type;
template <class T> constexpr int64_t lanes = 64 / int64_t(sizeof(T));

// The type in which a dtype is computed.
template <class T> struct compute_of {
    using type = float;
};
template <> struct compute_of<double> {
    using type = double;
};
template <class T> using Compute = typename compute_of<T>::type;

// Calls body with a value of the dtype's type.
template <class Body> WISP_INLINE void with_floating(DType d, Body body) {
    switch (d) {
    case DType::f32: return body(float());
    case DType::f64: return body(double());
    case DType::bf16: return body(bf16());
    case DType::f16: return body(f16());
    default: return;
    }
}

template <class C> WISP_INLINE Vector<C> splat(C x) { return Vector<C>{} + x; }

// f of each register of the vectors. The compiler takes comparisons of vectors wider than a register apart into single lanes.
template <class F, class V, class... More> WISP_INLINE V by_register(F f, V v, More... more) {
    if constexpr (sizeof(V) <= WISP_VECTOR_BYTES) {
        return f(v, more...);
    } else {
        const auto part = [](auto x, size_t at) __attribute__((always_inline)) {
            using E = std::remove_cvref_t<decltype(x[0])>;
            typedef E Part __attribute__((vector_size(WISP_VECTOR_BYTES)));
            Part p;
            std::memcpy(&p, (const char*)&x + at, sizeof p);
            return p;
        };
#pragma GCC unroll 4
        for (size_t at = 0; at < sizeof(V); at += WISP_VECTOR_BYTES) {
            const auto p = f(part(v, at), part(more, at)...);
            std::memcpy((char*)&v + at, &p, sizeof p);
        }
        return v;
    }
}
template <class V> WISP_INLINE V maximum(V a, V b) {
    return by_register([](auto x, auto y) __attribute__((always_inline)) { return x > y ? x : y; }, a, b);
}

// ---- loads and stores. Partial ones touch only the first n elements.

template <class T> WISP_INLINE Vector<T> load(const T* p) {
    Vector<T> v;
    std::memcpy(&v, p, 64);
    return v;
}
template <class T> WISP_INLINE void store(T* p, Vector<T> v) { std::memcpy(p, &v, 64); }
WISP_INLINE FloatVector load(const bf16* p) {
    using Short = uint16_t __attribute__((vector_size(32)));
    using Word = uint32_t __attribute__((vector_size(64)));
    Short s;
    std::memcpy(&s, p, 32);
    return (FloatVector)(__builtin_convertvector(s, Word) << 16);
}
WISP_INLINE void store(bf16* p, FloatVector v) {
    using Short = uint16_t __attribute__((vector_size(32)));
    using Word = uint32_t __attribute__((vector_size(64)));
    const Word u = (Word)v;
    Word rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    rounded = by_register([](auto r, auto x) __attribute__((always_inline)) { return x == x ? r : decltype(r){} + 0x7fc0; }, rounded, v);
    const Short s = __builtin_convertvector(rounded, Short);
    std::memcpy(p, &s, 32);
}
WISP_INLINE FloatVector load(const f16* p) {
    alignas(64) float x[16];
    for (int i = 0; i < 16; i++) x[i] = float(p[i]);
    return load(x);
}
WISP_INLINE void store(f16* p, FloatVector v) {
    alignas(64) float x[16];
    store(x, v);
    for (int i = 0; i < 16; i++) p[i] = f16(x[i]);
}

// Copies n < 64 / item elements in at most a few moves of fixed length.
template <int Bytes> WISP_INLINE void copy_tail(char* to, const char* from, int64_t bytes) {
    if (bytes & Bytes) {
        std::memcpy(to, from, Bytes);
        to += Bytes;
        from += Bytes;
    }
    if constexpr (Bytes > 2) copy_tail<Bytes / 2>(to, from, bytes);
}
template <class T> WISP_INLINE auto load_partial(const T* p, int64_t n, Compute<T> fill) {
    using C = Compute<T>;
    alignas(64) T whole[lanes<C>];
    const T filler = T(fill);
    for (int i = 0; i < lanes<C>; i++) whole[i] = filler;
    copy_tail<32>((char*)whole, (const char*)p, n * int64_t(sizeof(T)));
    return load(whole);
}
template <class T> WISP_INLINE void store_partial(T* p, Vector<Compute<T>> v, int64_t n) {
    alignas(64) T whole[lanes<Compute<T>>];
    store(whole, v);
    copy_tail<32>((char*)p, (const char*)whole, n * int64_t(sizeof(T)));
}

// ---- across lanes

WISP_INLINE float sum_lanes(FloatVector v) {
    using Half = float __attribute__((vector_size(32)));
    using Quarter = float __attribute__((vector_size(16)));
    Half h[2];
    std::memcpy(h, &v, 64);
    h[0] += h[1];
    Quarter q[2];
    std::memcpy(q, h, 32);
    q[0] += q[1];
    return (q[0][0] + q[0][2]) + (q[0][1] + q[0][3]);
}
WISP_INLINE double sum_lanes(DoubleVector v) {
    using Half = double __attribute__((vector_size(32)));
    Half h[2];
    std::memcpy(h, &v, 64);
    h[0] += h[1];
    return (h[0][0] + h[0][2]) + (h[0][1] + h[0][3]);
}
WISP_INLINE float max_lanes(FloatVector v) {
    using Half = float __attribute__((vector_size(32)));
    using Quarter = float __attribute__((vector_size(16)));
    Half h[2];
    std::memcpy(h, &v, 64);
    h[0] = maximum(h[0], h[1]);
    Quarter q[2];
    std::memcpy(q, h, 32);
    q[0] = maximum(q[0], q[1]);
    const float a = q[0][0] > q[0][2] ? q[0][0] : q[0][2], b = q[0][1] > q[0][3] ? q[0][1] : q[0][3];
    return a > b ? a : b;
}
WISP_INLINE double max_lanes(DoubleVector v) {
    double m = v[0];
    for (int i = 1; i < 8; i++) m = v[i] > m ? v[i] : m;
    return m;
}

// ---- functions

// e^x for x <= 0; below 2^-126 the result is zero.
constexpr float least_exponent = -87.33654f;
WISP_INLINE FloatVector exp_nonpositive(FloatVector x) {
    const FloatVector clamped =
        by_register([](auto y) __attribute__((always_inline)) { return y < least_exponent ? decltype(y){} + least_exponent : y; }, x);
    const FloatVector shifted = clamped * 1.44269504f + round_magic;
    const FloatVector n = shifted - round_magic;
    FloatVector r = clamped - n * 0.693145752f;
    r = r - n * 1.42860677e-6f;
    FloatVector p = r * 0.00138204603f + 0.00836925115f;
    p = p * r + 0.0416682847f;
    p = p * r + 0.166665167f;
    p = p * r + 0.49999994f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const FloatVector scale = (FloatVector)(((IntVector)shifted - (round_magic_bits - 127)) << 23);
    return by_register([](auto y, auto e) __attribute__((always_inline)) { return y < least_exponent ? decltype(y){} : e; }, x, p * scale);
}
WISP_INLINE DoubleVector exp_nonpositive(DoubleVector x) {
    for (int i = 0; i < 8; i++) x[i] = __builtin_exp(x[i]);
    return x;
}

// ---- walking along a row

// One vector's worth of a row: all lanes, or the first `count` at its end.
template <class C> struct WholeVector {
    template <class T> WISP_INLINE Vector<C> load(const T* p, C = 0) const { return WISP_ISA::load(p); }
    template <class T> WISP_INLINE void store(T* p, Vector<C> v) const { WISP_ISA::store(p, v); }
    WISP_INLINE Vector<C> keep(Vector<C> v) const { return v; }
};
template <class C> struct PartVector {
    int64_t count;
    template <class T> WISP_INLINE Vector<C> load(const T* p, C fill = 0) const { return load_partial(p, count, fill); }
    template <class T> WISP_INLINE void store(T* p, Vector<C> v) const { store_partial(p, v, count); }
    WISP_INLINE Vector<C> keep(Vector<C> v) const {  // zero beyond the row
        using Mask = typename vector_of<C>::mask;
        Mask index;
        for (int i = 0; i < lanes<C>; i++) index[i] = i;
        const auto c = decltype(index[0] + 0)(count);
        return by_register([=](auto x, auto i) __attribute__((always_inline)) { return i < c ? x : decltype(x){}; }, v, index);
    }
};

// Calls body(i, vector) along [0, n): body loads, keeps and stores through `vector`, at p + i.
template <class C, class Body> WISP_INLINE void each_vector(int64_t n, Body body) {
    int64_t i = 0;
    for (; i + 2 * lanes<C> <= n; i += 2 * lanes<C>) {
        body(i, WholeVector<C>{});
        body(i + lanes<C>, WholeVector<C>{});
    }
    if (i + lanes<C> <= n) {
        body(i, WholeVector<C>{});
        i += lanes<C>;
    }
    if (i < n) body(i, PartVector<C>{n - i});
}

// Sums K expressions along [0, n): value(i, vector, out) fills out[0..K). Blocks of bounded length in C, their totals
// in double, so that long rows keep their digits.
template <class C, int K, class Value> WISP_INLINE void sum_along(int64_t n, double (&totals)[K], Value value) {
    constexpr int64_t block = 4096, step = lanes<C>;
    for (int k = 0; k < K; k++) totals[k] = 0;
    for (int64_t start = 0; start < n; start += block) {
        const int64_t length = n - start < block ? n - start : block;
        Vector<C> a[K] = {}, b[K] = {}, v[K];
        int64_t i = 0;
        for (; i + 2 * step <= length; i += 2 * step) {
            value(start + i, WholeVector<C>{}, v);
            for (int k = 0; k < K; k++) a[k] += v[k];
            value(start + i + step, WholeVector<C>{}, v);
            for (int k = 0; k < K; k++) b[k] += v[k];
        }
        if (i + step <= length) {
            value(start + i, WholeVector<C>{}, v);
            for (int k = 0; k < K; k++) a[k] += v[k];
            i += step;
        }
        if (i < length) {
            const PartVector<C> part{length - i};
            value(start + i, part, v);
            for (int k = 0; k < K; k++) b[k] += part.keep(v[k]);
        }
        for (int k = 0; k < K; k++) totals[k] += double(sum_lanes(a[k] + b[k]));
    }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
