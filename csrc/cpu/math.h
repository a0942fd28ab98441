// Elementary functions for kernels. The float versions are branch-free polynomials that GCC turns into vector code
// inside a plain loop (1-2 ulp; pow and tan within 4); the double and complex versions call the C library.
// Include from kernel files only: everything lives in the anonymous namespace of the instruction set, where these
// names hide the global ones, so a generic expression such as 1 / (1 + exp(-x)) takes the overload of x's type.
#pragma once
#include <cmath>
#include <complex>

#include "bits.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// ---- building blocks

// a * b + c, rounded once where the processor can.
WISP_INLINE float fused(float a, float b, float c) {
#ifdef WISP_FUSED
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}
WISP_INLINE double fused(double a, double b, double c) {
#ifdef WISP_FUSED
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}
// a * b + c where c nearly cancels a * b: the product must not be rounded first.
WISP_INLINE float fused_exact(float a, float b, float c) {
#ifdef WISP_FUSED
    return __builtin_fmaf(a, b, c);
#else
    return float(double(a) * double(b) + double(c));
#endif
}

template <class T> WISP_INLINE T horner(T, T c) { return c; }
template <class T, class... Rest> WISP_INLINE T horner(T x, T c, Rest... rest) {  // c + x * (rest...)
    return fused(x, horner(x, T(rest)...), c);
}

constexpr float infinity_f = __builtin_inff();
constexpr float nan_f = __builtin_nanf("");

WISP_INLINE float abs(float x) { return __builtin_fabsf(x); }
WISP_INLINE double abs(double x) { return __builtin_fabs(x); }
WISP_INLINE float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
WISP_INLINE double copysign(double x, double sign) { return __builtin_copysign(x, sign); }

// 2^n for n in [-126, 127].
WISP_INLINE float power_of_two(int32_t n) { return bits_as<float>((n + 127) << 23); }

// Adding this to a float below 2^22 leaves the nearest integer in its low bits.
constexpr float round_magic = 12582912.0f;
constexpr int32_t round_magic_bits = 0x4B400000;
constexpr double round_magic_double = 6755399441055744.0;

// ---- exponentials

struct ExpParts {
    int32_t n;  // x = n * ln 2 + r
    float r;
};
WISP_INLINE ExpParts exp_reduce(float x) {
    const float shifted = fused(x, 1.44269504f, round_magic);
    const float n = shifted - round_magic;
    float r = fused(n, -0.693145752f, x);
    r = fused(n, -1.42860677e-6f, r);
    return {bits_as<int32_t>(shifted) - round_magic_bits, r};
}
WISP_INLINE float exp_tail(float r) {  // (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2
    return horner(r, 0.49999997f, 0.16666542f, 0.0416674316f, 0.00836687721f, 0.00138718705f);
}
WISP_INLINE float exp_fraction(float r) {
    return horner(r, 1.0f, 1.0f, 0.49999994f, 0.166665167f, 0.0416682847f, 0.00836925115f, 0.00138204603f);
}
WISP_INLINE float scale_by_power(float p, int32_t n) {  // p * 2^n for n in [-252, 254], through denormals to zero
    const int32_t half = n >> 1;
    return p * power_of_two(half) * power_of_two(n - half);
}

