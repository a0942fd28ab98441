// Special functions for kernels, in double, one element at a time: correct first, since nobody's training loop waits
// for them. The float versions go through double, but for those of cpu/special.h and the GPU's own. As in math.h, all names live
// with the instruction set.
#pragma once
#ifndef __CUDACC_RTC__  // the GPU's compiler gets this text too
#include "cpu/special.h"

extern "C" double lgamma_r(double, int*) noexcept;
#endif

namespace WISP_NUMBERS {
namespace {

constexpr double pi_d = 3.14159265358979323846;
constexpr double infinity_d = __builtin_inf();
constexpr double nan_d = __builtin_nan("");
constexpr double euler_gamma = 0.57721566490153286061;
constexpr double half_sqrt_d = 0.70710678118654752440;

#define WISP_SPECIAL [[maybe_unused]] static
#define WISP_FLOAT_1(name) \
    WISP_SPECIAL float name(float x) { return float(name(double(x))); }
// The same, where the GPU has one in float.
#ifdef __CUDACC_RTC__
#define WISP_FLOAT_OR(name, gpu) \
    WISP_SPECIAL float name(float x) { return ::gpu(x); }
#define WISP_FLOAT_GPU WISP_FLOAT_OR
#else
#define WISP_FLOAT_OR(name, gpu) WISP_FLOAT_1(name)
#define WISP_FLOAT_GPU(name, gpu)  // cpu/special.h has it
#endif
#define WISP_FLOAT_2(name) \
    WISP_SPECIAL float name(float a, float b) { return float(name(double(a), double(b))); }

// ---- products with logarithms, sinc

template <class T> WISP_INLINE T xlogy(T x, T y) {
    const T product = x * log(y);
    const T guarded = x == T(0) ? T(0) : product;
    return y != y ? y : guarded;
}
template <class T> WISP_INLINE T xlog1py(T x, T y) {
    const T product = x * log1p(y);
    const T guarded = x == T(0) ? T(0) : product;
    return y != y ? y : guarded;
}
template <class T> WISP_INLINE T entr(T x) {
    const T positive = -x * log(x);
    const T outside = x == T(0) ? T(0) : T(-infinity_d);
    const T y = x > T(0) ? positive : outside;
    return x != x ? x : y;
}
template <class T> WISP_INLINE T sinc(T x) {
    const T angle = T(pi_d) * x;
    const T y = sin(angle) / angle;
    return x == T(0) ? T(1) : y;
}

// ---- gamma and its relatives

#ifdef __CUDACC_RTC__
WISP_SPECIAL double lgamma(double x) { return ::lgamma(x); }
#else
WISP_SPECIAL double lgamma(double x) {
    int sign;
    return ::lgamma_r(x, &sign);  // plain lgamma writes a global
}
#endif
WISP_FLOAT_GPU(lgamma, lgammaf)

// cot(pi x), exact reduction of x first.
WISP_SPECIAL double cotangent_of_turns(double x) {
    const double fraction = x - __builtin_floor(x + 0.5);
    return __builtin_cos(pi_d * fraction) / __builtin_sin(pi_d * fraction);
}
// By reflection below zero: one body that does not call itself, since a compiler for GPUs (NVRTC 13.0) dies of unfolding it.
WISP_SPECIAL double digamma(double x) {
    if (x == 0.0) return __builtin_copysign(infinity_d, -x);
    double reflected = 0.0;
    if (x < 0.0) {
        if (x == __builtin_floor(x)) return nan_d;
        reflected = pi_d * cotangent_of_turns(x);
        x = 1.0 - x;
    }
    if (!(x < infinity_d)) return x - reflected;
    double shift = 0.0;
    while (x < 10.0) {
        shift -= 1.0 / x;
        x += 1.0;
    }
    const double z = 1.0 / (x * x);
    const double tail = x > 1e17 ? 0.0 : z * horner(z, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12);
    return shift + __builtin_log(x) - 0.5 / x - tail - reflected;
}
#ifdef __CUDACC_RTC__
// The same in float: double is slow on most GPUs.
WISP_SPECIAL float digamma(float x) {
    if (!(x > 0.0f) || x > 1e8f) return float(digamma(double(x)));
    float shift = 0.0f;
    while (x < 6.0f) {
        shift -= 1.0f / x;
        x += 1.0f;
    }
    const float z = 1.0f / (x * x);
    return shift + ::logf(x) - 0.5f / x - z * horner(z, 1.0f / 12, -1.0f / 120, 1.0f / 252, -1.0f / 240, 1.0f / 132);
}
#endif

// Hurwitz' zeta function: the first terms one by one, the rest by Euler and Maclaurin.
WISP_SPECIAL double zeta(double x, double q) {
    if (x == 1.0) return infinity_d;
    if (x < 1.0 || x != x || q != q) return nan_d;
    if (q <= 0.0) {
        if (q == __builtin_floor(q)) return infinity_d;
        if (x != __builtin_floor(x)) return nan_d;
    }
    double sum = 0.0, a = q, term = 0.0;
    for (int i = 0; i < 10 || a <= 10.0; i++) {
        if (a > 1e9) break;
        term = __builtin_pow(a, -x);
        sum += term;
        a += 1.0;
        if (abs(term) < 1e-17 * abs(sum) && a > 0.0) return sum;
    }
    // Bernoulli numbers B_2k / (2k)!
    constexpr double coefficients[] = {8.3333333333333333e-02, -1.3888888888888889e-03, 3.3068783068783069e-05, -8.2671957671957672e-07,
                                       2.0876756987868099e-08, -5.2841901386874932e-10, 1.3382536530684679e-11, -3.3896802963225829e-13,
                                       8.5860620562778446e-15, -2.1748686985580619e-16, 5.5090028283602295e-18, -1.3954464685812523e-19};
    const double power = __builtin_pow(a, -x);
    sum += power * a / (x - 1.0) + 0.5 * power;
    double factor = x * power / a;
    for (int k = 0; k < 12; k++) {
        const double t = factor * coefficients[k];
        sum += t;
        if (abs(t) < 1e-17 * abs(sum)) break;
        factor *= (x + 2 * k + 1) * (x + 2 * k + 2) / (a * a);
    }
    return sum;
}
WISP_FLOAT_2(zeta)

WISP_SPECIAL double trigamma(double x) {
    if (x < 0.5 && x != 0.0) {
        const double fraction = x - __builtin_floor(x + 0.5);
        const double sine = __builtin_sin(pi_d * fraction);
        return pi_d * pi_d / (sine * sine) - zeta(2.0, 1.0 - x);
    }
    return zeta(2.0, x);
}
WISP_FLOAT_1(trigamma)
WISP_SPECIAL double polygamma(int64_t n, double x) {
    if (n == 0) return digamma(x);
    if (n == 1) return trigamma(x);
    const double magnitude = __builtin_exp(lgamma(double(n) + 1.0)) * zeta(double(n) + 1.0, x);
    return n % 2 ? magnitude : -magnitude;
}
WISP_SPECIAL float polygamma(int64_t n, float x) { return float(polygamma(n, double(x))); }

// Regularised incomplete gamma functions: series below x = a + 1, continued fraction above.
WISP_SPECIAL double igamma_series(double a, double x, double scale) {
    double term = 1.0 / a, sum = term;
    for (double k = a + 1.0; abs(term) > 1e-17 * abs(sum); k += 1.0) {
        term *= x / k;
        sum += term;
    }
    return sum * scale;
}
WISP_SPECIAL double igammac_fraction(double a, double x, double scale) {
    double b = x + 1.0 - a, c = 1e300, d = 1.0 / b, h = d;
    for (int i = 1; i < 100000; i++) {
        const double numerator = -i * (i - a);
        b += 2.0;
        d = numerator * d + b;
        d = abs(d) < 1e-300 ? 1e-300 : d;
        c = b + numerator / c;
        c = abs(c) < 1e-300 ? 1e-300 : c;
        d = 1.0 / d;
        const double change = c * d;
        h *= change;
        if (abs(change - 1.0) < 1e-16) break;
    }
    return h * scale;
}
// x^a e^-x / Gamma(a), without the cancellation of large terms when x is near a large a.
WISP_SPECIAL double gamma_density(double a, double x) {
    if (a < 20.0 || abs(x - a) > 0.5 * a) return __builtin_exp(a * __builtin_log(x) - x - lgamma(a));
    const double t = (x - a) / a;
    const double z = 1.0 / (a * a);
    const double stirling = horner(z, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188) / a;
    return __builtin_exp(a * (__builtin_log1p(t) - t) - stirling) * __builtin_sqrt(a / (2 * pi_d));
}
WISP_SPECIAL double igamma_both(double a, double x, bool complement) {
    if (!(x >= 0.0) || !(a >= 0.0)) return nan_d;
    if (a == 0.0) return x > 0.0 ? (complement ? 0.0 : 1.0) : nan_d;
    if (x == 0.0) return complement ? 1.0 : 0.0;
    if (a == infinity_d) return x == infinity_d ? nan_d : (complement ? 1.0 : 0.0);
    if (x == infinity_d) return complement ? 0.0 : 1.0;
    if (a < 1e-3 && x < 1.5 && complement) {  // 1 - P loses everything when P is near one
        double sum = 0.0, term = 1.0;
        for (int k = 1; k < 100; k++) {
            term *= -x / k;
            sum += term / (a + k);
        }
        const double log_scale = a * __builtin_log(x) - lgamma(1.0 + a);
        return -__builtin_expm1(log_scale) - __builtin_exp(log_scale) * a * sum;
    }
    const double scale = gamma_density(a, x);
    if (x < a + 1.0) {
        const double lower = igamma_series(a, x, scale);
        return complement ? 1.0 - lower : lower;
    }
    const double upper = igammac_fraction(a, x, scale);
    return complement ? upper : 1.0 - upper;
}
WISP_SPECIAL double igamma(double a, double x) { return igamma_both(a, x, false); }
WISP_SPECIAL double igammac(double a, double x) { return igamma_both(a, x, true); }
WISP_FLOAT_2(igamma)
WISP_FLOAT_2(igammac)

// ---- the normal law

WISP_SPECIAL double erfcx(double x) {
    if (x < 2.5) return x < -26.7 ? infinity_d : __builtin_exp(x * x) * __builtin_erfc(x);
    if (x > 1e8) return 0.56418958354775628695 / x;
    double tail = x;  // x + (1/2)/(x + 1/(x + (3/2)/(x + ...))), from the inside
    for (int k = x < 4.0 ? 120 : 50; k > 0; k--) tail = x + 0.5 * k / tail;
    return 0.56418958354775628695 / tail;
}
WISP_FLOAT_OR(erfcx, erfcxf)
WISP_SPECIAL double ndtr(double x) { return 0.5 * __builtin_erfc(-x * half_sqrt_d); }
WISP_FLOAT_1(ndtr)
WISP_SPECIAL double log_ndtr(double x) {
    const double t = x * half_sqrt_d;
    if (x < -1.0) return __builtin_log(0.5 * erfcx(-t)) - t * t;
    return __builtin_log1p(-0.5 * __builtin_erfc(t));
}
#ifdef __CUDACC_RTC__
WISP_SPECIAL float log_ndtr(float x) {
    const float t = x * float(half_sqrt_d);
    return x < -1.0f ? ::logf(::erfcxf(-t) * 0.5f) - t * t : ::log1pf(::erfcf(t) * -0.5f);
}
#else
WISP_FLOAT_1(log_ndtr)
#endif
// The x <= 0 whose distribution function is p <= 1/2: a first guess, then Newton steps on the logarithm.
WISP_SPECIAL double lower_quantile(double p) {
    const double log_p = __builtin_log(p), t = __builtin_sqrt(-2.0 * log_p);
    double x = horner(t, 2.515517, 0.802853, 0.010328) / horner(t, 1.0, 1.432788, 0.189269, 0.001308) - t;
    for (int i = 0; i < 4; i++) {
        // (log ndtr)' = density / ndtr
        const double slope = 0.79788456080286535588 / erfcx(-x * half_sqrt_d);
        const double error = log_ndtr(x) - log_p;
        const double step = error / slope;
        x -= step / (1.0 + 0.5 * step * (x + slope));  // Halley: (log ndtr)'' = -slope (x + slope)
        if (abs(step) < 1e-9 * abs(x)) break;
    }
    return x;
}
WISP_SPECIAL double erfinv(double x) {
    const double a = abs(x);
    if (!(a <= 1.0)) return nan_d;
    if (a == 1.0) return __builtin_copysign(infinity_d, x);
    if (a < 1e-8) return x * 0.88622692545275801365;
    if (a > 0.5) return __builtin_copysign(lower_quantile(0.5 * (1.0 - a)) * half_sqrt_d, x);
    const double w = -__builtin_log1p(-a * a);
    double y = a * horner(w, 0.88622692545275801, 0.2316, 0.0188, -0.0015);
    for (int i = 0; i < 4; i++) {
        const double step = (__builtin_erf(y) - a) * 0.88622692545275801365 * __builtin_exp(y * y);
        y -= step / (1.0 + y * step);
        if (abs(step) < 1e-10 * y) break;
    }
    return __builtin_copysign(y, x);
}
WISP_FLOAT_GPU(erfinv, erfinvf)
WISP_SPECIAL double ndtri(double p) {
    if (!(p >= 0.0 && p <= 1.0)) return nan_d;
    if (p == 0.0) return -infinity_d;
    if (p == 1.0) return infinity_d;
    if (p > 0.25 && p < 0.75) return 1.41421356237309504880 * erfinv(2.0 * (p - 0.5));
    return p < 0.5 ? lower_quantile(p) : -lower_quantile(1.0 - p);
}
WISP_FLOAT_GPU(ndtri, normcdfinvf)

// ---- Bessel functions

WISP_SPECIAL double bessel_j0(double x) { return ::j0(x); }
WISP_SPECIAL double bessel_j1(double x) { return ::j1(x); }
WISP_SPECIAL double bessel_y0(double x) { return x < 0.0 ? nan_d : x == 0.0 ? -infinity_d : ::y0(x); }
WISP_SPECIAL double bessel_y1(double x) { return x < 0.0 ? nan_d : x == 0.0 ? -infinity_d : ::y1(x); }
WISP_FLOAT_OR(bessel_j0, j0f)
WISP_FLOAT_OR(bessel_j1, j1f)
WISP_FLOAT_1(bessel_y0)
WISP_FLOAT_1(bessel_y1)

// e^-|x| I_order(|x|): the power series, whose terms are all positive, or the asymptotic one.
WISP_SPECIAL double modified_bessel_i_scaled(double a, int order) {
    if (a < 20.0) {
        const double z = 0.25 * a * a;
        double term = order ? 0.5 * a : 1.0, sum = term;
        for (int k = 1; term > 1e-17 * sum; k++) {
            term *= z / (double(k) * (k + order));
            sum += term;
        }
        return sum * __builtin_exp(-a);
    }
    double term = 1.0, sum = 1.0;
    for (int k = 1; k < 40; k++) {
        term *= ((2 * k - 1) * (2 * k - 1) - 4.0 * order) / (k * 8.0 * a);
        sum += term;
        if (abs(term) < 1e-17) break;
    }
    return sum / __builtin_sqrt(2.0 * pi_d * a);
}
WISP_SPECIAL double i0e(double x) { return x != x ? x : modified_bessel_i_scaled(abs(x), 0); }
WISP_SPECIAL double i1e(double x) { return x != x ? x : __builtin_copysign(modified_bessel_i_scaled(abs(x), 1), x); }
WISP_SPECIAL double i0(double x) {  // e^x in two halves: it may overflow before the product does
    const double h = __builtin_exp(0.5 * abs(x));
    return abs(x) == infinity_d ? infinity_d : i0e(x) * h * h;
}
WISP_SPECIAL double i1(double x) {
    const double h = __builtin_exp(0.5 * abs(x));
    return abs(x) == infinity_d ? x : i1e(x) * h * h;
}
WISP_FLOAT_OR(i0, cyl_bessel_i0f)
WISP_FLOAT_1(i0e)
WISP_FLOAT_OR(i1, cyl_bessel_i1f)
WISP_FLOAT_1(i1e)
WISP_SPECIAL double modified_bessel_i0(double x) { return i0(x); }
WISP_SPECIAL double modified_bessel_i1(double x) { return i1(x); }
WISP_FLOAT_1(modified_bessel_i0)
WISP_FLOAT_1(modified_bessel_i1)

// e^x K_order(x) = integral of e^(-x (cosh t - 1)) cosh(order t) over t > 0: the trapezoidal rule converges
// exponentially on such integrands.
WISP_SPECIAL double modified_bessel_k_scaled(double x, double order) {
    const double by_width = 0.65 / __builtin_sqrt(x), h = by_width < 0.2 ? by_width : 0.2;
    double sum = 0.5;
    for (int k = 1; k < 10000; k++) {
        const double t = k * h, half = __builtin_sinh(0.5 * t);
        const double term = __builtin_exp(-2.0 * x * half * half) * __builtin_cosh(order * t);
        sum += term;
        if (2.0 * x * half * half > 45.0 + order * t) break;
    }
    return h * sum;
}
WISP_SPECIAL double scaled_modified_bessel_k0(double x) {
    if (!(x > 0.0)) return x == 0.0 ? infinity_d : nan_d;
    if (x == infinity_d) return 0.0;
    if (x < 1e-18) return -__builtin_log(0.5 * x) - euler_gamma;
    return modified_bessel_k_scaled(x, 0.0);
}
WISP_SPECIAL double scaled_modified_bessel_k1(double x) {
    if (!(x > 0.0)) return x == 0.0 ? infinity_d : nan_d;
    if (x == infinity_d) return 0.0;
    if (x < 1e-18) return 1.0 / x;
    return modified_bessel_k_scaled(x, 1.0);
}
WISP_SPECIAL double modified_bessel_k0(double x) { return scaled_modified_bessel_k0(x) * __builtin_exp(-x); }
WISP_SPECIAL double modified_bessel_k1(double x) { return scaled_modified_bessel_k1(x) * __builtin_exp(-x); }
WISP_FLOAT_1(scaled_modified_bessel_k0)
WISP_FLOAT_1(scaled_modified_bessel_k1)
WISP_FLOAT_1(modified_bessel_k0)
WISP_FLOAT_1(modified_bessel_k1)

WISP_SPECIAL double spherical_bessel_j0(double x) {
    if (abs(x) == infinity_d) return 0.0;
    if (abs(x) < 0.5) {
        const double z = x * x;
        return horner(z, 1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800);
    }
    return __builtin_sin(x) / x;
}
WISP_FLOAT_1(spherical_bessel_j0)

WISP_SPECIAL double airy_ai(double x) {
    if (x != x) return x;
    if (abs(x) == infinity_d) return x > 0.0 ? 0.0 : nan_d;
    if (x > 2.0) {
        const double z = 2.0 / 3.0 * x * __builtin_sqrt(x);
        if (z > 800.0) return 0.0;
        return modified_bessel_k_scaled(z, 1.0 / 3.0) * __builtin_exp(-z) * __builtin_sqrt(x / 3.0) / pi_d;
    }
    if (x >
        -9.0) {  // Taylor's series around the nearest of 0, -1, ..., where terms do not cancel: y'' = x y gives the next from those before
        constexpr double values[][2] = {
            {0.35502805388781723926, -0.25881940379280679841},  {0.5355608832923521188, -0.010160567116645209395},
            {0.22740742820168557599, 0.61825902074169104141},   {-0.37881429367765807435, 0.31458376921659881365},
            {-0.070265532949289515099, -0.7906285753685813803}, {0.35076100902411431979, 0.32719281855444313679},
            {-0.32914517362982310523, 0.34593548728134289493},  {0.18428083525050563728, -0.77100816841012654773},
            {-0.052705050356386202622, 0.93556093819830655103}, {-0.022133721547341403674, -0.97566398092633159471}};
        const int n = x > -0.5 ? 0 : int(0.5 - x);
        const double h = x + n;
        double before = 0.0, now = values[n][0], next = values[n][1], power = h, sum = now + next * h;
        for (int k = 0; k < 40; k++) {
            const double after = (before - n * now) / ((k + 1.0) * (k + 2.0));
            power *= h;
            sum += after * power;
            before = now, now = next, next = after;
        }
        return sum;
    }
    const double z = 2.0 / 3.0 * -x * __builtin_sqrt(-x);
    double term = 1.0, cosine_sum = 1.0, sine_sum = 0.0;  // asymptotic: terms in 1/z, alternating between the two
    for (int k = 1; k < 30; k++) {
        const double ratio = (6.0 * k - 5.0) * (6.0 * k - 3.0) * (6.0 * k - 1.0) / (216.0 * k * (2.0 * k - 1.0) * z);
        const double next = term * ratio;
        if (abs(next) > abs(term)) break;
        term = next;
        double& sum = k % 2 ? sine_sum : cosine_sum;
        sum += k / 2 % 2 ? -term : term;
    }
    const double angle = z - 0.25 * pi_d;
    const double amplitude = 1.0 / (__builtin_sqrt(pi_d) * __builtin_sqrt(__builtin_sqrt(-x)));
    return amplitude * (__builtin_cos(angle) * cosine_sum + __builtin_sin(angle) * sine_sum);
}
WISP_FLOAT_1(airy_ai)

// ---- orthogonal polynomials of degree n (given as a number, cut to an integer)

// All follow p(k+1) = step(k, p(k), p(k-1)) from p(0) = 1 and p(1) = first.
template <class Step> WISP_INLINE double three_terms(double degree, double first, Step step) {
    // Beyond this degree rounding has eaten the digits, and the loop would not end in anybody's time.
    if (!(degree < 1e6)) return nan_d;
    const int64_t n = int64_t(degree);
    if (n < 0) return 0.0;
    if (n == 0) return 1.0;
    double before = 1.0, now = first;
    for (int64_t k = 1; k < n; k++) {
        const double next = step(double(k), now, before);
        before = now;
        now = next;
    }
    return now;
}
WISP_INLINE double chebyshev(double x, double degree, double first) {
    return three_terms(degree, first, [x](double, double now, double before) { return 2.0 * x * now - before; });
}
WISP_SPECIAL double chebyshev_polynomial_t(double x, double n) {
    if (abs(x) < 1.0 && n > 6.0) return __builtin_cos(__builtin_trunc(n) * __builtin_acos(x));
    return chebyshev(x, n, x);
}
WISP_SPECIAL double chebyshev_polynomial_u(double x, double n) { return chebyshev(x, n, 2.0 * x); }
WISP_SPECIAL double chebyshev_polynomial_v(double x, double n) { return chebyshev(x, n, 2.0 * x - 1.0); }
WISP_SPECIAL double chebyshev_polynomial_w(double x, double n) { return chebyshev(x, n, 2.0 * x + 1.0); }
WISP_SPECIAL double shifted_chebyshev_polynomial_t(double x, double n) { return chebyshev_polynomial_t(2.0 * x - 1.0, n); }
WISP_SPECIAL double shifted_chebyshev_polynomial_u(double x, double n) { return chebyshev_polynomial_u(2.0 * x - 1.0, n); }
WISP_SPECIAL double shifted_chebyshev_polynomial_v(double x, double n) { return chebyshev_polynomial_v(2.0 * x - 1.0, n); }
WISP_SPECIAL double shifted_chebyshev_polynomial_w(double x, double n) { return chebyshev_polynomial_w(2.0 * x - 1.0, n); }
WISP_SPECIAL double hermite_polynomial_h(double x, double n) {
    return three_terms(n, 2.0 * x, [x](double k, double now, double before) { return 2.0 * x * now - 2.0 * k * before; });
}
WISP_SPECIAL double hermite_polynomial_he(double x, double n) {
    return three_terms(n, x, [x](double k, double now, double before) { return x * now - k * before; });
}
WISP_SPECIAL double laguerre_polynomial_l(double x, double n) {
    return three_terms(n, 1.0 - x,
                       [x](double k, double now, double before) { return ((2.0 * k + 1.0 - x) * now - k * before) / (k + 1.0); });
}
WISP_SPECIAL double legendre_polynomial_p(double x, double n) {
    return three_terms(n, x, [x](double k, double now, double before) { return ((2.0 * k + 1.0) * x * now - k * before) / (k + 1.0); });
}
WISP_FLOAT_2(chebyshev_polynomial_t)
WISP_FLOAT_2(chebyshev_polynomial_u)
WISP_FLOAT_2(chebyshev_polynomial_v)
WISP_FLOAT_2(chebyshev_polynomial_w)
WISP_FLOAT_2(shifted_chebyshev_polynomial_t)
WISP_FLOAT_2(shifted_chebyshev_polynomial_u)
WISP_FLOAT_2(shifted_chebyshev_polynomial_v)
WISP_FLOAT_2(shifted_chebyshev_polynomial_w)
WISP_FLOAT_2(hermite_polynomial_h)
WISP_FLOAT_2(hermite_polynomial_he)
WISP_FLOAT_2(laguerre_polynomial_l)
WISP_FLOAT_2(legendre_polynomial_p)

#undef WISP_SPECIAL
#undef WISP_FLOAT_1
#undef WISP_FLOAT_2

}  // namespace
}  // namespace WISP_NUMBERS
