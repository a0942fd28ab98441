// Batch normalisation in two layouts: planes [batch, channels, spatial], and columns [rows, channels] (channels last).
//
// Statistics and gradients are two sums per channel. Blocks add up parts in a fixed order ("sums"), a warp per channel
// joins the parts ("join"), and a last kernel maps elements by factors per channel ("map"). Sums of x are taken of its
// difference from the channel's first element, so that squares do not cancel.
#include "cuda/kernels/moments.cuh"

namespace wisp {

template <int N, class T, class C> WISP_INLINE void write(T* to, const C* from) {
    Vector<T, N> v;
#pragma unroll
    for (int i = 0; i < N; i++) v.at[i] = convert<T>(from[i]);
    *reinterpret_cast<Vector<T, N>*>(to) = v;
}

// partial[split][2][channels]: sums of x - pivot and its square, or (Back) of g and g * (x - mean).
template <class T, int N, bool Back> __global__ void __launch_bounds__(256)
    column_sums(const T* x, const T* g, const compute<T>* mean, compute<T>* partial, int64_t rows, int channels, int width) {
    auto pivot = [&](int c) { return Back ? mean[c] : convert<compute<T>>(x[c]); };
    sums_of_columns<N, Back>(x, g, pivot, partial + int64_t(blockIdx.y) * 2 * channels, rows, channels, width);
}

// The same over planes: a block takes a part of one channel. `per_plane`: vectors of N in a plane, `total`: of a channel.
template <class T, int N, bool Back> __global__ void __launch_bounds__(256)
    plane_sums(const T* x, const T* g, const compute<T>* mean, compute<T>* partial, uint32_t total, const Divider per_plane, int channels) {
    using C = compute<T>;
    __shared__ C shared[33];
    const int c = blockIdx.x;
    const int64_t spatial = int64_t(per_plane.divisor) * N;
    const C pivot = Back ? mean[c] : convert<C>(x[c * spatial]);
    C first = 0, second = 0;
#pragma unroll 4
    for (uint32_t i = blockIdx.y * 256 + threadIdx.x; i < total; i += gridDim.y * 256) {
        const uint32_t image = per_plane.divide(i);
        const int64_t at = (int64_t(image) * channels + c) * spatial + int64_t(i - image * per_plane.divisor) * N;
        C a[N], b[N];
        read<N>(x + at, a);
        if constexpr (Back) read<N>(g + at, b);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const C d = a[k] - pivot;
            first += Back ? b[k] : d;
            second += Back ? b[k] * d : d * d;
        }
    }
    first = over_block<Add>(first, shared);
    second = over_block<Add>(second, shared);
    if (threadIdx.x == 0) {
        partial[int64_t(blockIdx.y) * 2 * channels + c] = first;
        partial[(int64_t(blockIdx.y) * 2 + 1) * channels + c] = second;
    }
}

// Mean, 1 / deviation and the running statistics; `step`: from one channel's first element to the next's.
template <class T, class R> __global__ void __launch_bounds__(256)
    join_statistics(const T* x, int64_t step, const compute<T>* partial, compute<T>* mean, compute<T>* rstd, R* running_mean,
                    R* running_var, int channels, int splits, double count, double momentum, double eps) {
    using C = compute<T>;
    const int c = blockIdx.x * 8 + threadIdx.x / 32;
    if (c >= channels) return;
    C first, second;
    joined(partial, c, channels, splits, first, second);
    if (threadIdx.x % 32) return;
    first /= C(count);
    C variance = second / C(count) - first * first;
    if (variance < C(0)) variance = C(0);  // by rounding; NaN stays
    const C m = convert<C>(x[c * step]) + first;
    mean[c] = m;
    rstd[c] = C(1) / ::sqrt(variance + C(eps));
    if (running_mean) running_mean[c] = convert<R>(C((1 - momentum) * convert<C>(running_mean[c]) + momentum * m));
    if (running_var)
        running_var[c] = convert<R>(C((1 - momentum) * convert<C>(running_var[c]) + momentum * variance * (count / (count - 1))));
}
template <class C, class R> __global__ void __launch_bounds__(256)
    running_statistics(const R* running_mean, const R* running_var, C* mean, C* rstd, int channels, double eps) {
    const int c = blockIdx.x * 256 + threadIdx.x;
    if (c >= channels) return;
    mean[c] = convert<C>(running_mean[c]);
    rstd[c] = C(1) / ::sqrt(convert<C>(running_var[c]) + C(eps));
}
// Gradients of weight and bias, and the factors of the input's: dx = f0 * g + f1 * (x - mean) + f2.
template <class C, class W> __global__ void __launch_bounds__(256)
    join_gradients(const C* partial, const C* rstd, const W* weight, W* dw, W* db, C* factors, int channels, int splits, double count,
                   int training) {
    const int c = blockIdx.x * 8 + threadIdx.x / 32;
    if (c >= channels) return;
    C plain, mixed;
    joined(partial, c, channels, splits, plain, mixed);
    if (threadIdx.x % 32) return;
    const C r = rstd[c], scale = r * (weight ? convert<C>(weight[c]) : C(1));
    if (dw) dw[c] = convert<W>(C(mixed * r));
    if (db) db[c] = convert<W>(plain);
    factors[c] = scale;
    factors[channels + c] = training ? -scale * r * r * mixed / C(count) : C(0);
    factors[2 * channels + c] = training ? -scale * plain / C(count) : C(0);
}

