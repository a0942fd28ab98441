// Random numbers and dropout, by the rules of csrc/kernels/random.h: the same bits as the CPU's. Compiled without fused
// products and sums.
#include "cuda/kernels/philox.cuh"
#include "kernels/random.h"

namespace wisp {

WISP_INLINE float float_of(uint32_t bits) { return __uint_as_float(bits); }
WISP_INLINE uint32_t bits_of(float x) { return __float_as_uint(x); }
WISP_INLINE double double_of(uint64_t bits) { return __longlong_as_double(int64_t(bits)); }
WISP_INLINE uint64_t bits_of(double x) { return uint64_t(__double_as_longlong(x)); }
WISP_INLINE float root(float x) { return __fsqrt_rn(x); }
WISP_INLINE double root(double x) { return __dsqrt_rn(x); }

#include "kernels/random_rules.h"

// A generator makes the elements of one block; element e of it is number e * 16 + lane of its group of 16 blocks.
struct Bits32 {
    using Element = uint32_t;
    static constexpr int count = 4;
    static WISP_INLINE void make(const Words& w, uint32_t* out, double, double) {
        for (int i = 0; i < 4; i++) out[i] = w.at[i];
    }
};
struct Bits64 {
    using Element = uint64_t;
    static constexpr int count = 2;
    static WISP_INLINE void make(const Words& w, uint64_t* out, double, double) {
        out[0] = uint64_t(w.at[1]) << 32 | w.at[0];
        out[1] = uint64_t(w.at[3]) << 32 | w.at[2];
    }
};
struct UniformFloat {
    using Element = float;
    static constexpr int count = 4;
    static WISP_INLINE void make(const Words& w, float* out, double from, double range) {
        for (int i = 0; i < 4; i++) out[i] = unit_float(w.at[i]) * float(range) + float(from);
    }
};
struct ExponentialFloat {
    using Element = float;
    static constexpr int count = 4;
    // As minus_two_log, in fused steps.
    static WISP_INLINE float minus_log(float u) {
        const uint32_t bits = bits_of(u) + (0x3f800000u - 0x3f3504f3u);
        const float e = float_of(0x4b000000u | bits >> 23) - 8388735.f, f = float_of((bits & 0x007fffffu) + 0x3f3504f3u) - 1.f;
        float p = 7.0376836292e-2f;
        p = __fmaf_rn(p, f, -1.1514610310e-1f);
        p = __fmaf_rn(p, f, 1.1676998740e-1f);
        p = __fmaf_rn(p, f, -1.2420140846e-1f);
        p = __fmaf_rn(p, f, 1.4249322787e-1f);
        p = __fmaf_rn(p, f, -1.6668057665e-1f);
        p = __fmaf_rn(p, f, 2.0000714765e-1f);
        p = __fmaf_rn(p, f, -2.4999993993e-1f);
        p = __fmaf_rn(p, f, 3.3333331174e-1f);
        const float square = f * f;
        const float y = __fmaf_rn(-0.5f, square, __fmaf_rn(p * f, square, e * -2.12194440e-4f));
        return __fmaf_rn(e, -0.693359375f, -(f + y));
    }
    static WISP_INLINE void make(const Words& w, float* out, double mean, double) {
        for (int i = 0; i < 4; i++) {  // the CPU's but for the last bit of the logarithm, which is quicker in fused steps
            const float x = minus_log(unit_float(w.at[i]) + 0x1p-24f);
            out[i] = (x > 0x1p-25f ? x : 0x1p-25f) * float(mean);
        }
    }
};
struct UniformDouble {
    using Element = double;
    static constexpr int count = 2;
    static WISP_INLINE void make(const Words& w, double* out, double from, double range) {
        out[0] = unit_double(w.at[0], w.at[1]) * range + from;
        out[1] = unit_double(w.at[2], w.at[3]) * range + from;
    }
};
struct NormalFloat {
    using Element = float;
    static constexpr int count = 4;
    static WISP_INLINE void make(const Words& w, float* out, double mean, double deviation) {
#pragma unroll
        for (int k = 0; k < 4; k += 2) {
            const float u = unit_float(w.at[k]) + 0x1p-24f;
            const uint32_t turn = w.at[k + 1];
            const float t = float(int32_t(turn >> 6 & 0xffffffu)) * 0x1p-24f - 0.5f;
            float a, b;
            box_muller(u, turn >> 30, t * 1.57079632679f, a, b);
            out[k] = a * float(deviation) + float(mean);
            out[k + 1] = b * float(deviation) + float(mean);
        }
    }
};
struct NormalDouble {
    using Element = double;
    static constexpr int count = 2;
    static WISP_INLINE void make(const Words& w, double* out, double mean, double deviation) {
        const double u = unit_double(w.at[0], w.at[1]) + 0x1p-53;
        const uint32_t high = w.at[3];
        const double t = unit_double(w.at[2], high << 2) - 0.5;
        double a, b;
        box_muller(u, high >> 30, t * 1.57079632679489661923, a, b);
        out[0] = a * deviation + mean;
        out[1] = b * deviation + mean;
    }
};

// The blocks of a thread are neighbours, so that it has four neighbouring elements for each word: of `Count` words, [word][neighbour].
template <int Count> struct FourBlocks {
    int64_t first;  // element, of the first word
    uint64_t block;
    WISP_INLINE FourBlocks() : block((uint64_t(blockIdx.x) * 256 + threadIdx.x) * 4) {
        first = int64_t(block / 16 * (16 * Count) + block % 16);
    }
    WISP_INLINE Draw here(const Draw& draw) const {
        return draw.moved ? Draw{draw.seed ^ draw.moved[0], draw.offset + draw.moved[1], nullptr} : Draw{draw.seed, draw.offset, nullptr};
    }
    template <class T> WISP_INLINE bool whole(const T* p, int64_t n) const {
        return first + (Count - 1) * 16 + 4 <= n && reinterpret_cast<uint64_t>(p) % (4 * sizeof(T)) == 0;
    }
    template <class T> WISP_INLINE void load(const T* from, int64_t n, T (&to)[Count][4]) const {
        const bool all = whole(from, n);
#pragma unroll
        for (int e = 0; e < Count; e++) {
            const T* at = from + first + e * 16;
            if (all) {
                const Vector<T, 4> v = *reinterpret_cast<const Vector<T, 4>*>(at);
#pragma unroll
                for (int i = 0; i < 4; i++) to[e][i] = v.at[i];
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++) to[e][i] = first + e * 16 + i < n ? at[i] : T(0);
            }
        }
    }
    template <class T> WISP_INLINE void store(T* to, int64_t n, const T (&from)[Count][4]) const {
        const bool all = whole(to, n);
#pragma unroll
        for (int e = 0; e < Count; e++) {
            T* at = to + first + e * 16;
            if (all) {
                Vector<T, 4> v;
#pragma unroll
                for (int i = 0; i < 4; i++) v.at[i] = from[e][i];
                *reinterpret_cast<Vector<T, 4>*>(at) = v;
            } else {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (first + e * 16 + i < n) at[i] = from[e][i];
            }
        }
    }
};

