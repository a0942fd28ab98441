// The settings of cuDNN, and parts of the GPU's convolutions (csrc/kernels/conv.h).
#pragma once
#include "../core/dtype.h"
#include "../kernels/conv.h"

namespace wisp::cuda {

struct ConvSettings {           // wisp.backends.cudnn
    bool benchmark = false;     // try the algorithms and keep the fastest
    bool deterministic = true;  // only algorithms that give the same bits each time, where there is one
    bool tf32 = true;
};
extern ConvSettings conv_settings;
int64_t cudnn_version();  // 91002; 0 where there is none

// Shapes of little work by kernels of ours; the second gives the gradients of weight and bias (either may be null) together.
// False: nothing was done.
bool small_convolve(ConvProduct product, DType dtype, const ConvShape& shape, const void* a, const void* b, const void* bias, void* out);
bool small_conv_gradients(DType dtype, const ConvShape& shape, const void* input, const void* grad, void* weight_grad, void* bias_grad);
// A kernel of 5 or 7 for each channel, and half-precision patches side by side (depthwise.cpp). False: nothing was done.
bool depthwise_convolve(ConvProduct product, DType dtype, const ConvShape& shape, const void* a, const void* b, const void* bias,
                        void* out);
bool patch_convolve(ConvProduct product, DType dtype, const ConvShape& shape, const void* a, const void* b, const void* bias, void* out);
void integer_convolve(ConvProduct product, const ConvShape& shape, const void* a, const void* b, const void* bias, void* out);  // int64

}  // namespace wisp::cuda
