// Launches the kernels of normalisation.
#include "pointwise.h"
#include "reduce.h"
#include "runtime.h"
#include "tables.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/norm.cuh";
constexpr int64_t kept_bytes = 100 * 1024;

// The instances of one kernel of this file; Which keeps those of different kernels apart.
template <int Which, class Name> Kernel* one_of(int instance, Name name) {
    static Instances<256> instances(file);
    return instances(instance, name);
}

DType compute_of(DType d) { return d == DType::f64 ? DType::f64 : DType::f32; }
int64_t item(DType d) { return item_size(compute_of(d)); }
unsigned threads_for(int64_t n) {
    unsigned t = 64;
    while (t < 1024 && int64_t(t) * 4 < n) t *= 2;
    return t;
}
unsigned blocks(int64_t n) { return unsigned((n + 255) / 256); }

void rows_forward(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t rows, int64_t n, int64_t groups,
                  int64_t channels, int64_t spatial, double eps) {
    const bool kept = n * item(d) <= kept_bytes;
    const unsigned shared = unsigned(34 * item(d) + (kept ? n * item(d) : 0));
    launch_with(one_of<20>(int(d) * 2 + kept, [&] { return str("norm_rows<", type_text(d), ", ", kept ? "true" : "false", ">"); }), {unsigned(rows)}, {threads_for(n)}, shared, x, weight, bias, y,
                mean, rstd, n, groups, channels, spatial, eps);
}

void rows_backward(DType d, const void* g, const void* x, const void* weight, const void* mean, const void* rstd, void* dx, int64_t rows, int64_t n, int64_t groups,
                   int64_t channels, int64_t spatial) {
    launch_with(one_of<1>(int(d), [&] { return str("norm_rows_backward<", type_text(d), ">"); }), {unsigned(rows)}, {threads_for(n)}, 0, g, x, weight, mean, rstd, dx, n, groups,
                channels, spatial);
}

void join(DType d, void* partial, void* dw, void* db, int64_t splits, int64_t n) {
    launch_with(one_of<2>(int(d), [&] { return str("join_weights<", type_text(d), ">"); }), {blocks(n)}, {256}, 0, partial, dw, db, splits, n);
}

void layer_norm(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t rows, int64_t n, double eps) {
    rows_forward(d, x, weight, bias, y, mean, rstd, rows, n, 1, n, 1, eps);
}

void layer_norm_backward(DType d, const void* g, const void* x, const void* weight, const void* mean, const void* rstd, void* dx, void* dw, void* db,
                         int64_t rows, int64_t n) {
    if (rows == 0 || n == 0) {
        for (void* p : {dw, db})
            if (p) fill_zero(p, size_t(n * item_size(d)));
        return;
    }
    if (dx) rows_backward(d, g, x, weight, mean, rstd, dx, rows, n, 1, n, 1);
    if (!dw && !db) return;
    const int64_t columns = (n + 31) / 32, splits = std::max<int64_t>(1, std::min<int64_t>(rows / 64, 1056 / columns + 1));
    Scratch partial(size_t(2 * splits * n * item(d)));
    void* p = partial.data();
    launch_with(one_of<3>(int(d), [&] { return str("layer_weights<", type_text(d), ">"); }), {unsigned(columns), unsigned(splits)}, {256}, 0, g, x, mean, rstd, p, rows, n);
    join(d, p, dw, db, splits, n);
}

void group_norm(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t batch, int64_t groups, int64_t channels,
                int64_t spatial, double eps) {
    rows_forward(d, x, weight, bias, y, mean, rstd, batch * groups, channels * spatial, groups, channels, spatial, eps);
}

int64_t splits_of(int64_t channels, int64_t count) { return std::max<int64_t>(1, std::min<int64_t>(count / 2048, 1056 / channels + 1)); }

void sums_of_channels(DType d, const void* g, const void* x, const void* mean, const void* rstd, void* partial, int64_t batch, int64_t channels, int64_t spatial,
                      int64_t groups, int64_t splits) {
    launch_with(one_of<4>(int(d), [&] { return str("channel_sums<", type_text(d), ">"); }), {unsigned(channels), unsigned(splits)}, {256}, 0, g, x, mean, rstd, partial, batch, channels,
                spatial, groups);
}

