// Chooses and launches the kernels of a reduction.
#include "../core/merged.h"
#include "../kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "../core/device.h"
#include "../core/errors.h"
#include "divider.h"
#include "pointwise.h"
#include "runtime.h"

namespace wisp::cuda {
namespace {

#include "../kernels/reduce_arguments.h"

// The loops over the dimensions of one sort, as the kernel takes them: innermost first.
struct Loops : MergedDims<1> {
    int64_t innermost_size() const { return sizes[ndim - 1]; }
    int64_t innermost_stride() const { return strides[0][ndim - 1]; }
    int store(Divider* dividers, int64_t* to) const {
        for (int i = 0; i < ndim; i++) {
            dividers[i] = divider(uint32_t(sizes[ndim - 1 - i]));
            to[i] = strides[0][ndim - 1 - i];
        }
        if (ndim == 0) {
            dividers[0] = divider(1);
            to[0] = 0;
        }
        return std::max(ndim, 1);
    }
};

int norm_of(double p) {
    if (p == 0) return 0;
    if (p == 1) return 1;
    if (p == 2) return 2;
    if (std::isinf(p)) return p > 0 ? 3 : 4;
    return 5;
}

DType accumulator(Reduction kind, DType in, DType out) {
    if (kind == Reduction::max || kind == Reduction::min || kind == Reduction::extremes) return compute_dtype(in);
    if (kind == Reduction::any || kind == Reduction::all || kind == Reduction::count_nonzero) return DType::i64;
    return compute_dtype(out);
}

size_t accumulator_bytes(Reduction kind, DType a, bool with_places) {
    const size_t item = size_t(item_size(a));
    if (with_places) return a == DType::f32 ? 16 : item + 8;
    if (kind == Reduction::extremes) return 2 * item;
    if (kind == Reduction::variance) return 3 * item;
    if (kind == Reduction::logsumexp) return 2 * item;
    return item;
}

int64_t power_of_two_up_to(int64_t n, int64_t limit) {
    int64_t p = 1;
    while (p < n && p < limit) p *= 2;
    return p;
}

void reduce_tensor(Reduction kind, const ReduceArguments& given);

// More results than a kernel counts: halves of the first dimension that is kept, one after the other.
void reduce_in_parts(Reduction kind, const ReduceArguments& given) {
    int first = 0;
    while (given.reduced >> first & 1 || given.sizes[first] == 1) first++;
    int64_t each = 1;  // results of one index along it
    for (int d = 0; d < given.ndim; d++)
        if (d != first && !(given.reduced >> d & 1)) each *= given.sizes[d];
    int64_t sizes[64];
    std::copy(given.sizes, given.sizes + given.ndim, sizes);
    ReduceArguments part = given;
    part.sizes = sizes;
    const int64_t half = given.sizes[first] / 2, item = item_size(given.in_dtype), out_item = item_size(given.out_dtype);
    for (int64_t begin : {int64_t(0), half}) {
        sizes[first] = begin ? given.sizes[first] - half : half;
        part.in = static_cast<const char*>(given.in) + begin * given.strides[first] * item;
        if (given.out) part.out = static_cast<char*>(given.out) + begin * each * out_item;
        if (given.indices) part.indices = given.indices + begin * each;
        if (given.mean) part.mean = static_cast<char*>(given.mean) + begin * each * out_item;
        reduce_tensor(kind, part);
    }
}

// Through a copy in which the dimensions that are kept lie outside, the others inside.
void reduce_a_copy(Reduction kind, const ReduceArguments& given) {
    int64_t strides[64], next = 1;
    for (bool reduced : {true, false})
        for (int d = given.ndim - 1; d >= 0; d--)
            if (bool(given.reduced >> d & 1) == reduced) {
                strides[d] = next;
                next *= given.sizes[d];
            }
    Scratch dense(size_t(next * item_size(given.in_dtype)));
    copy_elements({dense.as<char>(), given.in_dtype, strides, nullptr},
                  {static_cast<char*>(const_cast<void*>(static_cast<const void*>(given.in))), given.in_dtype, given.strides, nullptr},
                  Dims(given.sizes, given.ndim), false);
    ReduceArguments again = given;
    again.in = dense.data();
    again.strides = strides;
    reduce_tensor(kind, again);
}

void reduce_tensor(Reduction kind, const ReduceArguments& given) {
    ReduceLaunch a{};
    a.in = static_cast<const char*>(given.in);
    a.out = static_cast<char*>(given.out);
    a.indices = given.indices;
    a.mean = static_cast<char*>(given.mean);
    a.divisor = given.divisor;
    a.parameter = given.parameter;
    a.root = given.root;
    Loops kept, folded;
    a.outputs = a.count = 1;
    for (int d = 0; d < given.ndim; d++) {
        const bool reduced = given.reduced >> d & 1;
        (reduced ? a.count : a.outputs) *= given.sizes[d];
        (reduced ? folded : kept).add(given.sizes[d], [&](int) { return given.strides[d]; });
    }
    if (a.outputs == 0) return;
    if (a.count == 0) folded = Loops{};
    if (kept.ndim > 1 && a.outputs >= (int64_t(1) << 31)) return reduce_in_parts(kind, given);
    if (folded.ndim > reduce_dims || kept.ndim > reduce_dims || (folded.ndim > 1 && a.count >= (int64_t(1) << 31)))
        return reduce_a_copy(kind, given);
    a.kept = kept.store(a.kept_sizes, a.kept_strides);
    a.folded = folded.store(a.folded_sizes, a.folded_strides);

    const DType acc = accumulator(kind, given.in_dtype, given.out_dtype);
    const bool extreme = kind == Reduction::max || kind == Reduction::min;
    const size_t acc_bytes = accumulator_bytes(kind, acc, extreme && a.indices);
    const int64_t item = item_size(given.in_dtype);
    const bool columns = kept.ndim > 0 && kept.innermost_stride() == 1 && kept.innermost_size() >= 16 &&
                         !(folded.ndim && folded.innermost_stride() == 1 && a.count >= 16);
    int vector = std::max<int>(1, int(16 / item));
    if (columns && vector > 4) vector = 4;
    if (columns ? kept.innermost_size() % vector != 0
                : folded.ndim == 0 || folded.innermost_stride() != 1 || folded.innermost_size() % vector != 0)
        vector = 1;
    if (uintptr_t(a.in) % uintptr_t(item * vector) != 0) vector = 1;
    for (const Loops* m : {&kept, &folded})
        for (int i = 0; i < m->ndim; i++)
            if (m->strides[0][i] != 1 && m->strides[0][i] % vector != 0) vector = 1;

    const int64_t processors = device_info(current_device().index).multiprocessors;
    Grid grid, block;
    unsigned shared;
    if (columns) {
        grid.x = unsigned((a.outputs + 32 * vector - 1) / (32 * vector));
        block = {32, 8};
        shared = unsigned(256 * size_t(vector) * acc_bytes);
        a.splits = std::max<int64_t>(1, std::min<int64_t>({processors * 8 / grid.x, a.count / 64, 1024}));
    } else {
        // Places are cheaper to join within a warp, where there are rows enough.
        const int64_t most = extreme && a.indices && a.outputs >= processors * 16 ? 32 : a.outputs < processors * 4 ? 512 : 256;
        const int64_t width = power_of_two_up_to((a.count / vector + 3) / 4, most);
        block.x = unsigned(std::max<int64_t>(width, a.count / vector >= 32 ? 32 : 1));
        block.y = std::max(1u, 256 / block.x);
        grid.x = unsigned((a.outputs + block.y - 1) / block.y);
        shared = unsigned(size_t(block.x) * block.y * acc_bytes);
        a.splits = std::max<int64_t>(1, std::min<int64_t>({processors * 8 / grid.x, a.count / (int64_t(block.x) * vector * 16), 2048}));
    }
    grid.y = unsigned(a.splits);

    const int norm = kind == Reduction::norm ? norm_of(given.parameter) : int(extreme && !a.indices);
    struct Kernels {
        Kernel *main = nullptr, *join = nullptr, *join_few = nullptr;
    };
    static std::unordered_map<uint64_t, Kernels> known;
    const uint64_t key = uint64_t(kind) | uint64_t(norm) << 8 | uint64_t(given.in_dtype) << 16 | uint64_t(given.out_dtype) << 24 |
                         uint64_t(vector) << 32 | uint64_t(columns) << 40;
    Kernels& k = known[key];
    if (!k.main) {
        const std::string head = str(int(kind), ", ", type_text(acc), ", ", norm);
        k.main =
            find_kernel("cuda/kernels/reduce.cuh", str(columns ? "reduce_columns<" : "reduce_rows<", head, ", ", type_text(given.in_dtype),
                                                       ", ", type_text(given.out_dtype), ", ", vector, ">"));
        k.join = find_kernel("cuda/kernels/reduce.cuh", str("reduce_join<", head, ", ", type_text(given.out_dtype), ">"));
        k.join_few = find_kernel("cuda/kernels/reduce.cuh", str("reduce_join_few<", head, ", ", type_text(given.out_dtype), ">"));
    }
    if (a.splits == 1) {
        launch_with(k.main, grid, block, shared, a);
        return;
    }
    Scratch partial(size_t(a.splits * a.outputs) * acc_bytes);
    a.partial = partial.as<char>();
    launch_with(k.main, grid, block, shared, a);
    const char* partials = a.partial;
    if (a.outputs < 4096 && a.splits > 16) launch_with(k.join_few, {unsigned(a.outputs)}, {256}, 0, a, partials);
    else launch_with(k.join, {unsigned((a.outputs + 255) / 256)}, {256}, 0, a, partials);
}

}  // namespace

const ReduceKernels reduce = {reduce_tensor};

}  // namespace wisp::cuda
