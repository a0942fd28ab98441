// Cross entropy in one pass over the logits: nothing the size of the logits is kept but the logits themselves.
#include "kernels/loss.h"

#include "core/threads.h"
#include "cpu/vector.h"

#include <type_traits>

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t elements_per_task = 8192;
constexpr int64_t few_classes = 32;

// The first target outside [0, classes), and the sum of the weights of the others.
template <class T> int64_t check_targets(const LossArgs& a, double* total_weight) {
    using C = Compute<T>;
    const T* weight = (const T*)a.weight;
    double total = 0;
    for (int64_t i = 0; i < a.outer * a.inner; i++) {
        const int64_t target = a.target[i];
        if (target == a.ignore_index) continue;
        if (target < 0 || target >= a.classes) return i;
        total += weight ? double(C(weight[target])) : 1.0;
    }
    *total_weight = total;
    return -1;
}

template <class T> double weight_sum(const LossArgs& a) {
    if (!a.weight) return double(a.classes);
    double total = 0;
    for (int64_t c = 0; c < a.classes; c++) total += double(Compute<T>(((const T*)a.weight)[c]));
    return total;
}

template <class T> WISP_INLINE Compute<T> row_max(const T* x, int64_t n) {
    using C = Compute<T>;
    Vector<C> top = splat(C(-infinity_f));
    each_vector<C>(n, [&](int64_t i, auto vector) { top = maximum(vector.load(x + i, C(-infinity_f)), top); });
    return max_lanes(top);
}

// The logarithm of a sum of exponentials, less one of the logits: by way of the largest, so that no digit of the difference is lost.
template <class V> struct LogSumExp {
    V top, log;
    V less(V x) const { return (top - x) + log; }
};

// One sample whose logits lie next to each other. smooth: also the sum of weight * x, for label smoothing.
template <class T> WISP_INLINE LogSumExp<Compute<T>> logsumexp_row(const T* x, const T* weight, int64_t n, bool smooth, double& weighted) {
    using C = Compute<T>;
    const C top = row_max(x, n);
    // With all logits -inf, top - top is NaN and so is the result, as in PyTorch.
    double totals[2];
    if (smooth) {
        sum_along<C>(n, totals, [&](int64_t i, auto vector, Vector<C>* out) {
            const Vector<C> v = vector.load(x + i);
            out[0] = exp_nonpositive(v - top);
            out[1] = weight ? v * vector.load(weight + i) : v;
        });
        weighted = totals[1];
    } else {
        double total[1];
        sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) { out[0] = exp_nonpositive(vector.load(x + i) - top); });
        totals[0] = total[0];
    }
    return {top, C(log(totals[0]))};
}

// The same for up to one vector of samples whose logits lie `stride` apart.
template <class T> WISP_INLINE LogSumExp<Vector<Compute<T>>> logsumexp_columns(const T* x, const T* weight, int64_t n, int64_t stride,
                                                                               int64_t width, bool smooth, Vector<Compute<T>>& weighted) {
    using C = Compute<T>;
    auto get = [&](int64_t c) { return width == lanes<C> ? load(x + c * stride) : load_partial(x + c * stride, width, C(0)); };
    Vector<C> top = splat(C(-infinity_f)), sum = {};
    for (int64_t c = 0; c < n; c++) top = maximum(get(c), top);
    for (int64_t c = 0; c < n; c++) {
        const Vector<C> v = get(c);
        sum += exp_nonpositive(v - top);
        if (smooth) weighted += weight ? v * C(weight[c]) : v;
    }
    alignas(64) C logs[lanes<C>];
    std::memcpy(logs, &sum, sizeof sum);
    for (int64_t j = 0; j < lanes<C>; j++) logs[j] = log(logs[j]);
    std::memcpy(&sum, logs, sizeof sum);
    return {top, sum};
}

// `sample` is the index into target; x_target its logit.
template <class T> WISP_INLINE Compute<T> sample_loss(const LossArgs& a, int64_t sample, Compute<T> x_target, LogSumExp<Compute<T>> lse,
                                                      double weighted, double weights) {
    using C = Compute<T>;
    const int64_t target = a.target[sample];
    if (target == a.ignore_index) return 0;
    const double w = a.weight ? double(C(((const T*)a.weight)[target])) : 1.0;
    const LogSumExp<double> sum{double(lse.top), double(lse.log)};
    const double plain = w * sum.less(double(x_target));
    if (a.label_smoothing == 0) return C(plain);
    const double smooth = ((sum.top + sum.log) * weights - weighted) / double(a.classes);
    return C((1 - a.label_smoothing) * plain + a.label_smoothing * smooth);
}

