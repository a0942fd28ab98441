// The Winograd path of conv_weight.cpp: with dM = A dY A' of every 2x2 tile of the output gradient, the gradient of U
// is the sum over tiles of dM V', and the weight gradient is G' dU G. See conv_winograd.h.
#pragma once
#include "cpu/conv_winograd.h"

namespace wisp::cpu::WISP_ISA {
namespace {

struct WinogradWeight {
    ImageLayout layout;
    int64_t rows, channels, height, width;  // height and width of the output
    int64_t input_image, grad_image;
    const int64_t* offsets;
};

// The four phases of one channel of the gradient, with the rows of the layout and zeros where it has no tile.
void copy_phases(const WinogradWeight& w, const float* grad, float* to) {
    const ImageLayout& l = w.layout;
    for (int phase = 0; phase < 4; ++phase, to += l.images * l.plane)
        for (int64_t r = 0; r < l.length[1]; ++r) {
            const int64_t y = 2 * r + phase / 2;
            float* row = to + r * l.length[2];
            if (y < w.height)
                copy_row(row, grad + y * w.width, w.width, phase % 2, 2, l.length[2]);
            else
                std::memset(row, 0, size_t(l.length[2]) * sizeof(float));
        }
}

// A of two values: one step along one axis.
WISP_INLINE void spread_two(Lanes a, Lanes b, Lanes* out, int stride) {
    out[0] = a;
    out[stride] = a + b;
    out[2 * stride] = a - b;
    out[3 * stride] = -b;
}

WISP_INLINE void transform_grad(const float* phases, int64_t pitch, float* out, int64_t out_pitch) {
    Lanes rows[8], result[16];
    spread_two(load(phases), load(phases + 2 * pitch), rows, 2);
    spread_two(load(phases + pitch), load(phases + 3 * pitch), rows + 1, 2);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) spread_two(rows[2 * i], rows[2 * i + 1], result + 4 * i, 1);
#pragma GCC unroll 16
    for (int f = 0; f < 16; ++f) store(out + f * out_pitch, result[f]);
}

// G' dU G for all weights; sums is [entry][row][channel].
void place_weights(const float* sums, int64_t rows, int64_t channels, float* out) {
    constexpr int64_t lanes = lanes_of<float>;
    parallel_for(rows, ceil_div(2000, channels), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
            for (int64_t c0 = 0; c0 < channels; c0 += lanes) {
                const int64_t count = smaller(lanes, channels - c0);
                Lanes u[16], half[12], g[9];
                for (int f = 0; f < 16; ++f) u[f] = load_first(sums + (f * rows + r) * channels + c0, count);
                auto shrink = [](Lanes a, Lanes b, Lanes c, Lanes d, Lanes* to, int stride) {
                    to[0] = a + (b + c) * 0.5f;
                    to[stride] = (b - c) * 0.5f;
                    to[2 * stride] = (b + c) * 0.5f + d;
                };
                for (int j = 0; j < 4; ++j) shrink(u[j], u[4 + j], u[8 + j], u[12 + j], half + j, 4);
                for (int i = 0; i < 3; ++i)
                    shrink(half[4 * i], half[4 * i + 1], half[4 * i + 2], half[4 * i + 3], g + 3 * i, 1);
                for (int64_t l = 0; l < count; ++l)
                    for (int k = 0; k < 9; ++k) out[(r * channels + c0 + l) * 9 + k] = g[k][l];
            }
    });
}

