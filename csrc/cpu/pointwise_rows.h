// From rows of the table to kernels: the numbers that expressions work on, and the loops. Included per instruction set.
#pragma once
#include <type_traits>

#include "math.h"
#include "pointwise.h"
#include "special.h"

namespace wisp::cpu::WISP_ISA {
namespace {

template <class T> inline constexpr bool is_complex_number = false;
template <class T> inline constexpr bool is_complex_number<std::complex<T>> = true;

template <class T> WISP_INLINE T constant(double v) {
    if constexpr (std::is_integral_v<T>) return v >= 9.2e18 ? T(INT64_MAX) : v <= -9.2e18 ? T(INT64_MIN) : v != v ? T(0) : T(v);
    else if constexpr (is_complex_number<T>) return T(typename T::value_type(v));
    else return T(v);
}
template <class T> WISP_INLINE T parameter(const Param& p) {
    if constexpr (std::is_integral_v<T>) return T(p.integer);
    else if constexpr (is_complex_number<T>) return T(typename T::value_type(p.real), typename T::value_type(p.imag));
    else return T(p.real);
}

// ---- what expressions need beyond math.h, for numbers

template <class T> WISP_INLINE T where(bool c, T a, T b) { return c ? a : b; }
template <class T> WISP_INLINE T nought(T) { return T(0); }
template <class T> WISP_INLINE T conj(T x) {
    if constexpr (is_complex_number<T>) return T(x.real(), -x.imag());
    else return x;
}
template <class T> WISP_INLINE T re(T x) {
    if constexpr (is_complex_number<T>) return T(x.real());
    else return x;
}
template <class T> WISP_INLINE T magnitude(T x) { return T(abs(x)); }
WISP_INLINE int64_t abs(int64_t x) { return x < 0 ? int64_t(-uint64_t(x)) : x; }
WISP_INLINE uint64_t abs(uint64_t x) { return x; }
template <class T> WISP_INLINE T sgn(T x) {
    if constexpr (is_complex_number<T>) {
        const auto m = abs(x);
        return m == 0 ? T(0) : T(x.real() / m, x.imag() / m);
    } else {
        return x != x ? x : T((x > T(0)) - (x < T(0)));
    }
}
template <class T> WISP_INLINE bool is_infinite(T x) {
    if constexpr (is_complex_number<T>) return is_infinite(x.real()) || is_infinite(x.imag());
    else if constexpr (std::is_integral_v<T>) return false;
    else return abs(x) == T(INFINITY);
}
template <class T> WISP_INLINE bool is_finite(T x) {
    if constexpr (is_complex_number<T>) return is_finite(x.real()) && is_finite(x.imag());
    else if constexpr (std::is_integral_v<T>) return true;
    else return abs(x) < T(INFINITY);
}
WISP_INLINE bool sign_bit(float x) { return __builtin_signbit(x); }
WISP_INLINE bool sign_bit(double x) { return __builtin_signbit(x); }
WISP_INLINE bool sign_bit(int64_t x) { return x < 0; }
WISP_INLINE bool sign_bit(uint64_t) { return false; }
#define WISP_INTEGER_IDENTITY(name)                      \
    WISP_INLINE int64_t name(int64_t x) { return x; }    \
    WISP_INLINE uint64_t name(uint64_t x) { return x; }
WISP_INTEGER_IDENTITY(floor)
WISP_INTEGER_IDENTITY(ceil)
WISP_INTEGER_IDENTITY(trunc)
WISP_INTEGER_IDENTITY(nearbyint)
#undef WISP_INTEGER_IDENTITY
template <class T> WISP_INLINE T bit_not(T x) { return ~x; }
template <class T> WISP_INLINE T bit_and(T a, T b) { return a & b; }
template <class T> WISP_INLINE T bit_or(T a, T b) { return a | b; }
template <class T> WISP_INLINE T bit_xor(T a, T b) { return a ^ b; }
template <class T> WISP_INLINE T shift_left(T a, T b) { return b < T(0) || b >= T(64) ? T(0) : T(uint64_t(a) << b); }
template <class T> WISP_INLINE T shift_right(T a, T b) {
    if constexpr (std::is_signed_v<T>) return b < 0 || b >= 63 ? a >> 63 : a >> b;
    else return b >= 64 ? T(0) : a >> b;
}
template <class T> WISP_INLINE T larger(T a, T b) { return a != a ? a : (b != b ? b : (a > b ? a : b)); }
template <class T> WISP_INLINE T smaller(T a, T b) { return a != a ? a : (b != b ? b : (a < b ? a : b)); }
template <class T> WISP_INLINE bool at_least_zero(T b) {
    if constexpr (is_complex_number<T>) return b.real() >= 0;
    else return b >= T(0);
}

// Division by an integer zero and the one quotient that overflows would trap; front doors refuse zero before.
template <class T> WISP_INLINE T trunc_divide(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        if (b == T(0)) return T(0);
        if constexpr (std::is_signed_v<T>)
            if (b == T(-1)) return T(-uint64_t(a));
        return a / b;
    } else {
        return trunc(a / b);
    }
}
template <class T> WISP_INLINE T fmod(T a, T b) requires std::is_integral_v<T> {
    if (b == T(0)) return T(0);
    if constexpr (std::is_signed_v<T>)
        if (b == T(-1)) return T(0);
    return a % b;
}
template <class T> WISP_INLINE T remainder(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        const T r = fmod(a, b);
        return r != T(0) && (r < T(0)) != (b < T(0)) ? r + b : r;
    } else {
        const T r = fmod(a, b);
        return r != T(0) && (r < T(0)) != (b < T(0)) ? r + b : r;
    }
}
template <class T> WISP_INLINE T floor_divide(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        const T q = trunc_divide(a, b);
        return fmod(a, b) != T(0) && (a < T(0)) != (b < T(0)) ? q - T(1) : q;
    } else {
        if (b == T(0)) return a / b;
        const T r = fmod(a, b);
        T q = (a - r) / b;
        if (r != T(0) && (b < T(0)) != (r < T(0))) q -= T(1);
        if (q == T(0)) return copysign(T(0), a / b);
        T whole = floor(q);
        if (q - whole > T(0.5)) whole += T(1);
        return whole;
    }
}
template <class T> WISP_INLINE T power(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
        if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? (b % T(2) == T(0) ? T(1) : T(-1)) : T(0);
        uint64_t result = 1, base = uint64_t(a);
        for (uint64_t e = uint64_t(b); e; e >>= 1, base *= base)
            if (e & 1) result *= base;
        return T(result);
    } else {
        return pow(a, b);
    }
}
template <class T> WISP_INLINE T greatest_divisor(T a, T b) {
    a = abs(a), b = abs(b);
    while (b != T(0)) {
        const T r = a % b;
        a = b, b = r;
    }
    return a;
}
template <class T> WISP_INLINE T least_multiple(T a, T b) {
    const T d = greatest_divisor(a, b);
    return d == T(0) ? T(0) : abs(T(a / d * b));
}
template <class T> WISP_INLINE T nextafter(T a, T b) {
    if constexpr (sizeof(T) == 4) return __builtin_nextafterf(a, b);
    else return __builtin_nextafter(a, b);
}
template <class T> WISP_INLINE T log_add_exp(T a, T b) {
    if constexpr (is_complex_number<T>) {
        const T high = a.real() >= b.real() ? a : b, low = a.real() >= b.real() ? b : a;
        if (!is_finite(high.real()) && high.real() == low.real()) return high.real() < 0 ? high : log(exp(high) + exp(low));
        return high + log1p(exp(low - high));
    } else {
        if (is_infinite(a) && a == b) return a;
        const T m = larger(a, b);
        return m + log1p(exp(-abs(a - b)));
    }
}
template <class T> WISP_INLINE T log_add_exp2(T a, T b) {
    if (is_infinite(a) && a == b) return a;
    return larger(a, b) + log1p(exp2(-abs(a - b))) * T(1.4426950408889634);
}
template <class T> WISP_INLINE T log_odds(T x) { return log(x / (T(1) - x)); }
template <class T> WISP_INLINE T gelu_tanh_slope(T x) {
    const T u = tanh(T(0.79788456080286535588) * (x + T(0.044715) * x * x * x));
    return T(0.5) * (T(1) + u) + T(0.5) * x * (T(1) - u * u) * T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * x * x);
}
template <class T> WISP_INLINE T mish_slope(T x) {
    const T t = tanh(log1p(exp(x)));
    return t + x * sigmoid(x) * (T(1) - t * t);
}

