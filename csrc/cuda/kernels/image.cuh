// Images as contiguous planes: index maps, weighted resampling, unfold and fold, grid_sample. Gradients are gathered: a
// thread an element of the input, which takes what comes to it in the order that the CPU has, so no sum depends on timing.
#include "cuda/kernels/fixed_point.cuh"

#include "kernels/image.h"

namespace wisp {

WISP_INLINE float floor_of(float x) { return ::floorf(x); }
WISP_INLINE double floor_of(double x) { return ::floor(x); }
WISP_INLINE float nearest_of(float x) { return ::nearbyintf(x); }
WISP_INLINE double nearest_of(double x) { return ::nearbyint(x); }
#include "kernels/grid_rules.h"
#include "kernels/image_map_rules.h"

WISP_INLINE int64_t image_size(const int64_t* v) { return v[0] * v[1] * v[2]; }

// A thread takes N neighbours of one row.
template <int Bytes, int N, int Kind> __global__ void __launch_bounds__(256)
    image_gather(const ImageMap given, const void* input, void* output, int64_t n) {
    using T = Cell<Bytes>;
    ImageMap m = given;
    m.kind = ImageMap::Kind(Kind);  // known to the compiler
    const int64_t at = (int64_t(blockIdx.x) * 256 + threadIdx.x) * N;
    if (at >= n) return;
    const Split k = split(at, m.out[2]), j = split(k.whole, m.out[1]), i = split(j.whole, m.out[0]);
    auto take = [&](auto like) {
        using I = decltype(like);
        const T* row = static_cast<const T*>(input) + i.whole * image_size(m.in) +
                       (int64_t(source_of(m, 0, I(i.rest))) * m.in[1] + source_of(m, 1, I(j.rest))) * m.in[2];
        Vector<T, N> taken;
#pragma unroll
        for (int a = 0; a < N; a++) taken.at[a] = row[source_of(m, 2, I(k.rest) + a)];
        *reinterpret_cast<Vector<T, N>*>(static_cast<T*>(output) + at) = taken;
    };
    bool narrow = true;  // indices of 32 bits cost half
    for (int d = 0; d < 3; d++) narrow = narrow && (m.in[d] | m.out[d]) < (int64_t(1) << 30);
    if (narrow) take(int());
    else take(int64_t());
}

// The outputs that the map takes from input position i along one axis: to[d][start[d][i]] up to to[d][start[d][i + 1]].
struct Inverse {
    const int64_t *start[3], *to[3];
};
template <class T> __global__ void __launch_bounds__(256)
    image_gather_grad(const ImageMap m, const Inverse inverse, const T* grad, T* input_grad, int64_t n) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= n) return;
    const Split by_k = split(at, m.in[2]), by_j = split(by_k.whole, m.in[1]), by_i = split(by_j.whole, m.in[0]);
    const int64_t k = by_k.rest, j = by_j.rest, i = by_i.rest;
    const T* from = grad + by_i.whole * image_size(m.out);
    T sum = T(0);
    for (int64_t a = inverse.start[0][i]; a < inverse.start[0][i + 1]; a++)
        for (int64_t b = inverse.start[1][j]; b < inverse.start[1][j + 1]; b++)
            for (int64_t c = inverse.start[2][k]; c < inverse.start[2][k + 1]; c++)
                sum = sum + from[(inverse.to[0][a] * m.out[1] + inverse.to[1][b]) * m.out[2] + inverse.to[2][c]];
    input_grad[at] = sum;
}

