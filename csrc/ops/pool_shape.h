// What front doors of pooling share: the shapes of planes and windows, formats, checks of their arguments.
#pragma once
#include "../autograd/whole.h"
#include "../kernels/pool.h"

#include "../python/registry.h"
#include "format.h"

namespace wisp::pooling {

using kernels::PoolShape;

// Without history, in a format and a dtype that the kernels know.
inline Tensor widened(const Tensor& t, MemoryFormat format = MemoryFormat::contiguous) {
    return values_in(is_reduced(t.dtype()) && !kernels::pool().any_format ? to(alias(t), DType::f32) : t, format);
}

// The format of a pool's result; with kernels of any_format it is the shape's already.
inline MemoryFormat format_for(const Tensor& input, int dims) {
    return input.dim() == dims + 2 ? format_of(input) : MemoryFormat::contiguous;
}

inline void check_floating(const char* op, const Tensor& t) {
    if (!is_floating(t.dtype())) throw NotImplemented('"', op, "\" not implemented for '", type_name(t.dtype()), "'");
}

inline Dims expand_option(const char* op, const char* name, const Dims& given, int dims) {
    if (given.size() == dims) return given;
    if (given.size() == 1) return Dims(dims, given[0]);
    const char* tuple = dims == 1 ? "one int" : dims == 2 ? "two ints" : "three ints";
    const bool optional = std::string_view(name) == "stride";
    throw RuntimeError(op, ": ", name, " must either be ", optional ? "omitted, " : "", "a single int, or a tuple of ", tuple);
}

inline std::string times(const Dims& d) {
    std::string s;
    for (int64_t i = 0; i < d.size(); ++i) s += (i ? "x" : "") + std::to_string(d[i]);
    return s;
}

// [channels, in...] or [batch, channels, in...], where only the batch may be empty.
inline void check_input(const char* op, int dims, const Tensor& input) {
    bool valid = input.dim() == dims + 1 || input.dim() == dims + 2;
    for (int64_t d = input.dim() == dims + 2 ? 1 : 0; valid && d < input.dim(); ++d) valid = input.size(d) > 0;
    if (!valid)
        throw RuntimeError(op, ": Expected ", dims + 1, "D or ", dims + 2,
                           "D (batch mode) tensor with optional 0 dim batch size for input, but got:", input.sizes());
}

inline PoolShape plane_shape(int dims, const Tensor& input) {
    PoolShape s{};
    s.planes = s.inner = 1;
    for (int64_t d = 0; d < input.dim() - dims; ++d) s.planes *= input.size(d);
    for (int d = 0; d < 3; ++d) {
        s.in[d] = s.out[d] = s.kernel[d] = s.stride[d] = s.dilation[d] = 1;
        s.padding[d] = 0;
        if (d >= 3 - dims) s.in[d] = input.size(d - 3);
    }
    return s;
}

inline Dims output_sizes(const Tensor& input, int dims, const PoolShape& s) {
    Dims sizes = input.sizes();
    for (int d = 3 - dims; d < 3; ++d) sizes[input.dim() + d - 3] = s.out[d];
    return sizes;
}

struct MaxPooled {
    Tensor values, indices;  // indices only if asked for
};

// Pooling along one dimension is recorded as PyTorch does it: of pictures with one row.
template <class F> Tensor recorded_as_row(const char* name, const Tensor& input, F&& pool) {
    if (!needs_grad(input)) return pool(input);
    const Tensor rows = unsqueeze(input, -2);
    return squeeze(whole(name, {rows}, [&] { return unsqueeze(pool(squeeze(rows, {-2})), -2); }), {-2});
}

inline FirstOrBoth as_asked(const MaxPooled& r, bool with_indices) { return {r.values, with_indices ? r.indices : Tensor()}; }

// The gradient of a max pool, which goes to the elements that were chosen.
void record_max(const Tensor& out, const char* name, const Tensor& input, const Tensor& chosen, const PoolShape& s);

}  // namespace wisp::pooling
