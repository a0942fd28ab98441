// Depthwise convolution (every channel has its own square kernel, stride 1), for conv.cpp and conv_weight.cpp.
//
// There is no sum over channels that tiles could share, so a vector of neighbouring outputs is kept for several rows at
// once: each shifted load of an input row serves all of these rows that it meets.
#pragma once
#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/conv_layout.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int depthwise_rows = 4;                      // output rows at a time
constexpr int64_t depthwise_copy = int64_t(20) << 10;  // bytes of padded input at a time, within L1

WISP_INLINE bool suits_depthwise(const ConvShape& s) {
    const int64_t k = s.kernel[1];
    if (s.in_channels != s.groups || s.out_channels != s.groups || s.in[0] != 1 || s.out[0] != 1 || s.kernel[0] != 1 || s.padding[0] != 0 ||
        (k != 3 && k != 5 && k != 7) || s.kernel[2] != k)
        return false;
    return s.stride[1] == 1 && s.stride[2] == 1 && s.dilation[1] == 1 && s.dilation[2] == 1;
}

template <class T> WISP_INLINE void copy_run(T* to, const T* from, int64_t count) {
    constexpr int64_t lanes = lanes_of<T>;
    if (count < lanes) return store_first(to, count, load_lanes(from, count));
    for (int64_t j = 0; j < count - lanes; j += lanes) store(to + j, load(from + j));
    store(to + count - lanes, load(from + count - lanes));
}

// One plane to another of `height` x `width`; result (0, 0) meets source (top, left) with the first tap.
struct DepthwisePlane {
    int64_t source_height, source_width, top, left, height, width;
    int64_t pitch, band, bands;  // of the padded copy; rows of the result per copy

    template <class T> void prepare(int64_t taps) {
        constexpr int64_t lanes = lanes_of<T>;
        pitch = divide_up(width, lanes) * lanes + taps - 1;
        const int64_t fitting = depthwise_copy / int64_t(sizeof(T)) / pitch - (taps - 1);
        band = least(height, most(1, fitting / depthwise_rows) * depthwise_rows);
        bands = divide_up(height, band);
    }
    // Memory for a copy, all zeros: a copy writes what lies inside the source alone, and between two bands the rest.
    template <class T> T* memory(int64_t taps) const {
        const size_t bytes = size_t((band + taps - 1) * pitch) * sizeof(T);
        return static_cast<T*>(std::memset(scratch(1, bytes), 0, bytes));
    }
    // The rows that `rows` rows of the result from `first` on need.
    template <class T> void copy(const T* source, int64_t first, int64_t rows, int64_t taps, T* to) const {
        const int64_t y0 = top + first, begin = most(0, -y0), end = least(rows + taps - 1, source_height - y0);
        const int64_t j = most(0, -left), count = most(0, least(pitch, source_width - left) - j);
        if (bands > 1) {
            std::memset(to, 0, size_t(most(0, least(begin, rows + taps - 1)) * pitch) * sizeof(T));
            const int64_t missing = rows + taps - 1 - most(0, end);
            if (missing > 0) std::memset(to + most(0, end) * pitch, 0, size_t(missing * pitch) * sizeof(T));
        }
        for (int64_t r = begin; r < end; ++r) copy_run(to + r * pitch + j, source + (y0 + r) * source_width + left + j, count);
    }
};

// `rows` rows of the result, a vector of columns at a time.
template <class T, int K, int rows> void depthwise_strip(const T* copy, int64_t pitch, const T* weight, T bias, T* out, int64_t width) {
    constexpr int64_t lanes = lanes_of<T>;
    for (int64_t x = 0; x < width; x += lanes) {
        Vector<T> sum[rows];
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) sum[r] = splat(bias);
#pragma GCC unroll 16
        for (int i = 0; i < rows + K - 1; ++i)
#pragma GCC unroll 8
            for (int k = 0; k < K; ++k) {
                const Vector<T> v = load_once(copy + i * pitch + x + k);
#pragma GCC unroll 8
                for (int r = 0; r < rows; ++r)
                    if (i >= r && i - r < K) sum[r] += splat(weight[(i - r) * K + k]) * v;
            }
        const int64_t count = width - x;
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) store_first(out + r * width + x, count, sum[r]);
    }
}

// result[n][c] = bias[c] + the sum over taps of weight[c], backwards if `flip`.
template <class T, int K>
void depthwise_planes(const ConvShape& s, DepthwisePlane p, const T* source, const T* weight, const T* bias, bool flip, T* result) {
    const int64_t source_size = p.source_height * p.source_width, size = p.height * p.width;
    p.prepare<T>(K);
    const int64_t planes = s.batch * s.groups, cost = most(1, p.band * p.width * K * K);
    parallel_for(planes * p.bands, divide_up(60000, cost), [&](int64_t begin, int64_t end) {
        T* copy = p.memory<T>(K);
        for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t plane = unit / p.bands, first = unit % p.bands * p.band, channel = plane % s.groups;
            const int64_t rows = least(p.band, p.height - first);
            T taps[K * K];
            for (int k = 0; k < K * K; ++k) taps[k] = weight[channel * K * K + (flip ? K * K - 1 - k : k)];
            const T start = bias ? bias[channel] : T(0);
            p.copy(source + plane * source_size, first, rows, K, copy);
            T* out = result + plane * size + first * p.width;
            int64_t r = 0;
            for (; r + depthwise_rows <= rows; r += depthwise_rows)
                depthwise_strip<T, K, depthwise_rows>(copy + r * p.pitch, p.pitch, taps, start, out + r * p.width, p.width);
            for (; r < rows; ++r) depthwise_strip<T, K, 1>(copy + r * p.pitch, p.pitch, taps, start, out + r * p.width, p.width);
        }
    });
}

