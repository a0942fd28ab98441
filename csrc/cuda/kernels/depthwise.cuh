// Convolution where each channel has a kernel of its own, with stride 1: a thread a strip of a column, read through the cache; and
// convolution of integers, a thread a result.
#include "cuda/kernels/base.cuh"

namespace wisp {

// As in depthwise.cpp. from: what is read (the input, or the gradient of the output), to: what is made.
struct Depthwise {
    int channels, from_y, from_x, to_y, to_x, padding_y, padding_x, strips;
    int64_t planes;
    Divider by_width;
};
constexpr int strip = 8;

struct Strip {
    int64_t plane;
    int x, y;
    bool there;
    WISP_INLINE Strip(const Depthwise& p, int64_t item) {
        const int64_t per_plane = int64_t(p.strips) * p.to_x;
        plane = item / per_plane;
        const uint32_t rest = uint32_t(item - plane * per_plane), row = p.by_width.divide(rest);
        x = int(rest - row * p.by_width.divisor);
        y = int(row) * strip;
        there = plane < p.planes;
    }
};
// The column of `from` that tap kx of a strip reads: strip + K - 1 elements, zeros outside.
template <class T, int K> WISP_INLINE void read_column(const Depthwise& p, const T* from, int x, int y, float (&column)[strip + K - 1]) {
    const bool inside = unsigned(x) < unsigned(p.from_x);
#pragma unroll
    for (int r = 0; r < strip + K - 1; r++)
        column[r] = inside && unsigned(y + r) < unsigned(p.from_y) ? convert<float>(from[(y + r) * p.from_x + x]) : 0.f;
}

// Flip: the gradient of the input, whose padding is K - 1 less that of the convolution.
template <class T, int K, bool Flip> __global__ void __launch_bounds__(256)
    depthwise(const T* from, const T* weight, const T* bias, T* to, const Depthwise p) {
    const Strip s(p, int64_t(blockIdx.x) * 256 + threadIdx.x);
    if (!s.there) return;
    const int channel = int(s.plane % p.channels);
    from += s.plane * p.from_y * p.from_x;
    weight += channel * (K * K);
    float sum[strip] = {};
#pragma unroll
    for (int kx = 0; kx < K; kx++) {
        float column[strip + K - 1];
        read_column<T, K>(p, from, s.x - p.padding_x + kx, s.y - p.padding_y, column);
#pragma unroll
        for (int ky = 0; ky < K; ky++) {
            const float w = convert<float>(weight[Flip ? K * K - 1 - (ky * K + kx) : ky * K + kx]);
#pragma unroll
            for (int r = 0; r < strip; r++) sum[r] += column[r + ky] * w;
        }
    }
    const float shift = bias ? convert<float>(bias[channel]) : 0.f;
    to += s.plane * p.to_y * p.to_x;
#pragma unroll
    for (int r = 0; r < strip; r++)
        if (s.y + r < p.to_y) to[(s.y + r) * p.to_x + s.x] = convert<T>(sum[r] + shift);
}

// The gradient of the weight. Block [channel, part] takes every gridDim.y-th image; partial[part][channel][tap].
template <class T, int K> __global__ void __launch_bounds__(256)
    depthwise_weights(const T* input, const T* grad, float* partial, const Depthwise p, int batch) {
    float sums[K * K] = {};
    const int channel = blockIdx.x, items = p.strips * p.to_x;
    for (int b = blockIdx.y; b < batch; b += gridDim.y) {
        const int64_t plane = int64_t(b) * p.channels + channel;
        const T *from = input + plane * p.from_y * p.from_x, *g = grad + plane * p.to_y * p.to_x;
        for (int item = threadIdx.x; item < items; item += 256) {
            const int row = int(p.by_width.divide(uint32_t(item))), x = item - row * p.to_x, y = row * strip;
            float d[strip];
#pragma unroll
            for (int r = 0; r < strip; r++) d[r] = y + r < p.to_y ? convert<float>(g[(y + r) * p.to_x + x]) : 0.f;
#pragma unroll
            for (int kx = 0; kx < K; kx++) {
                float column[strip + K - 1];
                read_column<T, K>(p, from, x - p.padding_x + kx, y - p.padding_y, column);
#pragma unroll
                for (int ky = 0; ky < K; ky++)
#pragma unroll
                    for (int r = 0; r < strip; r++) sums[ky * K + kx] += column[r + ky] * d[r];
            }
        }
    }
    __shared__ float joined[8][K * K];
#pragma unroll
    for (int k = 0; k < K * K; k++) {
        float sum = sums[k];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) joined[threadIdx.x / 32][k] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= K * K) return;
    float sum = 0;
    for (int w = 0; w < 8; w++) sum += joined[w][threadIdx.x];
    partial[(int64_t(blockIdx.y) * p.channels + channel) * (K * K) + threadIdx.x] = sum;
}
template <class T> __global__ void __launch_bounds__(256) depthwise_join(const float* partial, T* weight, int n, int parts) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int part = 0; part < parts; part++) sum += partial[int64_t(part) * n + i];
    weight[i] = convert<T>(sum);
}

// --- integers, as in kernels/conv.h: the sum of all products that belong to a result, which wraps around ---

struct IntegerConv {
    int64_t batch, groups, in_channels, out_channels;
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
};
template <bool Back> __global__ void __launch_bounds__(256)
    integer_conv(const int64_t* from, const int64_t* weight, const int64_t* bias, int64_t* to, const IntegerConv s, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    const int64_t *to_size = Back ? s.in : s.out, *from_size = Back ? s.out : s.in;
    const int64_t to_channels = Back ? s.in_channels : s.out_channels, from_channels = Back ? s.out_channels : s.in_channels;
    const int64_t to_each = to_channels / s.groups, from_each = from_channels / s.groups;
    int64_t at[3], rest = i;
    for (int d = 2; d >= 0; d--) at[d] = rest % to_size[d], rest /= to_size[d];
    const int64_t channel = rest % to_channels, b = rest / to_channels, group = channel / to_each;
    const int64_t taps = s.kernel[0] * s.kernel[1] * s.kernel[2], plane = from_size[0] * from_size[1] * from_size[2];
    uint64_t sum = bias ? uint64_t(bias[channel]) : 0;
    for (int64_t tap = 0; tap < taps; tap++) {
        const int64_t k[3] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]};
        int64_t place = 0;
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            int64_t f = Back ? at[d] + s.padding[d] - k[d] * s.dilation[d] : at[d] * s.stride[d] - s.padding[d] + k[d] * s.dilation[d];
            if (Back) {
                inside = inside && f >= 0 && f % s.stride[d] == 0;
                f /= s.stride[d];
            }
            inside = inside && f >= 0 && f < from_size[d];
            place = place * from_size[d] + f;
        }
        if (!inside) continue;
        for (int64_t c = 0; c < from_each; c++) {
            const int64_t other = group * from_each + c, out = Back ? other : channel, in = Back ? channel - group * to_each : c;
            sum += uint64_t(from[(b * from_channels + other) * plane + place]) *
                   uint64_t(weight[(out * (s.in_channels / s.groups) + in) * taps + tap]);
        }
    }
    to[i] = int64_t(sum);
}

}  // namespace wisp
