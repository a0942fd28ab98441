// Connectionist temporal classification: the likelihood of targets under all their alignments with a sequence, and its gradient.
#pragma once
#ifndef __CUDACC_RTC__  // the GPU's compiler gets this text too
#include <cstdint>

#include "core/dtype.h"
#include "kernels/families.h"
#endif

namespace wisp::kernels {

// The states of a sample are blank, label 1, blank, label 2, …, blank: 2 * target length + 1 of them.
struct CtcShape {
    int64_t steps, batch, classes, longest, blank;  // longest: of the targets
    int64_t states() const { return 2 * longest + 1; }
};
struct CtcTargets {
    const int64_t* labels;
    const int64_t *input_lengths, *target_lengths, *starts;  // of each sample; where its labels begin
};

#ifndef __CUDACC_RTC__
// float and double. log_probs and its gradient are (steps, batch, classes), alpha is (batch, steps, states), losses (batch).
struct CtcKernels {
    // alpha: the logarithm of the likelihood of all ways into a state at a step. A loss is infinite where there is no alignment.
    void (*forward)(DType, const CtcShape&, const CtcTargets&, const void* log_probs, void* alpha, void* losses);
    // As in PyTorch, the gradient is that of logits behind a log_softmax. zero_infinity: none of an infinite loss.
    void (*backward)(DType, const CtcShape&, const CtcTargets&, const void* log_probs, const void* alpha, const void* losses,
                     const void* grad, bool zero_infinity, void* log_probs_grad);
};
#endif

}  // namespace wisp::kernels
