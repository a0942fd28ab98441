// Rows of the pointwise table on operands of any layout and dtype: the interface of the family. Its tables of rows are the
// CPU's (pointwise.h); the GPU compiles a kernel for each call's row and dtypes.
#pragma once
#include "core/dims.h"
#include "kernels/pointwise.h"

namespace wisp::kernels {

inline Compute compute_index(DType d) {
    switch (d) {
    case DType::f32: return compute_f32;
    case DType::f64: return compute_f64;
    case DType::c64: return compute_c64;
    case DType::c128: return compute_c128;
    case DType::u64: return compute_u64;
    default: return compute_i64;
    }
}

// One operand of a call, the result being the first.
struct PointwiseOperand {
    char* data = nullptr;              // a number's too; null where the expression has no such operand
    DType dtype = DType::f32;          // in memory
    const int64_t* strides = nullptr;  // in elements, of the result's shape, 0 where broadcast; null: a number, not a tensor
    const void* number = nullptr;      // its value, of the type that is computed in, in the host's memory
};

constexpr int which_forward = 0;  // 1, 2, 3: the gradient of the first, second, third operand

struct PointwiseKernels {
    // operands[0..count): the result, then a, b, c, or for a gradient g, a, b, c, y. `compute`: what it is computed in; `result`:
    // what comes of that, before it is stored as the result's dtype.
    void (*row)(Pointwise op, int which, DType compute, DType result, const PointwiseOperand* operands, int count, const Dims& sizes,
                int64_t numel, const Param* params);
    // Result, condition, a, b.
    void (*where)(DType compute, const PointwiseOperand* operands, const Dims& sizes, int64_t numel);
};

}  // namespace wisp::kernels
