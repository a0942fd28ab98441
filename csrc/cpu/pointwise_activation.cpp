// Kernels of the table's part activation.h.
#include "pointwise_rows.h"

namespace wisp::cpu::WISP_ISA {
namespace {
#include "../ops/table/activation.h"
}  // namespace

#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef TERNARY
#define UNARY(name, ...) make_row<name##_row>(),
#define ACTIVATION UNARY
#define BINARY UNARY
#define TERNARY UNARY
extern const ActivationKernels pointwise_activation_table;
const ActivationKernels pointwise_activation_table = {{
#include "../ops/table/activation.h"
}};

}  // namespace wisp::cpu::WISP_ISA
