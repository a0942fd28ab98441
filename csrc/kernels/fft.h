// Discrete Fourier transforms of any length, in float and double.
//
// Every transform is worked vertically: a tile holds one vector of lanes per point, each lane a transform of its own,
// so that all butterflies are whole-vector arithmetic with broadcast twiddles. The lanes are neighbouring columns,
// neighbouring rows (transposed on the way in), or the columns of one long row that is folded into a matrix.
#pragma once
#include <cstdint>
#include <memory>

#include "kernels/families.h"

namespace wisp::kernels {

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

enum class FftKind { complex, real_to_half, half_to_real };

struct FftKernels {
    // Transforms the middle dimension of [outer, n, inner] complex numbers; in may be out. inner > 1 needs stages.
    void (*columns)(const FftPlan& plan, bool f64, const void* in, void* out, int64_t outer, int64_t inner, bool inverse, double scale);
    // Transforms `count` rows of n complex numbers. With real_to_half the input rows are 2 n real numbers and the
    // output rows n + 1 complex ones; half_to_real is the way back. Row strides are in real numbers; in may be out
    // for complex rows.
    void (*rows)(const FftPlan& plan, bool f64, FftKind kind, const void* in, int64_t in_stride, void* out, int64_t out_stride,
                 int64_t count, bool inverse, double scale);
};

}  // namespace wisp::kernels

namespace wisp::cpu {
std::shared_ptr<const FftPlan> fft_plan(int64_t n, bool f64, bool real = false);  // real: with real_twiddles
}
