// Random numbers (see random.h). Plain loops over 16 lanes that the compiler turns into vectors.
#pragma GCC optimize("fp-contract=off")  // the same bits whether or not the processor can fuse

#include "kernels/random.h"

#include "core/threads.h"
#include "cpu/bits.h"

#include <math.h>
#include <cstring>

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int width = 16;  // blocks worked on at once
constexpr int64_t grain = 16384;

#include "kernels/philox_rules.h"

// Sixteen blocks from `block` on: words[w][lane].
WISP_INLINE void philox(RandomStream stream, uint64_t block, uint32_t words[4][width]) {
    const uint32_t seed_low = uint32_t(stream.seed), seed_high = uint32_t(stream.seed >> 32);
    const uint32_t offset_low = uint32_t(stream.offset), offset_high = uint32_t(stream.offset >> 32);
    const uint32_t low = uint32_t(block), high = uint32_t(block >> 32);  // block is a multiple of 16: no carry
    for (int lane = 0; lane < width; ++lane) {
        uint32_t x0 = low + uint32_t(lane), x1 = high, x2 = offset_low, x3 = offset_high;
        uint32_t k0 = seed_low, k1 = seed_high;
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) philox_round(x0, x1, x2, x3, k0, k1);
        words[0][lane] = x0, words[1][lane] = x1, words[2][lane] = x2, words[3][lane] = x3;
    }
}

WISP_INLINE float float_of(uint32_t bits) { return bits_as<float>(bits); }
WISP_INLINE uint32_t bits_of(float x) { return bits_as<uint32_t>(x); }
WISP_INLINE double double_of(uint64_t bits) { return bits_as<double>(bits); }
WISP_INLINE uint64_t bits_of(double x) { return bits_as<uint64_t>(x); }
WISP_INLINE float root(float x) { return __builtin_sqrtf(x); }
WISP_INLINE double root(double x) { return __builtin_sqrt(x); }

#include "kernels/random_rules.h"

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
struct ExponentialFloat {
    using Element = float;
    static constexpr int count = 64;
    float mean;
    WISP_INLINE void operator()(const uint32_t w[4][width], float* out) const {
        for (int k = 0; k < 4; ++k)
            for (int i = 0; i < width; ++i) {
                const float x = 0.5f * minus_two_log(unit_float(w[k][i]) + 0x1p-24f);
                out[k * width + i] = (x > 0x1p-25f ? x : 0x1p-25f) * mean;
            }
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

template <class Generator> void fill(typename Generator::Element* out, int64_t n, RandomStream stream, int64_t first, Generator generate) {
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
void exponential_f32(float* out, int64_t n, RandomStream stream, float mean) { fill(out, n, stream, 0, ExponentialFloat{mean}); }
void bits32(uint32_t* out, int64_t n, RandomStream stream, int64_t first) { fill(out, n, stream, first, Bits32{}); }
void bits64(uint64_t* out, int64_t n, RandomStream stream, int64_t first) { fill(out, n, stream, first, Bits64{}); }

constexpr int64_t block = 1024;

void integers(int64_t* out, int64_t n, RandomStream stream, int64_t from, uint64_t range) {
    const bool narrow = range != 0 && range <= (uint64_t(1) << 32);
    parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        uint32_t words[block];
        for (int64_t i = begin; i < end; i += block) {
            const int64_t m = least(block, end - i);
            if (narrow) {  // the upper part of bits * range: no division, and all values as likely to 2^-32
                bits32(words, m, stream, i);
                for (int64_t j = 0; j < m; j++) out[i + j] = int64_t(uint64_t(from) + (uint64_t(words[j]) * range >> 32));
            } else {
                auto* bits = reinterpret_cast<uint64_t*>(out + i);
                bits64(bits, m, stream, i);
                for (int64_t j = 0; j < m; j++) {
                    const uint64_t x = range == 0 ? bits[j] : uint64_t((unsigned __int128)bits[j] * range >> 64);
                    out[i + j] = int64_t(uint64_t(from) + x);
                }
            }
        }
    });
}

void bernoulli(float* out, int64_t n, RandomStream stream, uint64_t limit) {
    parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        uint32_t words[block];
        for (int64_t i = begin; i < end; i += block) {
            const int64_t m = least(block, end - i);
            bits32(words, m, stream, i);
            for (int64_t j = 0; j < m; j++) out[i + j] = uint64_t(words[j]) < limit;
        }
    });
}

#define WISP_SAMPLER inline
double log_factorial(double k) {
    int sign;
    return lgamma_r(k + 1, &sign);
}
#include "kernels/sampler_rules.h"

