// From random bits to uniform and normal numbers: the text that the kernels of CPU and GPU share, to the last bit. The
// including file provides float_of, double_of, bits_of and root, and forbids fusing products with sums.

WISP_INLINE float unit_float(uint32_t x) { return float(int32_t(x >> 8)) * 0x1p-24f; }
WISP_INLINE double unit_double(uint32_t low, uint32_t high) {
    return (double(int32_t(high >> 5)) * 67108864. + double(int32_t(low >> 6))) * 0x1p-53;
}

// -2 log(u) for normal u in (0, 1]: u = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
WISP_INLINE float minus_two_log(float u) {
    const uint32_t bits = bits_of(u) + (0x3f800000u - 0x3f3504f3u);
    const float e = float_of(0x4b000000u | bits >> 23) - 8388735.f;  // bits >> 23 less 127, without a slow conversion
    const float f = float_of((bits & 0x007fffffu) + 0x3f3504f3u) - 1.f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const float square = f * f;
    float y = p * f * square + e * -2.12194440e-4f;
    y = y - 0.5f * square;
    return -2.f * ((f + y) + e * 0.693359375f);
}
WISP_INLINE double minus_two_log(double u) {
    const uint64_t bits = bits_of(u) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
    const double e = double(int32_t(bits >> 52) - 1023);
    const double f = double_of((bits & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.;
    const double s = f / (2. + f), z = s * s, half = 0.5 * f * f;  // log(1 + f) = f - s (f - R(s^2))
    double r = 1.479819860511658591e-1;
    r = r * z + 1.531383769920937332e-1;
    r = r * z + 1.818357216161805012e-1;
    r = r * z + 2.222219843214978396e-1;
    r = r * z + 2.857142874366239149e-1;
    r = r * z + 3.999999999940941908e-1;
    r = r * z + 6.666666666666735130e-1;
    r = r * z;
    return -2. * (e * 6.93147180369123816490e-1 - ((half - (s * (half + r) + e * 1.90821492927058770002e-10)) - f));
}

// Sine and cosine on [-pi/4, pi/4].
WISP_INLINE void sine_cosine(float x, float& sine, float& cosine) {
    const float z = x * x;
    sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
    cosine = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.f;
}
WISP_INLINE void sine_cosine(double x, double& sine, double& cosine) {
    const double z = x * x;
    double p = 1.58969099521155010221e-10, q = -1.13596475577881948265e-11;
    p = p * z - 2.50507602534068634195e-8;
    p = p * z + 2.75573137070700676789e-6;
    p = p * z - 1.98412698298579493134e-4;
    p = p * z + 8.33333333332248946124e-3;
    p = p * z - 1.66666666666666324348e-1;
    sine = p * z * x + x;
    q = q * z + 2.08757232129817482790e-9;
    q = q * z - 2.75573143513906633035e-7;
    q = q * z + 2.48015872894767294178e-5;
    q = q * z - 1.38888888888741095749e-3;
    q = q * z + 4.16666666666666019037e-2;
    cosine = q * z * z - 0.5 * z + 1.;
}

// Two normals from a uniform u in (0, 1] and an angle of quarter turns plus x in [-pi/4, pi/4).
template <class T> WISP_INLINE void box_muller(T u, uint32_t quarter, T x, T& first, T& second) {
    const T radius = root(minus_two_log(u));
    T sine, cosine;
    sine_cosine(x, sine, cosine);
    const bool odd = quarter & 1;
    const T c = odd ? sine : cosine, s = odd ? cosine : sine;
    // Quarters 0 to 3 are (c, s), (-s, c), (-c, -s), (s, -c).
    const T sign_c = ((quarter + 1) & 2) ? T(-1) : T(1), sign_s = (quarter & 2) ? T(-1) : T(1);
    first = radius * (c * sign_c);
    second = radius * (s * sign_s);
}