template <class G> __global__ void __launch_bounds__(256)
    random_fill(typename G::Element* out, int64_t n, const Draw draw, double a, double b) {
    using E = typename G::Element;
    const FourBlocks<G::count> blocks;
    if (blocks.first >= n) return;
    const Draw here = blocks.here(draw);
    E made[G::count][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        E own[G::count];
        G::make(philox(here, blocks.block + i), own, a, b);
#pragma unroll
        for (int e = 0; e < G::count; e++) made[e][i] = own[e];
    }
    blocks.store(out, n, made);
}

// from + word * range / 2^32, as integers.
__global__ void __launch_bounds__(256) random_integers(int64_t* out, int64_t n, const Draw draw, int64_t from, uint64_t range) {
    const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (range != 0 && range <= (uint64_t(1) << 32)) {
        const int64_t first = block / 16 * 64 + block % 16;
        if (first >= n) return;
        const Words w = philox(draw, uint64_t(block));
        for (int e = 0; e < 4; e++)
            if (first + e * 16 < n) out[first + e * 16] = int64_t(uint64_t(from) + (uint64_t(w.at[e]) * range >> 32));
    } else {
        const int64_t first = block / 16 * 32 + block % 16;
        if (first >= n) return;
        uint64_t bits[2];
        Bits64::make(philox(draw, uint64_t(block)), bits, 0, 0);
        for (int e = 0; e < 2; e++)
            if (first + e * 16 < n) out[first + e * 16] = int64_t(uint64_t(from) + (range == 0 ? bits[e] : __umul64hi(bits[e], range)));
    }
}

