// Discrete Fourier transforms of any length, in float and double.
#pragma once
#include <cstdint>

#include "kernels/families.h"

namespace wisp::kernels {

enum class FftKind { complex, real_to_half, half_to_real };

struct FftKernels {
    // Transforms `count` arrays, one after the other, over `rank` dimensions (1 but for complex ones). Of a half spectrum the last
    // dimension has sizes[rank - 1] / 2 + 1 complex points, of which those that stand for themselves count as real. in may be
    // out for complex ones.
    void (*rows)(FftKind kind, bool f64, int rank, const int64_t* sizes, const void* in, void* out, int64_t count, bool inverse,
                 double scale);
    // The same along the middle of [outer, n, inner] complex numbers. False: the dimension is better brought to the end. Null:
    // it always is.
    bool (*columns)(bool f64, const void* in, void* out, int64_t outer, int64_t n, int64_t inner, bool inverse, double scale);
    // From the half spectra of `batch` real arrays, contiguous, to the whole ones. Null: that is no quicker than a complex transform.
    void (*mirror)(bool f64, const void* half, void* whole, int64_t batch, int rank, const int64_t* sizes);
    int most_dims;           // that `rows` takes
    bool odd_real;           // whether it takes real rows of odd length
    int64_t most_odd_pairs;  // to half spectra it takes many of them up to this length, even so
};

}  // namespace wisp::kernels
