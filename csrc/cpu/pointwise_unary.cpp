// Kernels of the table's part unary.h.
#include "pointwise_rows.h"

namespace wisp::cpu::WISP_ISA {
namespace {
#include "../ops/table/unary.h"
}  // namespace

#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef TERNARY
#define UNARY(name, ...) make_row<name##_row>(),
#define ACTIVATION UNARY
#define BINARY UNARY
#define TERNARY UNARY
extern const UnaryKernels pointwise_unary_table;
const UnaryKernels pointwise_unary_table = {{
#include "../ops/table/unary.h"
}};

}  // namespace wisp::cpu::WISP_ISA
