// Layouts of up to three tensors of one shape, as kernels/index_shape.cuh takes them, and the kernels that other files than index.cpp have.
#pragma once
#include "../core/errors.h"
#include "../kernels/index.h"
#include "divider.h"

namespace wisp::cuda {

constexpr int max_dims = 25;

struct Shape {
    int dims = 0, small = 0;
    Divider by[max_dims] = {};
    int64_t sizes[max_dims] = {}, a[max_dims] = {}, b[max_dims] = {}, c[max_dims] = {};
    void add(int64_t size, int64_t sa, int64_t sb, int64_t sc) {  // from the innermost outwards
        if (size == 1) return;
        if (dims && a[dims - 1] * sizes[dims - 1] == sa && b[dims - 1] * sizes[dims - 1] == sb && c[dims - 1] * sizes[dims - 1] == sc) {
            sizes[dims - 1] *= size;
            return finish();
        }
        if (dims == max_dims)
            throw RuntimeError("indexing: more than ", max_dims, " dimensions that cannot be merged are not supported on cuda");
        sizes[dims] = size, a[dims] = sa, b[dims] = sb, c[dims++] = sc;
        finish();
    }
    void finish() {
        int64_t all = 1, last[3] = {0, 0, 0};
        for (int d = 0; d < dims; d++) {
            all *= sizes[d];
            last[0] += (sizes[d] - 1) * a[d];
            last[1] += (sizes[d] - 1) * b[d];
            last[2] += (sizes[d] - 1) * c[d];
        }
        constexpr int64_t limit = int64_t(1) << 31;
        small = all >= limit ? 0 : last[0] < limit && last[1] < limit && last[2] < limit ? 2 : 1;
        by[dims - 1] = divider(uint32_t(sizes[dims - 1]));
    }
};

// scatter.cpp
// Row k of values, `value_step` after the row before it, is added to the row at index[k * step] * along, for indices below `size`; rows
// have `width` elements side by side and do not overlap. False: there is a better way.
bool add_rows(float* out, const int64_t* index, int64_t n, int64_t step, int64_t along, int64_t size, const float* values,
              int64_t value_step, int64_t width, const char* name, void* report);
void scatter(Scatter how, void* out, DType dtype, const int64_t* out_strides, const int64_t* index, const int64_t* index_strides,
             const void* values, const int64_t* value_strides, const int64_t* sizes, int ndim, int dim, int64_t size, const char* name);
// scan.cpp
void masked_select(void* out, const void* in, const bool* mask, int64_t n, int64_t count, int64_t item);
void masked_scatter(void* out, const bool* mask, const void* values, int64_t n, int64_t item);
void nonzero(int64_t* out, int64_t row_step, int64_t column_step, const bool* mask, const int64_t* sizes, int ndim, int64_t count);

}  // namespace wisp::cuda
