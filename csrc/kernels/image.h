// Kernels for images as contiguous planes: padding and nearest resampling by index maps, weighted resampling,
// unfold and fold, and sampling at the points of a grid.
#pragma once
#ifndef __CUDACC_RTC__  // the GPU's compiler gets this text too
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"
#endif

namespace wisp::kernels {

// output[p][i][j][k] = input[p][map[0][i]][map[1][j]][map[2][k]]; the maps follow from the rest (image_map_rules.h).
struct ImageMap {
    enum Kind : uint8_t { reflect, replicate, circular, nearest, nearest_exact };
    Kind kind = reflect;
    int64_t planes = 1, in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
    int64_t left[3] = {0, 0, 0};  // padding before the first element
    float scale[3] = {1, 1, 1};   // of the nearest kinds: input per output
    const int64_t* map[3] = {};
};

// Along the middle axis of [outer, in, inner]:
//     output[o] = sum over t < taps of weight[o * taps + t] * input[index[o * taps + t]]
struct ImageResample {
    int64_t outer, in, out, inner, taps;
    const int64_t* index;
    const double* weight;
};

// Windows of [batch, channels, in...] as the columns of [batch, channels * kernel, positions].
struct ImageWindows {
    int64_t batch, channels;
    int64_t in[2], out[2], kernel[2], stride[2], padding[2], dilation[2];
};

enum class GridInterpolation : uint8_t { bilinear, nearest, bicubic };
enum class GridPadding : uint8_t { zeros, border, reflection };

// input [batch, channels, in...], grid [batch, out..., dims], output [batch, channels, out...]; dims is 2 or 3, and in
// two dimensions in[0] = out[0] = 1.
struct GridSample {
    int64_t batch, channels, in[3], out[3];
    int dims;
    GridInterpolation interpolation;
    GridPadding padding;
    bool align_corners;
};

#ifndef __CUDACC_RTC__
struct ImageKernels {
    void (*gather)(DType, const ImageMap&, const void* input, void* output);          // any dtype; null maps where gather_by_rule
    void (*gather_grad)(DType, const ImageMap&, const void* grad, void* input_grad);  // f32, f64, c64, c128
    void (*resample)(DType, const ImageResample&, const void* input, void* output);   // f32, f64
    void (*resample_grad)(DType, const ImageResample&, const void* grad, void* input_grad);
    void (*unfold)(DType, const ImageWindows&, const void* input, void* columns);                      // f32, f64, c64, c128, bool
    void (*fold)(DType, const ImageWindows&, const void* columns, void* output);                       // f32, f64, c64, c128
    void (*grid_sample)(DType, const GridSample&, const void* input, const void* grid, void* output);  // f32, f64
    // Either gradient may be null.
    void (*grid_sample_grad)(DType, const GridSample&, const void* grad, const void* input, const void* grid, void* input_grad,
                             void* grid_grad);
    bool gather_by_rule;
};

#endif

}  // namespace wisp::kernels
