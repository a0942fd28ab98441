// Gradients of convolutions over few positions with large weights, for conv.cpp and conv_weight.cpp: as one product
// with the weight as it lies in memory, between a small matrix and its unfolded or folded form.
//
// Such layers (the last ones of an image network) spend their time on reading the weight; tiles of positions would be
// nearly empty, and for the strided ones split further into phases. So are those of an image's patches side by side.
#pragma once
#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/conv_depthwise.h"
#include "cpu/conv_layout.h"
#include "kernels/copy.h"
#include "kernels/gemm.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t most_unfolded_columns = 512, most_patches = int64_t(1) << 23;  // elements

// Patches side by side unfold into as much memory as the image has, and have a phase for each of their taps.
WISP_INLINE bool are_patches(const ConvShape& s) {
    return s.kernel[0] * s.kernel[1] * s.kernel[2] >= 16 && s.stride[0] >= s.kernel[0] && s.stride[1] >= s.kernel[1] &&
           s.stride[2] >= s.kernel[2];
}
WISP_INLINE bool suits_unfolding(const ConvShape& s) {
    const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], columns = s.batch * s.out[0] * s.out[1] * s.out[2];
    const int64_t depth = s.in_channels * taps;
    if (s.groups != 1 || columns <= 0 || s.out_channels < 16 || s.out_channels * depth < 16384) return false;
    return are_patches(s) ? depth >= 64 && depth * columns <= most_patches : columns <= most_unfolded_columns && s.in_channels >= 16;
}

// Every tap of every position as an offset into a padded plane of the input.
struct Unfolding {
    int64_t padded[3], plane, taps, positions, depth, columns;
    int64_t *tap, *position;  // offsets; in scratch slot 0

    explicit Unfolding(const ConvShape& s) {
        plane = taps = positions = 1;
        for (int d = 0; d < 3; ++d) {
            const int64_t reach = (s.out[d] - 1) * s.stride[d] + (s.kernel[d] - 1) * s.dilation[d] + 1;
            padded[d] = most(reach, s.padding[d] + s.in[d]);
            plane *= padded[d];
            taps *= s.kernel[d];
            positions *= s.out[d];
        }
        depth = s.in_channels * taps;
        columns = s.batch * positions;
        tap = static_cast<int64_t*>(scratch(0, size_t(taps + positions) * 8));
        position = tap + taps;
        fill(tap, s.kernel, s.dilation);
        fill(position, s.out, s.stride);
    }
    void fill(int64_t* to, const int64_t* size, const int64_t* step) const {
        for (int64_t i = 0; i < size[0]; ++i)
            for (int64_t j = 0; j < size[1]; ++j)
                for (int64_t k = 0; k < size[2]; ++k) *to++ = (i * step[0] * padded[1] + j * step[1]) * padded[2] + k * step[2];
    }
    // Calls row(place in the plane, place in the input, count) for the rows of the input within the padded plane.
    template <class Row> void each_row(const ConvShape& s, Row&& row) const {
        const int64_t from = most(0, -s.padding[2]), count = s.in[2] - from;
        for (int64_t i = most(0, -s.padding[0]); i < s.in[0]; ++i)
            for (int64_t j = most(0, -s.padding[1]); j < s.in[1]; ++j)
                row(((i + s.padding[0]) * padded[1] + j + s.padding[1]) * padded[2] + from + s.padding[2],
                    (i * s.in[1] + j) * s.in[2] + from, count);
    }
};

// to[c][n][position] = from[n][c][position]
template <class T> const T* channels_first(const T* from, int64_t batch, int64_t channels, int64_t positions, int slot) {
    if (batch == 1) return from;
    T* to = static_cast<T*>(scratch(slot, size_t(batch * channels * positions) * sizeof(T)));
    for (int64_t n = 0; n < batch; ++n)
        for (int64_t c = 0; c < channels; ++c, from += positions) {
            T* row = to + (c * batch + n) * positions;
            for (int64_t i = 0; i < positions; ++i) row[i] = from[i];
        }
    return to;
}

// products[c][tap][n][position] = sum over o of weight[o][c][tap] * grad[o][n][position], folded into the input's
// shape.
template <class T> bool input_grad_by_folding(const ConvShape& s, const T* grad, const T* weight, const T* bias, T* input_grad) {
    if (!suits_unfolding(s)) return false;
    const Unfolding u(s);
    GemmArgs args{};
    args.m = u.depth;
    args.n = u.columns;
    args.k = s.out_channels;
    args.a = weight;
    args.a_row = 1;
    args.a_col = u.depth;
    args.b = channels_first(grad, s.batch, s.out_channels, u.positions, 1);
    args.b_row = u.columns;
    args.b_col = 1;
    T* products = static_cast<T*>(scratch(2, size_t(u.depth * u.columns) * sizeof(T)));
    args.c = products;
    args.c_row = u.columns;
    gemm.matmul(dtype_of<T>, args);
    const int64_t in_size = s.in[0] * s.in[1] * s.in[2];
    parallel_for(s.in_channels, divide_up(20000, u.taps * u.columns), [&](int64_t begin, int64_t end) {
        T* plane = static_cast<T*>(scratch(3, size_t(u.plane) * sizeof(T)));
        for (int64_t c = begin; c < end; ++c)
            for (int64_t n = 0; n < s.batch; ++n) {
                std::memset(plane, 0, size_t(u.plane) * sizeof(T));
                for (int64_t t = 0; t < u.taps; ++t) {
                    const T* from = products + (c * u.taps + t) * u.columns + n * u.positions;
                    T* to = plane + u.tap[t];
                    for (int64_t i = 0; i < u.positions; ++i) to[u.position[i]] += from[i];
                }
                T* result = input_grad + (n * s.in_channels + c) * in_size;
                const T start = bias ? bias[c] : T(0);
                for (int64_t i = 0; i < in_size; ++i) result[i] = start;
                u.each_row(s, [&](int64_t at, int64_t to, int64_t count) {
                    for (int64_t k = 0; k < count; ++k) result[to + k] += plane[at + k];
                });
            }
    });
    return true;
}

