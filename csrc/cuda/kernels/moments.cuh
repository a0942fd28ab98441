// Two sums per channel, from which batch and group normalisation make statistics and gradients: parts of them by block, then joined.
#pragma once
#include "cuda/kernels/rows.cuh"

namespace wisp {

template <int N, class T, class C> WISP_INLINE void read(const T* from, C* to) {
    const Vector<T, N> v = *reinterpret_cast<const Vector<T, N>*>(from);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = convert<C>(v.at[i]);
}

// A block's part of the rows of x and g [rows, channels] goes to partial[2][channels]: sums of x - pivot and its square, or (Back) of g and
// g * (x - pivot). A thread works on N neighbouring channels; `width` threads lie across, the others on following rows.
template <int N, bool Back, class T, class G, class C, class Pivot>
WISP_INLINE void sums_of_columns(const T* x, const G* g, Pivot pivot_of, C* partial, int64_t rows, int channels, int width) {
    __shared__ C shared[2 * N * 256];
    const int across = threadIdx.x % width, down = threadIdx.x / width, depth = 256 / width;
    const int c = (blockIdx.x * width + across) * N;
    C first[N], second[N], pivot[N];
#pragma unroll
    for (int i = 0; i < N; i++) first[i] = second[i] = C(0);
    if (c < channels) {
#pragma unroll
        for (int i = 0; i < N; i++) pivot[i] = pivot_of(c + i);
        const int64_t step = int64_t(gridDim.y) * depth;
#pragma unroll 4
        for (int64_t r = int64_t(blockIdx.y) * depth + down; r < rows; r += step) {
            C a[N], b[N];
            read<N>(x + r * channels + c, a);
            if constexpr (Back) read<N>(g + r * channels + c, b);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const C d = a[i] - pivot[i];
                first[i] += Back ? b[i] : d;
                second[i] += Back ? b[i] * d : d * d;
            }
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        shared[i * 256 + threadIdx.x] = first[i];
        shared[(N + i) * 256 + threadIdx.x] = second[i];
    }
    __syncthreads();
    for (int o = threadIdx.x; o < width * 2 * N; o += 256) {
        const int lane = o % width, i = o / width, at = (blockIdx.x * width + lane) * N + i % N;
        if (at >= channels) continue;
        C total = 0;
        for (int d = 0; d < depth; d++) total += shared[i * 256 + d * width + lane];
        partial[i / N * channels + at] = total;
    }
}

// The sums of one channel, of partial[splits][2][channels], in all lanes of its warp.
template <class C> WISP_INLINE void joined(const C* partial, int c, int channels, int splits, C& first, C& second) {
    first = second = C(0);
    for (int s = threadIdx.x % 32; s < splits; s += 32) {
        first += partial[int64_t(s) * 2 * channels + c];
        second += partial[(int64_t(s) * 2 + 1) * channels + c];
    }
    first = over_warp<Add>(first);
    second = over_warp<Add>(second);
}

}  // namespace wisp
