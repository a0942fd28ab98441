// Launches the kernels of softmax.
#include "../kernels/softmax.h"
#include "../core/device.h"
#include "pointwise.h"
#include "rows.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/softmax.cuh";
constexpr int64_t kept_bytes = 100 * 1024;  // of shared memory for a row

bool is_aligned(int64_t bytes, std::initializer_list<const void*> pointers) {
    uintptr_t bits = uintptr_t(bytes);
    for (const void* p : pointers) bits |= uintptr_t(p);
    return bits % 16 == 0;
}

unsigned threads_for(int64_t n) {
    unsigned t = 64;
    while (t < 1024 && int64_t(t) * 4 < n) t *= 2;
    return t;
}

// Threads that share a row which a warp has too many for; 0: it has not.
int lanes_for(const RowPlan& plan, int64_t n, DType d) {
    const int64_t vectors = n * item_size(d) / 16;
    if (plan.per_thread != 1 || vectors > 16) return 0;
    int lanes = 1;
    while (lanes < vectors) lanes *= 2;
    return lanes;
}

void forward(DType d, const void* x, void* y, int64_t outer, int64_t n, int64_t inner, bool logarithm) {
    if (outer * n * inner == 0) return;
    const int which = int(d) * 2 + logarithm;
    auto head = [&] { return str(type_text(d), ", ", logarithm ? "true" : "false"); };
    if (inner > 1) {
        static Instances<32> columns(file);
        launch_with(columns(which, [&] { return "softmax_columns<" + head() + ">"; }), {unsigned((outer * inner + 255) / 256)}, {256}, 0, x,
                    y, outer * inner, n, inner);
        return;
    }
    const RowPlan plan = plan_rows(n, item_size(d), 32, {x, y});
    if (const int lanes = lanes_for(plan, n, d)) {
        static Instances<32> short_rows(file);
        launch_with(short_rows(which, [&] { return "softmax_short<" + head() + ">"; }), {unsigned((outer * lanes + 255) / 256)}, {256}, 0,
                    x, y, outer, n, lanes);
        return;
    }
    if (plan.per_thread) {
        static Instances<32 * 16> kept(file);
        launch_with(kept(which * 16 + plan.per_thread, [&] { return str("softmax_kept<", head(), ", ", plan.per_thread, ">"); }),
                    {plan.blocks(outer)}, plan.block, 0, x, y, outer, n);
        return;
    }
    if (n <= 1024) {
        int per_lane = 1;
        while (per_lane * 32 < n) per_lane *= 2;
        static Instances<32 * 64> warps(file);
        launch_with(warps(which * 64 + per_lane, [&] { return str("softmax_warp<", head(), ", ", per_lane, ">"); }),
                    {unsigned((outer + 3) / 4)}, {128}, 0, x, y, outer, int(n));
        return;
    }
    if (is_aligned(n * item_size(d), {x, y}) && 272 + n * item_size(d) <= device_info(current_device().index).shared_per_block) {
        static Instances<32> longs(file);
        launch_with(longs(which, [&] { return "softmax_long<" + head() + ">"; }), {unsigned(outer)}, {1024},
                    unsigned(272 + n * item_size(d)), x, y, n);
        return;
    }
    const int64_t item = d == DType::f64 ? 8 : 4;
    const bool kept = n * item <= kept_bytes;
    const unsigned shared = unsigned(34 * item + (kept ? n * item : 0));
    static Instances<64> rows(file);
    launch_with(rows(which * 2 + kept, [&] { return str("softmax_rows<", head(), ", ", kept ? "true" : "false", ">"); }), {unsigned(outer)},
                {threads_for(n)}, shared, x, y, n);
}

void backward(DType d, const void* g, const void* y, void* dx, int64_t outer, int64_t n, int64_t inner, bool logarithm) {
    if (outer * n * inner == 0) return;
    const int which = int(d) * 2 + logarithm;
    auto head = [&] { return str(type_text(d), ", ", logarithm ? "true" : "false"); };
    static Instances<32> columns(file), rows(file);
    const RowPlan plan = plan_rows(n, item_size(d), 32, {g, y, dx});
    if (const int lanes = lanes_for(plan, n, d); inner == 1 && lanes) {
        static Instances<32> short_rows(file);
        launch_with(short_rows(which, [&] { return "softmax_short_backward<" + head() + ">"; }), {unsigned((outer * lanes + 255) / 256)},
                    {256}, 0, g, y, dx, outer, n, lanes);
        return;
    }
    if (inner == 1 && plan.per_thread) {
        static Instances<32 * 16> kept(file);
        launch_with(kept(which * 16 + plan.per_thread, [&] { return str("softmax_kept_backward<", head(), ", ", plan.per_thread, ">"); }),
                    {plan.blocks(outer)}, plan.block, 0, g, y, dx, outer, n);
        return;
    }
    if (inner > 1)
        launch_with(columns(which, [&] { return "softmax_columns_backward<" + head() + ">"; }), {unsigned((outer * inner + 255) / 256)},
                    {256}, 0, g, y, dx, outer * inner, n, inner);
    else if (n > 1024 && is_aligned(n * item_size(d), {g, y, dx})) {
        static Instances<32> longs(file);
        launch_with(longs(which, [&] { return "softmax_long_backward<" + head() + ">"; }), {unsigned(outer)}, {1024}, 0, g, y, dx, n);
    } else
        launch_with(rows(which, [&] { return "softmax_rows_backward<" + head() + ">"; }), {unsigned(outer)},
                    {n <= 256 ? 32u : threads_for(n)}, 0, g, y, dx, n);
}

}  // namespace

const SoftmaxKernels softmax = {forward, backward};

}  // namespace wisp::cuda
