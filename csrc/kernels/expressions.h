// What the table's expressions need beyond math.h and special.h, for numbers. Shared by the kernels of the CPU, once per
// instruction set, and those of the GPU, whose compiler gets this text too.
#pragma once
#ifndef __CUDACC_RTC__
#include <type_traits>

#include "cpu/math.h"
#include "kernels/pointwise.h"
#include "kernels/special.h"
#endif

namespace WISP_NUMBERS {
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
template <class T> WISP_INLINE T piecewise(T, T gradient) { return gradient; }  // see unary.h
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
        return T((x > T(0)) - (x < T(0)));  // of NaN 0, as in PyTorch
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
#define WISP_INTEGER_IDENTITY(name)                   \
    WISP_INLINE int64_t name(int64_t x) { return x; } \
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
// Reckoned from the nearer end, which it meets exactly at weight 0 or 1.
template <class T> WISP_INLINE T between(T a, T b, T weight) {
    bool near;
    if constexpr (is_complex_number<T>) near = weight.real() * weight.real() + weight.imag() * weight.imag() < 0.25;
    else near = abs(weight) < T(0.5);
    return (near ? a : b) + (near ? weight : weight - T(1)) * (b - a);
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
template <class T> WISP_INLINE T fmod(T a, T b)
    requires std::is_integral_v<T>
{
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
        if (q == T(0)) return copysign(T(0), copysign(T(1), a) * b);
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
// The next number after a towards b: of this type, or, where `least` is not 0, of a shorter one with `fraction` bits behind the leading
// one, of which `least` is the smallest number above 0 and `largest` the largest.
template <class T> WISP_INLINE T next_number(T a, T b, T fraction, T least, T largest) {
    if (least == T(0)) {
        if constexpr (sizeof(T) == 4) return __builtin_nextafterf(a, b);
        else return __builtin_nextafter(a, b);
    }
    if (a != a || b != b) return a + b;
    if (a == b) return b;
    if (a == T(0)) return copysign(least, b);
    if (is_infinite(a)) return copysign(largest, a);
    const T size = abs(a);
    const double power = __builtin_ldexp(1.0, __builtin_ilogb(double(size)));
    const bool outwards = (b > a) == (a > T(0));
    const T step = larger(T(__builtin_ldexp(!outwards && double(size) == power ? power / 2 : power, -int(fraction))), least);
    return copysign(outwards ? size + step : size - step, a);
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
// The derivative of power(x, e): none at e = 0, whatever x is (x to the 0 is 1 even for NaN, and the exponent is the same for all x).
template <class T> WISP_INLINE T power_slope(T x, T e) {
    if constexpr (is_complex_number<T>) return e == T(0) ? T(0) : e * power(x, e - T(1));
    else return e * power(x, e == T(0) ? T(0) : e - T(1));
}
// The derivative of sin(u) / u with u = pi x, times pi; by its series where the terms would cancel.
template <class T> WISP_INLINE T sinc_slope(T x) {
    auto k = [](double v) { return constant<T>(v); };
    const T u = x * k(3.141592653589793), s = u * u;
    const T near =
        ((((s * k(1.0 / 518918400) - k(1.0 / 3991680)) * s + k(1.0 / 45360)) * s - k(1.0 / 840)) * s + k(1.0 / 30)) * s - k(1.0 / 3);
    const bool small = abs(x) < decltype(abs(x))(0.1);
    return small ? u * near * k(3.141592653589793) : (cos(u) * u - sin(u)) / (x * u);
}
template <class T> WISP_INLINE T mish_slope(T x) {
    const T t = tanh(log1p(exp(x)));
    return t + x * sigmoid(x) * (T(1) - t * t);
}

}  // namespace
}  // namespace WISP_NUMBERS
