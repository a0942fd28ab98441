// A fused program: rows of the pointwise table, casts, choices and reductions of rows, run one after another on pieces that stay
// near the processor (in its cache, in registers), so that only what comes in and what is kept goes through memory.
//
// The steps work on one shape. A value of it is full, or has one element for each row of the last dimension (`by_row`): what a
// reduction gives, and what is computed from that. Steps use the values before them: first come the inputs, then the steps.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "core/dims.h"
#include "kernels/pointwise.h"
#include "kernels/reduce.h"

namespace wisp::kernels {

struct ProgramInput {
    char* data = nullptr;
    DType dtype = DType::f32;
    Dims strides;          // of the program's shape, 0 where broadcast
    char number[16] = {};  // its value, if it is a number: then there is no data
    // A part of a joined tensor exists for some indices of a dimension alone, and is read there. Programs of the GPU have such inputs.
    int axis = -1;
    int64_t from = 0, to = 0;
};

// Of the GPU's programs alone: join: several tensors one behind the other along a dimension; dropout: by the random number of the
// element's index, see dropout_parameters; columns: the sum of all rows, which is kept and of no use to other steps; loss: the gradient of
// a cross entropy, which is noted, but run by a kernel of its own.
enum class StepKind : uint8_t { row, where, cast, reduce, join, dropout, columns, loss };

struct ProgramStep {
    static constexpr int most = 5;  // operands
    StepKind kind = StepKind::row;
    bool by_row = false;
    int8_t which = 0;  // which_forward, or the gradient of an operand
    Pointwise op{};
    DType compute = DType::f32, block = DType::f32;  // what a row computes in, and what comes of that
    DType result = DType::f32;                       // what it is rounded to, for memory and for the steps that use it
    int count = 0;
    std::array<int, most> in{};  // values; -1: the expression has no such operand
    bool has_params = false;     // others are 0
    std::array<Param, 4> params{};
    Reduction reduction{};  // of the rows of the operand, which is full
    double divisor = 1;
    int8_t axis = 0;                   // of a join
    std::array<int64_t, most> ends{};  // where its parts end along that
    char* out = nullptr;               // where the value is kept, contiguous; null: only later steps use it
};

// Of dropout: the stream (kernels/random.h), below which of 2^32 a number keeps its element, and what that is multiplied by.
inline std::array<Param, 4> dropout_parameters(uint64_t seed, uint64_t offset, uint64_t threshold, double scale) {
    return {{{0, 0, int64_t(seed)}, {0, 0, int64_t(offset)}, {0, 0, int64_t(threshold)}, {scale, 0, 0}}};
}

// What a device makes of a program when it is first run.
struct Prepared {
    virtual ~Prepared() = default;
};

// It is run more than once, each time with other memory, numbers and parameters in the same places.
struct Program {
    Dims sizes;  // the outputs are contiguous in this order of dimensions
    std::vector<ProgramInput> inputs;
    std::vector<ProgramStep> steps;
    mutable std::unique_ptr<Prepared> prepared;
};

struct ProgramKernels {
    void (*run)(const Program& program);
    // Two of which neither needs the other, in one launch if they are alike. Null: the device has no launches.
    void (*run_both)(const Program& first, const Program& second) = nullptr;
};

}  // namespace wisp::kernels
