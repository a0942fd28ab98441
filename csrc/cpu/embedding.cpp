// Embedding kernels. Gradients are cut between threads by columns of the table: every element of the gradient then
// receives its contributions in the order of the indices, and no two threads write to the same place.
#include <algorithm>
#include "kernels/embedding.h"
#include "kernels/index.h"

#include "core/scratch.h"
#include "core/threads.h"
#include "cpu/vector.h"

namespace wisp::cpu::WISP_ISA {
namespace {

constexpr int64_t elements_per_task = 16384;

int64_t first_bad(const int64_t* index, int64_t n, int64_t rows) { return cpu::index.first_out_of_range(index, n, rows, false); }

void gather(const void* table, int64_t, const int64_t* index, void* out, int64_t n, int64_t row_bytes) {
    parallel_for(n, 1 + 4 * elements_per_task / (row_bytes + 1), [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++)
            std::memcpy((char*)out + i * row_bytes, (const char*)table + index[i] * row_bytes, size_t(row_bytes));
    });
}

// Blocks of columns as work items: wide enough for whole vectors, narrow enough for every thread to have some.
constexpr int64_t column_block = 64;
template <class Body> WISP_INLINE void each_column_block(int64_t width, int64_t work, Body body) {
    const int64_t blocks = (width + column_block - 1) / column_block;
    parallel_for(blocks, 1 + elements_per_task / (work * column_block + 1), [&](int64_t begin, int64_t end) {
        const int64_t last = end * column_block;
        body(begin * column_block, last < width ? last : width);
    });
}

// Contributions to one table as weighted rows: for i in [0, n): table[target(i)] += scale(i) * source(i).
// Half types are added up in a float copy of the rows that are hit.
template <class T, class Target, class Source, class Scale>
void add_rows(T* grad_table, int64_t rows, int64_t width, int64_t n, Target target, Source source, Scale scale) {
    using C = Compute<T>;
    if constexpr (sizeof(T) == sizeof(C)) {
        parallel_for(rows * width, 1 << 18,
                     [&](int64_t begin, int64_t end) { std::memset(grad_table + begin, 0, size_t(end - begin) * sizeof(T)); });
        each_column_block(width, n, [&](int64_t first, int64_t last) {
            for (int64_t i = 0; i < n; i++) {
                const int64_t row = target(i);
                if (row < 0) continue;
                T* to = grad_table + row * width;
                const T* from = source(i);
                const C factor = scale(i);
                for (int64_t j = first; j < last; j++) to[j] += from[j] * factor;
            }
        });
    } else {
        // Slots of a float table, one for each row that occurs.
        int64_t* slot = static_cast<int64_t*>(scratch(0, size_t(rows + 1) * sizeof(int64_t)));
        std::memset(slot, -1, size_t(rows) * sizeof(int64_t));
        int64_t used = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = target(i);
            if (row >= 0 && slot[row] < 0) slot[row] = used++;
        }
        C* sums = static_cast<C*>(scratch(1, size_t(used * width + 1) * sizeof(C)));
        std::memset(sums, 0, size_t(used * width) * sizeof(C));
        std::memset(grad_table, 0, size_t(rows * width) * sizeof(T));
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = target(i);
            if (row < 0) continue;
            C* to = sums + slot[row] * width;
            const T* from = source(i);
            const C factor = scale(i);
            for (int64_t j = 0; j < width; j++) to[j] += C(from[j]) * factor;
        }
        for (int64_t r = 0; r < rows; r++)
            if (slot[r] >= 0)
                for (int64_t j = 0; j < width; j++) grad_table[r * width + j] = T(sums[slot[r] * width + j]);
    }
}

