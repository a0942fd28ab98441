// Winograd's convolution F(2x2, 3x3) for float kernels of 3x3 with stride 1: two outputs per axis from four inputs,
// with 16 multiplications instead of 36. Included by the convolution files, per instruction set.
//
// With V = B'dB of every 4x4 input tile d and U = GgG' of every weight g, the transformed output is M[f] = U[f] V[f],
// one product over the channels for each of the 16 entries f, and the 2x2 output tile is A'MA. The tiles overlap by
// two, so their corners are the positions of a convolution with stride 2, and ImageLayout's phases provide them side
// by side. The sums are as exact as direct ones up to a factor of about two.
#pragma once
#include "cpu/conv_layout.h"

namespace wisp::cpu::WISP_ISA {
namespace {

using Lanes = Vector<float>;
constexpr int entries = 16;

// An axis whose outputs are pairs of outputs of `a` (3 taps, stride 1).
WISP_INLINE Axis paired(const Axis& a) {
    Axis p{};
    const int64_t last = a.first + (a.taps - 1) * a.step;
    p.in = a.in;
    p.out = (a.out + 1) / 2;
    p.stride = 2;
    p.taps = 4;
    p.first = least(a.first, last);
    p.step = 1;
    p.kernel_step = 1;
    return p;
}

WISP_INLINE bool three_taps(const Axis& a) { return a.taps == 3 && a.stride == 1 && (a.step == 1 || a.step == -1); }
// Worth it where the tiles fit the image well and there is enough to do to pay for the transforms.
WISP_INLINE bool suits_winograd(const Axis* axis, int64_t batch, int64_t rows, int64_t channels) {
    const Axis &depth = axis[0], &y = axis[1], &x = axis[2];
    if (depth.in != 1 || depth.out != 1 || depth.taps != 1 || depth.first != 0 || !three_taps(y) || !three_taps(x)) return false;
    const int64_t direct = 9 * y.out * x.out, tiled = 16 * ((y.out + 1) / 2 + 1) * ((x.out + 1) / 2 + 1);
    return rows >= 16 && channels >= 16 && batch * y.out * x.out >= 512 && 4 * tiled < 3 * direct;
}

ImageLayout winograd_layout(const Axis* axis, int64_t channels) {
    const Axis pairs[3] = {axis[0], paired(axis[1]), paired(axis[2])};
    return make_layout(pairs, channels, 0, false);
}

// B' of four values, one step along one axis.
WISP_INLINE void transform_four(Lanes a, Lanes b, Lanes c, Lanes d, Lanes* out, int stride) {
    out[0] = a - c;
    out[stride] = b + c;
    out[2 * stride] = c - b;
    out[3 * stride] = b - d;
}

// V of the tiles at the 16 given offsets: entry f goes to out + f * pitch.
WISP_INLINE void transform_input(const float* source, const int64_t* offsets, float* out, int64_t pitch) {
    Lanes rows[16], result[16];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
        transform_four(load(source + offsets[j]), load(source + offsets[4 + j]), load(source + offsets[8 + j]),
                       load(source + offsets[12 + j]), rows + j, 4);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) transform_four(rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3], result + 4 * i, 1);
#pragma GCC unroll 16
    for (int f = 0; f < 16; ++f) store(out + f * pitch, result[f]);
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
