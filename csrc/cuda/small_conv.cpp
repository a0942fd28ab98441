// Small convolutions by kernels of ours: a call of cuDNN costs the host more than these networks' whole step should.
#include <algorithm>

#include "../core/device.h"
#include "../core/errors.h"
#include "conv.h"
#include "divider.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

constexpr const char* file = "cuda/kernels/small_conv.cuh";
constexpr int64_t most_work = int64_t(1) << 26;  // multiplications; beyond this the library's kernels gain more than they cost
constexpr int64_t shared_floats = 12 * 1024;     // what a block has without asking

struct Arguments {  // as in the kernels
    int batch, in_channels, out_channels, in_y, in_x, out_y, out_x, kernel_y, kernel_x, stride_y, stride_x, padding_y, padding_x,
        dilation_y, dilation_x;
    Divider pixels, width, taps;
    int staged, across;
};

// Whether these kernels are meant for the shape: few channels, little work, no groups, no depth.
bool is_small(DType dtype, const ConvShape& s) {
    if (dtype != DType::f32 || s.groups != 1 || s.in[0] != 1 || s.out[0] != 1 || s.kernel[0] != 1 || s.padding[0] != 0) return false;
    const int64_t taps = s.in_channels * s.kernel[1] * s.kernel[2], pixels = s.batch * s.out[1] * s.out[2];
    if (taps > 511 || s.in_channels > 32 || s.out_channels > 32 || s.kernel[1] * s.kernel[2] > 128) return false;
    return pixels <= most_work && pixels * s.out_channels * taps <= most_work && s.batch * s.in[1] * s.in[2] <= most_work;
}

Arguments arguments(const ConvShape& s) {
    const auto i = [](int64_t n) { return int(n); };
    return {i(s.batch),
            i(s.in_channels),
            i(s.out_channels),
            i(s.in[1]),
            i(s.in[2]),
            i(s.out[1]),
            i(s.out[2]),
            i(s.kernel[1]),
            i(s.kernel[2]),
            i(s.stride[1]),
            i(s.stride[2]),
            i(s.padding[1]),
            i(s.padding[2]),
            i(s.dilation[1]),
            i(s.dilation[2]),
            {},
            {},
            divider(uint32_t(s.kernel[1] * s.kernel[2])),
            0,
            0};
}

void gather(const ConvShape& s, bool back, const void* from, const void* weight, const void* bias, void* to) {
    Arguments p = arguments(s);
    const int64_t height = back ? s.in[1] : s.out[1], width = back ? s.in[2] : s.out[2], channels = back ? s.in_channels : s.out_channels;
    p.pixels = divider(uint32_t(height * width));
    p.width = divider(uint32_t(width));
    const int64_t pixels = s.batch * height * width, taps = s.kernel[1] * s.kernel[2], others = back ? s.out_channels : s.in_channels;
    int tile = channels > 8 ? 16 : channels > 4 ? 8 : 4;
    auto tiles = [&] { return (channels + tile - 1) / tile; };
    while (tile > 4 && pixels * tiles() < 128 * 32) tile /= 2;
    // As many threads for a pixel as channels are read, but no more than the device has room for.
    unsigned rows = unsigned(std::min<int64_t>(others, 8));
    while (rows > 1 && pixels * tiles() * rows > (int64_t(1) << 17)) rows = (rows + 1) / 2;
    const unsigned along = rows >= 5 ? 32 : rows >= 3 ? 64 : 128;
    p.staged = int(std::min<int64_t>(others, std::max<int64_t>(1, shared_floats / 2 / (taps * tile))));
    const bool plain = s.dilation[2] == 1 && (!back || s.stride[2] == 1);
    const int known = plain && (s.kernel[2] == 3 || s.kernel[2] == 5) ? int(s.kernel[2]) : 0;
    static Instances<64> kernels(file);
    launch_with(kernels((tile / 8 * 2 + back) * 8 + known,
                        [&] { return str("small_conv<", tile, ", ", back ? "true" : "false", ", ", known, ">"); }),
                {unsigned((pixels + along - 1) / along), unsigned(tiles())}, {along, rows}, unsigned((p.staged * taps + along) * tile * 4),
                from, weight, bias, to, p);
}

}  // namespace

bool small_convolve(ConvProduct product, DType dtype, const ConvShape& s, const void* a, const void* b, const void* bias, void* out) {
    if (!is_small(dtype, s)) return false;
    if (product == ConvProduct::weight) return small_conv_gradients(dtype, s, a, b, out, nullptr);
    gather(s, product == ConvProduct::input, a, b, bias, out);
    return true;
}

bool small_conv_gradients(DType dtype, const ConvShape& s, const void* input, const void* grad, void* weight, void* bias) {
    if (!is_small(dtype, s) || s.batch == 0) return false;
    Arguments p = arguments(s);
    const int taps = p.in_channels * p.kernel_y * p.kernel_x;
    const int tile = p.out_channels > 8 ? 16 : p.out_channels > 4 ? 8 : 4, tiles = (p.out_channels + tile - 1) / tile;
    const int64_t processors = device_info(current_device().index).multiprocessors;
    // Bands of rows: as many as fill the device, and small enough for shared memory.
    const int64_t needed = int64_t(p.out_x - 1) * p.stride_x + int64_t(p.kernel_x - 1) * p.dilation_x + 1;
    // Threads of a warp read the taps of a window: rows of the patch lie so that these are in different banks.
    int64_t across = needed + ((p.kernel_x - needed) % 32 + 32) % 32;
    auto floats = [&](int64_t rows) {
        return rows * p.out_x * tile + p.in_channels * ((rows - 1) * p.stride_y + int64_t(p.kernel_y - 1) * p.dilation_y + 1) * across + 1;
    };
    if (floats(1) > shared_floats) across = needed;
    int64_t rows = p.out_y;
    auto blocks = [&] { return s.batch * tiles * ((p.out_y + rows - 1) / rows); };
    auto idle = [&] { return (blocks() < processors / 2 && rows > 4) || (blocks() < processors * 3 / 2 && rows > 8); };
    while (rows > 1 && (floats(rows) > shared_floats || idle())) rows = (rows + 1) / 2;
    p.across = int(across);
    const Grid block{unsigned((taps + 1 + 31) / 32 * 32), 0};
    const unsigned height = std::max(1u, std::min(512u / block.x, unsigned(rows)));
    const int64_t shared = std::max<int64_t>(floats(rows), int64_t(tile) * block.x);
    if (shared > shared_floats) return false;
    const int64_t bands = (p.out_y + rows - 1) / rows, images = (s.batch * bands * tiles + 4 * processors - 1) / (4 * processors),
                  groups = (s.batch + images - 1) / images;
    if (groups > 65535) return false;
    const int parts = int(groups * bands), results = p.out_channels * (taps + 1);
    Scratch partial(size_t(parts) * size_t(results) * 4);
    void* to = partial.data();
    static Instances<4> kernels(file);
    launch_with(kernels(tile / 8, [&] { return str("small_conv_weights<", tile, ">"); }),
                {unsigned(bands), unsigned(tiles), unsigned(groups)}, {block.x, height}, unsigned(shared * 4), input, grad, to, p,
                int(images), int(rows));
    static Kernel* const join = find_kernel(file, "small_conv_join");
    launch_with(join, {unsigned((results + 31) / 32)}, {32, 32}, 0, to, weight, bias, parts, taps, results);
    return true;
}

}  // namespace wisp::cuda
