// Launches the kernels of normalisation.
#include "batch_norm.h"
#include "pointwise.h"
#include "rows.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/norm.cuh";
constexpr int64_t kept_bytes = 100 * 1024;

// The instances of one kernel of this file; Which keeps those of different kernels apart.
template <int Which, class Name> Kernel* one_of(int instance, Name name) {
    static Instances<512> instances(file);
    return instances(instance, name);
}

int64_t item(DType d) { return item_size(compute_dtype(d)); }
unsigned threads_for(int64_t n) {
    unsigned t = 64;
    while (t < 1024 && int64_t(t) * 4 < n) t *= 2;
    return t;
}

void rows_forward(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t rows, int64_t n,
                  int64_t groups, int64_t channels, int64_t spatial, double eps) {
    const bool kept = n * item(d) <= kept_bytes;
    const unsigned shared = unsigned(34 * item(d) + (kept ? n * item(d) : 0));
    launch_with(one_of<20>(int(d) * 2 + kept, [&] { return str("norm_rows<", type_text(d), ", ", kept ? "true" : "false", ">"); }),
                {unsigned(rows)}, {threads_for(n)}, shared, x, weight, bias, y, mean, rstd, n, groups, channels, spatial, eps);
}

void rows_backward(DType d, const void* g, const void* x, const void* weight, const void* mean, const void* rstd, void* dx, int64_t rows,
                   int64_t n, int64_t groups, int64_t channels, int64_t spatial) {
    launch_with(one_of<1>(int(d), [&] { return str("norm_rows_backward<", type_text(d), ">"); }), {unsigned(rows)}, {threads_for(n)}, 0, g,
                x, weight, mean, rstd, dx, n, groups, channels, spatial);
}

void join(DType d, void* partial, void* dw, void* db, int64_t splits, int64_t n) {
    launch_with(one_of<2>(int(d), [&] { return str("join_weights<", type_text(d), ">"); }), {unsigned((n + 31) / 32), 2}, {32, 32}, 0,
                partial, dw, db, splits, n);
}

void layer_norm(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t rows, int64_t n,
                double eps) {
    if (const RowPlan plan = plan_rows(n, item_size(d), 64, {x, weight, bias, y}); plan.per_thread) {
        launch_with(
            one_of<7>(int(d) * 16 + plan.per_thread, [&] { return str("layer_forward<", type_text(d), ", ", plan.per_thread, ">"); }),
            {plan.blocks(rows)}, plan.block, 0, x, weight, bias, y, mean, rstd, rows, n, eps);
        return;
    }
    rows_forward(d, x, weight, bias, y, mean, rstd, rows, n, 1, n, 1, eps);
}

void layer_norm_backward(DType d, const void* g, const void* x, const void* weight, const void* mean, const void* rstd, void* dx, void* dw,
                         void* db, int64_t rows, int64_t n) {
    if (rows == 0 || n == 0) {
        for (void* p : {dw, db})
            if (p) fill_zero(p, size_t(n * item_size(d)));
        return;
    }
    const bool weights = dw || db;
    if (const RowPlan plan = plan_rows(n, item_size(d), 32, {g, x, weight, dx}); plan.per_thread) {
        const bool warps = plan.block.y > 1;
        // Sums stay in registers over all rows that a block takes, so there are only as many blocks as the device holds at a time.
        const int64_t held = device_info(current_device().index).multiprocessors * (warps ? 4 : 2);
        const unsigned grid = weights
                                  ? unsigned(std::max<int64_t>(1, std::min<int64_t>(held, (rows + (warps ? 15 : 1)) / (warps ? 16 : 2))))
                                  : plan.blocks(rows);
        Scratch partial(weights ? size_t(2 * grid * n * item(d)) : 0);
        void* p = partial.data();
        launch_with(
            one_of<8>((int(d) * 16 + plan.per_thread) * 2 + weights,
                      [&] { return str("layer_backward<", type_text(d), ", ", plan.per_thread, ", ", weights ? "true" : "false", ">"); }),
            {grid}, plan.block, weights && warps ? unsigned(2 * n * item(d)) : 0, g, x, weight, mean, rstd, dx, p, rows, n);
        if (weights) join(d, p, dw, db, grid, n);
        return;
    }
    if (dx) rows_backward(d, g, x, weight, mean, rstd, dx, rows, n, 1, n, 1);
    if (!weights) return;
    const int64_t columns = (n + 31) / 32, splits = std::max<int64_t>(1, std::min<int64_t>(rows / 64, 1056 / columns + 1));
    Scratch partial(size_t(2 * splits * n * item(d)));
    void* p = partial.data();
    launch_with(one_of<3>(int(d), [&] { return str("layer_weights<", type_text(d), ">"); }), {unsigned(columns), unsigned(splits)}, {256},
                0, g, x, mean, rstd, p, rows, n);
    join(d, p, dw, db, splits, n);
}

void group_norm(DType d, const void* x, const void* weight, const void* bias, void* y, void* mean, void* rstd, int64_t batch,
                int64_t groups, int64_t channels, int64_t spatial, double eps) {
    rows_forward(d, x, weight, bias, y, mean, rstd, batch * groups, channels * spatial, groups, channels, spatial, eps);
}

int64_t splits_of(int64_t channels, int64_t count) { return std::max<int64_t>(1, std::min<int64_t>(count / 2048, 1056 / channels + 1)); }

void sums_of_channels(DType d, const void* g, const void* x, const void* mean, const void* rstd, void* partial, int64_t batch,
                      int64_t channels, int64_t spatial, int64_t groups, int64_t splits) {
    launch_with(one_of<4>(int(d), [&] { return str("channel_sums<", type_text(d), ">"); }), {unsigned(channels), unsigned(splits)}, {256},
                0, g, x, mean, rstd, partial, batch, channels, spatial, groups);
}

void group_norm_backward(DType d, const void* g, const void* x, const void* weight, const void* mean, const void* rstd, void* dx, void* dw,
                         void* db, int64_t batch, int64_t groups, int64_t channels, int64_t spatial) {
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

}  // namespace

const NormKernels norm = {
    layer_norm,         layer_norm_backward, group_norm, group_norm_backward, batch_norm_stats, batch_norm_from_running,
    batch_norm_apply,   batch_norm_backward, true,       group_norm_factors,  group_norm_map,   group_norm_gradients,
    group_norm_map_back};

}  // namespace wisp::cuda
