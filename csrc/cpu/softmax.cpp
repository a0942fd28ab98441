// Softmax kernels: rows one by one where the dimension is the last, else vectors across the inner dimension.
#include "kernels/softmax.h"

#include "core/threads.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t elements_per_task = 8192;

template <class T> Compute<T> row_max(const T* x, int64_t n) {
    using C = Compute<T>;
    Vector<C> top = splat(C(-infinity_f)), other = top;
    each_vector<C>(n, [&](int64_t i, auto vector) {
        other = maximum(vector.load(x + i, C(-infinity_f)), other);  // a NaN is passed over; the exponentials show it
        const Vector<C> swap = top;
        top = other;
        other = swap;
    });
    return max_lanes(maximum(top, other));
}

template <class T> void forward_row(const T* x, T* y, int64_t n, bool logarithm) {
    using C = Compute<T>;
    const C top = row_max(x, n);
    double total[1];
    if (!logarithm && sizeof(T) == sizeof(C)) {
        sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) {
            out[0] = exp_nonpositive(vector.load(x + i) - top);
            vector.store(y + i, out[0]);
        });
        const C factor = C(1 / total[0]);
        each_vector<C>(n, [&](int64_t i, auto vector) { vector.store(y + i, vector.load((const T*)y + i) * factor); });
        return;
    }
    sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) { out[0] = exp_nonpositive(vector.load(x + i) - top); });
    if (logarithm) {
        const C low = C(log(total[0]));
        each_vector<C>(n, [&](int64_t i, auto vector) { vector.store(y + i, vector.load(x + i) - top - low); });
    } else {  // a half type: exponentiate again rather than round in between
        const C factor = C(1 / total[0]);
        each_vector<C>(n, [&](int64_t i, auto vector) { vector.store(y + i, exp_nonpositive(vector.load(x + i) - top) * factor); });
    }
}

// `width` <= one vector of neighbouring columns, each a softmax over n elements `stride` apart.
template <class T> void forward_columns(const T* x, T* y, int64_t n, int64_t stride, int64_t width, bool logarithm) {
    using C = Compute<T>;
    const bool whole = width == lanes<C>;
    auto get = [&](const T* p) { return whole ? load(p) : load_partial(p, width, C(0)); };
    auto put = [&](T* p, Vector<C> v) {
        if (whole) store(p, v);
        else store_partial(p, v, width);
    };
    Vector<C> top = splat(C(-infinity_f)), sum = {};
    for (int64_t i = 0; i < n; i++) top = maximum(get(x + i * stride), top);
    for (int64_t i = 0; i < n; i++) sum += exp_nonpositive(get(x + i * stride) - top);
    if (logarithm) {
        for (int64_t k = 0; k < lanes<C>; k++) sum[k] = log(C(sum[k]));
        for (int64_t i = 0; i < n; i++) put(y + i * stride, get(x + i * stride) - top - sum);
    } else {
        const Vector<C> factor = C(1) / sum;
        for (int64_t i = 0; i < n; i++) put(y + i * stride, exp_nonpositive(get(x + i * stride) - top) * factor);
    }
}

template <class T> void backward_row(const T* g, const T* y, T* dx, int64_t n, bool logarithm) {
    using C = Compute<T>;
    double total[1];
    if (logarithm) {
        sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) { out[0] = vector.load(g + i); });
        const C sum = C(total[0]);
        each_vector<C>(
            n, [&](int64_t i, auto vector) { vector.store(dx + i, vector.load(g + i) - exp_nonpositive(vector.load(y + i)) * sum); });
    } else {
        sum_along<C>(n, total, [&](int64_t i, auto vector, Vector<C>* out) { out[0] = vector.load(g + i) * vector.load(y + i); });
        const C sum = C(total[0]);
        each_vector<C>(n, [&](int64_t i, auto vector) { vector.store(dx + i, (vector.load(g + i) - sum) * vector.load(y + i)); });
    }
}

template <class T> void backward_columns(const T* g, const T* y, T* dx, int64_t n, int64_t stride, int64_t width, bool logarithm) {
    using C = Compute<T>;
    const bool whole = width == lanes<C>;
    auto get = [&](const T* p) { return whole ? load(p) : load_partial(p, width, C(0)); };
    auto put = [&](T* p, Vector<C> v) {
        if (whole) store(p, v);
        else store_partial(p, v, width);
    };
    Vector<C> sum = {};
    for (int64_t i = 0; i < n; i++) {
        const Vector<C> v = get(g + i * stride);
        sum += logarithm ? v : v * get(y + i * stride);
    }
    for (int64_t i = 0; i < n; i++) {
        const Vector<C> v = get(g + i * stride), w = get(y + i * stride);
        put(dx + i * stride, logarithm ? v - exp_nonpositive(w) * sum : (v - sum) * w);
    }
}

// Cuts the work among threads: row(at) for each line of neighbours, or columns(at, count) for lines side by side.
template <class C, class Row, class Columns> WISP_INLINE void each_line(int64_t outer, int64_t n, int64_t inner, Row row, Columns columns) {
    if (inner == 1) {
        parallel_for(outer, 1 + elements_per_task / n, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) row(i * n);
        });
        return;
    }
    constexpr int64_t step = lanes<C>;
    const int64_t blocks = (inner + step - 1) / step;
    parallel_for(outer * blocks, 1 + elements_per_task / (n * step), [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t column = i % blocks * step, left = inner - column;
            columns(i / blocks * n * inner + column, left < step ? left : step);
        }
    });
}

void forward(DType dtype, const void* x_, void* y_, int64_t outer, int64_t n, int64_t inner, bool logarithm) {
    if (outer * n * inner == 0) return;
    with_floating(dtype, [=](auto zero) {
        using T = decltype(zero);
        const T* x = static_cast<const T*>(x_);
        T* y = static_cast<T*>(y_);
        each_line<Compute<T>>(
            outer, n, inner, [=](int64_t at) { forward_row(x + at, y + at, n, logarithm); },
            [=](int64_t at, int64_t count) { forward_columns(x + at, y + at, n, inner, count, logarithm); });
    });
}
void backward(DType dtype, const void* g_, const void* y_, void* dx_, int64_t outer, int64_t n, int64_t inner, bool logarithm) {
    if (outer * n * inner == 0) return;
    with_floating(dtype, [=](auto zero) {
        using T = decltype(zero);
        const T *g = static_cast<const T*>(g_), *y = static_cast<const T*>(y_);
        T* dx = static_cast<T*>(dx_);
        each_line<Compute<T>>(
            outer, n, inner, [=](int64_t at) { backward_row(g + at, y + at, dx + at, n, logarithm); },
            [=](int64_t at, int64_t count) { backward_columns(g + at, y + at, dx + at, n, inner, count, logarithm); });
    });
}

}  // namespace

extern const SoftmaxKernels softmax_table = {&forward, &backward};

}  // namespace wisp::cpu::WISP_ISA
