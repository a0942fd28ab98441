// Products with few rows in half precision, as of one token: a kernel of ours, which reads the weight as fast as memory gives it. In a
// region that keeps its launches, products with the same A one after another become one.
#include <algorithm>

#include "../core/device.h"
#include "gemm.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

#include "../kernels/few_rows_arguments.h"

constexpr int64_t most_rows = 16;

struct Bytes {
    const char* at;
    int64_t count;
    bool meets(const Bytes& o) const { return at < o.at + o.count && o.at < at + count; }
};
Bytes result_of(const FewRows& p, const FewRowsPart& q) { return {static_cast<const char*>(q.c), ((p.m - 1) * q.c_row + q.n) * 2}; }
Bytes weight_of(const FewRows& p, const FewRowsPart& q) { return {static_cast<const char*>(q.b), ((q.n - 1) * q.b_column + p.k) * 2}; }
Bytes bias_of(const FewRowsPart& q) { return {static_cast<const char*>(q.bias), q.bias ? q.n * 2 : 0}; }

// Whether `q` can be made along with the products of p: it needs none of their results and writes over nothing of theirs.
bool may_join(const FewRows& p, const FewRows& q) {
    if (p.count == FewRows::most || p.a != q.a || p.a_row != q.a_row || p.m != q.m || p.k != q.k) return false;
    const FewRowsPart& next = q.parts[0];
    for (int i = 0; i < p.count; i++) {
        const FewRowsPart& part = p.parts[i];
        const Bytes made = result_of(p, part), mine = result_of(q, next);
        if (made.meets(mine) || made.meets(weight_of(q, next)) || made.meets(bias_of(next))) return false;
        if (mine.meets(weight_of(p, part)) || mine.meets(bias_of(part))) return false;
    }
    return true;
}

// How a block works (kernels/few_rows.cuh), as was found quickest.
struct Shape {
    int number, tiles, warps, slices, blocks;
};
constexpr int most_shapes = 8;
Shape shape_for(const GemmArgs& g) {
    const int64_t processors = device_info(current_device().index).multiprocessors;
    if (g.m <= 4) return g.k >= 4096 ? Shape{0, 1, 16, 4, 2} : Shape{1, 1, 8, 4, 4};
    // A is read by every block: of many columns it is read for more of them at a time.
    if (g.m > 8 && g.n >= 32 * processors) return {2, 4, 4, 2, 5};
    // Few blocks have more warps each, or each of them more under way.
    if (g.m > 8 && g.k >= 4096 && g.n <= 16 * processors) return {3, 2, 16, 6, 1};
    const bool few = g.k >= 4096 || g.n <= 32 * processors;
    return {4 + 2 * (g.m > 8) + few, 2, few ? 16 : 8, 2, few ? 2 : 4};
}

}  // namespace

bool few_rows_matmul(DType dtype, const GemmArgs& g) {
    if ((dtype != DType::bf16 && dtype != DType::f16) || g.m > most_rows || g.batch_dims > 0 || g.alpha != 1) return false;
    if (g.k % 8 || g.k > INT32_MAX || g.n > INT32_MAX / 2 || (g.a_col != 1 && g.k > 1) || g.b_row != 1) return false;
    const int64_t b_column = g.n > 1 ? g.b_col : g.k, a_row = g.m > 1 ? g.a_row : g.k;
    if (b_column < g.k || b_column % 8 || a_row < g.k || a_row % 8 || (uintptr_t(g.a) | uintptr_t(g.b)) % 16) return false;
    const bool with_d = g.d && g.beta != 0;
    if (with_d && (g.d_row != 0 || (g.d_col != 1 && g.n > 1) || g.beta != 1)) return false;
    if (device_info(current_device().index).major < 8) return false;

    FewRows p{};
    p.a = g.a, p.a_row = a_row, p.m = int32_t(g.m), p.k = int32_t(g.k), p.count = 1;
    p.parts[0] = {g.b, with_d ? g.d : nullptr, g.c, b_column, std::max(g.c_row, g.n), int32_t(g.n), 0};
    const Shape shape = shape_for(g);
    const unsigned blocks = unsigned((g.n + 8 * shape.tiles - 1) / (8 * shape.tiles));
    static Instances<2 * most_shapes> instances("cuda/kernels/few_rows.cuh");
    const bool half = dtype == DType::f16;
    Kernel* kernel = instances(shape.number * 2 + half, [&] {
        return str("few_rows<", half ? "f16" : "bf16", ", ", shape.tiles, ", ", shape.warps, ", ", shape.slices, ", ", shape.blocks, ", ",
                   g.m > 8 ? "true" : "false", ">");
    });
    if (keeps_now())
        if (const KeptLaunch last = last_kept(kernel); last.arguments) {
            FewRows& before = *static_cast<FewRows*>(last.arguments);
            if (may_join(before, p)) {
                p.parts[0].first = int32_t(last.grid.x);
                before.parts[before.count++] = p.parts[0];
                widen_kept({last.grid.x + blocks});
                return true;
            }
        }
    launch_with(kernel, {blocks}, {unsigned(shape.warps * 32)}, 0, p);
    return true;
}

}  // namespace wisp::cuda
