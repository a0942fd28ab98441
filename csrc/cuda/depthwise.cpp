// Convolutions for which kernels of ours or a product do better than cuDNN: a kernel for each channel, and patches without overlap.
#include <algorithm>

#include "../core/device.h"
#include "../core/errors.h"
#include "conv.h"
#include "divider.h"
#include "gemm.h"
#include "pointwise.h"
#include "sorting.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/depthwise.cuh";
constexpr int64_t strip = 8;

struct Depthwise {  // as in the kernels
    int channels, from_y, from_x, to_y, to_x, padding_y, padding_x, strips;
    int64_t planes;
    Divider by_width;
};

bool is_half(DType d) { return d == DType::f16 || d == DType::bf16; }

template <class Tag> Kernel* instance(const char* name, DType d, int64_t kernel, const char* more = "") {
    static Instances<int(DType::count) * 8> instances(file);
    return instances(int(d) * 8 + int(kernel), [&] { return str(name, "<", type_text(d), ", ", kernel, more, ">"); });
}

}  // namespace

bool depthwise_convolve(ConvProduct product, DType d, const ConvShape& s, const void* a, const void* b, const void* bias, void* out) {
    const int64_t k = s.kernel[2];
    if (s.groups != s.in_channels || s.groups != s.out_channels || (d != DType::f32 && !is_half(d)) || (k != 5 && k != 7) ||
        s.kernel[1] != k || s.kernel[0] != 1 || s.in[0] != 1 || s.padding[0] != 0)
        return false;
    for (int i = 1; i < 3; i++)
        if (s.stride[i] != 1 || s.dilation[i] != 1 || s.padding[i] < 0 || s.padding[i] >= k || s.in[i] > 4096) return false;
    const bool back = product == ConvProduct::input;
    const int64_t *from = back ? s.out : s.in, *to = back ? s.in : s.out, strips = (to[1] + strip - 1) / strip;
    Depthwise p = {int(s.groups),
                   int(from[1]),
                   int(from[2]),
                   int(to[1]),
                   int(to[2]),
                   int(back ? k - 1 - s.padding[1] : s.padding[1]),
                   int(back ? k - 1 - s.padding[2] : s.padding[2]),
                   int(strips),
                   s.batch * s.groups,
                   divider(uint32_t(to[2]))};
    if (product != ConvProduct::weight) {
        launch_with(back ? instance<struct Back>("depthwise", d, k, ", true") : instance<struct Forward>("depthwise", d, k, ", false"),
                    threads(p.planes * strips * to[2]), {256}, 0, a, b, bias, out, p);
        return true;
    }
    // As many parts of the batch as fill the device.
    const int64_t processors = device_info(current_device().index).multiprocessors,
                  parts = std::clamp<int64_t>(processors * 8 / s.groups, 1, s.batch);
    const int n = int(s.groups * k * k);
    Scratch partial(size_t(parts) * size_t(n) * 4);
    launch_with(instance<struct Weights>("depthwise_weights", d, k), {unsigned(s.groups), unsigned(parts)}, {256}, 0, a, b, partial.data(),
                p, int(s.batch));
    static Instances<int(DType::count)> join(file);
    launch_with(join(int(d), [&] { return str("depthwise_join<", type_text(d), ">"); }), threads(n), {256}, 0, partial.data(), out, n,
                int(parts));
    return true;
}

// Patches that lie side by side are the rows of a matrix: a copy, and one product.
bool patch_convolve(ConvProduct product, DType d, const ConvShape& s, const void* a, const void* b, const void* bias, void* out) {
    if (!is_half(d) || s.groups != 1 || s.in[0] != 1 || s.kernel[0] != 1 || s.padding[0] != 0) return false;
    for (int i = 1; i < 3; i++)
        if (s.stride[i] != s.kernel[i] || s.kernel[i] < 4 || s.padding[i] != 0 || s.dilation[i] != 1 || s.out[i] * s.kernel[i] != s.in[i])
            return false;
    const int64_t positions = s.out[1] * s.out[2], rows = s.batch * positions, width = s.in_channels * s.kernel[1] * s.kernel[2],
                  channels = s.out_channels, item = item_size(d);
    if (product == ConvProduct::input && bias) return false;
    // [batch, out y, out x, channel, kernel y, kernel x] as rows, and as it lies in the image.
    const Dims sizes = {s.batch, s.out[1], s.out[2], s.in_channels, s.kernel[1], s.kernel[2]};
    const int64_t in_plane = s.in[1] * s.in[2];
    const Dims dense = {positions * width, s.out[2] * width, width, s.kernel[1] * s.kernel[2], s.kernel[2], 1};
    const Dims placed = {s.in_channels * in_plane, s.kernel[1] * s.in[2], s.kernel[2], in_plane, s.in[2], 1};
    // [batch, position, channel]: rows, and as the output lies.
    const Dims turned = {s.batch, positions, channels}, by_row = {positions * channels, channels, 1},
               by_plane = {channels * positions, 1, positions};
    auto image = [&](void* data, bool rows) { return Operand{static_cast<char*>(data), d, rows ? dense.data() : placed.data(), nullptr}; };
    auto planes = [&](void* data, bool rows) {
        return Operand{static_cast<char*>(data), d, rows ? by_row.data() : by_plane.data(), nullptr};
    };
    auto unconst = [](const void* p) { return const_cast<void*>(p); };
    Scratch patches(size_t(rows * width * item)), results(size_t(rows * channels * item));
    GemmArgs g{};
    if (product == ConvProduct::output) {
        copy_elements(image(patches.data(), true), image(unconst(a), false), sizes, false);
        g = {rows, channels, width, patches.data(), width, 1, b, 1, width, results.data(), channels};
        if (bias) g.d = bias, g.d_row = 0, g.d_col = 1, g.beta = 1;
        library_matmul(d, g);
        copy_elements(planes(out, false), planes(results.data(), true), turned, false);
        return true;
    }
    if (product == ConvProduct::input) {
        copy_elements(planes(results.data(), true), planes(unconst(a), false), turned, false);
        g = {rows, width, channels, results.data(), channels, 1, b, width, 1, patches.data(), width};
        library_matmul(d, g);
        copy_elements(image(out, false), image(patches.data(), true), sizes, false);
        return true;
    }
    copy_elements(image(patches.data(), true), image(unconst(a), false), sizes, false);
    copy_elements(planes(results.data(), true), planes(unconst(b), false), turned, false);
    g = {channels, width, rows, results.data(), 1, channels, patches.data(), width, 1, out, width};
    library_matmul(d, g);
    return true;
}

void integer_convolve(ConvProduct product, const ConvShape& s, const void* a, const void* b, const void* bias, void* out) {
    if (product == ConvProduct::weight) throw RuntimeError("convolutions of integers have no gradients");
    const bool back = product == ConvProduct::input;
    const int64_t *to = back ? s.in : s.out, n = s.batch * (back ? s.in_channels : s.out_channels) * to[0] * to[1] * to[2];
    static Kernel* const kernels[2] = {find_kernel(file, "integer_conv<false>"), find_kernel(file, "integer_conv<true>")};
    if (n) launch_with(kernels[back], threads(n), {256}, 0, a, b, bias, out, s, n);
}

}  // namespace wisp::cuda