// One group. The sums run over images and tiles in a fixed order.
bool weight_grad_with_winograd(const ConvShape& s, const Axis* axis, const float* input, const float* grad,
                               float* out) {
    constexpr int64_t lanes = lanes_of<float>, chunk_size = 512;
    if (s.groups != 1 || !suits_winograd(axis, s.batch, s.out_channels, s.in_channels)) return false;
    WinogradWeight w{};
    ImageLayout& l = w.layout = winograd_layout(axis, s.in_channels);
    w.rows = s.out_channels;
    w.channels = s.in_channels;
    w.height = s.out[1];
    w.width = s.out[2];
    w.input_image = s.in_channels * s.in[1] * s.in[2];
    w.grad_image = s.out_channels * s.out[1] * s.out[2];
    l.images = smaller(s.batch, ceil_div(chunk_size, l.plane));
    const int64_t grad_size = 4 * l.images * l.plane, pad = 2 * lanes;
    const int64_t chunk = smaller(chunk_size, ceil_div(l.images * l.plane, lanes) * lanes);
    const int64_t row = chunk + lanes;  // see off_powers
    const int64_t v_pitch = w.channels * row + 5 * lanes, m_pitch = w.rows * row + 5 * lanes;
    int64_t* offsets = static_cast<int64_t*>(scratch(0, size_t(entries * w.channels + w.channels) * 8));
    int64_t* dot_offsets = offsets + entries * w.channels;
    fill_offsets(l, offsets);
    for (int64_t c = 0; c < w.channels; ++c) dot_offsets[c] = c * row;
    float* copies = static_cast<float*>(scratch(1, size_t(l.size() + w.rows * grad_size + pad) * sizeof(float)));
    float* phases = copies + l.size();
    float* transformed = static_cast<float*>(scratch(2, size_t(entries * (v_pitch + m_pitch)) * sizeof(float)));
    float *v = transformed, *m = v + entries * v_pitch;
    float* sums = static_cast<float*>(scratch(3, size_t(entries * w.rows * w.channels) * sizeof(float)));
    const int64_t in_size = s.in[1] * s.in[2], out_size = s.out[1] * s.out[2];
    const int64_t panels = ceil_div(w.rows, dot_rows), tap_tiles = ceil_div(w.channels, dot_taps);

    for (int64_t n0 = 0; n0 < s.batch; n0 += l.images) {
        const int64_t images = smaller(l.images, s.batch - n0);
        parallel_for(w.channels + w.rows, ceil_div(30000, 4 * images * l.plane), [&](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c)
                for (int64_t n = 0; n < images; ++n)
                    if (c < w.channels)
                        copy_channel(l, input + (n0 + n) * w.input_image + c * in_size, copies, c, n);
                    else
                        copy_phases(w, grad + (n0 + n) * w.grad_image + (c - w.channels) * out_size,
                                    phases + (c - w.channels) * grad_size + n * l.plane);
        });
        const int64_t positions = l.positions() - (l.images - images) * l.plane;
        for (int64_t q = 0; q < positions; q += chunk) {
            const int64_t count = smaller(chunk, positions - q), vectors = ceil_div(count, lanes);
            parallel_for(w.channels + w.rows, ceil_div(2000, count), [&](int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; ++c)
                    for (int64_t i = 0; i < vectors; ++i)
                        if (c < w.channels)
                            transform_input(copies + c * l.channel_size() + q + i * lanes, offsets,
                                            v + c * row + i * lanes, v_pitch);
                        else
                            transform_grad(phases + (c - w.channels) * grad_size + q + i * lanes, l.images * l.plane,
                                           m + (c - w.channels) * row + i * lanes, m_pitch);
            });
            const int64_t panel_work = w.channels * dot_rows * count;
            parallel_for(entries * panels, ceil_div(60000, panel_work), [&](int64_t begin, int64_t end) {
                for (int64_t item = begin; item < end; ++item) {
                    const int64_t f = item / panels, panel = item % panels;
                    const int64_t r0 = w.rows * panel / panels, height = w.rows * (panel + 1) / panels - r0;
                    for (int64_t t = 0; t < tap_tiles; ++t) {
                        const int64_t c = t * dot_taps, taps = smaller(dot_taps, w.channels - c);
                        dots<float>[taps - 1][height - 1]({count, 1, 0}, m + f * m_pitch + r0 * row, row,
                                                          v + f * v_pitch, dot_offsets + c,
                                                          sums + (f * w.rows + r0) * w.channels + c, w.channels,
                                                          n0 > 0 || q > 0);
                    }
                }
            });
        }
    }
    place_weights(sums, w.rows, w.channels, out);
    return true;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
