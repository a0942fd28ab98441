// The Winograd path of conv.cpp: weights to U, tiles through products, M to outputs. See conv_winograd.h.
#pragma once
#include "cpu/conv_winograd.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// U of each panel of rows as [entry][term][row of the panel], for all groups.
void winograd_weight(const Problem<float>& p, int64_t panels, float* packed) {
    constexpr int64_t lanes = lanes_of<float>;
    const bool flip_rows = p.axis[1].step < 0, flip_columns = p.axis[2].step < 0;
    parallel_for(p.groups * panels, divide_up(2000, p.rows / panels * p.channels), [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            const int64_t group = item / panels, panel = item % panels;
            const int64_t r0 = panel_begin(p.rows, panels, panel), height = panel_begin(p.rows, panels, panel + 1) - r0;
            for (int64_t r = 0; r < height; ++r)
                for (int64_t c0 = 0; c0 < p.channels; c0 += lanes) {
                    const int64_t count = least(lanes, p.channels - c0);
                    Lanes g[9] = {}, half[12], u[16];
                    for (int64_t l = 0; l < count; ++l) {
                        const float* w = p.weight + group * p.weight_group + (r0 + r) * p.weight_row + (c0 + l) * p.weight_channel;
                        for (int i = 0; i < 3; ++i)
                            for (int j = 0; j < 3; ++j) g[3 * i + j][l] = w[3 * (flip_rows ? 2 - i : i) + (flip_columns ? 2 - j : j)];
                    }
                    auto expand = [](Lanes a, Lanes b, Lanes c, Lanes* out, int stride) {
                        out[0] = a;
                        out[stride] = (a + b + c) * 0.5f;
                        out[2 * stride] = (a - b + c) * 0.5f;
                        out[3 * stride] = c;
                    };
                    for (int j = 0; j < 3; ++j) expand(g[j], g[3 + j], g[6 + j], half + j, 3);
                    for (int i = 0; i < 4; ++i) expand(half[3 * i], half[3 * i + 1], half[3 * i + 2], u + 4 * i, 1);
                    for (int f = 0; f < entries; ++f) {
                        float* to = packed + ((group * entries + f) * p.rows + r0) * p.channels + c0 * height + r;
                        for (int64_t l = 0; l < count; ++l) to[l * height] = u[f][l];
                    }
                }
        }
    });
}

struct WinogradPlan {
    ImageLayout layout;
    int64_t vectors, blocks, panels;
    const int64_t* offsets;       // of the 16 corners of a tile
    const int64_t* term_offsets;  // of V: one row of a block per channel
    const uint32_t* mask;
    const int64_t* at;
    const float* weight;
    int64_t result_image;
};

// The 2x2 outputs of `count` tiles from position q on, for one row: `tile` holds the four planes, `pitch` apart.
WISP_INLINE void place_outputs(const Problem<float>& p, const ImageLayout& l, int64_t result_image, int64_t images, const float* tile,
                               int64_t pitch, int64_t q, int64_t count, float* result) {
    const int64_t height = p.axis[1].out, width = p.axis[2].out, row = l.length[2];
    for (int64_t i = 0; i < count;) {
        const int64_t n = (q + i) / l.plane, inside = (q + i) % l.plane, r = inside / row, t = inside % row;
        const int64_t run = least(count - i, row - t);  // to the end of this row of tiles
        const int64_t wanted = least(run, l.axis[2].out - t);
        if (n < images && r < l.axis[1].out && wanted > 0)
            for (int64_t a = 0; a < 2 && 2 * r + a < height; ++a) {
                const float* __restrict even = tile + 2 * a * pitch + i;
                const float* __restrict odd = even + pitch;
                float* __restrict to = result + n * result_image + (2 * r + a) * width + 2 * t;
                const int64_t whole = least(wanted, (width - 2 * t) / 2);
                for (int64_t k = 0; k < whole; ++k) {
                    to[2 * k] = even[k];
                    to[2 * k + 1] = odd[k];
                }
                if (whole < wanted) to[2 * whole] = even[whole];
            }
        i += run;
    }
}