template <class T> int64_t cross_entropy_as(const LossArgs& a, Compute<T>* losses, LogSumExp<Compute<T>>* logsumexp, double* total_weight) {
    using C = Compute<T>;
    const int64_t bad = check_targets<T>(a, total_weight);
    if (bad >= 0) return bad;
    const T *x = (const T*)a.input, *weight = (const T*)a.weight;
    const bool smooth = a.label_smoothing != 0;
    const double weights = smooth ? weight_sum<T>(a) : 0;
    if (a.inner == 1 && a.classes <= few_classes && !smooth) {
        // A vector of samples side by side: rows this short would be all horizontal sums.
        constexpr int64_t step = lanes<C>;
        const int64_t n = a.classes;
        parallel_for((a.outer + step - 1) / step, 1 + elements_per_task / (n * step + 1), [&](int64_t begin, int64_t end) {
            alignas(64) C turned[few_classes * step] = {};
            for (int64_t block = begin; block < end; block++) {
                const int64_t first = block * step, width = a.outer - first < step ? a.outer - first : step;
                for (int64_t j = 0; j < width; j++)
                    for (int64_t c = 0; c < n; c++) turned[c * step + j] = C(x[(first + j) * n + c]);
                Vector<C> none = {};
                const LogSumExp<Vector<C>> lse = logsumexp_columns<C>(turned, nullptr, n, step, step, false, none);
                for (int64_t j = 0; j < width; j++) {
                    const int64_t target = a.target[first + j];
                    const C picked = target == a.ignore_index ? C(0) : turned[target * step + j];
                    const LogSumExp<C> own{lse.top[j], lse.log[j]};
                    if (logsumexp) logsumexp[first + j] = own;
                    losses[first + j] = sample_loss<T>(a, first + j, picked, own, 0, 0);
                }
            }
        });
        return -1;
    }
    if (a.inner == 1) {
        parallel_for(a.outer, 1 + elements_per_task / (a.classes + 1), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                const T* row = x + i * a.classes;
                double weighted = 0;
                const LogSumExp<C> lse = logsumexp_row(row, weight, a.classes, smooth, weighted);
                if (logsumexp) logsumexp[i] = lse;
                const int64_t target = a.target[i];
                const C picked = target == a.ignore_index ? C(0) : C(row[target]);
                losses[i] = sample_loss<T>(a, i, picked, lse, weighted, weights);
            }
        });
        return -1;
    }
    constexpr int64_t step = lanes<C>;
    const int64_t blocks = (a.inner + step - 1) / step;
    parallel_for(a.outer * blocks, 1 + elements_per_task / (a.classes * step + 1), [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; block++) {
            const int64_t column = block % blocks * step, left = a.inner - column, width = left < step ? left : step;
            const T* at = x + block / blocks * a.classes * a.inner + column;
            Vector<C> weighted = {};
            const LogSumExp<Vector<C>> lse = logsumexp_columns(at, weight, a.classes, a.inner, width, smooth, weighted);
            for (int64_t j = 0; j < width; j++) {
                const int64_t sample = block / blocks * a.inner + column + j, target = a.target[sample];
                const C picked = target == a.ignore_index ? C(0) : C(at[target * a.inner + j]);
                const LogSumExp<C> own{lse.top[j], lse.log[j]};
                if (logsumexp) logsumexp[sample] = own;
                losses[sample] = sample_loss<T>(a, sample, picked, own, double(weighted[j]), weights);
            }
        }
    });
    return -1;
}

