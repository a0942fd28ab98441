// Front door of connectionist temporal classification; nn.functional.ctc_loss checks its arguments and reduces the losses.
#include "../kernels/ctc.h"

#include "../python/registry.h"
#include "ops.h"

namespace wisp {
namespace {

struct Ctc {
    kernels::CtcShape shape;
    bool zero_infinity;
    // lengths (3, batch): of the inputs, of the targets, where the labels of each begin.
    static kernels::CtcTargets targets(const Tensor& labels, const Tensor& lengths) {
        const int64_t *at = lengths.device_data<int64_t>(), n = lengths.size(1);
        return {labels.device_data<int64_t>(), at, at + n, at + 2 * n};
    }
};

// The losses (batch) of log_probs (steps, batch, classes). The lengths have been checked.
Tensor ctc_losses(const Tensor& log_probs, const Tensor& targets, const Tensor& lengths, int64_t longest, int64_t blank,
                  bool zero_infinity) {
    const DType dtype = log_probs.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const Tensor p = contiguous(to(detach(log_probs), dtype)), labels = contiguous(targets), sizes = contiguous(lengths);
    if (p.dim() != 3 || longest < 0 || sizes.dim() != 2 || sizes.size(0) != 3 || sizes.size(1) != p.size(1))
        throw RuntimeError("_ctc_losses: expected log_probs of three dimensions, three lengths for each sample and a longest target");
    plus(times(2, longest), 1);  // the states of a sample
    const Ctc c{{p.size(0), p.size(1), p.size(2), longest, blank}, zero_infinity};
    const kernels::CtcShape& s = c.shape;
    const Tensor alpha = empty({s.batch, s.steps, s.states()}, dtype), losses = empty({s.batch}, dtype);
    {
        Unlocked unlocked(16 * alpha.numel());
        kernels::ctc().forward(dtype, s, c.targets(labels, sizes), p.device_data(), alpha.device_data(), losses.device_data());
    }
    const Tensor out = to(losses, log_probs.dtype());
    if (needs_grad(log_probs))
        record(out, "CtcLossBackward0", {log_probs}, {p, labels, sizes, alpha, losses}, [c](Backward& bw) {
            if (bw.create_graph) throw RuntimeError("derivative for ctc_loss's backward is not implemented");
            const Tensor p = bw.saved(0), alpha = bw.saved(3), losses = bw.saved(4), dp = empty(p.sizes(), p.dtype());
            const Tensor g = contiguous(to(bw.grad(), p.dtype()));
            Unlocked unlocked(16 * alpha.numel());
            kernels::ctc().backward(p.dtype(), c.shape, c.targets(bw.saved(1), bw.saved(2)), p.device_data(), alpha.device_data(),
                                    losses.device_data(), g.device_data(), c.zero_infinity, dp.device_data());
            bw.set(0, dp);
        });
    return out;
}

}  // namespace

static const Operators operators = {
    {"_ctc_losses(Tensor log_probs, Tensor targets, Tensor lengths, int longest, int blank, bool zero_infinity)", ctc_losses, function},
};

}  // namespace wisp
