// Kernels of sparse products. Threads take rows, cut so that each has about the same number of entries.
#include "kernels/sparse.h"

#include "core/threads.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t work_per_task = 16384;

// The first row whose entries and predecessors make up at least `position` units of work.
int64_t row_at(const CsrPattern& p, int64_t position) {
    int64_t low = 0, high = p.rows;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (p.start[middle] + middle < position) low = middle + 1;
        else high = middle;
    }
    return low;
}

template <class Body> WISP_INLINE void each_row(const CsrPattern& p, int64_t width, Body body) {
    const int64_t total = p.rows + p.entries;
    parallel_for(total, 1 + work_per_task / (width + 1), [&](int64_t begin, int64_t end) {
        const int64_t last = end == total ? p.rows : row_at(p, end);
        for (int64_t r = row_at(p, begin); r < last; r++) body(r);
    });
}

// Columns [j, j + K vectors) of one row of the result, kept in registers.
template <class T, int K>
WISP_INLINE void row_block(const T* values, const int64_t* column, int64_t n, const T* dense, T* out, int64_t width) {
    Vector<T> sum[K] = {};
    for (int64_t e = 0; e < n; e++) {
        const Vector<T> v = splat(values[e]);
        const T* x = dense + column[e] * width;
        for (int k = 0; k < K; k++) sum[k] += v * load(x + k * lanes<T>);
    }
    for (int k = 0; k < K; k++) store(out + k * lanes<T>, sum[k]);
}

template <class T>
WISP_INLINE void row_tail(const T* values, const int64_t* column, int64_t n, const T* dense, T* out, int64_t width, int64_t count) {
    T sum[64 / sizeof(T)] = {};
    for (int64_t e = 0; e < n; e++) {
        const T* x = dense + column[e] * width;
        for (int64_t k = 0; k < count; k++) sum[k] += values[e] * x[k];
    }
    for (int64_t k = 0; k < count; k++) out[k] = sum[k];
}

template <class T> void product_of(const CsrPattern& p, const T* values, const T* dense, T* out, int64_t width) {
    constexpr int64_t step = 64 / int64_t(sizeof(T));
    each_row(p, width, [&](int64_t r) {
        const int64_t first = p.start[r], n = p.start[r + 1] - first;
        const T* v = values + first;
        const int64_t* c = p.column + first;
        T* y = out + r * width;
        int64_t j = 0;
        if constexpr (!std::is_integral_v<T>) {
            for (; j + 4 * step <= width; j += 4 * step) row_block<T, 4>(v, c, n, dense + j, y + j, width);
            for (; j + step <= width; j += step) row_block<T, 1>(v, c, n, dense + j, y + j, width);
        }
        for (; j < width; j += step) row_tail(v, c, n, dense + j, y + j, width, width - j < step ? width - j : step);
    });
}

template <class T> void sampled_of(const CsrPattern& p, const T* left, const T* right, T* out, int64_t width) {
    each_row(p, width, [&](int64_t r) {
        const T* a = left + r * width;
        for (int64_t e = p.start[r]; e < p.start[r + 1]; e++) {
            const T* b = right + p.column[e] * width;
            T sum = 0;
            int64_t j = 0;
            if constexpr (!std::is_integral_v<T>) {
                Vector<T> total = {};
                for (; j + lanes<T> <= width; j += lanes<T>) total += load(a + j) * load(b + j);
                if (j) sum = sum_lanes(total);
            }
            for (; j < width; j++) sum += a[j] * b[j];
            out[e] = sum;
        }
    });
}

template <class Body> WISP_INLINE void with_type(DType d, Body body) {
    switch (d) {
    case DType::f32: return body(float());
    case DType::f64: return body(double());
    case DType::i64: return body(int64_t());
    default: return;
    }
}

void product(DType d, const CsrPattern& p, const void* values, const void* dense, void* out, int64_t width) {
    with_type(d, [&](auto t) {
        using T = decltype(t);
        product_of(p, (const T*)values, (const T*)dense, (T*)out, width);
    });
}

void sampled(DType d, const CsrPattern& p, const void* left, const void* right, void* out, int64_t width) {
    with_type(d, [&](auto t) {
        using T = decltype(t);
        sampled_of(p, (const T*)left, (const T*)right, (T*)out, width);
    });
}

void transpose(const CsrPattern& p, int64_t* start, int64_t* column, int64_t* order) {
    for (int64_t c = 0; c <= p.columns; c++) start[c] = 0;
    for (int64_t e = 0; e < p.entries; e++) start[p.column[e] + 1]++;
    for (int64_t c = 0; c < p.columns; c++) start[c + 1] += start[c];
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t e = p.start[r]; e < p.start[r + 1]; e++) {
            const int64_t at = start[p.column[e]]++;
            column[at] = r;
            order[at] = e;
        }
    for (int64_t c = p.columns; c > 0; c--) start[c] = start[c - 1];  // each was moved on to its end
    start[0] = 0;
}

bool rises(const int64_t* start, int64_t rows, int64_t entries) {
    bool good = start[0] == 0 && start[rows] == entries;
    for (int64_t r = 0; r < rows; r++) good &= start[r] <= start[r + 1];
    return good;
}

}  // namespace

extern const SparseKernels sparse_table = {&product, &sampled, &transpose, &rises};

}  // namespace wisp::cpu::WISP_ISA