template <class T> __global__ void __launch_bounds__(256)
    dropout(const T* x, T* y, int64_t n, const Draw draw, uint64_t threshold, double scale) {
    using C = compute<T>;
    const FourBlocks<4> blocks;
    if (blocks.first >= n) return;
    const Draw here = blocks.here(draw);
    T given[4][4], made[4][4];
    blocks.load(x, n, given);  // asked for before the numbers are made
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Words w = philox(here, blocks.block + i);
#pragma unroll
        for (int e = 0; e < 4; e++) made[e][i] = convert<T>(uint64_t(w.at[e]) < threshold ? convert<C>(given[e][i]) * C(scale) : C(0));
    }
    blocks.store(y, n, made);
}

__global__ void __launch_bounds__(256) random_bernoulli(float* out, int64_t n, const Draw draw, uint64_t limit) {
    const FourBlocks<4> blocks;
    if (blocks.first >= n) return;
    const Draw here = blocks.here(draw);
    float made[4][4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const Words w = philox(here, blocks.block + i);
#pragma unroll
        for (int e = 0; e < 4; e++) made[e][i] = uint64_t(w.at[e]) < limit ? 1.0f : 0.0f;
    }
    blocks.store(out, n, made);
}

#define WISP_SAMPLER inline
inline double log_factorial(double k) { return ::lgamma(k + 1); }
#include "kernels/sampler_rules.h"

