// Small float products by a kernel of ours: a launch costs the host a third of what cuBLASLt's does.
#include "../core/device.h"
#include "gemm.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

#include "../kernels/small_gemm_arguments.h"

constexpr int64_t most_work = int64_t(1) << 27;  // multiplications; beyond this the library's kernels gain more than they cost

}  // namespace

bool small_matmul(DType dtype, const GemmArgs& g, void* row_sums) {
    if (dtype != DType::f32 || tf32_allowed() || g.batch_dims > 1) return false;
    const int64_t batch = g.batch_dims ? g.batch_size[0] : 1;
    const bool tiny = batch > 1 && g.m <= 16 && g.n <= 16 && g.k <= 64;
    if (g.m > INT32_MAX || g.n > INT32_MAX || g.k > INT32_MAX || (batch > 65535 && !tiny) || g.m * g.n * g.k > most_work ||
        g.m * g.n * g.k * batch > most_work)
        return false;
    // A dimension that is long beside two short ones leaves most of the device idle here.
    if (g.k > 2048 || g.m > (int64_t(1) << 20)) return false;
    for (int64_t stride : {g.a_row, g.a_col, g.b_row, g.b_col, g.c_row})
        if (stride > INT32_MAX) return false;
    const bool with_d = g.d && g.beta != 0;
    if (with_d && (g.d_row != 0 || (g.d_col != 1 && g.n > 1) || g.beta != 1 || batch > 1)) return false;
    SmallGemm p{static_cast<const float*>(g.a),
                static_cast<const float*>(g.b),
                with_d ? static_cast<const float*>(g.d) : nullptr,
                static_cast<float*>(g.c),
                static_cast<float*>(row_sums),
                int(g.m),
                int(g.n),
                int(g.k),
                int(g.a_row),
                int(g.a_col),
                int(g.b_row),
                int(g.b_col),
                int(g.c_row),
                0,
                0,
                0,
                float(g.alpha)};
    if (batch > 1) p.batch_a = g.batch_a[0], p.batch_b = g.batch_b[0], p.batch_c = g.batch_c[0];
    if (tiny) {
        static Instances<1> tinies("cuda/kernels/small_gemm.cuh");
        const int64_t count = batch * g.m * g.n;
        launch_with(tinies(0, [] { return "tiny_gemm"; }), {unsigned((count + 255) / 256)}, {256}, 0, p, count);
        return true;
    }
    auto tiles = [&](int64_t tile) { return Grid{unsigned((g.n + tile - 1) / tile), unsigned((g.m + tile - 1) / tile), unsigned(batch)}; };
    // The largest tiles that still give most multiprocessors something to do.
    static Instances<3> kernels("cuda/kernels/small_gemm.cuh");
    auto blocks = [](Grid g) { return int64_t(g.x) * g.y * g.z; };
    if (blocks(tiles(64)) >= 96) launch_with(kernels(0, [] { return "small_gemm<64, 64, 4, 2>"; }), tiles(64), {512}, 0, p);
    else if (blocks(tiles(32)) >= 96) launch_with(kernels(1, [] { return "small_gemm<32, 32, 4, 8>"; }), tiles(32), {512}, 0, p);
    else launch_with(kernels(2, [] { return "small_gemm<16, 16, 2, 8>"; }), tiles(16), {512}, 0, p);
    return true;
}

}  // namespace wisp::cuda
