// Optimizer kernels: one loop body per rule, one walk over the elements of all tensors, cut evenly between threads.
#include "cpu/optimizer.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t elements_per_task = 16384;

// f(p, g, s0, s1, s2) on each element, with S of the states loaded before and stored after.
template <int S, class T, class F>
WISP_INLINE void update(const OptimizerTensor& t, int64_t begin, int64_t end, F f) {
    using C = Compute<T>;
    T* __restrict p = (T*)t.param;
    const T* __restrict g = (const T*)t.grad;
    T* __restrict s0 = (T*)t.state[0];
    T* __restrict s1 = (T*)t.state[1];
    T* __restrict s2 = (T*)t.state[2];
    for (int64_t i = begin; i < end; i++) {
        C value = C(p[i]), a = 0, b = 0, c = 0;
        if constexpr (S > 0) a = C(s0[i]);
        if constexpr (S > 1) b = C(s1[i]);
        if constexpr (S > 2) c = C(s2[i]);
        f(value, C(g[i]), a, b, c);
        p[i] = T(value);
        if constexpr (S > 0) s0[i] = T(a);
        if constexpr (S > 1) s1[i] = T(b);
        if constexpr (S > 2) s2[i] = T(c);
    }
}

// Calls body with the gradient's sign and the coupled weight decay applied, as a compile-time choice of two: plain
// gradients, the usual case, cost nothing.
template <int S, class T, class F>
WISP_INLINE void update_decayed(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end, F f) {
    using C = Compute<T>;
    const C sign = s.maximize ? C(-1) : C(1), decay = s.decoupled ? C(0) : C(s.weight_decay);
    if (sign == C(1) && decay == C(0)) {
        update<S, T>(t, begin, end, f);
    } else if (decay == C(0)) {
        update<S, T>(t, begin, end, [&](C& p, C g, C& a, C& b, C& c) { f(p, -g, a, b, c); });
    } else {
        update<S, T>(t, begin, end, [&](C& p, C g, C& a, C& b, C& c) { f(p, sign * g + decay * p, a, b, c); });
    }
}

template <class T> void sgd(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C lr = C(s.lr), momentum = C(s.momentum), fresh = C(1 - s.dampening);
    if (s.momentum == 0) {
        update_decayed<0, T>(s, t, begin, end, [=](C& p, C g, C&, C&, C&) { p -= lr * g; });
    } else if (t.k[0] != 0) {
        const C factor = s.nesterov ? lr * (1 + momentum) : lr;
        update_decayed<1, T>(s, t, begin, end, [=](C& p, C g, C& buffer, C&, C&) {
            buffer = g;
            p -= factor * g;
        });
    } else if (s.nesterov) {
        update_decayed<1, T>(s, t, begin, end, [=](C& p, C g, C& buffer, C&, C&) {
            buffer = momentum * buffer + fresh * g;
            p -= lr * (g + momentum * buffer);
        });
    } else {
        update_decayed<1, T>(s, t, begin, end, [=](C& p, C g, C& buffer, C&, C&) {
            buffer = momentum * buffer + fresh * g;
            p -= lr * buffer;
        });
    }
}

template <class T> void adam(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C shrink = s.decoupled ? C(1 - s.lr * s.weight_decay) : C(1);
    const C gain1 = C(1 - s.beta1), beta2 = C(s.beta2), gain2 = C(1 - s.beta2), eps = C(s.eps);
    const C size = C(t.k[0]), root = C(t.k[1]);
    if (t.state[2]) {
        update_decayed<3, T>(s, t, begin, end, [=](C& p, C g, C& m, C& v, C& top) {
            m += (g - m) * gain1;
            v = beta2 * v + gain2 * g * g;
            top = v > top || v != v ? v : top;
            p = shrink * p - size * m / (sqrt(top) * root + eps);
        });
    } else {
        update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& m, C& v, C&) {
            m += (g - m) * gain1;
            v = beta2 * v + gain2 * g * g;
            p = shrink * p - size * m / (sqrt(v) * root + eps);
        });
    }
}

template <class T> void adamax(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C gain1 = C(1 - s.beta1), beta2 = C(s.beta2), eps = C(s.eps), size = C(t.k[0]);
    update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& m, C& u, C&) {
        m += (g - m) * gain1;
        const C old = beta2 * u, now = abs(g) + eps;
        u = old > now || old != old ? old : now;
        p -= size * m / u;
    });
}

