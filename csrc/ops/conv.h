// Front doors of convolution for other front doors.
#pragma once
#include "../kernels/conv.h"
#include "ops.h"

namespace wisp {

// The sizes of a convolution, whichever of its three products is computed.
struct ConvGeometry {
    kernels::ConvShape shape;
    int dims;

    Dims input_sizes() const { return sizes(shape.batch, shape.in_channels, shape.in); }
    Dims output_sizes() const { return sizes(shape.batch, shape.out_channels, shape.out); }
    Dims weight_sizes() const { return sizes(shape.out_channels, shape.in_channels / shape.groups, shape.kernel); }

private:
    Dims sizes(int64_t a, int64_t b, const int64_t* spatial) const {
        Dims d{a, b};
        for (int i = 3 - dims; i < 3; ++i) d.push_back(spatial[i]);
        return d;
    }
};

// The three products of a convolution. Each is linear in both operands, and the derivatives of each are the others.
Tensor conv_output(const ConvGeometry& g, const Tensor& input, const Tensor& weight, const Tensor& bias);
Tensor conv_input(const ConvGeometry& g, const Tensor& grad, const Tensor& weight, const Tensor& bias);
Tensor conv_weight(const ConvGeometry& g, const Tensor& input, const Tensor& grad);

struct ConvOptions {
    Dims stride, padding, dilation;
    int64_t groups = 1;
    bool transposed = false;
    Dims output_padding;
};
// What conv1d to conv3d and conv_transpose1d to conv_transpose3d do; `dims` spatial dimensions.
Tensor convolution(int dims, const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvOptions& options);

}  // namespace wisp
