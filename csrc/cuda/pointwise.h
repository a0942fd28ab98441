// Pointwise kernels of the GPU: rows of the table on operands of any layout and dtype, without an intermediate copy.
#pragma once
#include "../kernels/pointwise_call.h"

namespace wisp::cuda {

using Operand = PointwiseOperand;

void elementwise(Pointwise op, int which, DType compute, const Operand* operands, int count, const Dims& sizes, const Param* params);
void copy_elements(const Operand& to, const Operand& from, const Dims& sizes, bool conjugate);  // from may be a number

const char* row_name(Pointwise op);  // of the table: "exp"
const char* type_text(DType dtype);  // the name of the type in kernels: "float"

}  // namespace wisp::cuda
