// Reductions over any dimensions of a strided tensor. What is being reduced is a Reducer; how its elements lie decides
// between two kernels: threads along the reduced elements (rows), or threads along the results (columns).
// Large reductions are cut into splits whose partial results a second kernel joins, always in the same order.
#include "cuda/kernels/base.cuh"

namespace wisp {

enum Kind : int { k_sum, k_nansum, k_prod, k_max, k_min, k_any, k_all, k_count_nonzero, k_norm, k_variance, k_logsumexp, k_extremes };
enum Norm : int { norm_0, norm_1, norm_2, norm_inf, norm_minus_inf, norm_p };

#include "kernels/reduce_arguments.h"

template <class T> WISP_INLINE auto magnitude(T x) {
    if constexpr (is_complex<T>) return ::hypot(x.re, x.im);
    else return x > T(0) ? x : T(T(0) - x);  // of -0 too, which has an infinite inverse
}
template <class T> WISP_INLINE bool is_nan(T x) {
    if constexpr (is_complex<T>) return is_nan(x.re) || is_nan(x.im);
    else return x != x;
}

template <int K, class A, int N> struct Reducer {  // sums and products
    struct Acc {
        A value;
    };
    static WISP_INLINE Acc start() {
        if constexpr (K == k_prod) return {A(1)};
        else if constexpr (K == k_all) return {A(1)};
        else if constexpr (K == k_norm && N == norm_minus_inf) return {A(INFINITY)};
        else return {A(0)};
    }
    template <class In> static WISP_INLINE void add(Acc& acc, In element, int64_t, double p) {
        if constexpr (K == k_sum) acc.value += convert<A>(element);
        else if constexpr (K == k_nansum) {
            const A x = convert<A>(element);
            acc.value += is_nan(x) ? A(0) : x;
        } else if constexpr (K == k_prod) acc.value *= convert<A>(element);
        else if constexpr (K == k_any) acc.value = acc.value != A(0) || convert<bool>(element) ? A(1) : A(0);
        else if constexpr (K == k_all) acc.value = acc.value != A(0) && convert<bool>(element) ? A(1) : A(0);
        else if constexpr (K == k_count_nonzero) acc.value += convert<bool>(element) ? A(1) : A(0);
        else if constexpr (K == k_norm) {
            A x;
            if constexpr (is_complex<In>) x = A(magnitude(element));
            else x = magnitude(convert<A>(element));
            if constexpr (N == norm_0) acc.value += x != A(0) ? A(1) : A(0);
            else if constexpr (N == norm_1) acc.value += x;
            else if constexpr (N == norm_2) acc.value += x * x;
            else if constexpr (N == norm_inf) acc.value = is_nan(acc.value) || acc.value > x ? acc.value : x;
            else if constexpr (N == norm_minus_inf) acc.value = is_nan(acc.value) || acc.value < x ? acc.value : x;
            else acc.value += ::pow(x, A(p));
        }
    }
    static WISP_INLINE Acc join(Acc a, Acc b) {
        if constexpr (K == k_prod) return {A(a.value * b.value)};
        else if constexpr (K == k_any) return {a.value != A(0) || b.value != A(0) ? A(1) : A(0)};
        else if constexpr (K == k_all) return {a.value != A(0) && b.value != A(0) ? A(1) : A(0)};
        else if constexpr (K == k_norm && N == norm_inf) return {is_nan(a.value) || a.value > b.value ? a.value : b.value};
        else if constexpr (K == k_norm && N == norm_minus_inf) return {is_nan(a.value) || a.value < b.value ? a.value : b.value};
        else return {A(a.value + b.value)};
    }
    template <class Out> static WISP_INLINE void write(const ReduceLaunch& p, int64_t at, Acc acc) {
        A y = acc.value;
        if constexpr (K == k_norm && N == norm_2) y = ::sqrt(y);
        if constexpr (K == k_norm && N == norm_p) y = ::pow(y, A(1.0 / p.parameter));
        if constexpr ((K == k_sum || K == k_nansum) && !std::is_integral_v<A>) {
            if (p.divisor != 1) {
                if constexpr (is_complex<A>) y = A(y.re / typename A::value_type(p.divisor), y.im / typename A::value_type(p.divisor));
                else y = y / A(p.divisor);
            }
        }
        reinterpret_cast<Out*>(p.out)[at] = convert<Out>(y);
    }
};

// What is below (above) all others.
template <int K, class A> WISP_INLINE A worst() {
    if constexpr (!std::is_integral_v<A>) return A(K == k_max ? -INFINITY : INFINITY);
    else if constexpr (std::is_same_v<A, uint64_t>) return K == k_max ? 0 : ~uint64_t(0);
    else return K == k_max ? INT64_MIN : INT64_MAX;
}
template <int K, class A> struct Extreme {
    struct Acc {
        A value;
        int64_t index;  // -1: nothing above the worst was seen, so that all are the worst
    };
    static WISP_INLINE Acc start() { return {worst<K, A>(), -1}; }
    static WISP_INLINE bool better(A a, A b) { return (K == k_max ? a > b : a < b) || (is_nan(a) && !is_nan(b)); }
    template <class In> static WISP_INLINE void add(Acc& acc, In element, int64_t index, double) {
        const A x = convert<A>(element);
        if (better(x, acc.value)) acc = {x, index};
    }
    // Several at once, of rising places: the best of them first, and where it is only if it is better than what was seen.
    template <class In, int V, class Place> static WISP_INLINE void add_all(Acc& acc, const Vector<In, V> (&x)[4], Place place) {
        A best = convert<A>(x[0].at[0]);
#pragma unroll
        for (int i = 1; i < 4 * V; i++) {
            const A y = convert<A>(x[i / V].at[i % V]);
            if constexpr (!std::is_same_v<A, float>) best = better(y, best) ? y : best;
            else if constexpr (K == k_max) asm("max.NaN.f32 %0, %0, %1;" : "+f"(best) : "f"(y));
            else asm("min.NaN.f32 %0, %0, %1;" : "+f"(best) : "f"(y));
        }
        if (!better(best, acc.value)) return;
        int first = 0;
#pragma unroll
        for (int i = 4 * V - 1; i >= 0; i--) {
            const A y = convert<A>(x[i / V].at[i % V]);
            if (!better(best, y)) first = i, acc.value = y;
        }
        acc.index = place(first / V) * V + first % V;
    }
    // Of the threads of a warp, in the first.
    static WISP_INLINE Acc join_warp(Acc acc) {
#pragma unroll
        for (int by = 16; by > 0; by /= 2) {
            using Word = std::conditional_t<std::is_integral_v<A>, long long, A>;
            const A value = A(__shfl_down_sync(~0u, Word(acc.value), by));
            acc = join(acc, {value, __shfl_down_sync(~0u, static_cast<long long>(acc.index), by)});
        }
        return acc;
    }
    static WISP_INLINE Acc join(Acc a, Acc b) {
        if (better(a.value, b.value)) return a;
        if (better(b.value, a.value)) return b;
        return b.index < 0 || (a.index >= 0 && a.index < b.index) ? a : b;
    }
    template <class Out> static WISP_INLINE void write(const ReduceLaunch& p, int64_t at, Acc acc) {
        if (p.out) reinterpret_cast<Out*>(p.out)[at] = convert<Out>(acc.value);
        if (p.indices) p.indices[at] = acc.index < 0 ? 0 : acc.index;
    }
};
template <class A> struct Reducer<k_max, A, 0> : Extreme<k_max, A> {};
template <class A> struct Reducer<k_min, A, 0> : Extreme<k_min, A> {};

// The better of two; NaN wins.
template <int K, class A> WISP_INLINE A better_of(A x, A y) { return (K == k_max ? x > y : x < y) || is_nan(x) ? x : y; }
// N = 1: the value alone, without its place.
template <int K, class A> struct ExtremeValue {
    struct Acc {
        A value;
    };
    static WISP_INLINE Acc start() { return {worst<K, A>()}; }
    template <class In> static WISP_INLINE void add(Acc& acc, In element, int64_t, double) {
        acc.value = better_of<K>(convert<A>(element), acc.value);
    }
    static WISP_INLINE Acc join(Acc a, Acc b) { return {better_of<K>(b.value, a.value)}; }
    template <class Out> static WISP_INLINE void write(const ReduceLaunch& p, int64_t at, Acc acc) {
        reinterpret_cast<Out*>(p.out)[at] = convert<Out>(acc.value);
    }
};
template <class A> struct Reducer<k_max, A, 1> : ExtremeValue<k_max, A> {};
template <class A> struct Reducer<k_min, A, 1> : ExtremeValue<k_min, A> {};

template <class A, int N> struct Reducer<k_extremes, A, N> {
    struct Acc {
        A low, high;
    };
    static WISP_INLINE Acc start() { return {worst<k_min, A>(), worst<k_max, A>()}; }
    template <class In> static WISP_INLINE void add(Acc& acc, In element, int64_t, double) {
        const A x = convert<A>(element);
        acc = {better_of<k_min>(x, acc.low), better_of<k_max>(x, acc.high)};
    }
    static WISP_INLINE Acc join(Acc a, Acc b) { return {better_of<k_min>(b.low, a.low), better_of<k_max>(b.high, a.high)}; }
    template <class Out> static WISP_INLINE void write(const ReduceLaunch& p, int64_t at, Acc acc) {
        reinterpret_cast<Out*>(p.out)[at] = convert<Out>(acc.low);
        reinterpret_cast<Out*>(p.mean)[at] = convert<Out>(acc.high);
    }
};

template <class A, int N> struct Reducer<k_variance, A, N> {  // running mean and sum of squared differences
    struct Acc {
        A count, mean, squares;
    };
    static WISP_INLINE Acc start() { return {A(0), A(0), A(0)}; }
    template <class In> static WISP_INLINE void add(Acc& acc, In element, int64_t, double) {
        const A x = convert<A>(element);
        acc.count += A(1);
        const A d = x - acc.mean;
        acc.mean += d / acc.count;
        acc.squares += d * (x - acc.mean);
    }
    static WISP_INLINE Acc join(Acc a, Acc b) {
        if (a.count == A(0)) return b;
        if (b.count == A(0)) return a;
        const A n = a.count + b.count, d = b.mean - a.mean;
        return {n, a.mean + d * (b.count / n), a.squares + b.squares + d * d * (a.count * b.count / n)};
    }
    template <class Out> static WISP_INLINE void write(const ReduceLaunch& p, int64_t at, Acc acc) {
        const double freedom = double(p.count) - p.parameter;
        A v = p.count == 0 ? A(NAN) : acc.squares / A(freedom > 0 ? freedom : 0);
        if (p.root) v = ::sqrt(v);
        if (p.out) reinterpret_cast<Out*>(p.out)[at] = convert<Out>(v);
        if (p.mean) reinterpret_cast<Out*>(p.mean)[at] = convert<Out>(p.count == 0 ? A(NAN) : acc.mean);
    }
};

template <class A, int N> struct Reducer<k_logsumexp, A, N> {  // the largest so far, and the sum of exp(x - largest)
    struct Acc {
        A largest, sum;
    };
    static WISP_INLINE Acc start() { return {A(-INFINITY), A(0)}; }
    static WISP_INLINE A scaled(A sum, A from, A to) { return from == to ? sum : sum * ::exp(from - to); }
    template <class In> static WISP_INLINE void add(Acc& acc, In element, int64_t, double) { acc = join(acc, {convert<A>(element), A(1)}); }
    static WISP_INLINE Acc join(Acc a, Acc b) {
        if (is_nan(a.largest)) return a;
        if (is_nan(b.largest)) return b;
        const A m = a.largest > b.largest ? a.largest : b.largest;
        if (m == A(-INFINITY)) return {m, A(0)};
        return {m, scaled(a.sum, a.largest, m) + scaled(b.sum, b.largest, m)};
    }
    template <class Out> static WISP_INLINE void write(const ReduceLaunch& p, int64_t at, Acc acc) {
        const A y =
            is_nan(acc.largest) || acc.largest == A(-INFINITY) || acc.largest == A(INFINITY) ? acc.largest : acc.largest + ::log(acc.sum);
        reinterpret_cast<Out*>(p.out)[at] = convert<Out>(y);
    }
};

WISP_INLINE int64_t offset_of(int64_t index, int dims, const Divider* sizes, const int64_t* strides) {
    if (dims == 1) return index * strides[0];
    int64_t offset = 0;
    uint32_t rest = uint32_t(index);
    for (int d = 0; d < dims; d++) {
        const uint32_t next = sizes[d].divide(rest);
        offset += int64_t(rest - next * sizes[d].divisor) * strides[d];
        rest = next;
    }
    return offset;
}

template <class R, class Out> WISP_INLINE void deliver(const ReduceLaunch& p, int64_t output, typename R::Acc acc) {
    if (p.partial) reinterpret_cast<typename R::Acc*>(p.partial)[blockIdx.y * p.outputs + output] = acc;
    else R::template write<Out>(p, output, acc);
}

// blockDim.x threads share the elements of one result, blockDim.y results a block. V > 1: the reduced elements of a
// result lie in runs whose lengths V divides.
template <int K, class A, int N, class In, class Out, int V> __global__ void __launch_bounds__(512) reduce_rows(const ReduceLaunch p) {
    begin_early();
    using R = Reducer<K, A, N>;
    using Acc = typename R::Acc;
    constexpr bool has_places = (K == k_max || K == k_min) && N == 0;
    extern __shared__ char shared[];
    Acc* accs = reinterpret_cast<Acc*>(shared) + threadIdx.y * blockDim.x;
    const int64_t output = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    Acc acc = R::start();
    if (output < p.outputs) {
        const In* in = reinterpret_cast<const In*>(p.in) + offset_of(output, p.kept, p.kept_sizes, p.kept_strides);
        const int64_t units = p.count / V, begin = units * blockIdx.y / p.splits, end = units * (blockIdx.y + 1) / p.splits;
        const bool line = V > 1 && p.folded == 1;
        auto unit = [&](int64_t j) {
            return line ? reinterpret_cast<const Vector<In, V>*>(in)[j]
                        : *reinterpret_cast<const Vector<In, V>*>(in + offset_of(j * V, p.folded, p.folded_sizes, p.folded_strides));
        };
        int64_t j = begin + threadIdx.x;
        for (; j + 3 * blockDim.x < end; j += 4 * blockDim.x) {  // four loads under way at a time
            Vector<In, V> x[4];
#pragma unroll
            for (int u = 0; u < 4; u++) x[u] = unit(j + u * blockDim.x);
            if constexpr (has_places) {
                R::add_all(acc, x, [&](int u) { return j + u * blockDim.x; });
            } else {
#pragma unroll
                for (int u = 0; u < 4; u++)
#pragma unroll
                    for (int i = 0; i < V; i++) R::add(acc, x[u].at[i], (j + u * blockDim.x) * V + i, p.parameter);
            }
        }
        for (; j < end; j += blockDim.x) {
            const auto x = unit(j);
#pragma unroll
            for (int i = 0; i < V; i++) R::add(acc, x.at[i], j * V + i, p.parameter);
        }
    }
    if constexpr (has_places)
        if (blockDim.x >= 32) {
            acc = R::join_warp(acc);
            if (threadIdx.x % 32 == 0) accs[threadIdx.x / 32] = acc;
            __syncthreads();
            if (threadIdx.x > 0 || output >= p.outputs) return;
            for (unsigned w = 1; w < blockDim.x / 32; w++) acc = R::join(acc, accs[w]);
            return deliver<R, Out>(p, output, acc);
        }
    accs[threadIdx.x] = acc;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) accs[threadIdx.x] = acc = R::join(acc, accs[threadIdx.x + half]);
    }
    if (threadIdx.x == 0 && output < p.outputs) deliver<R, Out>(p, output, acc);
}