template <class F> void with_floating(DType d, F f) {
    if (d == DType::f32) f(float());
    else if (d == DType::f64) f(double());
    else if (d == DType::f16) f(f16());
    else f(bf16());
}

bool bernoulli_of(DType d, void* out, const void* probability, int64_t n, RandomStream stream, const char*) {
    bool good = true;
    with_floating(d, [&](auto like) {
        using T = decltype(like);
        const T* p = static_cast<const T*>(probability);
        T* to = static_cast<T*>(out);
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
            bool mine = true;
            uint32_t words[block];
            double uniform[block];
            for (int64_t i = begin; i < end; i += block) {
                const int64_t m = least(block, end - i);
                if (sizeof(T) == 8) uniform_f64(uniform, m, stream, i, 0, 1);
                else bits32(words, m, stream, i);
                for (int64_t j = 0; j < m; j++) {
                    const double limit = double(p[i + j]), u = sizeof(T) == 8 ? uniform[j] : double(words[j]) * 0x1p-32;
                    mine &= limit >= 0 && limit <= 1;
                    to[i + j] = T(u < limit ? 1.0f : 0.0f);
                }
            }
            if (!mine) __atomic_store_n(&good, false, __ATOMIC_RELAXED);
        });
    });
    return good;
}

// out[i] = sample(i, a sequence of its own)
template <class T, class F> void sample_each(T* out, int64_t n, RandomStream stream, F sample) {
    parallel_for(n, 1024, [&](int64_t begin, int64_t end) {
        uint64_t seeds[block];
        for (int64_t i = begin; i < end; i += block) {
            const int64_t m = least(block, end - i);
            bits64(seeds, m, stream, i);
            for (int64_t j = 0; j < m; j++) out[i + j] = T(sample(i + j, Sequence{seeds[j]}));
        }
    });
}
bool poisson(DType d, void* out, const void* rates, int64_t n, RandomStream stream, const char*) {
    bool good = true;
    with_floating(d, [&](auto like) {
        using T = decltype(like);
        sample_each(static_cast<T*>(out), n, stream, [&](int64_t i, Sequence s) {
            const double rate = double(static_cast<const T*>(rates)[i]);
            if (!(rate >= 0)) __atomic_store_n(&good, false, __ATOMIC_RELAXED);
            return rate >= 0 ? sample_poisson(rate, s) : 0.0;
        });
    });
    return good;
}
void binomial(double* out, const double* count, const double* probability, int64_t n, RandomStream stream) {
    sample_each(out, n, stream, [=](int64_t i, Sequence s) { return sample_binomial(count[i], probability[i], s); });
}
void transform(Distribution distribution, double* values, int64_t n, double a, double b) {
    parallel_for(n, 4096, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) values[i] = sample_of(distribution, values[i], a, b);
    });
}

bool within(const double* values, int64_t n, double low, double high) {
    bool all = true;
    for (int64_t i = 0; i < n; i++) all &= (values[i] >= low) & (values[i] <= high);
    return all;
}

Weights weighted(int64_t* out, double* keys, const double* weights, const double* uniform, int64_t rows, int64_t categories, int64_t draws,
                 const char*, const char*) {
    for (int64_t r = 0; r < rows; r++, weights += categories, keys += categories, uniform += draws) {
        double total = 0;
        int64_t last = 0;  // that can be drawn
        for (int64_t c = 0; c < categories; c++) {
            if (!(weights[c] >= 0 && weights[c] < __builtin_inf())) return Weights::wrong;
            total += weights[c];
            if (weights[c] > 0) last = c;
            keys[c] = total;
        }
        if (!(total > 0)) return Weights::nothing;
        if (!out) {  // the largest of weight / exponential
            for (int64_t c = 0; c < categories; c++) keys[c] = weights[c] / -log(uniform[c]);
            continue;
        }
        for (int64_t d = 0; d < draws; d++) {  // the first running sum above the number
            int64_t low = 0, high = last;
            while (low < high) {
                const int64_t middle = (low + high) / 2;
                if (keys[middle] > uniform[d] * total) high = middle;
                else low = middle + 1;
            }
            *out++ = low;
        }
    }
    return Weights::fine;
}

}  // namespace

extern const RandomKernels random_table = {&uniform_f32, &uniform_f64, &normal_f32,      &normal_f64,   &bits32,  &bits64,
                                           &integers,    &bernoulli,   &exponential_f32, &bernoulli_of, &poisson, nullptr,
                                           nullptr,      &binomial,    &transform,       nullptr,       &within,  &weighted};

}  // namespace wisp::cpu::WISP_ISA
