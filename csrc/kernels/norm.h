// Layer, RMS, group and batch normalisation, forward and backward, on contiguous arrays.
//
// Statistics (mean, rstd) are kept in float for float and the half types, in double for double. Weights and biases
// have the dtype of x; any of them, and any gradient, may be null. Sums run in a fixed order for any thread count.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

struct NormKernels {
    // Rows of n. With mean == null: RMS normalisation, x * rstd * weight.
    void (*layer_norm)(DType, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t rows, int64_t n,
                       double eps);
    void (*layer_norm_backward)(DType, const void* grad, const void* x, const void* weight, const void* mean, const void* rstd,
                                void* grad_x, void* grad_weight, void* grad_bias, int64_t rows, int64_t n);
    // x is (batch, groups * channels, spatial); mean and rstd are (batch, groups); weight is per channel.
    void (*group_norm)(DType, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t batch,
                       int64_t groups, int64_t channels, int64_t spatial, double eps);
    void (*group_norm_backward)(DType, const void* grad, const void* x, const void* weight, const void* mean, const void* rstd,
                                void* grad_x, void* grad_weight, void* grad_bias, int64_t batch, int64_t groups, int64_t channels,
                                int64_t spatial);
    // x is (batch, channels, spatial). Takes mean and variance over batch and spatial, writes mean and rstd, and moves
    // the running statistics (of dtype `running`, may be null) by `momentum` towards mean and unbiased variance.
    void (*batch_norm_stats)(DType, const void* x, void* mean, void* rstd, DType running, void* running_mean, void* running_var,
                             double momentum, int64_t batch, int64_t channels, int64_t spatial, double eps);
    // mean and rstd of dtype `d`'s compute type from the running statistics.
    void (*batch_norm_from_running)(DType d, DType running, const void* running_mean, const void* running_var, void* mean, void* rstd,
                                    int64_t channels, double eps);
    void (*batch_norm_apply)(DType, const void* x, const void* mean, const void* rstd, const void* weight, const void* bias, void* y,
                             int64_t batch, int64_t channels, int64_t spatial);
    // With training, mean and rstd depend on x.
    void (*batch_norm_backward)(DType, const void* grad, const void* x, const void* mean, const void* rstd, const void* weight,
                                void* grad_x, void* grad_weight, void* grad_bias, int64_t batch, int64_t channels, int64_t spatial,
                                bool training);
};

}  // namespace wisp::kernels