WISP_INLINE float exp(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const ExpParts e = exp_reduce(x);
    return scale_by_power(exp_fraction(e.r), e.n);
}
// exp for x <= 0 where results below 2^-126 may become zero: what softmax needs, at one multiplication.
WISP_INLINE float exp_nonpositive(float x) {
    const float clamped = x < -87.33654f ? -87.33654f : x;
    const ExpParts e = exp_reduce(clamped);
    const float y = exp_fraction(e.r) * power_of_two(e.n);
    return x < -87.33654f ? 0.0f : y;
}
WISP_INLINE float exp2(float x) {
    x = x > 129.0f ? 129.0f : x;
    x = x < -151.0f ? -151.0f : x;
    const float shifted = x + round_magic;
    const float r = (x - (shifted - round_magic)) * 0.693147181f;
    return scale_by_power(exp_fraction(r), bits_as<int32_t>(shifted) - round_magic_bits);
}
// The same bits, where the result is a normal number: its power of two is added to the bits of the fraction.
WISP_INLINE float near_exp(float x) {
    const float shifted = fused(x, 1.44269504f, round_magic);
    const float n = shifted - round_magic;
    float r = fused(n, -0.693145752f, x);
    r = fused(n, -1.42860677e-6f, r);
    return bits_as<float>(bits_as<int32_t>(exp_fraction(r)) + int32_t(bits_as<uint32_t>(shifted) << 23));
}
WISP_INLINE float near_exp2(float x) {
    const float shifted = x + round_magic;
    const float r = (x - (shifted - round_magic)) * 0.693147181f;
    return bits_as<float>(bits_as<int32_t>(exp_fraction(r)) + int32_t(bits_as<uint32_t>(shifted) << 23));
}
WISP_INLINE float expm1(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -18.0f ? -18.0f : c;
    const ExpParts e = exp_reduce(c);
    const float q = fused(e.r * e.r, exp_tail(e.r), e.r);
    const float half = power_of_two(e.n - 1);  // 2^128 is out of range, so everything is halved
    const float y = 2.0f * fused(q, half, half - 0.5f);
    return abs(x) < 1e-7f ? x : y;
}

// ---- logarithms

struct LogParts {
    float e, f;  // x = 2^e * (1 + f), 1 + f in [2/3, 4/3)
};
WISP_INLINE LogParts log_reduce_normal(float x) {
    const int32_t i = bits_as<int32_t>(x);
    const int32_t e = (i - 0x3f2aaaab) & int32_t(0xff800000);
    return {float(e >> 23), bits_as<float>(i - e) - 1.0f};
}
WISP_INLINE LogParts log_reduce(float x) {
    const bool denormal = x < 1.17549435e-38f;
    const LogParts p = log_reduce_normal(denormal ? x * 8388608.0f : x);
    return {p.e - (denormal ? 23.0f : 0.0f), p.f};
}
WISP_INLINE float log1p_tail(float f) {  // log(1 + f) - f for f in [-1/3, 1/3]
    const float p =
        horner(f, 0.333332151f, -0.249998048f, 0.200104445f, -0.166801795f, 0.140053406f, -0.121883817f, 0.139867067f, -0.128742635f);
    const float s = f * f;
    return s * fused(f, p, -0.5f);
}
WISP_INLINE float log_special(float x, float y) {
    y = x == 0.0f ? -infinity_f : y;
    y = x == infinity_f ? x : y;
    return x >= 0.0f ? y : nan_f;
}
WISP_INLINE float log_of(LogParts p) {
    const float low = fused(p.e, -1.90465421e-9f, log1p_tail(p.f));
    return fused(p.e, 0.693147182f, p.f + low);
}
WISP_INLINE float log2_of(LogParts p) {
    const float tail = log1p_tail(p.f);
    float y = fused(p.f, 1.92596299e-8f, tail * 1.44269504f);
    y = fused(p.f, 1.44269502f, y);
    return p.e + y;
}
WISP_INLINE float log10_of(LogParts p) {
    const float tail = log1p_tail(p.f);
    float y = fused(p.f, 1.3165034e-9f, tail * 0.434294482f);
    y = fused(p.f, 0.43429448f, y);
    y = fused(p.e, -1.04254532e-8f, y);
    return fused(p.e, 0.301030006f, y);
}
WISP_INLINE float log(float x) { return log_special(x, log_of(log_reduce(x))); }
WISP_INLINE float log2(float x) { return log_special(x, log2_of(log_reduce(x))); }
WISP_INLINE float log10(float x) { return log_special(x, log10_of(log_reduce(x))); }
// The same bits, of positive normal numbers only.
WISP_INLINE float log_normal(float x) { return log_of(log_reduce_normal(x)); }
WISP_INLINE float log2_normal(float x) { return log2_of(log_reduce_normal(x)); }
WISP_INLINE float log10_normal(float x) { return log10_of(log_reduce_normal(x)); }
WISP_INLINE float log1p(float x) {
    const float u = 1.0f + x;
    const int32_t i = bits_as<int32_t>(u);
    int32_t e = (i - 0x3f2aaaab) & int32_t(0xff800000);
    const float large = bits_as<float>(i - e) - 1.0f;
    const float s = bits_as<float>(0x3f800000 - (e > (30 << 23) ? 0 : e));  // 2^-e
    const float f = e > (30 << 23) ? large : fused_exact(x, s, s - 1.0f);
    const float exponent = float(e >> 23);
    const float low = fused(exponent, -1.90465421e-9f, log1p_tail(f));
    float y = fused(exponent, 0.693147182f, f + low);
    y = abs(x) < 1e-7f ? x : y;
    y = x == -1.0f ? -infinity_f : y;
    y = x == infinity_f ? x : y;
    return x >= -1.0f ? y : nan_f;
}

