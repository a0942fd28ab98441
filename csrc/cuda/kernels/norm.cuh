// Layer, RMS, group and batch normalisation. Statistics are of the compute type.
#include "cuda/kernels/rows.cuh"

namespace wisp {

// Rows of n elements, a block a row; element i belongs to channel (row % groups) * channels + i / spatial, whose weight
// and bias it gets. Layer normalisation has one group of n channels. Mean is null in RMS normalisation.
template <class T, bool Kept> __global__ void __launch_bounds__(1024)
    norm_rows(const T* x, const T* weight, const T* bias, T* y, compute<T>* mean, compute<T>* rstd, int64_t n, int64_t groups,
              int64_t channels, int64_t spatial, double eps) {
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
    norm_rows_backward(const T* g, const T* x, const T* weight, const compute<T>* mean, const compute<T>* rstd, T* dx, int64_t n,
                       int64_t groups, int64_t channels, int64_t spatial) {
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

// Layer and RMS normalisation of rows that fit into registers, with everything aligned to 16 bytes.
template <class T, int K> __global__ void __launch_bounds__(512)
    layer_forward(const T* x, const T* weight, const T* bias, T* y, compute<T>* mean, compute<T>* rstd, int64_t rows, int64_t n,
                  double eps) {
    using C = compute<T>;
    using Wide = Vector<T, vector_of<T>>;
    __shared__ C reduced[32];
    const int64_t r = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    const int vectors = int(n / vector_of<T>);
    Row<T, K> row;
    row.load(x + r * n, vectors);
    C sum = 0, center = 0;
    if (mean) {
        row.each(vectors, [&](T v, int, int) { sum += convert<C>(v); });
        center = over_row<Add>(sum, reduced) / C(n);
        sum = 0;
    }
    row.each(vectors, [&](T v, int, int) {
        const C d = convert<C>(v) - center;
        sum += d * d;
    });
    const C scale = C(1) / ::sqrt(over_row<Add>(sum, reduced) / C(n) + C(eps));
    if (threadIdx.x == 0) {
        if (mean) mean[r] = center;
        rstd[r] = scale;
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= vectors) break;
        Wide w, b;
        if (weight) w = reinterpret_cast<const Wide*>(weight)[i];
        if (bias) b = reinterpret_cast<const Wide*>(bias)[i];
#pragma unroll
        for (int j = 0; j < vector_of<T>; j++) {
            C v = (convert<C>(row.at[k].at[j]) - center) * scale;
            if (weight) v *= convert<C>(w.at[j]);
            if (bias) v += convert<C>(b.at[j]);
            row.at[k].at[j] = convert<T>(v);
        }
    }
    row.store(y + r * n, vectors);
}

// Its gradients in one pass: a block takes every gridDim.x-th row (or group of rows), and adds up its share of the gradients
// of weight and bias, partial[2][gridDim.x][n]. dx may be null; Weights: partial is wanted, for which 2 n elements of
// shared memory are there where a row has a warp.
template <class T, int K, bool Weights> __global__ void __launch_bounds__(512)
    layer_backward(const T* g, const T* x, const T* weight, const compute<T>* mean, const compute<T>* rstd, T* dx, compute<T>* partial,
                   int64_t rows, int64_t n) {
    using C = compute<T>;
    constexpr int V = vector_of<T>;
    using Wide = Vector<T, V>;
    constexpr bool kept = K * V <= 24;  // with the sums, more would not fit into registers: what is near is read again
    __shared__ C reduced[32];
    extern __shared__ __align__(16) char memory[];
    const int vectors = int(n / V);
    C mixed_sums[Weights ? K * V : 1] = {}, plain_sums[Weights ? K * V : 1] = {};
    for (int64_t r = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; r < rows; r += int64_t(gridDim.x) * blockDim.y) {
        const Wide *from_g = reinterpret_cast<const Wide*>(g + r * n), *from_x = reinterpret_cast<const Wide*>(x + r * n);
        const C center = mean ? mean[r] : C(0), scale = rstd[r];
        Row<T, kept ? K : 1> kept_g, kept_x;
        if constexpr (kept) {
            kept_g.load(g + r * n, vectors);
            kept_x.load(x + r * n, vectors);
        }
        C plain = 0, mixed = 0;
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i >= vectors) break;
            Wide gi, xi, w;
            if constexpr (kept) gi = kept_g.at[k], xi = kept_x.at[k];
            else gi = from_g[i], xi = from_x[i];
            if (weight) w = reinterpret_cast<const Wide*>(weight)[i];
#pragma unroll
            for (int j = 0; j < V; j++) {
                const C gj = convert<C>(gi.at[j]), xhat = (convert<C>(xi.at[j]) - center) * scale,
                        gw = weight ? gj * convert<C>(w.at[j]) : gj;
                plain += gw;
                mixed += gw * xhat;
                if (Weights) {
                    mixed_sums[k * V + j] += gj * xhat;
                    plain_sums[k * V + j] += gj;
                }
            }
        }
        if (!dx) continue;
        plain = mean ? over_row<Add>(plain, reduced) / C(n) : C(0);
        mixed = over_row<Add>(mixed, reduced) / C(n);
#pragma unroll
        for (int k = 0; k < K; k++) {
            const int i = threadIdx.x + k * blockDim.x;
            if (i >= vectors) break;
            Wide gi, xi, w, out;
            if constexpr (kept) gi = kept_g.at[k], xi = kept_x.at[k];
            else gi = from_g[i], xi = from_x[i];
            if (weight) w = reinterpret_cast<const Wide*>(weight)[i];
#pragma unroll
            for (int j = 0; j < V; j++) {
                const C gw = weight ? convert<C>(gi.at[j]) * convert<C>(w.at[j]) : convert<C>(gi.at[j]);
                out.at[j] = convert<T>(scale * (gw - plain - (convert<C>(xi.at[j]) - center) * scale * mixed));
            }
            reinterpret_cast<Wide*>(dx + r * n)[i] = out;
        }
    }
    if constexpr (Weights) {
        C *mixed_to = partial + int64_t(blockIdx.x) * n, *plain_to = partial + (int64_t(gridDim.x) + blockIdx.x) * n;
        C* together = reinterpret_cast<C*>(memory);
        for (int y = 0; y < int(blockDim.y); y++) {  // the rows of warps join one after another
            if (y == int(threadIdx.y))
#pragma unroll
                for (int k = 0; k < K; k++) {
                    const int i = threadIdx.x + k * blockDim.x;
                    if (i >= vectors) break;
#pragma unroll
                    for (int j = 0; j < V; j++) {
                        C m = mixed_sums[k * V + j], p = plain_sums[k * V + j];
                        if (y > 0) m += together[i * V + j], p += together[n + i * V + j];
                        if (y + 1 < int(blockDim.y)) together[i * V + j] = m, together[n + i * V + j] = p;
                        else mixed_to[i * V + j] = m, plain_to[i * V + j] = p;
                    }
                }
            __syncthreads();
        }
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
// Joins them: 32 columns a block, 32 threads along the splits.
template <class T> __global__ void __launch_bounds__(1024)
    join_weights(const compute<T>* partial, T* dw, T* db, int64_t splits, int64_t n) {
    using C = compute<T>;
    __shared__ C sums[32][33];
    const int64_t i = int64_t(blockIdx.x) * 32 + threadIdx.x;
    T* out = blockIdx.y ? db : dw;
    if (!out) return;
    C total = 0;
    if (i < n)
        for (int64_t s = threadIdx.y; s < splits; s += 32) total += partial[(blockIdx.y * splits + s) * n + i];
    sums[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    total = over_warp<Add>(sums[threadIdx.x][threadIdx.y]);  // a warp now has a column
    const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.y;
    if (threadIdx.x == 0 && column < n) out[column] = convert<T>(total);
}

// Sums of g xhat and g over a channel of (batch, channels, spatial), cut into splits: partial[2][splits][channels].
// mean and rstd belong to the channel, or, with groups > 0, to (batch, channel's group).
template <class T> __global__ void __launch_bounds__(256)
    channel_sums(const T* g, const T* x, const compute<T>* mean, const compute<T>* rstd, compute<T>* partial, int64_t batch,
                 int64_t channels, int64_t spatial, int64_t groups) {
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
