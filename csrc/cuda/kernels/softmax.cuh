// Softmax and log-softmax over rows, or over the middle dimension of (outer, n, inner).
#include "cuda/kernels/rows.cuh"

namespace wisp {

// A block a row. The row is kept in shared memory between the passes where it fits (Kept).
template <class T, bool Log, bool Kept> __global__ void __launch_bounds__(1024) softmax_rows(const T* x, T* y, int64_t n) {
    using C = compute<T>;
    extern __shared__ __align__(16) char memory[];
    C* reduced = reinterpret_cast<C*>(memory);
    C* row = reduced + 34;
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    C largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const C v = convert<C>(x[i]);
        if (Kept) row[i] = v;
        largest = Max::join(largest, v);
    }
    largest = over_block<Max>(largest, reduced);
    C sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const C v = Kept ? row[i] : convert<C>(x[i]);
        const C e = exponential<T>(v - largest);
        if (Kept && !Log) row[i] = e;
        sum += e;
    }
    sum = over_block<Add>(sum, reduced);
    const C scale = C(1) / sum, shift = largest + ::log(sum);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        if (Log) y[i] = convert<T>((Kept ? row[i] : convert<C>(x[i])) - shift);
        else y[i] = convert<T>((Kept ? row[i] : exponential<T>(convert<C>(x[i]) - largest)) * scale);
    }
}

// The same for rows aligned to 16 bytes, which shared memory holds as they are.
template <class T, bool Log> __global__ void __launch_bounds__(1024) softmax_long(const T* x, T* y, int64_t n) {
    using C = compute<T>;
    constexpr int V = vector_of<T>;
    using Some = Vector<T, V>;
    extern __shared__ __align__(16) char memory[];
    C* reduced = reinterpret_cast<C*>(memory);
    Some* row = reinterpret_cast<Some*>(memory + 272);
    const Some* from = reinterpret_cast<const Some*>(x + blockIdx.x * n);
    Some* to = reinterpret_cast<Some*>(y + blockIdx.x * n);
    const int vectors = int(n / V);
    C largest = -INFINITY, sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        const Some v = from[i];
        row[i] = v;
#pragma unroll
        for (int j = 0; j < V; j++) largest = Max::join(largest, convert<C>(v.at[j]));
    }
    largest = over_block<Max>(largest, reduced);
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        const Some v = row[i];
#pragma unroll
        for (int j = 0; j < V; j++) sum += exponential<T>(convert<C>(v.at[j]) - largest);
    }
    sum = over_block<Add>(sum, reduced);
    const C scale = C(1) / sum, shift = largest + ::log(sum);
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        Some v = row[i];
#pragma unroll
        for (int j = 0; j < V; j++) {
            const C value = convert<C>(v.at[j]);
            v.at[j] = convert<T>(Log ? value - shift : exponential<T>(value - largest) * scale);
        }
        to[i] = v;
    }
}
template <class T, bool Log> __global__ void __launch_bounds__(1024) softmax_long_backward(const T* g, const T* y, T* dx, int64_t n) {
    using C = compute<T>;
    constexpr int V = vector_of<T>;
    using Some = Vector<T, V>;
    __shared__ C reduced[34];
    const Some *of_g = reinterpret_cast<const Some*>(g + blockIdx.x * n), *of_y = reinterpret_cast<const Some*>(y + blockIdx.x * n);
    Some* to = reinterpret_cast<Some*>(dx + blockIdx.x * n);
    const int vectors = int(n / V);
    C sum = 0;
#pragma unroll 2
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        const Some a = of_g[i], b = Log ? a : of_y[i];
#pragma unroll
        for (int j = 0; j < V; j++) sum += Log ? convert<C>(a.at[j]) : convert<C>(a.at[j]) * convert<C>(b.at[j]);
    }
    sum = over_block<Add>(sum, reduced);
    for (int i = threadIdx.x; i < vectors; i += blockDim.x) {
        Some a = of_g[i];
        const Some b = of_y[i];
#pragma unroll
        for (int j = 0; j < V; j++) {
            const C gi = convert<C>(a.at[j]), yi = convert<C>(b.at[j]);
            a.at[j] = convert<T>(Log ? gi - exponential<T>(yi) * sum : (gi - sum) * yi);
        }
        to[i] = a;
    }
}

// Rows that fit into registers, aligned to 16 bytes.
template <class T, bool Log, int K> __global__ void __launch_bounds__(512, 2) softmax_kept(const T* x, T* y, int64_t rows, int64_t n) {
    using C = compute<T>;
    constexpr int V = vector_of<T>;
    __shared__ C reduced[32];
    const int64_t r = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    const int vectors = int(n / V);
    C largest = -INFINITY, sum = 0, kept[K][V];
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= vectors) continue;
        const auto v = reinterpret_cast<const Vector<T, V>*>(x + r * n)[i];