// ---- circular functions

struct Angle {
    int32_t quadrant;
    float r;  // x - quadrant * pi/2, in [-pi/4, pi/4]
};
// In double, so that the difference keeps a float's precision up to most_exact_angle; pointwise kernels compute what lies
// beyond in double (see pointwise_rows.h).
#ifdef WISP_FUSED
constexpr float most_exact_angle = 0x1p44f;  // beyond, the error of 2 / pi would carry the rest far over pi / 4
#else
constexpr float most_exact_angle = 0x1p27f;
#endif
WISP_INLINE Angle angle_reduce(float x) {
    const double wide = double(x);
    const double shifted = fused(wide, 0.63661977236758138, round_magic_double);
    const double n = shifted - round_magic_double;
#ifdef WISP_FUSED
    double r = fused(n, -1.5707963267948966, wide);
    r = fused(n, -6.123233995736766e-17, r);
#else  // the first two constants have so few bits that their products are exact
    double r = wide - n * 1.5707963109016418;
    r -= n * 1.5893254712295857e-08;
    r -= n * 6.123233995736766e-17;
#endif
    float narrow = float(r);
    narrow = narrow > 0.8f ? 0.8f : narrow;
    narrow = narrow < -0.8f ? -0.8f : narrow;
    return {int32_t(bits_as<int64_t>(shifted)), narrow};
}
// The same in float, where |x| is at most most_near_angle (its bits are given): x and the first product are multiples of one
// small number, so that their difference is exact, and each of the others is rounded at the end alone.
#ifdef WISP_FUSED
constexpr uint32_t most_near_angle = 0x47800000u;  // 2^16
#else
constexpr uint32_t most_near_angle = 0;  // only at 0
#endif
WISP_INLINE Angle near_angle_reduce(float x) {
    const float shifted = fused(x, 0.636619772f, round_magic);
    const float n = shifted - round_magic;
    float r = fused(n, -1.57079637f, x);
    r = fused(n, 4.37113883e-08f, r);
    r = fused(n, 1.71512489e-15f, r);
    return {bits_as<int32_t>(shifted), r};
}
WISP_INLINE float sin_fraction(float r, float s) { return fused(r * s, horner(s, -0.166666538f, 0.00833210815f, -0.000195082335f), r); }
WISP_INLINE float cos_fraction(float s) {
    return fused(s * s, horner(s, 0.0416666456f, -0.00138872978f, 2.44300882e-05f), fused(s, -0.5f, 1.0f));
}
WISP_INLINE float sine_of(Angle a) {
    const float s = a.r * a.r;
    const float y = a.quadrant & 1 ? cos_fraction(s) : sin_fraction(a.r, s);
    return bits_as<float>(bits_as<int32_t>(y) ^ int32_t(uint32_t(a.quadrant & 2) << 30));
}
WISP_INLINE float cosine_of(Angle a) {
    a.quadrant += 1;
    return sine_of(a);
}
WISP_INLINE float tangent_of(Angle a) {
    const float s = a.r * a.r;
    const float sine = sin_fraction(a.r, s), cosine = cos_fraction(s);
    const bool odd = a.quadrant & 1;
    return (odd ? -cosine : sine) / (odd ? sine : cosine);
}
WISP_INLINE float sin(float x) {
    const float y = sine_of(angle_reduce(x));
    return x == 0.0f ? x : y;  // keeps -0
}
WISP_INLINE float cos(float x) { return cosine_of(angle_reduce(x)); }
WISP_INLINE float tan(float x) {
    const float y = tangent_of(angle_reduce(x));
    return x == 0.0f ? x : y;
}

