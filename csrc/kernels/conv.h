// Convolution kernels for contiguous tensors of one to three spatial dimensions.
//
// input  [batch, in_channels, in...]      output [batch, out_channels, out...]
// weight [out_channels, in_channels / groups, kernel...]
// A transposed convolution is input_grad with its own input in the place of the gradient.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

// The spatial arrays are (depth, height, width); missing leading dimensions have size 1, stride 1, no padding.
// `padding` is what stands before the first element; `out` alone says how far the windows go, so the padding behind
// the last element may differ and either may be negative.
struct ConvShape {
    int64_t batch, groups, in_channels, out_channels;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};

enum class ConvProduct { output, input, weight };

struct ConvKernels {
    // output(input, weight), input gradient(grad, weight) or weight gradient(input, grad), of one dtype. bias (one per channel of
    // the result, none of a weight) may be null. int64 wraps around and has no gradients: correct, not fast.
    void (*product)(ConvProduct, DType, const ConvShape&, bool channels_last, const void* a, const void* b, const void* bias, void* out);
    // Sums grad (f32 or f64) over the batch and all positions. Null: a reduction does as well.
    void (*bias_grad)(DType, const ConvShape&, const void* grad, void* bias_grad);
    // The gradients of weight and bias together (f32), either may be null. False: nothing was done. Null: it never is.
    bool (*gradients)(const ConvShape&, const void* input, const void* grad, void* weight_grad, void* bias_grad);
    bool any_float;  // whether they take half precision, and floats with their channels last
};

// The CPU's products with respect to the weight, in a file of their own.
struct ConvWeightKernels {
    void (*weight_grad_f32)(const ConvShape&, const float* input, const float* grad, float* weight_grad);
    void (*weight_grad_f64)(const ConvShape&, const double* input, const double* grad, double* weight_grad);
    // Sums grad over the batch and all positions.
    void (*bias_grad_f32)(const ConvShape&, const float* grad, float* bias_grad);
    void (*bias_grad_f64)(const ConvShape&, const double* grad, double* bias_grad);
};

}  // namespace wisp::kernels
