// Kernels of the table's part activation.h.
#include "pointwise_rows.h"

namespace wisp::cpu::WISP_ISA {
namespace {
#include "../ops/table/activation.h"
}  // namespace

#include "pointwise_make_rows.h"
extern const ActivationKernels pointwise_activation_table;
const ActivationKernels pointwise_activation_table = {{
#include "../ops/table/activation.h"
}};

}  // namespace wisp::cpu::WISP_ISA