WISP_INLINE float asin_fraction(float s) {  // asin(x) / x - 1 for s = x^2 <= 1/4
    return s * horner(s, 0.166666597f, 0.0750052109f, 0.0445136912f, 0.0318349302f, 0.0143363262f, 0.0376587585f);
}
WISP_INLINE float asin(float x) {
    const float a = abs(x);
    const bool outer = a > 0.5f;
    const float s = outer ? fused(a, -0.5f, 0.5f) : a * a;
    const float r = outer ? __builtin_sqrtf(s) : a;
    const float inner = fused(r, asin_fraction(s), r);
    const float y = outer ? fused(inner, -2.0f, 1.57079633f) : inner;
    return copysign(y, x);
}
WISP_INLINE float acos(float x) {
    const float a = abs(x);
    const bool outer = a > 0.5f;
    const float s = outer ? fused(a, -0.5f, 0.5f) : a * a;
    const float r = outer ? __builtin_sqrtf(s) : x;
    const float inner = fused(r, asin_fraction(s), r);
    const float outer_y = x < 0.0f ? fused(inner, -2.0f, 3.14159265f) : 2.0f * inner;
    return outer ? outer_y : 1.57079633f - (inner + 4.37113883e-8f);
}
WISP_INLINE float atan_fraction(float t) {  // |t| <= tan(pi/8)
    const float s = t * t;
    return fused(t * s, horner(s, -0.333333164f, 0.199985281f, -0.14244388f, 0.1059912f, -0.0608986318f), t);
}
WISP_INLINE float atan_quotient(float numerator, float denominator) {  // both >= 0, not both infinite
    const bool beyond_eighth = numerator > 0.414213562f * denominator;
    const bool far = numerator > 2.41421356f * denominator;
    const float middle_top = beyond_eighth ? numerator - denominator : numerator;
    const float middle_bottom = beyond_eighth ? numerator + denominator : denominator;
    const float top = far ? -denominator : middle_top;
    const float bottom = far ? numerator : middle_bottom;
    float base = beyond_eighth ? 0.785398163f : 0.0f, low = beyond_eighth ? -2.18556941e-8f : 0.0f;
    base = far ? 1.57079633f : base;
    low = far ? -4.37113883e-8f : low;
    return base + (atan_fraction(top / bottom) + low);
}
WISP_INLINE float atan(float x) { return copysign(atan_quotient(abs(x), 1.0f), x); }
WISP_INLINE float atan2(float y, float x) {
    float a = abs(y), b = abs(x);
    // No sum or multiple of the two may overflow, nor the quotient of denormals lose bits; inf / inf counts as 1.
    const float larger = a > b ? a : b;
    float unit = larger < 1e-30f ? 1.329228e36f : 1.0f;
    unit = larger > 1e37f ? 0.0625f : unit;
    const float a_of_infinity = a == infinity_f ? 1.0f : 0.0f, b_of_infinity = b == infinity_f ? 1.0f : 0.0f;
    a = larger == infinity_f ? a_of_infinity : a * unit;
    b = larger == infinity_f ? b_of_infinity : b * unit;
    b = larger == 0.0f ? 1.0f : b;
    float r = atan_quotient(a, b);
    r = copysign(1.0f, x) < 0.0f ? 3.14159265f - (r + 8.74227766e-8f) : r;
    r = copysign(r, y);
    r = x != x ? x : r;
    return y != y ? y : r;
}

