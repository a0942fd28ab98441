// Tables for the transforms of fft.cpp; made once per length and kept.
#pragma once
#include <memory>

#include "kernels/fft.h"

namespace wisp::cpu {

constexpr int64_t fft_tile_limit = 2048;  // longest transform that is worked in one tile, if there is a choice

struct FftStage {
    int radix;
    int64_t points, stride;  // n = radix * points * stride over the stages
    const void* twiddles;    // [points][radix - 1] complex
};

// Tables for one length and precision; made once and kept. Complex numbers are pairs.
struct FftPlan {
    int64_t n = 0;
    // n is a product of small primes: the stages of one vertical transform.
    int stage_count = 0;
    FftStage stages[40];
    // n = rows * columns, for a long transform: vertical ones of length `rows`, twiddles, then of length `columns`.
    std::shared_ptr<const FftPlan> rows, columns;
    const void* fine = nullptr;                    // [rows] vectors of exp(-2 pi i row lane / n), as (re, im) vectors
    const double *high = nullptr, *low = nullptr;  // exp(-2 pi i k / n) = high[k / base] * low[k % base]
    int64_t base = 0;
    // n has a large prime factor: Bluestein's convolution of a longer, smooth length.
    std::shared_ptr<const FftPlan> convolution;
    const void *chirp = nullptr, *spectrum = nullptr;
    // For real transforms of length 2 n: exp(-2 pi i k / (2 n)).
    const void* real_twiddles = nullptr;
    bool bluestein() const { return convolution != nullptr; }
};

// A plan that stays while it is held, from code of any instruction set.
struct HeldPlan {
    const FftPlan* plan;
    void* owner;
};
HeldPlan hold_plan(int64_t n, bool f64, bool real);  // real: with real_twiddles
void let_go_of_plan(HeldPlan held);

}  // namespace wisp::cpu
