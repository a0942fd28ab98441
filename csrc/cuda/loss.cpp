// Launches the kernels of class losses.
#include "../kernels/loss.h"

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

Arguments arguments(const LossArgs& a) {
    return {a.outer, a.classes, a.inner, a.ignore_index, a.label_smoothing, "cross_entropy or nll_loss (target)", report_cell()};
}

std::string instance(const char* name, DType d, bool entropy) {
    return str(name, "<", type_text(d), ", ", entropy ? "true" : "false", ">");
}

unsigned threads_for(int64_t classes) {
    unsigned threads = 32;
    while (threads < 1024 && int64_t(threads) * 16 < classes) threads *= 2;
    return threads;
}

int64_t forward(const LossArgs& a, void* losses, void* logsumexp, void* result, double* total) {
    const int64_t samples = a.outer * a.inner;
    const bool entropy = a.entropy;
    Scratch weights(size_t(samples * item_size(compute_dtype(a.dtype))));  // that each target has in a mean
    void* shares = weights.data();
    const Arguments p = arguments(a);
    const int which = int(a.dtype) * 2 + entropy;
    if (result && a.inner == 1 && samples <= 1024 && samples * a.classes <= 32768) {
        static Instances<32> few(file);
        launch_with(few(which, [&] { return instance("loss_of_few", a.dtype, entropy); }), {1}, {1024}, 0, p, a.input, a.target, a.weight,
                    losses, logsumexp, shares, result, total);
        return -1;
    }
    if (samples == 0) {
    } else if (a.inner == 1) {
        static Instances<32> rows(file);
        launch_with(rows(which, [&] { return instance("loss_rows", a.dtype, entropy); }), {unsigned(samples)}, {threads_for(a.classes)}, 0,
                    p, a.input, a.target, a.weight, losses, logsumexp, shares);
    } else {
        launch_with(find_kernel(file, instance("loss_columns", a.dtype, entropy)), {unsigned((samples + 255) / 256)}, {256}, 0, p, a.input,
                    a.target, a.weight, losses, logsumexp, shares);
    }
    if (!result) return -1;
    static Instances<16> totals(file);
    launch_with(totals(int(a.dtype), [&] { return str("loss_total<", type_text(a.dtype), ">"); }), {1}, {1024}, 0, losses, shares, result,
                total, samples);
    return -1;
}

void backward(const LossArgs& a, const void* logsumexp, const void* grad, bool one, const double* total, void* dx) {
    const int64_t n = a.outer * a.classes * a.inner;
    const bool entropy = a.entropy;
    if (n == 0) return;
    const bool by_weight = a.weight && a.label_smoothing != 0;
    Scratch sum(by_weight ? 8 : 0);
    const void* all = sum.data();
    if (by_weight) launch_with(find_kernel(file, str("weight_total<", type_text(a.dtype), ">")), {1}, {256}, 0, a.weight, all, a.classes);
    const Arguments p = arguments(a);
    const int which = int(a.dtype) * 2 + entropy;
    if (a.gradient != a.dtype) {
        static Instances<16> widened(file);
        launch_with(widened(int(a.dtype), [&] { return str("loss_rows_backward<", type_text(a.dtype), ", true, float>"); }),
                    {unsigned(a.outer)}, {threads_for(a.classes)}, 0, p, a.input, a.target, a.weight, logsumexp, grad, int(one), total, all,
                    dx);
        return;
    }
    if (a.inner == 1 && (uintptr_t(a.input) ^ uintptr_t(dx)) % 16 == 0) {
        static Instances<32> rows(file);
        launch_with(rows(which, [&] { return instance("loss_rows_backward", a.dtype, entropy); }), {unsigned(a.outer)},
                    {threads_for(a.classes)}, 0, p, a.input, a.target, a.weight, logsumexp, grad, int(one), total, all, dx);
        return;
    }
    static Instances<32> columns(file);
    launch_with(columns(which, [&] { return instance("loss_backward", a.dtype, entropy); }), {unsigned((n + 255) / 256)}, {256}, 0, p,
                a.input, a.target, a.weight, logsumexp, grad, int(one), total, all, dx);
}

}  // namespace

const LossKernels loss = {forward, backward};

}  // namespace wisp::cuda
