// Dropout: elements kept with a probability and scaled, or set to zero, by random numbers that need not be stored.
#pragma once
#include "core/dtype.h"
#include "cpu/random.h"

namespace wisp::cpu {

struct DropoutKernels {
    // y[i] = x[i] * scale where 32-bit random number i of the stream is below `threshold`, else 0. Floating dtypes.
    void (*apply)(DType, const void* x, void* y, int64_t n, RandomStream, uint64_t threshold, double scale);
};
extern const DropoutKernels& dropout;

}  // namespace wisp::cpu
