// grid_sample as a formula of other operators: slower than the kernel, but differentiable any number of times. Used for
// derivatives of its gradient only.
#include "grid_formula.h"

namespace wisp {
namespace {

Tensor number(double v) { return wrapped_number(Scalar(v)); }

Tensor clipped(const Tensor& c, int64_t size) { return minimum(maximum(c, Scalar(0.0)), Scalar(double(size - 1))); }

Tensor padded(const Tensor& c, int64_t size, const kernels::GridSample& g) {
    if (g.padding == kernels::GridPadding::zeros) return c;
    if (g.padding == kernels::GridPadding::border) return clipped(c, size);
    const double low = g.align_corners ? 0 : -0.5, span = g.align_corners ? double(size - 1) : double(size);
    if (span == 0) return c * Scalar(0.0);
    const Tensor x = abs(c - Scalar(low)), flips = floor(x / Scalar(span)), extra = x - flips * Scalar(span);
    const Tensor even = eq(flips, floor(flips / Scalar(2.0)) * Scalar(2.0));
    return clipped(where(even, extra, Scalar(span) - extra) + Scalar(low), size);
}

// One neighbour along one axis: its place, as a floating number, and its weight.
struct Neighbour {
    Tensor place, weight;
};

TensorList cubic_weights(const Tensor& t) {
    const double a = -0.75;
    auto inner = [&](const Tensor& x) { return (x * Scalar(a + 2) - Scalar(a + 3)) * x * x + Scalar(1.0); };
    auto outer = [&](const Tensor& x) { return ((x * Scalar(a) - Scalar(5 * a)) * x + Scalar(8 * a)) * x - Scalar(4 * a); };
    return {outer(t + Scalar(1.0)), inner(t), inner(Scalar(1.0) - t), outer(Scalar(2.0) - t)};
}

// The neighbours of every point along axis d (x, y, z).
std::vector<Neighbour> neighbours(const kernels::GridSample& g, const Tensor& points, int d) {
    const int64_t size = g.in[2 - d];
    const Tensor x = select(points, -1, d);
    Tensor c = g.align_corners ? (x + Scalar(1.0)) * Scalar(double(size - 1) / 2)
                               : ((x + Scalar(1.0)) * Scalar(double(size)) - Scalar(1.0)) * Scalar(0.5);
    std::vector<Neighbour> list;
    if (g.interpolation == kernels::GridInterpolation::bicubic) {
        const Tensor low = detach(floor(c));
        const TensorList weights = cubic_weights(c - low);
        for (int i = 0; i < 4; ++i) list.push_back({padded(low + Scalar(double(i - 1)), size, g), weights[i]});
        return list;
    }
    c = padded(c, size, g);
    if (g.interpolation == kernels::GridInterpolation::nearest) {
        list.push_back({detach(round(c)), number(1)});
        return list;
    }
    const Tensor low = detach(floor(c)), upper = c - low;
    list.push_back({low, Scalar(1.0) - upper});
    list.push_back({low + Scalar(1.0), upper});
    return list;
}

}  // namespace

Tensor grid_sample_formula(const kernels::GridSample& g, const Tensor& input, const Tensor& grid) {
    int64_t in_size = 1, points = 1;
    Dims sizes{g.batch, g.channels};
    for (int d = 0; d < 3; ++d) in_size *= g.in[d], points *= g.out[d];
    for (int d = 3 - g.dims; d < 3; ++d) sizes.push_back(g.out[d]);
    const Tensor flat = reshape(input, {g.batch, g.channels, in_size});
    const Tensor at = reshape(grid, {g.batch, points, g.dims});
    std::vector<Neighbour> axis[3];
    for (int d = 0; d < g.dims; ++d) axis[d] = neighbours(g, at, d);
    const int64_t count = int64_t(axis[0].size()), all = g.dims == 2 ? count * count : count * count * count;
    Tensor sum = zeros({g.batch, g.channels, points}, input.dtype());
    for (int64_t corner = 0; corner < all; ++corner) {
        Tensor index, weight, inside;
        int64_t rest = corner, stride = 1;
        for (int d = 0; d < g.dims; ++d) {
            const Neighbour& n = axis[d][size_t(rest % count)];
            rest /= count;
            const int64_t size = g.in[2 - d];
            const Tensor place = detach(n.place);
            const Tensor valid = logical_and(ge(place, Scalar(0.0)), le(place, Scalar(double(size - 1))));
            const Tensor offset = to(clipped(place, size), DType::i64) * Scalar(stride);
            stride *= size;
            index = d == 0 ? offset : index + offset;
            inside = d == 0 ? valid : logical_and(inside, valid);
            weight = d == 0 ? n.weight : weight * n.weight;
        }
        const Tensor wanted = expand(unsqueeze(index, 1), {g.batch, g.channels, points});
        const Tensor factor = where(inside, weight, number(0));
        sum = sum + gather(flat, 2, wanted) * unsqueeze(factor, 1);
    }
    return reshape(sum, sizes);
}

}  // namespace wisp
