// Pointwise kernels: for every row of the table (csrc/ops/table), loops over contiguous blocks of one compute type.
// The driver in csrc/cpu/pointwise.cpp brings operands of any layout and dtype into such blocks.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

// A number given with the call, ready for every compute type.
struct Param {
    double real = 0, imag = 0;
    int64_t integer = 0;
};

// pointers[0] is the result; then the operands: a (b, c), or for a gradient: g, a, b, c, y. Unused ones may be anything valid.
// constants: bit k says that operand k is one number for all elements; only kernels that takes_constants() look at it.
using PointwiseKernel = void (*)(char* const* pointers, int64_t n, const Param* params, unsigned constants);

// Forward kernels of two operands of these types read a constant in place; the others want it spread over a block.
constexpr bool takes_constants(int arity, DType compute) { return arity == 2 && (compute == DType::f32 || compute == DType::f64); }

enum Compute : int { compute_f32, compute_f64, compute_c64, compute_c128, compute_i64, compute_u64, compute_count };

struct PointwiseKernelRow {
    PointwiseKernel forward[compute_count];
    PointwiseKernel gradient[3][4];  // by operand, for floating and complex compute types
};

// One number per row; the three parts of the table follow each other.
enum class Pointwise : int {
#define UNARY(name, ...) name,
#define ACTIVATION(name, ...) name,
#define BINARY(name, ...) name,
#define TERNARY(name, ...) name,
#include "../ops/table/unary.h"
#include "../ops/table/activation.h"
#include "../ops/table/binary.h"
#undef UNARY
#undef ACTIVATION
#undef BINARY
#undef TERNARY
    count
};
#define UNARY(...) +1
#define ACTIVATION(...) +1
constexpr int unary_count = 0
#include "../ops/table/unary.h"
    ;
constexpr int activation_count = 0
#include "../ops/table/activation.h"
    ;
#undef UNARY
#undef ACTIVATION

struct UnaryKernels {
    PointwiseKernelRow rows[unary_count];
};
struct ActivationKernels {
    PointwiseKernelRow rows[activation_count];
};
struct BinaryKernels {
    PointwiseKernelRow rows[int(Pointwise::count) - unary_count - activation_count];
    PointwiseKernel where[5];  // of elements of 1, 2, 4, 8, 16 bytes: condition (bool), a, b
};

}  // namespace wisp::kernels

namespace wisp::cpu {
inline const PointwiseKernelRow& pointwise_row(Pointwise op) {
    const int row = int(op);
    if (row < unary_count) return pointwise_unary.rows[row];
    if (row < unary_count + activation_count) return pointwise_activation.rows[row - unary_count];
    return pointwise_binary.rows[row - unary_count - activation_count];
}
}  // namespace wisp::cpu
