// Pointwise kernels of the GPU: rows of the table on operands of any layout and dtype, without an intermediate copy.
#pragma once
#include "../core/dims.h"
#include "../kernels/pointwise.h"

namespace wisp::cuda {

// One operand of a call, the result being the first.
struct Operand {
    char* data = nullptr;              // on the device; null where the expression has no such operand
    DType dtype = DType::f32;          // in memory
    const int64_t* strides = nullptr;  // in elements, of the result's shape, 0 where broadcast; null: a number, not a tensor
    const void* number = nullptr;      // its value, of the compute type
};

constexpr int which_forward = 0;  // 1, 2, 3: the gradient of the first, second, third operand

// operands[0..count): the result, then a, b, c, or for a gradient g, a, b, c, y. `compute`: what it is computed in.
void elementwise(Pointwise op, int which, DType compute, const Operand* operands, int count, const Dims& sizes, const Param* params);
void where(DType compute, const Operand* operands, const Dims& sizes);                          // result, condition, a, b
void copy_elements(const Operand& to, const Operand& from, const Dims& sizes, bool conjugate);  // from may be a number

const char* type_text(DType dtype);  // the name of the type in kernels: "float"

}  // namespace wisp::cuda
