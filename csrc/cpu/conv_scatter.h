// The input gradient of a convolution with stride 1 by scattering, for conv.cpp: every tap's product of weights and
// output gradient is added to the padded input gradient at the tap's offset. Where the kernel is large for the image
// and nothing is padded, the output gradient has far fewer positions than the input, and this needs fewer products than
// gathering (solve).
#pragma once

namespace wisp::cpu::WISP_ISA {
namespace {

struct ScatterPlan {
    int64_t padded[3], plane, taps, positions, vectors, tiles, panels;
};

WISP_INLINE bool suits_scatter(const ConvShape& s, int64_t lanes) {
    for (int d = 0; d < 3; ++d)
        if (s.stride[d] != 1) return false;
    const int64_t depth = s.out_channels / s.groups;
    if (s.kernel[1] == 3 && s.kernel[2] == 3 && depth >= 16 && s.in_channels / s.groups >= 16) return false;  // Winograd is faster
    const int64_t down = s.dilation[1] * (s.kernel[1] - 1), across = s.dilation[2] * (s.kernel[2] - 1);
    auto vectors = [&](const int64_t* size) {  // of positions, in rows that are longer by the kernel
        return divide_up(((size[0] - 1) * (size[1] + down) + size[1] - 1) * (size[2] + across) + size[2], lanes);
    };
    const int64_t gathered = vectors(s.in), scattered = vectors(s.out);
    return s.batch >= 2 && depth >= 4 && s.kernel[0] * s.kernel[1] * s.kernel[2] > 1 &&
           double(scattered) * (1 + 4.0 / double(depth)) < 0.8 * double(gathered);
}

// One image of one group: the gradient's rows at the pitch of the padded input, all taps added, the middle copied out.
template <class T> void scatter_image(const ConvShape& s, const ScatterPlan& p, const T* grad, const T* packed, const T* bias,
                                      const int64_t* row_offsets, const int64_t* at, const uint32_t* mask, T* result) {
    constexpr int64_t lanes = lanes_of<T>;
    const int64_t rows = s.in_channels / s.groups, depth = s.out_channels / s.groups;
    const int64_t grad_row = p.vectors * lanes, sum_row = p.plane + tile_vectors * lanes;
    T* copy = static_cast<T*>(scratch(1, size_t(depth * grad_row) * sizeof(T)));
    T* sums = static_cast<T*>(scratch(3, size_t(rows * sum_row) * sizeof(T)));
    std::memset(copy, 0, size_t(depth * grad_row) * sizeof(T));
    std::memset(sums, 0, size_t(rows * sum_row) * sizeof(T));
    for (int64_t o = 0; o < depth; ++o)
        for (int64_t i = 0; i < s.out[0]; ++i)
            for (int64_t j = 0; j < s.out[1]; ++j, grad += s.out[2])
                copy_row(copy + o * grad_row + (i * p.padded[1] + j) * p.padded[2], grad, s.out[2], 0, 1, s.out[2]);
    for (int64_t t = 0; t < p.tiles; ++t) {
        const int64_t v = p.vectors * t / p.tiles, vectors = p.vectors * (t + 1) / p.tiles - v, q = v * lanes;
        int64_t tap = 0;
        for (int64_t a = 0; a < s.kernel[0]; ++a)
            for (int64_t b = 0; b < s.kernel[1]; ++b)
                for (int64_t c = 0; c < s.kernel[2]; ++c, ++tap) {
                    const int64_t offset = (a * s.dilation[0] * p.padded[1] + b * s.dilation[1]) * p.padded[2] + c * s.dilation[2];
                    for (int64_t panel = 0; panel < p.panels; ++panel) {
                        const int64_t r0 = panel_begin(rows, p.panels, panel), height = panel_begin(rows, p.panels, panel + 1) - r0;
                        const Target<T> target = {sums + r0 * sum_row + offset + q, sum_row, mask, at, nullptr, true};
                        tiles<T>.at[vectors - 1][height - 1](depth, packed + (tap * rows + r0) * depth, 1, height, copy + q, row_offsets,
                                                             target);
                    }
                }
    }
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < s.in[0]; ++i)
            for (int64_t j = 0; j < s.in[1]; ++j, result += s.in[2]) {
                const T* from = sums + r * sum_row + s.padding[2] + ((i + s.padding[0]) * p.padded[1] + j + s.padding[1]) * p.padded[2];
                copy_row(result, from, s.in[2], 0, 1, s.in[2]);
                if (bias)
                    for (int64_t k = 0; k < s.in[2]; ++k) result[k] += bias[r];
            }
}

template <class T> bool input_grad_by_scatter(const ConvShape& s, const T* grad, const T* weight, const T* bias, T* input_grad) {
    constexpr int64_t lanes = lanes_of<T>;
    if (!suits_scatter(s, lanes)) return false;
    const int64_t rows = s.in_channels / s.groups, depth = s.out_channels / s.groups;
    ScatterPlan p{};
    p.plane = p.taps = 1;
    for (int d = 0; d < 3; ++d) {
        p.padded[d] = most(s.out[d] + s.dilation[d] * (s.kernel[d] - 1), s.in[d] + s.padding[d]);
        p.plane *= p.padded[d];
        p.taps *= s.kernel[d];
        if (s.padding[d] < 0) return false;
    }
    p.positions = ((s.out[0] - 1) * p.padded[1] + s.out[1] - 1) * p.padded[2] + s.out[2];
    p.vectors = divide_up(p.positions, lanes);
    p.tiles = divide_up(p.vectors, tile_vectors);
    p.panels = divide_up(rows, tile_rows);
    const size_t weights = size_t(s.groups * p.taps * rows * depth);
    int64_t* row_offsets = static_cast<int64_t*>(scratch(0, size_t(depth + tile_vectors) * 8 + 64 + weights * sizeof(T)));
    int64_t* at = row_offsets + depth;
    T* packed = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(at + tile_vectors) + 63) / 64 * 64);
    uint32_t mask[tile_vectors];
    for (int64_t o = 0; o < depth; ++o) row_offsets[o] = o * p.vectors * lanes;
    for (int v = 0; v < tile_vectors; ++v) at[v] = v * lanes, mask[v] = uint32_t((uint64_t(1) << lanes) - 1);
    T* to = packed;  // [group][tap][panel][output channel][row of the panel]
    for (int64_t group = 0; group < s.groups; ++group)
        for (int64_t tap = 0; tap < p.taps; ++tap)
            for (int64_t panel = 0; panel < p.panels; ++panel) {
                const int64_t r0 = panel_begin(rows, p.panels, panel), r1 = panel_begin(rows, p.panels, panel + 1);
                for (int64_t o = 0; o < depth; ++o)
                    for (int64_t r = r0; r < r1; ++r) *to++ = weight[((group * depth + o) * rows + r) * p.taps + tap];
            }
    const int64_t in_size = s.in[0] * s.in[1] * s.in[2], out_size = s.out[0] * s.out[1] * s.out[2];
    const int64_t work = most(1, rows * depth * p.taps * p.vectors * lanes);
    parallel_for(s.batch * s.groups, divide_up(60000, work), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            const int64_t group = item % s.groups;
            scatter_image(s, p, grad + item * depth * out_size, packed + group * p.taps * rows * depth,
                          bias ? bias + group * rows : nullptr, row_offsets, at, mask, input_grad + item * rows * in_size);
        }
    });
    return true;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
