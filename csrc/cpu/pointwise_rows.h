// From rows of the table to kernels: the loops. Included per instruction set.
#pragma once
#include <type_traits>

#include "kernels/expressions.h"

namespace wisp::cpu::WISP_ISA {
namespace {

#include "../kernels/row.h"

// Rows of one angle. Floats whose turns angle_reduce can't count exactly are computed in double.
struct sin_row;
struct cos_row;
struct tan_row;
struct sinc_row;
template <class Row> constexpr bool turns =
    std::is_same_v<Row, sin_row> || std::is_same_v<Row, cos_row> || std::is_same_v<Row, tan_row> || std::is_same_v<Row, sinc_row>;
WISP_INLINE bool beyond(float x) { return (abs(x) > most_exact_angle) & (abs(x) < infinity_f); }
WISP_INLINE bool any_beyond(const float* x, int64_t n) {
    int found = 0;
    for (int64_t i = 0; i < n; i++) found |= beyond(x[i]);
    return found != 0;
}

// Quick<Row, T>: what a row's expression is for the operands that nearly all elements have, where it leaves out much of what the
// others need: those of which `measure` is at most `most`, which costs little to find out of many elements. An element's result
// depends on the element alone, whatever lies beside it.
template <class Row, class T> struct Quick {
    static constexpr bool known = false;
};
#define WISP_QUICK(row, MEASURE, MOST, VALUE)                                                                       \
    struct row##_row;                                                                                               \
    template <> struct Quick<row##_row, float> {                                                                    \
        static constexpr bool known = true;                                                                         \
        static constexpr uint32_t most = MOST;                                                                      \
        static WISP_INLINE uint32_t measure([[maybe_unused]] float a, [[maybe_unused]] float b) { return MEASURE; } \
        static WISP_INLINE float value([[maybe_unused]] float a, [[maybe_unused]] float b) { return VALUE; }        \
    };
WISP_INLINE uint32_t above_denormals(float x) { return bits_as<uint32_t>(x) - 0x00800000u; }  // negative numbers and NaN are large
WISP_INLINE uint32_t size_of(float x) { return bits_as<uint32_t>(x) & 0x7fffffffu; }
WISP_QUICK(exp, size_of(a), 0x42ae0000u, near_exp(a))    // 87
WISP_QUICK(exp2, size_of(a), 0x42fc0000u, near_exp2(a))  // 126
WISP_QUICK(log, above_denormals(a), 0x7effffffu, log_normal(a))
WISP_QUICK(log2, above_denormals(a), 0x7effffffu, log2_normal(a))
WISP_QUICK(log10, above_denormals(a), 0x7effffffu, log10_normal(a))
WISP_QUICK(logit, above_denormals(a), 0x3effffffu, log_normal(a / (1.0f - a)))  // below 1
WISP_QUICK(sin, size_of(a), most_near_angle, a == 0.0f ? a : sine_of(near_angle_reduce(a)))
WISP_QUICK(cos, size_of(a), most_near_angle, cosine_of(near_angle_reduce(a)))
WISP_QUICK(tan, size_of(a), most_near_angle, a == 0.0f ? a : tangent_of(near_angle_reduce(a)))
WISP_QUICK(bessel_j0, size_of(a), 0x40800000u, near_bessel_j0(a))  // 4
WISP_QUICK(i0, size_of(a), 0x41000000u, near_i0(a))                // 8
WISP_QUICK(i1, size_of(a), 0x41000000u, near_i1(a))
WISP_INLINE float quick_remainder(float a, float b) {
    const float r = copysign(divide_quickly(a, b).left, a);
    const float moved = (r < 0.0f) != (b < 0.0f) ? r + b : r;
    return r != 0.0f ? moved : r;
}
WISP_INLINE float quick_floor_divide(float a, float b) {
    const Division d = divide_quickly(a, b);
    const bool differ = (bits_as<int32_t>(a) ^ bits_as<int32_t>(b)) < 0;
    const float more = d.left != 0.0f ? 1.0f : 0.0f;
    return differ ? -(d.whole + more) : d.whole;
}
WISP_QUICK(fmod, !divides_quickly(a, b), 0, copysign(divide_quickly(a, b).left, a))
WISP_QUICK(remainder, !divides_quickly(a, b), 0, quick_remainder(a, b))
WISP_QUICK(div_floor, !divides_quickly(a, b), 0, quick_floor_divide(a, b))
#undef WISP_QUICK

// ---- the loops. A result may be one of the operands (in-place), never a shifted part of one: hence ivdep.

// Products of complex numbers as PyTorch has them: infinities that C's rules would find again are NaN, and every product is
// rounded, so that z times its conjugate is real.
struct mul_row;
using z64 = std::complex<float>;
using z128 = std::complex<double>;
template <class R> __attribute__((optimize("fp-contract=off"))) void multiply_complex(R* out, const R* a, const R* b, int64_t n) {
    using Int = std::conditional_t<sizeof(R) == 4, int32_t, int64_t>;
    typedef R Vector __attribute__((vector_size(WISP_VECTOR_BYTES)));
    typedef Int Places __attribute__((vector_size(WISP_VECTOR_BYTES)));
    constexpr int64_t lanes = WISP_VECTOR_BYTES / int64_t(sizeof(R));
    Places even, odd, other;
    Vector sign;
    for (int i = 0; i < lanes; i++) {
        even[i] = i & ~1, odd[i] = i | 1, other[i] = i ^ 1;
        sign[i] = i & 1 ? R(1) : R(-1);
    }
    const auto product = [&](int64_t i, size_t bytes) __attribute__((always_inline)) {
        Vector x{}, y{};
        std::memcpy(&x, a + i, bytes), std::memcpy(&y, b + i, bytes);
        const Vector z = x * __builtin_shuffle(y, even) + __builtin_shuffle(x, other) * (__builtin_shuffle(y, odd) * sign);
        std::memcpy(out + i, &z, bytes);
    };
    int64_t i = 0;
#pragma GCC unroll 4
    for (; i + lanes <= 2 * n; i += lanes) product(i, sizeof(Vector));
    if (i < 2 * n) product(i, size_t(2 * n - i) * sizeof(R));
}

// A step is 1, or 0 for an operand that is one number, which is there even where n is 0.
template <class Row, class T, int StepA, int StepB> void quick_loop(T* out, const T* a, const T* b, int64_t n, const Param* params) {
    using Q = Quick<Row, T>;
    const T one_a = StepA ? T() : a[0], one_b = StepB ? T() : b[0];
    const auto at_a = [&](int64_t i) __attribute__((always_inline)) { return StepA ? a[i] : one_a; };
    const auto at_b = [&](int64_t i) __attribute__((always_inline)) { return StepB ? b[i] : one_b; };
    constexpr int64_t chunk = 2048;  // read twice, the second time from the first cache
    for (int64_t start = 0; start < n; start += chunk) {
        const int64_t end = least(n, start + chunk);
        uint32_t largest = 0;
        for (int64_t i = start; i < end; i++) {
            const uint32_t m = Q::measure(at_a(i), at_b(i));
            if constexpr (Q::most == 0) largest |= m;
            else largest = m > largest ? m : largest;
        }
        if (largest <= Q::most) {
#pragma GCC ivdep
            for (int64_t i = start; i < end; i++) out[i] = Q::value(at_a(i), at_b(i));
            continue;
        }
        for (int64_t i = start; i < end; i++) {
            const T x = at_a(i), y = at_b(i);
            if constexpr (turns<Row>)
                if (beyond(x)) {
                    out[i] = T(Row::template forward<double>(x, x, x, params));
                    continue;
                }
            out[i] = Q::measure(x, y) <= Q::most ? Q::value(x, y) : T(Row::template forward<T>(x, y, y, params));
        }
    }
}

// Calls body with a function for powers of x to small whole numbers, which are products, and says whether e is one.
struct pow_number_row;
template <class T, class Body> WISP_INLINE bool by_products(T e, Body body) {
    if (e == T(1)) body([](T x) __attribute__((always_inline)) { return x; });
    else if (e == T(2)) body([](T x) __attribute__((always_inline)) { return x * x; });
    else if (e == T(3)) body([](T x) __attribute__((always_inline)) { return x * x * x; });
    else return false;
    return true;
}

template <class Row, class T>
void forward_loop(char* const* pointers, int64_t n, const Param* params_, [[maybe_unused]] unsigned constants) {
    // bool | bool is an int
    using Out = std::conditional_t<Row::result == boolean, bool, decltype(Row::template forward<T>(T(), T(), T(), nullptr))>;
    Param params[4] = {};
    if (params_)
        for (int i = 0; i < 4; i++) params[i] = params_[i];
    auto* out = reinterpret_cast<Out*>(pointers[0]);
    const T* a = reinterpret_cast<const T*>(pointers[1]);
    if constexpr (Quick<Row, T>::known && Row::arity == 1) return quick_loop<Row, T, 1, 1>(out, a, a, n, params);
    if constexpr (turns<Row> && std::is_same_v<T, float>)
        if (any_beyond(a, n)) {
            for (int64_t i = 0; i < n; i++)
                out[i] = beyond(a[i]) ? float(Row::template forward<double>(a[i], a[i], a[i], params))
                                      : Row::template forward<T>(a[i], a[i], a[i], params);
            return;
        }
    if constexpr (std::is_same_v<Row, pow_number_row> && std::is_floating_point_v<T>)
        if (by_products(parameter<T>(params[0]), [&](auto power) __attribute__((always_inline)) {
#pragma GCC ivdep
                for (int64_t i = 0; i < n; i++) out[i] = power(a[i]);
            }))
            return;
    if constexpr (Row::arity == 1) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], a[i], a[i], params);
    } else {
        const T* b = reinterpret_cast<const T*>(pointers[2]);
        if constexpr (Row::arity == 2) {
            if constexpr (std::is_same_v<Row, mul_row> && is_complex_number<T>) {
                using R = typename T::value_type;
                return multiply_complex(reinterpret_cast<R*>(out), reinterpret_cast<const R*>(a), reinterpret_cast<const R*>(b), n);
            }
            if constexpr (Quick<Row, T>::known) {
                if (constants == 4) return quick_loop<Row, T, 1, 0>(out, a, b, n, params);
                if (constants == 2) return quick_loop<Row, T, 0, 1>(out, a, b, n, params);
                return quick_loop<Row, T, 1, 1>(out, a, b, n, params);
            }
            if constexpr (std::is_floating_point_v<T>) {
                if (constants == 4) {
                    const T v = b[0];
#pragma GCC ivdep
                    for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], v, v, params);
                    return;
                }
                if (constants == 2) {
                    const T v = a[0];
#pragma GCC ivdep
                    for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(v, b[i], b[i], params);
                    return;
                }
            }
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], b[i], b[i], params);
        } else {
            const T* c = reinterpret_cast<const T*>(pointers[3]);
#pragma GCC ivdep
            for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], b[i], c[i], params);
        }
    }
}

