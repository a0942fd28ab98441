// Front doors of dropout. The mask is never stored: backward draws the same numbers again.
#include "../kernels/dropout.h"

#include "../compile/tape.h"
#include "../core/generator.h"
#include "../python/registry.h"
#include "format.h"
#include "fused.h"

namespace wisp {
namespace {

void check_probability(double p) {
    if (!(p >= 0 && p <= 1)) throw ValueError("dropout probability has to be between 0 and 1, but got ", p);
}

Tensor dropout_(const Tensor& x, double p, bool training) {
    check_probability(p);
    if (!training || p == 0) return x;
    return mul_(x, dropout(ones(x.sizes(), is_complex(x.dtype()) ? real_of(x.dtype()) : x.dtype()), p, true));
}

}  // namespace

// In a compiled region of a GPU it waits for others that it is fused with. Random numbers belong to elements in the order of their
// indices, so that the result is contiguous where eager's lies as x does.
static bool note_dropout(const Tensor& y, const Tensor& x, uint64_t seed, uint64_t offset, uint64_t threshold, double scale) {
    if (!x.is_cuda() || x.dim() == 0 || x.stride(-1) != 1) return false;
    kernels::ProgramStep step;
    step.kind = kernels::StepKind::dropout;
    step.compute = step.block = compute_dtype(x.dtype());
    step.result = x.dtype();
    step.has_params = true;
    step.params = kernels::dropout_parameters(seed, offset, threshold, scale);
    const Arg operand(x);
    return compile::note(y, step, &operand, 1);
}

// Linear in x, so the gradient is the same function of the incoming gradient.
Tensor dropout_of(const Tensor& x, double p, uint64_t seed, uint64_t offset) {
    Tensor y = empty(x.sizes(), x.dtype());
    const double scale = 1 / (1 - p);
    const uint64_t threshold = uint64_t(std::llround((1 - p) * 4294967296.0));
    if (!noting || !note_dropout(y, x, seed, offset, threshold, scale)) {
        const Tensor in = kernel_input(x);
        {
            Unlocked unlocked(x.numel());
            kernels::dropout().apply(x.dtype(), in.device_data(), y.device_data(), x.numel(), {seed, offset}, threshold, scale);
        }
        y = laid_out_as(x, y);
    }
    if (needs_grad(x))
        // As PyTorch's product with a mask looks from outside; the mask is drawn again instead of kept.
        record(y, x.is_cuda() ? "NativeDropoutBackward0" : "MulBackward0", {x, Tensor()}, {},
               [p, seed, offset](Backward& bw) { bw.set(0, dropout_of(bw.grad(), p, seed, offset)); });
    return y;
}

Tensor dropout(const Tensor& x, double p, bool training) {
    check_probability(p);
    if (!training || p == 0 || x.numel() == 0) return x;
    if (p == 1) return x * zeros({}, x.dtype());
    if (is_complex(x.dtype())) return x * dropout(ones(x.sizes(), real_of(x.dtype())), p, true);
    if (!is_floating(x.dtype())) throw RuntimeError("result type Float can't be cast to the desired output type ", type_name(x.dtype()));
    Generator& g = default_generator();
    return dropout_of(x, p, g.seed, g.next());
}

static const Operators operators = {
    {"dropout(Tensor input, float p, bool train)", [](const Tensor& x, double p, bool training) { return dropout(x, p, training); },
     function | draws | elementwise | keeps_zero,
     R"(In training, zeros with probability `p`, and the rest scaled to keep the mean; else the input.
        >>> wisp.dropout(wisp.ones(3), 0.5, False)
        tensor([1., 1., 1.]))"},
    {"dropout_(Tensor input, float p, bool train)", dropout_, function | draws | elementwise},
    {"nn.functional.dropout(Tensor input, float p=0.5, bool training=True, bool inplace=False)",
     [](const Tensor& x, double p, bool training, bool inplace) { return inplace ? dropout_(x, p, training) : dropout(x, p, training); },
     function | draws | elementwise | keeps_zero,
     R"(In training, zeros with probability `p`, and the rest scaled to keep the mean; else the input.
        >>> wisp.nn.functional.dropout(wisp.ones(3), 0.5, training=False)
        tensor([1., 1., 1.]))"},
};

}  // namespace wisp
