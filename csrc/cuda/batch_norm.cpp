// Launches the kernels of batch normalisation.
#include "batch_norm.h"

#include <algorithm>

#include "../core/errors.h"
#include "divider.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/batch_norm.cuh";
constexpr int64_t target_blocks = 528;  // enough to fill the GPUs of today, few enough to join quickly

template <int Which, class Name> Kernel* one_of(int instance, Name name) {
    static Instances<4096> instances(file);
    return instances(instance, name);
}

// How a call is cut into blocks and vectors.
struct Cut {
    bool columns;
    int vector, width = 1;
    int64_t across, splits;  // blocks over channels, and parts of the sums
    uint32_t total = 0;      // planes: vectors of a channel
    Divider per_plane{}, channels{};
};

Cut cut_of(const BatchNorm& n, std::initializer_list<const void*> pointers) {
    Cut c;
    c.columns = n.spatial == 1;
    const int64_t row = c.columns ? n.channels : n.spatial, item = item_size(n.dtype);
    c.vector = int(16 / item);
    bool fits = row % c.vector == 0;
    for (const void* p : pointers) fits = fits && uintptr_t(p) % 16 == 0;
    if (!fits) c.vector = 1;
    int64_t depth_work;
    if (c.columns) {
        const int64_t threads = (n.channels + c.vector - 1) / c.vector;
        while (c.width < 64 && c.width < threads) c.width *= 2;
        c.across = (threads + c.width - 1) / c.width;
        depth_work = n.batch / (256 / c.width * 4);
    } else {
        if (n.batch * n.spatial / c.vector >= int64_t(1) << 31)
            throw RuntimeError("batch_norm on cuda: more than 2^31 elements in a channel");
        c.across = n.channels;
        c.total = uint32_t(n.batch * n.spatial / c.vector);
        c.per_plane = divider(uint32_t(n.spatial / c.vector));
        c.channels = divider(uint32_t(n.channels));
        depth_work = c.total / 1024;
    }
    c.splits = std::clamp<int64_t>(std::min(depth_work, target_blocks / c.across), 1, 65535);
    return c;
}

void* sums(const BatchNorm& n, const Cut& c, const void* x, const void* g, const void* mean, void* partial) {
    const bool back = g != nullptr;
    const int instance = (int(n.dtype) * 17 + c.vector) * 2 + back;
    const int channels = int(n.channels);
    auto name = [&](const char* kernel) { return str(kernel, "<", type_text(n.dtype), ", ", c.vector, back ? ", true>" : ", false>"); };
    const Grid grid{unsigned(c.across), unsigned(c.splits)};
    if (c.columns)
        launch_with(one_of<0>(instance, [&] { return name("column_sums"); }), grid, {256}, 0, x, g, mean, partial, n.batch, channels,
                    c.width);
    else
        launch_with(one_of<1>(instance, [&] { return name("plane_sums"); }), grid, {256}, 0, x, g, mean, partial, c.total, c.per_plane,
                    channels);
    return partial;
}

size_t partial_bytes(const BatchNorm& n, const Cut& c) { return size_t(2 * c.splits * n.channels * item_size(compute_dtype(n.dtype))); }
unsigned warps(int64_t channels) { return unsigned((channels + 7) / 8); }
unsigned columns_down(const Cut& c, int64_t rows) {
    return unsigned(std::clamp<int64_t>(std::min(rows / (256 / c.width * 4), 2 * target_blocks / c.across), 1, 65535));
}

// Calls run(first image, vectors) for parts of the batch whose vectors can be counted in 31 bits.
template <class Run> void over_images(const BatchNorm& n, const Cut& c, Run run) {
    const int64_t per_image = n.channels * n.spatial / c.vector, most = std::max<int64_t>(1, ((int64_t(1) << 31) - 1) / per_image);
    for (int64_t at = 0; at < n.batch; at += most) run(at, uint32_t(std::min(most, n.batch - at) * per_image));
}
unsigned map_blocks(uint32_t total) { return std::max(1u, std::min((total + 255) / 256, 132u * 16)); }

template <class P> P* moved(P* p, int64_t elements, DType d) {
    using Byte = std::conditional_t<std::is_const_v<P>, const char, char>;
    return static_cast<Byte*>(p) + elements * item_size(d);
}

}  // namespace

