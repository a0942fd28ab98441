// Where and how a tensor's elements lie. Front doors with kernels for channels-last tensors keep them so from input to result.
#pragma once
#include "ops.h"

namespace wisp {

bool channels_come_last(const Layout& layout);  // by the order of the strides of 4 or 5 dims
// channels_last or channels_last_3d if t's strides are in that order, else contiguous. Sizes of 1 may leave the order of the elements open,
// never that of the strides; a part of a channels-last tensor has its order too.
inline MemoryFormat format_of(const Tensor& t) {
    const int64_t dims = t.dim();
    if (dims < 4 || dims > 5 || (t.is_contiguous() && t.stride(1) != 1)) return MemoryFormat::contiguous;
    return channels_come_last(t.layout()) ? dims == 5 ? MemoryFormat::channels_last_3d : MemoryFormat::channels_last
                                          : MemoryFormat::contiguous;
}
// The values of t in a format, without history.
inline Tensor values_in(const Tensor& t, MemoryFormat format) {
    if (format == MemoryFormat::contiguous ? t.is_contiguous() : t.layout().is_contiguous(format)) return t;
    GradMode off(false);
    return contiguous(alias(t), format);
}
// A result that a kernel made contiguous, laid out as empty_like(x) is.
inline Tensor laid_out_as(const Tensor& x, const Tensor& result) {
    if (x.is_contiguous()) return result;
    const Tensor out = empty_strided(x.sizes(), strides_like(x.layout()), result.dtype());
    copy_values(out, result);
    return out;
}
// The same in a format, with the strides that a tensor made in it has even where sizes of 1 leave them open.
inline Tensor result_in(const Tensor& result, MemoryFormat format) {
    if (format == MemoryFormat::contiguous) return result;
    const Dims strides = strides_for(result.sizes(), format);
    if (result.strides() == strides) return result;
    if (result.layout().is_contiguous(format))
        return from_storage(result.storage(), Layout{result.sizes(), strides, result.offset()}, result.dtype());
    return values_in(result, format);
}
inline Tensor empty_in(const Dims& sizes, DType dtype, MemoryFormat format) {
    return format == MemoryFormat::contiguous ? empty(sizes, dtype) : empty_strided(sizes, strides_for(sizes, format), dtype);
}

// In deterministic mode memory that nothing was written to is NaN, or the largest number.
extern bool fill_new_memory;
extern int undetermined;  // what deterministic mode does about operators that PyTorch has no such algorithm for: 1 warns, 2 refuses
void alert_undetermined(const char* name);
Tensor fill_unset(const Tensor& t);

Tensor pinned(const Tensor& t);  // in pinned memory, from which copies to a GPU run beside the host

}  // namespace wisp