void backward(DType d, const void* grad, const int64_t* index, void* grad_table, int64_t n, int64_t rows, int64_t width,
              int64_t padding_index, bool scale_by_count) {
    int64_t* counts = nullptr;
    if (scale_by_count) {
        counts = static_cast<int64_t*>(scratch(2, size_t(rows + 1) * sizeof(int64_t)));
        std::memset(counts, 0, size_t(rows) * sizeof(int64_t));
        for (int64_t i = 0; i < n; i++) counts[index[i]]++;
    }
    with_floating(d, [&](auto zero) {
        using T = decltype(zero);
        using C = Compute<T>;
        add_rows<T>((T*)grad_table, rows, width, n, [=](int64_t i) { return index[i] == padding_index ? int64_t(-1) : index[i]; },
                    [=](int64_t i) { return (const T*)grad + i * width; },
                    [=](int64_t i) { return counts ? C(1) / C(counts[index[i]]) : C(1); });
    });
}

// ---- bags

constexpr int64_t ahead = 10;  // rows that are asked for before they are added

// out = the sum of a bag's rows, by weights, over a divisor: columns that fit into registers at a time. Fewer than a vector: a part of one.
template <class T, int Vectors, bool Whole>
WISP_INLINE void sum_rows(const BagArgs& a, int64_t bag, int64_t first, int64_t width, Compute<T> divisor, T* out) {
    using C = Compute<T>;
    const T *table = (const T*)a.table + first, *weight = (const T*)a.sample_weight;
    Vector<C> sums[Vectors] = {};
    const int64_t last = a.offset[a.bags] - 1;
    for (int64_t i = a.offset[bag]; i < a.offset[bag + 1]; i++) {
        const T* later = table + a.index[least(i + ahead, last)] * a.width;  // of the next bag, too
        for (int v = 0; v < Vectors; v++) __builtin_prefetch(later + v * lanes<C>);
        if (a.index[i] == a.padding_index) continue;
        const T* row = table + a.index[i] * a.width;
        const C w = weight ? C(weight[i]) : C(1);
        for (int v = 0; v < Vectors; v++) sums[v] += (Whole ? load(row + v * lanes<C>) : load_partial(row, width, C(0))) * w;
    }
    for (int v = 0; v < Vectors; v++)
        if (Whole) store(out + v * lanes<C>, sums[v] / divisor);
        else store_partial(out, sums[v] / divisor, width);
}

// out = the largest of a bag's rows, column by column, and from which row of the table it came.
template <class T> void largest_of_rows(const BagArgs& a, int64_t bag, T* out, int64_t* picked) {
    using C = Compute<T>;
    for (int64_t j = 0; j < a.width; j++) out[j] = T(C(0)), picked[j] = -1;
    bool any = false;
    for (int64_t i = a.offset[bag]; i < a.offset[bag + 1]; i++) {
        if (a.index[i] == a.padding_index) continue;
        const T* row = (const T*)a.table + a.index[i] * a.width;
        for (int64_t j = 0; j < a.width; j++) {
            const C v = C(row[j]);
            const bool better = !any || v > C(out[j]) || v != v;
            out[j] = better ? row[j] : out[j];
            picked[j] = better ? a.index[i] : picked[j];
        }
        any = true;
    }
}

template <class T> void bag_as(const BagArgs& a, T* out, int64_t* picked) {
    using C = Compute<T>;
    constexpr int most_vectors = 8;
    const int64_t total = a.bags ? a.offset[a.bags] - a.offset[0] : 0;
    const int64_t work = a.bags ? (total / a.bags + 1) * a.width : 1;
    parallel_for(a.bags, 1 + elements_per_task / (work + 1), [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; b++) {
            T* to = out + b * a.width;
            if (a.mode == BagMode::max) {
                largest_of_rows(a, b, to, picked + b * a.width);
                continue;
            }
            int64_t count = 0;
            for (int64_t i = a.offset[b]; a.mode == BagMode::mean && i < a.offset[b + 1]; i++) count += a.index[i] != a.padding_index;
            const C divisor = count > 0 ? C(count) : C(1);
            int64_t j = 0;
            for (; j + most_vectors * lanes<C> <= a.width; j += most_vectors * lanes<C>)
                sum_rows<T, most_vectors, true>(a, b, j, 0, divisor, to + j);
            for (; j + lanes<C> <= a.width; j += lanes<C>) sum_rows<T, 1, true>(a, b, j, 0, divisor, to + j);
            if (j < a.width) sum_rows<T, 1, false>(a, b, j, a.width - j, divisor, to + j);
        }
    });
}

