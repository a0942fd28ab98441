// Reductions over any set of dimensions of a strided tensor: sums, products, extremes with their positions, norms,
// variances, logsumexp. The result does not depend on the number of threads.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/pointwise.h"

namespace wisp::kernels {

enum class Reduction : uint8_t { sum, nansum, prod, max, min, any, all, count_nonzero, norm, variance, logsumexp, extremes };

// Elements that are not in memory but made by a row of the pointwise table, of one or two contiguous operands, as they are needed.
struct MadeElements {
    PointwiseKernel kernel;
    const void* operands[2];
    const Param* params;
};

struct ReduceArguments {
    const void* in;
    DType in_dtype;
    const int64_t* sizes;
    const int64_t* strides;  // in elements
    int ndim;
    uint64_t reduced;  // bit k: dimension k is reduced

    // The results, contiguous, in the order of the dimensions that are kept. What is computed in: float or double for
    // a floating out_dtype, int64 for an integral one. Null for max and min if only the indices are wanted.
    void* out;
    DType out_dtype;

    int64_t* indices = nullptr;          // max, min: where the first extreme (or NaN) is among the reduced elements, or null
    void* mean = nullptr;                // variance: the mean, also as out_dtype, or null; extremes: the largest, while out is the smallest
    double divisor = 1;                  // sum, nansum: the result is divided by this (floating and complex only)
    double parameter = 0;                // norm: p, infinities included; variance: the correction
    bool root = false;                   // variance: the standard deviation
    const MadeElements* made = nullptr;  // CPU: sums of all of more than 4096 floats or doubles; `in` is the first operand then
};

struct ReduceKernels {
    // norm takes complex input and gives real results; variance and logsumexp take real input; max and min of nothing
    // are undefined.
    void (*reduce)(Reduction operation, const ReduceArguments& arguments);
};

}  // namespace wisp::kernels