template <class Row, class T, int N>
void gradient_loop(char* const* pointers, int64_t n, const Param* params_, [[maybe_unused]] unsigned constants) {
    Param params[4] = {};
    if (params_)
        for (int i = 0; i < 4; i++) params[i] = params_[i];
    auto* out = reinterpret_cast<T*>(pointers[0]);
    const T* g = reinterpret_cast<const T*>(pointers[1]);
    const T* a = reinterpret_cast<const T*>(pointers[2]);
    const T* b = reinterpret_cast<const T*>(pointers[3]);
    const T* c = reinterpret_cast<const T*>(pointers[4]);
    const T* y = reinterpret_cast<const T*>(pointers[5]);
    if constexpr (turns<Row> && std::is_same_v<T, float>)
        if (any_beyond(a, n)) {
            for (int64_t i = 0; i < n; i++)
                out[i] = beyond(a[i]) ? float(Row::template gradient0<double>(g[i], a[i], a[i], a[i], y[i], params))
                                      : Row::template gradient0<T>(g[i], a[i], a[i], a[i], y[i], params);
            return;
        }
    if constexpr (std::is_same_v<Row, pow_number_row> && std::is_floating_point_v<T>)
        if (by_products(parameter<T>(params[0]) - 1, [&](auto power) __attribute__((always_inline)) {
                const T e = parameter<T>(params[0]);
#pragma GCC ivdep
                for (int64_t i = 0; i < n; i++) out[i] = g[i] * (e * power(a[i]));
            }))
            return;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        if constexpr (N == 0) out[i] = T(Row::template gradient0<T>(g[i], a[i], b[i], c[i], y[i], params));
        else if constexpr (N == 1) out[i] = T(Row::template gradient1<T>(g[i], a[i], b[i], c[i], y[i], params));
        else out[i] = T(Row::template gradient2<T>(g[i], a[i], b[i], c[i], y[i], params));
    }
}