void batch_norm_stats(const BatchNorm& n, const void* x, void* mean, void* rstd, DType running, void* running_mean, void* running_var,
                      double momentum, double eps) {
    const Cut c = cut_of(n, {x});
    Scratch partial(partial_bytes(n, c));
    const void* p = sums(n, c, x, nullptr, nullptr, partial.data());
    launch_with(one_of<2>(int(n.dtype) * 16 + int(running),
                          [&] { return str("join_statistics<", type_text(n.dtype), ", ", type_text(running), ">"); }),
                {warps(n.channels)}, {256}, 0, x, n.spatial, p, mean, rstd, running_mean, running_var, int(n.channels), int(c.splits),
                double(n.batch * n.spatial), momentum, eps);
}

void batch_norm_from_running(const BatchNorm& n, DType running, const void* running_mean, const void* running_var, void* mean, void* rstd,
                             double eps) {
    const DType d = compute_dtype(n.dtype);
    launch_with(
        one_of<3>(int(d) * 16 + int(running), [&] { return str("running_statistics<", type_text(d), ", ", type_text(running), ">"); }),
        {unsigned((n.channels + 255) / 256)}, {256}, 0, running_mean, running_var, mean, rstd, int(n.channels), eps);
}

void batch_norm_apply(const BatchNorm& n, const void* x, const void* mean, const void* rstd, void* y) {
    const Cut c = cut_of(n, {x, y});
    const int instance = (int(n.dtype) * 16 + int(n.weight_dtype)) * 16 + c.vector - 1;
    auto name = [&](const char* kernel) {
        return str(kernel, "<", type_text(n.dtype), ", ", type_text(n.weight_dtype), ", ", c.vector, ">");
    };
    if (c.columns) {
        launch_with(one_of<4>(instance, [&] { return name("column_map"); }), {unsigned(c.across), columns_down(c, n.batch)}, {256}, 0, x,
                    mean, rstd, n.weight, n.bias, y, n.batch, int(n.channels), c.width);
        return;
    }
    Kernel* kernel = one_of<5>(instance, [&] { return name("plane_map"); });
    over_images(n, c, [&](int64_t at, uint32_t total) {
        const int64_t before = at * n.channels * n.spatial;
        launch_with(kernel, {map_blocks(total)}, {256}, 0, moved(x, before, n.dtype), mean, rstd, n.weight, n.bias,
                    moved(y, before, n.dtype), total, c.per_plane, c.channels);
    });
}

void batch_norm_backward(const BatchNorm& n, const void* g, const void* x, const void* mean, const void* rstd, void* dx, void* dw, void* db,
                         bool training) {
    const Cut c = cut_of(n, {g, x, dx});
    const DType d = compute_dtype(n.dtype);
    Scratch partial(partial_bytes(n, c)), factors(size_t(3 * n.channels * item_size(d)));
    const void* p = sums(n, c, x, g, mean, partial.data());
    void* f = factors.data();
    launch_with(one_of<6>(int(d) * 16 + int(n.weight_dtype),
                          [&] { return str("join_gradients<", type_text(d), ", ", type_text(n.weight_dtype), ">"); }),
                {warps(n.channels)}, {256}, 0, p, rstd, n.weight, dw, db, f, int(n.channels), int(c.splits), double(n.batch * n.spatial),
                int(training));
    if (!dx) return;
    const int instance = int(n.dtype) * 17 + c.vector;
    auto name = [&](const char* kernel) { return str(kernel, "<", type_text(n.dtype), ", ", c.vector, ">"); };
    if (c.columns) {
        launch_with(one_of<7>(instance, [&] { return name("column_map_back"); }), {unsigned(c.across), columns_down(c, n.batch)}, {256}, 0,
                    x, g, mean, f, dx, n.batch, int(n.channels), c.width);
        return;
    }
    Kernel* kernel = one_of<8>(instance, [&] { return name("plane_map_back"); });
    over_images(n, c, [&](int64_t at, uint32_t total) {
        const int64_t before = at * n.channels * n.spatial;
        launch_with(kernel, {map_blocks(total)}, {256}, 0, moved(x, before, n.dtype), moved(g, before, n.dtype), mean, f,
                    moved(dx, before, n.dtype), total, c.per_plane, c.channels);
    });
}

}  // namespace wisp::cuda
