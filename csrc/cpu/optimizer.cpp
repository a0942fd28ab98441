// Optimizer kernels: one loop body per rule, one walk over the elements of all tensors, cut evenly between threads.
#include "kernels/optimizer.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t elements_per_task = 16384;

// f(p, g, s0, s1, s2) on each element, with S of the states loaded before and stored after.
template <int S, class T, class F> WISP_INLINE void update(const OptimizerTensor& t, int64_t begin, int64_t end, F f) {
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

#include "kernels/optimizer_rules.h"

// Calls body(tensor, begin, end) for pieces that together cover every element of the list. A large tensor is cut as the threads
// cut it that made its gradient.
template <class Body> void each_piece(const OptimizerTensor* tensors, int64_t count, Body body) {
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) total += tensors[i].n;
    constexpr int64_t units = 64;
    parallel_for(units, units * elements_per_task / (total + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = 0; i < count; i++) {
            const int64_t n = tensors[i].n;
            if (n >= 16 * units) body(tensors[i], n * begin / units / 16 * 16, end == units ? n : n * end / units / 16 * 16);
            else if (i % units >= begin && i % units < end) body(tensors[i], 0, n);
        }
    });
}

void step(OptimizerRule rule, const OptimizerSettings& settings, const OptimizerTensor* tensors, int64_t count) {
    each_piece(tensors, count, [&](const OptimizerTensor& t, int64_t begin, int64_t end) {
        with_floating(t.dtype, [&](auto zero) { apply_rule<decltype(zero)>(rule, settings, t, begin, end); });
    });
}

void sum_squares(const OptimizerTensor* tensors, int64_t count, double* out) {
    constexpr int64_t block = 16384;  // fixed pieces, one sum each, added in order
    int64_t blocks = 0, elements = 0;
    for (int64_t i = 0; i < count; i++) blocks += (tensors[i].n + block - 1) / block, elements += tensors[i].n;
    double* sums = static_cast<double*>(scratch(0, size_t(blocks + 1) * sizeof(double)));
    parallel_for(blocks, blocks * block / (elements + 1) + 1, [&](int64_t begin, int64_t end) {
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
    *out = total;
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

void unscale(const OptimizerTensor* tensors, int64_t count, const float* factor, float* found) {
    each_piece(tensors, count, [&](const OptimizerTensor& t, int64_t begin, int64_t end) {
        with_floating(t.dtype, [&](auto zero) {
            using T = decltype(zero);
            using C = Compute<T>;
            T* x = (T*)t.param;
            const C by = C(*factor);
            int bad = 0;
            for (int64_t i = begin; i < end; i++) {
                const C v = C(x[i]);
                bad |= !(v - v == C(0));
                x[i] = T(v * by);
            }
            if (bad) __atomic_store_n(reinterpret_cast<uint32_t*>(found), 0x3f800000u, __ATOMIC_RELAXED);  // 1.0f
        });
    });
}

}  // namespace

extern const OptimizerKernels optimizer_table = {&step, &sum_squares, &scale, &unscale, nullptr};

}  // namespace wisp::cpu::WISP_ISA
