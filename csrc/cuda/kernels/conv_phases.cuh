// The gradient of a convolution's input with a stride, as a convolution without one: places of the input that are as far from the grid of
// the stride (a phase) see the same elements of the kernel, so each phase of a channel is a channel of its own.
#include "cuda/kernels/base.cuh"

namespace wisp {

#include "kernels/conv_phases_arguments.h"

// to [phases of channels, features, taps...] = the elements of weight [features, channels, kernel...] that a phase sees, backwards.
template <bool Last> __global__ void __launch_bounds__(256) phase_weights(const ConvPhases p, const float* weight, float* to, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const int tw = i % p.taps[1], th = i / p.taps[1] % p.taps[0], rest = i / (p.taps[0] * p.taps[1]), f = rest % p.features,
              phase = rest / p.features, c = phase / (p.stride * p.stride);
    const int h = phase / p.stride % p.stride + p.stride * (p.taps[0] - 1 - th), w = phase % p.stride + p.stride * (p.taps[1] - 1 - tw);
    float x = 0;
    if (h < p.kernel[0] && w < p.kernel[1])
        x = weight[Last ? ((f * p.kernel[0] + h) * p.kernel[1] + w) * p.channels + c
                        : ((f * p.channels + c) * p.kernel[0] + h) * p.kernel[1] + w];
    to[Last ? ((phase * p.taps[0] + th) * p.taps[1] + tw) * p.features + f : i] = x;
}

// to [batch, channels, in...] = from [batch, phases of channels, rows...]; nothing reaches what lies beyond.
template <bool Last> __global__ void __launch_bounds__(256) phase_join(const ConvPhases p, const float* from, float* to, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    int64_t rest = i;
    auto next = [&](int size) {
        const Split s = split(rest, size);
        rest = s.whole;
        return int(s.rest);
    };
    int c = Last ? next(p.channels) : 0;
    const int w = next(p.in[1]) + p.padding[1], h = next(p.in[0]) + p.padding[0];
    if (!Last) c = next(p.channels);
    const int phase = (c * p.stride + h % p.stride) * p.stride + w % p.stride, row = h / p.stride, column = w / p.stride,
              phases = p.channels * p.stride * p.stride;
    float x = 0;
    if (row < p.rows[0] && column < p.rows[1])
        x = from[Last ? ((rest * p.rows[0] + row) * p.rows[1] + column) * phases + phase
                      : ((rest * phases + phase) * p.rows[0] + row) * p.rows[1] + column];
    to[i] = x;
}

}  // namespace wisp