template <class T> void cross_entropy_backward_as(const LossArgs& a, const LogSumExp<Compute<T>>* logsumexp, const Compute<T>* grad,
                                                  bool one_grad, double factor, T* dx) {
    using C = Compute<T>;
    const T *x = (const T*)a.input, *weight = (const T*)a.weight;
    const double smoothing = a.label_smoothing, weights = smoothing != 0 ? weight_sum<T>(a) : 0;
    // d loss / dx[c] = p[c] * of_softmax - smoothing / classes * weight[c], less of_target at the target.
    auto factors = [&](int64_t sample, C& of_softmax, C& of_target, C& of_weight) {
        const int64_t target = a.target[sample];
        of_softmax = of_target = of_weight = 0;
        if (target == a.ignore_index) return;
        const double g = double(grad[one_grad ? 0 : sample]) * factor;
        const double w = weight ? double(C(weight[target])) : 1.0;
        of_target = C(g * w * (1 - smoothing));
        of_weight = C(g * smoothing / double(a.classes));
        of_softmax = C(g * (w * (1 - smoothing) + smoothing / double(a.classes) * weights));
    };
    if (a.inner == 1) {
        parallel_for(a.outer, 1 + elements_per_task / (a.classes + 1), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                const T* row = x + i * a.classes;
                T* out = dx + i * a.classes;
                if (a.target[i] == a.ignore_index) {
                    std::memset(out, 0, size_t(a.classes) * sizeof(T));
                    continue;
                }
                C of_softmax, of_target, of_weight;
                factors(i, of_softmax, of_target, of_weight);
                const LogSumExp<C> lse = logsumexp[i];
                const LogSumExp<Vector<C>> each{splat(lse.top), splat(lse.log)};
                each_vector<C>(a.classes, [&](int64_t c, auto vector) {
                    Vector<C> v = exp_nonpositive(-each.less(vector.load(row + c))) * of_softmax;
                    if (of_weight != 0) v -= weight ? vector.load(weight + c) * of_weight : splat(of_weight);
                    vector.store(out + c, v);
                });
                const int64_t t = a.target[i];
                if constexpr (std::is_same_v<T, C>) {
                    out[t] -= of_target;
                    continue;
                }
                // Again in C, so that a half type is rounded once.
                C v = exp(-lse.less(C(row[t]))) * of_softmax - of_target;
                if (of_weight != 0) v -= weight ? C(weight[t]) * of_weight : of_weight;
                out[t] = T(v);
            }
        });
        return;
    }
    constexpr int64_t step = lanes<C>;
    const int64_t blocks = (a.inner + step - 1) / step;
    parallel_for(a.outer * blocks, 1 + elements_per_task / (a.classes * step + 1), [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; block++) {
            const int64_t column = block % blocks * step, left = a.inner - column, width = left < step ? left : step;
            const int64_t at = block / blocks * a.classes * a.inner + column, first = block / blocks * a.inner + column;
            Vector<C> of_softmax = {}, of_weight = {};
            LogSumExp<Vector<C>> lse = {};
            C of_target[step];
            for (int64_t j = 0; j < width; j++) {
                C s, w;
                factors(first + j, s, of_target[j], w);
                of_softmax[j] = s;
                of_weight[j] = w;
                lse.top[j] = logsumexp[first + j].top;
                lse.log[j] = logsumexp[first + j].log;
            }
            const bool whole = width == step;
            for (int64_t c = 0; c < a.classes; c++) {
                const T* p = x + at + c * a.inner;
                const Vector<C> logits = whole ? load(p) : load_partial(p, width, C(0));
                Vector<C> v = exp_nonpositive(-lse.less(logits)) * of_softmax;
                const auto unless = [](auto x, auto zero) __attribute__((always_inline)) { return zero == 0 ? decltype(x){} : x; };
                v = by_register(unless, v, of_softmax);  // an ignored sample may hold NaN
                v -= weight ? of_weight * C(weight[c]) : of_weight;
                for (int64_t j = 0; j < width; j++)
                    if (a.target[first + j] == c && c != a.ignore_index) v[j] -= of_target[j];
                if (whole) store(dx + at + c * a.inner, v);
                else store_partial(dx + at + c * a.inner, v, width);
            }
        }
    });
}

template <class T> int64_t nll_as(const LossArgs& a, Compute<T>* losses, double* total_weight) {
    using C = Compute<T>;
    const int64_t bad = check_targets<T>(a, total_weight);
    if (bad >= 0) return bad;
    const T *x = (const T*)a.input, *weight = (const T*)a.weight;
    for (int64_t i = 0; i < a.outer * a.inner; i++) {
        const int64_t target = a.target[i];
        losses[i] = 0;
        if (target == a.ignore_index) continue;
        const C v = C(x[(i / a.inner * a.classes + target) * a.inner + i % a.inner]);
        losses[i] = weight ? -v * C(weight[target]) : -v;
    }
    return -1;
}

template <class T> void nll_backward_as(const LossArgs& a, const Compute<T>* grad, bool one_grad, double factor, T* dx) {
    using C = Compute<T>;
    const T* weight = (const T*)a.weight;
    std::memset(dx, 0, size_t(a.outer * a.classes * a.inner) * sizeof(T));
    for (int64_t i = 0; i < a.outer * a.inner; i++) {
        const int64_t target = a.target[i];
        if (target == a.ignore_index) continue;
        const C g = C(-double(grad[one_grad ? 0 : i]) * factor);
        dx[(i / a.inner * a.classes + target) * a.inner + i % a.inner] = T(weight ? g * C(weight[target]) : g);
    }
}

int64_t forward(const LossArgs& a, void* losses, void* logsumexp, void* result, double* total) {
    int64_t bad = -1;
    with_floating(a.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        double weights;
        bad = a.entropy ? cross_entropy_as<T>(a, (C*)losses, (LogSumExp<C>*)logsumexp, &weights) : nll_as<T>(a, (C*)losses, &weights);
        if (total) *total = weights;
        if (!result || bad >= 0) return;
        double sum = 0;
        for (int64_t i = 0; i < a.outer * a.inner; i++) sum += double(((const C*)losses)[i]);
        *(C*)result = C(sum / (total ? weights : 1));
    });
    return bad;
}
void backward(const LossArgs& a, const void* logsumexp, const void* grad, bool one_grad, const double* total, void* grad_input) {
    const double factor = total ? 1 / *total : 1;
    with_floating(a.dtype, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        if (a.entropy) cross_entropy_backward_as<T>(a, (const LogSumExp<C>*)logsumexp, (const C*)grad, one_grad, factor, (T*)grad_input);
        else nll_backward_as<T>(a, (const C*)grad, one_grad, factor, (T*)grad_input);
    });
}

}  // namespace

extern const LossKernels loss_table = {&forward, &backward};

}  // namespace wisp::cpu::WISP_ISA
