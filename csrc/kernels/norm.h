// Layer, RMS, group and batch normalisation, forward and backward, on contiguous arrays.
//
// Statistics (mean, rstd) are kept in float for float and the half types, in double for double. Weights and biases
// have the dtype of x; any of them, and any gradient, may be null. Sums run in a fixed order for any thread count.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

// x is (batch, channels, spatial) in memory; with the channels last, all positions are the batch, and spatial is 1.
struct BatchNorm {
    DType dtype, weight_dtype;  // of x and its gradient; of weight, bias and their gradients
    int64_t batch, channels, spatial;
    const void *weight, *bias;
};

// x is (samples, channels, places) in memory, or, with the channels last, (samples, places, channels).
struct GroupNorm {
    DType dtype, weight_dtype;  // of x; of weight, bias and their gradients
    bool last;
    int64_t samples, channels, groups, places;
    const void *weight, *bias;
};

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
    // Takes mean and variance over batch and spatial, writes mean and rstd, and moves the running statistics (of dtype
    // `running`, may be null) by `momentum` towards mean and unbiased variance.
    void (*batch_norm_stats)(const BatchNorm&, const void* x, void* mean, void* rstd, DType running, void* running_mean, void* running_var,
                             double momentum, double eps);
    void (*batch_norm_from_running)(const BatchNorm&, DType running, const void* running_mean, const void* running_var, void* mean,
                                    void* rstd, double eps);
    void (*batch_norm_apply)(const BatchNorm&, const void* x, const void* mean, const void* rstd, void* y);
    // With training, mean and rstd depend on x.
    void (*batch_norm_backward)(const BatchNorm&, const void* grad, const void* x, const void* mean, const void* rstd, void* grad_x,
                                void* grad_weight, void* grad_bias, bool training);
    // Whether batch norms take channels last, as rows of channels, and weights of another dtype than x.
    bool any_batch_norm;
    // Group norm by factors, where the device has that (else null), one of each for every channel of a sample: y = x * scale + shift, and
    // backward dx = grad * scale + x * slope + shift. y and grad may have another dtype than x. The maps are of contiguous x, not of
    // channels that lie last.
    void (*group_norm_factors)(const GroupNorm&, const void* x, void* mean, void* rstd, void* scale, void* shift, double eps) = nullptr;
    void (*group_norm_map)(const GroupNorm&, const void* x, const void* scale, const void* shift, DType result, void* y) = nullptr;
    void (*group_norm_gradients)(const GroupNorm&, DType grad_dtype, const void* grad, const void* x, const void* mean, const void* rstd,
                                 void* slope, void* shift, void* grad_weight, void* grad_bias) = nullptr;
    void (*group_norm_map_back)(const GroupNorm&, DType grad_dtype, const void* grad, const void* x, const void* scale, const void* slope,
                                const void* shift, void* grad_x) = nullptr;
};

}  // namespace wisp::kernels