// y = x * scale + shift with factors of the channel.
template <class T, class W, int N> __global__ void __launch_bounds__(256)
    column_map(const T* x, const compute<T>* mean, const compute<T>* rstd, const W* weight, const W* bias, T* y, int64_t rows, int channels,
               int width) {
    using C = compute<T>;
    const int across = threadIdx.x % width, down = threadIdx.x / width, depth = 256 / width;
    const int c = (blockIdx.x * width + across) * N;
    if (c >= channels) return;
    C scale[N], shift[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        scale[i] = rstd[c + i] * (weight ? convert<C>(weight[c + i]) : C(1));
        shift[i] = (bias ? convert<C>(bias[c + i]) : C(0)) - mean[c + i] * scale[i];
    }
    const int64_t step = int64_t(gridDim.y) * depth;
#pragma unroll 4
    for (int64_t r = int64_t(blockIdx.y) * depth + down; r < rows; r += step) {
        C a[N];
        read<N>(x + r * channels + c, a);
#pragma unroll
        for (int i = 0; i < N; i++) a[i] = a[i] * scale[i] + shift[i];
        write<N>(y + r * channels + c, a);
    }
}
template <class T, int N> __global__ void __launch_bounds__(256)
    column_map_back(const T* x, const T* g, const compute<T>* mean, const compute<T>* factors, T* dx, int64_t rows, int channels,
                    int width) {
    using C = compute<T>;
    const int across = threadIdx.x % width, down = threadIdx.x / width, depth = 256 / width;
    const int c = (blockIdx.x * width + across) * N;
    if (c >= channels) return;
    C f0[N], f1[N], f2[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        f0[i] = factors[c + i];
        f1[i] = factors[channels + c + i];
        f2[i] = factors[2 * channels + c + i] - f1[i] * mean[c + i];
    }
    const int64_t step = int64_t(gridDim.y) * depth;
#pragma unroll 4
    for (int64_t r = int64_t(blockIdx.y) * depth + down; r < rows; r += step) {
        C a[N], b[N];
        read<N>(x + r * channels + c, a);
        read<N>(g + r * channels + c, b);
#pragma unroll
        for (int i = 0; i < N; i++) a[i] = f0[i] * b[i] + (f1[i] * a[i] + f2[i]);
        write<N>(dx + r * channels + c, a);
    }
}

template <class T, class W, int N> __global__ void __launch_bounds__(256)
    plane_map(const T* x, const compute<T>* mean, const compute<T>* rstd, const W* weight, const W* bias, T* y, uint32_t total,
              const Divider per_plane, const Divider channels) {
    using C = compute<T>;
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < total; i += gridDim.x * 256) {
        const uint32_t plane = per_plane.divide(i), c = plane - channels.divide(plane) * channels.divisor;
        const C scale = rstd[c] * (weight ? convert<C>(weight[c]) : C(1)), shift = (bias ? convert<C>(bias[c]) : C(0)) - mean[c] * scale;
        C a[N];
        read<N>(x + int64_t(i) * N, a);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] = a[k] * scale + shift;
        write<N>(y + int64_t(i) * N, a);
    }
}
template <class T, int N> __global__ void __launch_bounds__(256)
    plane_map_back(const T* x, const T* g, const compute<T>* mean, const compute<T>* factors, T* dx, uint32_t total,
                   const Divider per_plane, const Divider channels) {
    using C = compute<T>;
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < total; i += gridDim.x * 256) {
        const uint32_t plane = per_plane.divide(i), c = plane - channels.divide(plane) * channels.divisor;
        const C f0 = factors[c], f1 = factors[channels.divisor + c], f2 = factors[2 * channels.divisor + c] - f1 * mean[c];
        C a[N], b[N];
        read<N>(x + int64_t(i) * N, a);
        read<N>(g + int64_t(i) * N, b);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] = f0 * b[k] + (f1 * a[k] + f2);
        write<N>(dx + int64_t(i) * N, a);
    }
}

}  // namespace wisp
