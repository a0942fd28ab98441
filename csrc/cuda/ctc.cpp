// Launches the kernels of CTC.
#include "../kernels/ctc.h"

#include <algorithm>

#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

template <int Which> Kernel* typed(const char* name, DType d) {
    static Instances<16> instances("cuda/kernels/ctc.cuh");
    return instances(int(d), [&] { return str(name, "<", type_text(d), ">"); });
}

unsigned threads_for(const CtcShape& s) { return unsigned(std::min<int64_t>((s.states() + 31) / 32 * 32, 1024)); }

const char* const name = "ctc_loss (targets)";

void forward(DType d, const CtcShape& s, const CtcTargets& t, const void* log_probs, void* alpha, void* losses) {
    if (s.batch)
        launch_with(typed<0>("ctc_forward", d), {unsigned(s.batch)}, {threads_for(s)}, 0, s, t, log_probs, alpha, losses, name,
                    report_cell());
}

void backward(DType d, const CtcShape& s, const CtcTargets& t, const void* log_probs, const void* alpha, const void* losses,
              const void* grad, bool zero_infinity, void* log_probs_grad) {
    if (s.batch * s.steps * s.classes == 0) return;
    const size_t row = size_t(s.batch * s.states() * item_size(d));
    Scratch beta(2 * row), both(row * size_t(s.steps));
    launch_with(typed<1>("ctc_through", d), {unsigned(s.batch)}, {threads_for(s)}, 0, s, t, log_probs, alpha, beta.data(), both.data());
    launch_with(typed<2>("ctc_gradient", d), {unsigned(s.batch * s.steps)}, {128}, 0, s, t, log_probs, both.data(), losses, grad,
                int(zero_infinity), log_probs_grad);
}

}  // namespace

const CtcKernels ctc = {forward, backward};

}  // namespace wisp::cuda