#pragma unroll
        for (int j = 0; j < V; j++) kept[k][j] = convert<C>(v.at[j]);
    }
#pragma unroll
    for (int k = 0; k < K; k++)
        if (threadIdx.x + k * blockDim.x < vectors)
#pragma unroll
            for (int j = 0; j < V; j++) largest = Max::join(largest, kept[k][j]);
    largest = over_row<Max>(largest, reduced);
#pragma unroll
    for (int k = 0; k < K; k++)
        if (threadIdx.x + k * blockDim.x < vectors)
#pragma unroll
            for (int j = 0; j < V; j++) {
                const C e = exponential<T>(kept[k][j] - largest);
                sum += e;
                if (!Log) kept[k][j] = e;
            }
    sum = over_row<Add>(sum, reduced);
    const C scale = C(1) / sum, shift = largest + ::log(sum);
#pragma unroll
    for (int k = 0; k < K; k++) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= vectors) continue;
        Vector<T, V> out;
#pragma unroll
        for (int j = 0; j < V; j++) out.at[j] = convert<T>(Log ? kept[k][j] - shift : kept[k][j] * scale);
        reinterpret_cast<Vector<T, V>*>(y + r * n)[i] = out;
    }
}
template <class T, bool Log, int K> __global__ void __launch_bounds__(512)
    softmax_kept_backward(const T* g, const T* y, T* dx, int64_t rows, int64_t n) {
    using C = compute<T>;
    __shared__ C reduced[32];
    const int64_t r = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (r >= rows) return;
    const int vectors = int(n / vector_of<T>);
    Row<T, K> kept_g, kept_y;
    kept_g.load(g + r * n, vectors);
    kept_y.load(y + r * n, vectors);
    C sum = 0;
    kept_g.each(vectors, [&](T v, int k, int j) { sum += Log ? convert<C>(v) : convert<C>(v) * convert<C>(kept_y.at[k].at[j]); });
    sum = over_row<Add>(sum, reduced);
    kept_g.each(vectors, [&](T& v, int k, int j) {
        const C gi = convert<C>(v), yi = convert<C>(kept_y.at[k].at[j]);
        v = convert<T>(Log ? gi - exponential<T>(yi) * sum : (gi - sum) * yi);
    });
    kept_g.store(dx + r * n, vectors);
}