#include "../ops/row.h"

// ---- the loops. A result may be one of the operands (in-place), never a shifted part of one: hence ivdep.

template <class Row, class T> void forward_loop(char* const* pointers, int64_t n, const Param* params_, [[maybe_unused]] unsigned constants) {
    // bool | bool is an int
    using Out = std::conditional_t<Row::result == boolean, bool, decltype(Row::template forward<T>(T(), T(), T(), nullptr))>;
    Param params[4] = {};
    if (params_)
        for (int i = 0; i < 4; i++) params[i] = params_[i];
    auto* out = reinterpret_cast<Out*>(pointers[0]);
    const T* a = reinterpret_cast<const T*>(pointers[1]);
    if constexpr (Row::arity == 1) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; i++) out[i] = Row::template forward<T>(a[i], a[i], a[i], params);
    } else {
        const T* b = reinterpret_cast<const T*>(pointers[2]);
        if constexpr (Row::arity == 2) {
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

template <class Row, class T, int N> void gradient_loop(char* const* pointers, int64_t n, const Param* params_, [[maybe_unused]] unsigned constants) {
    Param params[4] = {};
    if (params_)
        for (int i = 0; i < 4; i++) params[i] = params_[i];
    auto* out = reinterpret_cast<T*>(pointers[0]);
    const T* g = reinterpret_cast<const T*>(pointers[1]);
    const T* a = reinterpret_cast<const T*>(pointers[2]);
    const T* b = reinterpret_cast<const T*>(pointers[3]);
    const T* c = reinterpret_cast<const T*>(pointers[4]);
    const T* y = reinterpret_cast<const T*>(pointers[5]);
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
        using z64 = std::complex<float>;
        using z128 = std::complex<double>;
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

