// Cross entropy and negative log likelihood with class indices, forward and backward.
//
// Logits are contiguous (outer, classes, inner), targets (outer, inner). Each sample's loss, logsumexp and the gradient
// of each sample's loss are float for float and the half types, double for double. A target equal to ignore_index
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
};

struct LossKernels {
    // losses: per sample. logsumexp: per sample, for backward; may be null. total_weight: sum of the targets' weights.
    int64_t (*cross_entropy)(const LossArgs&, void* losses, void* logsumexp, double* total_weight);
    // grad_input from the gradient of each sample's loss (or, with one_grad, a single one) times `factor`.
    void (*cross_entropy_backward)(const LossArgs&, const void* logsumexp, const void* grad, bool one_grad, double factor,
                                   void* grad_input);
    int64_t (*nll)(const LossArgs&, void* losses, double* total_weight);
    void (*nll_backward)(const LossArgs&, const void* grad, bool one_grad, double factor, void* grad_input);
    double (*sum)(DType, const void* losses, int64_t n);  // of per-sample losses, in a fixed order
};

}  // namespace wisp::kernels
