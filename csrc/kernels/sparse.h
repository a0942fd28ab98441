// Products with a sparse matrix in compressed rows: row r has the entries start[r] up to start[r + 1], each a column
// and a value. Dense matrices are contiguous; indices have been checked. Sums run in the order of the entries.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

struct CsrPattern {
    int64_t rows, columns, entries;
    const int64_t* start;  // rows + 1
    const int64_t* column;
};

struct SparseKernels {
    // out (rows, width) = matrix @ dense (columns, width). f32, f64 or i64.
    void (*product)(DType, const CsrPattern&, const void* values, const void* dense, void* out, int64_t width);
    // out[entry] = sum of left[row] * right[column]: the entries of left @ right^T that the pattern has.
    void (*sampled)(DType, const CsrPattern&, const void* left, const void* right, void* out, int64_t width);
    // The pattern of the transposed matrix, and which entry each of its entries was.
    void (*transpose)(const CsrPattern&, int64_t* start, int64_t* column, int64_t* order);
    // Whether `start` rises from 0 to the number of entries.
    bool (*rises)(const int64_t* start, int64_t rows, int64_t entries);
};

}  // namespace wisp::kernels