template <class T> void nadam(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C shrink = s.decoupled ? C(1 - s.lr * s.weight_decay) : C(1);
    const C gain1 = C(1 - s.beta1), beta2 = C(s.beta2), gain2 = C(1 - s.beta2), eps = C(s.eps);
    const C of_grad = C(t.k[0]), of_average = C(t.k[1]), unbias = C(t.k[2]);
    update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& m, C& v, C&) {
        m += (g - m) * gain1;
        v = beta2 * v + gain2 * g * g;
        p = shrink * p - (of_grad * g + of_average * m) / (sqrt(v * unbias) + eps);
    });
}

template <class T> void radam(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C shrink = s.decoupled ? C(1 - s.lr * s.weight_decay) : C(1);
    const C gain1 = C(1 - s.beta1), beta2 = C(s.beta2), gain2 = C(1 - s.beta2), eps = C(s.eps);
    const C size = C(t.k[0]), rectified = C(t.k[0] * t.k[1]);
    if (t.k[1] != 0) {
        update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& m, C& v, C&) {
            m += (g - m) * gain1;
            v = beta2 * v + gain2 * g * g;
            p = shrink * p - rectified * m / (sqrt(v) + eps);
        });
    } else {
        update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& m, C& v, C&) {
            m += (g - m) * gain1;
            v = beta2 * v + gain2 * g * g;
            p = shrink * p - size * m;
        });
    }
}

template <class T> void adagrad(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C eps = C(s.eps), size = C(t.k[0]);
    update_decayed<1, T>(s, t, begin, end, [=](C& p, C g, C& sum, C&, C&) {
        sum += g * g;
        p -= size * g / (sqrt(sum) + eps);
    });
}

template <class T> void adadelta(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C lr = C(s.lr), rho = C(s.beta2), gain = C(1 - s.beta2), eps = C(s.eps);
    update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& square, C& delta, C&) {
        square = rho * square + gain * g * g;
        const C d = sqrt(delta + eps) / sqrt(square + eps) * g;
        delta = rho * delta + gain * d * d;
        p -= lr * d;
    });
}

template <class T> void rmsprop(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C lr = C(s.lr), alpha = C(s.beta2), gain = C(1 - s.beta2), eps = C(s.eps), momentum = C(s.momentum);
    const bool centered = t.state[1], buffered = t.state[2];
    if (!centered && !buffered) {
        update_decayed<1, T>(s, t, begin, end, [=](C& p, C g, C& square, C&, C&) {
            square = alpha * square + gain * g * g;
            p -= lr * g / (sqrt(square) + eps);
        });
    } else if (!buffered) {
        update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& square, C& mean, C&) {
            square = alpha * square + gain * g * g;
            mean += (g - mean) * gain;
            p -= lr * g / (sqrt(square - mean * mean) + eps);
        });
    } else if (centered) {
        update_decayed<3, T>(s, t, begin, end, [=](C& p, C g, C& square, C& mean, C& buffer) {
            square = alpha * square + gain * g * g;
            mean += (g - mean) * gain;
            buffer = momentum * buffer + g / (sqrt(square - mean * mean) + eps);
            p -= lr * buffer;
        });
    } else {
        OptimizerTensor shifted = t;  // the buffer in the second place
        shifted.state[1] = t.state[2];
        update_decayed<2, T>(s, shifted, begin, end, [=](C& p, C g, C& square, C& buffer, C&) {
            square = alpha * square + gain * g * g;
            buffer = momentum * buffer + g / (sqrt(square) + eps);
            p -= lr * buffer;
        });
    }
}

template <class T> void rprop(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C plus = C(s.eta_plus), minus = C(s.eta_minus), least = C(s.step_min), most = C(s.step_max);
    update_decayed<2, T>(s, t, begin, end, [=](C& p, C g, C& previous, C& size, C&) {
        const C product = g * previous;
        C factor = product > 0 ? plus : C(1);
        factor = product < 0 ? minus : factor;
        C grown = size * factor;
        grown = grown > most ? most : grown;
        size = grown < least ? least : grown;
        const C used = product < 0 ? C(0) : g;
        C move = used > 0 ? size : C(0);
        move = used < 0 ? -size : move;
        p -= used != used ? used : move;
        previous = used;
    });
}