// ---- hyperbolic functions

WISP_INLINE float tanh(float x) {
    const float a = abs(x);
    const float c = a > 10.0f ? 10.0f : a;
    const ExpParts e = exp_reduce(c + c);
    const float q = fused(e.r * e.r, exp_tail(e.r), e.r);
    const float scale = power_of_two(e.n);
    const float grown = fused(q, scale, scale - 1.0f);  // e^2c - 1
    float y = grown / (grown + 2.0f);
    y = copysign(a < 2e-4f ? a : y, x);
    return x != x ? x : y;
}
WISP_INLINE float sinh(float x) {
    const float a = abs(x);
    const float q = expm1(a);
    const float h = exp(0.5f * a);
    const float y = a > 88.0f ? (0.5f * h) * h : 0.5f * (q + q / (q + 1.0f));
    return copysign(a < 1e-4f ? a : y, x);
}
WISP_INLINE float cosh(float x) {
    const float a = abs(x);
    const float h = exp(0.5f * a);
    const float e = exp(a);
    return a > 88.0f ? (0.5f * h) * h : fused(0.5f, e, 0.5f / e);
}
WISP_INLINE float asinh(float x) {
    const float a = abs(x);
    const bool large = a > 1e9f;
    const float s = a * a;
    const float u = large ? a - 1.0f : a + s / (1.0f + __builtin_sqrtf(1.0f + s));
    const float y = log1p(u) + (large ? 0.693147181f : 0.0f);
    return copysign(a < 2e-4f ? a : y, x);
}
WISP_INLINE float acosh(float x) {
    const bool large = x > 1e9f;
    const float t = x - 1.0f;
    const float u = large ? t : t + __builtin_sqrtf(fused(t, t, t + t));
    const float y = log1p(u) + (large ? 0.693147181f : 0.0f);
    return x < 1.0f ? nan_f : y;
}
WISP_INLINE float atanh(float x) {
    const float a = abs(x);
    const float y = 0.5f * log1p((a + a) / (1.0f - a));
    return a <= 1.0f ? copysign(a < 2e-4f ? a : y, x) : nan_f;
}

// ---- error functions and the logistic function