// 32 threads along the results, V neighbours each, and 8 along the reduced elements.
template <int K, class A, int N, class In, class Out, int V> __global__ void __launch_bounds__(256) reduce_columns(const ReduceLaunch p) {
    using R = Reducer<K, A, N>;
    using Acc = typename R::Acc;
    extern __shared__ char shared[];
    auto* accs = reinterpret_cast<Acc*>(shared);  // [8][32 * V]
    const int64_t output = (int64_t(blockIdx.x) * 32 + threadIdx.x) * V;
    Acc acc[V];
#pragma unroll
    for (int i = 0; i < V; i++) acc[i] = R::start();
    if (output < p.outputs) {
        const In* in = reinterpret_cast<const In*>(p.in) + offset_of(output, p.kept, p.kept_sizes, p.kept_strides);
        const int64_t begin = p.count * blockIdx.y / p.splits, end = p.count * (blockIdx.y + 1) / p.splits;
        int64_t j = begin + threadIdx.y;
        for (; j + 3 * 8 < end; j += 4 * 8) {
            Vector<In, V> x[4];
#pragma unroll
            for (int u = 0; u < 4; u++)
                x[u] = *reinterpret_cast<const Vector<In, V>*>(in + offset_of(j + u * 8, p.folded, p.folded_sizes, p.folded_strides));
#pragma unroll
            for (int u = 0; u < 4; u++)
#pragma unroll
                for (int i = 0; i < V; i++) R::add(acc[i], x[u].at[i], j + u * 8, p.parameter);
        }
        for (; j < end; j += 8) {
            const auto x = *reinterpret_cast<const Vector<In, V>*>(in + offset_of(j, p.folded, p.folded_sizes, p.folded_strides));
#pragma unroll
            for (int i = 0; i < V; i++) R::add(acc[i], x.at[i], j, p.parameter);
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++) accs[threadIdx.y * (32 * V) + threadIdx.x * V + i] = acc[i];
    __syncthreads();
    for (int c = threadIdx.y * 32 + threadIdx.x; c < 32 * V; c += 256) {
        Acc total = accs[c];
        for (int y = 1; y < 8; y++) total = R::join(total, accs[y * (32 * V) + c]);
        const int64_t at = int64_t(blockIdx.x) * 32 * V + c;
        if (at < p.outputs) deliver<R, Out>(p, at, total);
    }
}

// Joins the partial results of the splits.
template <int K, class A, int N, class Out> __global__ void __launch_bounds__(256) reduce_join(const ReduceLaunch p, const char* partial) {
    begin_early();
    using R = Reducer<K, A, N>;
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= p.outputs) return;
    const auto* accs = reinterpret_cast<const typename R::Acc*>(partial);
    auto acc = accs[at];
    for (int64_t s = 1; s < p.splits; s++) acc = R::join(acc, accs[s * p.outputs + at]);
    R::template write<Out>(p, at, acc);
}

// The same with a block a result: where there are few results and many splits.
template <int K, class A, int N, class Out> __global__ void __launch_bounds__(256)
    reduce_join_few(const ReduceLaunch p, const char* partial) {
    using R = Reducer<K, A, N>;
    using Acc = typename R::Acc;
    __shared__ __align__(16) char memory[256 * sizeof(Acc)];
    Acc* joined = reinterpret_cast<Acc*>(memory);
    const auto* accs = reinterpret_cast<const Acc*>(partial);
    const int64_t at = blockIdx.x;
    Acc acc = R::start();
    for (int64_t s = threadIdx.x; s < p.splits; s += 256) acc = R::join(acc, accs[s * p.outputs + at]);
    joined[threadIdx.x] = acc;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) joined[threadIdx.x] = acc = R::join(acc, joined[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) R::template write<Out>(p, at, acc);
}

}  // namespace wisp
