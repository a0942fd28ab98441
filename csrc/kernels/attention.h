// Scaled dot product attention, forward and backward, without ever holding the whole matrix of scores.
//
// Backward recomputes the scores block by block from the logarithms of the row sums that forward leaves.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"
#include "kernels/random.h"

namespace wisp::kernels {

// Four dimensions, (batch, heads, rows, columns); the columns are adjacent. Strides count elements.
struct AttentionTensor {
    void* data;
    int64_t batch_stride, head_stride, row_stride;
    int64_t repeat = 1;  // so many heads, one after the other, are one in memory; more than one only where `reads_repeated` says so
};

struct AttentionArgs {
    DType dtype;                      // floating
    int64_t batch, heads, key_heads;  // query head h reads key head h / (heads / key_heads)
    int64_t queries, keys, width, value_width;
    AttentionTensor query, key, value;
    double scale;
    bool causal;  // query i sees keys 0..i
    // Added to the scores (in `dtype`), or true where a key may be seen (bool); may be null. A stride of 0 repeats.
    const void* mask;
    bool mask_is_bool;
    int64_t mask_batch, mask_head, mask_row, mask_column;
    // Dropout of the weights: weight (b, h, i, j) is kept and multiplied by keep_scale where random number
    // ((b * heads + h) * queries + i) * keys + j of the stream is below keep_below.
    bool dropout;
    RandomStream stream;
    uint64_t keep_below;
    double keep_scale;
    bool forward_only;  // nobody will ask for gradients: logsumexp may stay as it is
    void* kept;         // kept_bytes() of memory where forward leaves what dropout keeps, for backward; null: there is none
};

// The gradient of the mask, with zero strides where the mask repeats; data null: not wanted.
struct AttentionMaskGradient {
    void* data = nullptr;
    int64_t batch = 0, head = 0, row = 0, column = 0;
};

struct AttentionKernels {
    // logsumexp: (batch, heads, queries) contiguous, in dtype (half types: f32), as backward wants it: nobody else reads
    // it. A row that sees no key gives zeros.
    void (*forward)(const AttentionArgs&, const AttentionTensor& out, void* logsumexp);
    // All gradients are overwritten, but that of the mask, which is added to.
    void (*backward)(const AttentionArgs&, const AttentionTensor& grad, const AttentionTensor& out, const void* logsumexp,
                     const AttentionTensor& grad_query, const AttentionTensor& grad_key, const AttentionTensor& grad_value,
                     const AttentionMaskGradient& grad_mask);

    // What they take; the rest goes by the formula.
    bool half;                      // half types
    bool mask_gradient;             // gradients of a mask
    int64_t widest, widest_double;  // heads
    int64_t longest;                // rows of queries and of keys
    int64_t farthest;               // strides of a mask
    const char* node;               // the name of the operator's gradient, which is PyTorch's
    // Bytes in which forward can leave what dropout keeps, so that backward need not draw it again; null: it leaves nothing.
    size_t (*kept_bytes)(const AttentionArgs&) = nullptr;
    // Whether heads of keys and values may repeat, asked before it is known where these lie; null: never.
    bool (*reads_repeated)(const AttentionArgs&) = nullptr;
};

}  // namespace wisp::kernels
