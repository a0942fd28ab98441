// Connectionist temporal classification: a block a sample, its threads share the states and go through the steps together.
#include "cuda/kernels/base.cuh"
#include "kernels/ctc.h"

namespace wisp {

WISP_INLINE float exp_of(float x) { return ::expf(x); }
WISP_INLINE double exp_of(double x) { return ::exp(x); }
WISP_INLINE float log_of(float x) { return ::logf(x); }
WISP_INLINE double log_of(double x) { return ::log(x); }
template <class T> WISP_INLINE T negative_infinity() { return T(-INFINITY); }
#include "kernels/ctc_rules.h"

WISP_INLINE CtcSample ctc_sample(const CtcShape& s, const CtcTargets& t, int64_t b) {
    return {t.labels + t.starts[b], t.target_lengths[b], s.classes, s.blank};
}

template <class T> __global__ void __launch_bounds__(1024)
    ctc_forward(const CtcShape s, const CtcTargets t, const T* log_probs, T* alpha, T* losses, unsigned long long name, Report* report) {
    const T none = negative_infinity<T>();
    const int64_t b = blockIdx.x, steps = t.input_lengths[b];
    const CtcSample sample = ctc_sample(s, t, b);
    const int64_t states = 2 * sample.length + 1, row = s.states();
    T* rows = alpha + b * s.steps * row;
    for (int64_t i = threadIdx.x; i < sample.length; i += blockDim.x)
        if (sample.labels[i] < 0 || sample.labels[i] >= s.classes) report_index(report, sample.labels[i], s.classes, name);
    for (int64_t step = 0; step < steps; step++) {
        const T* p = log_probs + (step * s.batch + b) * s.classes;
        T *now = rows + step * row, *last = now - row;
        for (int64_t i = threadIdx.x; i < states; i += blockDim.x) {
            T ways = i < 2 ? T(0) : none;
            if (step > 0) ways = add_logs(last[i], i > 0 ? last[i - 1] : none, sample.skips(i) ? last[i - 2] : none);
            now[i] = ways + p[sample.label(i)];
        }
        __syncthreads();
    }
    if (threadIdx.x > 0) return;
    T total = sample.length == 0 ? T(0) : none;
    if (steps > 0) {
        const T* last = rows + (steps - 1) * row;
        total = add_logs(last[states - 1], states > 1 ? last[states - 2] : none, none);
    }
    losses[b] = -total;
}

// both: the logarithm of the likelihood of all alignments through a state, laid out as alpha.
template <class T> __global__ void __launch_bounds__(1024)
    ctc_through(const CtcShape s, const CtcTargets t, const T* log_probs, const T* alpha, T* beta, T* both) {
    const T none = negative_infinity<T>();
    const int64_t b = blockIdx.x, steps = t.input_lengths[b];
    const CtcSample sample = ctc_sample(s, t, b);
    const int64_t states = 2 * sample.length + 1, row = s.states();
    T *now = beta + b * 2 * row, *next = now + row;
    for (int64_t step = steps - 1; step >= 0; step--) {
        const T* p = log_probs + (step * s.batch + b) * s.classes;
        const int64_t at = (b * s.steps + step) * row;
        for (int64_t i = threadIdx.x; i < states; i += blockDim.x) {
            T ways = i >= states - 2 ? T(0) : none;
            if (step + 1 < steps)
                ways = add_logs(next[i], i + 1 < states ? next[i + 1] : none, i + 2 < states && sample.skips(i + 2) ? next[i + 2] : none);
            now[i] = ways + p[sample.label(i)];
            both[at + i] = alpha[at + i] + now[i];
        }
        __syncthreads();
        T* kept = now;
        now = next, next = kept;
    }
}

// A block a step of a sample. Of states with the same label the first one's thread adds up what comes of all; those of blanks are
// shared by the threads of a warp.
template <class T> __global__ void __launch_bounds__(128)
    ctc_gradient(const CtcShape s, const CtcTargets t, const T* log_probs, const T* both, const T* losses, const T* grad, int zero_infinity,
                 T* out) {
    const T none = negative_infinity<T>();
    const Split at = split(int64_t(blockIdx.x), s.batch);
    const int64_t step = at.whole, b = at.rest;
    const CtcSample sample = ctc_sample(s, t, b);
    const T loss = losses[b], g = grad[b];
    const T *p = log_probs + int64_t(blockIdx.x) * s.classes, *through = both + (b * s.steps + step) * s.states();
    out += int64_t(blockIdx.x) * s.classes;
    const bool nothing = step >= t.input_lengths[b] || (zero_infinity && loss == -none);
    // No alignment goes through other classes; of an infinite loss all that is not a number.
    for (int64_t c = threadIdx.x; c < s.classes; c += 128) out[c] = nothing ? T(0) : (exp_of(p[c]) - exp_of(none + loss - p[c])) * g;
    if (nothing) return;
    __syncthreads();
    auto put = [&](int64_t c, T sum) { out[c] = (exp_of(p[c]) - exp_of(sum + loss - p[c])) * g; };
    for (int64_t i = threadIdx.x; i < sample.length; i += 128) {
        const int64_t c = sample.label(2 * i + 1);
        bool first = c != s.blank;
        for (int64_t j = 0; j < i && first; j++) first = sample.label(2 * j + 1) != c;
        if (!first) continue;
        T sum = through[2 * i + 1];
        for (int64_t j = i + 1; j < sample.length; j++)
            if (sample.label(2 * j + 1) == c) sum = add_logs(sum, through[2 * j + 1], none);
        put(c, sum);
    }
    if (threadIdx.x >= 32) return;
    T sum = none;
    for (int64_t i = threadIdx.x; i < 2 * sample.length + 1; i += 32)
        if (sample.label(i) == s.blank) sum = add_logs(sum, through[i], none);
    for (int other = 16; other > 0; other /= 2) sum = add_logs(sum, __shfl_xor_sync(~0u, sum, other), none);
    if (threadIdx.x == 0) put(s.blank, sum);
}

}  // namespace wisp
