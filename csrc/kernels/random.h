// Random numbers: Philox 4x32-10 keyed by (seed, offset of the call, index of the element).
//
// Element i of a call is a function of (seed, offset, i) alone: any number of threads and any split of the call into
// pieces give the same numbers, and so does another backend that follows these rules:
//   counter = (block low, block high, offset low, offset high), key = (seed low, seed high); four 32-bit words each.
//   32-bit elements: element i is word (i % 64) / 16 of block i / 64 * 16 + i % 16.
//   64-bit elements: element i is words 2h and 2h+1 (low, high), h = (i % 32) / 16, of block i / 32 * 16 + i % 16.
//   Normals come in pairs: of words (0, 1) the first becomes radius * cos(angle), the second radius * sin(angle);
//   words (2, 3) likewise; of 64-bit elements h = 0 and h = 1 are the pair.
// No product and sum is fused into one rounding, and logarithm, sine and cosine are the polynomials of random.cpp.
#pragma once
#ifndef __CUDACC_RTC__  // the GPU's compiler gets this text too
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"
#endif

namespace wisp::kernels {

struct RandomStream {
    uint64_t seed, offset;
};

// One is negative or not finite; a row has none above 0; nothing was done, for there are too many.
enum class Weights : uint8_t { fine, wrong, nothing, too_many };
enum class Distribution : uint8_t { exponential, geometric, cauchy, log_normal };

#ifndef __CUDACC_RTC__
// Each writes elements [first, first + n) of the call to out[0..n), in several threads where n is large.
struct RandomKernels {
    void (*uniform_f32)(float* out, int64_t n, RandomStream, int64_t first, float from, float range);     // 24 bits
    void (*uniform_f64)(double* out, int64_t n, RandomStream, int64_t first, double from, double range);  // 53 bits
    void (*normal_f32)(float* out, int64_t n, RandomStream, int64_t first, float mean, float deviation);
    void (*normal_f64)(double* out, int64_t n, RandomStream, int64_t first, double mean, double deviation);
    void (*bits32)(uint32_t* out, int64_t n, RandomStream, int64_t first);
    void (*bits64)(uint64_t* out, int64_t n, RandomStream, int64_t first);

    // These write whole calls.
    void (*integers)(int64_t* out, int64_t n, RandomStream, int64_t from, uint64_t range);  // range 0 stands for 2^64
    void (*bernoulli)(float* out, int64_t n, RandomStream, uint64_t limit);                 // 1 where 32 bits are below limit
    // One exponential number of mean `mean` an element, of 24 bits; never zero, for its logarithm is common (Gumbel noise).
    void (*exponential_f32)(float* out, int64_t n, RandomStream, float mean);
    // 1 where a uniform number, of 32 bits or for double of 53, is below the probability. These two read and write floating
    // dtypes; false, or on the GPU an error at the next synchronisation, where a value is not in its range.
    bool (*bernoulli_of)(DType, void* out, const void* probability, int64_t n, RandomStream, const char* message);
    bool (*poisson)(DType, void* out, const void* rate, int64_t n, RandomStream, const char* message);
    // probability / an exponential number, whose largest are a sample without replacement; a probability is 0 or more, and finite. Null:
    // `weighted` does it.
    bool (*race)(DType, double* out, const void* probability, int64_t n, RandomStream, const char* message);
    // Of rows of such numbers, the place of the largest; errors as above. Null where `race` is.
    void (*race_winners)(DType, int64_t* winners, const void* probability, int64_t rows, int64_t categories, RandomStream,
                         const char* wrong, const char* nothing);
    void (*binomial)(double* out, const double* count, const double* probability, int64_t n, RandomStream);
    // Uniform numbers in [0, 1) become numbers of the distribution, whose parameters are a and b (see sampler_rules.h).
    void (*transform)(Distribution, double* values, int64_t n, double a, double b);
    // Both at once, rounded to float. Null: the front door does one after the other.
    void (*drawn_f32)(Distribution, float* out, int64_t n, RandomStream, double a, double b);

    // Whether all numbers lie in [low, high], which NaN does not. Null: the front door compares.
    bool (*within)(const double* values, int64_t n, double low, double high);
    // Draws from rows of weights, with `draws` uniform numbers for each. With replacement, out[row][draw] is the category drawn.
    // Without (out is null, a draw for each category), those with the largest keys[row][category] are. The GPU takes up to so many
    // categories, with replacement, and raises RuntimeError with one of the messages, static text, at the next synchronisation.
    Weights (*weighted)(int64_t* out, double* keys, const double* weights, const double* uniform, int64_t rows, int64_t categories,
                        int64_t draws, const char* wrong, const char* nothing);
};
#endif

}  // namespace wisp::kernels
