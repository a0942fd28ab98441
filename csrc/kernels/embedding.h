// Gathering rows of a table by index, summing, averaging or maximising bags of them, and the dense gradients.
//
// Tables and results are contiguous. Indices have been checked by `first_bad`. Sums run in the order of the indices,
// whatever the number of threads.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

enum class BagMode { sum, mean, max };

struct BagArgs {
    DType dtype;
    const void* table;  // (rows, width)
    int64_t rows, width;
    const int64_t* index;   // all indices
    const int64_t* offset;  // bags + 1 of them: bag b is index[offset[b]] up to index[offset[b + 1]]
    int64_t bags;
    const void* sample_weight;  // one per index, sum mode only; may be null
    int64_t padding_index;      // counts nothing; -1: none
    BagMode mode;
};

struct EmbeddingKernels {
    int64_t (*first_bad)(const int64_t* index, int64_t n, int64_t rows);  // position of an index out of range, or -1
    // Whether offsets of bags rise from 0 to at most `indices`; their copies do in any case. The GPU says yes, and raises RuntimeError with
    // the message, which is static text, at the next synchronisation.
    bool (*rise)(int64_t* copies, const int64_t* offsets, int64_t n, int64_t indices, const char* message);
    void (*gather)(const void* table, int64_t rows, const int64_t* index, void* out, int64_t n, int64_t row_bytes);
    // grad_table (rows, width) is overwritten. With scale_by_count, each contribution is divided by how often its index
    // occurs.
    void (*backward)(DType, const void* grad, const int64_t* index, void* grad_table, int64_t n, int64_t rows, int64_t width,
                     int64_t padding_index, bool scale_by_count);
    // out (bags, width); picked (bags, width): in max mode, the table row of each result, -1 where a bag is empty.
    void (*bag)(const BagArgs&, void* out, int64_t* picked);
    // Null: the front door composes it.
    void (*bag_backward)(const BagArgs&, const void* grad, const int64_t* picked, void* grad_table, void* grad_sample_weight);
};

}  // namespace wisp::kernels
