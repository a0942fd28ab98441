// Launches the kernels of group normalisation.
#include <algorithm>

#include "batch_norm.h"
#include "divider.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/group_norm.cuh";
constexpr int64_t target_blocks = 1056;  // enough to fill the GPUs of today, few enough to join quickly

template <int Which, class Name> Kernel* one_of(int instance, Name name) {
    static Instances<8192> instances(file);
    return instances(instance, name);
}

// How a call is cut into blocks and vectors.
struct Cut {
    int vector, width = 1;
    int64_t across = 1, splits = 1;
};

Cut cut_of(const GroupNorm& n, DType widest, std::initializer_list<const void*> pointers) {
    Cut c;
    const int64_t row = n.last ? n.channels : n.places;
    c.vector = int(16 / item_size(widest));
    bool fits = row % c.vector == 0;
    for (const void* p : pointers) fits = fits && uintptr_t(p) % 16 == 0;
    if (!fits) c.vector = 1;
    if (!n.last) return c;
    const int64_t threads = (n.channels + c.vector - 1) / c.vector;
    while (c.width < 64 && c.width < threads) c.width *= 2;
    c.across = (threads + c.width - 1) / c.width;
    c.splits = std::clamp<int64_t>(std::min(n.places / (256 / c.width * 4), target_blocks / (c.across * n.samples)), 1, 64);
    return c;
}

// partial[sample][split][2][channels]
void sums(const GroupNorm& n, const Cut& c, DType g_dtype, const void* x, const void* g, const void* mean, void* partial) {
    const bool back = g != nullptr;
    const int instance = ((int(n.dtype) * 16 + int(g_dtype)) * 17 + c.vector) * 2 + back;
    const int channels = int(n.channels), per_group = int(n.channels / n.groups);
    auto name = [&](const char* kernel) {
        return str(kernel, "<", type_text(n.dtype), ", ", type_text(g_dtype), ", ", c.vector, back ? ", true>" : ", false>");
    };
    if (n.last) {
        launch_with(one_of<0>(instance, [&] { return name("group_columns"); }),
                    {unsigned(c.across), unsigned(c.splits), unsigned(n.samples)}, {256}, 0, x, g, mean, partial, n.places, channels,
                    per_group, c.width);
        return;
    }
    unsigned threads = 32;
    while (threads < 256 && int64_t(threads) * c.vector * 2 < n.places) threads *= 2;
    launch_with(one_of<1>(instance, [&] { return name("group_planes"); }), {unsigned(n.samples * n.channels)}, {threads}, 0, x, g, mean,
                partial, n.places, channels, per_group);
}

unsigned map_blocks(uint32_t total) { return std::max(1u, std::min((total + 255) / 256, 132u * 32)); }

size_t partial_bytes(const GroupNorm& n, const Cut& c) {
    return size_t(2 * n.samples * c.splits * n.channels * item_size(compute_dtype(n.dtype)));
}

}  // namespace

void group_norm_factors(const GroupNorm& n, const void* x, void* mean, void* rstd, void* scale, void* shift, double eps) {
    const Cut c = cut_of(n, n.dtype, {x});
    Scratch partial(partial_bytes(n, c));
    const void* p = partial.data();
    sums(n, c, n.dtype, x, nullptr, nullptr, partial.data());
    const int64_t step = n.last ? 1 : n.places, along = n.channels * n.places;
    launch_with(one_of<2>(int(n.dtype) * 16 + int(n.weight_dtype),
                          [&] { return str("group_join<", type_text(n.dtype), ", ", type_text(n.weight_dtype), ">"); }),
                {unsigned(n.groups), unsigned(n.samples)}, {128}, 0, x, step, along, p, n.weight, n.bias, mean, rstd, scale, shift,
                n.places, int(n.channels), int(n.channels / n.groups), int(c.splits), eps);
}

void group_norm_gradients(const GroupNorm& n, DType g_dtype, const void* g, const void* x, const void* mean, const void* rstd, void* slope,
                          void* shift, void* dw, void* db) {
    const Cut c = cut_of(n, item_size(g_dtype) > item_size(n.dtype) ? g_dtype : n.dtype, {g, x});
    const DType d = compute_dtype(n.dtype);
    Scratch partial(partial_bytes(n, c)), both(size_t(2 * n.samples * n.channels * item_size(d)));
    const void* p = partial.data();
    void* s = both.data();
    sums(n, c, g_dtype, x, g, mean, partial.data());
    launch_with(one_of<3>(int(d) * 16 + int(n.weight_dtype),
                          [&] { return str("group_join_back<", type_text(d), ", ", type_text(n.weight_dtype), ">"); }),
                {unsigned(n.groups), unsigned(n.samples)}, {128}, 0, p, n.weight, mean, rstd, slope, shift, s, n.places, int(n.channels),
                int(n.channels / n.groups), int(c.splits));
    if (!dw && !db) return;
    launch_with(one_of<4>(int(d) * 16 + int(n.weight_dtype),
                          [&] { return str("group_weights<", type_text(d), ", ", type_text(n.weight_dtype), ">"); }),
                {unsigned((n.channels + 127) / 128)}, {128}, 0, s, dw, db, n.samples, int(n.channels));
}

void group_norm_map(const GroupNorm& n, const void* x, const void* scale, const void* shift, DType y_dtype, void* y) {
    const Cut c = cut_of(n, item_size(y_dtype) > item_size(n.dtype) ? y_dtype : n.dtype, {x, y});
    const uint32_t total = uint32_t(n.samples * n.channels * n.places / c.vector);
    launch_with(one_of<5>((int(n.dtype) * 16 + int(y_dtype)) * 17 + c.vector,
                          [&] { return str("group_map<", type_text(n.dtype), ", ", type_text(y_dtype), ", ", c.vector, ">"); }),
                {map_blocks(total)}, {256}, 0, x, scale, shift, y, total, divider(uint32_t(n.places / c.vector)));
}

void group_norm_map_back(const GroupNorm& n, DType g_dtype, const void* g, const void* x, const void* scale, const void* slope,
                         const void* shift, void* dx) {
    const Cut c = cut_of(n, item_size(g_dtype) > item_size(n.dtype) ? g_dtype : n.dtype, {g, x, dx});
    const uint32_t total = uint32_t(n.samples * n.channels * n.places / c.vector);
    launch_with(one_of<6>((int(n.dtype) * 16 + int(g_dtype)) * 17 + c.vector,
                          [&] { return str("group_map_back<", type_text(n.dtype), ", ", type_text(g_dtype), ", ", c.vector, ">"); }),
                {map_blocks(total)}, {256}, 0, x, g, scale, slope, shift, dx, total, divider(uint32_t(n.places / c.vector)));
}

}  // namespace wisp::cuda
