// Layout: sizes, strides and offset of a tensor, and all logic on them, for every backend.
#pragma once
#include <optional>

#include "dims.h"

namespace wisp {

enum class MemoryFormat : uint8_t { contiguous, channels_last, channels_last_3d, preserve };

struct Layout {
    Dims sizes, strides;
    int64_t offset = 0;  // in elements

    int64_t dim() const { return sizes.size(); }
    bool is_contiguous() const;
    bool is_contiguous(MemoryFormat format) const;
    bool is_non_overlapping_and_dense() const;
    bool may_overlap_itself() const;  // two indices may share an element (expanded, as_strided)
    int64_t extent() const;           // elements of storage spanned past the offset (0 for an empty tensor)

    Layout transpose(int64_t a, int64_t b) const;
    Layout permute(const Dims& dims) const;
    Layout expand(const Dims& sizes) const;  // -1 keeps a size
    Layout squeeze() const;
    Layout unsqueeze(int64_t at) const;
    Layout select(int64_t dim, int64_t index) const;                             // index within the range
    Layout slice(int64_t dim, int64_t start, int64_t stop, int64_t step) const;  // Python's clamping
    Layout unfold(int64_t dim, int64_t size, int64_t step) const;
    Layout diagonal(int64_t offset, int64_t dim1, int64_t dim2) const;
    std::optional<Layout> view(const Dims& sizes) const;  // nullopt: needs a copy
};

// Arithmetic on sizes and strides. Whatever a program passes ends here: `times` and `plus` refuse what does not fit into 64 bits;
// `wrapped` is for strides that reach no element (of size 1 or of an empty tensor), where any number will do.
[[noreturn, gnu::cold]] void refuse_size(int64_t a, char sign, int64_t b);
inline int64_t times(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) refuse_size(a, '*', b);
    return r;
}
inline int64_t plus(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) refuse_size(a, '+', b);
    return r;
}
inline int64_t wrapped(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }

int64_t product(const Dims& sizes);
Dims contiguous_strides(const Dims& sizes);
Dims strides_for(const Dims& sizes, MemoryFormat format);
// Strides of a fresh tensor that keeps the order of a dense one (PyTorch's preserve_format).
Dims strides_like(const Layout& layout);

// A dim in [-ndim, ndim), a 0-dim tensor counting as one dimension; IndexError otherwise.
int64_t wrap_dim(int64_t dim, int64_t ndim);
Dims wrap_dims(const Dims& dims, int64_t ndim);  // also refuses repetitions

Dims broadcast(const Dims& a, const Dims& b);  // RuntimeError if they don't fit
bool is_expandable(const Dims& from, const Dims& to);
// Strides of an operand of `sizes`/`strides` seen as the larger shape `to` (0 where broadcast).
Dims broadcast_strides(const Dims& sizes, const Dims& strides, const Dims& to);
Dims infer_size(const Dims& sizes, int64_t numel);  // resolves one -1; RuntimeError if it can't

}  // namespace wisp