template <class T> void bag_backward_as(const BagArgs& a, const T* grad, const int64_t* picked, T* grad_table, T* grad_sample_weight) {
    using C = Compute<T>;
    const T *table = (const T*)a.table, *sample_weight = (const T*)a.sample_weight;
    if (a.mode == BagMode::max) {
        if (!grad_table) return;
        // One contribution per element rather than per row.
        C* sums = static_cast<C*>(scratch(0, size_t(a.rows * a.width + 1) * sizeof(C)));
        std::memset(sums, 0, size_t(a.rows * a.width) * sizeof(C));
        for (int64_t i = 0; i < a.bags * a.width; i++)
            if (picked[i] >= 0) sums[picked[i] * a.width + i % a.width] += C(grad[i]);
        for (int64_t i = 0; i < a.rows * a.width; i++) grad_table[i] = T(sums[i]);
        return;
    }
    const int64_t n = a.bags ? a.offset[a.bags] : 0;
    int64_t* bag_of = static_cast<int64_t*>(scratch(2, size_t(n + 1) * sizeof(int64_t)));
    C* scale = static_cast<C*>(scratch(3, size_t(n + 1) * sizeof(C)));
    for (int64_t b = 0; b < a.bags; b++) {
        int64_t count = 0;
        for (int64_t i = a.offset[b]; i < a.offset[b + 1]; i++) count += a.index[i] != a.padding_index;
        for (int64_t i = a.offset[b]; i < a.offset[b + 1]; i++) {
            bag_of[i] = b;
            scale[i] = sample_weight ? C(sample_weight[i]) : a.mode == BagMode::mean ? C(1) / C(count) : C(1);
        }
    }
    const int64_t start = a.bags ? a.offset[0] : 0;
    if (grad_table)
        add_rows<T>(
            grad_table, a.rows, a.width, n - start,
            [&](int64_t i) {
                const int64_t row = a.index[start + i];
                return row == a.padding_index ? int64_t(-1) : row;
            },
            [&](int64_t i) { return grad + bag_of[start + i] * a.width; }, [&](int64_t i) { return scale[start + i]; });
    if (grad_sample_weight)
        for (int64_t i = start; i < n; i++) {
            double total[1] = {0};
            const T *row = table + a.index[i] * a.width, *g = grad + bag_of[i] * a.width;
            if (a.index[i] != a.padding_index)
                sum_along<C>(a.width, total,
                             [&](int64_t j, auto vector, Vector<C>* out) { out[0] = vector.load(row + j) * vector.load(g + j); });
            grad_sample_weight[i] = T(C(total[0]));
        }
}

void bag(const BagArgs& a, void* out, int64_t* picked) {
    with_floating(a.dtype, [&](auto zero) { bag_as(a, (decltype(zero)*)out, picked); });
}
void bag_backward(const BagArgs& a, const void* grad, const int64_t* picked, void* grad_table, void* grad_sample_weight) {
    with_floating(a.dtype, [&](auto zero) {
        using T = decltype(zero);
        bag_backward_as(a, (const T*)grad, picked, (T*)grad_table, (T*)grad_sample_weight);
    });
}

bool rise(int64_t* copies, const int64_t* offsets, int64_t n, int64_t indices, const char*) {
    if (n == 0 || offsets[0] < 0 || offsets[n - 1] > indices) return false;
    for (int64_t i = 1; i < n; i++)
        if (offsets[i - 1] > offsets[i]) return false;
    std::copy_n(offsets, n, copies);
    return true;
}

}  // namespace

extern const EmbeddingKernels embedding_table = {&first_bad, &rise, &gather, &backward, &bag, &bag_backward};

}  // namespace wisp::cpu::WISP_ISA