WISP_INLINE float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// The distribution function of the normal law through a rational approximation of erf: one division, no exponential,
// within 3e-7 everywhere. Enough for gelu, whose result is multiplied by x; use erfc where the tail matters.
WISP_INLINE float normal_cdf(float x) {
    // Clamped to +-5.5579 as an integer, for which there are more units.
    const uint32_t bits = bits_as<uint32_t>(x), size = bits & 0x7fffffffu;
    const float c = bits_as<float>((size < 0x40b1da51u ? size : 0x40b1da51u) | (bits & 0x80000000u));
    const float s = c * c;
    const float p = horner(s, 0.398942274f, 0.0337261534f, 0.00466604747f, 0.000167036923f, 6.29344463e-06f, 2.25608048e-08f);
    const float q = horner(s, 1.0f, 0.251205289f, 0.0285643915f, 0.00187468086f, 7.28258787e-05f, 1.18762771e-06f);
    const float y = fused(c, p / q, 0.5f);
    return x < -5.5579f ? 0.0f : y;  // exactly: gelu multiplies it by x
}
WISP_INLINE float erf_fraction(float s) {  // erf(x) / x - 1 for s = x^2 <= 1
    return horner(s, 0.128379166f, -0.37612626f, 0.112835787f, -0.0268533472f, 0.0051871622f, -0.00079978531f, 7.80690389e-05f);
}
WISP_INLINE float erfcx_positive(float a) {  // e^(a^2) erfc(a) for a in [0, 10.2]
    const float t = (a - 2.0f) / (a + 2.0f);
    const float p = horner(t, 1.27697837f, -0.0927639231f, -0.166030973f, 0.164054722f, -0.0542072281f, -0.00805843901f, 0.00863914471f,
                           0.0013143121f, -0.00123652094f, -0.000403860904f);
    return p / fused(2.0f, a, 1.0f);
}
WISP_INLINE float erf(float x) {
    float a = abs(x);
    a = a > 4.0f ? 4.0f : a;
    const float s = a * a;
    const float inner = fused(x, erf_fraction(s), x);
    const float outer = fused(-exp_nonpositive(-s), erfcx_positive(a), 1.0f);
    return a > 1.0f ? copysign(outer, x) : inner;
}
WISP_INLINE float erfc(float x) {
    float a = abs(x);
    a = a > 10.2f ? 10.2f : a;
    const float s = a * a;
    const float low = fused_exact(a, a, -s);
    float outer = erfcx_positive(a) * exp(-s);
    outer = fused(outer, -low, outer);
    const float inner = 1.0f - fused(x, erf_fraction(s), x);
    outer = x < 0.0f ? 2.0f - outer : outer;
    return a > 0.5f ? outer : inner;
}

// ---- powers

WISP_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
WISP_INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }

// x^y through log2 and exp2 in double; special cases as in C.
WISP_INLINE float pow(float x, float y) {
    const float a = abs(x);
    const bool denormal = a < 1.17549435e-38f;
    const int32_t i = bits_as<int32_t>(denormal ? a * 8388608.0f : a);
    const int32_t e = (i - 0x3f3504f3) & int32_t(0xff800000);
    const double m = double(bits_as<float>(i - e));  // in [sqrt(1/2), sqrt(2))
    const double exponent = double(e >> 23) - (denormal ? 23.0 : 0.0);
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    const double log2_x = fused(s,
                                horner(z, 2.8853900817778495, 0.96179669411538993, 0.57707794174993743, 0.41220931670942973,
                                       0.31990297346148938, 0.28294019139924398),
                                exponent);
    double t = double(y) * log2_x;
    t = t > 160.0 ? 160.0 : t;
    t = t < -160.0 ? -160.0 : t;
    const double shifted = t + round_magic_double;
    const double f = t - (shifted - round_magic_double);
    const double p = horner(f, 0.99999999996168232, 0.6931471807284546, 0.24022651198156367, 0.055504103534223255, 0.009618027253816136,
                            0.0013333922585461674, 0.00015469291099090102, 1.5201916480400199e-05);
    const int32_t n = int32_t(bits_as<int64_t>(shifted));
    float r = scale_by_power(float(p), n);

    // One condition at a time: a chain of && would keep the loop around this from becoming vector code.
    const float y_abs = abs(y);
    const float y_small = y_abs < 16777216.0f ? y : 0.0f;  // larger floats are even integers
    const int32_t y_int = int32_t(y_small);
    const float y_fraction = y_small - float(y_int);
    float limit = a > 1.0f ? y : -y;  // its sign says whether |x|^y grows
    limit = limit > 0.0f ? infinity_f : 0.0f;
    r = a == infinity_f ? limit : r;
    r = a == 0.0f ? limit : r;
    limit = a == 1.0f ? 1.0f : limit;
    r = y_abs == infinity_f ? limit : r;
    const float negated = y_int & 1 ? -r : r;
    float invalid = a == 0.0f ? r : nan_f;
    invalid = a == infinity_f ? r : invalid;
    float for_negative = y_fraction == 0.0f ? negated : invalid;
    r = copysign(1.0f, x) < 0.0f ? for_negative : r;
    r = x != x ? x : r;
    r = y != y ? y : r;
    r = x == 1.0f ? 1.0f : r;
    return y == 0.0f ? 1.0f : r;
}

