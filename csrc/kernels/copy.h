// Moving elements: between layouts, between dtypes, and (the CPU's alone) into and out of the small contiguous blocks
// that the pointwise driver computes on. Strides count elements, and may be 0 or negative.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

struct CopyKernels {
    // n contiguous elements to another dtype as PyTorch converts: floats are cut to integers, anything but 0 is
    // true, a complex number gives its real part. The same dtype is a plain copy.
    void (*convert)(void* dst, DType dst_dtype, const void* src, DType src_dtype, int64_t n);
    // What n contiguous floats are once they have been of a narrower dtype.
    void (*round)(float* dst, const float* src, DType dtype, int64_t n);

    // Strided to contiguous and back, for elements of `item` bytes (1, 2, 4, 8, 16).
    void (*gather_block)(void* dst, const void* src, int64_t src_stride, int64_t item, int64_t n);
    void (*scatter_block)(void* dst, int64_t dst_stride, const void* src, int64_t item, int64_t n);

    // dst = src element by element; conjugate: of complex elements. dst and src don't overlap.
    void (*copy)(void* dst, DType dst_dtype, const int64_t* dst_strides, const void* src, DType src_dtype, const int64_t* src_strides,
                 const int64_t* sizes, int ndim, bool conjugate);

    // The same for contiguous elements of one dtype, in bytes; they may overlap.
    void (*copy_bytes)(void* dst, const void* src, size_t bytes);

    // Every element of dst = the one of its dtype at value, which is the host's memory; of contiguous ones, all bits 0.
    void (*fill)(void* dst, DType dtype, const int64_t* strides, const int64_t* sizes, int ndim, const void* value);
    void (*zero)(void* dst, size_t bytes);

    // Rows side by side: row r of dst is the rows r of all parts, of so many bytes each. Null: the front door does it.
    void (*join)(void* dst, const void* const* parts, const int64_t* bytes, int64_t count, int64_t rows);
};

}  // namespace wisp::kernels
