// A thread for each index of a kernel that is one function (see kernels/each.h).
#pragma once
#include "cuda/kernels/base.cuh"
#include "kernels/each.h"

namespace wisp {

template <class Arguments, class T> __global__ void each(const Arguments a, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) a.template at<T>(i);
}

}  // namespace wisp
