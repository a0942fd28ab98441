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

// A row that fits into one vector stays there.
template <class T, class V> WISP_INLINE void forward_vector(const T* x, T* y, V vector) {
    using C = Compute<T>;
    const Vector<C> v = vector.load(x, C(-infinity_f));
    const C top = max_lanes(maximum(v, splat(C(-infinity_f))));
    const Vector<C> e = vector.keep(exp_nonpositive(v - top));
    vector.store(y, e * C(1 / double(sum_lanes(e))));
}

template <class T> void forward_row(const T* x, T* y, int64_t n, bool logarithm) {
    using C = Compute<T>;
    if (n <= lanes<C> && !logarithm && sizeof(T) == sizeof(C)) {
        if (n == lanes<C>) forward_vector(x, y, WholeVector<C>{});
        else forward_vector(x, y, PartVector<C>{n});
        return;
    }
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

// Neighbouring columns, each a softmax over n elements `stride` apart: `vectors` of them side by side, of which only a single one may have
// less than all lanes. Rows are often pages apart, and a stripe of several lines in each is read much faster than one line.
constexpr int stripe = 4;

template <int vectors, class T> struct Columns {
    using C = Compute<T>;
    int64_t stride, width;

    bool whole() const { return vectors > 1 || width == lanes<C>; }
    WISP_INLINE Vector<C> get(const T* p, int64_t row, int v) const {
        const T* at = p + row * stride + v * lanes<C>;
        return whole() ? load(at) : load_partial(at, width, C(0));
    }
    WISP_INLINE void put(T* p, int64_t row, int v, Vector<C> value) const {
        T* at = p + row * stride + v * lanes<C>;
        if (whole()) store(at, value);
        else store_partial(at, value, width);
    }
};

template <int vectors, class T> void forward_columns(const T* x, T* y, int64_t n, Columns<vectors, T> columns, bool logarithm) {
    using C = Compute<T>;
    Vector<C> top[vectors], sum[vectors] = {};
    for (int v = 0; v < vectors; v++) top[v] = splat(C(-infinity_f));
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < vectors; v++) top[v] = maximum(columns.get(x, i, v), top[v]);
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < vectors; v++) sum[v] += exp_nonpositive(columns.get(x, i, v) - top[v]);
    for (int v = 0; v < vectors; v++) {
        if (!logarithm) sum[v] = C(1) / sum[v];
        else
            for (int64_t k = 0; k < lanes<C>; k++) sum[v][k] = log(C(sum[v][k]));
    }
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < vectors; v++) {
            const Vector<C> below = columns.get(x, i, v) - top[v];
            columns.put(y, i, v, logarithm ? below - sum[v] : exp_nonpositive(below) * sum[v]);
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

template <int vectors, class T>
void backward_columns(const T* g, const T* y, T* dx, int64_t n, Columns<vectors, T> columns, bool logarithm) {
    using C = Compute<T>;
    Vector<C> sum[vectors] = {};
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < vectors; v++) sum[v] += logarithm ? columns.get(g, i, v) : columns.get(g, i, v) * columns.get(y, i, v);
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < vectors; v++) {
            const Vector<C> slope = columns.get(g, i, v), value = columns.get(y, i, v);
            columns.put(dx, i, v, logarithm ? slope - exp_nonpositive(value) * sum[v] : (slope - sum[v]) * value);
        }
}

// Cuts the work among threads: row(at) for each line of neighbours, or column(at, Columns) for lines side by side.
template <class T, class Row, class Column> WISP_INLINE void each_line(int64_t outer, int64_t n, int64_t inner, Row row, Column column) {
    if (inner == 1) {
        parallel_for(outer, 1 + elements_per_task / n, [=](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) row(i * n);
        });
        return;
    }
    constexpr int64_t L = lanes<Compute<T>>, wide = stripe * L;
    const int64_t step = outer * (inner / wide) >= 16 ? wide : L, blocks = divide_up(inner, step);
    parallel_for(outer * blocks, 1 + elements_per_task / (n * step), [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = i % blocks * step, last = least(first + step, inner), at = i / blocks * n * inner;
            if (last - first == wide) column(at + first, Columns<stripe, T>{inner, wide});
            else
                for (int64_t c = first; c < last; c += L) column(at + c, Columns<1, T>{inner, least(L, last - c)});
        }
    });
}

void forward(DType dtype, const void* x_, void* y_, int64_t outer, int64_t n, int64_t inner, bool logarithm) {
    if (outer * n * inner == 0) return;
    with_floating(dtype, [=](auto zero) {
        using T = decltype(zero);
        const T* x = static_cast<const T*>(x_);
        T* y = static_cast<T*>(y_);
        each_line<T>(
            outer, n, inner, [=](int64_t at) { forward_row(x + at, y + at, n, logarithm); },
            [=](int64_t at, auto columns) { forward_columns(x + at, y + at, n, columns, logarithm); });
    });
}
void backward(DType dtype, const void* g_, const void* y_, void* dx_, int64_t outer, int64_t n, int64_t inner, bool logarithm) {
    if (outer * n * inner == 0) return;
    with_floating(dtype, [=](auto zero) {
        using T = decltype(zero);
        const T *g = static_cast<const T*>(g_), *y = static_cast<const T*>(y_);
        T* dx = static_cast<T*>(dx_);
        each_line<T>(
            outer, n, inner, [=](int64_t at) { backward_row(g + at, y + at, dx + at, n, logarithm); },
            [=](int64_t at, auto columns) { backward_columns(g + at, y + at, dx + at, n, columns, logarithm); });
    });
}

}  // namespace

extern const SoftmaxKernels softmax_table = {&forward, &backward};

}  // namespace wisp::cpu::WISP_ISA