template <class T> __global__ void __launch_bounds__(256) image_resample(const ImageResample r, const T* input, T* output, int64_t n) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= n) return;
    const Split by_k = split(at, r.inner), by_o = split(by_k.whole, r.out);
    const int64_t o = by_o.rest;
    const T* from = input + by_o.whole * r.in * r.inner + by_k.rest;
    const int64_t* index = r.index + o * r.taps;
    const double* weight = r.weight + o * r.taps;
    T sum = T(weight[0]) * from[index[0] * r.inner];
    for (int64_t t = 1; t < r.taps; t++)
        if (weight[t] != 0 || r.inner == 1) sum += T(weight[t]) * from[index[t] * r.inner];
    output[at] = sum;
}
// start: where the contributions to each input position begin in index (outputs) and weight.
template <class T> __global__ void __launch_bounds__(256)
    image_resample_grad(const ImageResample r, const int64_t* start, const T* grad, T* input_grad, int64_t n) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= n) return;
    const Split by_k = split(at, r.inner), by_i = split(by_k.whole, r.in);
    const int64_t i = by_i.rest;
    const T* from = grad + by_i.whole * r.out * r.inner + by_k.rest;
    T sum = T(0);
    for (int64_t t = start[i]; t < start[i + 1]; t++) sum += T(r.weight[t]) * from[r.index[t] * r.inner];
    input_grad[at] = sum;
}

template <int Bytes, int N> __global__ void __launch_bounds__(256)
    image_unfold(const ImageWindows w, const void* input, void* columns, int64_t n) {
    using T = Cell<Bytes>;
    const int64_t at = (int64_t(blockIdx.x) * 256 + threadIdx.x) * N;
    if (at >= n) return;
    const Split column = split(at, w.out[1]), row = split(column.whole, w.out[0]);
    const Split b = split(row.whole, w.kernel[1]), a = split(b.whole, w.kernel[0]);
    const int64_t y = row.rest * w.stride[0] - w.padding[0] + a.rest * w.dilation[0];
    const int64_t x = column.rest * w.stride[1] - w.padding[1] + b.rest * w.dilation[1];
    const T* from = static_cast<const T*>(input) + (a.whole * w.in[0] + y) * w.in[1];
    Vector<T, N> taken;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const int64_t there = x + k * w.stride[1];
        const bool inside = y >= 0 && y < w.in[0] && there >= 0 && there < w.in[1];
        taken.at[k] = inside ? from[there] : T{};
    }
    *reinterpret_cast<Vector<T, N>*>(static_cast<T*>(columns) + at) = taken;
}
template <class T> __global__ void __launch_bounds__(256) image_fold(const ImageWindows w, const T* columns, T* output, int64_t n) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= n) return;
    const Split by_x = split(at, w.in[1]), by_y = split(by_x.whole, w.in[0]);
    const int64_t x = by_x.rest, y = by_y.rest, plane = by_y.whole;
    const int64_t positions = w.out[0] * w.out[1], kernel = w.kernel[0] * w.kernel[1];
    T sum = T(0);
    for (int64_t a = 0; a < w.kernel[0]; a++) {
        const int64_t i = y + w.padding[0] - a * w.dilation[0];
        if (i < 0) continue;
        const Split above = split(i, w.stride[0]);
        if (above.rest || above.whole >= w.out[0]) continue;
        for (int64_t b = 0; b < w.kernel[1]; b++) {
            const int64_t j = x + w.padding[1] - b * w.dilation[1];
            if (j < 0) continue;
            const Split before = split(j, w.stride[1]);
            if (before.rest || before.whole >= w.out[1]) continue;
            sum = sum + columns[(plane * kernel + a * w.kernel[1] + b) * positions + above.whole * w.out[1] + before.whole];
        }
    }
    output[at] = sum;
}

