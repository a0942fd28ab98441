// Notes that kernels of their own run, between programs.
#include "../kernels/reduce.h"
#include "../ops/ops.h"
#include "tape.h"

namespace wisp::compile {

namespace {

void reduce(const Note& n, const char* in, char* out) {
    const Operand& o = n.operands[0];
    kernels::ReduceArguments a{};
    a.in = in;
    a.in_dtype = o.dtype;
    a.sizes = o.layout.sizes.data();
    a.strides = o.layout.strides.data();
    a.ndim = int(o.layout.sizes.size());
    a.reduced = n.reduced;
    a.out = out;
    a.out_dtype = n.step.result;
    a.divisor = n.step.divisor;
    kernels::reduce().reduce(n.step.reduction, a);
}

}  // namespace

kernels::ProgramStep loss_step(const kernels::LossArgs& a, bool one_gradient, bool has_total) {
    kernels::ProgramStep step;
    step.kind = kernels::StepKind::loss;
    step.compute = step.block = step.result = a.gradient;
    step.has_params = true;
    step.params = {{{0, 0, a.outer}, {0, 0, a.classes}, {a.label_smoothing, 0, a.ignore_index}, {double(one_gradient), 0, has_total}}};
    return step;
}

void run_call(const Note& n, char* const* operands, DType result, char* out) {
    if (n.reduced) return reduce(n, operands[0], out);
    const auto& p = n.step.params;
    const auto* target = reinterpret_cast<const int64_t*>(operands[1]);
    const kernels::LossArgs a = {n.operands[0].dtype, p[0].integer, p[1].integer, 1,     operands[0], target, nullptr,
                                 p[2].integer,        p[2].real,    true,         result};
    // As csrc/ops/loss.cpp keeps them: the sum of the weights, and from 16 bytes on the logarithms.
    const auto* kept = reinterpret_cast<const double*>(operands[2]);
    kernels::loss().backward(a, kept + 2, operands[3], p[3].real != 0, p[3].integer ? kept : nullptr, out);
}

}  // namespace wisp::compile
