// Cross entropy and negative log likelihood with class indices: a block a sample where samples are rows, a thread a sample
// otherwise. A target out of range is reported and counts nothing.
#include "cuda/kernels/rows.cuh"

namespace wisp {

struct Report {
    unsigned long long flag;
    long long value, size;
    unsigned long long name;
};

struct LossArguments {
    int64_t outer, classes, inner, ignore_index;
    double smoothing;
    unsigned long long name;
    Report* report;
};

WISP_INLINE bool counts(const LossArguments& p, int64_t target) {
    if (target == p.ignore_index) return false;
    if (target >= 0 && target < p.classes) return true;
    if (atomicCAS(&p.report->flag, 0ULL, 1ULL) == 0) {
        p.report->value = target;
        p.report->size = p.classes;
        p.report->name = p.name;
        __threadfence_system();
    }
    return false;
}

template <class T, bool Entropy> WISP_INLINE void finish_sample(const LossArguments& p, const T* x, const T* weight, int64_t step, int64_t target, compute<T> lse,
                                                               compute<T> smooth, compute<T>* loss, compute<T>* kept, compute<T>* share, int64_t sample) {
    using C = compute<T>;
    const bool there = counts(p, target);
    const C w = there ? (weight ? convert<C>(weight[target]) : C(1)) : C(0);
    C y = 0;
    if (there) {
        y = w * (Entropy ? lse - convert<C>(x[target * step]) : -convert<C>(x[target * step]));
        if (Entropy && p.smoothing != 0) y = C(1 - p.smoothing) * y + C(p.smoothing / double(p.classes)) * smooth;
    }
    loss[sample] = y;
    share[sample] = w;
    if (kept) kept[sample] = lse;
}

template <class T, bool Entropy> __global__ void __launch_bounds__(1024)
loss_rows(const LossArguments p, const T* x, const int64_t* target, const T* weight, compute<T>* loss, compute<T>* kept, compute<T>* share) {
    using C = compute<T>;
    __shared__ C reduced[34];
    const int64_t r = blockIdx.x, n = p.classes;
    x += r * n;
    C lse = 0, smooth = 0;
    if (Entropy) {
        C largest = -INFINITY, sum = 0;
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) largest = Max::join(largest, convert<C>(x[i]));
        largest = over_block<Max>(largest, reduced);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += ::exp(convert<C>(x[i]) - largest);
        sum = over_block<Add>(sum, reduced);
        lse = largest + ::log(sum);
        if (p.smoothing != 0) {
            for (int64_t i = threadIdx.x; i < n; i += blockDim.x) smooth += (weight ? convert<C>(weight[i]) : C(1)) * (lse - convert<C>(x[i]));
            smooth = over_block<Add>(smooth, reduced);
        }
    }
    if (threadIdx.x == 0) finish_sample<T, Entropy>(p, x, weight, 1, target[r], lse, smooth, loss, kept, share, r);
}

template <class T, bool Entropy> __global__ void __launch_bounds__(256)
loss_columns(const LossArguments p, const T* x, const int64_t* target, const T* weight, compute<T>* loss, compute<T>* kept, compute<T>* share) {
    using C = compute<T>;
    const int64_t sample = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (sample >= p.outer * p.inner) return;
    x += sample / p.inner * p.classes * p.inner + sample % p.inner;
    C lse = 0, smooth = 0;
    if (Entropy) {
        C largest = -INFINITY, sum = 0;
        for (int64_t i = 0; i < p.classes; i++) largest = Max::join(largest, convert<C>(x[i * p.inner]));
        for (int64_t i = 0; i < p.classes; i++) sum += ::exp(convert<C>(x[i * p.inner]) - largest);
        lse = largest + ::log(sum);
        if (p.smoothing != 0)
            for (int64_t i = 0; i < p.classes; i++) smooth += (weight ? convert<C>(weight[i]) : C(1)) * (lse - convert<C>(x[i * p.inner]));
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

// dx of sample s: g (one for all, or one each) over *total (where given) times the derivative of its loss.
template <class T, bool Entropy> __global__ void __launch_bounds__(256)
loss_backward(const LossArguments p, const T* x, const int64_t* target, const T* weight, const compute<T>* lse, const compute<T>* g, int one, const compute<T>* total,
              const compute<T>* all_weights, T* dx) {
    using C = compute<T>;
    const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (i >= p.outer * p.classes * p.inner) return;
    const int64_t k = i % p.inner, c = i / p.inner % p.classes, o = i / (p.inner * p.classes), sample = o * p.inner + k, t = target[sample];
    C d = 0;
    if (t != p.ignore_index && t >= 0 && t < p.classes) {
        const C w = weight ? convert<C>(weight[t]) : C(1);
        if (Entropy) {
            const C probability = ::exp(convert<C>(x[i]) - lse[sample]);
            d = w * (probability - (c == t ? C(1) : C(0)));
            if (p.smoothing != 0) {
                const C all = weight ? *all_weights : C(p.classes);
                d = C(1 - p.smoothing) * d + C(p.smoothing / double(p.classes)) * (all * probability - (weight ? convert<C>(weight[c]) : C(1)));
            }
        } else {
            d = c == t ? -w : C(0);
        }
        d *= g[one ? 0 : sample];
        if (total) d /= *total;
    }
    dx[i] = convert<T>(d);
}

}  // namespace wisp
