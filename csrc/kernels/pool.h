// Pooling kernels over contiguous planes [planes, in...] with one to three spatial dimensions.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

// The spatial arrays are (depth, height, width); missing leading dimensions have size 1, kernel 1, stride 1, padding 0.
struct PoolShape {
    int64_t planes;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t inner;  // 1, or with any_format the number of channels, where they come last: [planes / inner, in..., inner]
};

struct AveragePool {
    bool count_include_pad = true;
    int64_t divisor_override = 0;  // 0: none
};

struct PoolKernels {
    // The largest element of each window; NaN counts as larger than anything. Where they are asked for (not null),
    // `indices` receive its place in its plane, `taps` its place in the window (windows of at most 256 elements).
    // f32, f64, u8, i8, i16, i32, i64.
    void (*max)(DType, const PoolShape&, const void* input, void* output, int64_t* indices, uint8_t* taps);
    // f32 and f64; exactly one of indices and taps is given.
    void (*max_grad)(DType, const PoolShape&, const void* grad, const int64_t* indices, const uint8_t* taps, void* input_grad);
    void (*indices_of_taps)(const PoolShape&, const uint8_t* taps, int64_t* indices);
    void (*average)(DType, const PoolShape&, const AveragePool&, const void* input, void* output);
    void (*average_grad)(DType, const PoolShape&, const AveragePool&, const void* grad, void* input_grad);
    // Adaptive pools read only planes, in and out of the shape.
    void (*adaptive_average)(DType, const PoolShape&, const void* input, void* output);
    void (*adaptive_average_grad)(DType, const PoolShape&, const void* grad, void* input_grad);
    void (*adaptive_max)(DType, const PoolShape&, const void* input, void* output, int64_t* indices);
    // Fractional: windows of `kernel` elements that begin at starts[d][plane * out[d] + i]. f32 and f64.
    void (*fractional_max)(DType, const PoolShape&, const int64_t* const* starts, const void* input, void* output, int64_t* indices);
    // Zeros with values[plane][k] at indices[plane][k]; any dtype. The place of an index outside of [0, size), or -1.
    int64_t (*unpool)(DType, int64_t planes, int64_t count, int64_t size, const void* values, const int64_t* indices, void* output);

    bool any_format;  // whether the kernels take half precision, and channels last
};

}  // namespace wisp::kernels
