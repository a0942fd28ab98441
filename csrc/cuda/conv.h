// Convolution on the GPU through cuDNN, with the shapes of csrc/cpu/conv.h.
#pragma once
#include "../core/dtype.h"
#include "../cpu/conv.h"

namespace wisp::cuda {

enum class ConvProduct { output, input, weight };
// output(input, weight), input gradient(grad, weight) or weight gradient(input, grad); contiguous, of one floating dtype.
// bias (per channel of the result) may be null.
void convolve(ConvProduct product, DType dtype, const cpu::ConvShape& shape, const void* a, const void* b, const void* bias, void* out);

}  // namespace wisp::cuda
