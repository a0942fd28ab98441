// Special functions of floats for kernels: without branches, so that a loop over them becomes vector code. Where terms cancel
// (gamma and digamma near their zeros) they are computed in double. Include from kernel files only, as math.h.
#pragma once
#include <utility>

#include "math.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// ---- the normal law: erf's inverse is x times a function of w = -log(1 - x^2)

WISP_INLINE float erfinv_central(float w) {  // w <= 5
    const float t = fused(w, 0.4f, -1.0f);
    return horner(t, 1.5014094f, 0.6166007f, -0.026108706f, -0.01957385f, 0.008529273f, -0.00048558787f, -0.0008456995f, 0.0002857247f,
                  3.560786e-05f, -3.4072593e-05f);
}
WISP_INLINE float erfinv_outer(float w) {  // 5 < w <= 16.7
    const float t = fused(w, 0.170940171f, -1.85470085f);
    return horner(t, 3.1280606f, 0.8930662f, -0.11651186f, 0.029072016f, -0.008301445f, 0.002067423f, -0.00016560387f, -0.00025927866f,
                  0.000321545f, -0.0002638675f, 9.2128255e-05f);
}
WISP_INLINE float erfinv_far(float w) {  // 16.7 < w <= 105
    const float t = fused(__builtin_sqrtf(w), 0.324149109f, -2.32252836f);
    return horner(t, 7.035424f, 3.1109974f, -0.004842648f, 0.0002905618f, 0.00045363998f, -0.00038041075f, 0.00018152682f, -9.805687e-05f,
                  9.8810146e-05f, -4.5000204e-05f);
}
WISP_INLINE float erfinv(float x) {
    const float w = -log_normal(fused_exact(-x, x, 1.0f));
    float y = x * (w > 5.0f ? erfinv_outer(w) : erfinv_central(w));
    y = abs(x) == 1.0f ? copysign(infinity_f, x) : y;
    return abs(x) <= 1.0f ? y : nan_f;
}
WISP_INLINE float ndtri(float p) {
    const float lower = p < 0.5f ? p : 1.0f - p;  // exact: p >= 1/2
    const float w = -log(4.0f * lower * (1.0f - lower));
    float f = w > 5.0f ? erfinv_outer(w) : erfinv_central(w);
    f = w > 16.7f ? erfinv_far(w) : f;
    float y = 1.41421356f * fused(2.0f, p, -1.0f) * f;
    y = p == 0.0f ? -infinity_f : y;
    y = p == 1.0f ? infinity_f : y;
    return abs(p - 0.5f) <= 0.5f ? y : nan_f;
}

// ---- gamma and its derivative, in double