// Bilinear points of a plane, which most are: four corners, -1 for those outside.
template <class T> struct Corners {
    int at[4];
    T weight[4], slope[4][2];
};
template <class T> WISP_INLINE Corners<T> corners_of(const GridSample& g, const T* point) {
    const auto given = *reinterpret_cast<const Vector<T, 2>*>(point);
    Coordinate<T> x = to_elements(given.at[0], g.in[2], g.align_corners), y = to_elements(given.at[1], g.in[1], g.align_corners);
    apply_padding(x, g.in[2], g);
    apply_padding(y, g.in[1], g);
    const T left = floor_of(x.at), top = floor_of(y.at);
    const int ix = int(left), iy = int(top), width = int(g.in[2]), height = int(g.in[1]);
    Corners<T> c;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int right = k & 1, low = k >> 1;
        const T wx = right ? x.at - left : left + 1 - x.at, wy = low ? y.at - top : top + 1 - y.at;
        const bool inside = unsigned(ix + right) < unsigned(width) && unsigned(iy + low) < unsigned(height);
        c.at[k] = inside ? (iy + low) * width + ix + right : -1;
        c.weight[k] = wx * wy;
        c.slope[k][0] = (right ? x.slope : -x.slope) * wy;
        c.slope[k][1] = wx * (low ? y.slope : -y.slope);
    }
    return c;
}
template <class T> __global__ void __launch_bounds__(256)
    grid_sample_plane(const GridSample g, const T* input, const T* grid, T* output, int64_t n, int64_t share) {
    const int64_t item = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (item >= n) return;
    const int64_t in_size = image_size(g.in), out_size = image_size(g.out), first = int64_t(blockIdx.y) * share;
    const int64_t batch = split(item, out_size).whole, last = first + share < g.channels ? first + share : g.channels;
    const Corners<T> c = corners_of(g, grid + item * 2);
    const T* from = input + (batch * g.channels + first) * in_size;
    T* to = output + (batch * g.channels + first) * out_size + item - batch * out_size;
#pragma unroll 2
    for (int64_t channel = first; channel < last; channel++, from += in_size, to += out_size) {
        T sum = T(0);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (c.at[k] >= 0) sum += c.weight[k] * from[c.at[k]];
        *to = sum;
    }
}
// The gradient of the input in fixed point: the largest exponents (four channels are the bytes of a word, for a visit of a place costs
// the same for one as for four), sums in their units, with the gradient of the grid, if there is one, and results.
template <bool Sums> __global__ void __launch_bounds__(256, 4)
    grid_sample_plane_grad(const GridSample g, const float* grad, const float* input, const float* grid, float* grid_grad,
                           unsigned* exponents, unsigned long long* sums, int64_t n, int bits) {
    const int64_t item = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (item >= n) return;
    const int64_t in_size = image_size(g.in), out_size = image_size(g.out);
    const Split by_batch = split(item, out_size);
    const Corners<float> c = corners_of(g, grid + item * 2);
    float slope[2] = {};
    exponents += by_batch.whole * ((g.channels + 3) / 4) * in_size;
    int64_t plane = by_batch.whole * g.channels * in_size;
    const float* d_at = grad + by_batch.whole * g.channels * out_size + by_batch.rest;
    for (int64_t left = g.channels; left > 0; left -= 4, exponents += in_size, plane += 4 * in_size, d_at += 4 * out_size) {
        unsigned e[4];
#pragma unroll
        for (int k = 0; k < 4; k++) e[k] = c.at[k] < 0 ? 0u : Sums ? exponents[c.at[k]] : __ldcg(exponents + c.at[k]);
        float d[4];
#pragma unroll
        for (int j = 0; j < 4; j++) d[j] = j < left ? d_at[j * out_size] : 0.f;
        if constexpr (!Sums) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (c.at[k] < 0) continue;
                unsigned own = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) own |= (exponent_of(c.weight[k] * d[j]) - 1) << (8 * j);
                for (unsigned old = e[k], more; (more = __vmaxu4(old, own)) != old;) {
                    const unsigned seen = atomicCAS(exponents + c.at[k], old, more);
                    if (seen == old) break;
                    old = seen;
                }
            }
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (j >= left) break;
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    if (c.at[k] < 0) continue;
                    const int64_t at = plane + j * in_size + c.at[k];
                    add_fixed(sums + at, c.weight[k] * d[j], (e[k] >> (8 * j) & 255) + 1, bits);
                    if (grid_grad) {
                        const float x = input[at] * d[j];
                        slope[0] += c.slope[k][0] * x;
                        slope[1] += c.slope[k][1] * x;
                    }
                }
            }
        }
    }
    if (Sums && grid_grad) *reinterpret_cast<Vector<float, 2>*>(grid_grad + item * 2) = {{slope[0], slope[1]}};
}
__global__ void __launch_bounds__(256) grid_sample_plane_result(float* out, const unsigned* exponents, const unsigned long long* sums,
                                                                int64_t in_size, int channels, int bits) {
    const int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (place >= in_size) return;
    const int words = (channels + 3) / 4, word = blockIdx.y % words, batch = blockIdx.y / words;
    const unsigned e = exponents[blockIdx.y * in_size + place];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (word * 4 + j >= channels) break;
        const int64_t at = (int64_t(batch) * channels + word * 4 + j) * in_size + place;
        out[at] = sum_joined(0.f, (e >> (8 * j) & 255) + 1, sums[at], bits);
    }
}