// ---- double: the C library

#define WISP_DOUBLE(name) \
    WISP_INLINE double name(double x) { return __builtin_##name(x); }
// clang-format off: a list of names
WISP_DOUBLE(exp) WISP_DOUBLE(exp2) WISP_DOUBLE(expm1) WISP_DOUBLE(log) WISP_DOUBLE(log2) WISP_DOUBLE(log10) WISP_DOUBLE(log1p)
WISP_DOUBLE(sin) WISP_DOUBLE(cos) WISP_DOUBLE(tan) WISP_DOUBLE(asin) WISP_DOUBLE(acos) WISP_DOUBLE(atan) WISP_DOUBLE(sinh)
WISP_DOUBLE(cosh) WISP_DOUBLE(tanh) WISP_DOUBLE(asinh) WISP_DOUBLE(acosh) WISP_DOUBLE(atanh) WISP_DOUBLE(erf) WISP_DOUBLE(erfc)
WISP_DOUBLE(sqrt) WISP_DOUBLE(floor) WISP_DOUBLE(ceil) WISP_DOUBLE(trunc)
// clang-format on
#undef WISP_DOUBLE
WISP_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
WISP_INLINE double atan2(double y, double x) { return __builtin_atan2(y, x); }
WISP_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }
WISP_INLINE double hypot(double x, double y) { return __builtin_hypot(x, y); }
WISP_INLINE double fmod(double x, double y) { return __builtin_fmod(x, y); }
WISP_INLINE double nearbyint(double x) { return __builtin_nearbyint(x); }
WISP_INLINE double normal_cdf(double x) { return 0.5 * __builtin_erfc(x * -0.70710678118654752); }
WISP_INLINE double sigmoid(double x) { return 1.0 / (1.0 + __builtin_exp(-x)); }
WISP_INLINE double exp_nonpositive(double x) { return __builtin_exp(x); }

WISP_INLINE float floor(float x) { return __builtin_floorf(x); }
WISP_INLINE float ceil(float x) { return __builtin_ceilf(x); }
WISP_INLINE float trunc(float x) { return __builtin_truncf(x); }
WISP_INLINE float nearbyint(float x) { return __builtin_nearbyintf(x); }
WISP_INLINE float fmod(float x, float y) { return __builtin_fmodf(x, y); }
// x / y for |x| < 2^22 |y| and finite y: the whole part of |x / y|, and exactly what is left of |x|.
struct Division {
    float whole, left;
};
WISP_INLINE bool divides_quickly(float x, float y) { return (abs(x) < 4194304.0f * abs(y)) & (abs(y) < infinity_f); }
WISP_INLINE Division divide_quickly(float x, float y) {
    const float a = abs(x), b = abs(y);
    float whole = __builtin_truncf(a / b);
    float left = fused_exact(-whole, b, a);
    const float fewer = left < 0.0f ? 1.0f : 0.0f;  // the quotient was rounded up to a whole number
    whole -= fewer;
    return {whole, left < 0.0f ? left + b : left};
}
WISP_INLINE float hypot(float x, float y) {  // in double neither the squares nor their sum overflow
    const float r = float(__builtin_sqrt(double(x) * double(x) + double(y) * double(y)));
    return abs(x) == infinity_f || abs(y) == infinity_f ? infinity_f : r;
}

// ---- complex: the C library

