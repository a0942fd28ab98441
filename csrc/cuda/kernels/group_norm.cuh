// Group normalisation in two layouts: planes [samples, channels, places], and columns [samples, places, channels] (channels last).
//
// Statistics and gradients are two sums for each channel of a sample. Blocks add up parts in a fixed order ("sums"), a block for each
// group joins them ("join"), which gives factors per channel; elements are then mapped by those, pointwise. Sums of x are taken of its
// difference from the first element, so that squares do not cancel.
#include "cuda/kernels/moments.cuh"

namespace wisp {

// partial[sample][split][2][channels]: sums of x - pivot and its square, or (Back) of g and g * (x - mean).
template <class X, class G, int N, bool Back> __global__ void __launch_bounds__(256)
    group_columns(const X* x, const G* g, const compute<X>* mean, compute<X>* partial, int64_t places, int channels, int per_group,
                  int width) {
    const int64_t sample = blockIdx.z;
    x += sample * places * channels;
    if constexpr (Back) g += sample * places * channels;
    auto pivot = [&](int c) {
        return Back ? mean[sample * (channels / per_group) + c / per_group] : convert < compute < X
        >> (x[c]);
    };
    sums_of_columns<N, Back>(x, g, pivot, partial + (sample * gridDim.y + blockIdx.y) * 2 * channels, places, channels, width);
}

// The same over planes, a block each, with one split.
template <class X, class G, int N, bool Back> __global__ void __launch_bounds__(256)
    group_planes(const X* x, const G* g, const compute<X>* mean, compute<X>* partial, int64_t places, int channels, int per_group) {
    using C = compute < X
    > ;
    __shared__ C shared[33];
    const int64_t sample = blockIdx.x / channels;
    const int c = blockIdx.x % channels;
    x += int64_t(blockIdx.x) * places;
    if constexpr (Back) g += int64_t(blockIdx.x) * places;
    const C pivot = Back ? mean[sample * (channels / per_group) + c / per_group] : convert<C>(x[0]);
    C first = 0, second = 0;
#pragma unroll 4
    for (int64_t i = int64_t(threadIdx.x) * N; i < places; i += int64_t(blockDim.x) * N) {
        C a[N], b[N];
        read<N>(x + i, a);
        if constexpr (Back) read<N>(g + i, b);
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
        partial[sample * 2 * channels + c] = first;
        partial[(sample * 2 + 1) * channels + c] = second;
    }
}

// Mean and 1 / deviation of a group (blockIdx.x) of a sample (blockIdx.y), and scale and shift of its channels: y = x * scale + shift.
// `step`: from one channel's first element to the next's; `along`: from one sample's to the next's.
template <class X, class W> __global__ void __launch_bounds__(128)
    group_join(const X* x, int64_t step, int64_t along, const compute<X>* partial, const W* weight, const W* bias, compute<X>* mean,
               compute<X>* rstd, compute<X>* scale, compute<X>* shift, int64_t places, int channels, int per_group, int splits,
               double eps) {
    using C = compute < X
    > ;
    __shared__ C shared[33];
    const int64_t sample = blockIdx.y;
    partial += sample * splits * 2 * channels;
    const int begin = blockIdx.x * per_group, warp = threadIdx.x / 32;
    const bool leads = threadIdx.x % 32 == 0;
    C sum = 0, first, second;
    for (int c = begin + warp; c < begin + per_group; c += 4) {
        joined(partial, c, channels, splits, first, second);
        if (leads) sum += convert<C>(x[sample * along + c * step]) + first / C(places);
    }
    const C center = over_block<Add>(sum, shared) / C(per_group);
    sum = 0;
    for (int c = begin + warp; c < begin + per_group; c += 4) {
        joined(partial, c, channels, splits, first, second);
        const C moved = first / C(places), d = convert<C>(x[sample * along + c * step]) + moved - center;
        C squares = second - first * moved;
        if (squares < C(0)) squares = C(0);  // by rounding; NaN stays
        if (leads) sum += squares + C(places) * d * d;
    }
    const C r = C(1) / ::sqrt(over_block<Add>(sum, shared) / (C(places) * C(per_group)) + C(eps));
    if (threadIdx.x == 0) {
        mean[sample * gridDim.x + blockIdx.x] = center;
        rstd[sample * gridDim.x + blockIdx.x] = r;
    }
    for (int c = begin + int(threadIdx.x); c < begin + per_group; c += 128) {
        const C w = weight ? r * convert<C>(weight[c]) : r;
        scale[sample * channels + c] = w;
        shift[sample * channels + c] = (bias ? convert<C>(bias[c]) : C(0)) - center * w;
    }
}

// The factors of the input's gradient, dx = g * scale + x * slope + shift, and sums[sample][2][channels] for those of weight and bias.
template <class C, class W> __global__ void __launch_bounds__(128)
    group_join_back(const C* partial, const W* weight, const C* mean, const C* rstd, C* slope, C* shift, C* sums, int64_t places,
                    int channels, int per_group, int splits) {
    __shared__ C shared[33];
    const int64_t sample = blockIdx.y;
    partial += sample * splits * 2 * channels;
    const int begin = blockIdx.x * per_group, warp = threadIdx.x / 32;
    const bool leads = threadIdx.x % 32 == 0;
    const C center = mean[sample * gridDim.x + blockIdx.x], r = rstd[sample * gridDim.x + blockIdx.x];
    C plain = 0, mixed = 0;
    for (int c = begin + warp; c < begin + per_group; c += 4) {
        C first, second;
        joined(partial, c, channels, splits, first, second);
        if (!leads) continue;
        const C w = weight ? convert<C>(weight[c]) : C(1);
        plain += w * first;
        mixed += w * second;
        sums[sample * 2 * channels + c] = first;
        sums[(sample * 2 + 1) * channels + c] = second * r;
    }
    plain = over_block<Add>(plain, shared);
    mixed = over_block<Add>(mixed, shared);
    const C count = C(places) * C(per_group), along = -r * r * r * mixed / count, constant = -r * plain / count - along * center;
    for (int c = begin + int(threadIdx.x); c < begin + per_group; c += 128) {
        slope[sample * channels + c] = along;
        shift[sample * channels + c] = constant;
    }
}
template <class C, class W> __global__ void __launch_bounds__(128)
    group_weights(const C* sums, W* dw, W* db, int64_t samples, int channels) {
    const int c = blockIdx.x * 128 + threadIdx.x;
    if (c >= channels) return;
    C plain = 0, mixed = 0;
#pragma unroll 8
    for (int64_t n = 0; n < samples; n++) {
        plain += sums[n * 2 * channels + c];
        mixed += sums[(n * 2 + 1) * channels + c];
    }
    if (db) db[c] = convert<W>(plain);
    if (dw) dw[c] = convert<W>(mixed);
}

template <int N, class T, class C> WISP_INLINE void write(T* to, const C* from) {
    Vector<T, N> v;
#pragma unroll
    for (int i = 0; i < N; i++) v.at[i] = convert<T>(from[i]);
    *reinterpret_cast<Vector<T, N>*>(to) = v;
}

// The maps, of planes. `total`: vectors of N, `per_plane`: of a plane.
template <class X, class Y, int N> __global__ void __launch_bounds__(256)
    group_map(const X* x, const compute<X>* scale, const compute<X>* shift, Y* y, uint32_t total, const Divider per_plane) {
    using C = compute < X
    > ;
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < total; i += gridDim.x * 256) {
        const uint32_t plane = per_plane.divide(i);
        const C by = scale[plane], plus = shift[plane];
        C a[N];
        read<N>(x + int64_t(i) * N, a);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] = a[k] * by + plus;
        write<N>(y + int64_t(i) * N, a);
    }
}
template <class X, class G, int N> __global__ void __launch_bounds__(256)
    group_map_back(const X* x, const G* g, const compute<X>* scale, const compute<X>* slope, const compute<X>* shift, X* dx, uint32_t total,
                   const Divider per_plane) {
    using C = compute < X
    > ;
    for (uint32_t i = blockIdx.x * 256 + threadIdx.x; i < total; i += gridDim.x * 256) {
        const uint32_t plane = per_plane.divide(i);
        const C by = scale[plane], along = slope[plane], plus = shift[plane];
        C a[N], b[N];
        read<N>(x + int64_t(i) * N, a);
        read<N>(g + int64_t(i) * N, b);
#pragma unroll
        for (int k = 0; k < N; k++) a[k] = b[k] * by + (a[k] * along + plus);
        write<N>(dx + int64_t(i) * N, a);
    }
}

}  // namespace wisp
