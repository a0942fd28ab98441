// Random numbers (see random.h). Plain loops over 16 lanes that the compiler turns into vectors.
#pragma GCC optimize("fp-contract=off")  // the same bits whether or not the processor can fuse

#include "cpu/random.h"

#include "core/threads.h"
#include "cpu/isa.h"

#include <cstring>

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int width = 16;  // blocks worked on at once
constexpr int64_t grain = 16384;

// Sixteen blocks from `block` on: words[w][lane].
WISP_INLINE void philox(RandomStream stream, uint64_t block, uint32_t words[4][width]) {
    const uint32_t seed_low = uint32_t(stream.seed), seed_high = uint32_t(stream.seed >> 32);
    const uint32_t offset_low = uint32_t(stream.offset), offset_high = uint32_t(stream.offset >> 32);
    const uint32_t low = uint32_t(block), high = uint32_t(block >> 32);  // block is a multiple of 16: no carry
    for (int lane = 0; lane < width; ++lane) {
        uint32_t x0 = low + uint32_t(lane), x1 = high, x2 = offset_low, x3 = offset_high;
        uint32_t k0 = seed_low, k1 = seed_high;
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) {
            const uint64_t p = uint64_t(0xD2511F53u) * x0, q = uint64_t(0xCD9E8D57u) * x2;
            x0 = uint32_t(q >> 32) ^ x1 ^ k0;
            x1 = uint32_t(q);
            x2 = uint32_t(p >> 32) ^ x3 ^ k1;
            x3 = uint32_t(p);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        words[0][lane] = x0, words[1][lane] = x1, words[2][lane] = x2, words[3][lane] = x3;
    }
}

WISP_INLINE float unit_float(uint32_t x) { return float(int32_t(x >> 8)) * 0x1p-24f; }
WISP_INLINE double unit_double(uint32_t low, uint32_t high) {
    return (double(int32_t(high >> 5)) * 67108864. + double(int32_t(low >> 6))) * 0x1p-53;
}

WISP_INLINE float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
WISP_INLINE uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
WISP_INLINE double double_of(uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, 8);
    return x;
}
WISP_INLINE uint64_t bits_of(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, 8);
    return bits;
}

