// Sorting and selection along the last dimension of contiguous rows, and search in sorted rows. NaN counts as larger
// than every number. Real dtypes only. Compiled once: nothing here gains from wide vectors.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

enum class Selection : uint8_t { kth, median, nanmedian };

struct SortKernels {
    // Stable, in both directions. values or indices may be null. values may be in itself.
    void (*sort)(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, bool descending);

    // The k largest or smallest of each row, best first; of equal elements the first. values, indices: [rows, k].
    void (*topk)(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t k, bool largest);

    // The element of rank k (from 0), the lower median (NaN if there is one), or that of the numbers that aren't NaN.
    void (*select)(Selection what, void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n, int64_t k);

    // The most frequent element, the smallest of several, and where it is last.
    void (*mode)(void* values, int64_t* indices, const void* in, DType dtype, int64_t rows, int64_t n);

    // Where each of the n values of a row would go in the m sorted boundaries of that row (of the only row if shared):
    // before equal ones, or after them if right. sorter, or null: the permutation that sorts the boundaries.
    void (*searchsorted)(int64_t* out, const void* boundaries, const int64_t* sorter, const void* values, DType dtype, int64_t rows,
                         int64_t m, int64_t n, bool shared, bool right);

    // out[k] = how often k is among the n numbers, of which others than 0 to bins - 1 count nothing.
    void (*count)(int64_t* out, const int64_t* numbers, int64_t n, int64_t bins);
    // out[k] = how many of the n values are in part k of [low, high] cut into equal ones.
    void (*histogram)(int64_t* out, const void* values, DType dtype, int64_t n, int64_t bins, double low, double high);
    // out[i] = whether in[i] differs from the one before it; the first does.
    void (*run_starts)(bool* out, const void* in, DType dtype, int64_t n);
    // The first elements of the runs of equal ones go to `out`, which has room for all n; how many there are. Null: from their starts.
    int64_t (*run_values)(void* out, const void* in, DType dtype, int64_t n);
};

}  // namespace wisp::kernels
