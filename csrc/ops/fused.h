// What the fused families (softmax, norms, losses, attention, dropout) share with each other.
#pragma once
#include "ops.h"

namespace wisp {

Tensor softmax(const Tensor& x, int64_t dim);
Tensor log_softmax(const Tensor& x, int64_t dim);
Tensor dropout(const Tensor& x, double p, bool training);
Tensor dropout_of(const Tensor& x, double p, uint64_t seed, uint64_t offset);  // by the numbers of a given draw

// The values of t for a kernel: contiguous, of the given dtype, without history.
inline Tensor kernel_input(const Tensor& t, DType dtype) {
    if (!t || (t.is_contiguous() && t.dtype() == dtype)) return t;
    GradMode off(false);
    return contiguous(to(t, dtype));
}
inline Tensor kernel_input(const Tensor& t) { return t ? kernel_input(t, t.dtype()) : t; }
inline void* pointer(const Tensor& t) { return t ? t.device_data() : nullptr; }

inline void check_floating(const char* kernel, const Tensor& t) {
    if (!is_floating(t.dtype()))
        throw NotImplemented('"', kernel, "\" not implemented for '", type_name(t.dtype()),
                             "': it takes floating point, so convert with .float()");
}

}  // namespace wisp