WISP_INLINE double log_normal(double x) {  // of positive normal numbers
    const uint64_t shifted = bits_as<uint64_t>(x) - 0x3fe6a09e667f3bcdu + (uint64_t(1023) << 52);
    const double exponent = bits_as<double>((shifted >> 52) | 0x4330000000000000u) - (4503599627370496.0 + 1023.0);
    const double m = bits_as<double>((shifted & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);  // in [sqrt(1/2), sqrt(2))
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    const double tail = horner(z, 0.6666666666666666, 0.4000000000000088, 0.28571428570803253, 0.22222222391794727, 0.18181795631498243,
                               0.15386240172447838, 0.13268760562036724, 0.1308675766695207);
    const double y = fused(s * z, tail, fused(exponent, 1.9082149292705877e-10, s + s));
    return fused(exponent, 0.693147180369123816490, y);
}
// sin(pi f) and cos(pi f) for |f| <= 1/2.
WISP_INLINE double sine_of_turn(double f) {
    const double z = f * f;
    return f * horner(z, 3.141592653589793, -5.167712780049969, 2.5501640398773007, -0.5992645293189447, 0.0821458865731029,
                      -0.007370430505916944, 0.0004662998161898394, -2.1903497074626018e-05, 7.697826768224191e-07);
}
WISP_INLINE double cosine_of_turn(double f) {
    return horner(f * f, 1.0, -4.934802200544676, 4.058712126416497, -1.335262768843447, 0.23533063012953284, -0.025806888737002202,
                  0.0019295562724817132, -0.00010456655338748738, 4.149564353942586e-06);
}
WISP_INLINE float lgamma(float x) {
    // Gamma(x) Gamma(1 - x) = pi / sin(pi x), and Gamma(a) = Gamma(a + 8) / (a (a + 1) ... (a + 7)).
    const double wide = double(x);
    const bool mirrored = x < 0.5f;
    const double a = mirrored ? 1.0 - wide : wide;
    const bool small = a < 8.0;
    const double s = a * (a + 7.0);  // the factors in pairs: (a + k)(a + 7 - k) = s + k (7 - k)
    const double product = s * (s + 6.0) * ((s + 10.0) * (s + 12.0));
    const double z = small ? a + 8.0 : a;
    const double whole = __builtin_floor(wide + 0.5);
    const double sine = abs(sine_of_turn(wide - whole));
    double below = small ? product : 1.0;
    below = mirrored ? below * 3.14159265358979323846 / sine : below;
    const double i = 1.0 / z, q = i * i;
    const double series = i * horner(q, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156);
    const double stirling = fused(z - 0.5, log_normal(z), 0.91893853320467274178 - z) + series;
    const double value = stirling - log_normal(below);
    float y = float(mirrored ? -value : value);
    const float pole = x <= 0.0f ? infinity_f : y;
    y = wide == whole ? pole : y;
    y = abs(x - 1.5f) == 0.5f ? 0.0f : y;  // of 1 and 2
    y = abs(x) == infinity_f ? infinity_f : y;
    return x != x ? x : y;
}
WISP_INLINE float digamma(float x) {
    // psi(x) = psi(1 - x) - pi cot(pi x), and psi(a) = psi(a + 8) - (1 / a + ... + 1 / (a + 7)).
    const double wide = double(x);
    const bool mirrored = x < 0.0f;
    const double a = mirrored ? 1.0 - wide : wide;
    const bool small = a < 8.0;
    const double s = a * (a + 7.0);  // the fractions in pairs: 1 / (a + k) + 1 / (a + 7 - k) = (2 a + 7) / (s + k (7 - k))
    const double p = s * (s + 6.0), q = (s + 10.0) * (s + 12.0);
    const double fractions = (a + a + 7.0) * (fused(s + 11.0, p, q * (s + 3.0)) * 2.0) / (p * q);
    const double z = small ? a + 8.0 : a;
    const double whole = __builtin_floor(wide + 0.5), turn = wide - whole;
    const double cotangent = cosine_of_turn(turn) / sine_of_turn(turn);
    const double i = 1.0 / z, r = i * i;
    const double series = r * horner(r, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12);
    double value = log_normal(z) - 0.5 * i - series;
    value = small ? value - fractions : value;
    value = mirrored ? fused(cotangent, -3.14159265358979323846, value) : value;
    float y = float(value);
    const float pole = mirrored ? nan_f : y;
    y = wide == whole ? pole : y;
    y = x == 0.0f ? copysign(infinity_f, -x) : y;
    y = x == infinity_f ? x : y;
    return x == -infinity_f ? nan_f : y;
}

// ---- Bessel functions near zero, by their power series in double

// The series of J_order and I_order in z = (x / 2)^2, but for its factor (x / 2)^order: (+-z)^k / (k! (k + order)!).
template <int order, int sign, int... k> WISP_INLINE double bessel_series(double z, std::integer_sequence<int, k...>) {
    constexpr auto term = [](int n) {
        double t = 1.0;
        for (int i = 1; i <= n; i++) t *= sign / (double(i) * double(i + order));
        return t;
    };
    return horner(z, std::integral_constant<double, term(k)>::value...);
}
WISP_INLINE float near_bessel_j0(float x) {  // |x| <= 4
    const double z = 0.25 * double(x) * double(x);
    return float(bessel_series<0, -1>(z, std::make_integer_sequence<int, 16>()));
}
WISP_INLINE float near_i0(float x) {  // |x| <= 8
    const double z = 0.25 * double(x) * double(x);
    return float(bessel_series<0, 1>(z, std::make_integer_sequence<int, 21>()));
}
WISP_INLINE float near_i1(float x) {
    const double z = 0.25 * double(x) * double(x);
    return float(0.5 * double(x) * bessel_series<1, 1>(z, std::make_integer_sequence<int, 20>()));
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