void group_norm_backward(DType d, const void* g, const void* x, const void* weight, const void* mean, const void* rstd, void* dx, void* dw, void* db,
                         int64_t batch, int64_t groups, int64_t channels, int64_t spatial) {
    const int64_t all = groups * channels;
    if (batch * all * spatial == 0) {
        for (void* p : {dw, db})
            if (p) fill_zero(p, size_t(all * item_size(d)));
        return;
    }
    if (dx) rows_backward(d, g, x, weight, mean, rstd, dx, batch * groups, channels * spatial, groups, channels, spatial);
    if (!dw && !db) return;
    const int64_t splits = splits_of(all, batch * spatial);
    Scratch partial(size_t(2 * splits * all * item(d)));
    sums_of_channels(d, g, x, mean, rstd, partial.data(), batch, all, spatial, groups, splits);
    join(d, partial.data(), dw, db, splits, all);
}

void batch_norm_stats(DType d, const void* x, void* mean, void* rstd, DType running, void* running_mean, void* running_var, double momentum, int64_t batch,
                      int64_t channels, int64_t spatial, double eps) {
    const DType c = compute_of(d);
    Scratch variance(size_t(channels * item(d)));
    const int64_t sizes[3] = {batch, channels, spatial}, strides[3] = {channels * spatial, spatial, 1};
    cpu::ReduceArguments a{};
    a.in = x;
    a.in_dtype = d;
    a.sizes = sizes;
    a.strides = strides;
    a.ndim = 3;
    a.reduced = 5;
    a.out = variance.data();
    a.out_dtype = c;
    a.mean = mean;
    reduce(cpu::Reduction::variance, a);
    void* v = variance.data();
    launch_with(one_of<21>(int(c) * 16 + int(running), [&] { return str("batch_statistics<", type_text(c), ", ", type_text(running), ">"); }), {blocks(channels)}, {256}, 0, v, mean, rstd, running_mean,
                running_var, channels, double(batch * spatial), momentum, eps);
}

void batch_norm_from_running(DType d, DType running, const void* running_mean, const void* running_var, void* mean, void* rstd, int64_t channels, double eps) {
    launch_with(find_kernel(file, str("batch_from_running<", type_text(compute_of(d)), ", ", type_text(running), ">")), {blocks(channels)}, {256}, 0, running_mean,
                running_var, mean, rstd, channels, eps);
}

Grid planes(int64_t batch, int64_t channels, int64_t spatial) {
    return {unsigned(batch * channels), unsigned(std::max<int64_t>(1, std::min<int64_t>((spatial + 1023) / 1024, 64)))};
}

void batch_norm_apply(DType d, const void* x, const void* mean, const void* rstd, const void* weight, const void* bias, void* y, int64_t batch, int64_t channels,
                      int64_t spatial) {
    launch_with(one_of<5>(int(d), [&] { return str("batch_apply<", type_text(d), ">"); }), planes(batch, channels, spatial), {256}, 0, x, mean, rstd, weight, bias, y, channels, spatial);
}

void batch_norm_backward(DType d, const void* g, const void* x, const void* mean, const void* rstd, const void* weight, void* dx, void* dw, void* db,
                         int64_t batch, int64_t channels, int64_t spatial, bool training) {
    const int64_t splits = splits_of(channels, batch * spatial);
    Scratch partial(size_t(2 * splits * channels * item(d)));
    void* p = partial.data();
    if (training || dw || db) sums_of_channels(d, g, x, mean, rstd, p, batch, channels, spatial, 0, splits);
    if (dx)
        launch_with(one_of<6>(int(d), [&] { return str("batch_backward<", type_text(d), ">"); }), planes(batch, channels, spatial), {256}, 0, g, x, mean, rstd, weight, p, dx, channels,
                    spatial, splits, double(batch * spatial), int(training));
    if (dw || db) join(d, p, dw, db, splits, channels);
}

}  // namespace

const cpu::NormKernels norm = {layer_norm, layer_norm_backward, group_norm, group_norm_backward, batch_norm_stats, batch_norm_from_running, batch_norm_apply,
                               batch_norm_backward};

}  // namespace wisp::cuda