template <class T> __global__ void __launch_bounds__(256)
    random_poisson(T* out, const T* rate, int64_t n, const Draw draw, unsigned long long message, Report* report) {
    const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x, first = block / 16 * 32 + block % 16;
    if (first >= n) return;
    uint64_t seeds[2];
    Bits64::make(philox(draw, uint64_t(block)), seeds, 0, 0);
    for (int e = 0; e < 2; e++) {
        const int64_t at = first + e * 16;
        if (at >= n) return;
        const double r = convert<double>(rate[at]);
        if (!(r >= 0)) report_error(report, message);
        out[at] = convert<T>(r >= 0 ? sample_poisson(r, Sequence{seeds[e]}) : 0.0);
    }
}
// 53 bits for a double, 32 for anything shorter.
template <class T> __global__ void __launch_bounds__(256)
    random_bernoulli_of(T* out, const T* probability, int64_t n, const Draw draw, unsigned long long message, Report* report) {
    constexpr int count = sizeof(T) == 8 ? 2 : 4;
    const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x, first = block / 16 * (16 * count) + block % 16;
    if (first >= n) return;
    const Words w = philox(draw, uint64_t(block));
#pragma unroll
    for (int e = 0; e < count; e++) {
        const int64_t at = first + e * 16;
        if (at >= n) return;
        const double p = convert<double>(probability[at]);
        if (!(p >= 0 && p <= 1)) report_error(report, message);
        const double u = count == 2 ? unit_double(w.at[2 * e % 4], w.at[(2 * e + 1) % 4]) : double(w.at[e]) * 0x1p-32;
        out[at] = convert<T>(u < p ? 1.0f : 0.0f);
    }
}
template <class T> __global__ void __launch_bounds__(256)
    random_race(double* out, const T* probability, int64_t n, const Draw draw, unsigned long long message, Report* report) {
    const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x, first = block / 16 * 32 + block % 16;
    if (first >= n) return;
    double made[2];
    UniformDouble::make(philox(draw, uint64_t(block)), made, 0x1p-54, 1);
    for (int e = 0; e < 2; e++) {
        const int64_t at = first + e * 16;
        if (at >= n) return;
        const double p = convert<double>(probability[at]);
        if (!(p >= 0 && p - p == 0)) report_error(report, message);
        out[at] = p / -::log(made[e]);
    }
}
// The same numbers, of which the largest of a row wins. Block [row, part]; a part's best go to keys and places [row][part].
template <class T> __global__ void __launch_bounds__(256)
    random_race_best(double* keys, int64_t* places, const T* probability, int64_t categories, const Draw draw, unsigned long long wrong,
                     Report* report) {
    const int64_t row = int64_t(blockIdx.x) * categories, begin = row + categories * blockIdx.y / gridDim.y,
                  end = row + categories * (blockIdx.y + 1) / gridDim.y;
    double best = -1;
    int64_t place = begin;
    for (int64_t group = begin / 32 + threadIdx.x / 16; group * 32 < end; group += 16) {
        const int64_t first = group * 32 + threadIdx.x % 16;
        double p[2], made[2];
#pragma unroll
        for (int e = 0; e < 2; e++)
            p[e] = first + e * 16 >= begin && first + e * 16 < end ? convert<double>(probability[first + e * 16]) : -1;
        UniformDouble::make(philox(draw, uint64_t(group * 16 + threadIdx.x % 16)), made, 0x1p-54, 1);
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int64_t at = first + e * 16;
            if (at < begin || at >= end) continue;
            if (!(p[e] >= 0 && p[e] - p[e] == 0)) report_error(report, wrong);
            if (const double key = p[e] / -::log(made[e]); key > best) best = key, place = at;
        }
    }
    __shared__ double all_keys[256];
    __shared__ int64_t all_places[256];
    all_keys[threadIdx.x] = best, all_places[threadIdx.x] = place - row;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x >= half) continue;
        const double other = all_keys[threadIdx.x + half];
        const int64_t there = all_places[threadIdx.x + half];
        if (other > all_keys[threadIdx.x] || (other == all_keys[threadIdx.x] && there < all_places[threadIdx.x]))
            all_keys[threadIdx.x] = other, all_places[threadIdx.x] = there;
    }
    const int64_t to = int64_t(blockIdx.x) * gridDim.y + blockIdx.y;
    if (threadIdx.x == 0) keys[to] = all_keys[0], places[to] = all_places[0];
}
__global__ void __launch_bounds__(256) random_race_winners(int64_t* winners, const double* keys, const int64_t* places, int64_t rows,
                                                           int parts, unsigned long long nothing, Report* report) {
    const int64_t row = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (row >= rows) return;
    double best = keys[row * parts];
    int64_t place = places[row * parts];
    for (int p = 1; p < parts; p++)
        if (keys[row * parts + p] > best) best = keys[row * parts + p], place = places[row * parts + p];
    if (!(best > 0)) report_error(report, nothing);
    winners[row] = place;
}
// A block a row: running sums of the weights, each thread of its own share, then the category at which they pass each draw.
__global__ void __launch_bounds__(256)
    random_weighted(int64_t* out, double* sums, const double* weights, const double* uniform, int64_t categories, int64_t draws,
                    unsigned long long wrong, unsigned long long nothing, Report* report) {
    __shared__ double shares[256];
    __shared__ int last;  // that can be drawn
    weights += blockIdx.x * categories, sums += blockIdx.x * categories, uniform += blockIdx.x * draws, out += blockIdx.x * draws;
    const int share = int((categories + 255) / 256), first = threadIdx.x * share, end = min(first + share, int(categories));
    double total = 0;
    int own = -1;
    bool good = true;
    for (int i = first; i < end; i++) {
        const double w = weights[i];
        good = good && w >= 0 && w - w == 0;
        if (w > 0) own = i;
        total += w;
    }
    if (!good) report_error(report, wrong);
    if (threadIdx.x == 0) last = -1;
    shares[threadIdx.x] = total;
    __syncthreads();
    if (own >= 0) atomicMax(&last, own);
    for (int d = 1; d < 256; d *= 2) {
        const double before = threadIdx.x >= d ? shares[threadIdx.x - d] : 0;
        __syncthreads();
        shares[threadIdx.x] += before;
        __syncthreads();
    }
    double sum = threadIdx.x ? shares[threadIdx.x - 1] : 0;
    for (int i = first; i < end; i++) sums[i] = sum += weights[i];
    __syncthreads();
    if (last < 0 && threadIdx.x == 0 && good) report_error(report, nothing);
    const double all = sums[categories - 1];
    for (int64_t k = threadIdx.x; k < draws; k += 256) {
        const double limit = uniform[k] * all;
        int low = 0, high = last;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (sums[middle] > limit) high = middle;
            else low = middle + 1;
        }
        out[k] = high < 0 ? 0 : low;
    }
}
__global__ void __launch_bounds__(128)
    random_binomial(double* out, const double* count, const double* probability, const uint64_t* seeds, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x;
    if (i < n) out[i] = sample_binomial(count[i], probability[i], Sequence{seeds[i]});
}
__global__ void __launch_bounds__(128) random_transform(double* values, int64_t n, int distribution, double a, double b) {
    const int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x;
    if (i < n) values[i] = sample_of(Distribution(distribution), values[i], a, b);
}
template <int D> __global__ void __launch_bounds__(256) random_drawn(float* out, int64_t n, const Draw draw, double a, double b) {
    const int64_t block = int64_t(blockIdx.x) * 256 + threadIdx.x, first = block / 16 * 32 + block % 16;
    if (first >= n) return;
    double made[2];
    UniformDouble::make(philox(draw, uint64_t(block)), made, 0, 1);
#pragma unroll
    for (int e = 0; e < 2; e++)
        if (first + e * 16 < n) out[first + e * 16] = float(sample_of(Distribution(D), made[e], a, b));
}

}  // namespace wisp
