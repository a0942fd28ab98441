// The functions that expressions of the table call, on numbers of the GPU; then the shared text of the expressions.
#pragma once
#include "cuda/kernels/base.cuh"

#define WISP_NUMBERS wisp::rows
#define __builtin_inf() __builtin_bit_cast(double, 0x7ff0000000000000ULL)
#define __builtin_nan(x) __builtin_bit_cast(double, 0x7ff8000000000000ULL)
#define __builtin_floor ::floor
#define __builtin_trunc ::trunc
#define __builtin_cos ::cos
#define __builtin_sin ::sin
#define __builtin_acos ::acos
#define __builtin_sinh ::sinh
#define __builtin_cosh ::cosh
#define __builtin_copysign ::copysign
#define __builtin_log ::log
#define __builtin_log1p ::log1p
#define __builtin_exp ::exp
#define __builtin_expm1 ::expm1
#define __builtin_pow ::pow
#define __builtin_sqrt ::sqrt
#define __builtin_erf ::erf
#define __builtin_erfc ::erfc
#define __builtin_signbit(x) ((x) < 0 || (1 / (x) < 0 && (x) == 0))
#define __builtin_nextafterf ::nextafterf
#define __builtin_nextafter ::nextafter
#define __builtin_ldexp ::ldexp
#define __builtin_ilogb ::ilogb

namespace wisp::kernels {
// A number given with the call, as csrc/kernels/pointwise.h has it.
struct Param {
    double real, imag;
    int64_t integer;
};
}  // namespace wisp::kernels

