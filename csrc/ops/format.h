// Where and how a tensor's elements lie. Front doors with kernels for channels-last tensors keep them so from input to result.
#pragma once
#include "ops.h"

namespace wisp {

// channels_last or channels_last_3d if t's elements lie so (and not contiguously), else contiguous.
inline MemoryFormat format_of(const Tensor& t) {
    if (t.is_contiguous()) return MemoryFormat::contiguous;
    const MemoryFormat last = t.dim() == 5 ? MemoryFormat::channels_last_3d : MemoryFormat::channels_last;
    return t.layout().is_contiguous(last) ? last : MemoryFormat::contiguous;
}
// The values of t in a format, without history.
inline Tensor values_in(const Tensor& t, MemoryFormat format) {
    if (format == MemoryFormat::contiguous ? t.is_contiguous() : t.layout().is_contiguous(format)) return t;
    GradMode off(false);
    return contiguous(alias(t), format);
}
inline Tensor empty_in(const Dims& sizes, DType dtype, MemoryFormat format) {
    return format == MemoryFormat::contiguous ? empty(sizes, dtype) : empty_strided(sizes, strides_for(sizes, format), dtype);
}

Tensor pinned(const Tensor& t);  // in pinned memory, from which copies to a GPU run beside the host

}  // namespace wisp
