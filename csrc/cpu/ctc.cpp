// Connectionist temporal classification: a sample after the other, threads share the batch. The states of a step are a few vectors.
#include "kernels/ctc.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/math.h"

namespace wisp::cpu::WISP_ISA {
namespace {

// Of what is at most 0: the others of three that are added lie below the largest.
WISP_INLINE float exp_of(float x) { return exp_nonpositive(x); }
WISP_INLINE double exp_of(double x) { return exp(x); }
template <class T> WISP_INLINE T log_of(T x) { return log(x); }
template <class T> constexpr T negative_infinity() { return -T(infinity_f); }
#include "kernels/ctc_rules.h"

template <class F> void with_type(DType d, F f) {
    if (d == DType::f32) f(float());
    else f(double());
}

// What a thread works in: for each state of its sample two rows of numbers, with room for the neighbours of the first and the last
// that are not there, its class, and whether it is reached past the one between.
template <class T> struct Room {
    using Flag = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
    T *now, *other, *probability;
    int64_t* label;
    Flag* skips;
    T* sums;
    explicit Room(const CtcShape& s) {
        const int64_t n = s.states() + 4;
        now = static_cast<T*>(scratch(0, size_t(3 * n + s.classes) * sizeof(T)));
        other = now + n, probability = other + n, sums = probability + n;
        label = static_cast<int64_t*>(scratch(1, size_t(2 * n) * sizeof(int64_t)));
        skips = reinterpret_cast<Flag*>(label + n);
        now += 2, other += 2;
    }
    void begin(const CtcSample& sample, int64_t states) {
        for (int64_t i = 0; i < states; i++) label[i] = sample.label(i), skips[i] = sample.skips(i);
        skips[states] = skips[states + 1] = 0;
        end_row(now, states);
        end_row(other, states);
    }
    static void end_row(T* row, int64_t states) { row[-2] = row[-1] = row[states] = row[states + 1] = negative_infinity<T>(); }
    void swap() {
        T* last = other;
        other = now, now = last;
    }
    void look_up(const T* p, int64_t states) {
        for (int64_t i = 0; i < states; i++) probability[i] = p[label[i]];
    }
};

template <class T> void forward_as(const CtcShape& s, const CtcTargets& t, const T* log_probs, T* alpha, T* losses) {
    constexpr T none = negative_infinity<T>();
    parallel_for(s.batch, 1, [&](int64_t begin, int64_t end) {
        Room<T> room(s);
        for (int64_t b = begin; b < end; b++) {
            const CtcSample sample{t.labels + t.starts[b], t.target_lengths[b], s.classes, s.blank};
            const int64_t states = 2 * sample.length + 1, steps = t.input_lengths[b];
            room.begin(sample, states);
            for (int64_t step = 0; step < steps; step++) {
                room.look_up(log_probs + (step * s.batch + b) * s.classes, states);
                room.swap();
                const auto* skips = room.skips;
                const T *last = room.other, *p = room.probability;
                T *now = room.now, *out = alpha + (b * s.steps + step) * s.states();
                if (step == 0) {
                    for (int64_t i = 0; i < states; i++) now[i] = out[i] = (i < 2 ? T(0) : none) + p[i];
                    continue;
                }
#pragma GCC ivdep
                for (int64_t i = 0; i < states; i++) now[i] = out[i] = add_logs(last[i], last[i - 1], skips[i] ? last[i - 2] : none) + p[i];
            }
            T total = sample.length == 0 ? T(0) : none;  // of no step at all
            if (steps > 0) total = add_logs(room.now[states - 1], room.now[states - 2], none);
            losses[b] = -total;
        }
    });
}

template <class T> void backward_as(const CtcShape& s, const CtcTargets& t, const T* log_probs, const T* alpha, const T* losses,
                                    const T* grad, bool zero_infinity, T* log_probs_grad) {
    constexpr T none = negative_infinity<T>();
    parallel_for(s.batch, 1, [&](int64_t begin, int64_t end) {
        Room<T> room(s);
        for (int64_t b = begin; b < end; b++) {
            const CtcSample sample{t.labels + t.starts[b], t.target_lengths[b], s.classes, s.blank};
            const int64_t states = 2 * sample.length + 1, steps = t.input_lengths[b];
            const T loss = losses[b], g = grad[b];
            const bool nothing = zero_infinity && loss == -none;
            room.begin(sample, states);
            T* sums = room.sums;
            for (int64_t step = s.steps - 1; step >= 0; step--) {
                const int64_t row = (step * s.batch + b) * s.classes;
                const T* probability = log_probs + row;
                T* out = log_probs_grad + row;
                if (nothing || step >= steps) {
                    for (int64_t c = 0; c < s.classes; c++) out[c] = 0;
                    continue;
                }
                room.look_up(probability, states);
                room.swap();
                const auto* skips = room.skips;
                const T *next = room.other, *p = room.probability, *here = alpha + (b * s.steps + step) * s.states();
                T* now = room.now;
                if (step + 1 == steps) {
                    for (int64_t i = 0; i < states; i++) now[i] = (i >= states - 2 ? T(0) : none) + p[i];
                } else {
#pragma GCC ivdep
                    for (int64_t i = 0; i < states; i++) now[i] = add_logs(next[i], next[i + 1], skips[i + 2] ? next[i + 2] : none) + p[i];
                }
                // How likely each state is, given the target; the row of probabilities is not needed again.
                T* likely = room.probability;
                for (int64_t i = 0; i < states; i++) likely[i] = exp(here[i] + now[i] + loss - p[i]);
                for (int64_t c = 0; c < s.classes; c++) sums[c] = loss - loss;  // NaN of an infinite loss, as in PyTorch
                for (int64_t i = 0; i < states; i++) sums[room.label[i]] += likely[i];
                for (int64_t c = 0; c < s.classes; c++) {
                    const T of_target = probability[c] == none ? none - none : sums[c];
                    out[c] = (exp(probability[c]) - of_target) * g;
                }
            }
        }
    });
}

void forward(DType d, const CtcShape& s, const CtcTargets& t, const void* log_probs, void* alpha, void* losses) {
    with_type(d, [&](auto like) {
        using T = decltype(like);
        forward_as(s, t, static_cast<const T*>(log_probs), static_cast<T*>(alpha), static_cast<T*>(losses));
    });
}
void backward(DType d, const CtcShape& s, const CtcTargets& t, const void* log_probs, const void* alpha, const void* losses,
              const void* grad, bool zero_infinity, void* log_probs_grad) {
    with_type(d, [&](auto like) {
        using T = decltype(like);
        backward_as(s, t, static_cast<const T*>(log_probs), static_cast<const T*>(alpha), static_cast<const T*>(losses),
                    static_cast<const T*>(grad), zero_infinity, static_cast<T*>(log_probs_grad));
    });
}

}  // namespace

extern const CtcKernels ctc_table = {&forward, &backward};

}  // namespace wisp::cpu::WISP_ISA