// Rows of at most 16 vectors of 16 bytes: `lanes`, a power of two, have one each.
template <class How, class T> WISP_INLINE T over_lanes(T x, int lanes) {
    for (int by = lanes / 2; by > 0; by /= 2) x = How::join(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}
template <class T, bool Log> __global__ void __launch_bounds__(256) softmax_short(const T* x, T* y, int64_t rows, int64_t n, int lanes) {
    using C = compute<T>;
    constexpr int V = vector_of<T>;
    const int64_t thread = int64_t(blockIdx.x) * 256 + threadIdx.x, r = thread / lanes;
    const int i = int(threadIdx.x) & (lanes - 1);
    const bool here = r < rows && i < int(n / V);
    C kept[V], largest = -INFINITY, sum = 0;
    if (here) {
        const auto v = reinterpret_cast<const Vector<T, V>*>(x + r * n)[i];
#pragma unroll
        for (int j = 0; j < V; j++) {
            kept[j] = convert<C>(v.at[j]);
            largest = Max::join(largest, kept[j]);
        }
    }
    largest = over_lanes<Max>(largest, lanes);
    if (here)
#pragma unroll
        for (int j = 0; j < V; j++) {
            const C e = exponential<T>(kept[j] - largest);
            sum += e;
            if (!Log) kept[j] = e;
        }
    sum = over_lanes<Add>(sum, lanes);
    if (!here) return;
    const C scale = C(1) / sum, shift = largest + ::log(sum);
    Vector<T, V> out;
#pragma unroll
    for (int j = 0; j < V; j++) out.at[j] = convert<T>(Log ? kept[j] - shift : kept[j] * scale);
    reinterpret_cast<Vector<T, V>*>(y + r * n)[i] = out;
}
template <class T, bool Log> __global__ void __launch_bounds__(256)
    softmax_short_backward(const T* g, const T* y, T* dx, int64_t rows, int64_t n, int lanes) {
    using C = compute<T>;
    constexpr int V = vector_of<T>;
    const int64_t thread = int64_t(blockIdx.x) * 256 + threadIdx.x, r = thread / lanes;
    const int i = int(threadIdx.x) & (lanes - 1);
    const bool here = r < rows && i < int(n / V);
    Vector<T, V> kept_g, kept_y;
    C sum = 0;
    if (here) {
        kept_g = reinterpret_cast<const Vector<T, V>*>(g + r * n)[i];
        kept_y = reinterpret_cast<const Vector<T, V>*>(y + r * n)[i];
#pragma unroll
        for (int j = 0; j < V; j++) sum += Log ? convert<C>(kept_g.at[j]) : convert<C>(kept_g.at[j]) * convert<C>(kept_y.at[j]);
    }
    sum = over_lanes<Add>(sum, lanes);
    if (!here) return;
#pragma unroll
    for (int j = 0; j < V; j++) {
        const C gi = convert<C>(kept_g.at[j]), yi = convert<C>(kept_y.at[j]);
        kept_g.at[j] = convert<T>(Log ? gi - exponential<T>(yi) * sum : (gi - sum) * yi);
    }
    reinterpret_cast<Vector<T, V>*>(dx + r * n)[i] = kept_g;
}

// A warp a row of at most 32 * N elements, in registers.
template <class T, bool Log, int N> __global__ void __launch_bounds__(128) softmax_warp(const T* x, T* y, int64_t rows, int n) {
    using C = compute<T>;
    const int64_t r = int64_t(blockIdx.x) * 4 + threadIdx.x / 32;
    if (r >= rows) return;
    const int lane = threadIdx.x % 32;
    x += r * n;
    y += r * n;
    C v[N], largest = -INFINITY, sum = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = lane + k * 32 < n ? convert<C>(x[lane + k * 32]) : C(-INFINITY);
        largest = Max::join(largest, v[k]);
    }
#pragma unroll
    for (int by = 16; by > 0; by /= 2) largest = Max::join(largest, __shfl_xor_sync(0xffffffffu, largest, by));
#pragma unroll
    for (int k = 0; k < N; k++)
        if (lane + k * 32 < n) sum += exponential<T>(v[k] - largest);
#pragma unroll
    for (int by = 16; by > 0; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    const C scale = C(1) / sum, shift = largest + ::log(sum);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (lane + k * 32 < n) y[lane + k * 32] = convert<T>(Log ? v[k] - shift : exponential<T>(v[k] - largest) * scale);
}

template <class T, bool Log> __global__ void __launch_bounds__(1024) softmax_rows_backward(const T* g, const T* y, T* dx, int64_t n) {
    using C = compute<T>;
    __shared__ C reduced[34];
    g += blockIdx.x * n;
    y += blockIdx.x * n;
    dx += blockIdx.x * n;
    C sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += Log ? convert<C>(g[i]) : convert<C>(g[i]) * convert<C>(y[i]);
    sum = over_block<Add>(sum, reduced);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const C gi = convert<C>(g[i]), yi = convert<C>(y[i]);
        dx[i] = convert<T>(Log ? gi - exponential<T>(yi) * sum : (gi - sum) * yi);
    }
}

// A thread a column: neighbouring threads take neighbouring columns.
template <class T, bool Log> __global__ void __launch_bounds__(256)
    softmax_columns(const T* x, T* y, int64_t columns, int64_t n, int64_t inner) {
    using C = compute<T>;
    const int64_t c = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (c >= columns) return;
    const int64_t at = c / inner * n * inner + c % inner;
    C largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) largest = Max::join(largest, convert<C>(x[at + i * inner]));
    for (int64_t i = 0; i < n; i++) sum += exponential<T>(convert<C>(x[at + i * inner]) - largest);
    const C scale = C(1) / sum, shift = largest + ::log(sum);
    for (int64_t i = 0; i < n; i++) {
        const C v = convert<C>(x[at + i * inner]);
        y[at + i * inner] = convert<T>(Log ? v - shift : exponential<T>(v - largest) * scale);
    }
}

template <class T, bool Log> __global__ void __launch_bounds__(256)
    softmax_columns_backward(const T* g, const T* y, T* dx, int64_t columns, int64_t n, int64_t inner) {
    using C = compute<T>;
    const int64_t c = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (c >= columns) return;
    const int64_t at = c / inner * n * inner + c % inner;
    C sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += Log ? convert<C>(g[at + i * inner]) : convert<C>(g[at + i * inner]) * convert<C>(y[at + i * inner]);
    for (int64_t i = 0; i < n; i++) {
        const C gi = convert<C>(g[at + i * inner]), yi = convert<C>(y[at + i * inner]);
        dx[at + i * inner] = convert<T>(Log ? gi - exponential<T>(yi) * sum : (gi - sum) * yi);
    }
}

}  // namespace wisp
