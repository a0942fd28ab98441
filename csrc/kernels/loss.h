// Cross entropy and negative log likelihood with class indices, forward and backward.
//
// Logits are contiguous (outer, classes, inner), targets (outer, inner). Each sample's loss, logsumexp and the gradient
// of each sample's loss are float for float and the half types, double for double. The logsumexp of a sample is two numbers, its largest
// logit and the logarithm of the sum relative to that: their sum would round off what makes the loss. A target equal to ignore_index
// counts nothing. Functions that check targets return the first that is out of range, or -1.
#pragma once
#include "core/dtype.h"
#include "kernels/families.h"

namespace wisp::kernels {

struct LossArgs {
    DType dtype;
    int64_t outer, classes, inner;
    const void* input;  // logits, or log-probabilities for nll
    const int64_t* target;
    const void* weight;  // one per class, in `dtype`; may be null
    int64_t ignore_index;
    double label_smoothing;  // cross entropy only
    bool entropy;            // cross entropy, not nll
    DType gradient = dtype;  // of grad_input: float for halves that the caller has as floats, on the GPU, without weights and inner
};

struct LossKernels {
    // losses, logsumexp (two numbers, for backward; may be null): per sample, in the dtype that is computed in. result (likewise, or null):
    // the sum of the losses, over the sum of the targets' weights if `total` is given, which gets that.
    // A target that is out of range: its position, else -1; or, on the GPU, raised at the next synchronisation.
    int64_t (*forward)(const LossArgs&, void* losses, void* logsumexp, void* result, double* total);
    // grad_input from the gradient of each sample's loss, or with one_grad a single one, over *total where it is given.
    void (*backward)(const LossArgs&, const void* logsumexp, const void* grad, bool one_grad, const double* total, void* grad_input);
};

}  // namespace wisp::kernels
