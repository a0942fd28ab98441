// Samplers that need an unknown number of uniforms for one element. One text for the CPU and the GPU, included where
// WISP_SAMPLER (how a function is declared) and log_factorial are known, and nothing fuses products with sums.

// A short sequence of uniforms in (0, 1), started from one 64-bit number (splitmix64).
struct Sequence {
    uint64_t state;
    WISP_SAMPLER double next() {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        return (double((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
    }
};

WISP_SAMPLER double sample_poisson(double rate, Sequence s) {
    if (rate == 0) return 0;
    if (rate - rate != 0) return rate;  // NaN and infinity
    if (rate < 10) {                    // as many uniforms as it takes for their product to fall below exp(-rate)
        const double limit = ::exp(-rate);
        double k = 0, p = s.next();
        for (; p > limit; p *= s.next()) k++;
        return k;
    }
    // Transformed rejection (Hörmann's PTRS).
    const double root = ::sqrt(rate), log_rate = ::log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        const double u = s.next() - 0.5, v = s.next(), us = 0.5 - ::fabs(u);
        const double k = ::floor((2 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= quick) return k;
        if (k < 0 || (us < 0.013 && v > us)) continue;
        if (::log(v) + ::log(inverse_alpha) - ::log(a / (us * us) + b) <= -rate + k * log_rate - log_factorial(k)) return k;
    }
}

WISP_SAMPLER double sample_binomial(double n, double p, Sequence s) {
    if (n != n || p != p) return n + p;
    if (n - n != 0) return n;
    if (n <= 0 || p <= 0) return 0;
    if (p >= 1) return n;
    if (p > 0.5) return n - sample_binomial(n, 1 - p, s);
    if (n * p < 10) {  // successes are a geometric number of trials apart
        const double log_q = ::log1p(-p);
        double trials = 0, k = 0;
        for (;; k++) {
            trials += ::ceil(::log(s.next()) / log_q);
            if (trials > n) return k;
        }
    }
    // Transformed rejection (Hörmann's BTRS).
    const double root = ::sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * root, a = -0.0873 + 0.0248 * b + 0.01 * p, c = n * p + 0.5;
    const double quick = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * root, mode = ::floor((n + 1) * p);
    const double log_odds = ::log(p / (1 - p)), peak = log_factorial(mode) + log_factorial(n - mode);
    for (;;) {
        const double u = s.next() - 0.5, v = s.next(), us = 0.5 - ::fabs(u), k = ::floor((2 * a / us + b) * u + c);
        if (us >= 0.07 && v <= quick) return k;
        if (k < 0 || k > n) continue;
        if (::log(v * alpha / (a / (us * us) + b)) <= peak - log_factorial(k) - log_factorial(n - k) + (k - mode) * log_odds) return k;
    }
}

// One number of a distribution from u, uniform in [0, 1); log_normal: from a normal number.
WISP_SAMPLER double sample_of(Distribution distribution, double u, double a, double b) {
    switch (distribution) {
    case Distribution::exponential: {  // of rate a; never zero, for the logarithm of such a sample is common (Gumbel noise)
        const double x = -::log1p(-u);
        return (x > 0x1p-54 ? x : 0x1p-54) / a;
    }
    case Distribution::geometric: {  // a: the logarithm of the probability to fail
        const double k = ::ceil(::log1p(-u) / a);
        return k > 1 ? k : 1;
    }
    case Distribution::cauchy: return a + b * ::tan(3.14159265358979323846 * (u - 0.5));  // median a, scale b
    default: return ::exp(u);
    }
}
