// Layer, RMS, group and batch normalisation. Statistics are of the compute type.
#include "cuda/kernels/rows.cuh"

namespace wisp {

// Rows of n elements, a block a row; element i belongs to channel (row % groups) * channels + i / spatial, whose weight
// and bias it gets. Layer normalisation has one group of n channels. Mean is null in RMS normalisation.
template <class T, bool Kept> __global__ void __launch_bounds__(1024)
norm_rows(const T* x, const T* weight, const T* bias, T* y, compute<T>* mean, compute<T>* rstd, int64_t n, int64_t groups, int64_t channels, int64_t spatial, double eps) {
    using C = compute<T>;
    extern __shared__ __align__(16) char memory[];
    C* reduced = reinterpret_cast<C*>(memory);
    C* row = reduced + 34;
    const int64_t r = blockIdx.x, channel = r % groups * channels;
    x += r * n;
    y += r * n;
    C sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const C v = convert<C>(x[i]);
        if (Kept) row[i] = v;
        sum += mean ? v : v * v;
    }
    sum = over_block<Add>(sum, reduced);
    C center = 0;
    if (mean) {
        center = sum / C(n);
        sum = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const C d = (Kept ? row[i] : convert<C>(x[i])) - center;
            sum += d * d;
        }
        sum = over_block<Add>(sum, reduced);
    }
    const C scale = C(1) / ::sqrt(sum / C(n) + C(eps));
    if (threadIdx.x == 0) {
        if (mean) mean[r] = center;
        rstd[r] = scale;
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const int64_t c = channel + (spatial == 1 ? i : i / spatial);
        C v = ((Kept ? row[i] : convert<C>(x[i])) - center) * scale;
        if (weight) v *= convert<C>(weight[c]);
        if (bias) v += convert<C>(bias[c]);
        y[i] = convert<T>(v);
    }
}

// dx = rstd * (g w - mean(g w) - xhat mean(g w xhat)); without the first mean in RMS normalisation.
template <class T> __global__ void __launch_bounds__(1024)
norm_rows_backward(const T* g, const T* x, const T* weight, const compute<T>* mean, const compute<T>* rstd, T* dx, int64_t n, int64_t groups, int64_t channels, int64_t spatial) {
    using C = compute<T>;
    __shared__ C reduced[34];
    const int64_t r = blockIdx.x, channel = r % groups * channels;
    g += r * n;
    x += r * n;
    dx += r * n;
    const C center = mean ? mean[r] : C(0), scale = rstd[r];
    C plain = 0, mixed = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const int64_t c = channel + (spatial == 1 ? i : i / spatial);
        const C gw = convert<C>(g[i]) * (weight ? convert<C>(weight[c]) : C(1));
        plain += gw;
        mixed += gw * ((convert<C>(x[i]) - center) * scale);
    }
    plain = mean ? over_block<Add>(plain, reduced) / C(n) : C(0);
    mixed = over_block<Add>(mixed, reduced) / C(n);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const int64_t c = channel + (spatial == 1 ? i : i / spatial);
        const C gw = convert<C>(g[i]) * (weight ? convert<C>(weight[c]) : C(1));
        dx[i] = convert<T>(scale * (gw - plain - (convert<C>(x[i]) - center) * scale * mixed));
    }
}

// Partial sums of g xhat and g over rows [first, last) of blockIdx.y for 32 columns each: partial[2][splits][n].
template <class T> __global__ void __launch_bounds__(256)
layer_weights(const T* g, const T* x, const compute<T>* mean, const compute<T>* rstd, compute<T>* partial, int64_t rows, int64_t n) {
    using C = compute<T>;
    __shared__ C sums[2][8][33];
    const int column = threadIdx.x % 32, part = threadIdx.x / 32;
    const int64_t i = int64_t(blockIdx.x) * 32 + column;
    const int64_t first = rows * blockIdx.y / gridDim.y, last = rows * (blockIdx.y + 1) / gridDim.y;
    C mixed = 0, plain = 0;
    if (i < n)
        for (int64_t r = first + part; r < last; r += 8) {
            const C gi = convert<C>(g[r * n + i]);
            plain += gi;
            mixed += gi * (convert<C>(x[r * n + i]) - (mean ? mean[r] : C(0))) * rstd[r];
        }
    sums[0][part][column] = mixed;
    sums[1][part][column] = plain;
    __syncthreads();
    if (part < 2 && i < n) {
        C total = 0;
        for (int k = 0; k < 8; k++) total += sums[part][k][column];
        partial[(int64_t(part) * gridDim.y + blockIdx.y) * n + i] = total;
    }
}
template <class T> __global__ void __launch_bounds__(256) join_weights(const compute<T>* partial, T* dw, T* db, int64_t splits, int64_t n) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= n) return;
    for (int which = 0; which < 2; which++) {
        T* out = which ? db : dw;
        if (!out) continue;
        C total = 0;
        for (int64_t s = 0; s < splits; s++) total += partial[(which * splits + s) * n + i];
        out[i] = convert<T>(total);
    }
}

// Sums of g xhat and g over a channel of (batch, channels, spatial), cut into splits: partial[2][splits][channels].
// mean and rstd belong to the channel, or, with groups > 0, to (batch, channel's group).
template <class T> __global__ void __launch_bounds__(256)
channel_sums(const T* g, const T* x, const compute<T>* mean, const compute<T>* rstd, compute<T>* partial, int64_t batch, int64_t channels, int64_t spatial, int64_t groups) {
    using C = compute<T>;
    __shared__ C reduced[34];
    const int64_t c = blockIdx.x, count = batch * spatial;
    const int64_t first = count * blockIdx.y / gridDim.y, last = count * (blockIdx.y + 1) / gridDim.y;
    C mixed = 0, plain = 0;
    for (int64_t k = first + threadIdx.x; k < last; k += 256) {
        const int64_t b = k / spatial, at = (b * channels + c) * spatial + (k - b * spatial);
        const int64_t s = groups ? b * groups + c / (channels / groups) : c;
        const C gi = convert<C>(g[at]);
        plain += gi;
        mixed += gi * (convert<C>(x[at]) - mean[s]) * rstd[s];
    }
    mixed = over_block<Add>(mixed, reduced);
    plain = over_block<Add>(plain, reduced);
    if (threadIdx.x == 0) {
        partial[int64_t(blockIdx.y) * channels + c] = mixed;
        partial[(int64_t(gridDim.y) + blockIdx.y) * channels + c] = plain;
    }
}

}  // namespace wisp