namespace wisp::rows {
namespace {

#define WISP_REAL(name)                                      \
    WISP_INLINE float name(float x) { return ::name##f(x); } \
    WISP_INLINE double name(double x) { return ::name(x); }
// clang-format off: a list of names
WISP_REAL(exp) WISP_REAL(exp2) WISP_REAL(expm1) WISP_REAL(log) WISP_REAL(log2) WISP_REAL(log10) WISP_REAL(log1p) WISP_REAL(sin)
WISP_REAL(cos) WISP_REAL(tan) WISP_REAL(asin) WISP_REAL(acos) WISP_REAL(atan) WISP_REAL(sinh) WISP_REAL(cosh) WISP_REAL(tanh)
WISP_REAL(asinh) WISP_REAL(acosh) WISP_REAL(atanh) WISP_REAL(erf) WISP_REAL(erfc) WISP_REAL(sqrt) WISP_REAL(floor) WISP_REAL(ceil)
WISP_REAL(trunc) WISP_REAL(nearbyint) WISP_REAL(rsqrt)
// clang-format on
#undef WISP_REAL
#define WISP_REAL(name)                                                  \
    WISP_INLINE float name(float x, float y) { return ::name##f(x, y); } \
    WISP_INLINE double name(double x, double y) { return ::name(x, y); }
// clang-format off: a list of names
WISP_REAL(atan2) WISP_REAL(hypot) WISP_REAL(fmod) WISP_REAL(copysign)
// clang-format on
#undef WISP_REAL
// x to the y to within about a unit in the last place; false if x or the result is not a usual one. log2(x)
// is k + log2(m), with m near 1, in two parts: the series of s = (m - 1) / (m + 1) is odd, and the parts of its first two terms that a
// float can't hold are carried along. Products that are taken apart must not be fused with a sum.
WISP_INLINE bool usual_pow(float x, float y, float& result) {
    const uint32_t bits = __float_as_uint(x), above = bits - 0x3f3504f3u;  // m is from sqrt(1/2) to sqrt(2)
    const float k = float(int(above) >> 23), m = __uint_as_float((above & 0x7fffffu) + 0x3f3504f3u);
    const float f = m - 1.0f, u = m + 1.0f, u_low = m - (u - 1.0f);
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(u));
    const float s = __fmul_rn(f, r), rest = __fmul_rn(fmaf(-s, u_low, fmaf(-s, u, f)), r), z = __fmul_rn(s, s), w = __fmul_rn(s, z);
    const float s_low = fmaf(rest, z, rest), z_low = fmaf(s, s, -z), w_low = fmaf(s, z_low, fmaf(s, z, -w));
    constexpr float first = 2.88539004f, first_low = 3.8519e-8f, third = 0.96179669f;  // 2 / ln 2, and a third of it
    const float series = fmaf(fmaf(fmaf(0.2669f, z, 0.32059890f), z, 0.41219858f), z, 0.57707802f);
    const float cubic = fmaf(series, z, third), cubic_low = fmaf(series, z, third - cubic);
    const float high = __fmul_rn(s, first), added = __fmul_rn(w, cubic), both = high + added;
    const float low = ((high - both) + added) + (fmaf(w_low, third, fmaf(s_low, first, fmaf(s, first_low, fmaf(s, first, -high)))) +
                                                 fmaf(w, cubic_low, fmaf(w, cubic, -added)));
    const float log_high = k + both, log_low = (both - (log_high - k)) + low;
    const float p = __fmul_rn(y, log_high), p_low = fmaf(y, log_low, fmaf(y, log_high, -p)), sum = p + p_low;
    if (bits - 0x00800000u >= 0x7f000000u || !(::fabsf(sum) < 125.0f)) return false;
    const float shifted = sum + 12582912.0f, whole = shifted - 12582912.0f;  // to a whole number, which is in the lowest bits too
    const float t = (p - whole) + p_low;
    const float e =
        fmaf(fmaf(fmaf(fmaf(fmaf(1.54638e-4f, t, 1.33931973e-3f), t, 9.61805067e-3f), t, 0.0555035265f), t, 0.24022651f), t, 0.693147189f);
    result = __uint_as_float(__float_as_uint(fmaf(e, t, 1.0f)) + (__float_as_uint(shifted) << 23));
    return true;
}
// The usual powers are exact, as far as their products are, and quick: the exponent is mostly one number for all. Halves and small whole
// numbers have few bits; their powers are often exact, which the library knows.
WISP_INLINE float pow(float x, float y) {
    if (float result; __float_as_uint(y) << 10) {
        if (usual_pow(x, y, result)) return result;
    } else {
        if (y == 2.0f) return x * x;
        if (y == 1.0f) return x;
        if (y == 3.0f) return x * x * x;
    }
    return ::powf(x, y);
}
WISP_INLINE double pow(double x, double y) { return y == 2.0 ? x * x : y == 1.0 ? x : y == 3.0 ? x * x * x : ::pow(x, y); }
WISP_INLINE float abs(float x) { return ::fabsf(x); }
WISP_INLINE double abs(double x) { return ::fabs(x); }
WISP_INLINE float sigmoid(float x) { return 1.0f / (1.0f + ::expf(-x)); }
WISP_INLINE double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }
WISP_INLINE float normal_cdf(float x) {  // the CPU's rational approximation: within 3e-7, and cheaper than erfc
    const float c = ::fminf(::fmaxf(x, -5.5579f), 5.5579f), s = c * c;
    const float p =
        0.398942274f + s * (0.0337261534f + s * (0.00466604747f + s * (0.000167036923f + s * (6.29344463e-06f + s * 2.25608048e-08f))));
    const float q = 1.0f + s * (0.251205289f + s * (0.0285643915f + s * (0.00187468086f + s * (7.28258787e-05f + s * 1.18762771e-06f))));
    return x < -5.5579f ? 0.0f : x != x ? x : 0.5f + c * __fdividef(p, q);
}
WISP_INLINE double normal_cdf(double x) { return 0.5 * ::erfc(x * -0.70710678118654752); }

template <class T> WISP_INLINE T horner(T, T last) { return last; }
template <class T, class... Rest> WISP_INLINE T horner(T x, T first, Rest... rest) { return first + x * horner(x, T(rest)...); }

// ---- complex functions, by their definitions in terms of real ones

template <class T> using Z = std::complex<T>;
template <class T> WISP_INLINE T abs(Z<T> z) { return hypot(z.re, z.im); }
template <class T> WISP_INLINE T arg(Z<T> z) { return atan2(z.im, z.re); }
template <class T> WISP_INLINE Z<T> polar(T r, T angle) { return {r * cos(angle), r * sin(angle)}; }
template <class T> WISP_INLINE Z<T> exp(Z<T> z) {
    const T r = exp(z.re);
    return z.im == T(0) ? Z<T>(r, z.im) : Z<T>(r * cos(z.im), r * sin(z.im));
}
template <class T> WISP_INLINE Z<T> log(Z<T> z) { return {log(abs(z)), arg(z)}; }
template <class T> WISP_INLINE Z<T> sqrt(Z<T> z) {
    if (z.re == T(0) && z.im == T(0)) return {T(0), z.im};
    const T t = sqrt((abs(z.re) + abs(z)) * T(0.5));
    if (z.re >= T(0)) return {t, z.im / (T(2) * t)};
    return {abs(z.im) / (T(2) * t), copysign(t, z.im)};
}
template <class T> WISP_INLINE Z<T> sinh(Z<T> z) { return {sinh(z.re) * cos(z.im), cosh(z.re) * sin(z.im)}; }
template <class T> WISP_INLINE Z<T> cosh(Z<T> z) { return {cosh(z.re) * cos(z.im), sinh(z.re) * sin(z.im)}; }
template <class T> WISP_INLINE Z<T> tanh(Z<T> z) {
    if (abs(z.re) > T(20)) return {copysign(T(1), z.re), T(0)};
    const T s = sinh(z.re), c = cos(z.im), d = s * s + c * c;
    return {s * cosh(z.re) / d, sin(z.im) * c / d};
}
template <class T> WISP_INLINE Z<T> times_i(Z<T> z) { return {-z.im, z.re}; }
template <class T> WISP_INLINE Z<T> over_i(Z<T> z) { return {z.im, -z.re}; }
template <class T> WISP_INLINE Z<T> sin(Z<T> z) { return over_i(sinh(times_i(z))); }
template <class T> WISP_INLINE Z<T> cos(Z<T> z) { return cosh(times_i(z)); }
template <class T> WISP_INLINE Z<T> tan(Z<T> z) { return over_i(tanh(times_i(z))); }
template <class T> WISP_INLINE Z<T> asinh(Z<T> z) {
    const bool flip = z.re < T(0);
    if (flip) z = -z;
    const Z<T> r = log(z + sqrt(z * z + Z<T>(T(1))));
    return flip ? -r : r;
}
template <class T> WISP_INLINE Z<T> asin(Z<T> z) { return over_i(asinh(times_i(z))); }
template <class T> WISP_INLINE Z<T> acos(Z<T> z) { return Z<T>(T(1.57079632679489661923)) - asin(z); }
template <class T> WISP_INLINE Z<T> acosh(Z<T> z) { return log(z + sqrt(z + Z<T>(T(1))) * sqrt(z - Z<T>(T(1)))); }
template <class T> WISP_INLINE Z<T> atanh(Z<T> z) { return Z<T>(T(0.5)) * (log(Z<T>(T(1)) + z) - log(Z<T>(T(1)) - z)); }
template <class T> WISP_INLINE Z<T> atan(Z<T> z) { return over_i(atanh(times_i(z))); }
template <class T> WISP_INLINE Z<T> pow(Z<T> x, Z<T> y) {
    if (y == Z<T>(T(0))) return T(1);
    if (x == Z<T>(T(0))) return y.re > T(0) && y.im == y.im ? Z<T>(T(0)) : Z<T>(y.re < T(0) ? T(INFINITY) : T(NAN), T(NAN));
    return exp(y * log(x));
}
WISP_INLINE Z<float> pow(Z<float> x, Z<float> y) {  // in double: a float's angle has too few digits to be multiplied
    return Z<float>(pow(Z<double>(x), Z<double>(y)));
}
template <class T> WISP_INLINE Z<T> exp2(Z<T> z) { return exp(z * Z<T>(T(0.69314718055994531))); }
template <class T> WISP_INLINE Z<T> log2(Z<T> z) { return log(z) * Z<T>(T(1.4426950408889634)); }
template <class T> WISP_INLINE Z<T> log10(Z<T> z) { return log(z) * Z<T>(T(0.43429448190325182)); }
template <class T> WISP_INLINE Z<T> rsqrt(Z<T> z) { return Z<T>(T(1)) / sqrt(z); }
template <class T> WISP_INLINE Z<T> sigmoid(Z<T> z) { return Z<T>(T(1)) / (Z<T>(T(1)) + exp(-z)); }
template <class T> WISP_INLINE Z<T> log1p(Z<T> z) {
    const T x = z.re, y = z.im;
    if (abs(x) < T(0.5) && abs(y) < T(0.5)) return {T(0.5) * log1p(x * (T(2) + x) + y * y), atan2(y, T(1) + x)};
    return log(Z<T>(T(1)) + z);
}
template <class T> WISP_INLINE Z<T> expm1(Z<T> z) {
    const T grown = expm1(z.re), half = sin(z.im / T(2));
    const T cosine_less_one = T(-2) * half * half;
    return {grown * cos(z.im) + cosine_less_one, (grown + T(1)) * sin(z.im)};
}

}  // namespace
}  // namespace wisp::rows

#include "kernels/special.h"
#include "kernels/expressions.h"

namespace wisp::rows {
namespace {
#include "kernels/row.h"
#include "ops/table/unary.h"
#include "ops/table/activation.h"
#include "ops/table/binary.h"
}  // namespace
}  // namespace wisp::rows
