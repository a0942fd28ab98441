// Matrix products: C = alpha * A·B + beta * D for one matrix or a batch, any strides, any numeric dtype.
//
// The CPU's kernels use scratch slots 4 to 7; a caller may keep its own data in slots 0 to 3 meanwhile.
// An element's value depends on m, n, k and the layout alone, never on the number of threads.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

#include <cstdint>

namespace wisp::kernels {

// Strides count elements. A is m×k, B is k×n, C is m×n with neighbouring columns adjacent. D is what PyTorch calls
// `input` in addmm: a bias (a row or column stride of 0), any m×n matrix, or C itself; it is not read when beta is 0.
// C must not overlap A, B or, unless it is the same matrix, D.
struct GemmArgs {
    int64_t m, n, k;
    const void* a;
    int64_t a_row, a_col;
    const void* b;
    int64_t b_row, b_col;
    void* c;
    int64_t c_row;
    const void* d = nullptr;
    int64_t d_row = 0, d_col = 0;
    double alpha = 1, beta = 0;
    double alpha_imag = 0, beta_imag = 0;         // complex dtypes
    int64_t alpha_integer = 1, beta_integer = 0;  // integer dtypes use these two instead; products wrap around
    bool conj_a = false, conj_b = false;          // complex dtypes: use the conjugate of A, of B

    // Batch dimensions, outermost first; a stride of 0 repeats a matrix. Read only where batch_dims > 0.
    static constexpr int max_batch_dims = 8;
    int batch_dims = 0;
    int64_t batch_size[max_batch_dims], batch_a[max_batch_dims], batch_b[max_batch_dims], batch_c[max_batch_dims], batch_d[max_batch_dims];

    // Adds a batch dimension, outermost first, merging it with the one outside it where it can. False: no room.
    bool add_batch(int64_t size, int64_t a_stride, int64_t b_stride, int64_t c_stride, int64_t d_stride) {
        if (size == 1) return true;
        int t = batch_dims - 1;
        if (t >= 0 && batch_a[t] == a_stride * size && batch_b[t] == b_stride * size && batch_c[t] == c_stride * size &&
            (!d || batch_d[t] == d_stride * size)) {
            batch_size[t] *= size;
        } else {
            if (batch_dims == max_batch_dims) return false;
            t = batch_dims++;
            batch_size[t] = size;
        }
        batch_a[t] = a_stride, batch_b[t] = b_stride, batch_c[t] = c_stride, batch_d[t] = d_stride;
        return true;
    }
    // One B for all of A's batch, with rows that follow one another: a single, taller matrix.
    void fold_batch_into_rows() {
        while (batch_dims > 0) {
            const int t = batch_dims - 1;
            const bool d_fits = !d || batch_d[t] == m * d_row;
            if (batch_b[t] != 0 || batch_a[t] != m * a_row || batch_c[t] != m * c_row || !d_fits) return;
            m *= batch_size[t];
            batch_dims--;
        }
    }
};

struct GemmKernels {
    // bf16 and f16 accumulate in float and round once. bool and the wider unsigned dtypes are not supported.
    void (*matmul)(DType, const GemmArgs&);
    void (*f32)(const GemmArgs&);  // the same for one float matrix: no batch, fewest steps
    // The same, with the sum of each row of A beside it; false: nothing was done. Null where that saves nothing.
    bool (*f32_with_row_sums)(const GemmArgs&, void* row_sums);
};

}  // namespace wisp::kernels
