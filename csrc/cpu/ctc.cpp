// Connectionist temporal classification: a sample after the other, threads share the batch.
#include "kernels/ctc.h"

#include <cmath>
#include <limits>
#include <vector>

#include "../core/threads.h"

namespace wisp::cpu {
namespace {

#define WISP_INLINE inline
template <class T> T exp_of(T x) { return std::exp(x); }
template <class T> T log_of(T x) { return std::log(x); }
template <class T> constexpr T negative_infinity() { return -std::numeric_limits<T>::infinity(); }
#include "kernels/ctc_rules.h"
#undef WISP_INLINE

template <class F> void with_type(DType d, F f) {
    if (d == DType::f32) f(float());
    else f(double());
}

CtcSample sample_of(const CtcShape& s, const CtcTargets& t, int64_t b) {
    return {t.labels + t.starts[b], t.target_lengths[b], s.classes, s.blank};
}

void forward(DType d, const CtcShape& s, const CtcTargets& t, const void* log_probs, void* alpha, void* losses) {
    with_type(d, [&](auto like) {
        using T = decltype(like);
        constexpr T none = negative_infinity<T>();
        parallel_for(s.batch, 1, [&](int64_t begin, int64_t end) {
            for (int64_t b = begin; b < end; b++) {
                const CtcSample sample = sample_of(s, t, b);
                const int64_t states = 2 * sample.length + 1, steps = t.input_lengths[b];
                T* rows = static_cast<T*>(alpha) + b * s.steps * s.states();
                for (int64_t step = 0; step < steps; step++) {
                    const T* p = static_cast<const T*>(log_probs) + (step * s.batch + b) * s.classes;
                    T *now = rows + step * s.states(), *last = now - s.states();
                    for (int64_t i = 0; i < states; i++) {
                        T ways = i < 2 ? T(0) : none;
                        if (step > 0) ways = add_logs(last[i], i > 0 ? last[i - 1] : none, sample.skips(i) ? last[i - 2] : none);
                        now[i] = ways + p[sample.label(i)];
                    }
                }
                T total = sample.length == 0 ? T(0) : none;  // of no step at all
                if (steps > 0) {
                    const T* last = rows + (steps - 1) * s.states();
                    total = add_logs(last[states - 1], states > 1 ? last[states - 2] : none, none);
                }
                static_cast<T*>(losses)[b] = -total;
            }
        });
    });
}

void backward(DType d, const CtcShape& s, const CtcTargets& t, const void* log_probs, const void* alpha, const void* losses,
              const void* grad, bool zero_infinity, void* log_probs_grad) {
    with_type(d, [&](auto like) {
        using T = decltype(like);
        constexpr T none = negative_infinity<T>();
        parallel_for(s.batch, 1, [&](int64_t begin, int64_t end) {
            std::vector<T> beta(size_t(s.states())), next(size_t(s.states())), sums(size_t(s.classes));
            for (int64_t b = begin; b < end; b++) {
                const CtcSample sample = sample_of(s, t, b);
                const int64_t states = 2 * sample.length + 1, steps = t.input_lengths[b];
                const T loss = static_cast<const T*>(losses)[b], g = static_cast<const T*>(grad)[b];
                const bool nothing = zero_infinity && loss == -none;
                for (int64_t step = s.steps - 1; step >= 0; step--) {
                    const int64_t row = (step * s.batch + b) * s.classes;
                    const T* p = static_cast<const T*>(log_probs) + row;
                    T* out = static_cast<T*>(log_probs_grad) + row;
                    if (nothing || step >= steps) {
                        for (int64_t c = 0; c < s.classes; c++) out[c] = 0;
                        continue;
                    }
                    const T* here = static_cast<const T*>(alpha) + (b * s.steps + step) * s.states();
                    for (int64_t c = 0; c < s.classes; c++) sums[size_t(c)] = none;
                    for (int64_t i = 0; i < states; i++) {
                        T ways = i >= states - 2 ? T(0) : none;
                        if (step + 1 < steps)
                            ways = add_logs(next[size_t(i)], i + 1 < states ? next[size_t(i + 1)] : none,
                                            i + 2 < states && sample.skips(i + 2) ? next[size_t(i + 2)] : none);
                        const int64_t c = sample.label(i);
                        beta[size_t(i)] = ways + p[c];
                        sums[size_t(c)] = add_logs(sums[size_t(c)], here[i] + beta[size_t(i)], none);
                    }
                    for (int64_t c = 0; c < s.classes; c++) out[c] = (std::exp(p[c]) - std::exp(sums[size_t(c)] + loss - p[c])) * g;
                    std::swap(beta, next);
                }
            }
        });
    });
}

constexpr CtcKernels table = {&forward, &backward};

}  // namespace

const CtcKernels& ctc = table;

}  // namespace wisp::cpu