// One block of up to tile_vectors vectors of tiles: V, the products, the outputs of all rows.
void winograd_block(const Problem<float>& p, const WinogradPlan& plan, const float* source, int64_t group, int64_t images, float* result,
                    int64_t block) {
    constexpr int64_t lanes = lanes_of<float>, width = lanes * tile_vectors;
    const int64_t v0 = plan.vectors * block / plan.blocks, vectors = plan.vectors * (block + 1) / plan.blocks - v0;
    const int64_t q = v0 * lanes, plane = p.result_size[1] * p.result_size[2];
    const int64_t v_pitch = p.channels * width + 5 * lanes, m_pitch = p.rows * width + 5 * lanes;  // see off_powers
    float* v = static_cast<float*>(scratch(2, size_t(entries * (v_pitch + m_pitch) + 4 * width) * sizeof(float)));
    float *m = v + entries * v_pitch, *tile_out = m + entries * m_pitch;
    for (int64_t c = 0; c < p.channels; ++c)
        for (int64_t i = 0; i < vectors; ++i)
            transform_input(source + c * plan.layout.channel_size() + q + i * lanes, plan.offsets, v + c * width + i * lanes, v_pitch);
    for (int f = 0; f < entries; ++f)
        for (int64_t panel = 0; panel < plan.panels; ++panel) {
            const int64_t r0 = panel_begin(p.rows, plan.panels, panel), height = panel_begin(p.rows, plan.panels, panel + 1) - r0;
            const Target<float> target = {m + f * m_pitch + r0 * width, width, plan.mask, plan.at, nullptr, false};
            tiles<float>.at[vectors - 1][height - 1](p.channels, plan.weight + ((group * entries + f) * p.rows + r0) * p.channels, 1,
                                                     height, v + f * v_pitch, plan.term_offsets, target);
        }
    for (int64_t r = 0; r < p.rows; ++r) {
        const Lanes bias = splat(p.bias ? p.bias[group * p.rows + r] : 0.0f);
        for (int64_t i = 0; i < vectors; ++i) {
            const float* from = m + r * width + i * lanes;
            Lanes s[8];
#pragma GCC unroll 4
            for (int j = 0; j < 4; ++j) {  // A' down the columns
                const Lanes a = load(from + j * m_pitch), b = load(from + (4 + j) * m_pitch), c = load(from + (8 + j) * m_pitch),
                            d = load(from + (12 + j) * m_pitch);
                s[j] = a + b + c;
                s[4 + j] = b - c - d;
            }
#pragma GCC unroll 2
            for (int a = 0; a < 2; ++a) {  // and along the rows
                const Lanes* t = s + 4 * a;
                store(tile_out + 2 * a * width + i * lanes, t[0] + t[1] + t[2] + bias);
                store(tile_out + (2 * a + 1) * width + i * lanes, t[1] - t[2] - t[3] + bias);
            }
        }
        place_outputs(p, plan.layout, plan.result_image, images, tile_out, width, q, least(vectors * lanes, plan.layout.positions() - q),
                      result + r * plane);
    }
}

bool solve_with_winograd(const Problem<float>& p) {
    constexpr int64_t lanes = lanes_of<float>, width = lanes * tile_vectors;
    for (int d = 0; d < 3; ++d)
        if (p.result_stride[d] != 1 || p.result_start[d] != 0 || p.result_size[d] != p.axis[d].out) return false;
    if (!suits_winograd(p.axis, p.batch, p.rows, p.channels)) return false;
    const int threads = num_threads();
    const int64_t in_size = p.axis[1].in * p.axis[2].in, plane = p.result_size[1] * p.result_size[2];
    WinogradPlan plan{};
    ImageLayout& l = plan.layout = winograd_layout(p.axis, p.channels);
    if (l.plane < width && p.batch > 1)  // small images share blocks
        l.images = least(divide_up(p.batch, threads), divide_up(4 * width, l.plane));
    plan.vectors = divide_up(l.positions(), lanes);
    plan.blocks = divide_up(plan.vectors, tile_vectors);
    plan.panels = divide_up(p.rows, tile_rows);
    plan.result_image = p.groups * p.rows * plane;
    const size_t weights = size_t(p.groups * entries * p.rows * p.channels);
    int64_t* tables =
        static_cast<int64_t*>(scratch(0, size_t(entries * p.channels + p.channels + tile_vectors) * 8 + 64 + weights * sizeof(float)));
    int64_t *term_offsets = tables + entries * p.channels, *at = term_offsets + p.channels;
    uint32_t mask[tile_vectors];
    float* packed = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(at + tile_vectors) + 63) / 64 * 64);
    fill_offsets(l, tables);
    for (int64_t c = 0; c < p.channels; ++c) term_offsets[c] = c * width;
    for (int v = 0; v < tile_vectors; ++v) at[v] = v * lanes, mask[v] = uint32_t((uint64_t(1) << lanes) - 1);
    plan.offsets = tables;
    plan.term_offsets = term_offsets;
    plan.at = at;
    plan.mask = mask;
    plan.weight = packed;
    winograd_weight(p, plan.panels, packed);

    const int64_t source_group = p.channels * in_size, source_image = p.groups * source_group;
    const int64_t sets = divide_up(p.batch, l.images), copy_size = l.size() + width + lanes;
    auto copy_in = [&](float* copy, int64_t index, int64_t i) {
        const int64_t n = i / p.channels, channel = i % p.channels, n0 = index / p.groups * l.images;
        copy_channel(l, p.source + (n0 + n) * source_image + index % p.groups * source_group + channel * in_size, copy, channel, n);
    };
    auto images_of = [&](int64_t index) { return least(l.images, p.batch - index / p.groups * l.images); };
    auto result_of = [&](int64_t index) {
        return p.result + index / p.groups * l.images * plan.result_image + index % p.groups * p.rows * plane;
    };
    auto memory = [&] { return static_cast<float*>(scratch(1, size_t(copy_size) * sizeof(float))); };
    if (sets * p.groups >= 3 * threads || sets * p.groups % threads == 0) {
        parallel_for(sets * p.groups, 1, [&](int64_t begin, int64_t end) {
            float* copy = memory();
            for (int64_t index = begin; index < end; ++index) {
                for (int64_t i = 0; i < images_of(index) * p.channels; ++i) copy_in(copy, index, i);
                for (int64_t b = 0; b < plan.blocks; ++b)
                    winograd_block(p, plan, copy, index % p.groups, images_of(index), result_of(index), b);
            }
        });
        return true;
    }
    float* copy = memory();
    for (int64_t index = 0; index < sets * p.groups; ++index) {
        parallel_for(images_of(index) * p.channels, divide_up(30000, 4 * l.plane), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) copy_in(copy, index, i);
        });
        parallel_for(plan.blocks, 1, [&](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; ++b) winograd_block(p, plan, copy, index % p.groups, images_of(index), result_of(index), b);
        });
    }
    return true;
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
