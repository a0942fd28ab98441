// The Winograd path of conv_weight.cpp: with dM = A dY A' of every 2x2 tile of the output gradient, the gradient of U
// is the sum over tiles of dM V', and the weight gradient is G' dU G. See conv_winograd.h.
#pragma once
#include "cpu/conv_winograd.h"

namespace wisp::cpu::WISP_ISA {
namespace {

struct WinogradWeight {
    ImageLayout layout;
    int64_t rows, channels, height, width;  // height and width of the output
    int64_t input_image, grad_image, grad_size;
    int64_t chunk, row, v_pitch, m_pitch;  // positions per dot product; pitches of a channel and of an entry
    const int64_t *offsets, *dot_offsets;  // of a tile's corners; of V's channels
};

// The four phases of one channel of the gradient, with the rows of the layout and zeros where it has no tile.
void copy_phases(const WinogradWeight& w, const float* grad, float* to) {
    const ImageLayout& l = w.layout;
    for (int phase = 0; phase < 4; ++phase, to += l.images * l.plane)
        for (int64_t r = 0; r < l.length[1]; ++r) {
            const int64_t y = 2 * r + phase / 2;
            float* row = to + r * l.length[2];
            if (y < w.height) copy_row(row, grad + y * w.width, w.width, phase % 2, 2, l.length[2]);
            else std::memset(row, 0, size_t(l.length[2]) * sizeof(float));
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
    parallel_for(rows, divide_up(2000, channels), [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
            for (int64_t c0 = 0; c0 < channels; c0 += lanes) {
                const int64_t count = least(lanes, channels - c0);
                Lanes u[16], half[12], g[9];
                for (int f = 0; f < 16; ++f) u[f] = load_lanes(sums + (f * rows + r) * channels + c0, count);
                auto shrink = [](Lanes a, Lanes b, Lanes c, Lanes d, Lanes* to, int stride) {
                    to[0] = a + (b + c) * 0.5f;
                    to[stride] = (b - c) * 0.5f;
                    to[2 * stride] = (b + c) * 0.5f + d;
                };
                for (int j = 0; j < 4; ++j) shrink(u[j], u[4 + j], u[8 + j], u[12 + j], half + j, 4);
                for (int i = 0; i < 3; ++i) shrink(half[4 * i], half[4 * i + 1], half[4 * i + 2], half[4 * i + 3], g + 3 * i, 1);
                for (int64_t l = 0; l < count; ++l)
                    for (int k = 0; k < 9; ++k) out[(r * channels + c0 + l) * 9 + k] = g[k][l];
            }
    });
}

// Buffers of one thread, or of all of them together.
struct WinogradBuffers {
    float *copies, *phases, *v, *m;
};

// Adds the sums of images [n0, n0 + images) to sums, [entry][row][channel]. Where the threads work together, each step
// is shared between them.
template <bool together> void add_images(const ConvShape& s, const WinogradWeight& w, const WinogradBuffers& buffers, const float* input,
                                         const float* grad, int64_t n0, int64_t images, float* sums, bool accumulate) {
    constexpr int64_t lanes = lanes_of<float>;
    const ImageLayout& l = w.layout;
    auto each = [](int64_t n, int64_t grain, auto&& body) {
        if constexpr (together) parallel_for(n, grain, body);
        else body(int64_t(0), n);
    };
    const int64_t in_size = s.in[1] * s.in[2], out_size = s.out[1] * s.out[2];
    const int64_t panels = divide_up(w.rows, dot_rows), tap_tiles = divide_up(w.channels, dot_taps);
    each(w.channels + w.rows, divide_up(30000, 4 * images * l.plane), [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c)
            for (int64_t n = 0; n < images; ++n)
                if (c < w.channels) copy_channel(l, input + (n0 + n) * w.input_image + c * in_size, buffers.copies, c, n);
                else
                    copy_phases(w, grad + (n0 + n) * w.grad_image + (c - w.channels) * out_size,
                                buffers.phases + (c - w.channels) * w.grad_size + n * l.plane);
    });
    const int64_t positions = l.positions() - (l.images - images) * l.plane;
    for (int64_t q = 0; q < positions; q += w.chunk) {
        const int64_t count = least(w.chunk, positions - q), vectors = divide_up(count, lanes);
        each(w.channels + w.rows, divide_up(2000, count), [&](int64_t begin, int64_t end) {
            for (int64_t c = begin; c < end; ++c)
                for (int64_t i = 0; i < vectors; ++i)
                    if (c < w.channels)
                        transform_input(buffers.copies + c * l.channel_size() + q + i * lanes, w.offsets, buffers.v + c * w.row + i * lanes,
                                        w.v_pitch);
                    else
                        transform_grad(buffers.phases + (c - w.channels) * w.grad_size + q + i * lanes, l.images * l.plane,
                                       buffers.m + (c - w.channels) * w.row + i * lanes, w.m_pitch);
        });
        const int64_t panel_work = w.channels * dot_rows * count;
        each(entries * panels, divide_up(60000, panel_work), [&](int64_t begin, int64_t end) {
            for (int64_t item = begin; item < end; ++item) {
                const int64_t f = item / panels, panel = item % panels;
                const int64_t r0 = w.rows * panel / panels, height = w.rows * (panel + 1) / panels - r0;
                for (int64_t t = 0; t < tap_tiles; ++t) {
                    const int64_t c = t * dot_taps, taps = least(dot_taps, w.channels - c);
                    dots<float>.at[taps - 1][height - 1]({count, 1, 0}, buffers.m + f * w.m_pitch + r0 * w.row, w.row,
                                                         buffers.v + f * w.v_pitch, w.dot_offsets + c,
                                                         sums + (f * w.rows + r0) * w.channels + c, w.channels, accumulate || q > 0);
                }
            }
        });
    }
}

// One group. The images are added in sets that depend on the sizes alone, whatever the number of threads.
bool weight_grad_with_winograd(const ConvShape& s, const Axis* axis, const float* input, const float* grad, float* out) {
    constexpr int64_t lanes = lanes_of<float>;
    if (s.groups != 1 || !suits_winograd(axis, s.batch, s.out_channels, s.in_channels)) return false;
    WinogradWeight w{};
    ImageLayout& l = w.layout = winograd_layout(axis, s.in_channels);
    w.rows = s.out_channels;
    w.channels = s.in_channels;
    w.height = s.out[1];
    w.width = s.out[2];
    w.input_image = s.in_channels * s.in[1] * s.in[2];
    w.grad_image = s.out_channels * s.out[1] * s.out[2];
    // Small weights: each set has sums of its own, made by one thread. Large ones: the threads share every set.
    const int64_t sums_size = entries * w.rows * w.channels;
    const int64_t small_set = most(divide_up(256, l.plane), least(divide_up(512, l.plane), divide_up(s.batch, 8)));
    const bool by_sets = small_set < s.batch && sums_size * divide_up(s.batch, small_set) <= (int64_t(1) << 21);
    l.images = least(s.batch, by_sets ? small_set : divide_up(512, l.plane));
    l.images = divide_up(s.batch, divide_up(s.batch, l.images));  // nearly equal sets
    const int64_t all = divide_up(l.positions(), lanes), pieces = divide_up(all * lanes, 512);
    w.chunk = divide_up(all, pieces) * lanes;
    w.row = w.chunk + lanes;  // see off_powers
    w.v_pitch = w.channels * w.row + 5 * lanes;
    w.m_pitch = w.rows * w.row + 5 * lanes;
    w.grad_size = 4 * l.images * l.plane;
    const int64_t sets = divide_up(s.batch, l.images);
    int64_t* offsets = static_cast<int64_t*>(scratch(0, size_t(entries * w.channels + w.channels) * 8));
    int64_t* dot_offsets = offsets + entries * w.channels;
    fill_offsets(l, offsets);
    for (int64_t c = 0; c < w.channels; ++c) dot_offsets[c] = c * w.row;
    w.offsets = offsets;
    w.dot_offsets = dot_offsets;
    auto memory = [](int slot, int64_t size) { return static_cast<float*>(scratch(slot, size_t(size) * sizeof(float))); };
    auto buffers = [&] {
        WinogradBuffers b;
        b.copies = memory(1, l.size() + w.rows * w.grad_size + 2 * lanes);
        b.phases = b.copies + l.size();
        b.v = memory(2, entries * (w.v_pitch + w.m_pitch));
        b.m = b.v + entries * w.v_pitch;
        return b;
    };
    float* sums = memory(3, sums_size * (by_sets ? sets : 1));
    auto images_of = [&](int64_t set) { return least(l.images, s.batch - set * l.images); };
    if (by_sets) {
        parallel_for(sets, 1, [&](int64_t begin, int64_t end) {
            for (int64_t set = begin; set < end; ++set)
                add_images<false>(s, w, buffers(), input, grad, set * l.images, images_of(set), sums + set * sums_size, false);
        });
        parallel_for(sums_size, divide_up(30000, sets), [&](int64_t begin, int64_t end) {
            for (int64_t set = 1; set < sets; ++set)
                for (int64_t k = begin; k < end; ++k) sums[k] += sums[set * sums_size + k];
        });
    } else {
        for (int64_t set = 0; set < sets; ++set)
            add_images<true>(s, w, buffers(), input, grad, set * l.images, images_of(set), sums, set > 0);
    }
    place_weights(sums, w.rows, w.channels, out);
    return true;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