template <class T>
bool depthwise(const ConvShape& s, const DepthwisePlane& p, const T* source, const T* weight, const T* bias, bool flip, T* result) {
    if (!suits_depthwise(s)) return false;
    switch (s.kernel[1]) {
    case 3: depthwise_planes<T, 3>(s, p, source, weight, bias, flip, result); return true;
    case 5: depthwise_planes<T, 5>(s, p, source, weight, bias, flip, result); return true;
    default: depthwise_planes<T, 7>(s, p, source, weight, bias, flip, result); return true;
    }
}

template <class T> bool depthwise_forward(const ConvShape& s, const T* input, const T* weight, const T* bias, T* output) {
    const DepthwisePlane p{s.in[1], s.in[2], -s.padding[1], -s.padding[2], s.out[1], s.out[2], 0, 0, 0};
    return depthwise(s, p, input, weight, bias, false, output);
}

template <class T> bool depthwise_input_grad(const ConvShape& s, const T* grad, const T* weight, const T* bias, T* input_grad) {
    const int64_t reach = s.kernel[1] - 1;
    const DepthwisePlane p{s.out[1], s.out[2], s.padding[1] - reach, s.padding[2] - reach, s.in[1], s.in[2], 0, 0, 0};
    return depthwise(s, p, grad, weight, bias, true, input_grad);
}

// Adds the products of `rows` rows of the gradient, `count` columns of them, with the input that meets them to the
// sums of A rows of taps. At the end of a row both sides are cut: an infinity there must not meet a zero.
template <class T, int K, int A, int rows, bool whole>
WISP_INLINE void depthwise_products(const T* copy, int64_t pitch, const T* grad, int64_t width, int64_t count, Vector<T> (&sum)[A * K]) {
    Vector<T> g[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) g[r] = whole ? load_once(grad + r * width) : load_lanes(grad + r * width, count);
#pragma GCC unroll 16
    for (int i = 0; i < rows + A - 1; ++i)
#pragma GCC unroll 8
        for (int k = 0; k < K; ++k) {
            const Vector<T> v = whole ? load_once(copy + i * pitch + k) : load_lanes(copy + i * pitch + k, count);
#pragma GCC unroll 8
            for (int r = 0; r < rows; ++r)
                if (i >= r && i - r < A) sum[(i - r) * K + k] += g[r] * v;
        }
}

template <class T, int K, int A>
__attribute__((noinline)) void depthwise_dots(const T* copy, int64_t pitch, const T* grad, int64_t width, int64_t rows, Vector<T>* sums) {
    constexpr int64_t lanes = lanes_of<T>;
    Vector<T> sum[A * K];
#pragma GCC unroll 16
    for (int k = 0; k < A * K; ++k) sum[k] = sums[k];
    int64_t r = 0;
    for (; r + depthwise_rows <= rows; r += depthwise_rows) {
        int64_t x = 0;
        for (; x + lanes <= width; x += lanes)
            depthwise_products<T, K, A, depthwise_rows, true>(copy + x, pitch, grad + x, width, lanes, sum);
        if (x < width) depthwise_products<T, K, A, depthwise_rows, false>(copy + x, pitch, grad + x, width, width - x, sum);
        copy += depthwise_rows * pitch;
        grad += depthwise_rows * width;
    }
    for (; r < rows; ++r, copy += pitch, grad += width)
        for (int64_t x = 0; x < width; x += lanes)
            depthwise_products<T, K, A, 1, false>(copy + x, pitch, grad + x, width, least(lanes, width - x), sum);
#pragma GCC unroll 16
    for (int k = 0; k < A * K; ++k) sums[k] = sum[k];
}

template <class T, int K> void depthwise_weights(const ConvShape& s, const T* input, const T* grad, T* out) {
    constexpr int A = K == 3 ? 3 : 1;  // tap rows whose sums fit into registers
    DepthwisePlane p{s.in[1], s.in[2], -s.padding[1], -s.padding[2], s.out[1], s.out[2], 0, 0, 0};
    p.prepare<T>(K);
    const int64_t in_size = s.in[1] * s.in[2], size = s.out[1] * s.out[2];
    parallel_for(s.groups, divide_up(60000, most(1, s.batch * size * K * K)), [&](int64_t begin, int64_t end) {
        T* copy = p.memory<T>(K);
        for (int64_t channel = begin; channel < end; ++channel) {
            Vector<T> sums[K * K] = {};
            for (int64_t n = 0; n < s.batch; ++n)
                for (int64_t band = 0; band < p.bands; ++band) {
                    const int64_t first = band * p.band, rows = least(p.band, p.height - first);
                    p.copy(input + (n * s.groups + channel) * in_size, first, rows, K, copy);
                    const T* g = grad + (n * s.groups + channel) * size + first * p.width;
                    for (int a = 0; a < K; a += A) depthwise_dots<T, K, A>(copy + a * p.pitch, p.pitch, g, p.width, rows, sums + a * K);
                }
            for (int k = 0; k < K * K; ++k) out[channel * K * K + k] = sum_of<T>(sums[k]);
        }
    });
}

template <class T> bool depthwise_weight_grad(const ConvShape& s, const T* input, const T* grad, T* out) {
    if (!suits_depthwise(s) || s.out[1] * s.out[2] * s.batch == 0) return false;
    switch (s.kernel[1]) {
    case 3: depthwise_weights<T, 3>(s, input, grad, out); return true;
    case 5: depthwise_weights<T, 5>(s, input, grad, out); return true;
    default: depthwise_weights<T, 7>(s, input, grad, out); return true;
    }
}

}  // namespace
}  // namespace wisp::cpu::WISP_ISA
