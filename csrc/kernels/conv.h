// Convolution kernels for contiguous tensors, channels first, one to three spatial dimensions.
//
// input  [batch, in_channels, in...]      output [batch, out_channels, out...]
// weight [out_channels, in_channels / groups, kernel...]
// A transposed convolution is input_grad with its own input in the place of the gradient.
#pragma once
#include <cstdint>

#include "kernels/families.h"

namespace wisp::kernels {

// The spatial arrays are (depth, height, width); missing leading dimensions have size 1, stride 1, no padding.
// `padding` is what stands before the first element; `out` alone says how far the windows go, so the padding behind
// the last element may differ and either may be negative.
struct ConvShape {
    int64_t batch, groups, in_channels, out_channels;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};

struct ConvKernels {
    // bias (one per channel of the result) may be null.
    void (*forward_f32)(const ConvShape&, const float* input, const float* weight, const float* bias, float* output);
    void (*forward_f64)(const ConvShape&, const double* input, const double* weight, const double* bias, double* output);
    void (*input_grad_f32)(const ConvShape&, const float* grad, const float* weight, const float* bias, float* input_grad);
    void (*input_grad_f64)(const ConvShape&, const double* grad, const double* weight, const double* bias, double* input_grad);
    // Integers, which wrap around: correct, not fast.
    void (*forward_i64)(const ConvShape&, const int64_t* input, const int64_t* weight, const int64_t* bias, int64_t* output);
    void (*input_grad_i64)(const ConvShape&, const int64_t* grad, const int64_t* weight, const int64_t* bias, int64_t* input_grad);
};

struct ConvWeightKernels {
    void (*weight_grad_f32)(const ConvShape&, const float* input, const float* grad, float* weight_grad);
    void (*weight_grad_f64)(const ConvShape&, const double* input, const double* grad, double* weight_grad);
    // Sums grad over the batch and all positions.
    void (*bias_grad_f32)(const ConvShape&, const float* grad, float* bias_grad);
    void (*bias_grad_f64)(const ConvShape&, const double* grad, double* bias_grad);
};

}  // namespace wisp::kernels
