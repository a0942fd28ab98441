// Kernels of the table's part unary.h.
#include "pointwise_rows.h"

namespace wisp::cpu::WISP_ISA {
namespace {
#include "../ops/table/unary.h"
}  // namespace

#include "pointwise_make_rows.h"
extern const UnaryKernels pointwise_unary_table;
const UnaryKernels pointwise_unary_table = {{
#include "../ops/table/unary.h"
}};

}  // namespace wisp::cpu::WISP_ISA