WISP_INLINE std::complex<float> complex_result(_Complex float z) { return {__real__ z, __imag__ z}; }
WISP_INLINE std::complex<double> complex_result(_Complex double z) { return {__real__ z, __imag__ z}; }
WISP_INLINE _Complex float c_complex(std::complex<float> z) {
    _Complex float c;
    std::memcpy(&c, &z, sizeof c);
    return c;
}
WISP_INLINE _Complex double c_complex(std::complex<double> z) {
    _Complex double c;
    std::memcpy(&c, &z, sizeof c);
    return c;
}
#define WISP_COMPLEX(name)                                                                                                     \
    WISP_INLINE std::complex<float> name(std::complex<float> z) { return complex_result(__builtin_c##name##f(c_complex(z))); } \
    WISP_INLINE std::complex<double> name(std::complex<double> z) { return complex_result(__builtin_c##name(c_complex(z))); }
// clang-format off: a list of names
WISP_COMPLEX(exp) WISP_COMPLEX(log) WISP_COMPLEX(sin) WISP_COMPLEX(cos) WISP_COMPLEX(tan) WISP_COMPLEX(asin) WISP_COMPLEX(acos)
WISP_COMPLEX(atan) WISP_COMPLEX(sinh) WISP_COMPLEX(cosh) WISP_COMPLEX(tanh) WISP_COMPLEX(asinh) WISP_COMPLEX(acosh)
WISP_COMPLEX(atanh) WISP_COMPLEX(sqrt)
// clang-format on
#undef WISP_COMPLEX
WISP_INLINE float abs(std::complex<float> z) { return __builtin_cabsf(c_complex(z)); }
WISP_INLINE double abs(std::complex<double> z) { return __builtin_cabs(c_complex(z)); }
WISP_INLINE float arg(std::complex<float> z) { return __builtin_cargf(c_complex(z)); }
WISP_INLINE double arg(std::complex<double> z) { return __builtin_carg(c_complex(z)); }

template <class T> WISP_INLINE std::complex<T> complex_pow(std::complex<T> x, std::complex<T> y) {
    if (y == std::complex<T>(0)) return T(1);
    if constexpr (sizeof(T) == 4) return complex_result(__builtin_cpowf(c_complex(x), c_complex(y)));
    else return complex_result(__builtin_cpow(c_complex(x), c_complex(y)));
}
template <class T> WISP_INLINE std::complex<T> log2(std::complex<T> z) { return log(z) * T(1.4426950408889634); }
// Not templates: those would be ambiguous with std's.
WISP_INLINE std::complex<float> log10(std::complex<float> z) { return log(z) * 0.43429448190325182f; }
WISP_INLINE std::complex<double> log10(std::complex<double> z) { return log(z) * 0.43429448190325182; }
WISP_INLINE std::complex<float> pow(std::complex<float> x, std::complex<float> y) { return complex_pow(x, y); }
WISP_INLINE std::complex<double> pow(std::complex<double> x, std::complex<double> y) { return complex_pow(x, y); }
template <class T> WISP_INLINE std::complex<T> exp2(std::complex<T> z) { return exp(z * T(0.69314718055994531)); }
template <class T> WISP_INLINE std::complex<T> rsqrt(std::complex<T> z) { return T(1) / sqrt(z); }
template <class T> WISP_INLINE std::complex<T> sigmoid(std::complex<T> z) { return T(1) / (T(1) + exp(-z)); }
// Both keep their digits near zero, where 1 + z or e^z - 1 would lose them.
template <class T> WISP_INLINE std::complex<T> log1p(std::complex<T> z) {
    const T x = z.real(), y = z.imag();
    if (abs(x) < T(0.5) && abs(y) < T(0.5)) return {T(0.5) * log1p(x * (T(2) + x) + y * y), atan2(y, T(1) + x)};
    return log(T(1) + z);
}
template <class T> WISP_INLINE std::complex<T> expm1(std::complex<T> z) {
    const T grown = expm1(z.real()), half = sin(z.imag() / T(2));
    const T cosine_less_one = T(-2) * half * half;
    return {grown * cos(z.imag()) + cosine_less_one, (grown + T(1)) * sin(z.imag())};
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