template <class T> void asgd(const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    using C = Compute<T>;
    const C eta = C(t.k[0]), mu = C(t.k[1]), shrink = C(1 - s.beta1 * t.k[0]);
    update_decayed<1, T>(s, t, begin, end, [=](C& p, C g, C& average, C&, C&) {
        p = p * shrink - eta * g;
        average = mu == C(1) ? p : average + (p - average) * mu;
    });
}

template <class T>
void apply_rule(OptimizerRule rule, const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
    switch (rule) {
        case OptimizerRule::sgd: return sgd<T>(s, t, begin, end);
        case OptimizerRule::adam: return adam<T>(s, t, begin, end);
        case OptimizerRule::adamax: return adamax<T>(s, t, begin, end);
        case OptimizerRule::nadam: return nadam<T>(s, t, begin, end);
        case OptimizerRule::radam: return radam<T>(s, t, begin, end);
        case OptimizerRule::adagrad: return adagrad<T>(s, t, begin, end);
        case OptimizerRule::adadelta: return adadelta<T>(s, t, begin, end);
        case OptimizerRule::rmsprop: return rmsprop<T>(s, t, begin, end);
        case OptimizerRule::rprop: return rprop<T>(s, t, begin, end);
        case OptimizerRule::asgd: return asgd<T>(s, t, begin, end);
    }
}

template <class Body> WISP_INLINE void with_floating(DType d, Body body) {
    switch (d) {
        case DType::f32: return body(float());
        case DType::f64: return body(double());
        case DType::bf16: return body(bf16());
        case DType::f16: return body(f16());
        default: return;
    }
}

// Calls body(tensor, begin, end) for pieces that together cover every element of the list.
template <class Body> void each_piece(const OptimizerTensor* tensors, int64_t count, Body body) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += tensors[i].n;
    parallel_for(total, elements_per_task, [&](int64_t begin, int64_t end) {
        int64_t start = 0;
        for (int64_t i = 0; i < count && start < end; start += tensors[i].n, i++) {
            const int64_t first = begin > start ? begin - start : 0;
            const int64_t last = end - start < tensors[i].n ? end - start : tensors[i].n;
            if (first < last) body(tensors[i], first, last);
        }
    });
}

void step(OptimizerRule rule, const OptimizerSettings& settings, const OptimizerTensor* tensors, int64_t count) {
    each_piece(tensors, count, [&](const OptimizerTensor& t, int64_t begin, int64_t end) {
        with_floating(t.dtype, [&](auto zero) { apply_rule<decltype(zero)>(rule, settings, t, begin, end); });
    });
}

double sum_squares(const OptimizerTensor* tensors, int64_t count) {
    constexpr int64_t block = 16384;  // fixed pieces, one sum each, added in order
    int64_t blocks = 0;
    for (int64_t i = 0; i < count; i++) blocks += (tensors[i].n + block - 1) / block;
    double* sums = static_cast<double*>(scratch(0, size_t(blocks + 1) * sizeof(double)));
    parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
        int64_t start = 0;
        for (int64_t i = 0; i < count && start < end; i++) {
            const int64_t own = (tensors[i].n + block - 1) / block;
            for (int64_t k = begin > start ? begin - start : 0; k < own && start + k < end; k++) {
                const int64_t first = k * block, left = tensors[i].n - first;
                with_floating(tensors[i].dtype, [&](auto zero) {
                    using T = decltype(zero);
                    using C = Compute<T>;
                    const T* x = (const T*)tensors[i].param + first;
                    double total[1];
                    sum_along<C>(left < block ? left : block, total, [&](int64_t j, auto vector, Vector<C>* out) {
                        const Vector<C> v = vector.load(x + j);
                        out[0] = v * v;
                    });
                    sums[start + k] = total[0];
                });
            }
            start += own;
        }
    });
    double total = 0;
    for (int64_t i = 0; i < blocks; i++) total += sums[i];
    return total;
}

void scale(const OptimizerTensor* tensors, int64_t count, double factor) {
    each_piece(tensors, count, [&](const OptimizerTensor& t, int64_t begin, int64_t end) {
        with_floating(t.dtype, [&](auto zero) {
            using T = decltype(zero);
            using C = Compute<T>;
            T* x = (T*)t.param;
            const C by = C(factor);
            for (int64_t i = begin; i < end; i++) x[i] = T(C(x[i]) * by);
        });
    });
}

}  // namespace

extern const OptimizerKernels optimizer_table = {&step, &sum_squares, &scale};

}  // namespace wisp::cpu::WISP_ISA