template <class Row, class T, int N> constexpr PointwiseKernel gradient_kernel() {
    if constexpr (N >= Row::arity) return nullptr;
    else {
        using Out = typename decltype([] {
            if constexpr (N == 0) return std::type_identity<decltype(Row::template gradient0<T>(T(), T(), T(), T(), T(), nullptr))>();
            else if constexpr (N == 1) return std::type_identity<decltype(Row::template gradient1<T>(T(), T(), T(), T(), T(), nullptr))>();
            else return std::type_identity<decltype(Row::template gradient2<T>(T(), T(), T(), T(), T(), nullptr))>();
        }())::type;
        if constexpr (std::is_same_v<Out, NoGradient>) return nullptr;
        else return &gradient_loop<Row, T, N>;
    }
}

template <class Row> constexpr PointwiseKernelRow make_row() {
    PointwiseKernelRow r{};
    if constexpr (Row::types & F) {
        r.forward[compute_f32] = &forward_loop<Row, float>;
        r.forward[compute_f64] = &forward_loop<Row, double>;
        r.gradient[0][0] = gradient_kernel<Row, float, 0>();
        r.gradient[0][1] = gradient_kernel<Row, double, 0>();
        r.gradient[1][0] = gradient_kernel<Row, float, 1>();
        r.gradient[1][1] = gradient_kernel<Row, double, 1>();
        r.gradient[2][0] = gradient_kernel<Row, float, 2>();
        r.gradient[2][1] = gradient_kernel<Row, double, 2>();
    }
    if constexpr (Row::types & C) {
        r.forward[compute_c64] = &forward_loop<Row, z64>;
        r.forward[compute_c128] = &forward_loop<Row, z128>;
        r.gradient[0][2] = gradient_kernel<Row, z64, 0>();
        r.gradient[0][3] = gradient_kernel<Row, z128, 0>();
        r.gradient[1][2] = gradient_kernel<Row, z64, 1>();
        r.gradient[1][3] = gradient_kernel<Row, z128, 1>();
        r.gradient[2][2] = gradient_kernel<Row, z64, 2>();
        r.gradient[2][3] = gradient_kernel<Row, z128, 2>();
    }
    if constexpr ((Row::types & (I | B)) && Row::result != promote) {
        r.forward[compute_i64] = &forward_loop<Row, int64_t>;
        r.forward[compute_u64] = &forward_loop<Row, uint64_t>;
    }
    return r;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
