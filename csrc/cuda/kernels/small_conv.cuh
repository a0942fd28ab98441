// Convolution of few channels in float, without groups, in one or two dimensions: a pixel a thread, and in one launch.
// Networks of this size spend their time in a library's overhead.
#include "cuda/kernels/base.cuh"

namespace wisp {

// As in small_conv.cpp. Sizes of the input and output of the convolution that is meant, whichever product is computed.
struct SmallConv {
    int batch, in_channels, out_channels, in_y, in_x, out_y, out_x, kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x,
        dilation_y, dilation_x;
    Divider pixels, width, taps;  // pixels and width of what is written; taps of a channel
    int staged;                   // channels whose weights are in shared memory at a time
    int across;                   // the width of a patch in shared memory, for weights
};

// to[b, c, y, x] = bias[c] + sum over channels and taps of from * weight. Back: `from` is the gradient of the output and `to`
// that of the input. A block makes blockDim.x pixels of C channels; its rows of threads share out the channels of `from`
// and add up in the end, in order. KX: the width of the kernel where that is known and strides (Back) and dilation are 1, or 0.
template <int C, bool Back, int KX> __global__ void __launch_bounds__(256)
    small_conv(const float* from, const float* weight, const float* bias, float* to, const SmallConv p) {
    extern __shared__ __align__(16) float weights[];  // [staged][taps][C], then [C][blockDim.x] for the sums
    const int taps = p.kernel_y * p.kernel_x, from_channels = Back ? p.out_channels : p.in_channels,
              to_channels = Back ? p.in_channels : p.out_channels;
    const int from_y = Back ? p.out_y : p.in_y, from_x = Back ? p.out_x : p.in_x, to_y = Back ? p.in_y : p.out_y,
              to_x = Back ? p.in_x : p.out_x;
    const int first = blockIdx.y * C, threads = blockDim.x * blockDim.y, me = threadIdx.y * blockDim.x + threadIdx.x,
              kernel_x = KX ? KX : p.kernel_x;
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x, b = p.pixels.divide(at), pixel = at - b * p.pixels.divisor;
    const int y = int(p.width.divide(pixel)), x = int(pixel) - y * to_x;
    const bool there = int(b) < p.batch;
    float acc[C] = {};
    from += int64_t(b) * from_channels * from_y * from_x;
    for (int begin = 0; begin < from_channels; begin += p.staged) {
        const int count = min(p.staged, from_channels - begin);
        __syncthreads();
        for (int e = me; e < count * taps * C; e += threads) {
            const int c = e % C, rest = e / C, channel = int(p.taps.divide(uint32_t(rest))), tap = rest - channel * taps,
                      f = begin + channel, t = first + c;
            weights[e] = t < to_channels ? weight[(Back ? f * to_channels + t : t * from_channels + f) * taps + tap] : 0.f;
        }
        __syncthreads();
        if (!there) continue;
        for (int f = threadIdx.y; f < count; f += blockDim.y) {
            const float* plane = from + int64_t(begin + f) * from_y * from_x;
            const float* w = weights + f * taps * C;
            for (int ky = 0; ky < p.kernel_y; ky++) {
                int fy;
                bool row;
                if (Back) {
                    const int s = y + p.padding_y - ky * p.dilation_y;
                    fy = p.stride_y == 1 ? s : s / p.stride_y;
                    row = s >= 0 && fy * p.stride_y == s && fy < from_y;
                } else {
                    fy = y * p.stride_y - p.padding_y + ky * p.dilation_y;
                    row = fy >= 0 && fy < from_y;
                }
                const float* line = plane + fy * from_x;
#pragma unroll
                for (int kx = 0; kx < kernel_x; kx++, w += C) {
                    int fx;
                    bool inside = row;
                    if (KX) {
                        fx = Back ? x + p.padding_x - kx : x * p.stride_x - p.padding_x + kx;
                        inside &= unsigned(fx) < unsigned(from_x);
                    } else if (Back) {
                        const int s = x + p.padding_x - kx * p.dilation_x;
                        fx = p.stride_x == 1 ? s : s / p.stride_x;
                        inside &= s >= 0 && fx * p.stride_x == s && fx < from_x;
                    } else {
                        fx = x * p.stride_x - p.padding_x + kx * p.dilation_x;
                        inside &= fx >= 0 && fx < from_x;
                    }
                    const float v = inside ? line[fx] : 0.f;
#pragma unroll
                    for (int c = 0; c < C; c += 4) {
                        const auto four = *reinterpret_cast<const Vector<float, 4>*>(w + c);
#pragma unroll
                        for (int i = 0; i < 4; i++) acc[c + i] += v * four.at[i];
                    }
                }
            }
        }
    }
    float* sums = weights + p.staged * taps * C;
    for (int g = 0; g + 1 < int(blockDim.y); g++) {
        if (int(threadIdx.y) == g)
#pragma unroll
            for (int c = 0; c < C; c++) sums[c * blockDim.x + threadIdx.x] = acc[c] + (g ? sums[c * blockDim.x + threadIdx.x] : 0.f);
        __syncthreads();
    }
    if (!there || threadIdx.y + 1 != blockDim.y) return;
    to += (int64_t(b) * to_channels + first) * to_y * to_x + pixel;
#pragma unroll
    for (int c = 0; c < C; c++)
        if (first + c < to_channels)
            to[int64_t(c) * to_y * to_x] =
                acc[c] + (blockDim.y > 1 ? sums[c * blockDim.x + threadIdx.x] : 0.f) + (bias ? bias[first + c] : 0.f);
}

// Gradients of weight and bias. A block takes images [blockIdx.z], a band of rows of the output [blockIdx.x] and C channels of
// it [blockIdx.y]; a thread one tap (threadIdx.x; the one behind the last is the bias, whose input is 1) and every blockDim.y-th
// row. partial[part][out_channels][taps + 1], part = blockIdx.z * gridDim.x + blockIdx.x.
template <int C> __global__ void __launch_bounds__(512)
    small_conv_weights(const float* input, const float* grad, float* partial, const SmallConv p, int images, int rows) {
    extern __shared__ __align__(16) float memory[];
    const int taps = p.in_channels * p.kernel_y * p.kernel_x, tap = threadIdx.x, all = blockDim.x * blockDim.y,
              me = threadIdx.y * blockDim.x + threadIdx.x;
    const int top = blockIdx.x * rows, here = min(rows, p.out_y - top), first = blockIdx.y * C;
    // The part of an image that the band needs, with zeros for the padding, and the band of the gradient with channels innermost.
    const int patch_y = (rows - 1) * p.stride_y + (p.kernel_y - 1) * p.dilation_y + 1, patch_x = p.across;
    const int patch = p.in_channels * patch_y * patch_x;
    float *band = memory, *image = memory + rows * p.out_x * C;
    int offset = patch, step_y = 0, step_x = 0;  // of the bias: image[patch] is 1
    if (tap < taps) {
        const int c = tap / (p.kernel_y * p.kernel_x), k = tap % (p.kernel_y * p.kernel_x);
        offset = (c * patch_y + k / p.kernel_x * p.dilation_y) * patch_x + k % p.kernel_x * p.dilation_x;
        step_y = p.stride_y * patch_x;
        step_x = p.stride_x;
    }
    float acc[C] = {};
    const int last = min(p.batch, (int(blockIdx.z) + 1) * images);
    for (int b = blockIdx.z * images; b < last; b++) {
        __syncthreads();
        for (int e = me; e <= patch; e += all) {
            const int x = e % patch_x, y = e / patch_x % patch_y, c = e / (patch_x * patch_y);
            const int iy = top * p.stride_y - p.padding_y + y, ix = x - p.padding_x;
            const bool inside = e < patch && iy >= 0 && iy < p.in_y && ix >= 0 && ix < p.in_x;
            image[e] = inside ? input[(int64_t(b * p.in_channels + c) * p.in_y + iy) * p.in_x + ix] : e == patch ? 1.f : 0.f;
        }
        const int pixels = here * p.out_x;
        for (int e = me; e < pixels * C; e += all) {
            const int c = e / pixels, at = e % pixels;
            band[at * C + c] =
                first + c < p.out_channels ? grad[(int64_t(b * p.out_channels + first + c) * p.out_y + top) * p.out_x + at] : 0.f;
        }
        __syncthreads();
        if (tap <= taps)
            for (int y = threadIdx.y; y < here; y += blockDim.y) {
                const float *from = image + offset + y * step_y, *g = band + y * p.out_x * C;
#pragma unroll 4
                for (int x = 0; x < p.out_x; x++, from += step_x, g += C) {
                    const float v = *from;
#pragma unroll
                    for (int c = 0; c < C; c += 4) {
                        const auto four = *reinterpret_cast<const Vector<float, 4>*>(g + c);
#pragma unroll
                        for (int i = 0; i < 4; i++) acc[c + i] += v * four.at[i];
                    }
                }
            }
    }
    // The threads of a tap add up, one after another.
    for (int y = 0; y < int(blockDim.y); y++) {
        __syncthreads();
        if (int(threadIdx.y) != y || tap > taps) continue;
#pragma unroll
        for (int c = 0; c < C; c++) {
            float& to = memory[c * blockDim.x + tap];
            acc[c] += y ? to : 0.f;
            to = acc[c];
            if (y + 1 == int(blockDim.y) && first + c < p.out_channels)
                partial[(int64_t(blockIdx.z * gridDim.x + blockIdx.x) * p.out_channels + first + c) * (taps + 1) + tap] = acc[c];
        }
    }
}

// The sum of the parts: 32 results a block, 32 threads along the parts. Either result may be null.
__global__ void __launch_bounds__(1024)
    small_conv_join(const float* partial, float* weight, float* bias, int parts, int taps, int results) {
    __shared__ float sums[32][33];
    const int i = blockIdx.x * 32 + threadIdx.x;
    float total = 0;
    if (i < results)
        for (int s = threadIdx.y; s < parts; s += 32) total += partial[int64_t(s) * results + i];
    sums[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    total = sums[threadIdx.x][threadIdx.y];
#pragma unroll
    for (int by = 16; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffffu, total, by);
    const int result = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x != 0 || result >= results) return;
    const int channel = result / (taps + 1), tap = result % (taps + 1);
    if (tap == taps) {
        if (bias) bias[channel] = total;
    } else if (weight) {
        weight[channel * taps + tap] = total;
    }
}

}  // namespace wisp