// unfolded[n][position][c][tap], in scratch slot 2
template <class T> T* unfold(const ConvShape& s, const Unfolding& u, const T* input) {
    const int64_t in_size = s.in[0] * s.in[1] * s.in[2];
    T* unfolded = static_cast<T*>(scratch(2, size_t(u.depth * u.columns) * sizeof(T)));
    const bool as_it_lies = u.plane == in_size && s.padding[0] == 0 && s.padding[1] == 0 && s.padding[2] == 0;
    const int64_t run = s.dilation[2] == 1 ? s.kernel[2] : 1;  // taps that lie side by side
    parallel_for(s.batch * s.in_channels, divide_up(20000, u.taps * u.positions), [&](int64_t begin, int64_t end) {
        T* padded = as_it_lies ? nullptr : static_cast<T*>(scratch(3, size_t(u.plane) * sizeof(T)));
        if (padded) std::memset(padded, 0, size_t(u.plane) * sizeof(T));
        for (int64_t item = begin; item < end; ++item) {
            const T* from = input + item * in_size;
            if (padded)
                u.each_row(s, [&](int64_t to, int64_t at, int64_t count) {
                    for (int64_t k = 0; k < count; ++k) padded[to + k] = from[at + k];
                });
            const T* const plane = padded ? padded : from;
            T* to = unfolded + item / s.in_channels * u.positions * u.depth + item % s.in_channels * u.taps;
            for (int64_t i = 0; i < u.positions; ++i, to += u.depth) {
                const T* corner = plane + u.position[i];
                if (run >= lanes_of<T>)
                    for (int64_t t = 0; t < u.taps; t += run) copy_run(to + t, corner + u.tap[t], run);
                else
                    for (int64_t t = 0; t < u.taps; ++t) to[t] = corner[u.tap[t]];
            }
        }
    });
    return unfolded;
}

// output[n][o][position] = bias[o] + sum over c and taps of weight[o][c][tap] * unfolded[n][position][c][tap]
//
// Positions of all images are the rows of one product, because those of an image rarely fill vectors; its blocks are turned at the end.
template <class T> bool forward_by_unfolding(const ConvShape& s, const T* input, const T* weight, const T* bias, T* output) {
    if (!are_patches(s) || !suits_unfolding(s)) return false;
    const Unfolding u(s);
    GemmArgs args{};
    args.m = u.columns;
    args.n = s.out_channels;
    args.k = u.depth;
    args.a = unfold(s, u, input);
    args.a_row = u.depth;
    args.a_col = 1;
    args.b = weight;
    args.b_row = 1;
    args.b_col = u.depth;
    T* const products = static_cast<T*>(scratch(1, size_t(u.columns * s.out_channels) * sizeof(T)));
    args.c = products;
    args.c_row = s.out_channels;
    args.d = bias;
    args.d_row = 0;
    args.d_col = 1;
    args.beta = bias ? 1 : 0;
    gemm.matmul(dtype_of<T>, args);
    const int64_t sizes[3] = {s.batch, s.out_channels, u.positions}, from[3] = {u.positions * s.out_channels, 1, s.out_channels};
    const int64_t to[3] = {s.out_channels * u.positions, u.positions, 1};
    copy.copy(output, dtype_of<T>, to, products, dtype_of<T>, from, sizes, 3, false);
    return true;
}

// weight_grad[o][c][tap] = sum over n and positions of grad[o][n][position] * unfolded[n][position][c][tap]
template <class T> bool weight_grad_by_unfolding(const ConvShape& s, const T* input, const T* grad, T* out) {
    if (!suits_unfolding(s)) return false;
    const Unfolding u(s);
    const T* unfolded = unfold(s, u, input);
    GemmArgs args{};
    args.m = s.out_channels;
    args.n = u.depth;
    args.k = u.columns;
    args.a = channels_first(grad, s.batch, s.out_channels, u.positions, 1);
    args.a_row = u.columns;
    args.a_col = 1;
    args.b = unfolded;
    args.b_row = u.depth;
    args.b_col = 1;
    args.c = out;
    args.c_row = u.depth;
    gemm.matmul(dtype_of<T>, args);
    return true;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