// A thread a point, for up to `share` channels.
template <class T> __global__ void __launch_bounds__(256)
    grid_sample(const GridSample g, const T* input, const T* grid, T* output, int64_t n, int64_t share) {
    const int64_t item = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (item >= n) return;
    const int64_t in_size = image_size(g.in), out_size = image_size(g.out), first = int64_t(blockIdx.y) * share;
    const int64_t batch = split(item, out_size).whole;
    const int64_t last = first + share < g.channels ? first + share : g.channels;
    Neighbours<T> near;
    neighbours(g, grid + item * g.dims, near);
    for (int64_t c = first; c < last; c++) {
        const T* from = input + (batch * g.channels + c) * in_size;
        T sum = T(0);
        for (int k = 0; k < near.count; k++) sum += near.weight[k] * from[near.at[k]];
        output[(batch * g.channels + c) * out_size + item - batch * out_size] = sum;
    }
}
// The gradient of the grid, and, for that of the input, where each neighbour of each point is (batch * in_size + place) and its weight.
template <class T> __global__ void __launch_bounds__(256)
    grid_sample_points(const GridSample g, const T* grad, const T* input, const T* grid, T* grid_grad, uint64_t* places, T* weights,
                       int64_t n, int taps) {
    const int64_t item = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (item >= n) return;
    const int64_t in_size = image_size(g.in), out_size = image_size(g.out);
    const Split by_batch = split(item, out_size);
    const int64_t batch = by_batch.whole, o = by_batch.rest;
    Neighbours<T> near;
    neighbours(g, grid + item * g.dims, near);
    if (places)
        for (int k = 0; k < taps; k++) {
            const bool used = k < near.count;
            places[item * taps + k] = used ? uint64_t(batch * in_size + near.at[k]) : uint64_t(g.batch * in_size);
            weights[item * taps + k] = used ? near.weight[k] : T(0);
        }
    if (!grid_grad) return;
    T slope[3] = {T(0), T(0), T(0)};
    for (int64_t c = 0; c < g.channels; c++) {
        const T d = grad[(batch * g.channels + c) * out_size + o];
        const T* from = input + (batch * g.channels + c) * in_size;
        for (int k = 0; k < near.count; k++) {
            const T x = from[near.at[k]] * d;
            for (int axis = 0; axis < g.dims; axis++) slope[axis] += near.slope[k][axis] * x;
        }
    }
    for (int axis = 0; axis < g.dims; axis++) grid_grad[item * g.dims + axis] = slope[axis];
}
// Places in order: a thread takes all that goes to one place of one channel.
template <class T> __global__ void __launch_bounds__(256)
    grid_sample_sums(const GridSample g, const T* grad, const uint64_t* places, const int64_t* positions, const T* weights, T* input_grad,
                     int64_t n, int taps) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const int64_t in_size = image_size(g.in), out_size = image_size(g.out), place = int64_t(places[i]);
    if (place >= g.batch * in_size || (i > 0 && int64_t(places[i - 1]) == place)) return;
    const Split by_batch = split(place, in_size);
    constexpr int together = 4;  // channels
    for (int64_t c = int64_t(blockIdx.y) * together; c < g.channels; c += int64_t(gridDim.y) * together) {
        const int count = g.channels - c < together ? int(g.channels - c) : together;
        const int64_t plane = by_batch.whole * g.channels + c;
        T sum[together] = {};
        for (int64_t j = i; j < n && int64_t(places[j]) == place; j++) {
            const int64_t position = positions[j];
            const T weight = weights[position];
            const T* from = grad + plane * out_size + split(split(position, taps).whole, out_size).rest;
#pragma unroll
            for (int k = 0; k < together; k++)
                if (k < count) sum[k] += weight * from[k * out_size];
        }
#pragma unroll
        for (int k = 0; k < together; k++)
            if (k < count) input_grad[(plane + k) * in_size + by_batch.rest] = sum[k];
    }
}

}  // namespace wisp
