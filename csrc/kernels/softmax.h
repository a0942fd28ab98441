// Softmax and log-softmax over the middle dimension of contiguous (outer, n, inner) arrays, forward and backward.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

struct SoftmaxKernels {
    // y = softmax(x), or its logarithm. Floating dtypes; half types are computed in float.
    void (*forward)(DType, const void* x, void* y, int64_t outer, int64_t n, int64_t inner, bool logarithm);
    // The gradient of x from that of y and from y.
    void (*backward)(DType, const void* grad, const void* y, void* grad_x, int64_t outer, int64_t n, int64_t inner, bool logarithm);
};

}  // namespace wisp::kernels