// -2 log(u) for normal u in (0, 1]: u = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
WISP_INLINE float minus_two_log(float u) {
    const uint32_t bits = bits_of(u) + (0x3f800000u - 0x3f3504f3u);
    const float e = float(int32_t(bits >> 23) - 127);
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
    return -2. * (e * 6.93147180369123816490e-1 -
                  ((half - (s * (half + r) + e * 1.90821492927058770002e-10)) - f));
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

WISP_INLINE float root(float x) { return __builtin_sqrtf(x); }
WISP_INLINE double root(double x) { return __builtin_sqrt(x); }

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

// A generator turns sixteen blocks into 64 or 32 elements at out; generators with parameters finish with a line.
struct Bits32 {
    using Element = uint32_t;
    static constexpr int count = 64;
    WISP_INLINE void operator()(const uint32_t w[4][width], uint32_t* out) const { std::memcpy(out, w, 256); }
};
struct Bits64 {
    using Element = uint64_t;
    static constexpr int count = 32;
    WISP_INLINE void operator()(const uint32_t w[4][width], uint64_t* out) const {
        for (int i = 0; i < width; ++i) out[i] = uint64_t(w[1][i]) << 32 | w[0][i];
        for (int i = 0; i < width; ++i) out[width + i] = uint64_t(w[3][i]) << 32 | w[2][i];
    }
};
struct UniformFloat {
    using Element = float;
    static constexpr int count = 64;
    float from, range;
    WISP_INLINE void operator()(const uint32_t w[4][width], float* out) const {
        for (int k = 0; k < 4; ++k)
            for (int i = 0; i < width; ++i) out[k * width + i] = unit_float(w[k][i]) * range + from;
    }
};
struct UniformDouble {
    using Element = double;
    static constexpr int count = 32;
    double from, range;
    WISP_INLINE void operator()(const uint32_t w[4][width], double* out) const {
        for (int i = 0; i < width; ++i) out[i] = unit_double(w[0][i], w[1][i]) * range + from;
        for (int i = 0; i < width; ++i) out[width + i] = unit_double(w[2][i], w[3][i]) * range + from;
    }
};
struct NormalFloat {
    using Element = float;
    static constexpr int count = 64;
    float mean, deviation;
    WISP_INLINE void operator()(const uint32_t w[4][width], float* out) const {
        for (int k = 0; k < 4; k += 2)
            for (int i = 0; i < width; ++i) {
                const float u = unit_float(w[k][i]) + 0x1p-24f;
                const uint32_t turn = w[k + 1][i];
                const float t = float(int32_t(turn >> 6 & 0xffffffu)) * 0x1p-24f - 0.5f;
                float a, b;
                box_muller(u, turn >> 30, t * 1.57079632679f, a, b);
                out[k * width + i] = a * deviation + mean;
                out[(k + 1) * width + i] = b * deviation + mean;
            }
    }
};
struct NormalDouble {
    using Element = double;
    static constexpr int count = 32;
    double mean, deviation;
    WISP_INLINE void operator()(const uint32_t w[4][width], double* out) const {
        for (int i = 0; i < width; ++i) {
            const double u = unit_double(w[0][i], w[1][i]) + 0x1p-53;
            const uint32_t high = w[3][i];
            const double t = unit_double(w[2][i], high << 2) - 0.5;
            double a, b;
            box_muller(u, high >> 30, t * 1.57079632679489661923, a, b);
            out[i] = a * deviation + mean;
            out[width + i] = b * deviation + mean;
        }
    }
};

template <class Generator>
void fill(typename Generator::Element* out, int64_t n, RandomStream stream, int64_t first, Generator generate) {
    constexpr int64_t count = Generator::count;
    parallel_for(n, grain, [=](int64_t from, int64_t to) {
        int64_t at = first + from;
        const int64_t end = first + to;
        auto* target = out + from;
        uint32_t words[4][width];
        while (at < end) {
            const int64_t group = at / count, skip = at % count;
            philox(stream, uint64_t(group) * width, words);
            if (skip == 0 && end - at >= count) {
                generate(words, target);
                at += count, target += count;
                continue;
            }
            typename Generator::Element whole[count];
            generate(words, whole);
            const int64_t take = end - at < count - skip ? end - at : count - skip;
            std::memcpy(target, whole + skip, size_t(take) * sizeof whole[0]);
            at += take, target += take;
        }
    });
}

void uniform_f32(float* out, int64_t n, RandomStream stream, int64_t first, float from, float range) {
    fill(out, n, stream, first, UniformFloat{from, range});
}
void uniform_f64(double* out, int64_t n, RandomStream stream, int64_t first, double from, double range) {
    fill(out, n, stream, first, UniformDouble{from, range});
}
void normal_f32(float* out, int64_t n, RandomStream stream, int64_t first, float mean, float deviation) {
    fill(out, n, stream, first, NormalFloat{mean, deviation});
}
void normal_f64(double* out, int64_t n, RandomStream stream, int64_t first, double mean, double deviation) {
    fill(out, n, stream, first, NormalDouble{mean, deviation});
}
void bits32(uint32_t* out, int64_t n, RandomStream stream, int64_t first) { fill(out, n, stream, first, Bits32{}); }
void bits64(uint64_t* out, int64_t n, RandomStream stream, int64_t first) { fill(out, n, stream, first, Bits64{}); }

}  // namespace

extern const RandomKernels random_table = {&uniform_f32, &uniform_f64, &normal_f32, &normal_f64, &bits32, &bits64};

}  // namespace wisp::cpu::WISP_ISA
