// Cross entropy and nll with class indices on the GPU. Nothing comes back to the host: what the CPU's kernels return as
// numbers stays on the device, and a bad target is raised at the next synchronisation.
#pragma once
#include "../kernels/loss.h"

namespace wisp::cuda {

// Per sample: the loss, the logsumexp (or null), and the weight that its target has in a mean. `result`, of their
// dtype, gets the sum of the losses; where `total` is given too, it gets the sum of the weights, and the result is over it.
void class_loss(const LossArgs& args, bool entropy, void* losses, void* logsumexp, void* shares, void* result, void* total);
// grad: one for all samples, or one each; total: what it is divided by, on the device, or null.
void class_loss_backward(const LossArgs& args, bool entropy, const void* logsumexp, const void* grad, bool one, const void* total,
                         void* grad_input);

}  // namespace wisp::cuda
