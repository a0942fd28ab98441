// The rules of the optimizers, for one element at a time: the text that the kernels of CPU and GPU share. The including
// file provides update<S, T>(tensor, begin, end, f), which calls f(p, g, s0, s1, s2) on each element with S states.

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

template <class T> void apply_rule(OptimizerRule rule, const OptimizerSettings& s, const OptimizerTensor& t, int64_t begin, int64_t end) {
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
