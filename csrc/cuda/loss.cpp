// Launches the kernels of class losses.
#include "loss.h"

#include "../core/errors.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/loss.cuh";

struct Arguments {  // as in the kernels
    int64_t outer, classes, inner, ignore_index;
    double smoothing;
    const char* name;
    void* report;
};

Arguments arguments(const cpu::LossArgs& a) {
    return {a.outer, a.classes, a.inner, a.ignore_index, a.label_smoothing, "cross_entropy or nll_loss (target)", report_cell()};
}

std::string instance(const char* name, DType d, bool entropy) { return str(name, "<", type_text(d), ", ", entropy ? "true" : "false", ">"); }

}  // namespace

void class_loss(const cpu::LossArgs& a, bool entropy, void* losses, void* logsumexp, void* shares) {
    const int64_t samples = a.outer * a.inner;
    if (samples == 0) return;
    const Arguments p = arguments(a);
    if (a.inner == 1) {
        unsigned threads = 32;
        while (threads < 1024 && int64_t(threads) * 8 < a.classes) threads *= 2;
        static Instances<32> rows(file);
        launch_with(rows(int(a.dtype) * 2 + entropy, [&] { return instance("loss_rows", a.dtype, entropy); }), {unsigned(samples)}, {threads}, 0, p, a.input, a.target, a.weight, losses, logsumexp, shares);
    } else {
        launch_with(find_kernel(file, instance("loss_columns", a.dtype, entropy)), {unsigned((samples + 255) / 256)}, {256}, 0, p, a.input, a.target, a.weight, losses,
                    logsumexp, shares);
    }
}

void class_loss_backward(const cpu::LossArgs& a, bool entropy, const void* logsumexp, const void* grad, bool one, const void* total, void* dx) {
    const int64_t n = a.outer * a.classes * a.inner;
    if (n == 0) return;
    Scratch sum(8);
    const void* all = sum.data();
    if (a.weight && a.label_smoothing != 0)
        launch_with(find_kernel(file, str("weight_total<", type_text(a.dtype), ">")), {1}, {256}, 0, a.weight, all, a.classes);
    static Instances<32> backward(file);
    launch_with(backward(int(a.dtype) * 2 + entropy, [&] { return instance("loss_backward", a.dtype, entropy); }), {unsigned((n + 255) / 256)}, {256}, 0, arguments(a), a.input, a.target, a.weight, logsumexp,
                grad, int(one), total, all, dx);
}

}  // namespace wisp::cuda
