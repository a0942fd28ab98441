// Dropout: elements kept with a probability and scaled, or set to zero, by random numbers that need not be stored.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"
#include "kernels/random.h"

namespace wisp::kernels {

struct DropoutKernels {
    // y[i] = x[i] * scale where 32-bit random number i of the stream is below `threshold`, else 0. Floating dtypes.
    void (*apply)(DType, const void* x, void* y, int64_t n, RandomStream, uint64_t threshold, double scale);
};

}  // namespace wisp::kernels
