// Cross entropy and negative log likelihood with class indices: a block a sample where samples are rows, a thread a sample
// otherwise. A target out of range is reported and counts nothing.
#include "cuda/kernels/rows.cuh"

namespace wisp {

struct LossArguments {
    int64_t outer, classes, inner, ignore_index;
    double smoothing;
    unsigned long long name;
    Report* report;
};

// The logarithm of a sum of exponentials, less one of the logits: by way of the largest, so that no digit of the difference is lost.
template <class C> struct LogSumExp {
    C top, log;
    WISP_INLINE C less(C x) const { return (top - x) + log; }
};

WISP_INLINE bool counts(const LossArguments& p, int64_t target) {
    if (target == p.ignore_index) return false;
    if (target >= 0 && target < p.classes) return true;
    report_index(p.report, target, p.classes, p.name);
    return false;
}

template <class T, bool Entropy>
WISP_INLINE void finish_sample(const LossArguments& p, const T* x, const T* weight, int64_t step, int64_t target, LogSumExp<compute<T>> lse,
                               compute<T> smooth, compute<T>* loss, LogSumExp<compute<T>>* kept, compute<T>* share, int64_t sample) {
    using C = compute<T>;
    const bool there = counts(p, target);
    const C w = there ? (weight ? convert<C>(weight[target]) : C(1)) : C(0);
    C y = 0;
    if (there) {
        y = w * (Entropy ? lse.less(convert<C>(x[target * step])) : -convert<C>(x[target * step]));
        if (Entropy && p.smoothing != 0) y = C(1 - p.smoothing) * y + C(p.smoothing / double(p.classes)) * smooth;
    }
    loss[sample] = y;
    share[sample] = w;
    if (kept) kept[sample] = lse;
}

// Elements of a row, shared out among `threads` of which this is `me`, in vectors of 16 bytes from the first aligned one on.
// f(values, where they begin, how many) is called for all that this thread has.
template <class T, class F> WISP_INLINE void each_of_row(const T* row, int64_t n, int me, int threads, F f) {
    constexpr int V = 16 / int(sizeof(T));
    const int64_t head = min(n, int64_t((16 - reinterpret_cast<uint64_t>(row) % 16) % 16 / sizeof(T))), vectors = (n - head) / V;
    if (me < head) f(row + me, int64_t(me), 1);
    const auto* all = reinterpret_cast<const Vector<T, V>*>(row + head);
    for (int64_t j = me; j < vectors; j += 2 * threads) {  // two are under way at a time
        const bool more = j + threads < vectors;
        const Vector<T, V> x = all[j], y = all[more ? j + threads : j];
        f(x.at, head + j * V, V);
        if (more) f(y.at, head + (j + threads) * V, V);
    }
    const int64_t tail = head + vectors * V + me;
    if (tail < n) f(row + tail, tail, 1);
}

// The logarithm of the sum of exponentials of a row, and the sum of weight * (lse - x) for smoothing; all threads get them.
template <class T, bool Warp> WISP_INLINE void row_statistics(const LossArguments& p, const T* x, const T* weight, compute<T>* shared,
                                                              LogSumExp<compute<T>>& lse, compute<T>& smooth) {
    using C = compute<T>;
    const int me = Warp ? threadIdx.x % 32 : threadIdx.x, threads = Warp ? 32 : blockDim.x;
    // One pass: each thread keeps the largest so far and a sum that is relative to it.
    C own = -INFINITY, sum = 0;
    each_of_row(x, p.classes, me, threads, [&](const T* v, int64_t, int count) {
        C next = own;
        for (int i = 0; i < count; i++) next = Max::join(next, convert<C>(v[i]));
        if (next == C(-INFINITY)) return;
        if (next != own) sum *= exponential<T>(own - next);
        own = next;
        for (int i = 0; i < count; i++) sum += exponential<T>(convert<C>(v[i]) - own);
    });
    const C largest = Warp ? over_warp<Max>(own) : over_block<Max>(own, shared);
    sum *= exponential<T>(own - largest);
    sum = Warp ? over_warp<Add>(sum) : over_block<Add>(sum, shared);
    lse = {largest, ::log(sum)};
    if (p.smoothing == 0) return;
    each_of_row(x, p.classes, me, threads, [&](const T* v, int64_t at, int count) {
        for (int i = 0; i < count; i++) smooth += (weight ? convert<C>(weight[at + i]) : C(1)) * lse.less(convert<C>(v[i]));
    });
    smooth = Warp ? over_warp<Add>(smooth) : over_block<Add>(smooth, shared);
}

template <class T, bool Entropy> __global__ void __launch_bounds__(1024)
    loss_rows(const LossArguments p, const T* x, const int64_t* target, const T* weight, compute<T>* loss, LogSumExp<compute<T>>* kept,
              compute<T>* share) {
    using C = compute<T>;
    __shared__ C reduced[32];
    const int64_t r = blockIdx.x;
    x += r * p.classes;
    LogSumExp<C> lse{};
    C smooth = 0;
    if (Entropy) row_statistics<T, false>(p, x, weight, reduced, lse, smooth);
    if (threadIdx.x == 0) finish_sample<T, Entropy>(p, x, weight, 1, target[r], lse, smooth, loss, kept, share, r);
}

// The sum of all losses, over the sum of all shares for a mean, by the threads of one block.
template <class T>
WISP_INLINE void reduce_losses(const compute<T>* loss, const compute<T>* share, compute<T>* result, double* total, int64_t samples) {
    using C = compute<T>;
    __shared__ C reduced[32];
    C sum = 0, shares = 0;
    for (int64_t i = threadIdx.x; i < samples; i += blockDim.x) {
        sum += loss[i];
        shares += share[i];
    }
    sum = over_block<Add>(sum, reduced);
    shares = over_block<Add>(shares, reduced);
    if (threadIdx.x != 0) return;
    *result = total ? sum / shares : sum;
    if (total) *total = shares;
}
template <class T> __global__ void __launch_bounds__(1024)
    loss_total(const compute<T>* loss, const compute<T>* share, compute<T>* result, double* total, int64_t samples) {
    reduce_losses<T>(loss, share, result, total, samples);
}

// All of it in one block of 32 warps: few samples of few classes, a warp or a thread a sample.
template <class T, bool Entropy> __global__ void __launch_bounds__(1024)
    loss_of_few(const LossArguments p, const T* x, const int64_t* target, const T* weight, compute<T>* loss, LogSumExp<compute<T>>* kept,
                compute<T>* share, compute<T>* result, double* total) {
    using C = compute<T>;
    if (p.classes <= 32) {  // a thread a sample
        for (int64_t r = threadIdx.x; r < p.outer; r += 1024) {
            const T* row = x + r * p.classes;
            const int n = int(p.classes);
            C largest = -INFINITY, sum = 0, smooth = 0;
            if (Entropy) {
#pragma unroll 8
                for (int i = 0; i < n; i++) largest = Max::join(largest, convert<C>(row[i]));
#pragma unroll 8
                for (int i = 0; i < n; i++) sum += ::exp(convert<C>(row[i]) - largest);
            }
            const LogSumExp<C> lse{largest, ::log(sum)};
            if (Entropy && p.smoothing != 0)
                for (int i = 0; i < n; i++) smooth += (weight ? convert<C>(weight[i]) : C(1)) * lse.less(convert<C>(row[i]));
            finish_sample<T, Entropy>(p, row, weight, 1, target[r], lse, smooth, loss, kept, share, r);
        }
        __syncthreads();
        reduce_losses<T>(loss, share, result, total, p.outer);
        return;
    }
    for (int64_t r = threadIdx.x / 32; r < p.outer; r += 32) {
        LogSumExp<C> lse{};
        C smooth = 0;
        if (Entropy) row_statistics<T, true>(p, x + r * p.classes, weight, nullptr, lse, smooth);
        if (threadIdx.x % 32 == 0) finish_sample<T, Entropy>(p, x + r * p.classes, weight, 1, target[r], lse, smooth, loss, kept, share, r);
    }
    __syncthreads();
    reduce_losses<T>(loss, share, result, total, p.outer);
}

template <class T, bool Entropy> __global__ void __launch_bounds__(256)
    loss_columns(const LossArguments p, const T* x, const int64_t* target, const T* weight, compute<T>* loss, LogSumExp<compute<T>>* kept,
                 compute<T>* share) {
    using C = compute<T>;
    const int64_t sample = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (sample >= p.outer * p.inner) return;
    x += sample / p.inner * p.classes * p.inner + sample % p.inner;
    LogSumExp<C> lse{};
    C smooth = 0;
    if (Entropy) {
        C largest = -INFINITY, sum = 0;
        for (int64_t i = 0; i < p.classes; i++) largest = Max::join(largest, convert<C>(x[i * p.inner]));
        for (int64_t i = 0; i < p.classes; i++) sum += ::exp(convert<C>(x[i * p.inner]) - largest);
        lse = {largest, ::log(sum)};
        if (p.smoothing != 0)
            for (int64_t i = 0; i < p.classes; i++)
                smooth += (weight ? convert<C>(weight[i]) : C(1)) * lse.less(convert<C>(x[i * p.inner]));
    }
    finish_sample<T, Entropy>(p, x, weight, p.inner, target[sample], lse, smooth, loss, kept, share, sample);
}

// The sum of all class weights, for smoothing.
template <class T> __global__ void weight_total(const T* weight, compute<T>* total, int64_t n) {
    using C = compute<T>;
    __shared__ C reduced[34];
    C sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += convert<C>(weight[i]);
    sum = over_block<Add>(sum, reduced);
    if (threadIdx.x == 0) *total = sum;
}

// The derivative of a sample's loss by its score of class c, without the factor that its gradient is.
template <class T, bool Entropy> WISP_INLINE compute<T> loss_derivative(const LossArguments& p, compute<T> x, int64_t c, int64_t target,
                                                                        const T* weight, compute<T> w, LogSumExp<compute<T>> lse,
                                                                        const compute<T>* all_weights) {
    using C = compute<T>;
    if (!Entropy) return c == target ? -w : C(0);
    const C probability = exponential<T>(-lse.less(x));
    C d = w * (probability - (c == target ? C(1) : C(0)));
    if (p.smoothing != 0) {
        const C all = weight ? *all_weights : C(p.classes);
        d = C(1 - p.smoothing) * d + C(p.smoothing / double(p.classes)) * (all * probability - (weight ? convert<C>(weight[c]) : C(1)));
    }
    return d;
}

// dx of a row: g (one for all, or one each) over *total (where given) times the derivative of its loss. x and dx are aligned alike; where
// dx is of another type, rows begin and end at multiples of a vector.
template <class T, bool Entropy, class D = T> __global__ void __launch_bounds__(1024)
    loss_rows_backward(const LossArguments p, const T* x, const int64_t* target, const T* weight, const LogSumExp<compute<T>>* lse,
                       const compute<T>* g, int one, const double* total, const compute<T>* all_weights, D* dx) {
    using C = compute<T>;
    constexpr int V = 16 / int(sizeof(T));
    const int64_t r = blockIdx.x, n = p.classes, t = target[r];
    x += r * n;
    dx += r * n;
    const bool there = t != p.ignore_index && t >= 0 && t < n;
    const C w = !there ? C(0) : weight ? convert<C>(weight[t]) : C(1);
    const LogSumExp<C> sum = Entropy ? lse[r] : LogSumExp<C>{};
    C factor = g[one ? 0 : r];
    if (total) factor /= compute<T>(*total);
    // The derivative (loss_derivative above) as a multiple of the probability, less `hit` for the target and `share` of each weight.
    const C all = weight && p.smoothing != 0 ? *all_weights : C(n), share = there ? factor * C(p.smoothing / double(n)) : C(0),
            hit = there ? factor * w * C(1 - p.smoothing) : C(0), scale = Entropy ? hit + share * all : C(0);
    auto gradient = [&](int64_t i, T v) {
        if (!there) return convert<D>(C(0));
        C d = i == t ? -hit : C(0);
        if (Entropy) d += scale * exponential<T>(-sum.less(convert<C>(v)));
        if (Entropy && p.smoothing != 0) d -= share * (weight ? convert<C>(weight[i]) : C(1));
        return convert<D>(d);
    };
    const bool plain = there && p.smoothing == 0;
    const int64_t head = min(n, int64_t((16 - reinterpret_cast<uint64_t>(x) % 16) % 16 / sizeof(T))), vectors = (n - head) / V,
                  tail = head + vectors * V + threadIdx.x;
    if (threadIdx.x < head) dx[threadIdx.x] = gradient(threadIdx.x, x[threadIdx.x]);
    auto store = [&](int64_t j, const Vector<T, V>& v) {
        const int64_t at = head + j * V;
        Vector<D, V> made;
        if (Entropy && plain && uint64_t(t - at) >= V) {  // what nearly all of them are
#pragma unroll
            for (int i = 0; i < V; i++) made.at[i] = convert<D>(scale * exponential<T>(-sum.less(convert<C>(v.at[i]))));
        } else {
#pragma unroll
            for (int i = 0; i < V; i++) made.at[i] = gradient(at + i, v.at[i]);
        }
        reinterpret_cast<Vector<D, V>*>(dx + head)[j] = made;
    };
    const auto* from = reinterpret_cast<const Vector<T, V>*>(x + head);
    for (int64_t j = threadIdx.x; j < vectors; j += 2 * blockDim.x) {  // two are under way at a time
        const bool more = j + blockDim.x < vectors;
        const Vector<T, V> v = from[j], next = from[more ? j + blockDim.x : j];
        store(j, v);
        if (more) store(j + blockDim.x, next);
    }
    if (tail < n) dx[tail] = gradient(tail, x[tail]);
}

// The same for any layout, an element a thread.
template <class T, bool Entropy> __global__ void __launch_bounds__(256)
    loss_backward(const LossArguments p, const T* x, const int64_t* target, const T* weight, const LogSumExp<compute<T>>* lse,
                  const compute<T>* g, int one, const double* total, const compute<T>* all_weights, T* dx) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= p.outer * p.classes * p.inner) return;
    const int64_t k = i % p.inner, c = i / p.inner % p.classes, o = i / (p.inner * p.classes), sample = o * p.inner + k, t = target[sample];
    C d = 0;
    if (t != p.ignore_index && t >= 0 && t < p.classes) {
        const C w = weight ? convert<C>(weight[t]) : C(1);
        d = loss_derivative<T, Entropy>(p, convert<C>(x[i]), c, t, weight, w, Entropy ? lse[sample] : LogSumExp<C>{}, all_weights) *
            g[one ? 0 : sample];
        if (total) d /= compute<T>(*total);
    }
    dx[i] = convert<T>(d);
}

}  // namespace wisp
