// Batch normalisation on the GPU: x is [batch, channels, spatial] in memory; with the channels last, pass all positions
// as the batch and a spatial size of 1. Statistics (mean, rstd) are float, double for double.
#pragma once
#include "../core/dtype.h"

namespace wisp::cuda {

struct BatchNorm {
    DType dtype, weight_dtype;  // of x and its gradient; of weight, bias and their gradients
    int64_t batch, channels, spatial;
    const void *weight, *bias;  // may be null
};
// Writes mean and rstd, and moves the running statistics (of dtype `running`, may be null).
void batch_norm_statistics(const BatchNorm& n, const void* x, void* mean, void* rstd, DType running, void* running_mean, void* running_var,
                           double momentum, double eps);
void batch_norm_from_running(const BatchNorm& n, DType running, const void* running_mean, const void* running_var, void* mean, void* rstd,
                             double eps);
void batch_norm_apply(const BatchNorm& n, const void* x, const void* mean, const void* rstd, void* y);
// Any of dx, dw and db may be null. With training, mean and rstd depend on x.
void batch_norm_backward(const BatchNorm& n, const void* g, const void* x, const void* mean, const void* rstd, void* dx, void* dw, void* db,
                         bool training);

}  // namespace wisp::cuda
